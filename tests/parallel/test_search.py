# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`partitions='search'` and `architecture='auto'` try things out while training goes on."""

import os
import re

import cases
import launch
import numpy as np
import pytest
import reference
from any_keras import keras

STEPS = 105


@pytest.fixture(scope='module')
def job(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('search'))
    outcome = launch.run(
        2, 'parallel/search_worker.py', folder, environ={'KERAS_PARALLAX_CACHE': folder}
    )
    assert outcome.code == 0, outcome.output[-5000:]
    return np.load(os.path.join(folder, 'found.npz')), outcome.output


def test_it_tries_several_numbers_and_settles_on_one(job):
    seen = job[0]['first_seen']
    assert len(set(seen)) >= 3
    assert len(set(seen[-5:])) == 1


def test_it_says_what_it_tried_and_chose(job):
    found, output = job
    (chosen,) = map(int, re.findall(r'Chosen: (\d+) shard', output))
    assert chosen == found['first_seen'][-1]
    said = {int(shards) for shards in re.findall(r':\s+(\d+)\s+\d+\.\d\d', output)}
    # The curve's lowest point may lie between two numbers that were tried.
    assert set(found['first_seen']) == said | {chosen}
    assert min(said) <= chosen <= max(said)


def test_the_next_job_of_the_model_starts_with_the_choice(job):
    found = job[0]
    assert set(found['second_seen']) == {found['first_seen'][-1]}


def test_auto_tries_three_architectures_and_settles_on_one(job):
    seen = list(job[0]['auto_seen'])
    # A density is measured in the first ten steps, then ten steps count for the first trial.
    assert set(seen[:19]) == {'hybrid'}
    assert list(dict.fromkeys(seen)) == ['hybrid', 'ps', 'allreduce']
    assert len(set(seen[-5:])) == 1


def test_the_architecture_is_that_of_the_variables_on_all_ranks(job):
    found = job[0]
    exchanges = {
        'hybrid': {'servers', 'allreduce'},
        'ps': {'servers'},
        'allreduce': {'allgather', 'allreduce'},
    }
    of_ranks = found['auto_of_ranks'].tolist()
    assert of_ranks[0] == of_ranks[1] == list(found['auto_seen'])
    chosen = of_ranks[0][-1]
    # Which of the two suits a table on every worker is told by its density.
    assert set(found['auto_exchanges']) <= exchanges[chosen]
    assert ('servers' in found['auto_exchanges']) == (chosen != 'allreduce')


def test_auto_says_what_it_tried_and_chose_with_numbers(job):
    found, output = job
    chosen = found['auto_seen'][-1]
    report = output[output.index('architectures were tried') :]
    assert re.search(r'Chosen: %s$' % chosen, report, re.MULTILINE)
    for name in ('hybrid', 'ps', 'allreduce'):
        assert re.search(r'\b%s +\d trials? +\d+\.\d\d$' % name, report, re.MULTILINE)
    first = str(found['auto_summary']).splitlines()[0]
    assert first.startswith('Architecture: %s (' % chosen) and "'auto' was asked for" in first
    assert re.search(r'of those tried: \w+ takes [\d.]+ \w+ a step', first)


@pytest.mark.parametrize('run', ['first', 'second', 'auto'])
def test_no_training_is_lost(job, run):
    case = cases.CASES['adam']
    start, _, weights = reference.run(case, keras, 2, STEPS)
    # Five times the steps of the equality tests, and five times their tolerance.
    for number, (begin, expected) in enumerate(zip(start, weights)):
        largest = max(np.abs(begin).max(), np.abs(expected).max())
        np.testing.assert_allclose(
            job[0]['%s_%d' % (run, number)], expected, rtol=0, atol=5e-5 * largest
        )
