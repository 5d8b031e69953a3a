# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a worker computes of its own batch: tensors or rows, within bounds, and which it counts."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.step.own_gradients import Treatment, own_gradients
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.errors import PlanError

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def own_of(loss, dense=(), tables=(), size=1, joined=1, steps=1, **treatment):
    members = graph_queries.ancestors([loss])
    given = Treatment(**treatment)
    return own_gradients(loss, list(dense), list(tables), members, given, size, joined, steps, True)


def run(fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def looked_up(ids=(5, 1, 5)):
    """A variable, and a loss that is 3 times the sum of some of its rows."""
    weight = tf.Variable(VALUES)
    return weight, 3.0 * tf.reduce_sum(tf.gather(weight, list(ids)))


def test_rows_become_a_tensor_unless_the_optimizer_takes_them_as_they_come():
    weight, loss = looked_up()
    whole, rows = own_of(loss, [weight]), own_of(loss, [weight], as_they_come=True)
    assert whole.looked_up == rows.looked_up == {weight}
    assert run(whole.of_dense[0])[:, 0].tolist() == [0, 3, 0, 0, 0, 6, 0]
    assert isinstance(rows.of_dense[0], tf.IndexedSlices)
    assert run(rows.of_dense[0].indices).tolist() == [5, 1, 5]


def test_touched_rows_are_marked_where_the_optimizer_needs_them():
    weight, loss = looked_up()
    assert own_of(loss, [weight]).masks == {}
    (mask,) = own_of(loss, [weight], needs_touched_rows=True).masks.values()
    found = []
    mask.mapped(lambda numbers: found.append(numbers) or numbers)
    assert np.flatnonzero(run(found[0])).tolist() == [1, 5]


def test_a_bound_is_one_of_the_joined_batch_and_of_all_batches_of_an_exchange():
    weight, loss = looked_up()
    table = Table(tf.Variable(VALUES), shards.planned(servers=()))
    loss = 50.0 * (loss + tf.reduce_sum(tf.gather(table.variable, [2])))
    found = own_of(loss, [weight], [table], 2, 2, 3, bounds=Bounds(clipvalue=0.5))
    # Each row is bounded by itself, before those that repeat are summed.
    assert run(found.of_dense[0])[:, 0].tolist() == [0, 3, 0, 0, 0, 6, 0]
    (values,) = run(found.rows[table])
    assert values.tolist() == [[3.0, 3.0]]


def test_a_gradient_of_the_whole_that_each_worker_would_count_is_not_clipped():
    weight, loss = looked_up()
    loss = loss + tf.reduce_sum(tf.square(weight))
    bounds = Bounds(clipnorm=1.0)
    if own_of(loss, [weight]).looked_up:  # TensorFlow 2 makes a tensor of the two.
        with pytest.raises(PlanError):
            own_of(loss, [weight], size=2, bounds=bounds)
    own_of(loss, [weight], size=1, bounds=bounds)
