"""Tables that are looked up with the same ids: their rows travel side by side, as one row.

A sampled softmax looks its kernel and its bias up with the same words, Wide & Deep two tables with
each column. Joined, they send row numbers once, and one message where they would send several. The
tables stay as they are: each has its own shards, slots and updates, and is looked up, checked,
predicted with, saved and moved by itself.
"""

import collections

from keras_parallax import compat
from keras_parallax.compat import tf
from keras_parallax.exchange import PartGradient, RowGradients, gradients_of_pull
from keras_parallax.pull import Connection, Pull
from keras_parallax.table import Part


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
        if len(of_table) == 1 and not compat.is_in_control_flow(of_table[0].split.ids):
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
        return [Part(self, part.variable, part.shard) for part in self.members[0].parts_of(rank)]

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
                Part(table, table.shards[part.shard], part.shard), RowGradients(rows, mine)
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
