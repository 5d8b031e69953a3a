# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains a model in a strategy, and says how many threads its process has,
without those of gRPC.

Usage: threads_worker.py dense|sparse. The model has a dense layer, or a table with shards.
"""

import contextlib
import os
import sys
import time

import horovod.tensorflow as hvd
import numpy as np
from any_keras import keras

import keras_parallax as kp

with kp.ParallaxStrategy() as strategy:
    layers = {
        'dense': [keras.layers.Dense(3, input_shape=(1,))],
        'sparse': [keras.layers.Embedding(50, 3, input_length=1), keras.layers.Flatten()],
    }[sys.argv[1]]
    model = keras.models.Sequential(layers)
    model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
model.train_on_batch(np.ones((2, 1)), np.ones((2, 3)))


def threads():
    """How many threads the process has now, without those of gRPC, which come and go."""
    names = []
    for task in os.listdir('/proc/self/task'):
        # A thread may end after it was listed, before its file is opened or before it is read.
        ended = contextlib.suppress(FileNotFoundError, ProcessLookupError)
        with ended, open('/proc/self/task/%s/comm' % task) as file:
            names.append(file.read())
    return sum(not name.startswith('grpc') for name in names)


# A new thread of gRPC has the process's name for a moment: so what counts is who stays.
counts = []
for _ in range(20):
    counts.append(threads())
    time.sleep(0.05)
count = min(counts)
print('RANK %d HAS %d THREADS' % (hvd.rank(), count), flush=True)
