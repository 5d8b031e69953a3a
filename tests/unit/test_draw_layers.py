# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The picture of the layers: dots are imports, grey is what the contract forbids."""

import importlib.util
import os
import re
from xml.etree import ElementTree

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'draw_layers.py')
_spec = importlib.util.spec_from_file_location('draw_layers', SCRIPT)
draw_layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw_layers)

CONTRACT = """
[importlinter:contract:layers]
layers =
    pack.top
    pack.left | pack.right
    pack.bottom
"""
LAYERS = [['top'], ['left', 'right'], ['bottom']]


def kinds(imports):
    """For each row of the picture, the first letters of its cells' classes, and where dots are."""
    picture = ElementTree.fromstring(draw_layers.draw(LAYERS, imports))
    cells = []
    for kind in (shape.get('class') for shape in picture if shape.get('class')):
        if kind == 'imports':
            cells[-1] += '.'
        else:
            cells.append(kind[0])
    return [' '.join(cells[first : first + 4]) for first in range(0, 16, 4)]


def test_the_contract_says_which_layers_there_are_from_the_top():
    assert draw_layers.read_layers(CONTRACT) == LAYERS


def test_a_dot_is_an_import_and_what_is_not_below_is_forbidden():
    assert kinds({('top', 'right'), ('left', 'bottom')}) == [
        'o m m. m',
        'n o n m.',
        'n n o m',
        'n n n o',
    ]


def test_what_the_contract_does_not_know_is_named():
    with pytest.raises(SystemExit, match='gives no layer to elsewhere'):
        draw_layers.draw(LAYERS, {('top', 'elsewhere')})


def test_the_page_has_a_line_for_every_layer_in_their_order():
    with open(os.path.join(ROOT, '.importlinter')) as file:
        layers = draw_layers.read_layers(file.read())
    with open(os.path.join(ROOT, 'docs', 'architecture.md')) as file:
        cells = [line.split('|')[1] for line in file if line.startswith('| `')]
    names = re.findall(r'`(\w+)(?:/(?:\w+/)?|\.py)`', ' '.join(cells))
    # The engine has a line for each of its rooms.
    assert list(dict.fromkeys(names)) == [name for layer in layers for name in layer]
