# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is said when TensorFlow, Keras or Horovod is missing or of a wrong version."""

import glob
import os
import subprocess
import sys

import hidden_packages
import horovod
import pytest
from frameworks import TF1_15, TF2

import keras_parallax as kp
import keras_parallax_command
from keras_parallax.compat.supported_versions import SUPPORTED, stacks_for

#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))

COMMAND = keras_parallax_command.__file__

#: Versions of TensorFlow and Horovod that the other stacks have, and what is asked for here.
OTHER_TENSORFLOW, TENSORFLOW = ('1.11.0', '2.x') if TF2 else ('2.0.0', '1.11.x or 1.6.x')
if TF1_15:
    TENSORFLOW = '1.15.x'
OTHER_HOROVOD, HOROVOD = ('0.19.5', '0.28.x') if TF2 else ('0.28.1', '0.19.x')

#: Ends well only if the package cannot be imported, and prints why.
IMPORT = """
try:
    import keras_parallax
except ImportError as error:
    print(type(error).__module__ + '.' + type(error).__name__)
    print(error)
"""

#: Makes Python find no package of a name, as if it were not installed.
WITHOUT = """
import sys
sys.path.insert(0, %r)
import hidden_packages
hidden_packages.hide({name!r})
del sys.path[0]
""" % os.path.dirname(hidden_packages.__file__)

#: Takes from TensorFlow what each of our modules for one needs.
WITHOUT_GRADIENTS = """
import sys
import tensorflow.python.ops.gradients

ops = sys.modules['tensorflow.python.ops']
for name in ('gradients_impl', 'gradients_util'):
    if hasattr(ops, name):
        delattr(ops, name)
    sys.modules['tensorflow.python.ops.' + name] = None
"""


def output_of(script, path=None, legacy='1'):
    """What a fresh Python prints for a script, with a folder before everything installed."""
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2', TF_USE_LEGACY_KERAS=legacy)
    environ.pop('PYTHONPATH', None)
    if path is not None:
        environ['PYTHONPATH'] = str(path)
    process = subprocess.run(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=HERE,
        env=environ,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def fake(folder, files):
    """Writes files below a folder, given as a dict from paths to contents."""
    for name, content in files.items():
        path = folder.joinpath(*name.split('/'))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def stack_error(output):
    """The message of the `StackError` that a script printed."""
    kind, message = output.strip().split('\n', 1)
    assert kind == 'keras_parallax.errors.StackError'
    return message


# --- the rule ----------------------------------------------------------------


#: How versions of Pythons begin that this stack's packages are for.
OWN = '%d.%d.' % sys.version_info[:2]


def other_pythons():
    """Pythons of this machine that the stack does not run on."""
    pattern = os.path.join(os.path.expanduser('~'), '.pyenv', 'versions', '*', 'bin', 'python')
    paths = [path for path in glob.glob(pattern) if '/' + OWN not in path]
    return sorted(paths) + [path for path in ['/usr/bin/python3'] if os.path.exists(path)]


@pytest.mark.parametrize('command', [['-c', 'import keras_parallax'], [COMMAND, 'doctor']])
def test_every_other_python_of_this_machine_is_named_when_it_imports_or_runs_us(command):
    pythons = other_pythons()
    if not pythons:
        pytest.skip('this machine has no other Python')
    for python in pythons:
        version = subprocess.check_output(
            [python, '-c', 'import platform; print(platform.python_version())'],
            universal_newlines=True,
        ).strip()
        process = subprocess.run(
            [python, '-B'] + command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            cwd=HERE,
            env=dict(os.environ, PYTHONPATH=os.path.dirname(kp.__path__[0])),
        )
        if not version.startswith(OWN):
            assert process.returncode == 1, process.stdout
            # The doctor reports in full where that Python finds what the doctor itself needs.
            by_doctor = command[0] == COMMAND
            if stacks_for(version):
                told = ['keras-parallax needs TensorFlow, which could not be imported']
                told += ['TensorFlow cannot be imported'] * by_doctor
            else:
                told = [', but this is Python %s (' % version]
                told += ['Python %s at' % version] * by_doctor
            assert any(sentence in process.stdout for sentence in told), process.stdout


# --- imports -----------------------------------------------------------------


def test_another_tensorflow_is_named_with_the_needed_one(tmp_path):
    fake(tmp_path, {'tensorflow/__init__.py': '__version__ = %r\n' % OTHER_TENSORFLOW})
    message = stack_error(output_of(IMPORT, tmp_path))
    told = 'needs TensorFlow %s, but %s was found' % (TENSORFLOW, OTHER_TENSORFLOW)
    assert told in message and SUPPORTED['TensorFlow'][1] in message


def test_a_missing_tensorflow_is_named_with_the_way_to_get_it():
    message = stack_error(output_of(WITHOUT.format(name='tensorflow') + IMPORT))
    assert 'needs TensorFlow' in message and 'No module named tensorflow' in message
    assert SUPPORTED['TensorFlow'][1] in message


def test_a_tensorflow_that_cannot_be_loaded_is_told_with_the_cause(tmp_path):
    fake(tmp_path, {'tensorflow/__init__.py': "raise ImportError('libcuda.so.1: not found')\n"})
    assert 'libcuda.so.1: not found' in stack_error(output_of(IMPORT, tmp_path))


def test_a_tensorflow_that_lacks_what_is_needed_is_told_with_what_that_is():
    message = stack_error(output_of(WITHOUT_GRADIENTS + IMPORT))
    assert 'needs a part of TensorFlow that TensorFlow ' in message
    assert 'gradients' in message and SUPPORTED['TensorFlow'][1] in message


def test_a_horovod_without_tensorflow_is_told_with_the_way_to_build_it(tmp_path):
    files = {
        'horovod/__init__.py': '__version__ = %r\n' % horovod.__version__,
        'horovod/tensorflow/__init__.py': (
            "raise ImportError('Extension horovod.tensorflow has not been built.')\n"
        ),
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert 'needs Horovod built with TensorFlow support' in message
    assert 'Extension horovod.tensorflow has not been built.' in message
    assert SUPPORTED['Horovod'][1] in message


#: What each launcher tells one of two processes.
ONE_OF_TWO = [
    {'HOROVOD_RANK': '0', 'HOROVOD_SIZE': '2'},
    {'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_SIZE': '2'},
    {'SLURM_PROCID': '0', 'SLURM_STEP_NUM_TASKS': '2'},
]


@pytest.mark.parametrize('environ', ONE_OF_TWO)
def test_without_horovod_one_of_several_processes_is_told_how_to_get_it(environ, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    message = stack_error(output_of(WITHOUT.format(name='horovod') + IMPORT))
    assert 'needs Horovod' in message and 'the job has 2 processes' in message
    assert SUPPORTED['Horovod'][1] in message


def test_another_horovod_is_named_with_the_needed_one(tmp_path):
    # Newer and older ones have the modules under the same names.
    files = {
        'horovod/__init__.py': '__version__ = %r\n' % OTHER_HOROVOD,
        'horovod/tensorflow/__init__.py': '',
        'horovod/tensorflow/mpi_ops.py': '',
        'horovod/_keras/__init__.py': '',
        'horovod/_keras/callbacks.py': '',
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert 'needs Horovod %s, but %s was found' % (HOROVOD, OTHER_HOROVOD) in message


def test_another_horovod_with_other_modules_is_named_with_the_needed_one(tmp_path):
    files = {
        'horovod/__init__.py': "__version__ = '0.11.0'\n",
        'horovod/tensorflow/__init__.py': '',
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert '0.11.0 was found' in message


USE_KERAS = """
import keras_parallax as kp
from keras_parallax.compat import keras_api
try:
    keras_api.keras_package('keras')
except ImportError as error:
    print(type(error).__module__ + '.' + type(error).__name__)
    print(error)
"""


def test_another_keras_is_named_with_the_needed_one(tmp_path):
    files = {
        'keras/__init__.py': "__version__ = '2.3.1'\n",
        'keras/engine/__init__.py': '',
        'keras/engine/base_layer.py': '',
    }
    message = stack_error(output_of(USE_KERAS, fake(tmp_path, files)))
    assert 'needs Keras 2.2.4, but 2.3.1 was found' in message


def test_a_missing_keras_is_named_with_the_way_to_get_it():
    message = stack_error(output_of(WITHOUT.format(name='keras') + USE_KERAS))
    assert 'No module named keras' in message and SUPPORTED['Keras'][1] in message


@pytest.mark.skipif(not TF2 or TF1_15, reason='Keras 2 has no package of its own there')
def test_a_missing_tf_keras_is_named_with_the_way_to_get_it():
    # TensorFlow itself imports tf_keras if TF_USE_LEGACY_KERAS is 1.
    message = stack_error(output_of(WITHOUT.format(name='tf_keras') + IMPORT, legacy='1'))
    assert message.startswith('keras-parallax needs Keras 2')
    assert 'pip install tf-keras==2.' in message


@pytest.mark.skipif(not TF2 or TF1_15, reason='`tf.keras` has no other name there')
def test_without_keras_3_the_variable_for_keras_2_is_named():
    # TensorFlow 2 asks whether there is one, which `WITHOUT` does not answer.
    message = stack_error(output_of("import sys\nsys.modules['keras'] = None" + IMPORT, legacy='0'))
    assert message.startswith('keras-parallax needs tf.keras, which could not be imported (')
    assert 'Set TF_USE_LEGACY_KERAS=1 in the environment' in message


def test_tf_keras_is_served_where_keras_is_missing():
    script = (
        'import sys\n'
        "sys.modules['keras'] = None\n"
        'import keras_parallax as kp\n'
        'from keras_parallax.compat.installed_frameworks import tf\n'
        + 'tf.disable_v2_behavior()\n'
        * TF2
        + 'with kp.ParallaxStrategy():\n'
        '    model = tf.keras.models.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])\n'
        "    model.compile(kp.ParallaxOptimizer('sgd'), 'mse')\n"
        "print('compiled')\n"
    )
    assert output_of(script) == 'compiled\n'


def test_a_stack_error_is_an_import_error_and_ours():
    assert issubclass(kp.StackError, ImportError) and issubclass(kp.StackError, kp.ParallaxError)
