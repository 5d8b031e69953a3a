# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A terminal's picture: the lines that it shows in the end, each as long as there."""

import importlib.util
import os
from xml.etree import ElementTree

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'draw_screen.py')
_spec = importlib.util.spec_from_file_location('draw_screen', SCRIPT)
draw_screen = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw_screen)


@pytest.mark.parametrize(
    'output, until, shown',
    [
        ('one\n10%\r50%\r100%\nlast\n\n', None, ['one', '100%', 'last']),
        ('windows\r\nlines\r\n', None, ['windows', 'lines']),
        ('one\nSaved: much\nmore\n', 'Saved', ['one', 'Saved: much', '...']),
        ('one\nSaved: much\n', 'Saved', ['one', 'Saved: much']),
    ],
)
def test_a_screen_has_what_a_terminal_shows_in_the_end(output, until, shown):
    assert draw_screen.screen_of(output, until) == shown


def test_an_end_that_never_comes_is_refused():
    with pytest.raises(SystemExit):
        draw_screen.screen_of('one\n', 'Saved')


def test_columns_stay_below_each_other_and_within_the_picture():
    lines = ['a  b', '   <b> & c', '']
    picture = ElementTree.fromstring(draw_screen.draw('make demo', lines))
    name = '{http://www.w3.org/2000/svg}text'
    texts = [text for text in picture.iter(name)]
    assert [text.text for text in texts] == ['$ make demo', 'a  b', '<b> & c']
    starts = [(float(text.get('x')) - draw_screen.EDGE) / draw_screen.LETTER for text in texts]
    assert starts == pytest.approx([0, 0, 3])
    wide, high = map(float, picture.get('viewBox').split()[2:])
    for text in texts:
        assert float(text.get('x')) + float(text.get('textLength')) <= wide
        assert float(text.get('y')) <= high


def test_the_readme_shows_a_run_that_printed_a_plan():
    picture = ElementTree.parse(os.path.join(ROOT, 'docs', 'images', 'run.svg'))
    said = ' '.join(picture.getroot().itertext())
    assert '$ keras-parallax run -np 2 ' in said and 'Architecture: hybrid' in said
