#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Draws which folder of the package imports which; `make layers` runs it, and `make lint` checks.

The order is that of the contract in `.importlinter`. Imports are read as import-linter reads them,
by grimp, which it brings along.

    python scripts/draw_layers.py           writes docs/images/layers.svg
    python scripts/draw_layers.py --check   fails if that picture is another
"""

import configparser
import os
import sys
from xml.etree import ElementTree

PACKAGE = 'keras_parallax'
PICTURE = os.path.join('docs', 'images', 'layers.svg')
NAMES, CELL = 148, 26
_STYLE = """
text { font: 13px sans-serif; fill: #222 }
.own { fill: #4051b5 }
.may { fill: #eef0fa }
.never { fill: #d9d9d9 }
.imports { fill: #4051b5 }
#page { fill: white }
@media (prefers-color-scheme: dark) {
text { fill: #e2e4e9 }
.own, .imports { fill: #9fa8f5 }
.may { fill: #2c3357 }
.never { fill: #3a3d45 }
#page { fill: #1e2129 }
}
"""


def read_layers(text):
    """The contract's layers from the top, each a list of the names that lie side by side."""
    config = configparser.ConfigParser()
    config.read_string(text)
    lines = config['importlinter:contract:layers']['layers'].split('\n')
    return [[name.strip().split('.')[1] for name in line.split('|')] for line in lines if line]


def read_imports():
    """The pairs of a folder, or a module beside the folders, and another one that it imports."""
    import grimp

    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    pairs = {
        (importer.split('.')[1], imported.split('.')[1])
        for importer in graph.modules - {PACKAGE, PACKAGE + '.__main__'}
        for imported in graph.find_modules_directly_imported_by(importer) - {PACKAGE}
    }
    return {(importer, imported) for importer, imported in pairs if importer != imported}


def draw(layers, imports):
    """The picture: a row and a column for each name, and a dot where the row imports the column.

    Args:
        layers: as `read_layers` returns it.
        imports: as `read_imports` returns it.

    Returns:
        The text of an SVG file.
    """
    names = [(name, depth) for depth, layer in enumerate(layers) for name in layer]
    unknown = {name for pair in imports for name in pair} - {name for name, _ in names}
    if unknown:
        sys.exit('.importlinter gives no layer to %s.' % ', '.join(sorted(unknown)))
    head, side = NAMES - CELL, CELL * len(names)
    size = {'width': str(NAMES + side + 4), 'height': str(head + side + 4)}
    picture = ElementTree.Element('svg', xmlns='http://www.w3.org/2000/svg', **size)
    ElementTree.SubElement(picture, 'title').text = 'Which folder imports which'
    ElementTree.SubElement(picture, 'style').text = _STYLE
    ElementTree.SubElement(picture, 'rect', {'id': 'page'}, **size)
    for row, (importer, depth) in enumerate(names):
        top = head + row * CELL
        _write(picture, importer, 4, top + CELL - 8)
        middle, bottom = NAMES + row * CELL + CELL / 2 + 4, head - 6
        turn = 'rotate(-90 %g %g)' % (middle, bottom)
        _write(picture, importer, middle, bottom, transform=turn)
        for column, (imported, other) in enumerate(names):
            kind = 'own' if row == column else 'may' if depth < other else 'never'
            left = NAMES + column * CELL
            _add(picture, 'rect', kind, x=left, y=top, width=CELL - 2, height=CELL - 2)
            if (importer, imported) in imports:
                _add(picture, 'circle', 'imports', cx=left + 12, cy=top + 12, r=6)
    return ElementTree.tostring(picture, encoding='unicode').replace('><', '>\n<') + '\n'


def _add(picture, tag, kind, **numbers):
    attributes = {name: '%g' % number for name, number in numbers.items()}
    ElementTree.SubElement(picture, tag, {'class': kind}, **attributes)


def _write(picture, text, left, top, **attributes):
    ElementTree.SubElement(picture, 'text', x='%g' % left, y='%g' % top, **attributes).text = text


def main(arguments):
    with open('.importlinter', encoding='utf-8') as file:
        picture = draw(read_layers(file.read()), read_imports())
    if arguments != ['--check']:
        with open(PICTURE, 'w', encoding='utf-8') as file:
            file.write(picture)
        return
    with open(PICTURE, encoding='utf-8') as file:
        if file.read() != picture:
            sys.exit('%s does not show the imports as they are; run `make layers`.' % PICTURE)


if __name__ == '__main__':
    main(sys.argv[1:])
