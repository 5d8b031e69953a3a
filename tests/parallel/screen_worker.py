# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `keras-parallax run` and by `horovodrun`: trains, or fails in one way on one rank.

Usage: screen_worker.py WAY RANK.
"""

import os
import signal
import sys

WAY, IS_ONE = sys.argv[1], os.environ['HOROVOD_RANK'] == sys.argv[2]

if WAY == 'import' and IS_ONE:
    import no_such_module  # noqa: F401
if WAY == 'killed_at_the_start' and IS_ONE:
    os.kill(os.getpid(), signal.SIGKILL)
if WAY == 'exit_at_the_start' and IS_ONE:
    sys.exit('no data here')

# Before TensorFlow, whose notes it switches off under `horovodrun`.
import keras_parallax as kp  # noqa: E402  # isort: skip
import numpy as np  # noqa: E402

if WAY.endswith('of_keras_3'):
    import keras
else:
    from any_keras import keras

ROWS, LENGTH, BATCH = 50, 3, 8


def main():
    with kp.ParallaxStrategy() as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(ROWS, 4),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1),
            ]
        )
        model.compile('adagrad', 'mse')
    x, y = np.arange(64 * BATCH * LENGTH).reshape(-1, LENGTH) % ROWS, np.ones((64 * BATCH, 1))
    model.fit(**kp.data.arrays(x, y), batch_size=BATCH, epochs=2)
    print('TRAINED', strategy.rank)
    if IS_ONE:
        if WAY == 'exception':
            raise KeyError('my mistake')
        if WAY == 'killed':
            os.kill(os.getpid(), signal.SIGKILL)
        if WAY == 'exit':
            raise SystemExit('no data here')
        if WAY == 'error_of_ours':
            x = x + ROWS
    if not WAY.startswith('trains'):
        for _ in range(100):
            model.train_on_batch(x[:BATCH], y[:BATCH])


main()
