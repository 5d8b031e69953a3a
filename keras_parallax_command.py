# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The entry point of `keras-parallax`, outside the package so that it survives a broken stack."""

import sys


def main():
    # type: () -> None
    """Runs the command line; `keras-parallax doctor` also where the package cannot be imported."""
    problem = None
    try:
        # What starts a job needs no TensorFlow, which takes seconds to load and prints notes.
        if sys.argv[1:2] == ['run'] and sys.version_info >= (3, 6):
            _use_modules_alone()
        else:
            import keras_parallax  # noqa: F401
    except ImportError as error:
        problem = error
        if sys.version_info < (3, 6):
            sys.exit(str(error))
        # Python or TensorFlow or Horovod is missing or of a wrong version: the package refuses, but
        # its modules that need none of them can still say what is wrong.
        _use_modules_alone()
    try:
        from keras_parallax.commands import cli

        cli.main(prog_name='keras-parallax')
    except ImportError:
        if problem is None:
            raise
        # Of a Python that is not for this package, more is missing than the command says.
        sys.exit(str(problem))


def _use_modules_alone():
    # type: () -> None
    """Has modules of the package imported without the package itself."""
    import importlib.util

    spec = importlib.util.find_spec('keras_parallax')
    # The spec is there: it is that of the package which this file comes with.
    sys.modules['keras_parallax'] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]


if __name__ == '__main__':
    main()
