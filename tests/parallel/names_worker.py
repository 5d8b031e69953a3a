# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: compares the workers' global variables; rank 0 prints `SAME` and names.

With three workers one of them has no shard of the table of two rows, so its optimizer updates fewer
variables; Horovod's own callback broadcasts the global variables of all workers by name.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
from any_keras import keras  # noqa: E402
from frameworks import tf  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

OPTIMIZERS = [
    lambda: keras.optimizers.Adam(),
    lambda: keras.optimizers.SGD(momentum=0.9),
    lambda: tf.train.AdamOptimizer(0.01),
]

for make in OPTIMIZERS:
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = cases.few_rows(keras)
        model.compile(kp.ParallaxOptimizer(make(), keras='keras'), 'mse')
    batch = next(cases.joined_batches(cases.CASES['few_rows'], strategy.size))
    model.train_on_batch(*cases.share(batch, strategy.rank, strategy.size))
    variables = [(each.name, each.shape.as_list()) for each in tf.global_variables()]
    of_ranks = job.start().gather(variables)
    assert all(found == of_ranks[0] for found in of_ranks), of_ranks
    if strategy.rank == 0:
        print('SAME', sorted(name for name, _ in variables), flush=True)
