"""Which tables are bundled, and that a bundle's rows are those of its tables."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_parallax.job.server_layout import Servers
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import PlannedVariable
from keras_parallax.step import table_groups
from keras_parallax.step.exchange import PartGradient, sum_by_row
from keras_parallax.tables.pull import gather_rows, pull
from keras_parallax.tables.table import Table, as_indices

SERVERS = Servers(devices=('/device:CPU:0',) * 3, owners=(0, 0, 0))


def planned(name='t', shape=(20000, 16), servers=(0, 1), kind='sparse', alpha=None):
    """A plan with a shard on each of `servers`."""
    count = len(servers)
    shards = [Shard(server, len(range(k, shape[0], count))) for k, server in enumerate(servers)]
    return PlannedVariable(name, shape, 'float32', kind, 'a test', tuple(shards), alpha)


@pytest.mark.parametrize(
    'chosen, answer',
    [
        (planned(), True),
        # A language model's words: 512 rows of 4 kB.
        (planned(shape=(100000, 1024)), False),
        (planned(shape=(100000, 256), alpha=1700 / 100000), False),
        (planned(shape=(100000, 256), alpha=100 / 100000), True),
        # No more than all of it can be touched.
        (planned(shape=(30, 1024)), True),
        (planned(kind='dense'), False),
        (planned(servers=()), False),
    ],
)
def test_tables_of_which_a_step_sends_little_are_small(chosen, answer):
    assert table_groups.is_small(chosen) == answer


def test_small_tables_with_rows_of_one_shape_are_bundled():
    shapes = {'a': (9, 4), 'b': (9, 1), 'c': (800, 4), 'd': (7, 2), 'e': (5, 1), 'f': (10**6, 4096)}
    tables = [(name, planned(name, shape)) for name, shape in sorted(shapes.items())]
    assert table_groups.bundles_of(tables) == [['a', 'c'], ['b', 'e']]


def test_no_two_shards_of_a_table_are_in_one_shard_of_the_bundle():
    plans = [planned(servers=servers) for servers in [(0, 1), (1, 0), (2,), (1, 1, 0)]]
    servers, places = table_groups.places_of(plans)
    for plan, mine in zip(plans, places):
        assert len(set(mine)) == len(mine)
        assert [servers[place] for place in mine] == [shard.server for shard in plan.shards]
    # As few messages as there can be.
    assert sorted(servers) == [0, 1, 1, 2]


LAYOUTS = st.lists(st.integers(0, 2), min_size=1, max_size=4)
TABLES = st.lists(st.tuples(st.integers(4, 40), LAYOUTS), min_size=2, max_size=4)


@settings(max_examples=15, deadline=None)
@given(TABLES, st.integers(0, 2**31 - 1))
def test_a_bundle_pulls_the_rows_and_sums_the_gradients_of_its_tables(chosen, seed):
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        members, wholes, ids = [], [], []
        for number, (rows, servers) in enumerate(chosen):
            name = 'table_%d' % number
            plan = planned(name, (rows, 2), servers)
            table = Table(tf.Variable(tf.zeros([rows, 2])), plan, servers=SERVERS)
            table.make_shards()
            whole = random.normal(size=(rows, 2)).astype(np.float32)
            for k, shard in enumerate(table.shards):
                session.run(shard.initializer)
                shard.load(whole[k :: len(servers)], session)
            members.append(table)
            wholes.append(whole)
            # A table of which no row is touched is among them now and then.
            ids.append(random.permutation(rows)[: random.randint(0, rows + 1)].astype(np.int64))
        together = table_groups.Bundle(members)
        asked = [tf.placeholder_with_default(one, [None]) for one in ids]
        split = together.ask(asked)
        found = session.run(together.split(gather_rows(together, split), asked))
        for rows, whole, one in zip(found, wholes, ids):
            np.testing.assert_array_equal(rows, whole[one])
        # The leader of a host pulls for others too, whose ids come in any order.
        both = pull(together, [split.ids, tf.reverse(split.ids, [0])]).outputs[1]
        np.testing.assert_array_equal(
            session.run(both)[::-1], np.concatenate([w[one] for w, one in zip(wholes, ids)])
        )
        gradients = random.normal(size=(sum(map(len, ids)), 2)).astype(np.float32)
        summed = [np.zeros_like(whole) for whole in wholes]
        for part in together.parts_of(0):
            rows = as_indices(split.rows[part.shard])
            values = tf.gather(tf.constant(gradients), split.positions[part.shard])
            # As if two workers had pushed the same.
            pushed = sum_by_row(tf.concat([rows, rows], 0), tf.concat([values, values], 0))
            for (table, variable, shard), of_member in together.parts(PartGradient(part, pushed)):
                assert variable is table.shards[shard]
                where, what = session.run(list(of_member))
                number, count = members.index(table), len(table.shards)
                summed[number][where * count + shard] += what
        for whole, one, expected in zip(
            summed, ids, np.split(gradients, np.cumsum([len(one) for one in ids])[:-1])
        ):
            np.testing.assert_array_equal(whole[one], 2 * expected)
            assert not np.delete(whole, one, 0).any()
