# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is built on the former storage of a sharded table uses the shards."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import tensorflow_api
from keras_parallax.engine.tables import former_storage
from keras_parallax.engine.tables.pull import REFUSAL_MARK

VALUES = np.random.RandomState(0).normal(size=(7, 2)).astype(np.float32)


@pytest.fixture(params=shards.KINDS)
def table(request):
    """A table whose variable holds other values than the shards."""
    with tf.Graph().as_default(), tf.Session():
        yield shards.table_of(VALUES - 100, by_resource=request.param)


def run(fetches):
    return tf.get_default_session().run(fetches)


def redirected(table):
    """Has what there is use the shards, which it fills."""
    shards.made_front(table)
    former_storage.redirect([table])
    shards.fill(table, VALUES, tf.get_default_session())


def test_what_has_read_the_variable_reads_the_shards(table):
    whole = table.variable * 2.0
    rows = tf.gather(table.variable.value(), [3, 1])
    there = tf.identity(tf.is_variable_initialized(table.variable))
    redirected(table)
    np.testing.assert_array_equal(run(whole), VALUES * 2)
    np.testing.assert_array_equal(run(rows), VALUES[[3, 1]])
    assert run(there)  # Although nothing has initialized the variable itself.


def test_what_writes_to_the_variable_writes_to_the_shards(table):
    more = tf.placeholder(tf.float32, [7, 2])
    added = tf.assign_add(table.variable, more)
    scattered = tf.scatter_update(table.variable, [5, 2], [[8.0, 8.0], [9.0, 9.0]])
    redirected(table)
    session = tf.get_default_session()
    session.run(added.op, {more: VALUES})
    expected = VALUES * 2
    np.testing.assert_array_equal(shards.contents(table, session), expected)
    run(scattered.op)
    expected[[5, 2]] = [[8, 8], [9, 9]]
    np.testing.assert_array_equal(shards.contents(table, session), expected)
    assert {added.op, scattered.op} == set(table.former.written)


def test_a_read_that_waits_for_a_write_has_what_was_written(table):
    doubled = tf.assign_add(table.variable, tf.constant(VALUES))
    with tf.control_dependencies([doubled]):
        after = tf.identity(table.variable.read_value())
    redirected(table)
    np.testing.assert_array_equal(run(after), VALUES * 2)
    after_writes = table.former.wholes
    assert after_writes and all(table.former.whole is not whole for whole in after_writes)


def test_what_a_variable_was_made_with_rests_until_a_run_needs_it(table):
    storage = table.variable.op.outputs[0]
    made_with = set(tensorflow_api.consumers(storage))
    table.former = shards.made_front(table)
    reads = {one for one in made_with if one.type in ('Identity', 'ReadVariableOp')}
    assert table.former.resting == {table.variable.initializer} | reads and reads
    former_storage.redirect([table])
    assert table.former.wholes == table.former.written == []
    for read in reads:
        assert former_storage.fetches_of([table])[read.outputs[0].name] is table.variable
    (read, *_) = sorted(reads, key=tensorflow_api.operation_id)
    doubled = read.outputs[0] * 2.0
    with tf.control_dependencies([read]):
        waiting = tf.constant(5)
    assert not table.former.wake({doubled.op})
    assert table.former.wake({read, table.variable.initializer, waiting.op})
    former_storage.redirect([table])
    session = tf.get_default_session()
    shards.fill(table, VALUES, session)
    np.testing.assert_array_equal(run(doubled), VALUES * 2)
    assert run(waiting) == 5  # Although nothing has initialized the variable itself.
    assert table.former.written == [table.variable.initializer]
    run(table.variable.initializer)
    np.testing.assert_array_equal(shards.contents(table, session), VALUES - 100)
    assert not table.former.wake({read, table.variable.initializer})


def test_a_write_that_shards_cannot_do_says_so_when_it_is_run(table):
    written = tf.scatter_nd_update(table.variable, [[0, 1]], [5.0])
    redirected(table)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSAL_MARK):
        run(written.op)
    np.testing.assert_array_equal(shards.contents(table, tf.get_default_session()), VALUES)


def test_what_is_built_to_use_the_storage_itself_goes_on_with_it(table):
    shards.made_front(table)
    shards.fill(table, VALUES, tf.get_default_session())
    storage = table.former.storage
    before = tensorflow_api.read_of(storage, tf.float32) * 1.0
    table.former.leave(tensorflow_api.consumers(storage))
    run(storage.op.name + '/Assign')
    former_storage.redirect([table])
    np.testing.assert_array_equal(run(before), VALUES - 100)


def test_reads_and_writes_follow_a_table_to_other_shards(table):
    whole = table.variable * 1.0
    added = tf.assign_add(table.variable, tf.ones([7, 2]))
    redirected(table)
    run(added.op)
    table.follow(shards.planned(servers=(2, 0, 1)))
    table.make_shards()
    table.former.rebuild()
    with tf.Session() as session:  # One that has run the graph would go on with it as it was.
        shards.fill(table, VALUES * 3, session)
        session.run(added.op)
        np.testing.assert_array_equal(session.run(whole), VALUES * 3 + 1)
        np.testing.assert_array_equal(shards.contents(table, session), VALUES * 3 + 1)
