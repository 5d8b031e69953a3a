# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run on the hosts of a job: trains, saves and searches partitions while a stranger knocks.

Usage: private_worker.py FOLDER [ADDRESS OF A DEDICATED SERVER...]

Prints `PORT rank port;` when its server listens, and `READY rank;` when it has trained and saved.
Then it waits for the file FOLDER/go-N, where N says how often the job has been restarted. A job
that has dedicated servers fails the first time.
"""

import os
import sys
import time

import numpy as np
from any_keras import keras

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import job


def main(folder, *servers):
    restarts = int(os.environ.get('KERAS_PARALLAX_RESTARTS', 0))
    strategy = kp.ParallaxStrategy(
        servers=servers or None, partitions='search', require_private_servers=True
    )
    # Bytes with TensorFlow 1.11, text with 2.
    port = tf.compat.as_str(job.current().servers.server.target).rpartition(':')[2]
    print('PORT %d %s;' % (strategy.rank, port), flush=True)
    with strategy:
        model = keras.models.Sequential(
            [keras.layers.Embedding(10, 2, input_length=3), keras.layers.Flatten()]
        )
        model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
    batch = np.arange(6).reshape(2, 3), np.zeros((2, 6))
    for _ in range(30):
        model.train_on_batch(*batch)
        time.sleep(0.05)
    model.save(os.path.join(folder, 'model.h5'))
    print('READY %d;' % strategy.rank, flush=True)
    while not os.path.exists(os.path.join(folder, 'go-%d' % restarts)):
        time.sleep(0.1)
    if servers and restarts == 0:
        raise SystemExit('fails once')
    model.train_on_batch(*batch)
    print('TRAINED %d;' % strategy.rank, flush=True)


main(*sys.argv[1:])
