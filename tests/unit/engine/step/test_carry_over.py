# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How weights move to those that take their place."""

import numpy as np
from frameworks import tf

from keras_parallax.engine.step.carry_over import carry_over
from keras_parallax.engine.tables import row_transfer as rows_module
from keras_parallax.engine.tables.row_transfer import ShardedRows


class Versions(tf.Session):
    """A session that notes the version of the graph at each run."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def run(self, *arguments, **options):
        result = super().run(*arguments, **options)
        self.seen.append(self.graph.version)
        return result


def rows_of(values, shards):
    variables = [tf.Variable(values[number::shards]) for number in range(shards)]
    return ShardedRows(variables[0].name, variables, values.shape)


def test_weights_are_carried_over_by_operations_that_a_session_learns_of_at_once():
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    with tf.Graph().as_default(), Versions() as session:
        olds = [rows_of(values + number, 2) for number in range(3)]
        olds += [tf.Variable(values + 3), tf.Variable(7.0), tf.Variable(8.0)]
        news = [rows_of(0 * values, 3) for _ in range(4)] + [tf.Variable(0.0), tf.Variable(0.0)]
        session.run(tf.global_variables_initializer())
        del session.seen[:]
        carry_over(zip(olds, news), session, rank=0, size=1)
        # Those in shards are read at once and written at once, and so are the others.
        assert len(session.seen) == 4 and len(set(session.seen)) == 1
        for number, rows in enumerate(news[:4]):
            np.testing.assert_array_equal(rows.read_all(session), values + number)
        assert session.run(news[4:]) == [7.0, 8.0]


def test_slots_of_a_table_that_stays_are_not_copied():
    with tf.Graph().as_default(), Versions() as session:
        old = rows_of(np.ones([4, 2], np.float32), 2)
        same = ShardedRows(old.name, list(old.shards), old.shape)
        carry_over([(old, same)], session, rank=0, size=1)
        assert session.seen == []


def test_what_every_rank_holds_and_what_is_in_shards_moves_in_blocks_all_of_it_side_by_side(
    monkeypatch,
):
    monkeypatch.setattr(rows_module, 'BLOCK_BYTES', 2**20)
    values = np.random.RandomState(0).uniform(size=(20000, 3)).astype(np.float32)
    fetched = []

    class Fetches(Versions):
        def run(self, fetches, *arguments, **options):
            fetched.append(str(fetches))
            return super().run(fetches, *arguments, **options)

    with tf.Graph().as_default(), Fetches() as session:
        olds = [rows_of(values, 2), rows_of(values + 1, 3), tf.Variable(values + 2)]
        olds += [rows_of(values[:7] + 3, 2)]
        news = [rows_of(0 * values, 3), tf.Variable(0 * values), tf.Variable(0 * values)]
        news += [rows_of(0 * values[:7], 1)]
        session.run(tf.global_variables_initializer())
        for rank in range(2):
            del fetched[:]
            carry_over(zip(olds, news), session, rank=rank, size=2)
            # A session takes long for what it has not run before: to read and to write what is in
            # shards, to read and to write what is not, and to make room for that.
            assert len(set(fetched)) == 5 < len(fetched)
        np.testing.assert_array_equal(news[0].read_all(session), values)
        np.testing.assert_array_equal(session.run(news[1]), values + 1)
        np.testing.assert_array_equal(session.run(news[2]), values + 2)
        np.testing.assert_array_equal(news[3].read_all(session), values[:7] + 3)
