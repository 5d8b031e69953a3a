# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The network of `examples/` that reads digits: what `make demo-mnist` runs, but on less of it."""

import os
import re
import sys

import launch
import numpy as np
import pytest
import reference
from any_keras import keras
from frameworks import tf

from keras_parallax.data.sample_order import Order

EXAMPLES = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, 'examples')
sys.path.insert(0, EXAMPLES)

import digits  # noqa: E402  (the examples are not a package)
import mnist  # noqa: E402

#: An epoch is of 8 steps.
TRAIN, HELD_OUT, EPOCHS, BATCH, WORKERS, SEED = 512, 512, 16, 32, 2, 1


@pytest.fixture(scope='module')
def output(tmp_path_factory):
    """What the example prints, as `make demo-mnist` shows it, on digits that are drawn."""
    outcome = launch.run(
        WORKERS, os.path.join(EXAMPLES, 'mnist.py'), '--no-dropout', '--train', TRAIN,
        '--held-out', HELD_OUT, '--epochs', EPOCHS, '--batch-size', BATCH, '--seed', SEED,
        prefix=launch.one_screen(tmp_path_factory.mktemp('logs')),
        environ={'HOME': str(tmp_path_factory.mktemp('home'))},  # Without MNIST in it.
    )  # fmt: skip
    assert outcome.code == 0, outcome.output
    return outcome.output


@pytest.fixture(scope='module')
def epochs(output):
    """After each epoch, its loss and accuracy on held-out digits."""
    found = re.findall(r'held-out loss (\d+\.\d+), accuracy (\d+\.\d+)%', output)
    return [(float(loss), float(percent) / 100) for loss, percent in found]


@pytest.fixture(scope='module')
def plain_epochs():
    """The same of plain Keras in one process, on batches that join those of the workers."""
    x, y = mnist.prepare(*digits.draw(TRAIN, seed=1))
    held_out = mnist.prepare(*digits.draw(HELD_OUT, seed=2))
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    model = mnist.build_model(dropout=False)
    mnist.compile_model(model, reference.gated(keras.optimizers.Adadelta(1.0)))
    model._make_train_function()
    reference.gate_updates(model)
    found = []
    for epoch in range(EPOCHS):
        order = Order(TRAIN, WORKERS, seed=0).of_all(epoch)
        for rows in order.reshape(-1, WORKERS * BATCH):
            model.train_on_batch(x[rows], y[rows])
        found.append(tuple(model.evaluate(*held_out, verbose=0)))
    return found


def test_it_learns_to_read_digits(epochs):
    assert len(epochs) == EPOCHS and epochs[-1][1] > 0.75


# Only the first epoch: from then on rounding grows. Where its start weights differ by 1e-7 of
# themselves, plain Keras's own loss differs by 3e-4 of itself after 8 steps, and by 2e-2 after 24.
def test_after_an_epoch_two_workers_are_where_plain_keras_is_on_joined_batches(
    epochs, plain_epochs
):
    np.testing.assert_allclose(epochs[0], plain_epochs[0], rtol=5e-3, atol=2.5 / HELD_OUT)


def test_in_the_end_it_reads_as_many_as_plain_keras(epochs, plain_epochs):
    assert epochs[-1][1] > plain_epochs[-1][1] - 0.1


def test_its_plan_is_allreduce_with_each_variable_on_every_rank(output):
    assert re.search(r'^allreduce: 8 variables, \d\.\d\d MB, on every rank\.$', output, re.M)


def test_it_says_where_the_digits_come_from(output):
    assert '512 digits, and 512 held out, drawn here' in output


def test_accuracies_of_the_workers_are_averaged_to_that_of_all_held_out_digits(output, epochs):
    percent, loss = re.search(r'digits (\d+\.\d+)% are .* loss of (\d+\.\d+)\.', output).groups()
    assert (float(loss), float(percent) / 100) == pytest.approx(epochs[-1], abs=2e-4)


def test_it_prints_one_bar_and_nothing_of_the_launcher(output):
    bars = [line for line in output.splitlines() if '%|' in line]
    assert len(bars) == 1 and bars[0].startswith('100%')
    assert '[0]<std' not in output and 'Using TensorFlow' not in output
