# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The encoder of sentences of `examples/`: what `make demo-skip-thoughts` runs, but on less."""

import example_runs
import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

corpus, graphs, sampled_softmax, skip_thoughts = map(
    example_runs.module, ('corpus', 'graphs', 'sampled_softmax', 'skip_thoughts')
)
TOKENS, WORDS, TRAIN, HELD_OUT, EPOCHS, BATCH, STEPS, DIM, SAMPLED, RATE, SEED = (
    40000, 300, 2048, 128, 3, 32, 6, 24, 299, 0.1, 1
)  # fmt: skip
OPTIONS = {
    'max-tokens': TOKENS, 'vocabulary-size': WORDS, 'max-train': TRAIN, 'max-held-out': HELD_OUT,
    'epochs': EPOCHS, 'batch-size': BATCH, 'steps': STEPS, 'dim': DIM, 'sampled': SAMPLED,
    'learning-rate': RATE, 'seed': SEED,
}  # fmt: skip


@pytest.fixture(scope='module')
def shown():
    """What the example prints, as `make demo-skip-thoughts` shows it."""
    options = [word for name, value in OPTIONS.items() for word in ('--' + name, value)]
    return example_runs.output('skip_thoughts.py', *options)


@pytest.fixture(scope='module')
def perplexities(shown):
    return example_runs.perplexities(shown)


@pytest.fixture(scope='module')
def text():
    """The text, and the sentences to train on and to judge by, as the model takes them."""
    text = corpus.read(None, WORDS, TOKENS)
    parts = [
        skip_thoughts.cut(ids, text.vocabulary)[: most + 2]
        for ids, most in ((text.train, TRAIN), (text.held_out, HELD_OUT))
    ]
    assert [len(part) for part in parts] == [TRAIN + 2, HELD_OUT + 2]
    return text, [skip_thoughts.neighbours(part, text.vocabulary, STEPS) for part in parts]


@pytest.fixture(scope='module')
def plain_perplexities(text):
    """The same of plain Keras in one process, on batches that join those of the workers."""
    text, (trained, judged) = text
    end = text.vocabulary.ids[corpus.END]
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    model, exact_model, _ = skip_thoughts.build_models(WORDS, end, STEPS, DIM, SAMPLED)
    epochs = example_runs.train(
        model,
        graphs.adagrad(RATE),
        sampled_softmax.loss_of,
        (trained, np.zeros((TRAIN, 1))),
        EPOCHS,
        BATCH,
    )
    words = np.sum(judged[1] != end) + np.sum(judged[3] != end)
    return [example_runs.perplexity(exact_model, judged, words) for _ in epochs]


def test_after_each_epoch_two_workers_are_where_plain_keras_is_on_joined_batches(
    perplexities, plain_perplexities
):
    np.testing.assert_allclose(perplexities, plain_perplexities, rtol=0.05)


def test_it_learns_to_write_the_neighbours(perplexities):
    assert len(perplexities) == EPOCHS and perplexities == sorted(perplexities, reverse=True)
    assert perplexities[-1] < WORDS / 5


def test_it_shows_sentences_and_those_with_the_most_like_thoughts(shown):
    _, _, found = shown.partition('whose thought is most like that of each:\n')
    pairs = [pair.split('\n') for pair in found.strip('\n').split('\n\n')]
    assert len(pairs) == 4 and all(len(pair) == 2 and pair[0] != pair[1] for pair in pairs)


def test_it_prints_one_bar_and_nothing_of_the_launcher(shown):
    assert example_runs.is_one_screen(shown)


def test_text_is_cut_into_whole_sentences():
    words = '<S> a </S> <S> b c <newline> d </S> e'.split()
    vocabulary = corpus.Vocabulary(list(corpus.MARKS) + ['<newline>'] + list('abcde'))
    found = skip_thoughts.cut(vocabulary.encode(words), vocabulary)
    assert [[vocabulary.words[i] for i in ids] for ids in found] == [['a'], ['b', 'c'], ['d']]


def test_neighbours_are_those_before_and_after():
    vocabulary = corpus.Vocabulary(list(corpus.MARKS) + list('abcd'))
    found = [vocabulary.encode(text) for text in ('a', 'bc', 'd', 'a')]
    read = skip_thoughts.neighbours(found, vocabulary, 3)
    words = [[''.join(vocabulary.words[i][-1] for i in row) for row in part] for part in read]
    assert words == [['>bc', '>>d'], ['>a>', '>bc'], ['a>>', 'bc>'], ['>d>', '>a>'], ['d>>', 'a>>']]
