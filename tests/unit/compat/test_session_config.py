# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Settings of the sessions of a worker."""

import ast
import os
import pathlib
import subprocess
import sys

import frameworks
import pytest

import keras_parallax
from keras_parallax.compat import session_config

#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))

#: How Python reads `tf.Session`.
_SESSION = ast.dump(ast.parse('tf.Session', mode='eval').body)


@pytest.mark.parametrize('local_rank', [0, 3])
def test_a_worker_sees_its_own_card_only(local_rank):
    options = session_config.of_worker(local_rank).gpu_options
    assert options.visible_device_list == str(local_rank)
    assert options.allow_growth


def test_a_session_without_a_card_has_none():
    assert dict(session_config.without_card().device_count) == {'GPU': 0}


def test_no_session_of_this_process_is_made_without_saying_which_card_it_takes():
    """TensorFlow refuses a session that would see other cards than the first of its process."""
    made = []
    for path in pathlib.Path(keras_parallax.__file__).parent.rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.dump(node.func) == _SESSION:
                says = node.args or 'config' in [keyword.arg for keyword in node.keywords]
                made.append((path.name, bool(says)))
    assert len(made) > 5 and all(says for _, says in made), made


def test_tensorflow_optimizes_no_graph_of_a_server_but_for_loops_and_as_the_user_says():
    def is_optimized(config, keeps_optimizer=False):
        return session_config.of_server(config, keeps_optimizer) == config

    config = session_config.of_worker(0)
    # All that TensorFlow 1.6 can leave out, every session leaves out.
    assert is_optimized(config) == frameworks.tf.__version__.startswith('1.6')
    assert is_optimized(config, keeps_optimizer=True)
    given = frameworks.tf.ConfigProto()
    given.graph_options.rewrite_options.constant_folding = 1
    assert is_optimized(session_config.of_worker(0, [given]))


def test_what_has_no_kernel_on_a_card_goes_to_the_cpu():
    assert session_config.of_worker(0).allow_soft_placement


@pytest.mark.parametrize('value, threads', [('3', 3), ('', 0), (None, 0)])
def test_omp_num_threads_bounds_the_threads_of_an_operation(monkeypatch, value, threads):
    if value is None:
        monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    else:
        monkeypatch.setenv('OMP_NUM_THREADS', value)
    # 0 leaves the choice to TensorFlow.
    assert session_config.of_worker(0).intra_op_parallelism_threads == threads


def test_omp_num_threads_bounds_the_session_that_a_strategy_gives_to_keras():
    script = (
        'import frameworks, keras_parallax as kp\n'
        'with kp.ParallaxStrategy(): pass\n'
        "session = frameworks.keras_module('tf.keras').backend.get_session()\n"
        'print(session._config.intra_op_parallelism_threads)\n'
    )
    output = subprocess.check_output(
        [sys.executable, '-c', script],
        cwd=HERE,
        env=dict(os.environ, OMP_NUM_THREADS='1', TF_CPP_MIN_LOG_LEVEL='2'),
        universal_newlines=True,
    )
    assert output.strip() == '1'
