# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Trains a small model with an optimizer of somebody's package: a user's script, in plain Keras.

Usage: optimizer.py NAME
"""

import sys

import keras
import numpy as np


def radam():
    from keras_radam import RAdam

    return RAdam(total_steps=12, warmup_proportion=0.3, min_lr=1e-4, weight_decay=1e-3)


def lookahead():
    from keras_lookahead import Lookahead

    return Lookahead('adagrad', sync_period=3)


def multiplier():
    from keras_lr_multiplier import LRMultiplier

    return LRMultiplier('adagrad', {'words': 2.0, 'out': 0.5})


random = np.random.RandomState(4)
ids, targets = (random.zipf(1.4, (96, 5)) - 1) % 50, random.uniform(size=(96, 1))
model = keras.models.Sequential(
    [
        keras.layers.Embedding(50, 8, input_length=5, name='words'),
        keras.layers.Flatten(),
        keras.layers.Dense(4, activation='tanh', name='hidden'),
        keras.layers.Dense(1, name='out'),
    ]
)
model.compile(globals()[sys.argv[1]](), 'mse')
model.fit(ids, targets, batch_size=24, epochs=2, verbose=0)
