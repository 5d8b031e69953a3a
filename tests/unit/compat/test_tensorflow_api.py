"""What is said when TensorFlow, Keras or Horovod is missing or of a wrong version."""

import glob
import os
import platform
import subprocess
import sys

import pytest

import keras_parallax as kp
import keras_parallax_command
from keras_parallax.compat import horovod_api, keras_api, tensorflow_api, versions

#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))

COMMAND = keras_parallax_command.__file__

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

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == {name!r}:
            raise ImportError('No module named ' + name)

sys.meta_path.insert(0, Missing())
"""


def output_of(script, path=None):
    """What a fresh Python prints for a script, with a folder before everything installed."""
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
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


@pytest.mark.parametrize(
    'package, version',
    [
        ('TensorFlow', '1.11.0'),
        ('TensorFlow', '1.11.1'),
        ('Keras', '2.2.4'),
        ('Horovod', '0.19.5'),
        ('Horovod', '0.19.0'),
    ],
)
def test_a_supported_version_is_no_problem(package, version):
    assert versions.version_problem(package, version) is None


@pytest.mark.parametrize(
    'package, version',
    [
        ('TensorFlow', '1.10.1'),
        ('TensorFlow', '1.12.0'),
        ('TensorFlow', '1.1.0'),
        ('TensorFlow', '2.0.0'),
        ('TensorFlow', '11.11.0'),
        ('Keras', '2.2.5'),
        ('Keras', '2.3.1'),
        ('Horovod', '0.18.2'),
        ('Horovod', '0.20.0'),
        ('Horovod', '0.1.9'),
    ],
)
def test_any_other_version_is_told_with_the_needed_one_and_how_to_get_it(package, version):
    problem = versions.version_problem(package, version)
    prefixes, remedy = versions.SUPPORTED[package]
    assert package in problem and version + ' was found' in problem
    assert prefixes[0] in problem and remedy in problem


def test_what_is_installed_here_is_supported():
    import keras

    for package, version in (
        ('TensorFlow', tensorflow_api.tf.__version__),
        ('Keras', keras.__version__),
        ('Horovod', horovod_api.horovod.__version__),
    ):
        assert versions.version_problem(package, version) is None


@pytest.mark.parametrize('version', ['2.7.18', '3.5.10', '3.7.16', '3.10.13', '3.60.0'])
def test_any_other_python_is_told_with_the_needed_one(version):
    assert 'needs Python 3.6, but this is Python %s ' % version in versions.python_problem(version)


def test_the_python_that_runs_the_tests_is_supported():
    assert versions.python_problem(platform.python_version()) is None


def other_pythons():
    """Pythons of this machine that the stack does not run on."""
    pattern = os.path.join(os.path.expanduser('~'), '.pyenv', 'versions', '*', 'bin', 'python')
    paths = [path for path in glob.glob(pattern) if '/3.6.' not in path]
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
        if not version.startswith('3.6.'):
            assert process.returncode == 1
            told = process.stdout.strip().splitlines()[-1]
            refuses = 'needs Python 3.6, but this is Python %s (' % version in told
            # The doctor reports in full where that Python finds what the doctor itself needs.
            reports = command[0] == COMMAND and 'Use CPython 3.6' in process.stdout
            assert refuses or (reports and 'Python %s at' % version in process.stdout)


# --- imports -----------------------------------------------------------------


def test_another_tensorflow_is_named_with_the_needed_one(tmp_path):
    fake(tmp_path, {'tensorflow/__init__.py': "__version__ = '2.0.0'\n"})
    message = stack_error(output_of(IMPORT, tmp_path))
    assert 'needs TensorFlow 1.11.x, but 2.0.0 was found' in message


def test_a_missing_tensorflow_is_named_with_the_way_to_get_it():
    message = stack_error(output_of(WITHOUT.format(name='tensorflow') + IMPORT))
    assert 'needs TensorFlow' in message and 'No module named tensorflow' in message
    assert "pip install 'keras-parallax[cpu]'" in message


def test_a_tensorflow_that_cannot_be_loaded_is_told_with_the_cause(tmp_path):
    fake(tmp_path, {'tensorflow/__init__.py': "raise ImportError('libcuda.so.1: not found')\n"})
    assert 'libcuda.so.1: not found' in stack_error(output_of(IMPORT, tmp_path))


def test_a_horovod_without_tensorflow_is_told_with_the_way_to_build_it(tmp_path):
    files = {
        'horovod/__init__.py': "__version__ = '0.19.5'\n",
        'horovod/tensorflow/__init__.py': (
            "raise ImportError('Extension horovod.tensorflow has not been built.')\n"
        ),
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert 'needs Horovod built with TensorFlow support' in message
    assert 'Extension horovod.tensorflow has not been built.' in message
    assert 'HOROVOD_WITH_TENSORFLOW=1 pip install' in message


def test_a_missing_horovod_is_named_with_the_way_to_get_it():
    message = stack_error(output_of(WITHOUT.format(name='horovod') + IMPORT))
    assert 'needs Horovod' in message and 'No module named horovod' in message
    assert 'HOROVOD_WITH_TENSORFLOW=1 pip install' in message


def test_another_horovod_is_named_with_the_needed_one(tmp_path):
    # Newer ones have the modules under the same names.
    files = {
        'horovod/__init__.py': "__version__ = '0.28.1'\n",
        'horovod/tensorflow/__init__.py': '',
        'horovod/tensorflow/mpi_ops.py': '',
        'horovod/_keras/__init__.py': '',
        'horovod/_keras/callbacks.py': '',
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert 'needs Horovod 0.19.x, but 0.28.1 was found' in message


def test_another_horovod_with_other_modules_is_named_with_the_needed_one(tmp_path):
    files = {
        'horovod/__init__.py': "__version__ = '0.11.0'\n",
        'horovod/tensorflow/__init__.py': '',
    }
    message = stack_error(output_of(IMPORT, fake(tmp_path, files)))
    assert '0.11.0 was found' in message


USE_KERAS = """
import keras_parallax as kp
from keras_parallax.compat import tensorflow_api as compat
try:
    compat.keras_package('keras')
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
    assert 'No module named keras' in message and 'pip install keras==2.2.4' in message


def test_tf_keras_is_served_where_keras_is_missing():
    script = WITHOUT.format(name='keras') + (
        'import keras_parallax as kp\n'
        'from keras_parallax.compat.tensorflow_api import tf\n'
        'with kp.ParallaxStrategy():\n'
        '    model = tf.keras.models.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])\n'
        "    model.compile(kp.ParallaxOptimizer('sgd'), 'mse')\n"
        "print('compiled')\n"
    )
    assert output_of(script) == 'compiled\n'


def test_a_stack_error_is_an_import_error_and_ours():
    assert issubclass(kp.StackError, ImportError) and issubclass(kp.StackError, kp.ParallaxError)


# --- the two Keras packages --------------------------------------------------


@pytest.mark.parametrize('name', ['keras', 'tf.keras'])
def test_layers_models_and_optimizers_know_their_package(name):
    module = keras_api.keras_package(name).module
    things = [
        module.layers.Dense(1),
        module.models.Sequential(),
        module.optimizers.SGD(),
    ]
    assert [keras_api.package_of(thing).name for thing in things] == [name] * 3


def test_what_is_of_neither_package_has_none():
    assert keras_api.package_of(object()) is None
    assert keras_api.package_of(tensorflow_api.tf.train.AdamOptimizer()) is None


@pytest.mark.parametrize('name', ['keras', 'tf.keras'])
def test_a_users_subclass_belongs_to_the_package_of_its_parent(name):
    class Mine(keras_api.keras_package(name).module.optimizers.SGD):
        pass

    assert keras_api.package_of(Mine()).name == name


def test_asking_for_the_session_of_a_package_opens_none():
    import keras

    for package in map(keras_api.keras_package, ('keras', 'tf.keras')):
        keras.backend.clear_session()
        package.backend.clear_session()
        graph = tensorflow_api.tf.Graph()
        assert keras_api.open_session_of(package, graph) is None
        with graph.as_default():
            session = package.backend.get_session()
            assert keras_api.open_session_of(package, graph) is session
        package.backend.clear_session()
