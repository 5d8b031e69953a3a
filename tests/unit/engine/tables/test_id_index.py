# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""An index gives each id one row, whoever asks at the same time."""

import threading
import time

import numpy as np
from frameworks import TF2, tf

from keras_parallax.engine.tables.id_index import IdIndex
from keras_parallax.engine.tables.id_part import NO_ID

ROWS = 2000


def slowly(ids):
    """First values, which take so long that others ask meanwhile."""
    time.sleep(0.005)
    return ids.astype(np.float32)[:, None]


def test_ids_that_arrive_at_the_same_time_get_a_row_each():
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable(tf.zeros([ROWS, 1]), use_resource=TF2)
        ids = tf.Variable(tf.fill([ROWS], tf.constant(NO_ID, tf.int64)), use_resource=TF2)
        index = IdIndex(table, {'ids': ids}, lambda new: tf.py_func(slowly, [new], tf.float32))
        asked = tf.placeholder(tf.int64, [None])
        rows = index.rows_of(asked, tf.constant(True))
        rebuilt = index.rebuilt()
        session.run(tf.global_variables_initializer())
        got = {}

        def ask(seed):
            random = np.random.RandomState(seed)
            for _ in range(20):
                batch = np.unique(random.randint(-900, 900, 90))
                got.setdefault(seed, []).extend(zip(batch, session.run(rows, {asked: batch})))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pairs = set(pair for of_thread in got.values() for pair in of_thread)
        by_id = dict(pairs)
        assert len(got) == 4 and len(by_id) > 1000
        assert sorted(by_id.values()) == list(range(len(by_id))), 'rows are not given one by one'
        assert len(pairs) == len(by_id), 'an id has two rows'
        values, of_rows = session.run([table, ids])
        for id_, row in by_id.items():
            assert values[row, 0] == of_rows[row] == id_
        # And made again of what the weight says, it is the same.
        session.run(rebuilt)
        np.testing.assert_array_equal(session.run(rows, {asked: list(by_id)}), list(by_id.values()))
        assert session.run(rows, {asked: [5000]})[0] == len(by_id)
