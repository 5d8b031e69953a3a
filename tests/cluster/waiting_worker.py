# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: trains, says which port its server has, waits for a file, and trains on.

Usage: waiting_worker.py FILE
"""

import os
import sys
import time

import numpy as np
from any_keras import keras

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import job


def main(go):
    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [keras.layers.Embedding(10, 2, input_length=3), keras.layers.Flatten()]
        )
        model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
    batch = np.arange(6).reshape(2, 3), np.zeros((2, 6))
    model.train_on_batch(*batch)
    # Bytes with TensorFlow 1.11, text with 2.
    port = tf.compat.as_str(job.start().servers.server.target).rpartition(':')[2]
    print('PORT %d %s;' % (strategy.rank, port), flush=True)
    while not os.path.exists(go):
        time.sleep(0.1)
    model.train_on_batch(*batch)
    print('TRAINED %d;' % strategy.rank, flush=True)


main(sys.argv[1])
