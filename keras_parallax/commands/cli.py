"""The command `keras-parallax`: each subcommand is in a module of its own, imported when called."""

import importlib

import click

#: Subcommand to the module of this package that has it, as a click command called `command`.
_MODULES = {
    'doctor': 'doctor',
    'plan': 'plan',
    'run': 'run',
    'server': 'server',
}


class _Commands(click.Group):
    def list_commands(self, context):
        return sorted(_MODULES)

    def get_command(self, context, name):
        if name not in _MODULES:
            return None
        return importlib.import_module('keras_parallax.commands.' + _MODULES[name]).command


@click.command(cls=_Commands, context_settings={'help_option_names': ['-h', '--help']})
def main():
    """Look at and look after keras-parallax training jobs."""
