# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax install-horovod`: compiles Horovod for the TensorFlow that is installed."""

import sys

import click

from keras_parallax.errors import StackError
from keras_parallax.installing import horovod_build


@click.command()
@click.option('--rebuild', is_flag=True, help='Compile it also if it works or a wheel is kept.')
def command(rebuild: bool) -> None:
    """Install Horovod for the TensorFlow of this environment.

    Compiles Horovod with TensorFlow and Gloo, which takes minutes, runs two processes with it, and
    keeps the wheel in ~/.cache/keras-parallax/wheels, from where the next environment gets it in
    seconds. Variables of Horovod's build hold: HOROVOD_GPU_OPERATIONS=NCCL, HOROVOD_WITH_MPI=1,
    CC, CXX and others.
    """
    try:
        horovod_build.install_horovod(_say, rebuild=rebuild)
    except StackError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _say(sentence: str) -> None:
    click.echo('install-horovod: ' + sentence)
    sys.stdout.flush()
