# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Compares training with plain Keras on the joined batch: weights and losses.

Usage: equality.py ARCHITECTURE FOLDER WORK... With `plain`, plain Keras leaves in the folder what
the others compare with; with `one process`, a strategy trains on the joined batch as well.
"""

import os
import sys

import numpy as np
from works import models, stack
from works.stack import K, tf

from gpu.parts import SPEED_WORKS
from gpu.reporting import is_small, relative, report, report_error

RANKS, STEPS, RATE = 2, 6, 0.1
#: README's bound: what differs by rounding alone, relative to the largest number.
BOUND = 1e-5


class FixedNoise(models.SampledSoftmax):
    """Sampled softmax whose noise words are the same at every step, so that ranks have them too."""

    def draw(self, labels):
        stride = self.vocabulary // self.noise
        noise = tf.range(0, stride * self.noise, stride, dtype=tf.int64)
        return noise, tf.ones_like(labels, tf.float32), tf.ones([self.noise], tf.float32)


def works():
    """The works that are compared, by name."""
    small = is_small()
    clicks = dict(width=4, batch=64, rows=500) if small else dict(batch=512, rows=20000)
    words = dict(vocabulary=2000, width=16, state=16, batch=16, noise=64)
    if not small:
        words = dict(vocabulary=50000, width=128, state=128, batch=64, noise=512)
    made = models.click_model(**clicks), models.language_model(**words)
    return dict(zip(SPEED_WORKS, made))


def numbers_for(shapes):
    """Start values that depend on the shapes alone: cards draw other random numbers."""
    random = np.random.RandomState(17)
    return [random.uniform(-0.05, 0.05, shape).astype(np.float32) for shape in shapes]


def batches(work, ranks):
    """The joined batches of some ranks."""
    for of_ranks in zip(*(work.batches(rank, STEPS) for rank in ranks)):
        inputs = [np.concatenate(parts) for parts in zip(*(one for one, _ in of_ranks))]
        yield inputs, np.concatenate([target for _, target in of_ranks])


def compiled(work, optimizer):
    """The work's model, with its start values."""
    model, loss = work.build(models.Table, FixedNoise, 0)
    model.compile(optimizer, loss)
    model.set_weights(numbers_for([weight.shape.as_list() for weight in model.weights]))
    return model


def train(work, model, ranks):
    """Trains on the joined batches of some ranks; returns losses."""
    return [float(model.train_on_batch(*batch)) for batch in batches(work, ranks)]


def train_plainly(folder, names):
    """Leaves the losses and weights of plain Keras in a folder."""
    for name in names:
        work = works()[name]
        K.clear_session()
        model = compiled(work, stack.keras_optimizers().Adagrad(RATE))
        start = model.get_weights()
        losses, weights = train(work, model, range(RANKS)), model.get_weights()
        moved = [relative(now, then) for now, then in zip(weights, start)]
        arrays = {'weight%d' % number: weight for number, weight in enumerate(weights)}
        np.savez(os.path.join(folder, name + '.npz'), losses=losses, moved=moved, **arrays)
        passed = min(moved) > 10 * BOUND
        reason = '' if passed else 'training moves too little to compare'
        report(name, passed, reason, losses=losses,
               moved_least=min(moved), moved_most=max(moved))  # fmt: skip


def compare(name, work, architecture, folder):
    """Trains with a strategy and reports the differences."""
    import keras_parallax as kp
    from keras_parallax.engine.job import job

    K.clear_session()
    arguments = {} if architecture == 'one process' else {'architecture': architecture}
    with kp.ParallaxStrategy(**arguments) as strategy:
        model = compiled(work, stack.keras_optimizers().Adagrad(RATE))
    ranks = range(RANKS) if architecture == 'one process' else [strategy.rank]
    own_losses = train(work, model, ranks)
    losses = np.mean(job.start().gather(own_losses), 0)
    weights = model.get_weights()
    job.start().barrier()
    if not strategy.is_chief:
        return
    plain = np.load(os.path.join(folder, name + '.npz'))
    of_losses = relative(losses, plain['losses'])
    of_weights = [relative(one, plain['weight%d' % n]) for n, one in enumerate(weights)]
    passed = max(of_losses, *of_weights) <= BOUND
    kinds = [variable.kind for variable in strategy.plan(model).variables]
    report(name, passed, '' if passed else 'differs by more than the bound', losses_off=of_losses,
           weights_off=max(of_weights), bound=BOUND, sparse=kinds.count('sparse'),
           dense=kinds.count('dense'))  # fmt: skip


def main(architecture, folder, *names):
    """Trains some works."""
    if architecture == 'plain':
        train_plainly(folder, names)
        return
    for name in names:
        work = works()[name]
        report_error(name, lambda name=name, work=work: compare(name, work, architecture, folder))


if __name__ == '__main__':
    main(*sys.argv[1:])
