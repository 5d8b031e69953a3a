"""Settings of the sessions of a worker."""

import os
import subprocess
import sys

import pytest

from keras_parallax.compat import session_config

#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize('local_rank', [0, 3])
def test_a_worker_sees_its_own_card_only(local_rank):
    options = session_config.of_worker(local_rank).gpu_options
    assert options.visible_device_list == str(local_rank)
    assert options.allow_growth


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
