"""The report as it is written."""

import pytest
import wakeup
from records import language_records, record
from report import compare, page, results


def test_the_report_is_written_with_failures_and_without_what_is_missing(tmp_path):
    failed = {key: record('ps', suite='lm', hosts=8, speed=40)[key] for key in results.CASE}
    failed.update(error='did not end within 900 s', load=1.0)
    (tmp_path / 'plot-old.png').write_text('old')
    page.write(language_records() + [failed], str(tmp_path))
    written = (tmp_path / 'index.md').read_text(encoding='utf-8')
    assert 'failed: did not end within 900 s' in written and 'Start-up, a model' not in written
    pictures = {path.name for path in tmp_path.glob('*.png')}
    assert pictures == {'plot-language-model-40-mbit-s-0-25-cores-a-host.png'}
    assert all(picture in written for picture in pictures)


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
    text = (tmp_path / 'index.md').read_text()
    assert '## How late a thread that has waited goes on\n\nOn ' in text
    assert '#how-late-a-thread-that-has-waited-goes-on' in text
    assert '| no limit' in text and '| 0.25' in text and '| 3.5' in text
    assert '## Start-up' not in text
