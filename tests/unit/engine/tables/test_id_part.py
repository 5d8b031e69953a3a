# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One shard of a table of ids: which rows it gives, takes back and finds again."""

import numpy as np
import pytest
from frameworks import TF2, tf
from shards import variable_of

from keras_parallax.compat import index_storage
from keras_parallax.engine.tables import id_hashes, id_part
from keras_parallax.engine.tables.id_part import IDS, LAST_STEPS, NO_ID, STEPS_USED, WITHOUT_ROW

ROWS = 8


class Shard:
    """Shard 1 of 3, in a session of its own."""

    def __init__(self):
        self.values = variable_of(tf.zeros([ROWS, 1]), TF2)
        self.beside = {
            name: variable_of(tf.fill([ROWS], tf.constant(start, tf.int64)), TF2)
            for name, start in ((IDS, NO_ID), (LAST_STEPS, -1), (STEPS_USED, 0))
        }
        storages = {name: index_storage.storage_of(weight) for name, weight in self.beside.items()}
        storages[None] = index_storage.storage_of(self.values)
        self.part = id_part.make_part(1, 3, ROWS, None, 3 * ROWS, None, 'part', storages)
        self.session = tf.Session()
        self.session.run(tf.global_variables_initializer())

    def give(self, *ids):
        given = tf.constant(ids, tf.int64)
        number = tf.constant(len(ids), tf.int64)
        self.run(self.part.give(given, number, lambda new: tf.to_float(new)[:, None], 1))

    def take_away(self, *places):
        """As an eviction does: the rows lose their ids, and are counted as free."""
        where = tf.constant(places, tf.int64)
        gone = self.part.storages[IDS].write(where, tf.fill([len(places)], tf.constant(NO_ID)))
        with tf.control_dependencies([gone]):
            self.run(self.part.give_back(where))

    def find(self, *ids):
        return self.run(self.part.find(tf.constant(ids, tf.int64))).tolist()

    def run(self, fetches):
        return self.session.run(fetches)


@pytest.fixture
def shard():
    with tf.Graph().as_default():
        shard = Shard()
        with shard.session:
            yield shard


def test_ids_get_the_next_rows_and_are_found_by_the_number_that_the_whole_table_gives_them(shard):
    shard.give(70, -5)
    shard.give(9)
    # Row 0, 1 and 2 of shard 1 of 3.
    assert shard.find(70, -5, 9, 4) == [1, 4, 7, WITHOUT_ROW]
    assert shard.run(shard.values)[:3, 0].tolist() == [70, -5, 9]
    assert shard.run(shard.beside[STEPS_USED])[:4].tolist() == [1, 1, 1, 0]
    assert list(shard.run(shard.part.taken())) == [3, 0]
    assert shard.run(shard.part.number_of(id_part.GIVEN)) == 3


def test_rows_that_were_given_back_are_given_again_before_new_ones(shard):
    shard.give(10, 11, 12)
    shard.take_away(1)
    assert list(shard.run(shard.part.taken())) == [3, 1]
    shard.give(20, 21)
    assert shard.find(20, 21) == [1 * 3 + 1, 3 * 3 + 1]
    assert list(shard.run(shard.part.taken())) == [4, 0]


def test_the_index_is_made_again_from_what_the_weight_says(shard):
    shard.give(10, 11, 12, 13)
    shard.take_away(1)
    ids, rows = shard.part.known()
    assert sorted(shard.run(ids).tolist()) == [10, 12, 13]
    # As if another job had loaded the weight.
    nothing = tf.zeros([0], tf.int64)
    shard.run(
        [shard.part.table.replace(nothing, nothing), shard.part.free.replace(nothing, nothing)]
    )
    assert shard.find(10) == [WITHOUT_ROW]
    shard.run(shard.part.refilled(ids, rows))
    assert shard.find(10, 11, 12, 13) == [1, WITHOUT_ROW, 7, 10]
    assert list(shard.run(shard.part.taken())) == [4, 1]
    shard.give(20)
    assert shard.find(20) == [4]


def test_numbers_are_added_up(shard):
    shard.run(shard.part.add_numbers({id_part.ASKED: 4, id_part.EVICTED: 1}))
    shard.run(shard.part.add_numbers({id_part.ASKED: tf.constant(3, tf.int64)}))
    shard.run(shard.part.set_numbers({id_part.EVICTED: 9}))
    found = [shard.run(shard.part.number_of(key)) for key in (id_part.ASKED, id_part.EVICTED)]
    assert found == [7, 9]


def test_ids_are_split_by_their_hash_and_rows_by_their_number():
    ids = np.array([3, -8, 2**40, 17, 0], np.int64)
    with tf.Graph().as_default(), tf.Session() as session:
        storages = {None: None}
        parts = [
            id_part.make_part(number, 3, 4, None, 12, None, 'part_%d' % number, storages)
            for number in range(3)
        ]
        homes = session.run(id_hashes.homes_of(tf.constant(ids), 12)) % 3
        (of_parts,) = id_part.split(tf.constant(ids), parts, tf.constant(ids))
        for number, found in enumerate(session.run(of_parts)):
            assert found.tolist() == ids[homes == number].tolist()
        (by_row,) = id_part.split_rows(tf.constant([0, 1, 5, 3], tf.int64), parts, tf.range(4))
        assert [found.tolist() for found in session.run(by_row)] == [[0, 3], [1], [2]]
        column = tf.range(2)
        assert id_part.split(tf.constant([1, 2], tf.int64), parts[:1], column) == [[column]]
