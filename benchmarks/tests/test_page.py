# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The report as it is written."""

import re

import pytest
import wakeup
from records import language_records, record
from report import compare, convergence, page, parts, results


def test_the_report_is_written_with_failures_and_without_what_is_missing(tmp_path):
    failed = {key: record('ps', suite='lm', hosts=8, speed=40)[key] for key in results.CASE}
    failed.update(error='did not end within 900 s', load=1.0)
    (tmp_path / 'plot-old.png').write_text('old')
    page.write(language_records() + [failed], str(tmp_path))
    written = (tmp_path / 'language-model.md').read_text(encoding='utf-8')
    assert 'failed: did not end within 900 s' in written
    pictures = {path.name for path in tmp_path.glob('*.png')}
    assert pictures == {'plot-language-model-40-mbit-s-0-25-cores-a-host.png'}
    assert all(picture in written for picture in pictures)
    missing = {'clicks.md', 'resnet.md', 'smoke.md', 'alpha.md', 'one-process.md'}
    missing |= {'convergence.md', 'parts.md', 'tables.md'}
    assert {path.name for path in tmp_path.glob('*.md')} == {'index.md', *page.ORDER} - missing


def test_the_first_page_shows_what_was_drawn_and_leads_to_what_was_written(tmp_path):
    records = language_records(40) + language_records(200, 5.0)[1:]
    page.write(records, str(tmp_path))
    first = (tmp_path / 'index.md').read_text(encoding='utf-8')
    links = re.findall(r'\]\(([^)#]+)', first)
    assert 'plot-link-speed.png' in links and 'language-model.md' in links
    assert all((tmp_path / link).exists() for link in links)
    # Of the two speeds the one at which Horovod's step takes the paper's 15 compute steps.
    assert 'Language model, 40 Mbit/s' in first and 'plot-alpha.png' not in links
    assert re.search(r'\| keras-parallax, hybrid +\| 320 +\| 6.0x', first)


def test_the_first_page_tells_of_all_three_pictures_and_of_what_does_not_pay(tmp_path):
    records = language_records(40) + language_records(200, 5.0)[1:]
    records += [
        dict(record(system, suite='alpha', hosts=8, seconds=seconds, options={'length': length}))
        for length in (1, 2)
        for system, seconds in (('hybrid', 1.0), ('tf-ps', 1.0), ('hvd-allgather', 1.5))
    ]
    records += [record(system, suite='dense') for system in ('hybrid', 'hvd-keras')]
    page.write(records, str(tmp_path))
    first = (tmp_path / 'index.md').read_text(encoding='utf-8')
    assert len(re.findall(r'!\[', first)) == 3
    assert '1.50 to 1.50 times as fast as Horovod' in first
    assert 'A ResNet trains 1.00 to 1.00 times as fast' in first


def test_a_page_whose_records_are_gone_goes_too(tmp_path):
    page.write(language_records(), str(tmp_path))
    page.write([], str(tmp_path))
    assert not (tmp_path / 'language-model.md').exists()


def test_pages_name_the_machine_of_the_records_and_not_that_of_who_writes_them(tmp_path):
    machine = dict(results.machine(), processor='Abacus')
    results.write(str(tmp_path / 'results.json'), {'machine': machine, 'records': []})
    page.write([], str(tmp_path))
    assert all('Abacus' in (tmp_path / name).read_text() for name in ('index.md', 'how.md'))


@pytest.mark.parametrize('rounds, steps', [(1, '| 3 '), (5, '| 5 x 3 ')])
def test_the_report_tells_how_many_rounds_there_were(rounds, steps):
    records = [dict(one, rounds=rounds) for one in language_records()]
    assert steps in page.table(compare.variants(records)[0])


def test_measurements_of_earlier_sources_are_told_from_the_newest():
    old = [dict(one, sources='earlier') for one in language_records(speed=40)]
    new = [dict(one, sources='now') for one in language_records(speed=60)]
    told = [page.age(variant, old + new) for variant in compare.variants(old[1:] + new[1:])]
    assert [bool(text) for text in told] == [True, False]


def test_a_benchmark_that_is_a_script_of_its_own_has_a_section_once_it_was_run(tmp_path):
    folder = str(tmp_path)
    late = [wakeup.summary(cores, 2, [0.5, 1.0, 9.0]) for cores in (None, 0.25)]
    results.publish(folder, 'wakeup', late)
    page.write([], folder)
    text = (tmp_path / 'one-process.md').read_text()
    assert '## How late a thread that has waited goes on\n\nOn ' in text
    link = 'one-process.md#how-late-a-thread-that-has-waited-goes-on'
    assert link in (tmp_path / 'how.md').read_text(encoding='utf-8')
    assert '| no limit' in text and '| 0.25' in text and '| 3.5' in text
    assert '## Start-up' not in text


def test_what_is_learned_over_time_tells_when_each_is_as_good_as_the_worst_in_the_end(tmp_path):
    curves = {
        'hvd-allgather': [(10.0, 900.0), (20.0, 300.0), (30.0, 200.0)],
        'hybrid': [(5.0, 900.0), (10.0, 300.0), (15.0, 200.0)],
        'tf-ps': [(8.0, 900.0), (16.0, 320.0), (24.0, 210.0)],
    }
    found = dict(hosts=8, bandwidth_mbit=200, cores_per_host=0.25, steps=3, works={'lm': curves})
    results.publish(str(tmp_path), 'convergence', found)
    page.write([], str(tmp_path))
    text = (tmp_path / 'convergence.md').read_text(encoding='utf-8')
    rows = dict(re.findall(r'\| Language model \| ([^|]+?) +\|.*\| (\d+) +\|', text))
    assert rows == {
        'Horovod, sparse allgather': '30',
        'keras-parallax, hybrid': '15',
        'TensorFlow, parameter servers': '24',
    }
    assert (tmp_path / convergence.PLOT).exists()


def test_each_part_is_compared_with_the_one_before_and_shards_with_the_fitted_curve(tmp_path):
    def of(system, suite, seconds, workers):
        seen = record(system, suite=suite, hosts=4, seconds=seconds)
        return dict(seen, workers_per_host=workers, sent_bytes_most=seen['sent_bytes'])

    records = [
        of(system, 'parts', seconds, 2)
        for system, seconds in (('hybrid-shards', 1.0), ('hybrid-whole', 2.0), ('tf-ps', 3.0))
    ]
    records += [
        of('shards-%d' % count, 'shards', 1 + 4 / count + 0.25 * count, 1) for count in (1, 4, 16)
    ]
    page.write(records, str(tmp_path))
    text = (tmp_path / 'parts.md').read_text(encoding='utf-8')
    assert re.search(r'tables in one piece +\|[^|]+\| 1.50x +\| 1.50x', text)
    assert re.search(r'\+ shards on all servers +\|[^|]+\| 2.00x +\| 3.00x', text)
    assert 't(P) = 1e+03 + 4e+03 / P + 250 * P milliseconds\nChosen: 4 shards a table' in text
    assert (tmp_path / parts.PLOT).exists()
