# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One shard of a table whose ids nobody has numbered: which of its rows are whose."""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import index_storage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import id_hashes
from keras_parallax.framework_types import Operation, Tensor

#: What the weight says of a row that no id has. As an id it is refused. In the index it stands for
#: how many rows the shard has given away: so rows and their number are written by one operation.
NO_ID = -(2**63)

#: What stands for the row of an id that has none.
WITHOUT_ROW = -1

#: Names of what lies beside the rows of a table, row by row: the ids, the steps in which rows were
#: used last, in how many they were, and the ids that have yet to be admitted with their counts.
IDS, LAST_STEPS, STEPS_USED, CANDIDATES = 'ids', 'last_steps', 'steps_used', 'candidates'

#: What a shard keeps numbers of: the step; how many rows new ids have asked for in it; and, since
#: the job began, rows given and taken away, ids that were left without one; and whether an admitted
#: id has found none.
NUMBERS = CLOCK, ASKED, GIVEN, EVICTED, LEFT_OUT, FULL = range(6)

_FREE = 2**32


class IndexPart(NamedTuple):
    """One shard of a table, and what is known of its ids.

    Attributes:
        number, count: number of the shard, and how many there are.
        rows: how many rows of it ids may have.
        shared: number of the row of ids that are not admitted, if it is one of its own; or `None`.
        whole: how many rows the whole table has.
        device: where it lies.
        mutex: held by who gives rows or takes them away, or fills the hash tables anew.
        table: the `HashTable` from ids to numbers of rows, as the whole table has them.
        free: one from 0, 1, 2, ... to the shard's own numbers of rows that were given back.
        met: one of the ids that this step has met and that were given no row.
        numbers: one from `NUMBERS` to numbers.
        storages: dict from names to the `Storage`s of what lies beside the rows, and from `None` to
            that of the rows themselves.
    """

    number: int
    count: int  # type: ignore[assignment]  # It hides `tuple.count`.
    rows: int
    shared: Optional[int]
    whole: int
    device: str
    mutex: Any
    table: index_storage.HashTable
    free: index_storage.HashTable
    met: index_storage.HashTable
    numbers: index_storage.HashTable
    storages: Dict[Any, Any]

    def find(self, ids: Tensor) -> Tensor:
        """The rows that ids `[n]` have, `[n]` int64; `WITHOUT_ROW` for those that have none."""
        return self.table.find(ids, none=WITHOUT_ROW)

    def number_of(self, key: int) -> Tensor:
        """One of `NUMBERS`, a scalar."""
        return self.numbers.find(tf.constant([key], tf.int64), none=0)[0]

    def add_numbers(self, added: Mapping[int, Any]) -> Operation:
        """An operation that adds to numbers; `added` is a dict from `NUMBERS` to scalars."""
        return self.set_numbers({key: self.number_of(key) + more for key, more in added.items()})

    def set_numbers(self, values: Mapping[int, Any]) -> Operation:
        """An operation that sets numbers, as `add_numbers`."""
        keys = sorted(values)
        return self.numbers.insert(
            tf.constant(keys, tf.int64), tf.stack([tf.to_int64(values[key]) for key in keys])
        )

    def taken(self) -> Tuple[Tensor, Tensor]:
        """How many rows were given, the first ones; and how many of them were given back."""
        packed = self.table.find(tf.constant([NO_ID], tf.int64), none=0)[0]
        return tf.floormod(packed, _FREE), tf.floordiv(packed, _FREE)

    def give(
        self, ids: Tensor, number: Tensor, initial: Callable[[Tensor], Tensor], steps_used: int = 0
    ) -> Operation:
        """Gives rows to the first ids.

        Whatever breaks off in between has given nothing: a row is given when it is in the index,
        and then it has its id and its values.

        Args:
            ids: `[n]` int64, none of which has a row.
            number: how many of them get one, a scalar int64; there must be so many.
            initial: function from ids to the values that their rows begin with.
            steps_used: in how many steps they count as used.

        Returns:
            An operation.
        """
        given, free = self.taken()
        again = tf.minimum(number, free)
        new, others = ids[:number], given + number - again
        freed = self.free.find(tf.range(free - again, free), none=0)
        places = tf.concat([freed, tf.range(given, others)], 0)
        written = [
            self.storages[None].write(places, initial(new)),
            self.storages[IDS].write(places, new),
        ]
        if LAST_STEPS in self.storages:
            steps = tf.fill([tf.size(new)], self.number_of(CLOCK))
            written.append(self.storages[LAST_STEPS].write(places, steps))
        if STEPS_USED in self.storages:
            used = tf.fill([tf.size(new)], tf.constant(steps_used, tf.int64))
            written.append(self.storages[STEPS_USED].write(places, used))
        with tf.control_dependencies(written):
            indexed = self.table.insert(
                tf.concat([new, [NO_ID]], 0),
                tf.concat([self.of_table(places), [others + (free - again) * _FREE]], 0),
            )
        with tf.control_dependencies([indexed]):
            return self.add_numbers({GIVEN: number})

    def give_back(self, places: Tensor) -> Operation:
        """An operation that counts rows as free; they have lost their ids."""
        given, free = self.taken()
        number = tf.size(places, out_type=tf.int64)
        inserted = self.free.insert(tf.range(free, free + number), places)
        with tf.control_dependencies([inserted]):
            return self.table.insert(
                tf.constant([NO_ID], tf.int64), [given + (free + number) * _FREE]
            )

    def of_table(self, places: Tensor) -> Tensor:
        """What the whole table numbers the shard's own rows as."""
        return places * self.count + self.number

    def refilled(self, ids: Tensor, rows: Tensor) -> List[Operation]:
        """Operations that fill the hash tables anew.

        Args:
            ids: those whose hash names this shard.
            rows: what the whole table numbers their rows as.
        """
        stored = self.storages[IDS].read()
        places = tf.where(tf.not_equal(stored, NO_ID))[:, 0]
        given = tf.reduce_max(tf.concat([places, [-1]], 0)) + 1
        free = tf.where(tf.equal(stored[:given], NO_ID))[:, 0]
        number = tf.size(free, out_type=tf.int64)
        nothing = tf.zeros([0], tf.int64)
        return [
            self.free.replace(tf.range(number), free),
            self.met.replace(nothing, nothing),
            self.table.replace(
                tf.concat([ids, [NO_ID]], 0), tf.concat([rows, [given + number * _FREE]], 0)
            ),
        ]

    def known(self) -> Tuple[Tensor, Tensor]:
        """The ids that the weight says have rows of this shard, and what the table numbers them."""
        stored = self.storages[IDS].read()
        places = tf.where(tf.not_equal(stored, NO_ID))[:, 0]
        return tf.gather(stored, places), self.of_table(places)


def make_part(
    number: int,
    count: int,
    rows: int,
    shared: Optional[int],
    whole: int,
    device: Optional[str],
    name: str,
    storages: Dict[Any, Any],
) -> IndexPart:
    """Makes an `IndexPart` whose hash tables and lock are known by a name, on its device."""
    with tf.device(device or '/device:CPU:0'):
        mutex = index_storage.mutex(name + '/mutex')
        table, free, met, numbers = [
            index_storage.HashTable(name + ending) for ending in ('', '/free', '/met', '/numbers')
        ]
    return IndexPart(
        number,
        count,
        rows,
        shared,
        whole,
        device or '/device:CPU:0',
        mutex,
        table,
        free,
        met,
        numbers,
        storages,
    )


def split(ids: Tensor, parts: Sequence[IndexPart], *columns: Tensor) -> List[List[Tensor]]:
    """Splits columns `[n]` by the parts of ids `[n]`; returns a list for each column."""
    if len(parts) == 1:
        return [[column] for column in columns]
    homes = id_hashes.homes_of(ids, parts[0].whole)
    return split_rows(homes, parts, *columns)


def split_rows(rows: Tensor, parts: Sequence[IndexPart], *columns: Tensor) -> List[List[tf.Tensor]]:
    """The same, by rows `[n]` of the whole table."""
    if len(parts) == 1:
        return [[column] for column in columns]
    shards = tf.to_int32(tf.floormod(rows, len(parts)))
    return [tf.dynamic_partition(column, shards, len(parts)) for column in columns]
