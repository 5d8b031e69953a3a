# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The entry point of `keras-parallax`, outside the package so that it survives a broken stack."""

import sys


def main():
    # type: () -> None
    """Runs the command line; `keras-parallax doctor` also where the package cannot be imported."""
    problem = None
    try:
        import keras_parallax  # noqa: F401
    except ImportError as error:
        problem = error
        if sys.version_info < (3, 6):
            sys.exit(str(error))
        # Python or TensorFlow or Horovod is missing or of a wrong version: the package refuses, but
        # its modules that need none of them can still say what is wrong.
        import importlib.util

        spec = importlib.util.find_spec('keras_parallax')
        # The spec is there: it is the package's own, which was found to refuse.
        sys.modules['keras_parallax'] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    try:
        from keras_parallax.commands import cli

        cli.main(prog_name='keras-parallax')
    except ImportError:
        if problem is None:
            raise
        # Of a Python that is not for this package, more is missing than the command says.
        sys.exit(str(problem))


if __name__ == '__main__':
    main()
