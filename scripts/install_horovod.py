"""Installs Horovod in the environment whose Python runs this: compiled now, or once before.

    .venv/bin/python scripts/install_horovod.py horovod==0.19.5 clang clang++

A wheel is kept in the user's cache, in a folder whose name says all that it depends on. It is used
if it is whole and what is installed from it can be imported; else Horovod is compiled anew.
"""

import glob
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

#: TensorFlow and Gloo and nothing else, unless the environment says so. Gloo asks for a CMake of
#: 2.8, which CMake 4 refuses without the last.
SWITCHES = {
    'HOROVOD_WITH_TENSORFLOW': '1',
    'HOROVOD_WITHOUT_PYTORCH': '1',
    'HOROVOD_WITHOUT_MXNET': '1',
    'HOROVOD_WITH_GLOO': '1',
    'HOROVOD_WITHOUT_MPI': '1',
    'CMAKE_POLICY_VERSION_MINIMUM': '3.5',
}

#: What else of the environment a compilation looks at.
FLAGS = ('CFLAGS', 'CPPFLAGS', 'CXXFLAGS', 'LDFLAGS', 'CPATH', 'CPLUS_INCLUDE_PATH')

WORKS = """
import horovod, horovod.tensorflow
assert 'horovod==' + horovod.__version__ == %r, horovod.__version__
assert horovod.tensorflow.gloo_built(), 'Horovod was built without Gloo'
assert horovod.tensorflow.mpi_built() or not %r, 'Horovod was built without MPI'
"""

#: What builds no more of Horovod 0.28.1 than is loaded. Its path is no part of a wheel's name.
CMAKE = os.path.join(HERE, 'cmake_without_waste.sh')

#: What scripts/cxx_without_xla.sh says when it has done its work.
LEFT_OUT = 'XLA operations are left out'


class BuildError(Exception):
    """Horovod did not build; holds a sentence."""


def say(message):
    print('env: ' + message, flush=True)


def check(requirement):
    """The text of a program that ends well where the wanted Horovod can be imported."""
    return WORKS % (requirement, bool(os.environ.get('HOROVOD_WITH_MPI')))


def works(requirement):
    """Whether Horovod of the wanted version is installed and can be imported."""
    command = [sys.executable, '-c', check(requirement)]
    return subprocess.call(command, stderr=subprocess.DEVNULL) == 0


def require(requirement):
    """Imports Horovod, for all to see what goes wrong."""
    subprocess.check_call([sys.executable, '-c', check(requirement)])


def tensorflow_parts():
    """TensorFlow's version and the flags that its ABI asks for."""
    code = (
        'import json, tensorflow as tf\n'
        'flags = tf.sysconfig.get_compile_flags() + tf.sysconfig.get_link_flags()\n'
        # Where its headers and libraries are does not matter.
        "flags = [flag for flag in flags if flag[:2] not in ('-I', '-L')]\n"
        'print(json.dumps([tf.__version__, flags]))'
    )
    answer = subprocess.check_output([sys.executable, '-c', code], stderr=subprocess.DEVNULL)
    return json.loads(answer.decode().splitlines()[-1])


def compiler_parts(compiler):
    """What a compiler says of itself, and its text if it is a script of ours."""
    said = subprocess.check_output([compiler, '--version']).decode().splitlines()[0]
    if os.path.dirname(os.path.abspath(compiler)) != HERE:
        return [said]
    with open(compiler) as file:
        return [said, file.read()]


def build_variables(environ):
    """The variables, without compilers, that a compilation is given and looks at: a dict.

    Args:
        environ: the environment so far. What a user has set there for Horovod holds.
    """
    variables = dict(SWITCHES)
    for name, value in environ.items():
        if name.startswith('HOROVOD_') or name in FLAGS:
            variables[name] = value
    return variables


def folder_name(requirement, tensorflow, abi, compilers, variables, system):
    """The name of the folder of a wheel: readable at its beginning, and of everything at its end.

    Args:
        requirement: for instance `'horovod==0.28.1'`.
        tensorflow: version and flags, as of `tensorflow_parts`.
        abi: Python's, for instance `'cpython-311-x86_64-linux-gnu'`.
        compilers: what `compiler_parts` gives for each.
        variables: dict, as of `build_variables`.
        system: name and version of the C library.
    """
    parts = [requirement, tensorflow, abi, compilers, variables, system]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return '-'.join([requirement.replace('==', '-'), 'tensorflow', tensorflow[0], abi, digest])


def cache_folder(environ):
    """Where wheels are kept, or `None` if the user has no home."""
    cache = environ.get('XDG_CACHE_HOME')
    if not cache and environ.get('HOME'):
        cache = os.path.join(environ['HOME'], '.cache')
    return os.path.join(cache, 'keras-parallax', 'wheels') if cache else None


def kept_wheel(folder):
    """The path of a whole wheel in a folder, or `None`."""
    for path in glob.glob(os.path.join(folder, 'horovod-*.whl')):
        try:
            with zipfile.ZipFile(path) as wheel:
                if wheel.testzip() is None:
                    return path
        except (zipfile.BadZipFile, OSError):
            pass
        say('The wheel in %s is damaged.' % folder)
    return None


def keep(wheel, folder):
    """Puts a wheel into a folder of the cache, at once and whole.

    Returns:
        What went wrong, or `None`.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        aside, path = tempfile.mkstemp(dir=folder)
        os.close(aside)
        shutil.copyfile(wheel, path)
        os.chmod(path, 0o644)
        os.replace(path, os.path.join(folder, os.path.basename(wheel)))
    except OSError as error:
        return error
    return None


def compile_wheel(requirement, variables, folder):
    """Compiles Horovod.

    Args:
        requirement: for instance `'horovod==0.28.1'`.
        variables: what the environment is to have besides.
        folder: where the wheel and the log go; its former wheels go away.

    Returns:
        The wheel's path.

    Raises:
        BuildError: it did not work.
    """
    for former in glob.glob(os.path.join(folder, '*.whl')):
        os.remove(former)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'build.log')
    # Not from pip's cache, where a wheel may come from other switches or another TensorFlow, and
    # where pip 23.1 and later look in spite of --no-binary (tests/unit/test_install_horovod.py).
    # With the MAKEFLAGS of a calling Makefile, one file at a time would be compiled.
    command = [sys.executable, '-m', 'pip', 'wheel', '--no-build-isolation', '--no-deps']
    command += ['--no-cache-dir', '--no-binary', 'horovod', '--wheel-dir', folder]
    command += ['-v', requirement]
    environ = dict(os.environ, MAKEFLAGS='-j%d' % (os.cpu_count() or 1), **variables)
    with open(path, 'w') as log:
        code = subprocess.call(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
    with open(path, errors='replace') as log:
        lines = log.read().splitlines()
    if code != 0:
        tail = '\n'.join(lines[-40:])
        raise BuildError('%s\nHorovod did not build; the lines above end %s.' % (tail, path))
    if 'without_xla' in variables['CXX'] and not any(LEFT_OUT in line for line in lines):
        raise BuildError('Horovod was not compiled by %s: see %s.' % (variables['CXX'], path))
    return glob.glob(os.path.join(folder, 'horovod-*.whl'))[0]


def install(wheel, requirement):
    """Installs a wheel, found by its name, so that `pip freeze` gives a pin and not a path."""
    command = [sys.executable, '-m', 'pip', 'install', '-qq', '--no-deps', '--force-reinstall']
    command += ['--no-cache-dir', '--only-binary', 'horovod', '--no-index', '--find-links']
    subprocess.check_call(command + [os.path.dirname(wheel), requirement])


def main(requirement, cc, cxx):
    if works(requirement):
        return
    if os.path.dirname(cxx):
        cxx = os.path.abspath(cxx)
    variables = build_variables(os.environ)
    compilers = [compiler_parts(cc), compiler_parts(cxx)]
    name = folder_name(
        requirement,
        tensorflow_parts(),
        sysconfig.get_config_var('SOABI'),
        compilers,
        variables,
        ' '.join(platform.libc_ver()),
    )
    cache = cache_folder(os.environ)
    kept = kept_wheel(os.path.join(cache, name)) if cache else None
    if kept:
        say('Horovod, compiled before: %s' % kept)
        install(kept, requirement)
        if works(requirement):
            return
        say('What is kept there does not work here.')

    say('Horovod, compiled by %s (minutes)' % compilers[1][0])
    variables.update(CC=cc, CXX=cxx)
    variables.setdefault('HOROVOD_CMAKE', CMAKE)
    # Debug information takes a sixth of the time that Horovod 0.19.5 takes. A later flag holds.
    variables['CFLAGS'] = ' '.join(['-g0', variables.get('CFLAGS', '')]).strip()
    wheel = compile_wheel(requirement, variables, os.path.join(sys.prefix, 'horovod-build'))
    install(wheel, requirement)
    require(requirement)
    problem = keep(wheel, os.path.join(cache, name)) if cache else 'there is no HOME'
    if problem:
        say('The wheel is not kept for other checkouts: %s.' % problem)


if __name__ == '__main__':
    try:
        main(*sys.argv[1:])
    except BuildError as error:
        sys.exit(str(error))
