# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A word language model with sampled softmax, trained by several workers with Keras 3.

Run two workers on this machine:

    keras-parallax run -np 2 examples/keras3/language_model.py

``KERAS_BACKEND=jax keras-parallax run ...`` runs it on the JAX backend.

This is a plain Keras script except for the lines marked ``# kp:``. Two of its weights are large:
the table of word vectors and the table of the softmax. Both are sharded, because the model reads
both by `Embedding` lookups: a step moves only the rows that its batch uses.
"""

import os
import sys
import time

import click
import keras
import numpy as np
from keras import ops

import keras_parallax as kp  # kp: the plugin

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import corpus  # The text: `examples/corpus.py`.


@keras.saving.register_keras_serializable('examples')
class SampledSoftmax(keras.layers.Layer):
    """The cross entropy of each next word, [batch, steps], under a softmax over the vocabulary.

    Call it on ``[hidden, next_words]`` of shapes [batch, steps, dim] and [batch, steps]. In
    training, a few noise words stand for all other words (importance sampling: Bengio and Senecal,
    "Quick Training of Probabilistic Neural Nets by Importance Sampling", 2003). Otherwise the loss
    is exact.

    Args:
        words: Size of the vocabulary. Frequent words must have small ids.
        sampled: Number of noise words per batch.
        seed: Seed of the noise words.
        **kwargs: As for any Keras layer.
    """

    def __init__(self, words, sampled, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.words, self.sampled, self.seed = words, sampled, seed
        self.random = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        # A row is a word's vector and its bias. A lookup keeps the table sharded; a weight that
        # is multiplied as a whole would be on every worker.
        self.rows = keras.layers.Embedding(self.words, input_shape[0][-1] + 1, name='softmax')
        self.rows.build()

    def call(self, inputs, training=None):
        hidden, next_words = inputs
        ones = ops.ones_like(hidden[..., :1])  # Multiplied with the bias.
        hidden = ops.concatenate([hidden, ones], axis=-1)
        if not training:
            logits = ops.matmul(hidden, ops.transpose(self.rows(ops.arange(self.words))))
            return ops.sparse_categorical_crossentropy(next_words, logits, from_logits=True)

        # Word k is drawn with the probability log((k + 2) / (k + 1)) / log(words + 1).
        uniform = keras.random.uniform((self.sampled,), seed=self.random)
        noise = ops.exp(uniform * np.log(self.words + 1.0)) - 1.0
        noise = ops.clip(ops.cast(noise, 'int32'), 0, self.words - 1)
        rank = ops.cast(noise, 'float32') + 1.0
        expected = self.sampled * ops.log1p(1.0 / rank) / np.log(self.words + 1.0)

        true_logits = ops.sum(hidden * self.rows(next_words), axis=-1, keepdims=True)
        # A word that is expected n times among the noise words counts 1 / n each time.
        noise_logits = ops.matmul(hidden, ops.transpose(self.rows(noise))) - ops.log(expected)
        # A noise word that is the next word is not a wrong one.
        is_true = ops.expand_dims(next_words, -1) == noise
        noise_logits = ops.where(is_true, -1e9, noise_logits)
        logits = ops.concatenate([true_logits, noise_logits], axis=-1)
        return ops.logsumexp(logits, axis=-1) - true_logits[..., 0]

    def compute_output_shape(self, input_shape):
        return input_shape[1]

    def get_config(self):
        own = {'words': self.words, 'sampled': self.sampled, 'seed': self.seed}
        return {**super().get_config(), **own}


def loss_of(_, losses):
    """Takes the model's output for the loss of each word."""
    return losses


def build_model(words=20000, steps=20, dim=64, sampled=256, seed=None):
    """Builds a model from words and next words to the loss of each next word."""
    inputs = [keras.Input((steps,), dtype='int32', name=name) for name in ('words', 'next_words')]
    vectors = keras.layers.Embedding(words, dim, name='embedding')(inputs[0])
    hidden = keras.layers.LSTM(dim, return_sequences=True, name='lstm')(vectors)
    return keras.Model(inputs, SampledSoftmax(words, sampled, seed)([hidden, inputs[1]]))


class Perplexity(keras.callbacks.Callback):
    """Prints words per second and the perplexity on held-out text after each epoch."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()

    def on_test_begin(self, logs=None):
        self.speed = self.words / (time.perf_counter() - self.began)

    def on_epoch_end(self, epoch, logs=None):
        perplexity = np.exp(logs['val_loss'])
        print(f'epoch {epoch + 1}: {self.speed:,.0f} words/s, held-out perplexity {perplexity:.1f}')


@click.command()
@click.option('--data', metavar='DIR', help='Folder with .txt files. Default: Python source code.')
@click.option('--vocabulary-size', default=20000, help='Upper limit for the vocabulary.')
@click.option('--max-tokens', default=900000, help='Upper limit for the training words.')
@click.option('--epochs', default=3, help='Passes over the training words.')
@click.option('--batch-size', default=64, help='Windows per batch on each worker.')
@click.option('--steps', default=20, help='Words per window.')
@click.option('--dim', default=64, help='Width of the word vectors and of the LSTM.')
@click.option('--sampled', default=256, help='Noise words per batch.')
@click.option('--learning-rate', default=0.1, help='Learning rate of Adagrad.')
@click.option('--held-out', default=5, help='Upper limit for the held-out batches per worker.')
@click.option('--checkpoint', metavar='DIR', help='Folder for checkpoints, to go on from.')
@click.option('--seed', default=1, help='Seed of the start values and noise words.')
def main(
    data, vocabulary_size, max_tokens, epochs, batch_size, steps, dim, sampled, learning_rate,
    held_out, checkpoint, seed,
):  # fmt: skip
    """Trains a word language model and prints its perplexity on held-out text."""
    keras.utils.set_random_seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: shards the tables made here.
        size, chief = strategy.size, strategy.is_chief  # kp: in one process 1 and True.
        text = corpus.read(data, vocabulary_size, max_tokens)
        # kp: + rank, so that each worker draws noise words of its own. A run that goes on must draw
        # other ones than the run before, or it learns which noise words are with which text.
        noise_seed = int.from_bytes(os.urandom(4), 'big') if checkpoint else seed + strategy.rank
        model = build_model(len(text.vocabulary), steps, dim, sampled, noise_seed)
        # Adagrad of Keras starts with 0.1, which makes the first steps of a table tiny.
        optimizer = keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=1e-8)
        model.compile(optimizer, loss_of)

    # All windows: `kp.data` gives each worker its share.
    trained = corpus.windows(text.train, 0, 1, batch_size * size, steps)
    judged = corpus.windows(text.held_out, 0, 1, batch_size * size, steps, held_out)
    words, next_words = trained
    judged = kp.data.shard(judged)  # kp: this worker's share of the held-out text.

    if chief:  # kp: one worker prints.
        print(text.describe() + '\n')
    callbacks, done = [Perplexity(words.size)] if chief else [], 0
    if checkpoint:
        path = os.path.join(checkpoint, 'model-{epoch:02d}.keras')
        callbacks.append(kp.callbacks.ModelCheckpoint(path, max_to_keep=3))  # kp: saves by rank 0.
        done = strategy.resume(model, kp.latest_checkpoint(path))  # kp: 0 if there is none.
    model.fit(
        **kp.data.arrays([words, next_words], next_words),  # kp: this worker's share.
        validation_data=(list(judged), judged[1]),
        batch_size=batch_size,
        epochs=epochs,
        initial_epoch=done,
        verbose=0,
        callbacks=callbacks,
    )
    if chief:
        print()
        strategy.summary(model)  # kp: where each variable is, why, and what a step sends.


if __name__ == '__main__':
    main()
