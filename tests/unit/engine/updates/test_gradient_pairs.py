# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which variables optimizers update: as many on every worker, each by one optimizer."""

from typing import Any, List, NamedTuple

import pytest
from frameworks import tf

from keras_parallax.engine.updates.gradient_pairs import (
    Pair,
    TablesOfRank,
    as_clipped,
    pairs_by_optimizer,
    pairs_of,
)
from keras_parallax.engine.updates.table_updates import PartUpdate, UpdateMethod


class Part(NamedTuple):
    table: Any
    variable: Any
    shard: int


class Table:
    """A table of 2 numbers a row, of which each worker owns some shards."""

    row_shape, dtype = [2], tf.float32

    def __init__(self, name: str, shards_of: List[int], constraint: Any = None) -> None:
        self.name, self._shards_of, self.constraint = name, shards_of, constraint
        self.variable, self.shards = tf.Variable([[0.0]], name=name), ['a shard']

    def parts_of(self, rank: int) -> List[int]:
        return list(range(self._shards_of[rank]))


def of_rank(rank, tables, methods):
    """The `TablesOfRank` of one of two workers, which owns shards of its tables."""
    parts = [
        PartUpdate(Part(table, tf.Variable([[1.0, 2.0]]), shard), 'gradient')
        for table in tables
        for shard in table.parts_of(rank)
    ]
    by_variable = {table.variable: table for table in tables}
    return TablesOfRank(by_variable, methods, parts, 'prefix', rank, 2, True, lambda keeper: None)


BY_KERAS, BY_RULE = UpdateMethod(None, ''), UpdateMethod('a rule', '')


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def test_every_rank_has_as_many_pairs_and_names_what_is_nobodys():
    table = Table('words', shards_of=[2, 1], constraint=abs)
    dense = tf.Variable(1.0)
    variables = [table.variable, dense]
    found = [
        pairs_of(variables, {dense: 'mean'}, of_rank(rank, [table], {table: BY_KERAS}))
        for rank in range(2)
    ]
    assert [len(pairs) for pairs in found] == [3, 3]
    assert [pair.shard for pair in found[0]] == [0, 1, None]
    assert [pair.shard for pair in found[1]] == [0, None, None]
    nobodys = found[1][1]
    assert nobodys.variable.shape.as_list() == [2, 2] and nobodys.of is table.variable
    # The shards have the table's constraint; what is nobody's has one that changes nothing.
    assert found[1][0].variable.constraint is abs
    assert nobodys.variable.constraint(7) == 7
    assert found[0][2] == Pair(dense, 'mean')


def test_what_a_rule_moves_is_no_pair():
    table = Table('words', shards_of=[1, 1])
    assert pairs_of([table.variable], {}, of_rank(0, [table], {table: BY_RULE})) == []


def test_each_optimizer_has_its_tables_and_the_models_own_all_others():
    tables = [Table(name, shards_of=[1, 1]) for name in ('words', 'items', 'users')]
    methods = {
        tables[0]: BY_KERAS,
        tables[1]: UpdateMethod(None, '', lazy=True, optimizer='other'),
        tables[2]: UpdateMethod(None, '', lazy=True, optimizer='other'),
    }
    pairs = pairs_of([table.variable for table in tables], {}, of_rank(0, tables, methods))
    own, other = pairs_by_optimizer('own', pairs, methods)
    assert (own.optimizer, own.lazy) == ('own', False)
    assert [pair.table for pair in own.pairs] == tables[:1]
    assert (other.optimizer, other.lazy) == ('other', True)
    assert [pair.table for pair in other.pairs] == tables[1:]


def test_gradients_are_clipped_in_the_order_of_pairs():
    table, dense = Table('words', shards_of=[1, 2]), tf.Variable(1.0)
    rank = of_rank(0, [table], {table: BY_KERAS})
    pairs = pairs_of([dense, table.variable], {dense: 'mean'}, rank)
    parts = [part._replace(gradient='clipped rows') for part in rank.parts]
    clipped = as_clipped(pairs, {dense: 'clipped mean'}, parts)
    assert clipped[:2] == ['clipped mean', 'clipped rows']
    assert clipped[2] is pairs[2].gradient  # Of nobody's rows.
