"""The command `keras-parallax`."""

import pytest
from click.testing import CliRunner

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
