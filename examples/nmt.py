# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Translation by an encoder, a decoder and attention, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/nmt.py

This is a plain Keras script but for the lines marked ``# kp:``. Three of the
model's variables are large and sparse: the words' tables of the two languages
and the softmax table.
"""

import functools

import click
import numpy as np
import sentences
from bleu import bleu
from corpus import BEGIN, END, CorpusError
from graphs import keras, tf
from sampled_softmax import HeldOutLoss, SampledSoftmaxLoss, describe_epoch, loss_of

import keras_parallax as kp  # kp: the plugin


def attend(decoded, encoded, dim):
    """Adds to each word that is decoded what of the encoded words it looks at.

    This is the attention of Luong, Pham and Manning, "Effective Approaches to
    Attention-based Neural Machine Translation", 2015, with the dot product.

    Args:
        decoded: [batch, words, dim], of the decoder.
        encoded: [batch, words of the other language, dim], of the encoder.
        dim: Width of the result.
    """
    layers = keras.layers
    scores = layers.dot([decoded, encoded], axes=2)
    looked_at = layers.dot([layers.Activation('softmax')(scores), encoded], axes=(2, 1))
    both = layers.concatenate([looked_at, decoded])
    return layers.Dense(dim, activation='tanh', name='attention')(both)


def build_models(vocabulary_sizes=(5000, 5000), end=0, steps=10, dim=64, num_sampled=256):
    """Builds three models of the same layers.

    The first is to be trained: its output is the sampled loss of each word. That of the
    second is the exact loss, and that of the third what the softmax takes.

    Args:
        vocabulary_sizes: Number of words of the language to read, and of the one to write.
        end: The id of END in the latter.
        steps: Words of a sentence.
        dim: Width of the embeddings and of the LSTMs.
        num_sampled: Noise words per batch.
    """
    layers = keras.layers
    source, target, next_words = (
        layers.Input((steps,), dtype='int32', name=name)
        for name in ('source', 'target', 'next_words')
    )
    # One large matrix product per step suits a CPU better than four small ones.
    lstm = functools.partial(layers.LSTM, dim, return_sequences=True, implementation=2)

    words = layers.Embedding(vocabulary_sizes[0], dim, name='source_embedding')(source)
    encoded, hidden, cell = lstm(return_state=True, name='encoder')(words)
    words = layers.Embedding(vocabulary_sizes[1], dim, name='target_embedding')(target)
    decoded = lstm(name='decoder')(words, initial_state=[hidden, cell])
    softmax = SampledSoftmaxLoss(vocabulary_sizes[1], num_sampled, name='softmax')

    attended = attend(decoded, encoded, dim)
    is_word = layers.Lambda(lambda ids: tf.cast(tf.not_equal(ids, end), 'float32'))(target)

    def model_of(losses):
        return keras.models.Model([source, target, next_words], layers.multiply([losses, is_word]))

    model = model_of(softmax([attended, next_words]))
    exact_model = model_of(softmax([attended, next_words], exact=True))
    return model, exact_model, keras.models.Model([source, target], attended)


def arrays(part, vocabularies, steps):
    """Returns sentences and their translations as the models take them.

    Args:
        part: Two lists of sentences, lists of words.
        vocabularies: A `corpus.Vocabulary` for each.
        steps: Words to keep of a sentence.
    """
    read, written = vocabularies
    source, target = ([v.encode(words) for words in p] for v, p in zip(vocabularies, part))
    words, next_words = sentences.shifted(target, steps, written.ids[BEGIN], written.ids[END])
    return [sentences.padded_front(source, steps, read.ids[END]), words, next_words]


def translate(decoder, softmax, source, vocabulary, batch_size):
    """Returns translations, each word the most likely one after those before it.

    Args:
        decoder: The third of `build_models`.
        softmax: The layer of its words.
        source: Sentences to translate, an array of ids.
        vocabulary: That of the translations.
        batch_size: Sentences per batch.
    """
    kernel, bias = softmax.get_weights()
    begin, end = vocabulary.ids[BEGIN], vocabulary.ids[END]
    target = np.full((len(source), source.shape[1] + 1), end, np.int32)
    target[:, 0] = begin
    for step in range(source.shape[1]):
        # All words anew for each word: plain, and fast enough for short sentences.
        hidden = decoder.predict([source, target[:, :-1]], batch_size=batch_size)[:, step]
        likeliest = (hidden @ kernel.T + bias).argmax(axis=1)
        target[:, step + 1] = np.where(target[:, step] == end, end, likeliest)
    return [[vocabulary.words[number] for number in row if number != end] for row in target[:, 1:]]


def whole(words):
    """Joins parts of words, which end in ``@@`` where subword-nmt has split them."""
    return ' '.join(words).replace('@@ ', '').split()


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help='Folder with files of two languages, such as train.en, train.de, test.en and test.de. '
    'Default: a language that is made here.',
)
@_option('--train', default='train', help='Name of the files to train on, without the language.')
@_option('--held-out', default='test', help='The same of the files to judge by.')
@_option('--source', default='en', help='Ending of the names of what is read.')
@_option('--target', default='de', help='Ending of the names of what is written.')
@_option('--vocabulary-size', type=_COUNT, default=1000, help='Upper limit for each vocabulary.')
@_option('--max-train', type=_COUNT, default=40000, help='Upper limit for sentences to train on.')
@_option('--max-held-out', type=_COUNT, default=500, help='The same of those to judge by.')
@_option('--steps', type=_COUNT, default=10, help='Words to keep of a sentence.')
@_option('--epochs', type=_COUNT, default=5, help='Passes over the sentences.')
@_option('--batch-size', type=_COUNT, default=64, help='Sentences per batch on each worker.')
@_option('--dim', type=_COUNT, default=64, help='Width of the embeddings and of the LSTMs.')
@_option('--sampled', type=_COUNT, default=256, help='Noise words per batch.')
@_option('--learning-rate', type=float, default=0.003, help="Adam's.")
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data,
    train,
    held_out,
    source,
    target,
    vocabulary_size,
    max_train,
    max_held_out,
    steps,
    epochs,
    batch_size,
    dim,
    sampled,
    learning_rate,
    seed,
):
    """Trains a translator, and reports the BLEU of its translations of held-out sentences."""
    most = max_train, max_held_out
    try:
        if data is None:
            pairs = sentences.make_pairs(vocabulary_size, most)
        else:
            files, languages = (train, held_out), (source, target)
            pairs = sentences.read_pairs(data, files, languages, vocabulary_size, most)
    except CorpusError as error:
        raise click.ClickException(str(error)) from None
    read, written = pairs.vocabularies

    np.random.seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: places the variables made here.
        tf.set_random_seed(seed + strategy.rank)  # kp: + rank, for noise words of its own.
        model, exact_model, decoder = build_models(
            (len(read), len(written)), written.ids[END], steps, dim, sampled
        )
        model.compile(keras.optimizers.Adam(learning_rate), loss=loss_of)

    trained, judged = (
        arrays(part, pairs.vocabularies, steps) for part in (pairs.train, pairs.held_out)
    )
    share = kp.data.shard(judged)  # kp: this worker judges by its share.
    callbacks = [
        HeldOutLoss(exact_model, share, batch_size, np.sum(share[1] != written.ids[END])),
        kp.callbacks.MetricAverageCallback(),  # kp: means of what the line above adds.
        kp.callbacks.PlanReport(),  # kp: where each variable is, and what a step saves.
        kp.callbacks.ProgressBar('sentences', describe=describe_epoch),  # kp: one for all.
    ]
    if strategy.is_chief:  # kp: one worker speaks for all.
        print(pairs.describe() + '\n')

    model.fit(
        **kp.data.arrays(trained, np.zeros((len(trained[0]), 1))),  # kp: this worker's share.
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )

    if strategy.is_chief:  # kp: reads tables of other workers, which wait at their end.
        translations = translate(
            decoder, model.get_layer('softmax'), judged[0], written, batch_size
        )
        references = [whole(words) for words in pairs.held_out[1]]
        translations = [whole(words) for words in translations]
        for number in range(3):
            print('\n' + sentences.shown(pairs.held_out[0][number]))
            print('  is     ' + sentences.shown(references[number]))
            print('  became ' + sentences.shown(translations[number]))
        print(f'\nBLEU of {len(references)} sentences: {bleu(translations, references):.1f}')


if __name__ == '__main__':
    main()
