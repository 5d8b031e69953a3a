# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The command `keras-parallax`: each subcommand is in a module of its own, imported when called."""

import importlib
from typing import List, Optional

import click

from keras_parallax.version import VERSION

#: Subcommands; the module of the name, with `_` for `-`, has a click command called `command`.
_NAMES = ('doctor', 'install-horovod', 'plan', 'run', 'server', 'timeline')


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> List[str]:
        return list(_NAMES)

    def get_command(self, context: click.Context, name: str) -> Optional[click.Command]:
        if name not in _NAMES:
            return None
        return importlib.import_module('keras_parallax.commands.' + name.replace('-', '_')).command


@click.command(cls=_Commands, context_settings={'help_option_names': ['-h', '--help']})
@click.version_option(VERSION, prog_name='keras-parallax')
def main() -> None:
    """Start, inspect and operate keras-parallax training jobs."""
