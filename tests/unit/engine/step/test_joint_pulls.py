# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which tables' rows are pulled together outside of training steps."""

import numpy as np
import pytest
import shards
from frameworks import tf

from keras_parallax.engine.step.joint_pulls import joint_pulls
from keras_parallax.engine.tables.pull import pull

RANDOM = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def pulled(ids, *shapes):
    """Dict from tables of some shapes to their pulls of some ids, and the values of the tables."""
    pulls, values = {}, {}
    for shape in shapes:
        whole = RANDOM.normal(size=shape).astype(np.float32)
        table = shards.table_of(whole, name='table_%d_%d' % (len(pulls), len(shape)))
        pulls[table] = [pull(table, [ids])]
        values[table] = whole
    return pulls, values


def test_tables_of_the_same_ids_and_small_tables_are_pulled_together_and_have_their_rows():
    ids = tf.placeholder(tf.int32, [None])
    pulls, values = pulled(ids, (9, 4), (9, 4), (9, 1))
    other, of_other = pulled(tf.constant([2, 0]), (8, 3))
    connections = joint_pulls({**pulls, **other})
    found = {connection.replaced: connection.replacement for connection in connections}
    # One of other ids and another shape has nobody to be pulled with.
    assert set(found) == {pulls[table][0].rows for table in pulls}
    with tf.Session() as session:
        for table, whole in list(values.items()) + list(of_other.items()):
            shards.fill(table, whole, session)
        for table, (own,) in pulls.items():
            asked, rows = session.run([own.split.ids, found[own.rows]], {ids: [7, 1, 7]})
            np.testing.assert_array_equal(rows, values[table][asked])


def test_a_group_within_a_group_is_read_through_the_outer_one_alone():
    first, _ = pulled(tf.constant([1, 2]), (9, 4), (9, 2))
    second, _ = pulled(tf.constant([3]), (9, 4), (9, 2))
    connections = joint_pulls({**first, **second})
    replaced = [connection.replaced for connection in connections]
    assert len(replaced) == len(set(replaced)) == 4


def test_what_has_nobody_to_be_pulled_with_is_left_as_it_is(graph):
    pulls, _ = pulled(tf.constant([1, 2]), (9, 4))
    before = len(tf.get_default_graph().get_operations())
    assert joint_pulls(pulls) == []
    assert len(tf.get_default_graph().get_operations()) == before
