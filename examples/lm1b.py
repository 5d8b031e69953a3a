"""A word language model with sampled softmax, trained by several workers.

Run two workers on this machine:

    horovodrun -np 2 -H localhost:2 python examples/lm1b.py

This is a plain Keras script but for the lines marked ``# kp:``. Without what
they add, and with ``rank, size, chief = 0, 1, True``, it is the script for a
single process.

Two of the model's variables are large and sparse: the embedding table and the
softmax table. A batch reads and changes a few rows of each, and those rows are
all that has to travel. The LSTM's weights are dense and change everywhere.
"""

import functools
import sys
import time

import click
import corpus
import keras
import keras.backend as K
import numpy as np
import tensorflow as tf
import tqdm

import keras_parallax as kp  # kp: the plugin


class SampledSoftmaxLoss(keras.layers.Layer):
    """Cross entropy of the next word under a softmax over the vocabulary.

    Call it on ``[hidden, next_words]`` of shapes [batch, steps, dim] and
    [batch, steps]; it returns the loss of each word, [batch, steps]. Normally
    the loss is estimated from a few noise words, which reads only their rows of
    the table and those of the next words. ``exact=True`` reads the whole table
    for the true value. The choice is made when the layer is called and not by
    the learning phase, so that a training graph never holds the whole table.

    Args:
        vocabulary_size: Number of words; frequent words must have small ids.
        num_sampled: Noise words per batch.
        **kwargs: As for any Keras layer.
    """

    def __init__(self, vocabulary_size, num_sampled, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.num_sampled = num_sampled

    def build(self, input_shape):
        dim = input_shape[0][-1]
        self.kernel = self.add_weight(
            name='kernel', shape=(self.vocabulary_size, dim), initializer='glorot_uniform'
        )
        self.bias = self.add_weight(name='bias', shape=(self.vocabulary_size,), initializer='zeros')
        super().build(input_shape)

    def call(self, inputs, exact=False):
        hidden, labels = inputs
        flat_hidden = tf.reshape(hidden, [-1, K.int_shape(hidden)[-1]])
        if exact:
            logits = tf.matmul(flat_hidden, self.kernel, transpose_b=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(labels, [-1]), logits=tf.nn.bias_add(logits, self.bias)
            )
        else:
            losses = tf.nn.sampled_softmax_loss(
                weights=self.kernel,
                biases=self.bias,
                labels=tf.cast(tf.reshape(labels, [-1, 1]), tf.int64),
                inputs=flat_hidden,
                num_sampled=self.num_sampled,
                num_classes=self.vocabulary_size,
            )
        return tf.reshape(losses, tf.shape(labels))

    def compute_output_shape(self, input_shape):
        return input_shape[1]

    def get_config(self):
        config = super().get_config()
        config.update(vocabulary_size=self.vocabulary_size, num_sampled=self.num_sampled)
        return config


def build_models(vocabulary_size, steps, dim, num_sampled):
    """Builds two models with the same layers.

    Args:
        vocabulary_size: Number of words.
        steps: Words per window.
        dim: Width of the embedding and of the LSTM.
        num_sampled: Noise words per batch of the training model.

    Returns:
        Tuple of the model to train, which returns sampled losses, and the model
        to judge it by, which returns exact ones.
    """
    words = keras.layers.Input((steps,), dtype='int32', name='words')
    next_words = keras.layers.Input((steps,), dtype='int32', name='next_words')
    embedded = keras.layers.Embedding(vocabulary_size, dim, name='embedding')(words)
    # One large matrix product per step suits a CPU better than four small ones.
    hidden = keras.layers.LSTM(dim, return_sequences=True, implementation=2, name='lstm')(embedded)
    softmax = SampledSoftmaxLoss(vocabulary_size, num_sampled, name='softmax')
    inputs = [words, next_words]
    return (
        keras.models.Model(inputs, softmax([hidden, next_words])),
        keras.models.Model(inputs, softmax([hidden, next_words], exact=True)),
    )


class ProgressBar(keras.callbacks.Callback):
    """A bar that is drawn anew once a second; Keras's own prints a line for each batch.

    Keras does so wherever its output is no terminal, and under ``horovodrun`` it never is one.
    """

    def on_epoch_begin(self, epoch, logs=None):
        self.bar = tqdm.tqdm(
            total=self.params['samples'],
            desc=f'epoch {epoch + 1}',
            unit=' windows',
            mininterval=1,
            ncols=80,
            file=sys.stdout,
        )

    def on_batch_end(self, batch, logs=None):
        self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)
        self.bar.update(logs['size'])

    def on_epoch_end(self, epoch, logs=None):
        self.bar.close()


class WordsPerSecond(keras.callbacks.Callback):
    """Prints how fast an epoch's training went; put it before other callbacks.

    Args:
        words: Training words per epoch, all workers together.
        verbose: Whether this worker prints.
    """

    def __init__(self, words, verbose):
        super().__init__()
        self.words = words
        self.verbose = verbose

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self.start
        if self.verbose:
            print(f'epoch {epoch + 1}: {self.words / seconds:,.0f} words/s')


class HeldOutLoss(keras.callbacks.Callback):
    """Puts the exact loss on held-out text into the epoch's logs.

    Args:
        exact_model: The model with the exact loss.
        words: Windows of words.
        next_words: Windows of the words after them.
        batch_size: Windows per batch.
    """

    def __init__(self, exact_model, words, next_words, batch_size):
        super().__init__()
        self.exact_model = exact_model
        self.inputs = [words, next_words]
        self.batch_size = batch_size

    def on_epoch_end(self, epoch, logs=None):
        losses = self.exact_model.predict(self.inputs, batch_size=self.batch_size)
        logs['val_log_loss'] = np.mean(losses)


class Perplexity(keras.callbacks.Callback):
    """Turns the held-out loss into perplexity.

    The exponential is not linear: the loss has to be averaged over the workers
    first, so this belongs after the callback that does that.

    Args:
        verbose: Whether this worker prints.
    """

    def __init__(self, verbose):
        super().__init__()
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        perplexity = np.exp(logs['val_log_loss'])
        logs['val_perplexity'] = perplexity
        if self.verbose:
            print(f'epoch {epoch + 1}: held-out perplexity {perplexity:.1f}')


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help='Folder in the 1-Billion-Word layout, or with .txt files. '
    'Default: the source of the Python standard library.',
)
@_option(
    '--vocabulary',
    metavar='FILE',
    help='Vocabulary file, "word" or "word count" on each line. Default: count the words.',
)
@_option('--vocabulary-size', type=_COUNT, default=20000, help='Upper limit for the vocabulary.')
@_option(
    '--max-tokens',
    type=_COUNT,
    default=1000000,
    help='Upper limit for the training words, all workers together.',
)
@_option('--epochs', type=_COUNT, default=3, help='Passes over the training words.')
@_option('--batch-size', type=_COUNT, default=64, help='Windows per batch on each worker.')
@_option('--steps', type=_COUNT, default=20, help='Words per window.')
@_option('--dim', type=_COUNT, default=64, help='Width of the embedding and of the LSTM.')
@_option('--sampled', type=_COUNT, default=256, help='Noise words per batch.')
@_option('--learning-rate', type=float, default=0.1, help="Adagrad's.")
@_option(
    '--held-out-batches',
    type=_COUNT,
    default=10,
    help='Upper limit for the batches each worker judges by.',
)
@_option(
    '--architecture',
    type=click.Choice(['hybrid', 'allreduce', 'ps', 'auto']),
    default='hybrid',
    help='How gradients are exchanged.',
)
@_option('--sync/--no-sync', default=True, help="Whether workers' gradients are applied together.")
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data,
    vocabulary,
    vocabulary_size,
    max_tokens,
    epochs,
    batch_size,
    steps,
    dim,
    sampled,
    learning_rate,
    held_out_batches,
    architecture,
    sync,
    seed,
):
    """Trains a word language model and reports its held-out perplexity."""
    try:
        text = corpus.read(data, vocabulary_size, max_tokens, vocabulary)
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None
    words_known = len(text.vocabulary)
    if sampled >= words_known:
        raise click.ClickException(
            f'There are {sampled} noise words to draw but only {words_known} words in the '
            'vocabulary; choose a smaller --sampled.'
        )

    np.random.seed(seed)
    strategy = kp.ParallaxStrategy(architecture=architecture, sync=sync)
    with strategy:  # kp: places the variables made here.
        rank, size = strategy.rank, strategy.size  # kp: alone it would be 0 of 1.
        chief = strategy.is_chief  # kp: one worker speaks for all.
        tf.set_random_seed(seed + rank)  # kp: + rank, for noise words of its own.
        model, exact_model = build_models(words_known, steps, dim, sampled)
        optimizer = keras.optimizers.Adagrad(lr=learning_rate)
        # Gradients are averaged, so the learning rate stays what it was.
        # The model's output is the loss already.
        model.compile(optimizer=optimizer, loss=lambda _, losses: losses)

    shape = dict(batch=batch_size, steps=steps)
    shape.update(rank=rank, size=size)  # kp: only this worker's share of the text.
    try:
        words, next_words = corpus.windows(text.train, **shape)
        held_out = corpus.windows(
            text.held_out, max_batches=held_out_batches, name='held-out text', **shape
        )
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None

    if chief:
        print(text.describe())
        strategy.summary(model)  # kp: shows where each variable went, and why.

    model.fit(
        [words, next_words],
        np.zeros((len(words), 1)),
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=([ProgressBar()] if chief else [])  # kp: one bar for the whole job.
        + [
            WordsPerSecond(words.size * size, chief),  # kp: x size, the whole job.
            HeldOutLoss(exact_model, held_out[0], held_out[1], batch_size),
            kp.callbacks.MetricAverageCallback(),  # kp: means of what the line above adds.
            Perplexity(chief),
        ],
    )


if __name__ == '__main__':
    main()
