"""The language model of `examples/` on real text: what `make demo` runs, but on less of it."""

import re

import launch
import pytest

SMALLER = ['--max-tokens', '150000', '--vocabulary-size', '5000', '--epochs', '3', '--dim', '32']


@pytest.fixture(scope='module')
def perplexities():
    """Of each way to train: the perplexity of held-out text after each epoch."""

    def run(*arguments):
        outcome = launch.run(2, '../examples/lm1b.py', *(SMALLER + list(arguments)))
        assert outcome.code == 0, outcome.output
        return [float(each) for each in re.findall(r'perplexity (\d+\.\d)', outcome.output)]

    return {
        'hybrid': run(),
        'async': run('--no-sync'),
        'async ps': run('--no-sync', '--architecture', 'ps'),
    }


@pytest.mark.parametrize('way', ['hybrid', 'async', 'async ps'])
def test_the_language_model_learns(perplexities, way):
    found = perplexities[way]
    assert len(found) == 3 and sorted(found, reverse=True) == found


@pytest.mark.parametrize('way', ['async', 'async ps'])
def test_without_a_barrier_it_learns_about_as_well(perplexities, way):
    assert perplexities[way][-1] < 1.1 * perplexities['hybrid'][-1]
