#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Draws what a command prints as a picture of a terminal, for the README.

    COMMAND = keras-parallax run -np 2 examples/keras3/language_model.py
    $COMMAND | python scripts/draw_screen.py --until Saved "$COMMAND" >docs/images/run.svg

The picture has a dark ground of its own, so it can be read on light and on dark pages. A line has
the length that it has in a terminal, whichever font a reader's machine takes.
"""

import argparse
import sys
from typing import List, Optional
from xml.etree import ElementTree

LETTER, LINE, EDGE = 7.2, 17, 16
_STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
text { fill: #d7dae0; white-space: pre }
.command { fill: #8fd18a }
"""


def screen_of(printed: str, until: Optional[str] = None) -> List[str]:
    """The lines that a terminal shows in the end.

    Args:
        printed: what a command prints. A carriage return begins a line anew, as bars do.
        until: the picture ends with the first line that begins so.
    """
    lines = [line.rstrip('\r').split('\r')[-1].rstrip() for line in printed.rstrip().split('\n')]
    ends = [number for number, line in enumerate(lines) if until and line.startswith(until)]
    if until and not ends:
        sys.exit('No line begins with %r.' % until)
    return lines[: ends[0] + 1] + ['...'] * (ends[0] + 1 < len(lines)) if ends else lines


def draw(command: str, lines: List[str]) -> str:
    """The text of an SVG file."""
    shown = ['$ ' + command] + lines
    width = '%g' % (2 * EDGE + LETTER * max(map(len, shown)))
    height = '%g' % (2 * EDGE + LINE * len(shown))
    picture = ElementTree.Element(
        'svg', xmlns='http://www.w3.org/2000/svg', viewBox='0 0 %s %s' % (width, height)
    )
    ElementTree.SubElement(picture, 'title').text = command
    ElementTree.SubElement(picture, 'style').text = _STYLE
    ground = dict(fill='#1e2129', stroke='#4a505c', rx='8')
    ElementTree.SubElement(picture, 'rect', width=width, height=height, **ground)
    for number, line in enumerate(shown):
        words = line.lstrip()
        if words:
            ElementTree.SubElement(
                picture,
                'text',
                {'class': 'command'} if number == 0 else {},
                x='%g' % (EDGE + LETTER * (len(line) - len(words))),
                y='%g' % (EDGE + LINE * number + 12),
                textLength='%g' % (LETTER * len(words)),
                lengthAdjust='spacingAndGlyphs',
            ).text = words
    return ElementTree.tostring(picture, encoding='unicode').replace('><', '>\n<') + '\n'


def main() -> None:
    """Reads what the command has printed from standard input."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('command', help='the command that printed it')
    parser.add_argument('--until', help='the last line to show begins so')
    arguments = parser.parse_args()
    print(draw(arguments.command, screen_of(sys.stdin.read(), arguments.until)), end='')


if __name__ == '__main__':
    main()
