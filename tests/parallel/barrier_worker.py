# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains a table whose owner is slow to update it; prints the losses.

Usage: barrier_worker.py keras|tensorflow|counting. The optimizer is one of Keras's, of
TensorFlow's, or a user's own.
"""

import sys
import time

import numpy as np
from any_keras import keras
from frameworks import TF2, tf

import keras_parallax as kp


def late(values):
    """The same values, late."""

    def wait(values):
        time.sleep(0.2)
        return values

    found = tf.py_func(wait, [values], tf.float32)
    found.set_shape(values.shape)
    return found


class Slow(tf.train.ProximalGradientDescentOptimizer):
    """Applies rows late. Without penalties it is gradient descent, of rows that come once."""

    def _apply_sparse(self, gradient, variable):
        slow = tf.IndexedSlices(late(gradient.values), gradient.indices, gradient.dense_shape)
        return super()._apply_sparse(slow, variable)


class Counting(keras.optimizers.SGD):
    """Has one operation that all others come before: it counts the steps."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.steps = keras.backend.variable(0, name='steps')

    def get_updates(self, loss, params):
        with tf.control_dependencies(super().get_updates(loss, params)):
            return [tf.assign_add(self.steps, 1)]


def slow_sgd():
    """A constraint and one of Keras's optimizers, which together are slow to update a table."""
    if not TF2:
        # A constraint of unknown reach is heeded by Keras's optimizers alone.
        return late, keras.optimizers.SGD(lr=0.05)

    class Late(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return late(tf.constant(0.05))

    return None, keras.optimizers.SGD(Late())


constraint, optimizer = {
    'keras': slow_sgd(),
    'tensorflow': (None, Slow(0.05)),
    'counting': (late, Counting(lr=0.05)),
}[sys.argv[1]]
# In one piece, rank 0 owns the whole table.
with kp.ParallaxStrategy(partitions=1) as strategy:
    model = keras.models.Sequential(
        [
            keras.layers.Embedding(20, 1, input_length=3, embeddings_constraint=constraint),
            keras.layers.Flatten(),
            keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1, keepdims=True), output_shape=(1,)),
        ]
    )
    model.compile(kp.ParallaxOptimizer(optimizer), 'mse')
model.set_weights([np.linspace(0, 1, 20).reshape(20, 1)])
x, y = np.arange(12).reshape(4, 3), np.ones((4, 1))
print('LOSSES', strategy.rank, [float(model.train_on_batch(x, y)) for _ in range(6)], flush=True)
