# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""N workers against plain Keras in one process on the joined batch."""

import itertools
import os

import cases
import launch
import numpy as np
import pytest
import reference
import rested_rows
from frameworks import KERAS_PACKAGES, TF1_15, TF2
from refused import reason

PACKAGES = KERAS_PACKAGES
JOBS = list(itertools.product((1, 2, 3), PACKAGES))
#: The jobs that also compare cases about the engine: the numbers of workers that differ for it.
ENGINE_JOBS = [(2, PACKAGES[0]), (3, PACKAGES[-1]), (2, PACKAGES[-1])]

# With `--every`, each model is compared on one, two and three workers:
#
#   model       1 rank      2 workers     3 workers
#   even        keras       tf.keras    keras
#   odd         tf.keras    keras       tf.keras
#
# and each architecture and number of partitions with each optimizer, in a Latin square:
#
#   strategy    sgd         adagrad     adam
#   first       1st job     2nd job     3rd job
#   second      2nd job     3rd job     1st job, and so on
#
# One engine trains them all, so without it each model is compared on two workers or on three, the
# models in turn, and some on one; each strategy with one optimizer, the optimizers in turn.
MODEL_RUNS = [
    (ranks, PACKAGES[(number + ranks + 1) % len(PACKAGES)], name)
    for number, name in enumerate(cases.CASES)
    for ranks in (1, 2, 3)
]
MODEL_RUNS_IN_TURN = [
    run
    for number in range(len(cases.CASES))
    for run in MODEL_RUNS[3 * number : 3 * number + 3]
    # Three workers for models with one of the packages: a job less.
    if run[0] == (3 if number % 6 == 1 else 2) or (run[0] == 1 and number % 12 == 0)
]
MATRIX_RUNS = [
    ENGINE_JOBS[(row + column) % len(ENGINE_JOBS)] + ('%s_%s' % (strategy, optimizer),)
    for row, strategy in enumerate(cases.STRATEGIES)
    for column, optimizer in enumerate(cases.MATRIX_OPTIMIZERS)
]
MATRIX_RUNS_IN_TURN = [
    MATRIX_RUNS[3 * row + (row + row // 3) % 3] for row in range(len(cases.STRATEGIES))
]
#: Each package divides by another sum: two workers train with both.
WEIGHTED_RUNS = [
    (ranks, package, name)
    for name in cases.WEIGHTED_CASES
    for package in PACKAGES
    for ranks in (1, 2)
    # Only Keras 2.2.4 takes sample weights for such a loss.
    if (package == 'keras' and not TF2) or not name.endswith('of_one_number')
]
WEIGHTED_RUNS_IN_TURN = [
    run for run in WEIGHTED_RUNS if run[0] == 2 or run[2] == 'mask_and_weights'
]
#: One engine counts the terms of both packages: they take turns.
SUMMED_RUNS = [
    (2, PACKAGES[number % len(PACKAGES)], name) for number, name in enumerate(cases.SUMMED_CASES)
] + [(1, PACKAGES[0], 'accumulated_summed_terms')]
#: Of what else the engine does there are several cases each, one after the other: one for each job.
ENGINE_RUNS = [
    ENGINE_JOBS[number % len(ENGINE_JOBS)] + (name,)
    for number, name in enumerate(cases.ENGINE_CASES)
]
#: Optimizers of users: one after the other, one for each job, too.
OWN_RUNS = [
    ENGINE_JOBS[number % len(ENGINE_JOBS)] + (name,) for number, name in enumerate(cases.OWN_CASES)
]
#: Tables that are made dense: the packages in turn. Of two workers, gathering rows is never dearer.
DENSE_RUNS = [
    ENGINE_JOBS[1] + (name,)
    if name.startswith('dense_allreduce')
    else (2, PACKAGES[number % len(PACKAGES)], name)
    for number, name in enumerate(cases.DENSE_CASES)
]
#: With TensorFlow 1.15 the package `keras` 2.3, whose optimizers are those of Keras 2.2.4.
KERAS_2_3_RUNS = [
    (2, 'keras', name)
    for name in [*cases.CASES, 'ps_masked_adam', 'moved_regularized_adam', 'accumulated_adam']
    if TF1_15
]
#: Cases that are compared with `--every` alone, by what compares the same without it.
COVERED = {
    'another model on servers does so': ('ps_masked_adam', 'ps_two_outputs', 'ps_custom'),
    'so it is with batches that are accumulated': (
        'ps_regularized_adam',
        'search_momentum',
        'auto_400_adam',
        'many_clipnorm',
        'many_tf_adam',
    ),
    'another table with as many slots is searched or moved': (
        'search_nadam',
        'search_shared',
        'search_two_outputs',
        'search_few_rows',
        'search_columns',
        'search_tf_adam',
        'moved_tf_adam',
    ),
    'the table of another optimizer changes its kind': (
        'auto_5_momentum',
        'auto_5_adagrad',
        'auto_400_momentum',
        'auto_400_tf_adagrad',
        'accumulated_auto',
    ),
    'halves are the same on servers, and `fp16_both_columns` has both ways': (
        'fp16_ps',
        'fp16_both_sgd',
    ),
    'another model has shards of its own on each worker': (
        'many_shared_adam',
        'many_columns',
        'in_loop',
        'accumulated_allreduce',
    ),
    'other optimizers accumulate, have tables of few rows, clip and move': (
        'accumulated_tf_adam',
        'accumulated_many_clipnorm',
        'many_few_rows',
        'columns_clipnorm',
        'search_regularized_adam',
        'moved_columns',
        'ps_clipnorm_adam',
        'one_clipnorm',
        'many_regularized_rowwise',
        'accumulated_search',
    ),
    'tests/unit/engine/updates/test_optimizer_adapter.py tells which optimizers need rows': tuple(
        'dense_' + name
        for name in rested_rows.OPTIMIZERS
        if name not in ('momentum', 'nadam', 'ftrl', 'tf_momentum', 'tf_ftrl', 'lazy_adam')
    ),
    'another table that is made dense has rows of two batches, in half precision or clipped': (
        'dense_fp16',
        'dense_accumulated',
        'dense_looked_up_twice',
        'dense_tied',
        'dense_ps_lazy_adam',
        'dense_ps_regularized',
        'dense_clipnorm_lazy_adam',
    )
    + tuple(
        'dense_' + name
        for name in ('clipnorm_sgd', 'ps_clipnorm', 'global_clipnorm_sgd', 'ps_global_clipnorm')
        if 'dense_' + name in cases.DENSE_CASES
    ),
    'tests/unit/engine/updates/test_requested_gradients.py compares the formula in one process': (
        'own_by_kind_of_gradient',
        'own_noisy',
        'own_by_name',
        'own_lookahead',
        'own_tf_slices_clipped',
    ),
    'another formula of a user looks at as much': (
        'own_halving_clipped',
        'own_tf_clipped_before_applied',
        'own_slices_clipped_twice',
        'own_layerwise_adam',
        'own_ps_layerwise_adam',
        'own_ps_centralized',
        'own_many_factored',
        'own_by_number_of_entries',
        'own_ps_entrywise',
        'own_search_entrywise',
        'own_slices_clipped',
    ),
}


class Job:
    """Jobs of workers, each with all of its cases that are asked for, and started once."""

    def __init__(self, selected, make_folder):
        self._selected, self._make_folder, self._done = selected, make_folder, {}

    def names(self, ranks, package):
        """The cases of a job that are asked for."""
        return [
            params['name']
            for params in self._selected
            if (params['ranks'], params['package']) == (ranks, package)
            and 'name' in params
            and reason(params['name'], package) is None
        ]

    def __call__(self, ranks, package):
        """A job's folder and its `Outcome`."""
        if (ranks, package) not in self._done:
            folder = str(self._make_folder('equality'))
            environ = {'KERAS_PARALLAX_CACHE': folder}
            if ranks == 3:
                environ['WITH_GRAPPLER'] = '1'  # As users have it.
            outcome = launch.run(
                ranks,
                'parallel/equality_worker.py',
                package,
                folder,
                *self.names(ranks, package),
                environ=environ,
            )
            self._done[ranks, package] = folder, outcome
        return self._done[ranks, package]


@pytest.fixture(scope='module')
def job(request, tmp_path_factory):
    selected = [
        item.callspec.params
        for item in request.session.items
        if item.module is request.module and hasattr(item, 'callspec')
    ]
    return Job(selected, tmp_path_factory.mktemp)


def compare(job, ranks, package, name):
    """Compares a case's result with plain Keras's, and returns it."""
    folder, outcome = job(ranks, package)
    result = os.path.join(folder, name + '.npz')
    assert os.path.exists(result), outcome.output[-5000:]
    found = np.load(result)
    reference.check(found, cases.find(name), cases.keras_module(package), ranks)
    return found


def runs(triples, in_turn):
    """Parameters of tests, of which those not in turn are compared with `--every` alone.

    Those of a case that this stack cannot be asked for are skipped.
    """
    return pytest.mark.parametrize(
        'ranks, package, name',
        [
            pytest.param(
                *run,
                marks=[pytest.mark.skip(reason=reason(*run[:0:-1]))] * bool(reason(*run[:0:-1]))
                + [pytest.mark.covered] * (run not in in_turn),
            )
            for run in triples
        ],
    )


def not_covered(triples):
    """Those of cases that nothing else covers."""
    covered = set(itertools.chain.from_iterable(COVERED.values()))
    return [run for run in triples if run[2] not in covered]


@runs(MODEL_RUNS + KERAS_2_3_RUNS, MODEL_RUNS_IN_TURN + KERAS_2_3_RUNS)
def test_workers_equal_plain_keras_on_the_joined_batch(job, ranks, package, name):
    compare(job, ranks, package, name)


@runs(WEIGHTED_RUNS, WEIGHTED_RUNS_IN_TURN)
def test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss(job, ranks, package, name):
    compare(job, ranks, package, name)


@runs(SUMMED_RUNS, SUMMED_RUNS)
def test_workers_equal_plain_keras_where_terms_of_a_loss_are_sums(job, ranks, package, name):
    compare(job, ranks, package, name)


@runs(MATRIX_RUNS + ENGINE_RUNS, MATRIX_RUNS_IN_TURN + not_covered(ENGINE_RUNS))
def test_every_architecture_and_partitioning_equals_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    for beginning, kind in (('auto_400', 'dense'), ('auto_5', 'sparse')):
        if name.startswith(beginning):
            assert found['kinds'][0] == kind
    if name.endswith(('in_loop', 'in_branch')):
        assert found['kinds'][0] == 'sparse'


@runs(OWN_RUNS, not_covered(OWN_RUNS))
def test_workers_with_a_users_optimizer_equal_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    shards = {'entrywise': ranks, 'many_entrywise': 5, 'layerwise': 1, 'clipped_together': 0}
    if TF2:
        shards = dict.fromkeys(shards, 0)
    if name[len('own_') :] in shards:
        assert found['shards'][0] == shards[name[len('own_') :]]


@runs(DENSE_RUNS, not_covered(DENSE_RUNS))
def test_a_table_that_is_made_dense_moves_the_rows_that_plain_keras_moves(
    job, ranks, package, name
):
    found = compare(job, ranks, package, name)
    assert found['kinds'][0] == 'dense'


def are_paired(pairs, *values):
    """Checks that pairs are all that there are of two sets of values."""
    assert set(pairs) == set(itertools.product(*values))


def of_matrix(runs):
    """From runs of the matrix to triples: job, strategy and optimizer."""
    return [((ranks, package), *name.rsplit('_', 1)) for ranks, package, name in runs]


def test_without_every_each_model_is_compared_and_each_architecture_with_each_optimizer():
    assert {name for ranks, _, name in MODEL_RUNS_IN_TURN if ranks > 1} == set(cases.CASES)
    assert {run[:2] for run in MODEL_RUNS_IN_TURN if run[0] > 1} == set(ENGINE_JOBS)
    matrix = of_matrix(MATRIX_RUNS_IN_TURN)
    assert {strategy for _, strategy, _ in matrix} == set(cases.STRATEGIES)
    several = [run for run in matrix if not run[1].startswith('allreduce')]
    places = [(job, *strategy.split('_'), optimizer) for job, strategy, optimizer in several]
    architectures, partitions = ('hybrid', 'ps', 'auto'), ('1', '3', str(cases.ROWS + 1))
    are_paired([place[::3] for place in places], ENGINE_JOBS, cases.MATRIX_OPTIMIZERS)
    are_paired([place[1::2] for place in places], architectures, cases.MATRIX_OPTIMIZERS)
    are_paired([place[2:] for place in places], partitions, cases.MATRIX_OPTIMIZERS)
    named = set(itertools.chain.from_iterable(COVERED.values()))
    others = set(cases.ENGINE_CASES) | set(cases.OWN_CASES) | set(cases.DENSE_CASES)
    assert TF2 or named <= others


def test_with_every_each_pair_of_values_is_compared_somewhere():
    are_paired([run[::2] for run in MODEL_RUNS], (1, 2, 3), cases.CASES)
    are_paired([run[1:] for run in MODEL_RUNS], PACKAGES, cases.CASES)
    are_paired([run[:2] for run in MODEL_RUNS], (1, 2, 3), PACKAGES)
    matrix = of_matrix(MATRIX_RUNS)
    are_paired([run[:2] for run in matrix], ENGINE_JOBS, cases.STRATEGIES)
    are_paired([run[::2] for run in matrix], ENGINE_JOBS, cases.MATRIX_OPTIMIZERS)
    are_paired([run[1:] for run in matrix], cases.STRATEGIES, cases.MATRIX_OPTIMIZERS)


def test_each_family_of_cases_about_the_engine_is_compared_in_every_job():
    family = [((ranks, package), name.split('_')[0]) for ranks, package, name in ENGINE_RUNS]
    several = ('ps', 'search', 'auto', 'fp16', 'many', 'accumulated')
    are_paired([run for run in family if run[1] in several], ENGINE_JOBS, several)


@pytest.mark.parametrize('ranks, package', JOBS + [run[:2] for run in KERAS_2_3_RUNS[:1]])
def test_every_job_ends_well(job, ranks, package):
    if not job.names(ranks, package):
        pytest.skip('no case of this job is asked for')
    _, outcome = job(ranks, package)
    assert outcome.code == 0, outcome.output[-5000:]
    # As TensorFlow prints when functions of a session go that was closed because shards moved.
    assert '_Callable' not in outcome.output
