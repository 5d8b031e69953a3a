# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The entry point of `keras-parallax`, outside the package so that it survives a broken stack."""

import sys


def main():
    # type: () -> None
    """Runs the command line, some of it also where the package cannot load."""
    problem = None if _needs_no_package(sys.argv[1:]) else _problem()
    if problem is not None and sys.version_info < (3, 6):
        sys.exit(str(problem))
    if problem is not None or _needs_no_package(sys.argv[1:]):
        _load_nothing()
    try:
        from keras_parallax.commands import cli

        cli.main(prog_name='keras-parallax')
    except ImportError:
        if problem is None:
            raise
        # Of a Python that is not for this package, more is missing than the command says.
        sys.exit(str(problem))


def _needs_no_package(arguments):
    # type: (list[str]) -> bool
    """Whether a command works with modules of the package alone."""
    # What starts a job needs no TensorFlow, which takes seconds to load and prints notes. A Horovod
    # that was built for another TensorFlow may end the process that loads it.
    return sys.version_info >= (3, 6) and arguments[:1] in (
        ['run'],
        ['install-horovod'],
        ['--version'],
    )


def _problem():
    # type: () -> object
    """Why the package cannot be imported, or `None`."""
    try:
        import keras_parallax  # noqa: F401
    except ImportError as error:
        return error
    return None


def _load_nothing():
    # type: () -> None
    """Has the package's modules imported without the package, which refuses a broken stack.

    Modules that need none of what is missing can still say what is wrong, and mend it.
    """
    import importlib.util

    spec = importlib.util.find_spec('keras_parallax')
    # The spec is there: it is that of the package which this file comes with.
    sys.modules['keras_parallax'] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]


if __name__ == '__main__':
    main()
