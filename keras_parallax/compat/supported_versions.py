# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The versions that this release was run with.

It and `errors` import nothing that a broken stack may lack, and any Python can read them.
"""

import platform
import sys

from keras_parallax.compat import remedies
from keras_parallax.errors import StackError

#: Which a type checker takes for true: not every Python has `typing`, or reads annotations.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401 - type comments

    #: By package, how an accepted version may begin, and how to get one.
    Supported = Dict[str, Tuple[Tuple[str, ...], str]]


class Stack:
    """Versions that were tested together.

    Args:
        name: as the Makefile's `STACK` and the package's extras call it.
        pythons: the first and the last Python, pairs of numbers.
        supported: dict from `'TensorFlow'`, `'Keras'` and `'Horovod'` to pairs: how an accepted
            version begins, a tuple, and how to get one.
    """

    def __init__(self, name, pythons, supported):
        # type: (str, Tuple[Tuple[int, int], Tuple[int, int]], Supported) -> None
        self.name, self.pythons, self.supported = name, pythons, supported


#: What goes with Python 3.6, whichever of its two TensorFlows is there.
_PYTHON_3_6 = {
    'TensorFlow': (('1.11.', '1.6.'), remedies.TENSORFLOW['tf1.11']),
    'Keras': (('2.2.4',), remedies.KERAS['tf1.11']),
    'Horovod': (('0.19.',), remedies.HOROVOD),
}  # type: Supported


def _newer(name, tensorflow, keras):
    # type: (str, Tuple[str, ...], Tuple[str, ...]) -> Supported
    return {
        'TensorFlow': (tensorflow, remedies.TENSORFLOW[name]),
        'Keras': (keras, remedies.KERAS[name]),
        'Horovod': (('0.28.',), remedies.HOROVOD),
    }


#: The one that all others are compared with.
REFERENCE = Stack('tf1.11', ((3, 6), (3, 6)), _PYTHON_3_6)

#: By TensorFlow. Other TensorFlows from 2 on are tried with a warning.
STACKS = (
    Stack('tf1.6', ((3, 6), (3, 6)), _PYTHON_3_6),
    REFERENCE,
    # The second is what TensorFlow's own Keras calls itself.
    Stack('tf1.15', ((3, 7), (3, 7)), _newer('tf1.15', ('1.15.',), ('2.3.', '2.2.4-tf'))),
    Stack('tf2.15', ((3, 9), (3, 11)), _newer('tf2.15', ('2.',), ('2.',))),
    Stack('tf2.21', ((3, 10), (3, 13)), _newer('tf2.21', ('2.',), ('2.',))),
)


def stacks_for(version):
    # type: (str) -> List[Stack]
    """The `Stack`s for a Python, the best last; a list.

    Args:
        version: its version, a string.
    """
    python = tuple(int(number) for number in version.split('.')[:2])
    return [stack for stack in STACKS if stack.pythons[0] <= python <= stack.pythons[1]]


def stack_name(version):
    # type: (str) -> str
    """The name of the best stack for a Python, or of the reference if there is none.

    Args:
        version: its version, a string.
    """
    return (stacks_for(version) or [REFERENCE])[-1].name


def supported_on(version):
    # type: (str) -> Supported
    """What goes with a Python: of its best stack, a `Stack`'s `supported`.

    Args:
        version: its version, a string.
    """
    return (stacks_for(version) or [REFERENCE])[-1].supported


#: What goes with the Python that runs this.
SUPPORTED = supported_on(platform.python_version())


def version_problem(package, version, supported=SUPPORTED):
    # type: (str, str, Supported) -> Optional[str]
    """One sentence about a version this package does not support, or `None`.

    Args:
        package: `'TensorFlow'`, `'Keras'` or `'Horovod'`.
        version: the version found, a string.
        supported: a `Stack`'s.

    Returns:
        A string, or `None` if the version is supported.
    """
    prefixes, remedy = supported[package]
    if any(version.startswith(prefix) for prefix in prefixes):
        return None
    return 'keras-parallax needs %s %s, but %s was found; get it with: %s' % (
        package,
        ' or '.join(prefix + 'x' if prefix.endswith('.') else prefix for prefix in prefixes),
        version,
        remedy,
    )


def untested(version):
    # type: (str) -> Optional[str]
    """One sentence about a TensorFlow that is accepted, but was not tested; else `None`.

    Args:
        version: its version, a string.
    """
    numbers = [int(number) for number in version.split('.')[:2]]
    tested = [[int(number) for number in stack.name[2:].split('.')] for stack in STACKS]
    if numbers in tested:
        return None
    nearest = min(
        tested, key=lambda other: abs(100 * other[0] + other[1] - 100 * numbers[0] - numbers[1])
    )
    return (
        'keras-parallax was not tested with TensorFlow %s; the nearest that it was tested with is '
        '%d.%d.' % (version, nearest[0], nearest[1])
    )


def python_problem(version):
    # type: (str) -> Optional[str]
    """One sentence about a Python that no stack can run on, or `None`.

    Args:
        version: the version found, a string.
    """
    if stacks_for(version):
        return None
    of_pythons = {}  # type: Dict[Any, List[str]]
    for stack in STACKS:
        of_pythons.setdefault(stack.pythons, []).append(stack.name.replace('tf', ''))
    known = ', '.join(
        '%s for TensorFlow %s'
        % (
            ' to '.join(sorted({'%d.%d' % python for python in pythons}, key=len)),
            ' and '.join(names),
        )
        for pythons, names in of_pythons.items()
    )
    return (
        'keras-parallax needs Python %s, but this is Python %s (%s). Make an environment with one '
        'of them, and install keras-parallax there.' % (known, version, sys.executable)
    )


def require_python():
    # type: () -> None
    """Looks at the Python that runs.

    Raises:
        StackError: no stack can run on it.
    """
    problem = python_problem(platform.python_version())
    if problem:
        raise StackError(problem)


def require(package, version):
    # type: (str, str) -> None
    """Looks at the version of a package.

    Raises:
        StackError: this release does not support it.
    """
    problem = version_problem(package, version)
    if problem:
        raise StackError(problem)
