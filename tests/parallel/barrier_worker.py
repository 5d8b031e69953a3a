"""Run by `horovodrun`: trains a table whose owner is slow to update it; prints the losses."""

import time

import keras
import numpy as np
import tensorflow as tf

import keras_parallax as kp


def slowly(table):
    """A constraint that changes nothing, late."""

    def wait(value):
        time.sleep(0.2)
        return value

    late = tf.py_func(wait, [table], tf.float32)
    late.set_shape(table.shape)
    return late


with kp.ParallaxStrategy() as strategy:
    model = keras.models.Sequential(
        [
            # A constraint of unknown reach keeps the table in one piece, so rank 0 owns it all.
            keras.layers.Embedding(20, 1, input_length=3, embeddings_constraint=slowly),
            keras.layers.Flatten(),
            keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1, keepdims=True), output_shape=(1,)),
        ]
    )
    model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(lr=0.05)), 'mse')
model.set_weights([np.linspace(0, 1, 20).reshape(20, 1)])
x, y = np.arange(12).reshape(4, 3), np.ones((4, 1))
print('LOSSES', strategy.rank, [float(model.train_on_batch(x, y)) for _ in range(6)], flush=True)
