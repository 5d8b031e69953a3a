# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts of plain Keras with no other line of ours than `with kp.ParallaxStrategy():`."""

import os

import cases
import launch
import numpy as np
import pytest
import reference
import stacks
import user_scripts
from frameworks import TF2, tf

WORKER = 'tests/parallel/compiling_worker.py::'
RANKS = 2
TOLERANCE = 1e-5
#: In the first job `keras` is imported inside the first scope; in the second it is `tf.keras`.
PACKAGES = {'tf.keras': 'tf.keras'} if TF2 else {'keras': 'keras', 'alias': 'tf.keras'}
OTHERS = [
    'compiled_after',
    'own_step_not_wrapped',
    'step_by_hand',
    'loaded_after',
    'of_horovod',
    'loss_of_neither_kind',
    'cleared_inside',
    'never_entered',
]
OUTSIDE = (
    'ScopeError: model.compile() ran outside the scope of its ParallaxStrategy; build and compile '
    'the model inside `with strategy:`.'
)


@pytest.fixture(scope='module', params=PACKAGES)
def package(request):
    return request.param


@pytest.fixture(scope='module')
def job(request, package, tmpdir_factory):
    """The `Outcome` of a job and its folder: selected scripts, one after the other."""
    folder = str(tmpdir_factory.mktemp('compiling'))
    selected = [
        item.callspec.params
        for item in request.session.items
        if item.module is request.module and hasattr(item, 'callspec')
    ]
    asked = [of.get('name') for of in selected if of['package'] == package]
    names = [name for name in list(user_scripts.SCRIPTS) + OTHERS if name in asked]
    names = [name for name in names if not stacks.reason_against(WORKER + name)]
    outcome = launch.run(RANKS, 'parallel/compiling_worker.py', folder, package, *names)
    return outcome, folder


@pytest.fixture
def results(job):
    """Function from a name to the list of arrays that each worker has returned."""
    outcome, folder = job

    def of_ranks(name):
        reason = stacks.reason_against(WORKER + name)
        if reason:
            pytest.skip(reason)
        paths = [os.path.join(folder, '%s.%d' % (name, rank)) for rank in range(RANKS)]
        for path in paths:
            if os.path.exists(path + '.error'):
                with open(path + '.error') as file:
                    pytest.fail(file.read())
            assert os.path.exists(path + '.npz'), outcome.output[-5000:]
        files = [np.load(path + '.npz') for path in paths]
        return [[file['arr_%d' % number] for number in range(len(file.files))] for file in files]

    return of_ranks


@pytest.fixture
def plain(package, tmpdir):
    """A `Run` of plain Keras, gated."""
    keras = cases.keras_module(PACKAGES[package])
    keras.backend.clear_session()

    def gated(optimizer):
        is_native = isinstance(optimizer, tf.train.Optimizer)
        return reference.gated(optimizer if is_native else keras.optimizers.get(optimizer))

    yield user_scripts.Run(keras, gated=gated, wrapped=gated, summing=gated, folder=str(tmpdir))
    keras.backend.clear_session()


@pytest.mark.parametrize('name', user_scripts.SCRIPTS)
def test_a_script_with_no_line_of_ours_but_the_scope_equals_plain_keras(results, plain, name):
    of_ranks, expected = results(name), user_scripts.SCRIPTS[name](plain)
    for of_rank in of_ranks:
        assert len(of_rank) == len(expected)
        for found, wanted in zip(of_rank, expected):
            largest = np.abs(wanted).max()
            np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * largest)


@pytest.mark.parametrize('name', ['compiled_after'])
def test_a_model_of_the_scope_that_is_compiled_after_it_is_refused_before_its_first_step(
    results, name
):
    for errors in results(name):
        assert list(map(str, errors)) == 7 * [OUTSIDE]


@pytest.mark.parametrize('name', ['own_step_not_wrapped'])
def test_updates_of_an_optimizer_that_is_not_wrapped_are_refused_where_they_are_built(
    results, name
):
    for errors in results(name):
        assert len(errors) == 2
        for error in map(str, errors):
            assert error.startswith('ScopeError: ') and 'kp.ParallaxOptimizer(' in error


@pytest.mark.parametrize('name', ['step_by_hand'])
def test_a_step_by_hand_that_exchanges_nothing_is_refused_and_one_that_does_is_not(results, name):
    weights = []
    for *errors, weight in results(name):
        assert len(errors) == 2
        for error in map(str, errors):
            assert error.startswith('ScopeError: A step of the script writes gradients'), error
        weights.append(weight)
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize('name', ['loaded_after'])
def test_a_model_that_is_loaded_after_the_scope_predicts(results, name):
    for expected, found in results(name):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize('name', ['of_horovod'])
def test_an_optimizer_of_horovod_is_refused_by_name(results, name):
    for errors in results(name):
        assert len(errors) == 5
        for error in map(str, errors):
            assert error.startswith('PlanError: The optimizer is a DistributedOptimizer of Horovod')


@pytest.mark.parametrize('name', ['loss_of_neither_kind'])
def test_a_loss_that_is_neither_a_sum_nor_a_mean_is_refused_on_all_ranks_before_the_first_step(
    results, name
):
    first, second = ([str(error) for error in errors] for errors in results(name))
    assert first == second and len(first) == 2
    for text in first:
        for fact in ('PlanError: ', 'root_of_mean', 'loss_reduction', 'for the two joined'):
            assert fact in text


@pytest.mark.parametrize('name', ['cleared_inside'])
def test_a_graph_that_replaces_that_of_the_scope_is_refused_at_compile(results, name):
    for (error,) in results(name):
        assert str(error).startswith('ScopeError: ') and 'clear_session() or' in str(error)


@pytest.mark.parametrize('name', ['never_entered'])
def test_training_outside_of_all_scopes_is_warned_about_once_for_each_model(results, name):
    for alone, exchanged in results(name):
        assert 'each of the 2 workers trains it alone' in str(alone)
        assert 'every worker holds all rows of its tables' in str(exchanged)


def test_the_job_ends_well(job):
    outcome, _ = job
    assert outcome.code == 0, outcome.output[-5000:]
