# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A script's own writes to a table, carried out on its shards."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import graph_queries
from keras_parallax.engine.tables import script_writes
from keras_parallax.engine.tables.script_writes import ADD, ASSIGN, SUB, Write

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)
ROWS = np.array([5, 0, 5])


@pytest.mark.parametrize('by_resource', shards.KINDS)
def test_the_kind_of_a_write_is_told_by_its_operation(by_resource):
    with tf.Graph().as_default():
        variable = shards.variable_of(VALUES, by_resource)
        written = {
            ASSIGN: tf.assign(variable, VALUES),
            ADD: tf.assign_add(variable, VALUES),
            SUB: tf.assign_sub(variable, VALUES),
            'Update': tf.scatter_update(variable, [1], VALUES[:1]),
            'Add': tf.scatter_add(variable, [1], VALUES[:1]),
            None: tf.scatter_nd_update(variable, [[1]], VALUES[:1]),
        }
        found = [script_writes.kind_of(getattr(one, 'op', one)) for one in written.values()]
        assert found == list(written)


@pytest.mark.parametrize('servers', [(0,), (0, 1, 2)])
@pytest.mark.parametrize(
    'kind, operands, expected',
    [
        (ASSIGN, [VALUES * 3], VALUES * 3),
        (ADD, [VALUES], VALUES * 2),
        (SUB, [VALUES], VALUES * 0),
        ('Add', [ROWS, np.ones([3, 2])], VALUES + [[1], [0], [0], [0], [0], [2], [0]]),
        ('Mul', [ROWS[:2], 2.0], VALUES * [[2], [1], [1], [1], [1], [2], [1]]),
    ],
)
def test_one_process_writes_to_every_shard(servers, kind, operands, expected):
    with tf.Graph().as_default(), tf.Session() as session:
        table = shards.table_of(VALUES, servers)
        shards.made_front(table)
        shards.fill(table, VALUES, session)
        operands = [
            tf.constant(one, tf.int32 if one is operands[0] and len(operands) > 1 else tf.float32)
            for one in operands
        ]
        session.run(script_writes.build(table, Write(kind, operands, 'write', [])))
        np.testing.assert_allclose(shards.contents(table, session), expected, rtol=1e-6)


def built(kind, operands=None, reads_itself=False, rank=0):
    """The types of what a worker of two runs for a write, and the shards that it writes to."""
    table = shards.table_of(VALUES, (0, 1, 2), rank=rank, size=2)
    shards.made_front(table)
    value = table.variable.value() * 2.0 if reads_itself else tf.constant(VALUES)
    (*operations,) = script_writes.build(table, Write(kind, [value], 'write', []))
    run = graph_queries.ancestors(operations)
    storages = {shard.op: number for number, shard in enumerate(table.shards)}
    writes = [one for one in run if script_writes.kind_of(one) and one.inputs[0].op in storages]
    collectives = [one for one in run if one.type.startswith('Horovod')]
    return sorted(storages[one.inputs[0].op] for one in writes), len(collectives)


def test_any_of_several_workers_writes_values_that_do_not_depend_on_a_table():
    with tf.Graph().as_default():
        assert built(ASSIGN) == ([0, 1, 2], 0)


@pytest.mark.parametrize('kind, reads_itself', [(ADD, False), (ASSIGN, True)])
@pytest.mark.parametrize('rank, own', [(0, [0, 2]), (1, [1])])
def test_of_several_workers_each_writes_what_depends_on_a_table_to_its_own_shards(
    kind, reads_itself, rank, own
):
    with tf.Graph().as_default():
        # They wait for each other before and after.
        assert built(kind, reads_itself=reads_itself, rank=rank) == (own, 2)


def test_a_table_that_every_worker_holds_is_written_where_it_is():
    with tf.Graph().as_default(), tf.Session() as session:
        table = shards.table_of(VALUES, (0, 1), size=2)
        table.follow(shards.planned(servers=()))
        session.run(table.variable.initializer)
        session.run(script_writes.build(table, Write(ADD, [tf.constant(VALUES)], 'write', [])))
        np.testing.assert_array_equal(session.run(table.variable), VALUES * 2)
