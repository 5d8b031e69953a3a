# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The pages of the API name all that is public: `make docs` makes them from the docstrings."""

import glob
import os
import re

import pytest

import keras_parallax as kp
from keras_parallax.commands import cli

ROOMS = ('callbacks', 'data', 'layers', 'metrics', 'optimizers')
API = os.path.join(os.path.dirname(__file__), '..', '..', 'docs', 'api')


def page(name):
    with open(os.path.join(API, name), encoding='utf-8') as file:
        return file.read()


def test_every_public_name_has_a_page():
    text = '\n'.join(page(os.path.basename(path)) for path in glob.glob(os.path.join(API, '*.md')))
    shown = re.findall(
        r'^::: keras_parallax\.((?:(?:%s)\.)?\w+)$' % '|'.join(ROOMS), text, re.MULTILINE
    )
    # Modules, whose members have a page, and Horovod's own, which is described in words.
    names = set(kp.__all__) - {*ROOMS, 'Compression'}
    names |= {'%s.%s' % (room, name) for room in ROOMS for name in getattr(kp, room).__all__}
    assert sorted(shown) == sorted(names)


def test_the_list_of_the_api_has_every_public_name_and_every_command():
    text = page(os.path.join(os.pardir, 'api.md'))
    listed = re.findall(r'^- `(kp\.[\w.]+|keras-parallax [\w-]+)`: \S', text, re.MULTILINE)
    names = set(kp.__all__) - set(ROOMS)
    names |= {'%s.%s' % (room, name) for room in ROOMS for name in getattr(kp, room).__all__}
    expected = ['kp.' + name for name in names]
    expected += ['keras-parallax ' + name for name in cli.main.list_commands(None)]
    assert sorted(listed) == sorted(expected)


@pytest.mark.parametrize('name', cli.main.list_commands(None))
def test_the_page_of_commands_says_what_their_help_says(name):
    command = cli.main.get_command(None, name)
    words = ' '.join(page('commands.md').split())
    assert '## `keras-parallax %s`' % name in words
    for option in command.params:
        if getattr(option, 'hidden', False):
            continue
        assert all(flag in words for flag in option.opts if flag.startswith('-'))
        assert ' '.join((getattr(option, 'help', None) or '').split()) in words
