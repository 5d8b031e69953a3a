# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
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


def test_a_part_that_is_measured_anew_leaves_the_rest_and_is_current_when_all_is(tmp_path):
    def result(title, number):
        return {'title': title, 'hosts': 2, 'number': number}

    folder, told_by = str(tmp_path / 'made'), ['title', 'hosts']
    results.publish_part(folder, 'startup', [result('a', 1), result('b', 2)], told_by)
    results.publish_part(folder, 'startup', [result('c', 3), result('a', 4)], told_by)
    content = results.published(folder, 'startup')
    assert content['results'] == [result('a', 4), result('b', 2), result('c', 3)]
    assert results.is_current(folder, 'startup')
    path, today = tmp_path / 'made' / 'startup.json', content['date']
    of_others = path.read_text().replace(content['sources'], 'others')
    path.write_text(of_others.replace(today, '2001-02-03'))
    results.publish_part(folder, 'startup', [result('b', 5)], told_by)
    assert not results.is_current(folder, 'startup')
    assert results.published(folder, 'startup')['date'] == '2001-02-03 to ' + today
    results.publish_part(folder, 'startup', [result(name, 6) for name in 'abc'], told_by)
    assert results.is_current(folder, 'startup')
    assert results.published(folder, 'startup')['date'] == today


def test_what_was_committed_can_be_read():
    records = results.Results(COMMITTED).records
    assert len(compare.variants(records)) > 10 and all(one['sources'] for one in records)
    found = {name: results.published(COMMITTED, name) for name in scripts.SCRIPTS}
    names = scripts.OF_ONE_HOST
    assert len(scripts.sections(found, names)) == 3 * len(names)
