"""Every command that a message tells a user to run works, in a fresh environment.

An environment is fresh, and costs no download of TensorFlow: it sees the packages of the stack, but
for those that a test wants it to lack, through links. pip takes the links for packages of somewhere
else, which it never removes. One environment has nothing, and the newest Python.
"""

import fnmatch
import glob
import os
import shutil
import subprocess
import sys
import sysconfig

import horovod
import pytest
from frameworks import TF2

from keras_parallax.compat import remedies
from keras_parallax.compat.supported_versions import stack_name
from keras_parallax.installing import system_packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STACK = stack_name('%d.%d.0' % sys.version_info[:2])

#: The newest Python of the newest stack; that stack's tests have an older one.
NEWEST = '3.13'

#: Which files of the stack's `site-packages` a package has.
FILES = {
    'h5py': ['h5py', 'h5py-*', 'h5py.libs'],
    'horovod': ['horovod', 'horovod-*'],
    'jinja2': ['jinja2', 'jinja2-*'],
    'keras': ['tf_keras', 'tf_keras-*'] if TF2 else ['keras', 'keras-*'],
    'matplotlib': ['matplotlib', 'matplotlib-*'],
    'tensorflow': ['tensorflow', 'tensorflow-*'],
}

#: Commands that are not run, and why.
NOT_RUN = {
    remedies.HOROVOD_WITH_MPI: 'compiles for minutes, with Open MPI; `make env MPI=1` runs it',
    remedies.HOROVOD_WITH_NCCL: 'needs the libraries of CUDA',
    remedies.TENSORFLOW_GPU[STACK]: 'gigabytes of libraries for cards',
}
H5PY = remedies.H5PY if TF2 else remedies.H5PY_2


@pytest.fixture(scope='module')
def package(tmp_path_factory):
    """A folder in which pip has installed this package from its wheel."""
    folder = tmp_path_factory.mktemp('package')
    pip = [sys.executable, '-m', 'pip', 'install', '-qq', '--no-deps', '--no-build-isolation']
    sources = copied_sources(folder / 'sources')
    subprocess.check_call(pip + ['--target', str(folder / 'installed'), sources])
    return str(folder / 'installed')


def copied_sources(folder):
    """Copies what the package is built from to a folder, so that pip builds nothing in ours."""
    folder.mkdir()
    for name in ('README.md', 'keras_parallax', 'keras_parallax_command.py', 'setup.py'):
        copy = shutil.copytree if os.path.isdir(os.path.join(ROOT, name)) else shutil.copy
        copy(os.path.join(ROOT, name), str(folder / name))
    return str(folder)


class Fresh:
    """A virtual environment with the packages of the stack, but for some."""

    def __init__(self, folder, package, without):
        self.folder, links = str(folder / 'venv'), folder / 'links'
        venv = [sys.executable, '-m', 'venv', '--without-pip', self.folder]
        subprocess.check_call(venv)
        links.mkdir()
        lacks = [pattern for name in without for pattern in FILES[name]]
        lacks += ['keras_parallax*', '__pycache__', '*.pth']
        for path in glob.glob(os.path.join(sysconfig.get_paths()['purelib'], '*')):
            name = os.path.basename(path)
            if not any(fnmatch.fnmatch(name.lower(), pattern) for pattern in lacks):
                (links / name).symlink_to(path)
        for path in glob.glob(os.path.join(package, 'keras_parallax*')):
            (links / os.path.basename(path)).symlink_to(path)
        (self.packages,) = glob.glob(os.path.join(self.folder, 'lib', 'python*', 'site-packages'))
        with open(os.path.join(self.packages, 'stack.pth'), 'w') as file:
            file.write(str(links) + '\n')
        self._script('pip', 'from pip._internal.cli.main import main\nimport sys\nsys.exit(main())')
        self._script('keras-parallax', 'from keras_parallax_command import main\nmain()')

    def _script(self, name, text):
        path = os.path.join(self.folder, 'bin', name)
        with open(path, 'w') as file:
            file.write('#!%s/bin/python\n%s\n' % (self.folder, text))
        os.chmod(path, 0o755)

    def run(self, line, **environ):
        """Runs a line of a shell as a user would; returns its exit status and what it prints."""
        bare = {
            name: value
            for name, value in os.environ.items()
            if name != 'PYTHONPATH' and not name.startswith('HOROVOD_')
        }
        bare['PATH'] = '%s/bin:/usr/local/bin:/usr/bin:/bin' % self.folder
        process = subprocess.run(
            ['bash', '-c', line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            cwd=self.folder,
            env=dict(bare, TF_CPP_MIN_LOG_LEVEL='2', **environ),
        )
        return process.returncode, process.stdout

    def mend(self, line, commands, **environ):
        """Runs a line that names commands, and these, and the line again, which then names none."""
        told = self.run(line, **environ)[1]
        for command in commands:
            assert command in told, told
        for command in commands:
            code, said = self.run(command)
            assert code == 0, said
        told = self.run(line, **environ)[1]
        for command in commands:
            assert command not in told, told


@pytest.fixture
def fresh(tmp_path, package):
    """A function that makes an environment without some packages."""
    return lambda *without: Fresh(tmp_path, package, without)


class Empty(Fresh):
    """A virtual environment of another Python with this package and what pip brings with it."""

    def __init__(self, python, folder):
        self.folder = str(folder / 'venv')
        subprocess.check_call([python, '-m', 'venv', self.folder])
        pip = [os.path.join(self.folder, 'bin', 'pip'), 'install', '-qq']
        subprocess.check_call(pip + [copied_sources(folder / 'package')])


def newest_python():
    """The path of the newest Python that a stack can have, or `None`."""
    with_pyenv = os.path.expanduser(
        os.path.join(os.environ.get('PYENV_ROOT', '~/.pyenv'), 'versions')
    )
    found = glob.glob(os.path.join(with_pyenv, NEWEST + '.*', 'bin', 'python'))
    found += [shutil.which('python' + NEWEST)]
    for python in filter(None, found):
        # A shim of pyenv is there even where no such Python is chosen.
        if subprocess.call([python, '-c', 'import venv'], stderr=subprocess.DEVNULL) == 0:
            return python
    return None


def install_broken_horovod(packages):
    """Writes what pip installs of Horovod where it compiles it without TensorFlow."""
    name = 'horovod-%s.dist-info' % horovod.__version__
    metadata = 'Metadata-Version: 2.1\nName: horovod\nVersion: %s\n' % horovod.__version__
    texts = {
        'horovod/__init__.py': '__version__ = %r\n' % horovod.__version__,
        'horovod/tensorflow/__init__.py': 'raise ImportError("has not been built")\n',
        name + '/INSTALLER': 'pip\n',
        name + '/METADATA': metadata,
    }
    texts[name + '/RECORD'] = ''.join('%s,,\n' % path for path in [*texts, name + '/RECORD'])
    for path, text in texts.items():
        whole = os.path.join(packages, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, 'w') as file:
            file.write(text)


def test_what_the_doctor_prescribes_cures(fresh):
    environment = fresh('horovod', 'keras', 'h5py')
    install_broken_horovod(environment.packages)
    # This was prescribed before, and does nothing.
    code, said = environment.run('pip install horovod==' + horovod.__version__)
    assert code == 0 and 'already satisfied: horovod' in said
    commands = [remedies.KERAS[STACK], H5PY, remedies.HOROVOD]
    environment.mend('keras-parallax doctor', commands)


def test_a_missing_tensorflow_is_got(fresh):
    environment, line = fresh('tensorflow'), 'python -c "import keras_parallax"'
    told = environment.run(line)[1]
    assert remedies.TENSORFLOW[STACK] in told
    # TensorFlow 2 takes gigabytes, so pip only looks what it would install.
    code, said = environment.run(remedies.TENSORFLOW[STACK], PIP_DRY_RUN='1' if TF2 else '')
    assert code == 0, said
    if TF2:
        assert 'Would install' in said and 'tensorflow-' in said
    else:
        assert environment.run(line)[0] == 0


@pytest.mark.skipif(not TF2, reason='the newest Python has the newest TensorFlow only')
@pytest.mark.skipif(newest_python() is None, reason='there is no Python ' + NEWEST)
def test_what_messages_prescribe_leads_from_nothing_to_two_workers(tmp_path):
    environment = Empty(newest_python(), tmp_path)
    environment.mend('python -c "import keras_parallax"', [remedies.TENSORFLOW[STACK]])
    # What TensorFlow and this package bring would hide what is prescribed.
    assert environment.run('pip uninstall -y keras tf-keras')[0] == 0
    environment.mend('python -c "import keras_parallax"', [remedies.ANY_KERAS])
    assert environment.run('pip uninstall -y h5py jinja2')[0] == 0
    environment.mend('keras-parallax doctor', [remedies.KERAS[STACK], H5PY, remedies.HOROVOD])
    environment.mend("python -c '%s'" % DRAW, [remedies.JINJA2, remedies.MATPLOTLIB])
    (tmp_path / 'venv' / 'two.py').write_text(TWO)
    code, said = environment.run('keras-parallax run -np 2 two.py')
    assert code == 0 and '[0, 1] of 2' in said, said


TWO = """
import keras_parallax as kp
with kp.ParallaxStrategy() as strategy:
    ranks = strategy._job.gather(strategy.rank)
if strategy.is_chief:
    print(sorted(ranks), 'of', strategy.size)
"""

DRAW = """
from keras_parallax import html_templates
from keras_parallax.commands import timeline
from keras_parallax.observing import trace_page

for draw in (
    lambda: html_templates.template_beside(trace_page.__file__, RuntimeError),
    lambda: timeline.draw(None, [], "there"),
):
    try:
        draw()
    except Exception as error:
        print(error)
"""


def test_what_draws_is_got(fresh):
    environment = fresh('jinja2', 'matplotlib')
    commands = [remedies.JINJA2, remedies.MATPLOTLIB]
    environment.mend("python -c '%s'" % DRAW, commands)


@pytest.mark.skipif(not TF2, reason='TensorFlow 1.11 has its own Keras')
def test_the_tf_keras_of_a_tensorflow_leaves_tensorflow_alone(fresh):
    import tensorflow

    environment = fresh('keras')
    code, said = environment.run(remedies.tf_keras(tensorflow.__version__))
    assert code == 0, said
    assert 'Successfully installed tf-keras' in said or 'Successfully installed tf_keras' in said


@pytest.mark.skipif(shutil.which('apt-get') is None, reason='it is not Debian')
def test_debian_has_the_system_packages(tmp_path):
    if os.geteuid() != 0:
        pytest.skip('only root installs system packages')
    packages = ['clang', 'cmake', 'g++', 'libopenmpi-dev', 'make', 'openmpi-bin']
    # As they stand, but nothing is installed.
    (tmp_path / 'apt.conf').write_text('APT::Get::Simulate "true";\n')
    for command in (system_packages.apt_command(packages, is_root=True), remedies.OPEN_MPI):
        process = subprocess.run(
            ['bash', '-c', command],
            env=dict(os.environ, APT_CONFIG=str(tmp_path / 'apt.conf')),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        assert process.returncode == 0, process.stdout


def test_every_remedy_of_this_stack_is_run_or_says_why_not():
    run = {
        remedies.ANY_KERAS,
        remedies.HOROVOD,
        remedies.TENSORFLOW[STACK],
        remedies.KERAS[STACK],
        remedies.H5PY,
        remedies.H5PY_2,
        remedies.JINJA2,
        remedies.MATPLOTLIB,
        remedies.OPEN_MPI,
    }
    known = set()
    for name, value in vars(remedies).items():
        if name.isupper():
            known.add(value[STACK] if isinstance(value, dict) else value)
    assert run | set(NOT_RUN) == known


def test_commands_that_install_are_remedies():
    lost = []
    for path in glob.glob(os.path.join(ROOT, 'keras_parallax', '**', '*.py'), recursive=True):
        if os.path.basename(path) in ('remedies.py', 'system_packages.py'):
            continue
        with open(path) as file:
            for number, line in enumerate(file, 1):
                words = ('pip install ', 'pip uninstall ', 'apt-get install ')
                is_comment = line.lstrip().startswith('#')
                if any(word in line for word in words) and not is_comment:
                    lost.append('%s:%d: %s' % (path, number, line.strip()))
    assert lost == []
