"""The benchmarks' verdicts and reports, without a measurement."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', '..', 'benchmarks'))
import compare  # noqa: E402
import plots  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import smoke  # noqa: E402
import targets  # noqa: E402
import wakeup  # noqa: E402


def record(
    system, losses=(3.0, 2.0), seconds=1.0, sent=100.0, floor=100.0, hosts=2, suite='smoke',
    speed=200, cores=0.25, options=None,
):  # fmt: skip
    return dict(
        suite=suite, options=options or {}, system=system, hosts=hosts, workers_per_host=1,
        bandwidth_mbit=None if hosts == 1 else speed, cores_per_host=cores, losses=list(losses),
        step_seconds=seconds, step_seconds_quarter=seconds, step_seconds_three_quarters=seconds,
        sent_bytes=sent, received_bytes=sent, floor_bytes=floor, load=2.0, unit='words', steps=3,
        units_per_second=100 * hosts / seconds, cpu_seconds=0.1, peak_mib=100.0, alpha=0.5,
        first_step_seconds=1.0,
    )  # fmt: skip


def language_records(speed=40, horovod=15.0):
    """Records at 1, 2 and 8 hosts; a compute step takes a second."""
    return [
        record('tf', suite='lm', hosts=1, seconds=1.0, speed=speed),
        record('hvd-allgather', suite='lm', hosts=2, seconds=3.0, speed=speed),
        record('hybrid', suite='lm', hosts=2, seconds=2.0, speed=speed),
        record('hvd-keras', suite='lm', hosts=8, seconds=100.0, speed=speed),
        record('hvd-allgather', suite='lm', hosts=8, seconds=horovod, speed=speed),
        record('tf-ps', suite='lm', hosts=8, seconds=6.0, speed=speed),
        record('hybrid', suite='lm', hosts=8, seconds=2.5, sent=105.0, speed=speed),
    ]


def measured(records, what, alone=None):
    """The columns of what was measured, and whether a target is met."""
    rows = targets.rows(compare.variants(records), alone or {})
    (row,) = [row for row in rows if what in row[0]]
    return row[2], row[3]


def smoke_records(**changes):
    found = {
        'hvd-allgather': record('hvd-allgather', sent=200.0),
        'hybrid': record('hybrid', sent=105.0),
        'allreduce': record('allreduce', sent=150.0),
    }
    found.update(changes)
    return list(found.values())


def test_the_smoke_test_accepts_what_is_right():
    assert smoke.problems(smoke_records()) == []


@pytest.mark.parametrize(
    'wrong',
    [
        record('hybrid', sent=130.0),
        record('hybrid', sent=90.0),
        record('hybrid', sent=105.0, losses=(3.0, 2.1)),
        dict(record('hybrid'), error='exit code 1'),
    ],
    ids=['too many bytes', 'fewer than the floor', 'learns differently', 'failed'],
)
def test_the_smoke_test_refuses_what_is_wrong(wrong):
    assert smoke.problems(smoke_records(hybrid=wrong))


def test_the_smoke_test_judges_every_link_speed():
    slow = [dict(one, bandwidth_mbit=50) for one in smoke_records()]
    assert smoke.problems(smoke_records() + slow) == []
    (problem,) = smoke.problems(smoke_records(hybrid=record('hybrid', sent=130.0)) + slow)
    assert problem.startswith('At 200 Mbit/s, hybrid sends 1.300 times the floor')


def test_a_faster_run_that_learns_differently_does_not_count():
    def short(seconds, losses):
        records = smoke_records(hybrid=record('hybrid', seconds=seconds, losses=losses))
        return str(targets.short_rows(compare.variants(records)))

    assert '10.00x' not in short(0.1, (3.0, 2.1))
    assert '10.00x' in short(0.1, (3.0, 2.0))


def test_one_process_belongs_to_every_link_speed_and_other_shares_to_none():
    other = record('hybrid', suite='lm', hosts=8, cores=None)
    records = language_records(40) + language_records(200)[1:] + [other]
    found = {variant.title: variant for variant in compare.variants(records)}
    assert list(found) == [
        'Language model, 200 Mbit/s',
        'Language model, 40 Mbit/s, 0.25 cores a host',
        'Language model, 200 Mbit/s, 0.25 cores a host',
    ]
    hosts = [variant.hosts for variant in found.values()]
    assert hosts == [[8], [1, 2, 8], [1, 2, 8]]
    assert len({variant.plot for variant in found.values()}) == 3


def test_one_process_alone_makes_a_variant_of_its_own():
    (variant,) = compare.variants(language_records()[:1])
    assert variant.hosts == [1] and targets.short_rows([variant]) == []


def test_the_headline_is_taken_where_the_ratio_is_the_papers():
    records = language_records(40, 16.0) + language_records(200, 5.0)
    shown, verdict = measured(records, 'Language model, 8 hosts')
    assert shown == '6.40x (40 Mbit/s, ratio 16.0)' and verdict == 'yes'
    assert measured(records, "the same / TensorFlow's") == (
        '2.40x (40 Mbit/s, ratio 16.0)', 'no',
    )  # fmt: skip


def test_a_ratio_far_from_the_papers_is_named():
    assert "not the paper's 15" in measured(language_records(20, 33.0), 'Language model, 8')[0]


def test_without_a_compute_step_there_is_no_headline():
    assert measured(language_records()[1:], 'Language model, 8') == ('', 'not measured')


def test_clicks_are_judged_at_the_papers_ratio_and_told_elsewhere_too():
    records = language_records(40, 16.0) + language_records(200, 5.0)
    for one in records:
        one.update(suite='ctr', options={'kind': 'deepfm', 'width': 64})
    shown, verdict = measured(records, 'Clicks')
    assert shown == '6.40x (40 Mbit/s, ratio 16.0) - elsewhere 2.00x (200 Mbit/s, ratio 5.0)'
    assert verdict == 'no'


def test_growth_is_told_for_each_link_speed_and_may_be_met_in_part():
    slow = language_records(20)
    slow[-1]['step_seconds'] = 4.0
    shown, verdict = measured(language_records(40) + slow[1:], 'our step at 8 hosts / at 2')
    assert shown == '2.00x (20 Mbit/s); 1.25x (40 Mbit/s)' and verdict == 'in part'


def test_bytes_over_the_floor_are_told_where_they_are_most():
    shown, verdict = measured(language_records(), 'bytes sent / floor')
    assert shown == '1.05x (Language model, 40 Mbit/s, 0.25 cores a host, 8 hosts)'
    assert verdict == 'yes'


def test_what_needs_no_cluster_is_judged_too():
    alone = {
        'one_process': {
            'raw TensorFlow': [{'step_ms': 10, 'peak_gib': 2.0}] * 3,
            'keras-parallax (keras)': [{'step_ms': 13, 'peak_gib': 2.1}] * 3,
        },
        'startup': {
            name: [{'total': {'seconds': seconds, 'cpu_seconds': 1.0}}]
            for name, seconds in (
                ('Keras', 1.0), ('keras-parallax', 2.0),
                ('horovod.keras, 2 workers', 2.0), ('keras-parallax, 2 workers', 5.5),
            )
        },
    }  # fmt: skip
    assert measured([], 'time / raw', alone) == ('1.30x (keras-parallax (keras))', 'no')
    assert measured([], 'memory / raw', alone) == ('1.05x (keras-parallax (keras))', 'yes')
    assert measured([], 'Start-up', alone)[1] == 'in part'
    assert measured([], 'Start-up') == ('', 'not measured')


def test_speed_ups_over_alpha_begin_at_one_and_need_both_systems():
    records = [
        dict(record(system, suite='alpha', hosts=8, seconds=seconds, options={'length': length}),
             alpha=alpha)
        for length, alpha, system, seconds in (
            (4, 0.04, 'hybrid', 1.0), (4, 0.04, 'hvd-allgather', 3.0),
            (120, 1.0, 'hybrid', 2.0), (120, 1.0, 'hvd-allgather', 4.0),
            (1, 0.01, 'hybrid', 1.0),
        )
    ]  # fmt: skip
    assert compare.alpha_points(records) == [(1.0, 2.0), (0.04, 3.0)]
    assert compare.alpha_points(records, 'tf-ps') == []


def test_the_line_over_link_speeds_needs_two_of_them():
    assert plots.link_speed_lines(compare.variants(language_records())) == {}
    records = language_records(40) + language_records(200, 5.0)[1:]
    lines = plots.link_speed_lines(compare.variants(records))
    assert lines == {'Language model, 0.25 cores a host': [(40, 6.0), (200, 2.0)]}


def test_the_report_is_written_with_failures_and_without_what_is_missing(tmp_path):
    failed = {key: record('ps', suite='lm', hosts=8, speed=40)[key] for key in results.CASE}
    failed.update(error='did not end within 900 s', load=1.0)
    (tmp_path / 'plot-old.png').write_text('old')
    report.write(language_records() + [failed], str(tmp_path))
    written = (tmp_path / 'index.md').read_text(encoding='utf-8')
    assert 'failed: did not end within 900 s' in written and 'Start-up, a model' not in written
    pictures = {path.name for path in tmp_path.glob('*.png')}
    assert pictures == {'plot-language-model-40-mbit-s-0-25-cores-a-host.png'}
    assert all(picture in written for picture in pictures)


def test_of_several_rounds_the_one_of_the_median_step_counts_and_failed_ones_if_all_did():
    rounds = [record('hybrid', seconds=seconds) for seconds in (3.0, 1.0, 2.0)]
    failed = {'error': 'did not end'}
    found = dict(rounds[2], rounds=3, step_seconds_of_rounds=[3.0, 1.0, 2.0])
    assert compare.middle(rounds) == found
    assert compare.middle([failed] + rounds) == dict(rounds[2], rounds=3)
    assert compare.middle([failed, failed]) == dict(failed, rounds=2)


def test_of_several_rounds_the_median_ratio_counts_and_not_that_of_the_medians():
    def of_rounds(system, *seconds, hosts=2):
        return compare.middle([record(system, seconds=one, hosts=hosts) for one in seconds])

    ours, theirs = of_rounds('hybrid', 1.0, 2.0, 4.0), of_rounds('hvd-allgather', 1.5, 2.2, 3.6)
    assert compare.speed_up(ours, theirs) == pytest.approx(1.1)
    ours, theirs = of_rounds('hybrid', 1.0, 4.0, 2.0), of_rounds('hvd-allgather', 2.0, 3.0, 1.0)
    assert compare.speed_up(ours, theirs) == pytest.approx(0.75)
    # What did not run in the same rounds has none in common.
    assert compare.speed_up(dict(ours, run=1), dict(theirs, run=2)) == pytest.approx(1.0)
    assert compare.speed_up(ours, of_rounds('tf-ps', 6.0)) == pytest.approx(3.0)
    wider = of_rounds('hybrid', 3.0, 4.0, 2.0, hosts=8)
    assert compare.speed_up(wider, ours) == pytest.approx(2 / 3)


@pytest.mark.parametrize('rounds, steps', [(1, '| 3 '), (5, '| 5 x 3 ')])
def test_the_report_tells_how_many_rounds_there_were(rounds, steps):
    records = [dict(one, rounds=rounds) for one in language_records()]
    assert steps in report.table(compare.variants(records)[0])


def test_measurements_of_earlier_sources_are_told_from_the_newest():
    old = [dict(one, sources='earlier') for one in language_records(speed=40)]
    new = [dict(one, sources='now') for one in language_records(speed=60)]
    told = [report.age(variant, old + new) for variant in compare.variants(old[1:] + new[1:])]
    assert [bool(text) for text in told] == [True, False]


def test_a_case_is_missing_until_it_was_measured_with_these_sources(tmp_path):
    kept = results.Results(str(tmp_path))
    one = record('hybrid')
    assert not kept.has(one)
    kept.add(one)
    kept = results.Results(str(tmp_path))
    assert kept.has(one) and not kept.has(dict(one, cores_per_host=None))
    kept.add(dict(one, step_seconds=9.0))
    assert len(kept.records) == 1
    kept.records[0]['sources'] = 'others'
    assert not kept.has(one)


def test_a_benchmark_that_is_a_script_of_its_own_is_published_until_its_sources_change(tmp_path):
    folder = str(tmp_path)
    assert not results.published(folder, 'startup')
    results.publish(folder, 'startup', {'Keras': []})
    assert results.published(folder, 'startup') and not results.published(folder, 'one_process')
    content = report.published(folder, 'startup')
    assert content['results'] == {'Keras': []} and content['date'] and content['machine']
    path = tmp_path / 'startup.json'
    path.write_text(path.read_text().replace(content['sources'], 'others'))
    assert not results.published(folder, 'startup')


def test_a_benchmark_that_is_a_script_of_its_own_has_a_section_once_it_was_run(tmp_path):
    folder = str(tmp_path)
    late = [wakeup.summary(cores, 2, [0.5, 1.0, 9.0]) for cores in (None, 0.25)]
    results.publish(folder, 'wakeup', late)
    report.write([], folder)
    text = (tmp_path / 'index.md').read_text()
    assert '## How late a thread that has waited goes on\n\nOn ' in text
    assert '#how-late-a-thread-that-has-waited-goes-on' in text
    assert '| no limit' in text and '| 0.25' in text and '| 3.5' in text
    assert '## Start-up' not in text
