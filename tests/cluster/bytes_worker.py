# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun` on an emulated cluster: counts the bytes of training steps.

Usage: bytes_worker.py ROWS WIDTH IDS STEPS [LOCAL_AGGREGATION [UNITS [DENSE]]]. The batches of a
host's workers name IDS rows together, half of them in every worker's batch and each of the others
in one. A dense layer of UNITS units follows. If DENSE is 1 the table is made dense, and the
optimizer has momentum. For each host `BYTES` is printed, and the mean number of bytes that it sent
in a step; then `PREDICTED` and `FLOOR`, and the numbers that the plan predicts from the densities
that the job has measured; then `MEASURED`, and what `StepMetrics` would log.
"""

import sys

import horovod.tensorflow as hvd
import numpy as np
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.observing import step_measures
from keras_parallax.observing.step_meter import measure

COUNTER = '/sys/class/net/eth0/statistics/tx_bytes'


def sent():
    """Bytes that the host's interface has sent so far."""
    with open(COUNTER) as file:
        return int(file.read())


def main(rows, width, ids, steps, local_aggregation=1, units=1, dense=0):
    overrides = {'table/embeddings': 'dense'} if dense else None
    with kp.ParallaxStrategy(overrides, local_aggregation=bool(local_aggregation)) as strategy:
        workers = hvd.local_size()
        places = np.arange(ids)
        mine = (places % 2 == 0) | (places // 2 % workers == strategy.local_rank)
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(rows, width, input_length=mine.sum(), name='table'),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(units),
            ]
        )
        optimizer = keras.optimizers.Adagrad(lr=0.1)
        if dense:
            optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
        model.compile(kp.ParallaxOptimizer(optimizer), 'mse')
    random = np.random.RandomState(strategy.rank // workers)
    targets = np.ones((1, units))

    def train(count):
        for _ in range(count):
            # Without repeats, so that every id is a row to pull.
            of_host = random.choice(rows, (1, ids), replace=False)
            model.train_on_batch(of_host[:, mine], targets)

    train(5)
    step = model.optimizer._parallax_step
    measuring = measure(step)
    train(1)
    begun = measuring.meter.sums()
    # No worker goes on before all have counted: for its next step this host would send rows.
    step.job.gather(None)
    before = sent()
    step.job.gather(None)
    train(steps)
    counted = sent() - before
    of_ranks = step.job.gather(list(measuring.meter.sums() - begun))
    logs = step_measures.metrics(
        measuring.meter.setting, list(map(measuring.meter.of_rank, of_ranks))
    )
    if strategy.local_rank == 0:
        print('BYTES %.0f;' % (counted / steps), flush=True)
        measured = logs['bytes/rows_sent'] + logs['bytes/dense_sent']
        print('MEASURED %.0f;' % measured, flush=True)
        plan = strategy.plan(model)
        if not dense:
            np.testing.assert_allclose(plan.variables[0].density, mine.sum() / rows, rtol=1e-6)
        totals = plan.predict().totals
        print('PREDICTED %.0f;' % totals['plan'].sent, flush=True)
        print('FLOOR %.0f;' % totals['floor'].sent, flush=True)


main(*map(int, sys.argv[1:]))
