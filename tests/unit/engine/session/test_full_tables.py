# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is said of a table that has no row for a new id."""

from types import SimpleNamespace

import pytest
from frameworks import TF1_6, TF2, tf
from shards import variable_of

from keras_parallax.engine.session import full_tables
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.tables.id_index import IdIndex
from keras_parallax.engine.tables.id_part import LAST_STEPS, NO_ID
from keras_parallax.engine.tables.id_policies import Eviction

pytestmark = pytest.mark.skipif(TF1_6, reason='nothing gives rows to ids')


def scope_of(eviction=None, ids=(5, 6, 7)):
    """A scope with the table of a layer called `users`, in which some ids have rows."""
    table = variable_of(tf.zeros([8, 1]), TF2)
    beside = {'ids': variable_of(tf.fill([8], tf.constant(NO_ID, tf.int64)), TF2)}
    if eviction is not None:
        beside[LAST_STEPS] = variable_of(tf.zeros([8], tf.int64), TF2)
    index = IdIndex(table, beside, lambda new: tf.to_float(new)[:, None], None, eviction)
    rows = index.rows_of(tf.constant(ids, tf.int64), tf.constant(True))
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    session.run(rows)
    records = {
        variable: SimpleNamespace(layer_name=name)
        for variable, name in [(table, 'users'), (beside['ids'], 'users'), (tf.Variable(1.0), 'd')]
    }
    return SimpleNamespace(records=records, lock=lock_of(table.graph), session=session)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def test_the_table_of_the_layer_that_the_message_names_is_described():
    said = full_tables.described(scope_of(), 'the table of users has no row left')
    assert said == ' 3 of its 8 rows have an id.'


def test_the_table_of_another_layer_is_not():
    assert full_tables.described(scope_of(), 'the table of users_2 has no row left') == ''


def test_a_table_from_which_ids_are_evicted_is_not_full():
    assert full_tables.described(scope_of(Eviction()), 'the table of users has no row left') == ''
