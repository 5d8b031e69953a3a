# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What scripts put into a session, and the ways in which they run a step, under a strategy."""

import os

import launch
import numpy as np
import pytest
from frameworks import TF1_15, TF2, tf
from google.protobuf import text_format

TOLERANCE = 1e-5
#: What Keras does not look at is tried with one package.
CASES = {
    'keras': (
        'own_session', 'session_run', 'stateful_session_run', 'sparse_input',
        'stateful_sparse_input', 'entered_session', 'frozen_graph',
    ),
    'tf.keras': (
        'iterator_before', 'fed_before', 'iterator_inside', 'held_session', 'own_session',
        'lookup_tables', 'not_copied', 'traced', 'session_run', 'stateful_session_run',
        'control_dependency', 'threads_that_read', 'fit_dataset', 'iterator_after',
        'one_shot_before', 'one_shot_inside', 'traced_dataset', 'entered_session',
        'frozen_graph',
    ),
}  # fmt: skip
#: What one process with a strategy could do otherwise than plain Keras.
ALONE = (
    'iterator_before',
    'own_session',
    'entered_session',
    'lookup_tables',
    'not_copied',
    'traced',
)
if TF2:
    # Data that was fed cannot be fed anew: the iterator is one that cannot be copied.
    CASES = {'tf.keras': tuple(name for name in CASES['tf.keras'] if name != 'fed_before')}
else:
    CASES['keras'] += ('frozen_dynamic',)
if TF2 and not TF1_15:
    CASES['tf.keras'] += ('eager_tables',)
    ALONE += ('eager_tables',)
PAIRS = [(package, name) for package in CASES for name in CASES[package]]


class Jobs:
    """Runs the selected cases of a package in one job for each number of workers, once."""

    def __init__(self, folder, selected):
        self._folder, self._selected, self._done = folder, selected, {}

    def results(self, package, how, ranks, name):
        """The results of a case, a list with a dict for each worker."""
        if (package, how, ranks) not in self._done:
            asked = [case for case in CASES[package] if (package, case) in self._selected]
            names = [case for case in asked if ranks or how == 'plain' or case in ALONE]
            self._done[package, how, ranks] = self.run(package, how, ranks, names)
        return self._done[package, how, ranks](name)

    def run(self, package, how, ranks, names, **environ):
        """Runs cases, and returns a function from their names to their results."""
        folder = os.path.join(self._folder, str(len(os.listdir(self._folder))))
        os.makedirs(folder)
        script = 'parallel/sessions_worker.py'
        outcome = launch.run(ranks, script, folder, package, how, *names, environ=environ)

        def results(name):
            paths = [os.path.join(folder, '%s.%d.npz' % (name, rank)) for rank in range(ranks or 1)]
            for path in paths:
                assert os.path.exists(path), outcome.output[-5000:]
            return [dict(np.load(path)) for path in paths]

        return results


@pytest.fixture(scope='module')
def jobs(request, tmpdir_factory):
    selected = [
        (item.callspec.params['package'], item.callspec.params['name'])
        for item in request.session.items
        if item.module is request.module and hasattr(item, 'callspec')
    ]
    return Jobs(str(tmpdir_factory.mktemp('sessions')), selected)


def assert_equal_to_plain(results, plain):
    for name, expected in plain.items():
        if expected.dtype.kind == 'f' and name != 'density':
            for of_rank in results:
                np.testing.assert_allclose(
                    of_rank[name], expected, rtol=0, atol=TOLERANCE * max(1, np.abs(expected).max())
                )


@pytest.mark.parametrize('package, name', PAIRS)
def test_what_a_session_holds_and_any_way_to_run_a_step_give_the_numbers_of_plain_keras(
    jobs, package, name
):
    (plain,) = jobs.results(package, 'plain', 0, name)
    assert_equal_to_plain(jobs.results(package, 'strategy', 2, name), plain)


@pytest.mark.parametrize('package, name', [pair for pair in PAIRS if pair[1] in ALONE])
def test_one_process_goes_on_with_the_session_that_keras_had(jobs, package, name):
    (plain,) = jobs.results(package, 'plain', 0, name)
    assert_equal_to_plain(jobs.results(package, 'strategy', 0, name), plain)


@pytest.mark.parametrize(
    'package, name',
    [
        pair
        for pair in PAIRS
        if pair[1] in ('sparse_input', 'traced', 'session_run', 'control_dependency')
    ],
)
def test_every_step_is_counted_and_its_density_measured_however_it_is_run(jobs, package, name):
    for of_rank in jobs.results(package, 'strategy', 2, name):
        assert of_rank['counted'] == of_rank['ran'] > 10
        assert of_rank['density'] > 0


@pytest.mark.parametrize('package, name', [pair for pair in PAIRS if pair[1].startswith('traced')])
def test_a_trace_that_compile_asks_for_is_recorded_on_shards(jobs, package, name):
    for of_rank in jobs.results(package, 'strategy', 2, name):
        assert of_rank['devices'] > 0


@pytest.mark.parametrize('package, name', [('tf.keras', 'threads_that_read')])
def test_threads_read_and_predict_while_another_builds_and_runs_steps(jobs, package, name):
    for of_rank in jobs.results(package, 'strategy', 2, name):
        assert list(of_rank['wrong']) == []
        assert of_rank['least'] > 0


@pytest.mark.parametrize('package, name', [pair for pair in PAIRS if pair[1] == 'frozen_graph'])
def test_a_frozen_graph_holds_the_whole_table_and_predicts_as_the_model(jobs, package, name):
    (plain,) = jobs.results(package, 'plain', 0, name)
    others, frozen = jobs.results(package, 'strategy', 2, name)
    assert_equal_to_plain([others, frozen], plain)
    assert frozen['largest'] == plain['weight.0'].size
    assert frozen['holders'] == 0


@pytest.mark.parametrize('package, name', [pair for pair in PAIRS if pair[1] == 'frozen_dynamic'])
def test_a_graph_that_looks_up_a_dynamic_embedding_is_not_frozen(jobs, package, name):
    for of_rank in jobs.results(package, 'strategy', 2, name):
        error = str(of_rank['error'])
        assert error.startswith('ScopeError') and 'dynamic/embeddings' in error


@pytest.mark.parametrize('package, name', [('tf.keras', 'not_copied')])
def test_an_iterator_of_before_the_scope_that_cannot_be_copied_says_so(jobs, package, name):
    (alone,) = jobs.results(package, 'strategy', 0, name)
    assert alone['error'] == '' and alone['value'] == 1
    for rank, of_rank in enumerate(jobs.results(package, 'strategy', 2, name)):
        error = str(of_rank['error'])
        assert error.startswith('ScopeError: Rank %d: iterator IteratorV2 was ' % rank)
        assert 'Run its initializer inside the scope' in error
        assert of_rank['anew'] == 0


# --- Configurations ----------------------------------------------------------------------------


def test_sessions_and_servers_follow_the_strategys_config_and_that_of_the_session_before(jobs):
    results = jobs.run('tf.keras', 'config', 2, ['followed_config', 'refused_config'])
    for rank, of_rank in enumerate(results('followed_config')):
        for number in range(3):
            config = text_format.Parse(str(of_rank['config.%d' % number]), tf.ConfigProto())
            assert config.intra_op_parallelism_threads == 3
            assert config.inter_op_parallelism_threads == 5
            assert config.allow_soft_placement and config.gpu_options.allow_growth
            assert config.gpu_options.visible_device_list == str(rank)
    for of_rank in results('refused_config'):
        assert of_rank['same'] == ''
        assert str(of_rank['other']) == (
            'ScopeError: A job has one config, for its servers have: first '
            '{inter_op_parallelism_threads: 5} was given, now {inter_op_parallelism_threads: 6}. '
            'Give all strategies the same one, or only the first.'
        )
        assert str(of_rank['filters']).startswith('PlanError: ')
        assert 'cannot set device_filters' in str(of_rank['filters'])
        assert str(of_rank['dict']).startswith('PlanError: config is a tf.ConfigProto, not {')
        assert str(of_rank['warned']).count('has another gpu_options;') == 1


def test_a_bound_of_threads_inside_operations_holds_for_the_whole_process(jobs):
    threads = []
    for number in ('2', '12'):
        results = jobs.run('tf.keras', 'plain', 0, ['threads_of_operations'], THREADS=number)
        threads.append(int(results('threads_of_operations')[0]['threads']))
    # Such threads are the process's, and the first session makes them; there are others.
    assert 8 <= threads[1] - threads[0] <= 12
