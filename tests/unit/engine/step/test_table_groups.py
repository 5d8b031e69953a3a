# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which tables are grouped, and that the rows of a group are those of its tables."""

import numpy as np
import pytest
from frameworks import tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.step import table_groups
from keras_parallax.engine.step.exchange import PartGradient, sum_by_row
from keras_parallax.engine.tables.half_precision import compress
from keras_parallax.engine.tables.loss_analysis import describe
from keras_parallax.engine.tables.pull import gather_rows, pull
from keras_parallax.engine.tables.table import Table, as_indices
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import PlannedVariable, make_plan

SERVERS = Servers(devices=('/device:CPU:0',) * 3, owners=(0, 0, 0))


def made(
    name='t',
    shape=(20000, 16),
    servers=(0, 1),
    kind='sparse',
    density=None,
    dtype='float32',
    row_dtype=None,
):
    """A table with a shard on each of `servers`."""
    count = len(servers)
    shards = [Shard(server, len(range(k, shape[0], count))) for k, server in enumerate(servers)]
    plan = PlannedVariable(
        name, shape, dtype, kind, 'a test', tuple(shards), density, row_dtype=row_dtype
    )
    table = Table(tf.Variable(tf.zeros(shape, dtype)), plan, servers=SERVERS)
    table.make_shards()
    return table


def filled(session, random, *args):
    """A table with rows as `random` has them, and the rows."""
    table = made(*args)
    whole = random.normal(size=table.plan.shape).astype(np.float32)
    for number, shard in enumerate(table.shards):
        session.run(shard.initializer)
        shard.load(whole[number :: len(table.shards)], session)
    return table, whole


def pushed(group, split, values, session):
    """What a group's members get as if two workers had pushed `values`: arrays of whole tables."""
    summed = {table: np.zeros(table.plan.shape, np.float32) for table in group.tables}
    for part in group.parts_of(0):
        rows = as_indices(split.rows[part.shard])
        of_shard = tf.gather(values, split.positions[part.shard])
        both = sum_by_row([(rows, of_shard)] * 2)
        for (table, variable, shard), gradients in group.of_tables(PartGradient(part, both)):
            assert variable is table.shards[shard]
            where, what = session.run(list(gradients))
            summed[table][where * len(table.shards) + shard] += what
    return list(summed.values())


@pytest.mark.parametrize(
    'chosen, answer',
    [
        ({}, True),
        # A language model's words: 512 rows of 4 kB.
        ({'shape': (100000, 1024)}, False),
        ({'shape': (100000, 256), 'density': 1700 / 100000}, False),
        ({'shape': (100000, 256), 'density': 100 / 100000}, True),
        # No more than all of it can be touched.
        ({'shape': (30, 1024)}, True),
        ({'kind': 'dense'}, False),
        ({'servers': ()}, False),
    ],
)
def test_tables_of_which_a_step_sends_little_are_small(chosen, answer):
    with tf.Graph().as_default():
        assert table_groups.is_small(made(**chosen)) == answer


def test_small_tables_with_rows_of_one_shape_are_grouped():
    shapes = {'a': (9, 4), 'b': (9, 1), 'c': (800, 4), 'd': (7, 2), 'e': (5, 1), 'f': (10**6, 4096)}
    with tf.Graph().as_default():
        tables = [made(*pair) for pair in sorted(shapes.items())]
        narrow = made('narrow', (9, 4), row_dtype='float16')
        groups = table_groups.small_groups([narrow] + tables)
    assert [[table.name for table in group] for group in groups] == [['a', 'c'], ['b', 'e']]


def test_tables_that_are_looked_up_with_the_same_ids_and_sharded_alike_are_grouped():
    with tf.Graph().as_default():
        ids, others = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int32, [None])
        kernel, bias = made('kernel', (9, 4)), made('bias', (9,))
        alike = {
            kernel: [[ids]],
            bias: [[ids]],
            made('other_ids', (9, 4)): [[others]],
            made('other_servers', (9, 4), (1, 0)): [[ids]],
            made('other_length', (8, 4)): [[ids]],
            made('other_dtype', (9, 4), dtype='float64'): [[ids]],
            made('in_16_bits', (9, 4), row_dtype='float16'): [[ids]],
            made('twice', (9, 4)): [[ids], [others]],
            made('more_lookups', (9, 4)): [[ids, others]],
        }
        pulls = {
            table: [pull(table, ids_of_pull) for ids_of_pull in of_pulls]
            for table, of_pulls in alike.items()
        }
        assert table_groups.same_ids_groups(pulls) == [[kernel, bias]]


def test_deep_and_wide_tables_of_a_column_are_sharded_alike_whatever_their_numbers_of_rows():
    rows = (1009, 3, 70, 501)
    with tf.Graph().as_default():
        columns = [tf.placeholder(tf.int32, [None]) for _ in rows]
        tables, terms = [], []
        for width in (4, 1):
            for column, count in zip(columns, rows):
                tables.append(tf.get_variable('table_%d' % len(tables), (count, width)))
                terms.append(tf.reduce_sum(tf.gather(tables[-1], column)))
        dense = tf.get_variable('dense', (3,))
        uses = describe(tf.add_n(terms) * tf.reduce_sum(dense), tables + [dense], {})
    assert [use.ids_key for use in uses] == [0, 1, 2, 3, 0, 1, 2, 3, None]
    planned = make_plan(uses, 8).variables
    for deep, wide in zip(planned[:4], planned[4:]):
        assert deep.shards == wide.shards


def test_what_is_looked_up_in_a_loop_is_pulled_by_itself():
    with tf.Graph().as_default():
        tables = [made('kernel', (9, 4)), made('bias', (9,))]
        pulls = {}

        def body(step):
            ids = tf.stack([step])
            for table in tables:
                pulls[table] = [pull(table, [ids])]
            return step + 1

        tf.while_loop(lambda step: step < 3, body, [0])
        assert table_groups.same_ids_groups(pulls) == []


def test_no_two_shards_of_a_table_are_in_one_shard_of_the_group():
    layouts = [(0, 1), (1, 0), (2,), (1, 1, 0)]
    servers, places = table_groups.places_of(
        [[Shard(server, 10) for server in layout] for layout in layouts]
    )
    for layout, of_table in zip(layouts, places):
        assert len(set(of_table)) == len(of_table)
        assert [servers[place] for place in of_table] == list(layout)
    # As few messages as there can be.
    assert sorted(servers) == [0, 1, 1, 2]


LAYOUTS = st.lists(st.integers(0, 2), min_size=1, max_size=4)
TABLES = st.lists(st.tuples(st.integers(4, 40), LAYOUTS), min_size=2, max_size=4)


@settings(max_examples=15, deadline=None)
@given(TABLES, st.integers(0, 2**31 - 1))
def test_small_tables_pull_the_rows_and_sum_the_gradients_of_each(chosen, seed):
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        tables, wholes, ids = [], [], []
        for number, (rows, servers) in enumerate(chosen):
            table, whole = filled(session, random, 'table_%d' % number, (rows, 2), servers)
            tables.append(table)
            wholes.append(whole)
            # A table of which no row is touched is among them now and then.
            ids.append(random.permutation(rows)[: random.randint(0, rows + 1)].astype(np.int64))
        pulls = [
            pull(table, [tf.placeholder_with_default(of_table, [None])])
            for table, of_table in zip(tables, ids)
        ]
        group = table_groups.SmallTablesGroup(tables)
        of_group = group.pull(pulls)
        split = of_group.split
        connections = group.connections(of_group, gather_rows(group, split))
        for connection, own, whole, of_table in zip(connections, pulls, wholes, ids):
            assert connection.replaced is own.rows
            np.testing.assert_array_equal(session.run(connection.replacement), whole[of_table])
        # The leader of a host pulls for others too, whose ids come in any order.
        both = pull(group, [split.ids, tf.reverse(split.ids, [0])]).outputs[1]
        np.testing.assert_array_equal(
            session.run(both)[::-1], np.concatenate([w[i] for w, i in zip(wholes, ids)])
        )
        touched = session.run(group.touched(of_group, split.ids))
        assert touched == {table.name: len(of_table) for table, of_table in zip(tables, ids)}
        gradients = [random.normal(size=(len(i), 2)).astype(np.float32) for i in ids]
        of_outputs = {
            own.outputs[0]: tf.constant(of_table) for own, of_table in zip(pulls, gradients)
        }
        summed = pushed(group, split, group.gradients(of_group, of_outputs), session)
        for whole, of_table, expected in zip(summed, ids, gradients):
            np.testing.assert_array_equal(whole[of_table], 2 * expected)
            assert not np.delete(whole, of_table, 0).any()


@settings(max_examples=15, deadline=None)
@given(
    st.integers(4, 40),
    LAYOUTS,
    st.lists(st.sampled_from([(), (1,), (3,), (2, 2)]), min_size=2, max_size=3),
    st.integers(0, 2**31 - 1),
)
def test_tables_of_the_same_ids_pull_the_rows_and_sum_the_gradients_of_each(
    rows, servers, shapes, seed
):
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        tables, wholes = [], []
        # None is touched now and then, and one a few times.
        asked = [
            tf.constant(random.randint(0, rows, random.randint(0, 9)), tf.int32) for _ in range(2)
        ]
        for number, shape in enumerate(shapes):
            table, whole = filled(session, random, 'table_%d' % number, (rows,) + shape, servers)
            tables.append(table)
            wholes.append(whole)
        pulls = [pull(table, asked) for table in tables]
        group = table_groups.SameIdsGroup(tables)
        of_group = group.pull(pulls)
        split = of_group.split
        connections = group.connections(of_group, gather_rows(group, split))
        for connection, own, whole in zip(connections, pulls, wholes):
            assert connection.replaced is own.rows
            ids, replacement = session.run([own.split.ids, connection.replacement])
            np.testing.assert_array_equal(replacement, whole[ids])
            assert connection.replacement.shape[1:] == whole.shape[1:]
        gradients = {
            output: tf.constant(random.normal(size=session.run(tf.shape(output))), tf.float32)
            for own in pulls
            for output in own.outputs
        }
        summed = pushed(group, split, group.gradients(of_group, gradients), session)
        for whole, own in zip(summed, pulls):
            expected = np.zeros_like(whole)
            for ids, output in zip(session.run(asked), own.outputs):
                np.add.at(expected, ids, 2 * session.run(gradients[output]))
            np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)


def test_a_group_of_small_tables_may_have_groups_of_the_same_ids_in_it():
    random = np.random.RandomState(0)
    with tf.Graph().as_default(), tf.Session() as session:
        columns = [[1, 5, 2], [7, 0]]
        groups, pulls, wholes = [], [], []
        for number, column in enumerate(columns):
            ids = tf.placeholder_with_default(np.array(column, np.int32), [None])
            names = ['%s_%d' % (kind, number) for kind in ('deep', 'wide')]
            pairs = [
                filled(session, random, name, (8,) + shape, (number, 1))
                for name, shape in zip(names, [(3,), ()])
            ]
            wholes += [whole for _, whole in pairs]
            groups.append(table_groups.SameIdsGroup([table for table, _ in pairs]))
            pulls.append(groups[-1].pull([pull(table, [ids]) for table, _ in pairs]))
        assert table_groups.small_groups(groups) == [groups]
        together = table_groups.SmallTablesGroup(groups)
        of_all = together.pull(pulls)
        connections = together.connections(of_all, gather_rows(together, of_all.split))
        pulled = session.run([connection.replacement for connection in connections])
        of_tables = [columns[0]] * 2 + [columns[1]] * 2
        for rows, whole, ids in zip(pulled, wholes, of_tables):
            np.testing.assert_array_equal(rows, whole[ids])
        gradients = {output: tf.ones_like(output) for output in of_all.outputs}
        values = together.gradients(of_all, gradients)
        for whole, ids in zip(pushed(together, of_all.split, values, session), of_tables):
            np.testing.assert_array_equal(whole[ids], 2)
            assert not np.delete(whole, ids, 0).any()


def test_rows_side_by_side_keep_their_digits_in_half_precision_whatever_the_other_has():
    with tf.Graph().as_default(), tf.Session() as session:
        rows = np.random.RandomState(0).normal(size=(7, 5)).astype(np.float32)
        rows[:, :4] *= 1e-9
        small, restore = compress(tf.constant(rows), hvd.Compression.fp16, [4, 1])
        restored = session.run(restore(tf.placeholder_with_default(small, [None, 7])))
        assert small.dtype == tf.float16
        np.testing.assert_allclose(restored, rows, rtol=2**-10, atol=1e-13)
