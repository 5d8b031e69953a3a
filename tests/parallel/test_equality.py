"""N workers against plain Keras in one process on the joined batch."""

import itertools
import os

import cases
import launch
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES, TF2
from refused import reason

PACKAGES = KERAS_PACKAGES
JOBS = list(itertools.product((1, 2, 3), PACKAGES))
#: The jobs that also compare cases about the engine: the numbers of ranks that differ for it.
ENGINE_JOBS = [(2, PACKAGES[0]), (3, PACKAGES[-1]), (2, PACKAGES[-1])]

# Both packages train with one engine, so not all combinations are compared, but every pair of
# values: each model with each number of ranks and with each package, each architecture and number
# of partitions with each optimizer and in each job, each optimizer in each job:
#
#   model       1 rank      2 ranks     3 ranks
#   even        keras       tf.keras    keras
#   odd         tf.keras    keras       tf.keras
#
#   strategy    sgd         adagrad     adam
#   first       1st job     2nd job     3rd job
#   second      2nd job     3rd job     1st job, and so on: a Latin square
#
# The first models differ in the optimizer alone, whose formula takes a row as it comes, from any
# number of ranks: the matrix has three ranks for three of them.
FORMULAS = list(itertools.takewhile(lambda name: name != 'clipnorm', cases.CASES))
MODEL_RUNS = [
    (ranks, PACKAGES[(number + ranks + 1) % len(PACKAGES)], name)
    for number, name in enumerate(cases.CASES)
    for ranks in ((1, 2) if name in FORMULAS else (1, 2, 3))
]
MATRIX_RUNS = [
    ENGINE_JOBS[(row + column) % len(ENGINE_JOBS)] + ('%s_%s' % (strategy, optimizer),)
    for row, strategy in enumerate(cases.STRATEGIES)
    for column, optimizer in enumerate(cases.MATRIX_OPTIMIZERS)
]
#: Of what else the engine does there are several cases each, one after the other: one for each job.
ENGINE_RUNS = [
    ENGINE_JOBS[number % len(ENGINE_JOBS)] + (name,)
    for number, name in enumerate(cases.ENGINE_CASES)
]
#: Optimizers of users: one after the other, one for each job, too.
OWN_RUNS = [
    ENGINE_JOBS[number % len(ENGINE_JOBS)] + (name,) for number, name in enumerate(cases.OWN_CASES)
]


@pytest.fixture(scope='module')
def job(request, tmp_path_factory):
    """A function that runs a job's selected cases, once; gives its folder and `Outcome`."""
    done = {}

    def run(ranks, package):
        if (ranks, package) not in done:
            folder = str(tmp_path_factory.mktemp('equality'))
            selected = [
                item.callspec.params
                for item in request.session.items
                if item.module is request.module and hasattr(item, 'callspec')
            ]
            names = [
                params['name']
                for params in selected
                if (params['ranks'], params['package']) == (ranks, package)
                and 'name' in params
                and reason(params['name']) is None
            ]
            outcome = launch.run(
                ranks,
                'parallel/equality_worker.py',
                package,
                folder,
                *names,
                environ={'KERAS_PARALLAX_CACHE': folder},
            )
            done[ranks, package] = folder, outcome
        return done[ranks, package]

    return run


def compare(job, ranks, package, name):
    """Compares a case's result with plain Keras's, and returns it."""
    folder, outcome = job(ranks, package)
    result = os.path.join(folder, name + '.npz')
    assert os.path.exists(result), outcome.output[-5000:]
    found = np.load(result)
    reference.check(found, cases.find(name), cases.keras_module(package), ranks)
    return found


def runs(triples):
    """Parameters of tests: those of a case that this stack cannot be asked for are skipped."""
    return pytest.mark.parametrize(
        'ranks, package, name',
        [
            pytest.param(
                *run, marks=[pytest.mark.skip(reason=reason(run[2]))] if reason(run[2]) else []
            )
            for run in triples
        ],
    )


@runs(MODEL_RUNS)
def test_workers_equal_plain_keras_on_the_joined_batch(job, ranks, package, name):
    compare(job, ranks, package, name)


@runs(MATRIX_RUNS + ENGINE_RUNS)
def test_every_architecture_and_partitioning_equals_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    for beginning, kind in (('auto_400', 'dense'), ('auto_5', 'sparse')):
        if name.startswith(beginning):
            assert found['kinds'][0] == kind
    if not TF2 and name.endswith(('in_loop', 'in_branch')):
        assert found['kinds'][0] == 'sparse'


@runs(OWN_RUNS)
def test_workers_with_a_users_optimizer_equal_plain_keras(job, ranks, package, name):
    found = compare(job, ranks, package, name)
    shards = {'entrywise': ranks, 'many_entrywise': 5, 'layerwise': 1, 'clipped_together': 0}
    if TF2:
        shards = dict.fromkeys(shards, 0)
    if name[len('own_') :] in shards:
        assert found['shards'][0] == shards[name[len('own_') :]]


def test_every_pair_of_values_is_compared_somewhere():
    def are_paired(pairs, *values):
        assert set(pairs) == set(itertools.product(*values))

    models = [(name, ranks) for ranks, _, name in MODEL_RUNS]
    are_paired(models + [(name, 3) for name in FORMULAS], cases.CASES, (1, 2, 3))
    are_paired([(name, package) for _, package, name in MODEL_RUNS], cases.CASES, PACKAGES)
    are_paired([(ranks, package) for ranks, package, _ in MODEL_RUNS], (1, 2, 3), PACKAGES)
    matrix = [((ranks, package), *name.rsplit('_', 1)) for ranks, package, name in MATRIX_RUNS]
    are_paired([run[:2] for run in matrix], ENGINE_JOBS, cases.STRATEGIES)
    are_paired([run[::2] for run in matrix], ENGINE_JOBS, cases.MATRIX_OPTIMIZERS)
    are_paired([run[1:] for run in matrix], cases.STRATEGIES, cases.MATRIX_OPTIMIZERS)
    family = [((ranks, package), name.split('_')[0]) for ranks, package, name in ENGINE_RUNS]
    several = ('ps', 'search', 'auto', 'fp16', 'many', 'accumulated')
    are_paired([run for run in family if run[1] in several], ENGINE_JOBS, several)


@pytest.mark.parametrize('ranks, package', JOBS)
def test_every_job_ends_well(job, ranks, package):
    _, outcome = job(ranks, package)
    assert outcome.code == 0, outcome.output[-5000:]
    # As TensorFlow prints when functions of a session go that was closed because shards moved.
    assert '_Callable' not in outcome.output
