"""Records that are kept, and when they are of earlier sources."""

import os

from records import record
from report import compare, results, scripts

COMMITTED = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'benchmarks'
)


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
    assert not results.is_current(folder, 'startup')
    results.publish(folder, 'startup', {'Keras': []})
    assert results.is_current(folder, 'startup')
    assert not results.is_current(folder, 'one_process')
    content = results.published(folder, 'startup')
    assert content['results'] == {'Keras': []} and content['date'] and content['machine']
    path = tmp_path / 'startup.json'
    path.write_text(path.read_text().replace(content['sources'], 'others'))
    assert not results.is_current(folder, 'startup')


def test_what_was_committed_can_be_read():
    records = results.Results(COMMITTED).records
    assert len(compare.variants(records)) > 10 and all(one['sources'] for one in records)
    found = {name: results.published(COMMITTED, name) for name in scripts.SCRIPTS}
    names = scripts.OF_ONE_HOST
    assert len(scripts.sections(found, names)) == 3 * len(names)
