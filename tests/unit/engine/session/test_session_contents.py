# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a session holds besides variables, and how it comes into another session."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.compat import tensorflow_api
from keras_parallax.engine.session.session_contents import Contents, holders_among, keep


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def iterator_over(dataset):
    """An iterator that a session initializes."""
    if hasattr(tf.data, 'make_initializable_iterator'):
        return tf.data.make_initializable_iterator(dataset)
    return dataset.make_initializable_iterator()


def test_variables_are_no_contents_and_what_has_a_shared_name_is(graph):
    shards.variable_of(1.0, by_resource=True)
    shards.variable_of(1.0, by_resource=False)
    queue = tf.FIFOQueue(1, [tf.float32])
    tf.constant(1.0)
    assert holders_among(graph.get_operations()) == [queue.queue_ref.op]


def test_what_has_no_name_gets_that_of_its_operation_and_a_container(graph):
    own, named = tf.FIFOQueue(1, [tf.float32]), tf.FIFOQueue(1, [tf.float32], shared_name='mine')
    for queue, name in [(own, own.queue_ref.op.name), (named, 'mine')]:
        assert keep(queue.queue_ref.op, 'a container') is None
        assert queue.queue_ref.op.get_attr('shared_name').decode() == name
        assert queue.queue_ref.op.get_attr('container').decode() == 'a container'
    with graph.container('another'):
        contained = tf.FIFOQueue(1, [tf.float32])
    keep(contained.queue_ref.op, 'a container')
    assert contained.queue_ref.op.get_attr('container').decode() == 'another'


def test_a_lookup_table_has_the_same_entries_in_the_next_session():
    lookup = tensorflow_api.lookup_ops
    table = lookup.mutable_hash_table_v2(key_dtype=tf.string, value_dtype=tf.int64)
    insert = lookup.lookup_table_insert_v2(table, ['a', 'b'], tf.constant([5, 7], tf.int64))
    found = lookup.lookup_table_find_v2(table, ['b', 'a', 'c'], tf.constant(-1, tf.int64))
    with tf.Session() as first, tf.Session() as second:
        first.run(insert)
        assert second.run(found).tolist() == [-1, -1, -1]
        contents = Contents(first)
        assert contents.lost == []
        contents.load(second, '')
        assert second.run(found).tolist() == [7, 5, -1]


def test_an_iterator_goes_on_where_the_earlier_session_was():
    iterator = iterator_over(tf.data.Dataset.range(5))
    following = iterator.get_next()
    with tf.Session() as first, tf.Session() as second:
        first.run(iterator.initializer)
        assert [first.run(following) for _ in range(2)] == [0, 1]
        contents = Contents(first)
        assert contents.lost == [] and len(contents.iterators) == 1
        contents.load(second, '')
        assert [second.run(following) for _ in range(3)] == [2, 3, 4]


def test_an_iterator_that_nobody_has_initialized_is_neither_copied_nor_lost():
    iterator = iterator_over(tf.data.Dataset.range(5))
    with tf.Session() as first:
        contents = Contents(first)
    assert contents.lost == [] and list(contents.iterators) == []
    assert iterator.initializer is not None


def test_an_iterator_that_can_be_neither_written_down_nor_made_again_is_lost():
    given = tf.placeholder(tf.int64, [None])
    dataset = tf.data.Dataset.from_tensor_slices(given).map(
        lambda number: tf.py_func(lambda one: np.int64(one + 1), [number], tf.int64)
    )
    iterator = iterator_over(dataset)
    following = iterator.get_next()
    with tf.Session() as first:
        first.run(iterator.initializer, {given: [3, 4]})
        assert first.run(following) == 4
        contents = Contents(first)
    assert len(contents.lost) == 1 and list(contents.iterators) == []
