# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`python -m keras_parallax` is `keras-parallax`."""

from keras_parallax.commands.cli import main

if __name__ == '__main__':
    main()
