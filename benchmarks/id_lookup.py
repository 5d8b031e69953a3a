# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which of TensorFlow's ways finds the rows of raw ids fastest, and gives rows to new ones.

    python benchmarks/id_lookup.py

Prints a table of medians, in milliseconds: to find the rows of a batch's ids among a million, and
to add some that are new. `DynamicEmbedding` has one of the ways for each shard.
"""

import statistics
import time

import click
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_lookup_ops as lookup_ops

#: No id, and an id that was taken away, as `MutableDenseHashTable` has them.
_NONE, _DELETED = -(2**63), -(2**63) + 1


#: How often a million places are halved until one is left; of more, it is more.
_HALVINGS = 21


class Hashed:
    """`MutableHashTable`: a list for each bucket."""

    def __init__(self, ids, asked, new):
        self.table = self.made()
        rows = tf.range(tf.size(ids, out_type=tf.int64))
        self.fill = lookup_ops.lookup_table_insert_v2(self.table, ids, rows)
        self.find = lookup_ops.lookup_table_find_v2(self.table, asked, tf.constant(-1, tf.int64))
        size = lookup_ops.lookup_table_size_v2(self.table)
        rows = size + tf.range(tf.size(new, out_type=tf.int64))
        self.add = lookup_ops.lookup_table_insert_v2(self.table, new, rows)

    def made(self):
        """The table's handle."""
        return lookup_ops.mutable_hash_table_v2(tf.int64, tf.int64)


class Dense(Hashed):
    """`MutableDenseHashTable`: one array, half of it empty at least."""

    def made(self):
        """The table's handle."""
        empty = {'empty_key': tf.constant(_NONE, tf.int64), 'value_dtype': tf.int64}
        if 'deleted_key' in lookup_ops.mutable_dense_hash_table_v2.__code__.co_varnames:
            empty['deleted_key'] = tf.constant(_DELETED, tf.int64)
        return lookup_ops.mutable_dense_hash_table_v2(max_load_factor=0.5, **empty)


class Sorted:
    """Ids in order, and the row of each; new ones are put in by sorting all."""

    def __init__(self, ids, asked, new):
        self.ids = tf.Variable(tf.constant([], tf.int64), validate_shape=False, trainable=False)
        self.rows = tf.Variable(tf.constant([], tf.int64), validate_shape=False, trainable=False)
        self.fill = self._merged(ids, tf.range(tf.size(ids, out_type=tf.int64)))
        known = tf.size(self.ids)
        places = tf.minimum(self._places(asked, known), known - 1)
        is_known = tf.equal(tf.gather(self.ids, places), asked)
        found = tf.gather(self.rows, places)
        self.find = tf.where(is_known, found, -tf.ones_like(found))
        count = tf.size(new, out_type=tf.int64)
        self.add = self._merged(new, tf.cast(known, tf.int64) + tf.range(count))

    def _places(self, asked, known):
        """As `tf.searchsorted`, which TensorFlow 1.11 has not: bisection of all at once."""
        low = tf.zeros_like(asked, tf.int32)
        high = tf.fill(tf.shape(asked), known)
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            less = tf.gather(self.ids, tf.minimum(middle, known - 1)) < asked
            less = tf.logical_and(less, low < high)
            low, high = tf.where(less, middle + 1, low), tf.where(less, high, middle)
        return low

    def _merged(self, ids, rows):
        ids, rows = tf.concat([self.ids, ids], 0), tf.concat([self.rows, rows], 0)
        # TensorFlow 1.11 sorts the largest first.
        order = tf.reverse(tf.nn.top_k(ids, tf.size(ids)).indices, [0])
        ids, rows = tf.gather(ids, order), tf.gather(rows, order)
        return tf.group(
            tf.assign(self.ids, ids, validate_shape=False),
            tf.assign(self.rows, rows, validate_shape=False),
        )


def measured(way, ids, size, new, rounds):
    """Medians of the milliseconds that it takes to find ids, and to add new ones."""
    random, seconds = np.random.RandomState(1), {'find': [], 'add': []}
    with tf.Graph().as_default(), tf.Session() as session:
        fed = [tf.placeholder(tf.int64, [None]) for _ in range(3)]
        made = way(*fed)
        session.run(tf.global_variables_initializer())
        session.run(made.fill, {fed[0]: ids[: -new * rounds]})
        for number in range(rounds):
            asked = random.choice(len(ids) - new * rounds, size, replace=False)
            begin = time.perf_counter()
            found = session.run(made.find, {fed[1]: ids[asked]})
            seconds['find'].append(time.perf_counter() - begin)
            assert (found == asked).all()
            added = ids[len(ids) - new * (number + 1) :][:new]
            begin = time.perf_counter()
            session.run(made.add, {fed[2]: added})
            seconds['add'].append(time.perf_counter() - begin)
    return {name: 1000 * statistics.median(of) for name, of in seconds.items()}


@click.command()
@click.option('--rows', default=1000000, help='How many ids are known.')
@click.option('--size', default=100000, help='How many different ids are asked for.')
@click.option('--new', default=1000, help='How many are added after each.')
@click.option('--rounds', default=9)
def main(rows, size, new, rounds):
    """Measures each way, and prints what it takes."""
    random = np.random.RandomState(0)
    ids = np.unique(random.randint(_DELETED + 1, 2**63 - 1, rows + new * rounds, dtype=np.int64))
    random.shuffle(ids)
    print('%-10s %8s %8s' % ('', 'find', 'add'))
    for way in (Hashed, Dense, Sorted):
        medians = measured(way, ids, size, new, rounds)
        print('%-10s %8.1f %8.1f' % (way.__name__.lower(), medians['find'], medians['add']))


if __name__ == '__main__':
    main()
