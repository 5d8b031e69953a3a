# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`DynamicEmbedding` on shards trains as plain Keras does on ids that a dict numbers."""

import os

import dynamic
import launch
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

#: Package, workers and runs of each job. In the first ones, tables are filled up, too.
JOBS = (
    KERAS_PACKAGES[-1] + '-2-adagrad',
    KERAS_PACKAGES[0] + '-3-adam',
    KERAS_PACKAGES[0] + '-2-moved-accumulated-bags',
    KERAS_PACKAGES[0] + '-2-fp16-auto-search',
)
FILLED = JOBS[:2]
#: Values lose digits in half precision; sums are still made in single precision.
TOLERANCES = {'fp16': 2e-3}


@pytest.fixture(scope='module')
def folder(tmpdir_factory):
    return str(tmpdir_factory.mktemp('dynamic'))


@pytest.fixture(params=JOBS)
def runs(request, once, folder):
    """For each run, what each worker has seen, a list of dicts."""
    return once(run_job, request.param, os.path.join(folder, request.param))


def run_job(named, folder):
    os.makedirs(folder)
    package, size, *names = named.split('-')
    outcome = launch.run(
        int(size),
        'parallel/dynamic_worker.py',
        package,
        folder,
        *names,
        environ={'KERAS_PARALLAX_CACHE': folder},
    )
    assert outcome.code == 0, outcome.output[-8000:]
    return {
        name: [np.load(os.path.join(folder, '%s.%d.npz' % (name, n))) for n in range(int(size))]
        for name in names
    }


def test_a_job_trains_as_plain_keras_whatever_becomes_of_its_shards(runs):
    for name, ranks in runs.items():
        dynamic.assert_as_plain(ranks, TOLERANCES.get(name, 1e-5))


@pytest.mark.parametrize('runs', JOBS[2:], indirect=True)
def test_what_came_of_rows_is_known_when_they_have_moved(runs):
    if 'moved' in runs:
        (shards, *_) = runs['moved'][0]['ours.placed']
        assert shards == 2
    for name, ranks in runs.items():
        for ours in ranks:
            used = len(dynamic.trained_ids())
            assert ours['ours.rows_used'] == ours['ours.rows_given'] == used, name
            # Whatever else `'auto'` has tried.
            assert ours['ours.placed'][0] > 0, name


@pytest.mark.parametrize('runs', FILLED, indirect=True)
def test_a_full_table_says_so_on_every_rank_and_has_what_it_had(runs):
    (ranks,) = runs.values()
    for number, ours in enumerate(ranks):
        said = str(ours['full.said'])
        assert said.startswith('TableFullError: Rank %d: the layer table has no row left' % number)
        assert 'rows have an id' in said or 'of its 2 has an id for' in said
        assert ours['full.same'].all()


@pytest.mark.parametrize('runs', JOBS[1:2], indirect=True)
def test_a_table_that_is_frozen_or_trained_against_what_it_was_made_for_is_refused(runs):
    for ours in runs['adam']:
        frozen, trained = map(str, ours['refused'])
        assert frozen.startswith('PlanError: ') and 'is not trained, but gives rows' in frozen
        assert trained.startswith('PlanError: ') and 'called with trainable=False' in trained


@pytest.mark.parametrize('runs', FILLED, indirect=True)
def test_every_rank_looks_up_the_rows_of_a_frozen_table_that_rank_0_has(runs):
    (ranks,) = runs.values()
    for ours in ranks:
        predicted, expected = ours['frozen.predicted'], ours['frozen.expected']
        np.testing.assert_allclose(predicted, expected, rtol=0, atol=1e-5)
