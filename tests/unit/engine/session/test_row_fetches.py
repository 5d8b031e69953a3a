# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What of a session's fetches is moved in blocks, and what stands for rows meanwhile."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.session import row_fetches
from keras_parallax.engine.session.row_fetches import Detours
from keras_parallax.engine.tables.row_transfer import ShardedRows

VALUES = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def rows_of(session, values=VALUES, name='table:0', table=None):
    """`ShardedRows` of two shards that have values."""
    variables = [tf.Variable(values[number::2]) for number in range(2)]
    session.run([variable.initializer for variable in variables])
    return ShardedRows(name, variables, values.shape, table)


def run(session, fetches, feeds=None, detours=None, written=None):
    """Runs fetches; `written` hears of the names whose writes are given an order."""

    def write_order(names, write, skip):
        if written is not None:
            written.extend(names)
        write()

    return row_fetches.run(session.run, session, fetches, feeds, detours or Detours(), write_order)


def test_results_are_in_the_order_and_in_the_kind_of_list_in_which_they_were_asked_for(session):
    rows, number = rows_of(session), tf.constant(3)
    found = run(session, (number, rows, number + 1))
    assert type(found) is tuple and (found[0], found[2]) == (3, 4)
    np.testing.assert_array_equal(found[1], VALUES)
    assert type(run(session, [number])) is list
    np.testing.assert_array_equal(run(session, rows), VALUES)
    assert run(session, {'a': number}) == {'a': 3}


def test_the_rows_of_tables_are_written_in_the_order_of_the_job_and_slots_at_once(session):
    table, slot = rows_of(session, table='a table'), rows_of(session, name='slot:0')
    feeds = {table.assignment.placeholder: VALUES * 2, slot.assignment.placeholder: VALUES * 3}
    written = []
    assert run(session, [table.assignment, slot.assignment], feeds, None, written) == [None, None]
    assert written == ['table:0']
    np.testing.assert_array_equal(table.read_all(session), VALUES * 2)
    np.testing.assert_array_equal(slot.read_all(session), VALUES * 3)
    assert len(feeds) == 2  # Those of the caller are as they were.


def test_weights_that_are_left_out_have_no_rows(session):
    variable = tf.Variable(VALUES)
    found = run(session, [variable], None, Detours(omitted=[variable]))
    assert [array.shape for array in found] == [(0, 2)] and found[0].dtype == np.float32


class Source:
    shape, dtype = (5, 2), np.dtype(np.float32)


def test_what_stands_for_rows_has_the_memory_of_one_number_and_is_used_up():
    detours = Detours()
    stand_in = detours.stand_in(Source())
    assert stand_in.shape == (5, 2) and stand_in.strides == (0, 0) and np.isnan(stand_in).all()
    assert detours.unused == 1
    detours.skip(VALUES)
    assert detours.unused == 1
    detours.skip(stand_in)
    assert detours.unused == 0
    whole = Source()
    whole.dtype = np.dtype(np.int64)
    assert not detours.stand_in(whole).any()


def test_rows_that_are_set_to_a_stand_in_are_moved_from_its_source(session):
    moved, source = [], Source()
    detours = Detours(move=lambda rows, source: moved.append((rows, source)))
    rows = rows_of(session)
    # Keras makes another array of the same numbers.
    value = np.asarray(detours.stand_in(source))[:]
    run(session, [rows.assignment], {rows.assignment.placeholder: value}, detours)
    assert moved == [(rows, source)] and detours.unused == 0
    np.testing.assert_array_equal(rows.read_all(session), VALUES)
    run(session, [rows.assignment], {rows.assignment.placeholder: VALUES + 1}, detours)
    assert len(moved) == 1
    np.testing.assert_array_equal(rows.read_all(session), VALUES + 1)


def test_of_a_weight_that_is_set_twice_the_last_value_counts_and_both_stand_ins_are_used(session):
    moved = []
    detours = Detours(move=lambda rows, source: moved.append(source))
    rows, value = rows_of(session), detours.stand_in(Source())
    detours.unused += 1  # Keras has asked for one for each time that it lists the weight.
    run(session, [rows.assignment] * 2, {rows.assignment.placeholder: value}, detours)
    assert len(moved) == 1 and detours.unused == 0
