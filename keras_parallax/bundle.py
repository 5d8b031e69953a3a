"""Bundles: small tables whose rows look alike are pulled and pushed as if they were one table.

Fifty small tables on eight servers would send a thousand messages in a step and run as many
operations again to sort rows by shard and worker. A bundle does it for all of them at once. The
tables stay as they are: each has its own shards, slots and updates, and is looked up, checked,
predicted with, saved and moved by itself.
"""

import collections
from typing import NamedTuple, Tuple

import numpy as np

from keras_parallax import compat, graph
from keras_parallax.classify import SPARSE
from keras_parallax.compat import tf
from keras_parallax.exchange import PartGradient, RowGradients
from keras_parallax.plan import Shard
from keras_parallax.pull import split_by_shard
from keras_parallax.table import Part, as_indices

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


def alike(planned):
    """What tables must have in common to be in one bundle: their rows, and where these lie.

    Args:
        planned: a `PlannedVariable`.

    Returns:
        A tuple to compare.
    """
    return planned.dtype, planned.shape[1:], tuple(shard.server for shard in planned.shards)


def bundles_of(tables):
    """Which tables are bundled.

    Args:
        tables: a list of pairs of something and its `PlannedVariable`.

    Returns:
        A list of lists, of two at least.
    """
    groups = collections.OrderedDict()
    for table, planned in tables:
        if is_small(planned):
            groups.setdefault(alike(planned), []).append(table)
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
    return not compat.is_in_control_flow(ids) and graph.ancestors([ids]).isdisjoint(
        pull.rows.op for pull in of_all
    )


class _Shards(NamedTuple):
    """As much of a `PlannedVariable` as pulls and pushes ask for."""

    shards: Tuple[Shard, ...]


class Bundle:
    """Tables that are pulled and pushed as one, which takes the place of a `Table` there.

    Row r of shard k of the table of number t of T tables is row `r * T + t` of the bundle's shard
    k. So the bundle has as many shards as each table, on the same servers.

    Args:
        members: the `Table`s.

    Attributes:
        members: the `Table`s.
        name: made of the first one's.
        rows, row_shape, dtype, plan, shards: as those of a `Table`; the shards are the first
            member's, to tell devices by.
    """

    def __init__(self, members):
        self.members, first = list(members), members[0]
        self.name = first.name + '/bundle'
        self.row_shape, self.dtype, self.shards = first.row_shape, first.dtype, first.shards
        self.owner_of, self.device_of = first.owner_of, first.device_of
        longest = [
            max(shards, key=lambda shard: shard.rows)
            for shards in zip(*[table.plan.shards for table in self.members])
        ]
        self.plan = _Shards(
            tuple(shard._replace(rows=shard.rows * len(self.members)) for shard in longest)
        )
        self.rows = len(longest) * max(shard.rows for shard in self.plan.shards)

    def parts_of(self, rank):
        """As `Table.parts_of`."""
        return [Part(self, part.variable, part.shard) for part in self.members[0].parts_of(rank)]

    def gather(self, number, rows):
        """As `Table.gather`."""
        count, rows = len(self.members), as_indices(rows)
        table = self._table_of(rows)
        places = tf.dynamic_partition(tf.range(tf.size(rows)), table, count)
        found = [
            tf.gather(member.shards[number], of_member)
            for member, of_member in zip(
                self.members, tf.dynamic_partition(tf.floordiv(rows, count), table, count)
            )
        ]
        return tf.dynamic_stitch(places, found)

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
            [tf.fill([tf.size(one)], tf.constant(t, wide)) for t, one in enumerate(ids_of_members)],
            0,
        )
        within = tf.floordiv(ids, shards) * count + table
        return split_by_shard(within * shards + tf.floormod(ids, shards), self.plan.shards)

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
                Part(member, member.shards[part.shard], part.shard), RowGradients(*gradients)
            )
            for member, *gradients in zip(self.members, of_rows, of_values)
        ]
