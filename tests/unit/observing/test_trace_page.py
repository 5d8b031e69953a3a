# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The page of a trace."""

import re
from html.parser import HTMLParser

import browser
import pytest

from keras_parallax.observing import critical_path, trace_page
from keras_parallax.observing.trace import Span, Trace

EVIL = '<script>alert("&")</script>'
TRACE = Trace(
    'a job',
    2,
    [
        Span(0, 1, 'forward', 'x', 0.0, 4000.0),
        Span(0, 1, 'wait for pushes', 'y', 4000.0, 9000.0, EVIL, 1),
        Span(1, 1, 'push', 'z', 2000.0, 8000.0, EVIL),
    ],
    {(0, 1): (0.0, 9000.0), (1, 1): (0.0, 8000.0)},
    [0.0, 100.0],
)


def test_rows_are_the_phases_of_each_rank_and_the_chain():
    (path,) = critical_path.paths_of(TRACE)
    rows = trace_page.rows_of(TRACE, path)
    assert [(row.rank, row.name) for row in rows] == [
        (0, 'forward'),
        (0, 'wait for pushes'),
        (0, 'longest chain'),
        (1, 'push'),
        (1, 'longest chain'),
    ]
    assert [bar[1:] for bar in rows[2].bars] == [(8000.0, 9000.0)]
    assert [(bar.phase, bar.begin) for bar in rows[4].bars] == [
        (critical_path.OTHER, 0.0),
        ('push', 2000.0),
    ]


def test_the_page_shows_words_and_steps_and_needs_no_network():
    text = trace_page.to_html(TRACE)
    elements = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: elements.append((tag, dict(attributes)))
    parser.feed(text)
    tags = [tag for tag, _ in elements]
    # A picture of each rank.
    assert tags.count('svg') == 2 and tags.count('rect') == 6
    assert 'script' not in tags and '&lt;script&gt;' in text
    assert not re.search('https?://|src=', text)
    for sentence in critical_path.in_words(TRACE, critical_path.paths_of(TRACE))[:1]:
        assert sentence in text


@browser.NEEDED
@pytest.mark.parametrize('width', browser.WIDTHS)
def test_a_browser_lays_it_out_without_spilling_and_loads_nothing(tmp_path, width):
    long = TRACE._replace(spans=[span._replace(table=40 * 'long') for span in TRACE.spans])
    text = trace_page.to_html(long)
    assert browser.laid_out(text, width, tmp_path) == dict(browser.READABLE, colours=0)
