# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan as a page: what it shows, and that a browser shows it."""

import html
import re
from html.parser import HTMLParser

import browser
import pytest

from keras_parallax.planning.classify import WHOLE_TABLE, VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import Update, make_plan
from keras_parallax.planning.units import seconds_in_words

WORDS = VariableUse('words/embeddings', (793471, 512), 'float32', lookups=1)
ITEMS = VariableUse('items', (1000, 16), 'float32', lookups=1, regularizer=WHOLE_TABLE)
KERNEL = VariableUse('out/kernel', (512, 3), 'float32', whole_reads=('MatMul',))
EVIL = VariableUse('<script>alert("&")</script>', (3,), 'float32', whole_reads=('Mul',))
DENSITY = {'words/embeddings': 0.003, 'items': 0.1}
UPDATES = {'words/embeddings': Update('every row', True, 2), 'items': Update('touched', slots=2)}


HOSTS = Cluster(8)


def planned(uses=(KERNEL, WORDS, ITEMS), cluster=HOSTS, density=DENSITY, **options):
    names = {use.name for use in uses}
    density = {name: density for name, density in density.items() if name in names}
    servers = options.pop('servers', cluster.workers)
    plan = make_plan(list(uses), servers, cluster=cluster, density=density, **options)
    return plan.with_updates(UPDATES)


class Elements(HTMLParser):
    """The elements of a page: pairs of a name and attributes, and its words by section."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self._open = [], {}, []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ('meta', 'br'):
            self._open.append((tag, dict(attributes).get('id')))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, words):
        for _, section in self._open:
            if section:
                self.words[section] = self.words.get(section, '') + ' ' + ' '.join(words.split())


def section(plan, name, **options):
    words = Elements(plan.to_html(**options)).words.get(name, '')
    return ' '.join(words.split())


# --- what it shows -------------------------------------------------------------


def test_it_is_one_piece_that_loads_and_runs_nothing():
    text = planned().to_html()
    assert text.startswith('<!DOCTYPE html>')
    found = Elements(text).elements
    assert not {name for name, _ in found} & {'script', 'link', 'img', 'iframe', 'object', 'base'}
    attributes = {name for _, given in found for name in given}
    assert not attributes & {'src', 'href', 'srcset', 'action', 'xlink:href'}
    assert 'url(' not in text and '@import' not in text and '://' not in text


def test_names_of_variables_are_words_and_no_markup():
    text = planned([EVIL, WORDS]).to_html()
    assert '<script' not in text
    assert EVIL.name in section(planned([EVIL, WORDS]), 'variables')


def test_the_page_says_the_verdict_of_the_text_and_names_the_model():
    plan = planned()._replace(model='words & <items>')
    page, verdict = plan.to_html(bandwidth=1.25e8), plan.verdict(1.25e8)
    assert '>%s</p>' % html.escape(verdict, quote=False) in page.replace('&#34;', '"')
    assert ' at 1 Gbit/s' in verdict and '<h1>Plan of words &amp; &lt;items&gt;: ' in page
    assert 'class="verdict"' not in planned(cluster=Cluster(1), servers=0).to_html()


def test_variables_come_by_size_with_bars_and_the_reason_of_each():
    plan = planned()
    words = section(plan, 'variables')
    places = [words.index(name) for name in ('words/embeddings', 'items', 'out/kernel')]
    assert places == sorted(places)
    for variable in plan.variables:
        assert variable.reason in words and variable.place in words
        assert bool(variable.shards) == bool(variable.count_reason)
        assert variable.count_reason in words
    assert 'Update of words/embeddings: every row which reads and writes 9.1 GiB' in words
    bars = [
        given['style']
        for _, given in Elements(plan.to_html()).elements
        if 'bar' in given.get('class', '')
    ]
    assert bars == ['width: 100.00%', 'width: 0.00%', 'width: 0.00%']


def test_small_variables_of_many_are_folded_away():
    uses = [WORDS] + [KERNEL._replace(name='kernel_%d' % number) for number in range(30)]
    words = section(planned(uses), 'variables')
    assert '19 smaller variables' in words and 'kernel_29' in words


def test_a_picture_has_a_bar_for_each_server_with_the_bytes_of_its_shards():
    plan = planned()
    words = section(plan, 'servers')
    for load in plan.predict().server_loads:
        assert 'server %d on host %d' % (load.server, load.machine) in words
    drawn = re.findall(r'<title>items: (.*)</title>', plan.to_html())
    assert drawn == ['62.5 KiB']
    assert len(re.findall(r'<title>words/embeddings: 193.7 MiB</title>', plan.to_html())) == 8


def test_of_many_servers_the_fullest_are_drawn():
    words = section(planned(cluster=Cluster(60, 2), partitions={'words/embeddings': 60}), 'servers')
    assert 'The 48 fullest of 120 are drawn.' in words
    assert len(re.findall(r'server \d+ on host', words)) == 48


def test_a_curve_for_each_architecture_has_a_point_for_each_number_of_hosts():
    plan = planned()
    found = [given for name, given in Elements(plan.to_html()).elements if name == 'polyline']
    # Once for a wide page, once for a narrow one.
    assert [len(given['points'].split()) for given in found] == [6] * 4 * 2
    words = section(plan, 'hosts')
    assert all(name in words for name in ('hybrid', 'ps', 'allreduce', 'dense'))
    titles = re.findall(r'<title>(\w+), 8 hosts: (.*), ', plan.to_html())
    prediction = plan.predict()
    step = prediction.totals['plan'].seconds + prediction.message_seconds
    assert dict(titles)['hybrid'] == seconds_in_words(step)
    assert list(dict(titles)) == ['hybrid', 'ps', 'allreduce', 'dense']


def test_where_a_density_is_not_known_no_curve_is_made_up():
    plan = planned(density={'items': 0.1})
    assert 'polyline' not in [name for name, _ in Elements(plan.to_html()).elements]
    assert 'a batch touches of: words/embeddings.' in section(plan, 'hosts')
    figures = plan.to_html()
    assert '\N{GREATER-THAN OR EQUAL TO} ' in figures and 'None' not in figures


def test_the_bandwidth_asked_for_counts_everywhere():
    text = planned().to_html(bandwidth=1.25e8)
    assert '1 Gbit/s a host' in text
    # Messages take as long as ever, and dense allreduce has none.
    assert ('dense', '22.8 s') in re.findall(r'<title>(\w+), 8 hosts: (.*), ', text)


def test_memory_of_each_host_is_drawn_and_what_does_not_fit_is_said():
    plan = planned()
    fits = section(plan, 'memory', host_memory=2**31)
    assert re.search(r'hosts \d-\d', fits) and '1.5 GiB' in fits and 'a host has so much' in fits
    assert 'role="alert"' not in plan.to_html(host_memory=2**31)
    unfit = plan.to_html(host_memory=2**20)
    assert 'role="alert">It does not fit: hosts 0-7 would need' in unfit
    assert 'a host has so much' not in section(plan, 'memory')


@pytest.mark.parametrize(
    'plan',
    [
        make_plan([]),
        make_plan([KERNEL, WORDS]),
        planned([KERNEL]),
        planned([WORDS], Cluster(1, 4)),
        planned(cluster=Cluster(2, 2, dedicated_servers=True), servers=3),
        planned(architecture='allreduce'),
        planned(architecture='ps'),
        planned([EVIL._replace(shape=())]),
    ],
    ids=['none', 'one process', 'dense', 'one host', 'dedicated', 'allreduce', 'ps', 'scalar'],
)
def test_every_plan_has_a_page(plan):
    text = plan.to_html(host_memory=1e9)
    assert 'None' not in text and 'nan' not in text
    assert Elements(text).words['memory']


def test_a_notebook_gets_the_page_in_a_frame():
    plan = planned()
    (frame,) = Elements(plan._repr_html_()).elements
    assert frame[0] == 'iframe' and frame[1]['srcdoc'] == plan.to_html()


# --- that a browser shows it ---------------------------------------------------


@browser.NEEDED
@pytest.mark.parametrize('width', browser.WIDTHS)
def test_a_browser_lays_it_out_without_spilling_and_loads_nothing(tmp_path, width):
    uses = [KERNEL, ITEMS, EVIL] + [WORDS._replace(name='t%d/embeddings' % n) for n in range(9)]
    density = dict({use.name: 0.01 for use in uses if use.lookups})
    text = planned(uses, Cluster(12, 2), density).to_html(host_memory=4e9)
    assert browser.laid_out(text, width, tmp_path) == dict(browser.READABLE, colours=4)
