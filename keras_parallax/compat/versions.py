"""The versions that this release was run with.

It and `errors` import nothing that a broken stack may lack, and any Python can read them.
"""

import platform
import sys

from keras_parallax.errors import StackError

#: Package to (accepted version prefixes, how to get it).
SUPPORTED = {
    'TensorFlow': (('1.11.',), "pip install 'keras-parallax[cpu]' (or [gpu])"),
    'Keras': (('2.2.4',), 'pip install keras==2.2.4'),
    'Horovod': (('0.19.',), 'HOROVOD_WITH_TENSORFLOW=1 pip install --no-cache-dir horovod==0.19.5'),
}


def version_problem(package, version):
    """One sentence about a version this package does not support, or `None`.

    Args:
        package: `'TensorFlow'`, `'Keras'` or `'Horovod'`.
        version: the version found, a string.

    Returns:
        A string, or `None` if the version is supported.
    """
    prefixes, remedy = SUPPORTED[package]
    if any(version.startswith(prefix) for prefix in prefixes):
        return None
    return 'keras-parallax needs %s %s, but %s was found; get it with: %s' % (
        package,
        ' or '.join(prefix + 'x' if prefix.endswith('.') else prefix for prefix in prefixes),
        version,
        remedy,
    )


def python_problem(version):
    """One sentence about a Python that the stack cannot run on, or `None`.

    Args:
        version: the version found, a string.
    """
    if version.startswith('3.6.'):
        return None
    return (
        'keras-parallax needs Python 3.6, but this is Python %s (%s): TensorFlow 1.11 is not made '
        'for any newer one, nor this package for an older one. Make an environment with Python 3.6 '
        "and install there: pip install 'keras-parallax[cpu]' (or [gpu])"
        % (version, sys.executable)
    )


def require_python():
    """Looks at the Python that runs.

    Raises:
        StackError: the stack cannot run on it.
    """
    problem = python_problem(platform.python_version())
    if problem:
        raise StackError(problem)


def require(package, version):
    """Looks at the version of a package.

    Raises:
        StackError: this release does not support it.
    """
    problem = version_problem(package, version)
    if problem:
        raise StackError(problem)
