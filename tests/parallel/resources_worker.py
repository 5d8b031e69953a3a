# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `keras-parallax run --resources`: prints which card of its host this worker uses.

Usage: resources_worker.py WORD
"""

import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from frameworks import KERAS_PACKAGES, keras_module  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

keras = keras_module(KERAS_PACKAGES[-1])
with kp.ParallaxStrategy() as strategy:
    model = keras.models.Sequential([keras.layers.Embedding(4, 1, input_length=1)])
    model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD()), 'mse')
card = job.start().config.gpu_options.visible_device_list
place = strategy.rank, strategy.size, card, sys.argv[1], socket.gethostname()
print('rank %d of %d has card %s, %s %s' % place)
