"""`partitions='search'` changes the number of shards while training goes on."""

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


@pytest.mark.parametrize('run', ['first', 'second'])
def test_no_training_is_lost(job, run):
    case = cases.CASES['adam']
    start, _, weights = reference.run(case, keras, 2, STEPS)
    # Five times the steps of the equality tests, and five times their tolerance.
    for number, (begin, expected) in enumerate(zip(start, weights)):
        largest = max(np.abs(begin).max(), np.abs(expected).max())
        np.testing.assert_allclose(
            job[0]['%s_%d' % (run, number)], expected, rtol=0, atol=5e-5 * largest
        )
