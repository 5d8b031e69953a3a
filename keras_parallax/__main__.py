"""`python -m keras_parallax` is `keras-parallax`."""

from keras_parallax.commands.cli import main

if __name__ == '__main__':
    main()
