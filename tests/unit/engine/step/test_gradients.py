# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The gradients of a step: what is exchanged, what waits for what, and how often things count."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step import exchange
from keras_parallax.engine.step.gradients import build_gradients
from keras_parallax.engine.step.own_gradients import Treatment
from keras_parallax.engine.tables.pull import pull_new_lookup
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.clipping import Bounds

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def gradients_of(loss, dense=(), tables=(), size=1, reduction=exchange.MEAN, **given):
    """The `StepGradients` of worker 0 of some."""
    none = hvd.Compression.none
    treatment = {name: given.pop(name) for name in Treatment._fields if name in given}
    return build_gradients(
        loss,
        list(dense),
        list(tables),
        graph_queries.ancestors([loss]),
        exchange.Exchange(0, size, reduction, none, none, 'step'),
        given.pop('sync', True),
        Treatment(**treatment),
        **given,
    )


def run(fetches):
    hvd.init()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def on_every_worker(record=None):
    table = Table(tf.Variable(VALUES), shards.planned(servers=()))
    table._record = record
    return table


def on_shards():
    table = shards.table_of(VALUES, size=2)
    shards.made_front(table, lambda ids: pull_new_lookup(table, ids, 0))
    return table


def collectives(fetches):
    run = graph_queries.ancestors(fetches)
    return sorted(one.type for one in run if one.type.startswith('Horovod'))


def test_one_process_has_the_gradients_of_its_batch_and_exchanges_nothing(graph):
    first, second = tf.Variable(3.0), tf.Variable(4.0)
    table = on_every_worker()
    loss = first * first * second + tf.reduce_sum(tf.gather(table.variable, [5, 1, 5]))
    found = gradients_of(loss, [first, second], [table])
    (part,) = found.parts
    of_first, of_second, rows, values, touched = run(
        found.reduced + list(part.gradients) + [found.touched['table']]
    )
    assert (of_first, of_second) == (24.0, 9.0)
    assert dict(zip(rows.tolist(), values[:, 0].tolist())) == {5: 2.0, 1: 1.0} and touched == 2
    assert collectives(graph.get_operations()) == [] and found.pushes == found.connections == []


def test_several_workers_have_the_mean_of_dense_gradients_and_the_rows_of_all():
    weight, table = tf.Variable(3.0), on_every_worker()
    loss = weight * 8.0 + tf.reduce_sum(tf.gather(table.variable, [5, 1, 5])) * 6.0
    found = gradients_of(loss, [weight], [table], size=2)
    assert collectives(found.reduced) == ['HorovodAllreduce']
    (part,) = found.parts
    assert collectives(list(part.gradients)) == ['HorovodAllgather'] * 2
    # As if the other worker had nothing.
    of_weight, (_, values) = run([found.reduced[0], list(part.gradients)])
    assert of_weight == 4.0 and values[:, 0].tolist() == [6.0, 3.0]


def test_nothing_is_written_before_the_worker_has_all_its_gradients():
    weight, table = tf.Variable(3.0), on_every_worker()
    other = tf.identity(weight, 'other')
    loss = weight + tf.reduce_sum(tf.gather(table.variable, [5, 1]))
    found = gradients_of(loss, [weight], [table], other_reads=[other.op])
    for written in [found.reduced[0], found.parts[0].gradients.values]:
        assert found.computed in graph_queries.ancestors([written])
    assert {loss.op, other.op} <= graph_queries.ancestors([found.computed])


@pytest.mark.parametrize(
    'reduction, expected', [(exchange.MEAN, [1.0, 0.5]), (exchange.SUM, [0.5, 0.5])]
)
def test_a_bound_is_one_of_the_gradient_of_the_joined_batch(reduction, expected):
    variable = tf.Variable(VALUES)
    rows = tf.gather(variable, [1, 4])
    loss = tf.reduce_sum(rows * [[9.0], [1.0]])
    found = gradients_of(loss, [variable], (), 2, reduction, bounds=Bounds(clipvalue=1.0))
    assert found.looked_up == {variable}
    gradient = run(found.reduced[0])
    # Each worker's gradient is of a batch of its own, and divided by two when they are joined.
    assert gradient[[1, 4], 0].tolist() == expected


def test_a_penalty_counts_as_often_as_the_loss_has_it():
    class Record:
        penalties = []

    table, without = on_every_worker(Record()), on_every_worker()
    penalty = tf.reduce_sum(tf.square(table.variable.value()))
    Record.penalties = [penalty]
    rows = [tf.reduce_sum(tf.gather(one.variable, [1])) for one in (table, without)]
    loss = tf.add_n(rows) + 3.0 * penalty
    found = gradients_of(loss, (), [table, without])
    assert run(found.penalty_factor(table)) == 3.0
    assert found.penalty_factor(without) is None


def test_squares_are_summed_over_the_owners_of_shards_and_only_once():
    table, squares = on_shards(), {}
    found = gradients_of(tf.reduce_sum(tf.gather(table.variable, [5])), (), [table], size=2)
    squares[table] = tf.constant(5.0)
    total = found.sum_over_owners(squares)
    assert collectives([total[table]]) == ['HorovodAllreduce'] and len(found.totals) == 1
    assert found.sum_over_owners(squares) is total and len(found.totals) == 1
    whole = on_every_worker()
    alone = gradients_of(tf.reduce_sum(tf.gather(whole.variable, [5])), (), [whole], size=2)
    assert alone.sum_over_owners({whole: 5.0}) == {whole: 5.0}


def test_the_norm_of_rows_that_are_clipped_is_taken_before_repeats_are_summed():
    table, weight = on_every_worker(), tf.Variable(VALUES)
    rows = [tf.gather(one, [5, 1, 5]) for one in (table.variable, weight)]
    loss = tf.reduce_sum(rows[0]) + 2.0 * tf.reduce_sum(rows[1])
    found = gradients_of(loss, [weight], [table], bounds=Bounds(clipnorm=1.0))
    squares = run(found.row_squares({table: tf.constant(100.0)}))
    # Three rows of two numbers; and what else there is of a table, such as a penalty's.
    assert squares == {table: 106.0, weight: 24.0}
