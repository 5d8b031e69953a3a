# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The command `keras-parallax`."""

import os
import subprocess
import sys

import hidden_packages
import pytest
from click.testing import CliRunner

import keras_parallax as kp
from keras_parallax.commands import cli


def test_help_lists_every_command_and_every_command_explains_itself():
    outcome = CliRunner().invoke(cli.main, ['--help'])
    assert outcome.exit_code == 0
    for name in cli._NAMES:
        assert name in outcome.output
        assert CliRunner().invoke(cli.main, [name, '-h']).exit_code == 0


@pytest.mark.parametrize('name', ['no-such-command', 'callbacks'])
def test_an_unknown_command_is_refused_by_name(name):
    outcome = CliRunner().invoke(cli.main, [name])
    assert outcome.exit_code == 2
    assert name in outcome.output


WITHOUT_TENSORFLOW = """
import sys
import hidden_packages
hidden_packages.hide('tensorflow')
sys.argv = ['keras-parallax', '--version']
import keras_parallax_command
keras_parallax_command.main()
"""


def test_the_version_is_told_where_the_package_cannot_load():
    paths = [os.path.dirname(hidden_packages.__file__)] + sys.path
    said = subprocess.run(
        [sys.executable, '-c', WITHOUT_TENSORFLOW],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths))),
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    assert kp.__version__ in said.stdout.split()[-1]
