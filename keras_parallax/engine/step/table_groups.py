# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Groups of tables that are pulled and pushed as if they were one.

Fifty small tables on eight servers would send a thousand messages in a step and run as many
operations again to sort rows by shard and worker. A group does it for all of them at once. The
tables stay as they are: each has its own shards, slots and updates, and is looked up, checked,
predicted with, saved and moved by itself.
"""

import abc
import collections
from typing import (
    Callable,
    Dict,
    Hashable,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    cast,
)

import numpy as np

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.exchange import PartGradient, RowGradients
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull import Pull, split_by_shard
from keras_parallax.engine.tables.pull_data import Connection, SplitIds
from keras_parallax.engine.tables.table import as_indices
from keras_parallax.framework_types import Tensor
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.planned_variables import PlannedVariable

#: A table is small if a worker's batch touches no more of it than this. A large one goes alone, so
#: that its gradients are on their way while the backward pass goes on.
SMALL_BYTES = 256 * 2**10


#: How many rows a batch is taken to touch, where nobody has measured it.
ASSUMED_ROWS = 512


def is_small(table: Exchanged) -> bool:
    """Whether a step sends so little of a table that it is worth grouping it with others.

    If it is a group, it is one of tables that are looked up with the same ids.
    """
    plans = [member.plan for member in table.tables]
    if any(planned.kind != SPARSE or not planned.shards for planned in plans):
        return False
    return sum(map(_touched_bytes, plans)) <= SMALL_BYTES


def _touched_bytes(planned: PlannedVariable) -> float:
    rows = ASSUMED_ROWS if planned.density is None else planned.density * planned.rows
    return min(rows, planned.rows) * planned.bytes / max(1, planned.rows)


def small_groups(tables: Iterable[Exchanged]) -> List[List[Exchanged]]:
    """Which of several `Exchanged` are small and have rows that are alike: lists of two or more."""
    return _alike(
        filter(is_small, tables),
        lambda table: (table.dtype, table.stored_dtype, tuple(table.row_shape)),
    )


def same_ids_groups(pulls: Mapping[Exchanged, Sequence[Pull]]) -> List[List[Exchanged]]:
    """Lists of two tables or more that are looked up with the same ids and sharded alike.

    Given are the `Pull`s of each in a step.
    """
    # What is looked up in a loop has rows for each round.
    once = [
        table
        for table, of_table in pulls.items()
        if len(of_table) == 1 and not tensorflow_api.is_in_control_flow(of_table[0].split.ids)
    ]
    return _alike(
        once,
        lambda table: (
            tuple(pulls[table][0].ids),
            table.planned_shards,
            table.dtype,
            table.stored_dtype,
        ),
    )


def _alike(
    tables: Iterable[Exchanged], key: Callable[[Exchanged], Hashable]
) -> List[List[Exchanged]]:
    groups: Dict[Hashable, List[Exchanged]] = collections.OrderedDict()
    for table in tables:
        groups.setdefault(key(table), []).append(table)
    return [group for group in groups.values() if len(group) > 1]


def may_be_grouped(pulls: Sequence[Pull], of_all: Sequence[Pull]) -> bool:
    """Whether a table's rows can be pulled with others', given its `Pull`s and those of all."""
    return len(pulls) == 1 and _may_be_joined(pulls[0], of_all)


def are_pulled_at_once(pulls: Sequence[Pull], of_all: Sequence[Pull]) -> bool:
    """Whether a step pulls the rows of a table's several `Pull`s as one, given those of all."""
    return len(pulls) > 1 and all(_may_be_joined(pull, of_all) for pull in pulls)


def _may_be_joined(pull: Pull, of_all: Sequence[Pull]) -> bool:
    # What is computed in a loop cannot be joined with what is not, and ids that depend on rows of
    # the same step cannot be known when those are pulled.
    ids = pull.split.ids
    return not tensorflow_api.is_in_control_flow(ids) and graph_queries.ancestors([ids]).isdisjoint(
        pull.rows.op for pull in of_all
    )


def places_of(shards_of_tables: Iterable[Sequence[Shard]]) -> Tuple[List[int], List[List[int]]]:
    """Where the shards of several tables lie in their group.

    Given the `placement.Shard`s of each, returns the servers of the group's shards, and for each
    table the numbers of the group's shards that its shards are in. No two of a table are in the
    same.
    """
    numbers: Dict[Tuple[int, int], int] = collections.OrderedDict()
    places: List[List[int]] = []
    for shards in shards_of_tables:
        seen: Dict[int, int] = collections.Counter()
        of_table = []
        for shard in shards:
            key = shard.server, seen[shard.server]
            seen[shard.server] += 1
            of_table.append(numbers.setdefault(key, len(numbers)))
        places.append(of_table)
    return [server for server, _ in numbers], places


class _TableGroup(Exchanged):
    """What the kinds of groups have in common.

    A kind has `_join`, which makes rows of the group of those of its members, a list, `_split`,
    which undoes that, and `_of_members`, which makes of the `RowGradients` of a shard a list of
    triples of a member, the number of its shard, and its `RowGradients`. Text `kind` ends its name.
    """

    def __init__(self, members: Sequence[Exchanged], kind: str) -> None:
        self.members, first = list(members), members[0]
        self.tables = [table for member in members for table in member.tables]
        self.name, self.servers = first.name + kind, first.servers
        self.dtype, self.stored_dtype = first.dtype, first.stored_dtype

    def pull(self, pulls: Sequence[Pull]) -> Pull:
        """A `Pull` for the lookups of all members, without rows, from the `Pull` of each."""
        outputs = [output for pull in pulls for output in pull.outputs]
        return Pull(self._split_ids(pulls), None, outputs, [], [], tuple(pulls))

    def connections(self, pull: Pull, rows: Tensor) -> List[Connection]:
        """As `Exchanged.connections`."""
        of_members = zip(self.members, pull.members, self._split(rows, pull.members))
        return [
            connection
            for member, pulled, own_rows in of_members
            for connection in member.connections(pulled, own_rows)
        ]

    def gradients(self, pull: Pull, gradients: Dict[Tensor, Tensor]) -> Tensor:
        """As `Exchanged.gradients`."""
        of_members = zip(self.members, pull.members)
        return self._join([member.gradients(pulled, gradients) for member, pulled in of_members])

    def of_tables(self, part_gradient: PartGradient) -> List[PartGradient]:
        """As `Exchanged.of_tables`."""
        (_, variable, shard), gradients = part_gradient
        with tf.device(variable.device):
            of_members = [
                (member, PartGradient(member.owned_shard(number), of_member))
                for member, number, of_member in self._of_members(shard, gradients)
            ]
        return [of_table for member, part in of_members for of_table in member.of_tables(part)]

    @abc.abstractmethod
    def _split_ids(self, pulls: Sequence[Pull]) -> SplitIds:
        """The rows of the group that the `Pull`s of its members ask for."""

    @abc.abstractmethod
    def _join(self, of_members: List[Tensor]) -> Tensor:
        """Rows of the group, of those of its members."""

    @abc.abstractmethod
    def _split(self, rows: Tensor, pulls: Sequence[Pull]) -> List[Tensor]:
        """Rows of the members, of those of the group."""

    @abc.abstractmethod
    def _of_members(
        self, number: int, gradients: RowGradients
    ) -> List[Tuple[Exchanged, int, RowGradients]]:
        """What the gradients of a shard are for the members."""


class SmallTablesGroup(_TableGroup):
    """Small tables whose rows are alike.

    It has a shard on each server that holds one of a member's, or several if a member has several
    there. Row r of a shard of the member of number t of T members is row `r * T + t` of the group's
    shard.
    """

    def __init__(self, members: Sequence[Exchanged]) -> None:
        super().__init__(members, '/bundle')
        self.row_shape, self.widths = self.members[0].row_shape, self.members[0].widths
        servers, self._places = places_of([member.planned_shards for member in self.members])
        # For each shard of the group its members' numbers, and the numbers of their shards.
        self._held = [
            {t: places.index(number) for t, places in enumerate(self._places) if number in places}
            for number in range(len(servers))
        ]
        self.shards, planned = [], []
        for server, held in zip(servers, self._held):
            self.shards.extend(self.members[t].shards[shard] for t, shard in list(held.items())[:1])
            longest = max(self.members[t].planned_shards[shard].rows for t, shard in held.items())
            planned.append(Shard(server, longest * len(self.members)))
        self.planned_shards = tuple(planned)
        self.rows = len(planned) * max(shard.rows for shard in planned)

    def gather(self, number: int, rows: Tensor) -> Tensor:
        """As `Exchanged.gather`."""
        count, rows = len(self.members), as_indices(rows)
        member, held = self._member_of(rows), self._held[number]
        positions = tf.dynamic_partition(tf.range(tf.size(rows)), member, count)
        of_members = tf.dynamic_partition(tf.floordiv(rows, count), member, count)
        gathered = [self.members[t].gather(shard, of_members[t]) for t, shard in held.items()]
        return tf.dynamic_stitch([positions[t] for t in held], gathered)

    def _member_of(self, rows: Tensor) -> Tensor:
        return tf.cast(tf.floormod(rows, len(self.members)), tf.int32)

    def _split_ids(self, pulls: Sequence[Pull]) -> SplitIds:
        """Numbers rows of the members as rows of the group, and splits them by shard."""
        ids_of_members = [pull.split.ids for pull in pulls]
        count, shards = len(self.members), len(self.planned_shards)
        wide = tf.int64 if self.rows > np.iinfo(np.int32).max else tf.int32
        ids = tf.concat([tf.cast(ids, wide) for ids in ids_of_members], 0)
        member = tf.concat(
            [tf.fill([tf.size(ids)], number) for number, ids in enumerate(ids_of_members)], 0
        )
        # Id i of a table of n shards is row i // n of shard i % n, and that is in a shard of ours.
        lengths = [len(places) for places in self._places]
        of_member = tf.gather(tf.constant(lengths, wide), member)
        first = tf.gather(np.cumsum([0] + lengths[:-1]).astype(np.int32), member)
        place = first + tf.cast(tf.floormod(ids, of_member), tf.int32)
        shard = tf.gather(tf.constant(sum(self._places, []), wide), place)
        within = tf.floordiv(ids, of_member) * count + tf.cast(member, wide)
        return split_by_shard(within * shards + shard, self.planned_shards)

    def _join(self, of_members: List[Tensor]) -> Tensor:
        return tf.concat(of_members, 0)

    def _split(self, rows: Tensor, pulls: Sequence[Pull]) -> List[Tensor]:
        sizes = tf.stack([tf.size(pull.split.ids) for pull in pulls])
        of_members = tf.split(rows, sizes, num=len(self.members))
        for rows_of_member in of_members:
            rows_of_member.set_shape([None] + self.row_shape)
        return of_members

    def touched(self, pull: Optional[Pull], rows: Tensor) -> Dict[str, Tensor]:
        """As `Exchanged.touched`."""
        touched = {}
        members = cast(Pull, pull).members  # A group always has a pull.
        for member, pulled in zip(self.members, members):
            touched.update(member.touched(pulled, pulled.split.ids))
        return touched

    def _of_members(
        self, number: int, gradients: RowGradients
    ) -> List[Tuple[Exchanged, int, RowGradients]]:
        rows, values = gradients
        count, member = len(self.members), self._member_of(rows)
        rows = tf.dynamic_partition(tf.floordiv(rows, count), member, count)
        values = tf.dynamic_partition(values, member, count)
        return [
            (self.members[t], shard, RowGradients(rows[t], values[t]))
            for t, shard in self._held[number].items()
        ]


class SameIdsGroup(_TableGroup):
    """Tables that are looked up with the same ids and sharded alike; their rows are one row."""

    def __init__(self, members: Sequence[Exchanged]) -> None:
        super().__init__(members, '/joined')
        first = self.members[0]
        self.widths = [width for member in self.members for width in member.widths]
        self.rows, self.row_shape = first.rows, [sum(self.widths)]
        self.shards, self.planned_shards = first.shards, first.planned_shards

    def gather(self, number: int, rows: Tensor) -> Tensor:
        """As `Exchanged.gather`."""
        return self._join([member.gather(number, rows) for member in self.members])

    def _split_ids(self, pulls: Sequence[Pull]) -> SplitIds:
        return pulls[0].split

    def _join(self, of_members: List[Tensor]) -> Tensor:
        flat = [tf.reshape(rows, [-1, width]) for rows, width in zip(of_members, self.widths)]
        return tf.concat(flat, 1)

    def _split(self, rows: Tensor, pulls: Sequence[Pull] = ()) -> List[Tensor]:
        return [
            tf.reshape(of_member, [-1] + member.row_shape)
            for member, of_member in zip(self.members, tf.split(rows, self.widths, 1))
        ]

    def _of_members(
        self, number: int, gradients: RowGradients
    ) -> List[Tuple[Exchanged, int, RowGradients]]:
        rows, values = gradients
        return [
            (member, number, RowGradients(rows, of_member))
            for member, of_member in zip(self.members, self._split(values))
        ]
