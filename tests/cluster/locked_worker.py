# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: the kernel refuses to filter what reaches this worker's server.

A filter that accepts everything is locked on the server's socket before the job attaches its own.
"""

import socket

import numpy as np
from any_keras import keras

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import private_sockets
from keras_parallax.engine.job.allowed_hosts import AllowedHosts

SO_LOCK_FILTER = 44
#: In halves, because a network of all addresses switches the filter off.
ALL_ADDRESSES = ('0.0.0.0/1', '128.0.0.0/1', '::/1', '8000::/1')

start_server = tf.train.Server


def start_locked(*arguments, **named):
    server = start_server(*arguments, **named)
    port = int(tf.compat.as_str(server.target).rpartition(':')[2])
    everybody = AllowedHosts((), ALL_ADDRESSES, False)
    assert private_sockets.restrict_port(port, everybody) is None
    for listener in private_sockets._sockets_on(port):
        listener.setsockopt(socket.SOL_SOCKET, SO_LOCK_FILTER, 1)
    return server


tf.train.Server = start_locked
try:
    kp.ParallaxStrategy(require_private_servers=True)
except kp.PublicServerError as error:
    print('REFUSED: %s;' % error, flush=True)
with kp.ParallaxStrategy() as strategy:
    model = keras.models.Sequential(
        [keras.layers.Embedding(10, 2, input_length=3), keras.layers.Flatten()]
    )
    model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
model.train_on_batch(np.arange(6).reshape(2, 3), np.zeros((2, 6)))
print('TRAINED %d;' % strategy.rank, flush=True)
