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
    'async': ['--no-sync'],
    'async ps': ['--no-sync', '--architecture', 'ps'],
}


@pytest.fixture(scope='module', params=sorted(WAYS))
def perplexities(request):
    """The perplexity of held-out text after each epoch."""
    script, arguments = os.path.join(EXAMPLES, 'lm1b.py'), SMALLER + WAYS[request.param]
    outcome = launch.run(2, script, *arguments)
    assert outcome.code == 0, outcome.output
    return [float(each) for each in re.findall(r'perplexity (\d+\.\d)', outcome.output)]


@pytest.fixture(scope='module')
def perplexity_of_frequencies():
    """What is reached without a look at the words before: each is as likely as it is frequent."""
    text = runpy.run_path(os.path.join(EXAMPLES, 'corpus.py'))['read'](None, WORDS, TOKENS, None)
    counts = 1 + np.bincount(text.train, minlength=len(text.vocabulary))
    return np.exp(-np.mean(np.log(counts[text.held_out] / counts.sum())))


def test_the_language_model_learns(perplexities):
    assert len(perplexities) == 3 and sorted(perplexities, reverse=True) == perplexities


# How much better depends on who comes first, without a barrier: see docs/architectures.md.
def test_it_learns_more_than_how_frequent_words_are(perplexities, perplexity_of_frequencies):
    assert perplexities[-1] < perplexity_of_frequencies
