"""Bundles: small tables whose rows look alike are pulled and pushed as if they were one table.

Fifty small tables on eight servers would send a thousand messages in a step and run as many
operations again to sort rows by shard and worker. A bundle does it for all of them at once. The
tables stay as they are: each has its own shards, slots and updates, and is looked up, checked,
predicted with, saved and moved by itself.
"""

import collections
from typing import NamedTuple, Tuple

import numpy as np

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.placement import Shard
from keras_parallax.step.exchange import PartGradient, RowGradients, gradients_of_pull
from keras_parallax.tables.pull import Connection, Pull, split_by_shard
from keras_parallax.tables.table import OwnedShard, as_indices

#: A table is bundled if a worker's batch touches no more of it than this. A large one goes alone,
#: so that its gradients are on their way while the backward pass goes on.
SMALL_BYTES = 256 * 2**10


#: How many rows a batch is taken to touch, where nobody has measured it.
ASSUMED_ROWS = 512


def is_small(planned):
    """Whether a step sends so little of a table that it is worth bundling.

    Args:
        planned: a `PlannedVariable`.
    """
    if planned.kind != SPARSE or not planned.shards:
        return False
    rows = ASSUMED_ROWS if planned.alpha is None else planned.alpha * planned.rows
    touched = min(rows, planned.rows) * planned.bytes / max(1, planned.rows)
    return touched <= SMALL_BYTES


def bundles_of(tables):
    """Which tables are bundled: small ones whose rows are alike.

    Args:
        tables: a list of pairs of something and its `PlannedVariable`.

    Returns:
        A list of lists, of two at least.
    """
    groups = collections.OrderedDict()
    for table, planned in tables:
        if is_small(planned):
            groups.setdefault((planned.dtype, planned.shape[1:]), []).append(table)
    return [group for group in groups.values() if len(group) > 1]


def may_be_bundled(pulls, of_all):
    """Whether the rows of a table can be pulled together with those of others.

    Args:
        pulls: the `Pull`s of the table in the step.
        of_all: those of all tables.
    """
    if len(pulls) != 1:
        return False
    ids = pulls[0].split.ids
    # What is computed in a loop cannot be joined with what is not, and ids that depend on rows of
    # the same step cannot be known when those are pulled.
    return not tensorflow_api.is_in_control_flow(ids) and graph_queries.ancestors([ids]).isdisjoint(
        pull.rows.op for pull in of_all
    )


class _Shards(NamedTuple):
    """As much of a `PlannedVariable` as pulls and pushes ask for."""

    shards: Tuple[Shard, ...]


def places_of(plans):
    """Where the shards of several tables lie in their bundle.

    Args:
        plans: the `PlannedVariable`s of the tables.

    Returns:
        A pair: the servers of the bundle's shards, a list, and for each table the numbers of the
        bundle's shards that its shards are in, a list. No two shards of a table are in the same.
    """
    numbers, places = collections.OrderedDict(), []
    for planned in plans:
        seen = collections.Counter()
        mine = []
        for shard in planned.shards:
            key = shard.server, seen[shard.server]
            seen[shard.server] += 1
            mine.append(numbers.setdefault(key, len(numbers)))
        places.append(mine)
    return [server for server, _ in numbers], places


class Bundle:
    """Tables that are pulled and pushed as one, which takes the place of a `Table` there.

    It has a shard on each server that holds one of a member's, or several if a member has several
    there. Row r of a shard of the member of number t of T members is row `r * T + t` of the
    bundle's shard.

    Args:
        members: the `Table`s.

    Attributes:
        members: the `Table`s.
        name: made of the first one's.
        rows, row_shape, widths, dtype, plan: as those of a `Table`.
        shards: for each shard a variable of a member, to tell the device by.
    """

    def __init__(self, members):
        self.members, first = list(members), members[0]
        self.name = first.name + '/bundle'
        self.row_shape, self.widths, self.dtype = first.row_shape, first.widths, first.dtype
        self.owner_of, self.device_of = first.owner_of, first.device_of
        servers, self._places = places_of([table.plan for table in self.members])
        # For each shard of the bundle its members, as pairs of a member and its shard's number.
        self._held = [
            {t: mine.index(number) for t, mine in enumerate(self._places) if number in mine}
            for number in range(len(servers))
        ]
        self.shards, planned = [], []
        for server, held in zip(servers, self._held):
            self.shards.extend(self.members[t].shards[shard] for t, shard in list(held.items())[:1])
            longest = max(self.members[t].plan.shards[shard].rows for t, shard in held.items())
            planned.append(Shard(server, longest * len(self.members)))
        self.plan = _Shards(tuple(planned))
        self.rows = len(planned) * max(shard.rows for shard in planned)

    def parts_of(self, rank):
        """As `Table.parts_of`."""
        return [
            OwnedShard(self, self.shards[number], number)
            for number, shard in enumerate(self.plan.shards)
            if self.owner_of(shard) == rank
        ]

    def gather(self, number, rows):
        """As `Table.gather`."""
        count, rows = len(self.members), as_indices(rows)
        table, held = self._table_of(rows), self._held[number]
        places = tf.dynamic_partition(tf.range(tf.size(rows)), table, count)
        of_members = tf.dynamic_partition(tf.floordiv(rows, count), table, count)
        found = [self.members[t].gather(shard, of_members[t]) for t, shard in held.items()]
        return tf.dynamic_stitch([places[t] for t in held], found)

    def _table_of(self, rows):
        return tf.cast(tf.floormod(rows, len(self.members)), tf.int32)

    def ask(self, ids_of_members):
        """Numbers rows of the members as rows of the bundle, and splits them by shard.

        Args:
            ids_of_members: for each member the ids that are pulled of it, `[n_t]`, each once.

        Returns:
            `SplitIds` with the rows of the members one after another.
        """
        count, shards = len(self.members), len(self.plan.shards)
        wide = tf.int64 if self.rows > np.iinfo(np.int32).max else tf.int32
        ids = tf.concat([tf.cast(one, wide) for one in ids_of_members], 0)
        table = tf.concat(
            [tf.fill([tf.size(one)], number) for number, one in enumerate(ids_of_members)], 0
        )
        # Id i of a table of n shards is row i // n of shard i % n, and that is in a shard of ours.
        lengths = [len(mine) for mine in self._places]
        of_table = tf.gather(tf.constant(lengths, wide), table)
        first = tf.gather(np.cumsum([0] + lengths[:-1]).astype(np.int32), table)
        place = first + tf.cast(tf.floormod(ids, of_table), tf.int32)
        shard = tf.gather(tf.constant(sum(self._places, []), wide), place)
        within = tf.floordiv(ids, of_table) * count + tf.cast(table, wide)
        return split_by_shard(within * shards + shard, self.plan.shards)

    def split(self, tensor, ids_of_members):
        """Splits what there is one of for each row that was asked for by member, a list."""
        sizes = tf.stack([tf.size(ids) for ids in ids_of_members])
        parts = tf.split(tensor, sizes, num=len(self.members))
        for part in parts:
            part.set_shape([None] + self.row_shape)
        return parts

    def parts(self, found):
        """The `PartGradient`s of the members, given that of a part of the bundle."""
        part, (rows, values) = found
        count = len(self.members)
        with tf.device(part.variable.device):
            table = self._table_of(rows)
            of_rows = tf.dynamic_partition(tf.floordiv(rows, count), table, count)
            of_values = tf.dynamic_partition(values, table, count)
        return [
            PartGradient(
                OwnedShard(self.members[t], self.members[t].shards[shard], shard),
                RowGradients(of_rows[t], of_values[t]),
            )
            for t, shard in self._held[part.shard].items()
        ]


def groups_of(pulls):
    """Which tables are joined: those that are looked up with the same ids and sharded alike.

    Args:
        pulls: a dict from tables to the lists of their `Pull`s in a step.

    Returns:
        A list of lists of tables, of two at least.
    """
    groups = collections.OrderedDict()
    for table, of_table in pulls.items():
        # What is looked up in a loop has rows for each round.
        if len(of_table) == 1 and not tensorflow_api.is_in_control_flow(of_table[0].split.ids):
            key = tuple(of_table[0].ids), table.plan.shards, table.dtype
            groups.setdefault(key, []).append(table)
    return [group for group in groups.values() if len(group) > 1]


class Joined:
    """Tables that are pulled and pushed as one, which takes the place of a `Table` there.

    Args:
        members: the `Table`s.
        pulls: for each its `Pull` in the step.

    Attributes:
        members: the `Table`s.
        name: made of the first one's.
        pull: a `Pull` for the lookups of all members; it has no rows of its own.
        rows, row_shape, widths, dtype, plan, shards: as those of a `Table`; shards are the first
            member's, to tell the device by.
    """

    def __init__(self, members, pulls):
        self.members, self._pulls, first = list(members), list(pulls), members[0]
        self.widths = [width for table in self.members for width in table.widths]
        self.name = first.name + '/joined'
        self.rows, self.row_shape, self.dtype = first.rows, [sum(self.widths)], first.dtype
        self.shards, self.owner_of, self.device_of = first.shards, first.owner_of, first.device_of
        self.plan = first.plan._replace(name=self.name, shape=(self.rows, sum(self.widths)))
        self.pull = Pull(
            pulls[0].split,
            None,
            [output for pull in pulls for output in pull.outputs],
            [inverse for pull in pulls for inverse in pull.inverses],
            pulls[0].ids,
        )

    def parts_of(self, rank):
        """As `Table.parts_of`."""
        return [
            OwnedShard(self, part.variable, part.shard) for part in self.members[0].parts_of(rank)
        ]

    def gather(self, number, rows):
        """As `Table.gather`."""
        return self._join([table.gather(number, rows) for table in self.members])

    def gradients(self, gradients):
        """The gradients of the rows, `[n, width]`; as `gradients_of_pull` takes `gradients`."""
        return self._join(
            [
                gradients_of_pull(table, pull, gradients)[0].values
                for table, pull in zip(self.members, self._pulls)
            ]
        )

    def connections(self, rows):
        """The `Connection`s of the members, given the rows that a step has pulled."""
        parts = zip(self._pulls, self._split(rows))
        return [Connection(pull.rows, of_member) for pull, of_member in parts]

    def parts(self, found):
        """The `PartGradient`s of the members, given that of a part."""
        part, (rows, values) = found
        with tf.device(part.variable.device):
            split = self._split(values)
        return [
            PartGradient(
                OwnedShard(table, table.shards[part.shard], part.shard), RowGradients(rows, mine)
            )
            for table, mine in zip(self.members, split)
        ]

    def _join(self, of_members):
        flat = [tf.reshape(one, [-1, width]) for one, width in zip(of_members, self.widths)]
        return tf.concat(flat, 1)

    def _split(self, joined):
        found = []
        parts = zip(self.members, tf.split(joined, self.widths, 1))
        for table, part in parts:
            found.append(tf.reshape(part, [-1] + table.row_shape))
        return found
