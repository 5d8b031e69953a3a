# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: `DynamicEmbedding` where workers apply their gradients as they come.

Usage: dynamic_async_worker.py FOLDER. The loss is linear, so that each use of an id moves its row
by the same, which is another number for each id. Rank 0 writes to FOLDER/RUN.npz what has come of
the rows, and how often all workers have used each id.
"""

import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import dynamic  # noqa: E402
import dynamic_async  # noqa: E402
from any_keras import keras  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.compat.tensorflow_api import tf  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402


def compiled(name):
    """A strategy, and a compiled model, of which rank 1 is slow between its pull and its push."""
    keras.backend.clear_session()
    timing, policies = dynamic_async.RUNS[name]
    with kp.ParallaxStrategy(sync=False, **timing) as strategy:
        ids = keras.layers.Input((dynamic.LENGTH,), dtype='int64')
        strengths = keras.layers.Input((dynamic.LENGTH,))
        initializer = dynamic.initializer(keras, 'RandomUniform')
        table = kp.layers.DynamicEmbedding(
            dynamic.WIDTH, name='table', initializer=initializer, **policies
        )

        def summed(inputs):
            rows, of_ids = inputs
            wait = 0.03 * strategy.rank
            with tf.control_dependencies([tf.py_func(lambda _: time.sleep(wait), [rows], [])]):
                return keras.backend.sum(rows * tf.expand_dims(of_ids, 2), (1, 2), keepdims=False)

        total = keras.layers.Lambda(summed, output_shape=())([table(ids), strengths])
        total = keras.layers.Reshape((1,))(total)
        out = keras.layers.add([total, keras.layers.Dense(1)(strengths)])
        model = keras.models.Model([ids, strengths], out)
        model.compile(keras.optimizers.SGD(lr=dynamic_async.RATE), lambda _, out: out)
    return strategy, model


def main(folder):
    for name in dynamic_async.RUNS:
        strategy, model = compiled(name)
        for step in range(dynamic_async.STEPS):
            numbers = dynamic_async.numbers(step, strategy.rank)
            strengths = dynamic_async.STRENGTHS[numbers]
            inputs = [dynamic_async.IDS[numbers], strengths]
            model.train_on_batch(inputs, np.zeros([len(numbers), 1]))
        job.start().barrier()
        if strategy.rank == 0:
            rows, ids = model.get_layer('table').get_weights()[:2]
            counts = model.get_layer('table').row_counts()
            np.savez(os.path.join(folder, name + '.npz'), rows=rows, ids=ids, **counts)
        job.start().barrier()


main(*sys.argv[1:])
