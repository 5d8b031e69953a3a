# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The language model of `examples/` on real text: what `make demo` runs, but on less of it."""

import os
import re
import runpy

import launch
import numpy as np
import pytest

EXAMPLES = os.path.join(os.path.dirname(__file__), '..', '..', 'examples')
TOKENS, WORDS = 150000, 5000
SMALLER = ['--max-tokens', TOKENS, '--vocabulary-size', WORDS, '--epochs', '3', '--dim', '32']
WAYS = {
    'hybrid': [],
    # Each of two workers' gradients moves the weights, hence half the rate: docs/architectures.md.
    'async': ['--no-sync', '--learning-rate', 0.05],
}


@pytest.fixture(scope='module', params=sorted(WAYS))
def way(request):
    return request.param


@pytest.fixture(scope='module')
def output(way, tmp_path_factory):
    """What the example prints, as `make demo` shows it."""
    script, arguments = os.path.join(EXAMPLES, 'lm1b.py'), SMALLER + WAYS[way]
    outcome = launch.run(
        2, script, *arguments, prefix=launch.one_screen(tmp_path_factory.mktemp('logs'))
    )
    assert outcome.code == 0, outcome.output
    return outcome.output


@pytest.fixture(scope='module')
def perplexities(output):
    """The perplexity of held-out text after each epoch."""
    return [float(each) for each in re.findall(r'perplexity (\d+\.\d)', output)]


@pytest.fixture(scope='module')
def perplexity_of_frequencies():
    """What is reached without a look at the words before: each is as likely as it is frequent."""
    text = runpy.run_path(os.path.join(EXAMPLES, 'corpus.py'))['read'](None, WORDS, TOKENS, None)
    counts = 1 + np.bincount(text.train, minlength=len(text.vocabulary))
    return np.exp(-np.mean(np.log(counts[text.held_out] / counts.sum())))


def test_the_language_model_learns(perplexities):
    assert len(perplexities) == 3 and sorted(perplexities, reverse=True) == perplexities


def test_it_learns_more_than_how_frequent_words_are(perplexities, perplexity_of_frequencies):
    assert perplexities[-1] < perplexity_of_frequencies


def test_it_prints_its_plan_with_measured_densities(output, way):
    place = 'on every rank' if way == 'hybrid' else '.*'
    assert re.search(r'embedding/embeddings .* sparse +\d+\.\d% +2 shards', output)
    # TensorFlow 2's Keras names the LSTM's cell, too.
    assert re.search(r'lstm/(lstm_cell/)?kernel .* dense +100\.0% +' + place, output)
    sent, gathered = re.search(
        r"A worker sends (\d\.\d\d) MB a step where Horovod's allgather would send (\d\.\d\d) MB",
        output,
    ).groups()
    assert 0 < float(sent) < float(gathered)
    assert output.count('A worker sends') == 1


def test_without_servers_it_counts_rows_itself():
    script, smaller = os.path.join(EXAMPLES, 'lm1b.py'), ['--max-tokens', 20000, '--batch-size', 8]
    outcome = launch.run(2, script, '--architecture', 'allreduce', '--epochs', 1, *smaller)
    assert outcome.code == 0, outcome.output
    assert re.search(r'softmax/kernel .* sparse +\d+\.\d% +on every rank', outcome.output)
    assert 'A worker sends' in outcome.output and 'not counted' not in outcome.output


def test_a_projected_model_goes_on_from_its_checkpoint_with_other_servers_and_is_judged(tmp_path):
    script, found = os.path.join(EXAMPLES, 'lm1b.py'), []
    smaller = ['--max-tokens', 60000, '--vocabulary-size', 2000, '--dim', 32, '--sampled', 64]
    smaller += ['--projection', 16, '--checkpoint', tmp_path]
    for ranks, more in (
        (2, ['--epochs', 1]),
        (2, ['--epochs', 2, '--partitions', 3, '--compression', 'fp16', '--servers', 'host']),
        (0, ['--evaluate']),
    ):
        outcome = launch.run(ranks, script, *smaller, *more)
        assert outcome.code == 0, outcome.output
        found += re.findall(r'epoch (\d): .*perplexity (\d+\.\d)', outcome.output)
    assert [epoch for epoch, _ in found] == ['1', '2', '2']
    first, second, judged = (float(perplexity) for _, perplexity in found)
    # A single process cuts the held-out text into other windows than two workers do.
    assert max(second, judged) < first and judged == pytest.approx(second, rel=0.2)


def test_it_prints_one_bar_and_nothing_of_the_launcher(output):
    bars = [line for line in output.splitlines() if '%|' in line]
    assert len(bars) == 1 and bars[0].startswith('100%')
    # `launch` has each worker say that it has started.
    assert '[0]<std' not in output and 'Using TensorFlow' not in output
