# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The Keras 3 scripts of `examples/keras3/`: what the demo runs with Keras 3, on less data."""

import os
import re
import runpy

import example_runs
import frameworks
import numpy as np
import pytest

pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

TOKENS, WORDS = 60000, 2000
#: A backend, and the one on which a job goes on.
BACKENDS = [
    ('tensorflow', 'jax'),
    pytest.param(('jax', 'tensorflow'), marks=pytest.mark.exhaustive),
]
#: Two epochs of the language model, and a third one from its checkpoint.
PARTS = [2, 3]

both_backends = pytest.mark.parametrize(
    'backend', ['tensorflow', pytest.param('jax', marks=pytest.mark.exhaustive)]
)


def output(backend, script, *arguments):
    """What an example prints on two workers."""
    if backend == 'jax':
        pytest.importorskip('jax')
    script = os.path.join('keras3', script)
    return example_runs.output(script, *arguments, environ={'KERAS_BACKEND': backend})


def sharded(shown):
    """The tables that the summary says are sharded over both workers."""
    return re.findall(r'^(\S+) .* sparse .* 2 shards on servers 0, 1', shown, re.MULTILINE)


def dense(shown):
    """The variables that the summary says are on every worker."""
    return re.findall(r'^(\S+) .* dense .* on every rank', shown, re.MULTILINE)


@pytest.fixture(scope='module', params=BACKENDS)
def shown_in_parts(request, tmp_path_factory):
    """What the language model prints: from the beginning, and by a job that goes on."""
    folder = tmp_path_factory.mktemp('language_model')
    options = ['--max-tokens', TOKENS, '--vocabulary-size', WORDS, '--dim', 32, '--sampled', 64]
    return [
        output(backend, 'language_model.py', *options, '--epochs', epochs, '--checkpoint', folder)
        for backend, epochs in zip(request.param, PARTS)
    ]


def test_a_language_model_that_goes_on_with_the_other_backend_goes_on_learning(shown_in_parts):
    of_parts = [re.findall(r'epoch (\d+): .* perplexity (\d+\.\d)', one) for one in shown_in_parts]
    assert [[int(epoch) for epoch, _ in part] for part in of_parts] == [[1, 2], [3]]
    first, second, third = (float(found) for part in of_parts for _, found in part)
    assert third < second < first


def test_a_language_model_learns_more_than_how_frequent_words_are(shown_in_parts):
    path = os.path.join(example_runs.EXAMPLES, 'corpus.py')
    text = runpy.run_path(path)['read'](None, WORDS, TOKENS, None)
    counts = 1 + np.bincount(text.train, minlength=len(text.vocabulary))
    of_frequencies = np.exp(-np.mean(np.log(counts[text.held_out] / counts.sum())))
    assert example_runs.perplexities(shown_in_parts[-1])[-1] < of_frequencies


def test_both_tables_of_a_language_model_are_sharded(shown_in_parts):
    for shown in shown_in_parts:
        assert sharded(shown) == ['embedding/embeddings', 'softmax/embeddings']
        assert all(name.startswith('lstm/') for name in dense(shown)) and dense(shown)


@both_backends
def test_a_recommender_learns_what_is_clicked_and_is_exported(backend):
    shown = output(
        backend, 'recommender.py', '--max-train', 10000, '--max-held-out', 1000,
        '--max-values', 500, '--epochs', 2, '--batch-size', 64, '--dim', 8,
    )  # fmt: skip
    areas = [float(found) for found in re.findall(r'val_auc: (\d\.\d+)', shown)]
    assert len(areas) == 2 and areas[-1] > 0.55
    assert sharded(shown) == ['vectors/embeddings'] and len(dense(shown)) == 10
    assert len(re.findall(r'\d% likely, and (?:not )?clicked', shown)) == 3


# A minute of two processors, of which the layers take most; `test-core` has the other examples.
@pytest.mark.exhaustive
@pytest.mark.parametrize('backend', ['tensorflow', 'jax'])
def test_two_towers_find_more_of_what_people_like_than_the_most_popular_films_are(
    backend, tmp_path
):
    movielens = example_runs.module('films')
    example_runs.write_movielens(movielens.make(people=1000, films=200), tmp_path)
    shown = output(
        backend, 'two_tower.py', '--data', tmp_path, '--max-train', 9600, '--max-held-out', 1000,
        '--length', 10, '--epochs', 4, '--batch-size', 32, '--dim', 16,
    )  # fmt: skip
    found = re.findall(r': (\d+\.\d)% among the first 10, (\d+\.\d)% of 50', shown)
    popular, towers = [tuple(map(float, shares)) for shares in found]
    assert towers[0] > popular[0] and towers[1] > popular[1]
    assert sharded(shown) == ['films/embeddings', 'genres/embeddings']
    assert all(name.split('/')[0] not in ('films', 'genres') for name in dense(shown))
