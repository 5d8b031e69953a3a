# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a strategy does with models of Keras 3 besides `fit`: loops, saving, plans, failures."""

import json

import frameworks
import launch
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: What differs by rounding alone.
BOUND = 1e-5


@pytest.fixture(scope='module', params=('tensorflow', 'jax'))
def found(request, tmp_path_factory):
    """What `keras3_behaviour_worker.py` finds, a list by rank, and the backend."""
    if request.param == 'jax':
        pytest.importorskip('jax')
    folder = tmp_path_factory.mktemp(request.param)
    outcome = launch.run(2, 'parallel/keras3_behaviour_worker.py', request.param, folder)
    assert outcome.code == 0, outcome.output
    return [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(2)]


@pytest.mark.parametrize('check', ('own_loop', 'train_on_batch', 'compiled_again', 'new_optimizer'))
def test_other_ways_to_train_equal_plain_keras_3(found, check):
    for of_rank in found:
        assert of_rank[check] < BOUND


def test_what_fit_takes_besides_arrays_trains_as_arrays_do(found):
    for of_rank in found:
        assert sorted(of_rank['sources']) == ['PyDataset', 'generator', 'tf.data']
        assert max(of_rank['sources'].values()) < BOUND


def test_a_step_pulls_the_rows_of_all_tables_by_one_call(found):
    for of_rank in found:
        assert of_rank['pulled'] == [1, 0]


def test_a_session_learns_of_the_operations_of_a_model_at_few_runs(found):
    for of_rank in found:
        assert of_rank['learned'] <= 3, 'each takes longer the more models there have been'


def test_lazy_updates_move_no_row_that_its_table_is_not_asked_for(found):
    for of_rank in found:
        assert of_rank['lazy'] == 0


def test_layers_and_models_that_are_called_return_the_rows_of_tables(found):
    for of_rank in found:
        assert of_rank['eager'] < BOUND


def test_a_step_without_a_gradient_of_a_table_is_refused(found):
    for of_rank in found:
        assert of_rank['unused'] == 'PlanError'


def test_predictions_are_those_of_tables_that_a_fit_has_made_dense(found):
    for of_rank in found:
        assert of_rank['predicted'] < BOUND


def test_tables_that_move_to_other_servers_go_on(found):
    for of_rank in found:
        has_moved, difference = of_rank['moved']
        assert has_moved
        assert difference < BOUND


def test_plain_keras_loads_a_saved_model_and_weights_can_be_set(found):
    for of_rank in found:
        difference, predictions_of_zeros, weights, own_and_plain, optimizers = of_rank['saved']
        assert difference == 0
        assert predictions_of_zeros == 0
        assert weights == 50 * 4 + 30 * 2 + 16 * 8 + 8 + 8 + 1
        assert own_and_plain[0] == own_and_plain[1]
        assert optimizers == ['Adagrad', True, False]


def test_rank_0_writes_a_log_that_all_workers_would_write(found):
    for of_rank in found:
        assert of_rank['written'] == [['epoch', '0', '1']] * 2


def test_an_exported_model_predicts_the_same(found):
    for of_rank in found:
        assert of_rank['exported'][0] < BOUND


def test_an_archive_that_could_not_be_served_is_refused(found):
    for of_rank in found:
        assert of_rank['exported'][1] == 'PlanError'


def test_the_plan_says_which_tables_have_shards_and_why_others_have_not(found):
    for of_rank in found:
        planned, architecture, text, early, alone = of_rank['planned']
        assert early, 'one rank alone may ask, and building is a call of all'
        assert planned['item/embeddings'][:2] == ['sparse', 'servers']
        assert planned['user/embeddings'] == ['dense', 'allreduce', 'it has a regularizer']
        assert architecture == 'hybrid'
        assert 'item/embeddings' in text
        assert alone == ['after/embeddings'], 'a layer computes its ids'


def test_options_of_a_strategy_name_tables_with_shards_and_without(found):
    for of_rank in found:
        assert of_rank['overridden'] == {
            'user/embeddings': ['allreduce', 0],
            'item/embeddings': ['servers', 3],
        }


def test_xla_compiles_the_layers_of_a_model_that_was_asked_for_it(found):
    for of_rank in found:
        is_compiled, difference = of_rank['compiled_by_xla']
        assert is_compiled
        assert difference < BOUND


@pytest.mark.parametrize('what', ('xla of a class', 'xla of ids'))
def test_xla_is_refused_where_it_would_have_to_compile_a_lookup(found, what):
    for of_rank in found:
        assert of_rank['refused'][what] == (None if of_rank['backend'] == 'jax' else 'PlanError')


@pytest.mark.parametrize('what', ('quantized', 'quantized reversible'))
def test_a_step_of_a_table_that_was_quantized_since_is_refused(found, what):
    for of_rank in found:
        # With JAX, plain Keras refuses, too.
        expected = 'ValueError' if of_rank['backend'] == 'jax' else 'PlanError'
        assert of_rank['refused'][what] == expected


@pytest.mark.parametrize(
    'what, error',
    [
        ('float8', 'PlanError'),
        ('horovod', 'PlanError'),
        ('our callback', 'PlanError'),
        ('Keras 2', 'ScopeError'),
        ('read whole', 'PlanError'),
        ('ps', 'PlanError'),
        ('accumulate', 'PlanError'),
        ('id', True),
    ],
)
def test_what_would_train_otherwise_is_refused(found, what, error):
    for of_rank in found:
        assert of_rank['refused'][what] == error


@pytest.mark.parametrize(
    'way, ranks, error, facts',
    [
        ('batches', (0, 1), 'UnequalBatchesError', ('10', '9')),
        ('sizes', (0, 1), 'UnequalBatchesError', ('3.5',)),
        ('models', (0, 1), 'ModelMismatchError', ('rank 1',)),
        ('ids', (1,), 'IdOutOfRangeError', ('user/embeddings', '50')),
        ('ids', (0,), 'WorkerFailedError', ('Rank 1', 'user/embeddings', '50')),
        ('exception', (0,), 'WorkerFailedError', ('Rank 1', 'something is wrong with batch 1')),
        ('exit', (0,), 'UnequalBatchesError', ('after 2', 'batch 3', "sys.exit('no data')")),
        # The launcher may end rank 0 before it raises the error.
        ('kill', (0,), 'Rank 1 on host', ('137 is SIGKILL',)),
        ('stop', (0,), 'Rank 1 on host', ('stopped for 10 s',)),
    ],
)
@pytest.mark.parametrize(
    'backend', ('tensorflow', pytest.param('jax', marks=pytest.mark.exhaustive))
)
def test_a_failure_is_told_on_each_rank(failed, backend, way, ranks, error, facts):
    check_failure(failed(backend, way), ranks, error, facts)


@pytest.mark.parametrize(
    'backend, way, error, facts',
    [
        ('tensorflow', 'generators', 'UnequalBatchesError', ('after 4', 'batch 5')),
        # Without tables, nothing but Horovod's operation waits in a step of TensorFlow.
        ('tensorflow', 'exit dense', 'UnequalBatchesError', ('after 2', "sys.exit('no data')")),
        *(
            pytest.param(backend, way, error, facts, marks=pytest.mark.exhaustive)
            for backend, way, error, facts in (
                ('jax', 'generators', 'UnequalCallsError', ('gradients', 'the end of an epoch')),
                ('jax', 'exit dense', 'UnequalCallsError', ('gradients', "exit('no data')")),
                ('tensorflow', 'hang', 'WorkerFailedError', ('batch 3', 'rank 1')),
                ('tensorflow', 'hang dense', 'WorkerFailedError', ('batch 3', 'rank 1')),
                ('jax', 'hang', 'WorkerFailedError', ('gradients', 'rank 1')),
                ('jax', 'hang dense', 'WorkerFailedError', ('gradients', 'rank 1')),
                ('tensorflow', 'stop dense', 'Rank 1 on host', ('stopped for 10 s',)),
                ('jax', 'stop dense', 'Rank 1 on host', ('stopped for 10 s',)),
                ('tensorflow', 'kill dense', 'Rank 1 on host', ('137 is SIGKILL',)),
                ('jax', 'kill dense', 'Rank 1 on host', ('137 is SIGKILL',)),
                ('tensorflow', 'exception dense', 'WorkerFailedError', ('something is wrong',)),
                ('jax', 'exception dense', 'WorkerFailedError', ('something is wrong',)),
            )
        ),
    ],
)
def test_a_rank_that_does_not_come_to_the_next_step_is_named(failed, backend, way, error, facts):
    check_failure(failed(backend, way), (0,), error, facts)


def check_failure(outcome, ranks, error, facts):
    """Asserts that a job has failed, and that ranks have told why."""
    code, output = outcome
    assert code not in (0, None), output
    for rank in ranks:
        told = [line for line in output.splitlines() if '[%d]<' % rank in line]
        assert any(all(fact in line for fact in (error, *facts)) for line in told), output


@pytest.fixture(scope='module')
def failed():
    """Function from a backend and a way to fail to the exit status and the output of a job."""
    outcomes = {}

    def run(backend, way):
        if backend == 'jax':
            pytest.importorskip('jax')
        if (backend, way) not in outcomes:
            worker = 'parallel/keras3_failure_worker.py'
            outcome = launch.run(2, worker, backend, *way.split())
            outcomes[backend, way] = outcome.code, outcome.output
        return outcomes[backend, way]

    return run
