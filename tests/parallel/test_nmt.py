# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The translator of `examples/`: what `make demo-nmt` runs, but on less of it."""

import re

import example_runs
import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

bleu, corpus, nmt, sampled_softmax, sentences = map(
    example_runs.module, ('bleu', 'corpus', 'nmt', 'sampled_softmax', 'sentences')
)
WORDS, TRAIN, HELD_OUT, EPOCHS, BATCH, STEPS, DIM, SAMPLED, RATE, SEED = (
    33, 2560, 200, 5, 32, 8, 32, 32, 0.01, 1
)  # fmt: skip
OPTIONS = {
    'vocabulary-size': WORDS, 'max-train': TRAIN, 'max-held-out': HELD_OUT, 'epochs': EPOCHS,
    'batch-size': BATCH, 'steps': STEPS, 'dim': DIM, 'sampled': SAMPLED, 'learning-rate': RATE,
    'seed': SEED,
}  # fmt: skip


@pytest.fixture(scope='module')
def shown():
    """What the example prints, as `make demo-nmt` shows it."""
    options = [word for name, value in OPTIONS.items() for word in ('--' + name, value)]
    return example_runs.output('nmt.py', *options)


@pytest.fixture(scope='module')
def plain():
    """Perplexities of plain Keras after each epoch, and its BLEU in the end."""
    pairs = sentences.make_pairs(WORDS, (TRAIN, HELD_OUT))
    vocabulary = pairs.vocabularies[1]
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    models = nmt.build_models(
        [len(each) for each in pairs.vocabularies], vocabulary.ids[corpus.END], STEPS, DIM, SAMPLED
    )
    trained, judged = (
        nmt.arrays(part, pairs.vocabularies, STEPS) for part in (pairs.train, pairs.held_out)
    )
    epochs = example_runs.train(
        models[0],
        keras.optimizers.Adam(RATE),
        sampled_softmax.loss_of,
        (trained, np.zeros((TRAIN, 1))),
        EPOCHS,
        BATCH,
    )
    words = np.sum(judged[1] != vocabulary.ids[corpus.END])
    perplexities = [example_runs.perplexity(models[1], judged, words) for _ in epochs]
    translations = nmt.translate(
        models[2], models[0].get_layer('softmax'), judged[0], vocabulary, BATCH
    )
    return perplexities, bleu.bleu(translations, pairs.held_out[1])


@pytest.fixture(scope='module')
def perplexities(shown):
    return example_runs.perplexities(shown)


def test_it_learns_to_translate(perplexities, shown):
    assert len(perplexities) == EPOCHS and perplexities == sorted(perplexities, reverse=True)
    assert perplexities[-1] < 3 and bleu_of(shown) > 20


# Noise words of two workers are others than those of one process: here, nearly all words are.
def test_after_each_epoch_two_workers_are_where_plain_keras_is_on_joined_batches(
    perplexities, plain
):
    np.testing.assert_allclose(perplexities, plain[0], rtol=0.1)


def test_its_bleu_is_that_of_plain_keras(shown, plain):
    assert bleu_of(shown) == pytest.approx(plain[1], abs=15)


def bleu_of(shown):
    return float(re.search(r'BLEU of %d sentences: (\d+\.\d)' % HELD_OUT, shown).group(1))


def test_it_prints_one_bar_and_nothing_of_the_launcher(shown):
    assert example_runs.is_one_screen(shown)
