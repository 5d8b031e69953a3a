# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the language models of the examples share: a softmax over a large vocabulary."""

import numpy as np
from graphs import keras, tf


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
        kernel_initializer: What the table begins with.
        noise_seed: Together with the graph's seed makes noise words repeatable.
        **kwargs: As for any Keras layer.
    """

    def __init__(
        self,
        vocabulary_size,
        num_sampled,
        kernel_initializer='glorot_uniform',
        noise_seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.num_sampled = num_sampled
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.noise_seed = noise_seed

    def build(self, input_shape):
        dim = input_shape[0][-1]
        self.kernel = self.add_weight(
            name='kernel', shape=(self.vocabulary_size, dim), initializer=self.kernel_initializer
        )
        self.bias = self.add_weight(name='bias', shape=(self.vocabulary_size,), initializer='zeros')
        super().build(input_shape)

    def call(self, inputs, exact=False):
        hidden, labels = inputs
        flat_hidden = tf.reshape(hidden, [-1, keras.backend.int_shape(hidden)[-1]])
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
                seed=self.noise_seed,
            )
        return tf.reshape(losses, tf.shape(labels))

    def compute_output_shape(self, input_shape):
        return input_shape[1]

    def get_config(self):
        config = super().get_config()
        config.update(
            vocabulary_size=self.vocabulary_size,
            num_sampled=self.num_sampled,
            kernel_initializer=keras.initializers.serialize(self.kernel_initializer),
            noise_seed=self.noise_seed,
        )
        return config


def loss_of(_, losses):
    """The loss to compile a model with whose output is the loss already."""
    return losses


class HeldOutLoss(keras.callbacks.Callback):
    """Puts the exact loss of a held-out word, a mean, into the epoch's logs.

    Args:
        exact_model: The model with the exact loss of each word, which is 0 where there is none.
        inputs: Its held-out inputs.
        batch_size: Samples per batch.
        words: How many words there are. Default: one in each place.
    """

    def __init__(self, exact_model, inputs, batch_size, words=None):
        super().__init__()
        self.exact_model, self.inputs = exact_model, inputs
        self.batch_size, self.words = batch_size, words

    def on_epoch_end(self, epoch, logs=None):
        losses = self.exact_model.predict(self.inputs, batch_size=self.batch_size)
        logs['val_log_loss'] = losses.sum(dtype='float64') / (self.words or losses.size)


def describe_epoch(logs):
    """Returns the perplexity on held-out text, as text."""
    # The exponential is not linear: the loss is averaged over the workers first.
    return f'held-out perplexity {np.exp(logs["val_log_loss"]):.1f}'
