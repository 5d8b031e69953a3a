# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""An optimizer's slots of tables: where they lie, who makes them, and what later steps find."""

from typing import Any, NamedTuple

import pytest
import shards
from any_keras import keras
from frameworks import tf

from keras_parallax.engine.tables.table import STORAGE
from keras_parallax.engine.updates import shard_slots
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.gradient_pairs import Pair, TablesOfRank
from keras_parallax.engine.updates.kept_slots import KeptSlots
from keras_parallax.engine.updates.optimizers.known_optimizer import RowRule
from keras_parallax.errors import PlanError


class Adapter(NamedTuple):
    """What is known of an optimizer whose slots are of the shape of their variable."""

    shares_slots: bool = True
    keeper: Any = 'an optimizer'
    name: str = 'Mine'

    def slot_shape(self, shape):
        return shape

    def slots_by_name(self, variable):
        return {}


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def table_of(servers=(0, 1, 2), rank=0):
    """A table of 7 rows, of whose shards worker 0 owns the first and the last."""
    return shards.table_of([[0.0, 0.0]] * 7, servers, rank, 2)


def of_rank(table, kept, rank=0, sync=True):
    tables = {table.variable: table}
    return TablesOfRank(tables, {}, [], 'step', rank, 2, sync, lambda keeper: kept)


def state_of(table, kept, rank=0, **fields):
    """The state of worker `rank` for its shards of a table and a dense variable, and the pairs."""
    pairs = [Pair(part.variable, None, table, part.shard) for part in table.parts_of(rank)]
    dense = Pair(tf.Variable(tf.zeros([3])), None)
    slots = {
        pair.variable: [tf.Variable(tf.zeros(pair.variable.shape))] for pair in [*pairs, dense]
    }
    state = OptimizerState(['steps'], slots, ('m',), fields.pop('order', None))
    adapter = Adapter(**fields)
    found = shard_slots.state_of(adapter, state, [*pairs, dense], of_rank(table, kept, rank))
    return found, slots, pairs, dense


def test_a_rule_has_its_slots_beside_the_shards_and_with_their_rows():
    rule = RowRule(None, None, 2, lambda optimizer: 2, slot_shape=lambda shape: shape[:1])
    slots = shard_slots.slots_for_rows(keras.optimizers.SGD(), table_of(), rule, 'step')
    assert [[one.shape.as_list() for one in slot] for slot in slots] == [[[3], [2], [2]]] * 2
    assert slots[1][2].op.name == STORAGE + 'step/table/slot_1/shard_2'
    whole = shard_slots.slots_for_rows(keras.optimizers.SGD(), table_of(()), rule, 'step')
    assert [slot.shape.as_list() for slot in whole] == [[7], [7]]
    assert whole[0].op.name.startswith(STORAGE) is False


@pytest.mark.parametrize('rank, own', [(0, [0, 2]), (1, [1])])
def test_a_worker_has_the_slots_of_its_shards_and_stand_ins_for_the_others(rank, own):
    table = table_of(rank=rank)
    found, slots, pairs, dense = state_of(table, KeptSlots(), rank)
    (of_shards,) = found.state.slots[table.variable]
    assert [one.shape.as_list() for one in of_shards] == [[3, 2], [2, 2], [2, 2]]
    made = {pair.shard: slots[pair.variable][0] for pair in pairs}
    assert sorted(made) == own
    assert all((one is made.get(number)) == (number in own) for number, one in enumerate(of_shards))
    assert found.state.slots[dense.variable] == slots[dense.variable]
    assert found.state.names == ('m',) and found.state.counters == ['steps']


def test_slots_that_an_earlier_step_has_left_are_gone_on_with():
    table, kept = table_of(), KeptSlots({})
    first, *_ = state_of(table, kept)
    (made,) = first.made
    assert list(made.by_name) == ['m'] and not kept.has(table)
    made.keep()
    again, slots, *_ = state_of(table, kept)
    assert again.made == []
    assert again.state.slots[table.variable] == first.state.slots[table.variable]


def test_workers_that_apply_gradients_each_at_its_own_pace_need_slots_that_may_be_shared():
    table = table_of()
    asynchronous = of_rank(table, KeptSlots(), sync=False)
    with pytest.raises(PlanError, match='sync=False is for .* but Mine was given'):
        shard_slots.state_of(Adapter(shares_slots=False), None, [], asynchronous)
    assert shard_slots.state_of(Adapter(), None, [], asynchronous) == (None, [])


def test_the_order_of_weights_has_a_table_once_whatever_shards_a_worker_owns():
    table = table_of()
    pairs = [Pair(part.variable, None, table, part.shard) for part in table.parts_of(0)]
    dense = Pair(tf.Variable(0.0), None)
    state = OptimizerState([], {pair.variable: [] for pair in [*pairs, dense]}, order=None)
    order = ['steps', (dense.variable, 0), (pairs[0].variable, 0), (pairs[1].variable, 0)]
    rank = of_rank(table, KeptSlots())
    found = shard_slots.state_of(
        Adapter(), state._replace(order=order), [*pairs, dense], rank
    ).state
    assert found.order == ['steps', (dense.variable, 0), (table.variable, 0)]


def test_a_worker_initializes_new_slots_of_its_own_shards_and_keras_none_of_them():
    table = table_of()
    found, slots, pairs, dense = state_of(table, KeptSlots())
    made = [slots[pair.variable][0] for pair in pairs]
    stored, new = shard_slots.stored_slots(
        [*pairs, dense], slots, [], found.made, of_rank(table, KeptSlots())
    )
    assert stored == new == made
    assert not set(made) & set(tf.global_variables())
    assert slots[dense.variable][0] in tf.global_variables()
    # Those of an earlier step are initialized.
    assert shard_slots.stored_slots(
        [*pairs, dense], slots, [], [], of_rank(table, KeptSlots())
    ) == (made, [])


def test_a_slot_that_keras_has_of_the_whole_table_gives_new_slots_its_values():
    table, whole = table_of(), tf.Variable(tf.ones([7, 2]))
    shards.made_front(table)

    class Loaded(Adapter):
        def slots_by_name(self, variable):
            assert variable is table.variable
            return {'m': whole, 'other': 'unused'}

    pairs = [Pair(part.variable, None, table, part.shard) for part in table.parts_of(0)]
    slots = {pair.variable: [tf.Variable(tf.zeros(pair.variable.shape))] for pair in pairs}
    state = OptimizerState([], slots, ('m',))
    rank = of_rank(table, KeptSlots({}))
    (made,) = shard_slots.state_of(Loaded(), state, pairs, rank).made
    ((old, new),) = made.taken
    assert old is whole and new.shape.as_list() == [7, 2]
    assert new.shards == made.by_name['m']
