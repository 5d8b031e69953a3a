"""Which tables are joined, and that the rows of joined ones are those of their tables."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.job.server_layout import Servers
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import PlannedVariable, make_plan
from keras_parallax.step.exchange import PartGradient, sum_by_row
from keras_parallax.step.table_groups import Joined, groups_of
from keras_parallax.tables.half_precision import compress
from keras_parallax.tables.loss_analysis import describe
from keras_parallax.tables.pull import gather_rows, pull
from keras_parallax.tables.table import Table, as_indices

SERVERS = Servers(devices=('/device:CPU:0',) * 3, owners=(0, 0, 0))


def made(name, shape, servers=(0, 1), dtype='float32'):
    """A table with a shard on each of `servers`."""
    count = len(servers)
    shards = [Shard(server, len(range(k, shape[0], count))) for k, server in enumerate(servers)]
    plan = PlannedVariable(name, shape, dtype, 'sparse', 'a test', tuple(shards))
    table = Table(tf.Variable(tf.zeros(shape, dtype)), plan, servers=SERVERS)
    table.make_shards()
    return table


def test_tables_that_are_looked_up_with_the_same_ids_and_sharded_alike_are_joined():
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
            made('twice', (9, 4)): [[ids], [others]],
            made('more_lookups', (9, 4)): [[ids, others]],
        }
        pulls = {
            table: [pull(table, ids_of_pull) for ids_of_pull in of_pulls]
            for table, of_pulls in alike.items()
        }
        assert groups_of(pulls) == [[kernel, bias]]


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
    assert [use.asked_by for use in uses] == [0, 1, 2, 3, 0, 1, 2, 3, None]
    planned = make_plan(uses, 8).variables
    for deep, wide in zip(planned[:4], planned[4:]):
        assert deep.shards == wide.shards


def test_what_is_looked_up_in_a_loop_is_pulled_by_itself():
    with tf.Graph().as_default():
        tables = [made('kernel', (9, 4)), made('bias', (9,))]
        found = {}

        def body(step):
            ids = tf.stack([step])
            for table in tables:
                found[table] = [pull(table, [ids])]
            return step + 1

        tf.while_loop(lambda step: step < 3, body, [0])
        assert groups_of(found) == []


@settings(max_examples=15, deadline=None)
@given(
    st.integers(4, 40),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.lists(st.sampled_from([(), (1,), (3,), (2, 2)]), min_size=2, max_size=3),
    st.integers(0, 2**31 - 1),
)
def test_joined_tables_pull_the_rows_and_sum_the_gradients_of_each(rows, servers, shapes, seed):
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        members, wholes = [], []
        # None is touched now and then, and one a few times.
        asked = [
            tf.constant(random.randint(0, rows, random.randint(0, 9)), tf.int32) for _ in range(2)
        ]
        for number, shape in enumerate(shapes):
            table = made('table_%d' % number, (rows,) + shape, servers)
            whole = random.normal(size=(rows,) + shape).astype(np.float32)
            for k, shard in enumerate(table.shards):
                session.run(shard.initializer)
                shard.load(whole[k :: len(servers)], session)
            members.append(table)
            wholes.append(whole)
        pulls = [pull(table, asked) for table in members]
        joined = Joined(members, pulls)
        split = joined.pull.split
        for connection, own, whole in zip(
            joined.connections(gather_rows(joined, split)), pulls, wholes
        ):
            assert connection.replaced is own.rows
            ids, found = session.run([own.split.ids, connection.replacement])
            np.testing.assert_array_equal(found, whole[ids])
            assert connection.replacement.shape[1:] == whole.shape[1:]
        gradients = {
            output: tf.constant(random.normal(size=session.run(tf.shape(output))), tf.float32)
            for own in pulls
            for output in own.outputs
        }
        values, summed = joined.gradients(gradients), [np.zeros_like(whole) for whole in wholes]
        for part in joined.parts_of(0):
            within = as_indices(split.rows[part.shard])
            mine = tf.gather(values, split.positions[part.shard])
            # As if two workers had pushed the same.
            pushed = sum_by_row(tf.concat([within, within], 0), tf.concat([mine, mine], 0))
            for (table, variable, shard), found in joined.parts(PartGradient(part, pushed)):
                assert variable is table.shards[shard]
                where, what = session.run(list(found))
                summed[members.index(table)][where * len(servers) + shard] += what
        for whole, own in zip(summed, pulls):
            expected = np.zeros_like(whole)
            for ids, output in zip(session.run(asked), own.outputs):
                np.add.at(expected, ids, 2 * session.run(gradients[output]))
            np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)


def test_joined_tables_keep_their_digits_in_half_precision_whatever_the_other_has():
    with tf.Graph().as_default(), tf.Session() as session:
        rows = np.random.RandomState(0).normal(size=(7, 5)).astype(np.float32)
        rows[:, :4] *= 1e-9
        small, restore = compress(tf.constant(rows), hvd.Compression.fp16, [4, 1])
        found = session.run(restore(tf.placeholder_with_default(small, [None, 7])))
        assert small.dtype == tf.float16
        np.testing.assert_allclose(found, rows, rtol=2**-10, atol=1e-13)
