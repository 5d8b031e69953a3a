# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Skip-thoughts: what a sentence says, learnt from its neighbours, by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/skip_thoughts.py

An encoder reads a sentence; what it ends with, the thought, is what two decoders
begin with, which write the sentence before and the one after (Kiros et al.,
"Skip-Thought Vectors", 2015). All three look words up in one table, and both
decoders write by one softmax table: these two are sparse.

This is a plain Keras script but for the lines marked ``# kp:``.
"""

import functools

import click
import corpus
import numpy as np
import sentences
from graphs import adagrad, keras, tf
from sampled_softmax import HeldOutLoss, SampledSoftmaxLoss, describe_epoch, loss_of

import keras_parallax as kp  # kp: the plugin

#: What stands between sentences.
SENTENCE_MARKS = (corpus.BEGIN, corpus.END, '<newline>')


def build_models(vocabulary_size=20000, end=0, steps=12, dim=64, num_sampled=256):
    """Builds three models of the same layers.

    The first is to be trained: its output is the sampled loss of each word of both
    neighbours. That of the second is the exact loss, and that of the third the thought.

    Args:
        vocabulary_size: Number of words.
        end: The id of END.
        steps: Words of a sentence.
        dim: Width of the embedding and of a thought.
        num_sampled: Noise words per batch.
    """
    layers = keras.layers
    names = ('sentence', 'before', 'next_words_before', 'after', 'next_words_after')
    inputs = [layers.Input((steps,), dtype='int32', name=name) for name in names]
    sentence, before, next_words_before, after, next_words_after = inputs

    # One large matrix product per step suits a CPU better than four small ones.
    gru = functools.partial(layers.GRU, dim, implementation=2)
    embedding = layers.Embedding(vocabulary_size, dim, name='embedding')
    thought = gru(name='encoder')(embedding(sentence))
    decoded = layers.concatenate(
        [
            gru(return_sequences=True, name=name)(embedding(words), initial_state=thought)
            for name, words in (('decoder_before', before), ('decoder_after', after))
        ],
        axis=1,
    )
    next_words = layers.concatenate([next_words_before, next_words_after])
    softmax = SampledSoftmaxLoss(vocabulary_size, num_sampled, name='softmax')

    is_word = layers.Lambda(lambda ids: tf.cast(tf.not_equal(ids, end), 'float32'))
    are_words = is_word(layers.concatenate([before, after]))

    def model_of(losses):
        return keras.models.Model(inputs, layers.multiply([losses, are_words]))

    model = model_of(softmax([decoded, next_words]))
    exact_model = model_of(softmax([decoded, next_words], exact=True))
    return model, exact_model, keras.models.Model(sentence, thought)


def cut(ids, vocabulary):
    """Cuts text into sentences, arrays of ids: at END, and in Python source at ends of lines.

    Args:
        ids: One-dimensional array of ids.
        vocabulary: The :class:`corpus.Vocabulary`.
    """
    marks = [vocabulary.ids[word] for word in SENTENCE_MARKS if word in vocabulary.ids]
    parts = np.split(ids, np.flatnonzero(np.isin(ids, marks)))
    # Each begins with a mark; the first and the last may be halves of sentences.
    return [part[1:] for part in parts[1:-1] if len(part) > 1]


def neighbours(found, vocabulary, steps):
    """Returns the model's inputs: each sentence that has two neighbours, and what those are.

    Args:
        found: What `cut` returns.
        vocabulary: The :class:`corpus.Vocabulary`.
        steps: Words to keep of a sentence.
    """
    begin, end = vocabulary.ids[corpus.BEGIN], vocabulary.ids[corpus.END]
    sentence = sentences.padded_front(found, steps, end)
    words, next_words = sentences.shifted(found, steps, begin, end)
    return [sentence[1:-1], words[:-2], next_words[:-2], words[2:], next_words[2:]]


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help='Folder with .txt files, a sentence a line, in the order of the text. '
    'Default: the source of the Python standard library, whose lines are the sentences.',
)
@_option('--vocabulary-size', type=_COUNT, default=10000, help='Upper limit for the vocabulary.')
@_option('--max-tokens', type=_COUNT, default=450000, help='Upper limit for the words to train on.')
@_option('--epochs', type=_COUNT, default=3, help='Passes over the sentences.')
@_option('--batch-size', type=_COUNT, default=64, help='Sentences per batch on each worker.')
@_option('--steps', type=_COUNT, default=12, help='Words to keep of a sentence.')
@_option('--dim', type=_COUNT, default=64, help='Width of the embedding and of a thought.')
@_option('--sampled', type=_COUNT, default=256, help='Noise words per batch.')
@_option('--learning-rate', type=float, default=0.1, help="Adagrad's.")
@_option('--max-train', type=_COUNT, default=28000, help='Upper limit for sentences to train on.')
@_option('--max-held-out', type=_COUNT, default=1000, help='The same of those to judge by.')
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data,
    vocabulary_size,
    max_tokens,
    epochs,
    batch_size,
    steps,
    dim,
    sampled,
    learning_rate,
    max_train,
    max_held_out,
    seed,
):
    """Trains an encoder of sentences, and reports the perplexity of their neighbours."""
    try:
        text = corpus.read(data, vocabulary_size, max_tokens)
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None
    vocabulary = text.vocabulary
    end = vocabulary.ids[corpus.END]
    # Of the first and the last sentence one neighbour is not there.
    trained = neighbours(cut(text.train, vocabulary)[: max_train + 2], vocabulary, steps)
    judged = neighbours(cut(text.held_out, vocabulary)[: max_held_out + 2], vocabulary, steps)

    np.random.seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: places the variables made here.
        tf.set_random_seed(seed + strategy.rank)  # kp: + rank, for noise words of its own.
        model, exact_model, encoder = build_models(len(vocabulary), end, steps, dim, sampled)
        model.compile(adagrad(learning_rate), loss=loss_of)

    share = kp.data.shard(judged)  # kp: this worker judges by its share.
    words = np.sum(share[1] != end) + np.sum(share[3] != end)
    callbacks = [
        HeldOutLoss(exact_model, share, batch_size, words),
        kp.callbacks.MetricAverageCallback(),  # kp: means of what the line above adds.
        kp.callbacks.PlanReport(),  # kp: where each variable is, and what a step saves.
        kp.callbacks.ProgressBar('sentences', describe=describe_epoch),  # kp: one for all.
    ]
    if strategy.is_chief:  # kp: one worker speaks for all.
        print(text.describe() + f'\n{len(trained[0]):,} sentences with two neighbours\n')

    model.fit(
        **kp.data.arrays(trained, np.zeros((len(trained[0]), 1))),  # kp: this worker's share.
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )

    if strategy.is_chief:  # kp: reads tables of other workers, which wait at their end.
        read = np.unique(judged[0], axis=0)
        thoughts = encoder.predict(read, batch_size=batch_size)
        thoughts /= np.linalg.norm(thoughts, axis=1, keepdims=True)
        likeness = thoughts @ thoughts.T - 2 * np.eye(len(read))  # To itself none is alike.
        print('\nHeld-out sentences, and the one whose thought is most like that of each:')
        for number in np.linspace(0, len(read) - 1, 4, dtype=int):
            for ids in read[number], read[likeness[number].argmax()]:
                print('  ' + sentences.shown(vocabulary.words[i] for i in ids if i != end))
            print()


if __name__ == '__main__':
    main()
