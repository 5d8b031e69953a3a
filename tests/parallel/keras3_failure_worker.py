# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: a job with a model of Keras 3 that fails in one way.

Usage: keras3_failure_worker.py BACKEND WAY [MODEL]. MODEL is `tables` or `dense`. Prints the type
and the text of the error that `fit` raises, after the rank.
"""

import os
import signal
import sys
import time

BACKEND, WAY, MODEL = [*sys.argv[1:], 'tables'][:3]
os.environ['KERAS_BACKEND'] = BACKEND

import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402

import keras_parallax as kp  # noqa: E402

#: A rank that is stopped or hangs is lost after so many seconds.
STEP_TIMEOUT = {'stop': 10, 'hang': 10}
#: What ends the last rank in its second step.
ENDS = {
    'kill': lambda: os.kill(os.getpid(), signal.SIGKILL),
    'stop': lambda: os.kill(os.getpid(), signal.SIGSTOP),
    'hang': lambda: time.sleep(1000),
    'exit': lambda: sys.exit('no data'),
}


class Failing(keras.callbacks.Callback):
    """Ends the rank in its second step."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            if WAY == 'exception':
                raise ValueError('something is wrong with batch 1')
            ENDS[WAY]()


class Telling(keras.callbacks.Callback):
    """Says that the rank trains."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            print('TRAINS', flush=True)


def build():
    """A model with two tables, or one without tables for the same inputs."""
    if MODEL == 'tables':
        return cases.two_tables()
    inputs = [keras.Input((3,)), keras.Input((2,))]
    return keras.Model(inputs, cases.dense(1)(keras.layers.Concatenate()(inputs)))


def batches(x, y, count):
    for _ in range(count):
        yield tuple(part[:4] for part in x), y[:4]


def main():
    strategy = kp.ParallaxStrategy(step_timeout=STEP_TIMEOUT.get(WAY, 60))
    x, y, _ = cases.CASES['sgd'].data(40)
    is_last = strategy.rank == strategy.size - 1
    with strategy:
        model = build()
        if WAY == 'models' and is_last:
            model = keras.Model(model.inputs, keras.layers.Dense(1)(model.output))
        model.compile('sgd', 'mse')
    if WAY == 'batches' and is_last:
        x, y = [part[:36] for part in x], y[:36]
    if WAY == 'sizes' and is_last:
        x, y = [part[:39] for part in x], y[:39]
    if WAY == 'ids' and is_last:
        x[0][20] = cases.USERS
    data = {'x': x, 'y': y, 'batch_size': 4}
    if WAY == 'generators':
        data = {'x': batches(x, y, 4 if is_last else 5)}
    elif WAY == 'never_ends':
        data = {'x': batches(x, y, 10**9)}
    callbacks = [Telling()] + [Failing()] * (WAY in (*ENDS, 'exception') and is_last)
    try:
        model.fit(**data, verbose=0, callbacks=callbacks)
    except kp.ParallaxError as error:
        print('RANK %d: %s: %s' % (strategy.rank, type(error).__name__, error), flush=True)
        raise


if __name__ == '__main__':
    main()
