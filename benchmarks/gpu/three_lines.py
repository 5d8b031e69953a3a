# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""README's script: plain Keras, and the lines by which a strategy trains it.

Usage: three_lines.py tf_keras|tensorflow|jax
"""

import os
import sys
import tempfile

import numpy as np

from gpu.reporting import is_small, report

NAME = sys.argv[1]
if NAME == 'tf_keras':
    from works.stack import K, keras
else:
    os.environ['KERAS_BACKEND'] = NAME
    import keras

    K = None
ROWS, WIDTH = (1000, 16) if is_small() else (200000, 64)
SAMPLES = 512 if is_small() else 16384

import keras_parallax as kp  # noqa: E402


def build():
    """The model: a table and two dense layers."""
    return keras.models.Sequential(
        [
            keras.layers.InputLayer((8,), dtype='int32'),
            keras.layers.Embedding(ROWS, WIDTH, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation='relu'),
            keras.layers.Dense(1),
        ]
    )


def main():
    """Trains as README does; all ranks do the same, and rank 0 reports."""
    random = np.random.RandomState(3)
    ids = ((random.zipf(1.2, (SAMPLES, 8)) - 1) % ROWS).astype(np.int32)
    targets = (1 + ids[:, :1] % 2).astype(np.float32)
    with kp.ParallaxStrategy() as strategy:
        model = build()
        model.compile(keras.optimizers.Adagrad(0.1), 'mse')
    history = model.fit(**kp.data.arrays(ids, targets), batch_size=64, epochs=3, verbose=0)
    weights = model.get_weights()
    losses = [float(loss) for loss in history.history['loss']]
    from keras_parallax.engine.job import job

    own = job.start()
    sums = own.gather([float(np.abs(weight).sum()) for weight in weights])
    cards = own.gather(card_of(own))
    if not strategy.is_chief:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'weights.weights.h5')
        model.save_weights(path)
        size = os.path.getsize(path)
    learns = bool(np.isfinite(losses).all() and losses[-1] < losses[0])
    report('trains', learns, '' if learns else 'the loss does not fall', losses=losses,
           file_bytes=size, **cards[0])  # fmt: skip
    if strategy.size > 1:
        alike = all(one == sums[0] for one in sums)
        reason = '' if alike else "the ranks' weights differ"
        report('same weights', alike, reason, cards=cards)


def card_of(job):
    """Which card this rank was given, and the devices on which it computes."""
    given = job.config.gpu_options.visible_device_list
    if K is not None:
        return {'card': given, 'devices': [of.name for of in K.get_session().list_devices()]}
    if NAME == 'jax':
        import jax

        return {'card': given, 'devices': [str(of) for of in jax.devices()]}
    import tensorflow as tf

    return {'card': given, 'devices': [of.name for of in tf.config.list_logical_devices()]}


if __name__ == '__main__':
    main()
