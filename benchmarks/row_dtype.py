# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What rows of 16 bits cost in loss: the same training, with rows in 32 bits and in 16.

    horovodrun -np 2 -H localhost:2 python benchmarks/row_dtype.py

One job trains a model from the same weights on the same batches three times: with rows in 32 bits,
in 16 bits as `row_dtype='float16'` rounds them, and in 16 bits rounded to the nearest, which is no
option. Rank 0 prints what each has come to on samples that no worker trains on, and the bytes of
the tables on servers.
"""

import click
import keras.backend as K
import numpy as np
import tensorflow as tf
from works import judges, models

import keras_parallax as kp
from keras_parallax.engine.job import job
from keras_parallax.engine.updates import stochastic_rounding

KINDS = {'32 bits': None, '16 bits': 'float16', '16 bits, to the nearest': 'float16'}
#: Name of a work to what it is made with; all of them learn enough in some minutes on two cores.
WORKS = {
    'lm': dict(vocabulary=10000, width=64, state=64, batch=64, words='corpus'),
    'ctr': dict(width=16, batch=1024),
}


def log_loss(work, model, weights, batches=8):
    """The mean loss on batches of a worker that there is not."""
    del weights
    held_out = work.batches(judges.HELD_OUT_RANK, batches)
    return float(np.mean([model.test_on_batch(*batch) for batch in held_out]))


def perplexity(work, model, weights):
    """As `judges.perplexity` has it."""
    del model
    return judges.perplexity(work, weights)


JUDGES = {'lm': ('perplexity', perplexity), 'ctr': ('log loss', log_loss)}


def train(work, row_dtype, steps, judge):
    """Trains a work; returns what the judge says on rank 0, and the bytes of all tables."""
    K.clear_session()
    with kp.ParallaxStrategy(row_dtype=row_dtype) as strategy:
        model, loss = work.build(models.Table, models.SampledSoftmax, strategy.rank)
        model.compile(kp.ParallaxOptimizer(work.optimizer), loss)
    K.set_value(model.optimizer.lr, work.rate)
    for batch in work.batches(strategy.rank, steps):
        model.train_on_batch(*batch)
    job.start().barrier()
    judged = judge(work, model, model.get_weights()) if strategy.is_chief else None
    tables = [one.stored_bytes for one in strategy.plan(model).variables if one.shards]
    job.start().barrier()
    return judged, sum(tables)


def _to_nearest(rows, row_shape, step, name):
    """Noise by which a number goes to its nearest neighbour."""
    del step, name
    return tf.fill([tf.size(rows)] + row_shape, tf.constant(0.5, tf.float64))


@click.command()
@click.option('--work', type=click.Choice(sorted(WORKS)), default='lm', show_default=True)
@click.option('--steps', default=300, show_default=True)
@click.option('--rate', default=0.03, show_default=True, help='The learning rate, of Adagrad.')
def main(work, steps, rate):
    """Trains three times, and prints what has come of it."""
    made = models.WORKS[work](**WORKS[work])._replace(rate=rate)
    measure, judge = JUDGES[work]
    noise_of, found = stochastic_rounding.noise_of, {}
    for kind, row_dtype in KINDS.items():
        stochastic_rounding.noise_of = _to_nearest if 'nearest' in kind else noise_of
        found[kind] = train(made, row_dtype, steps, judge)
    if job.start().rank == 0:
        wide = found['32 bits'][0]
        print('%s, %d steps, rate %g' % (work, steps, rate))
        for kind, (judged, size) in found.items():
            numbers = measure, judged, judged / wide, size / 1e6
            print('%-24s %s %8.4f  ratio %.4f  tables %6.1f MB' % ((kind,) + numbers))


if __name__ == '__main__':
    main()
