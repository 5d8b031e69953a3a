# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which row of a table an id has, where nobody has numbered the ids.

A weight beside the table says which id each row has. An index, one hash table for each shard, on
the shard's server, finds rows by it: the shard of an id follows from the id, and gives it a row of
its own. What is in the index can be made again from the weight, which alone is saved.
"""

import contextlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from keras_parallax.compat import index_storage, keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.tables import id_part
from keras_parallax.engine.tables.id_part import (
    ASKED,
    CLOCK,
    EVICTED,
    FULL,
    GIVEN,
    IDS,
    LAST_STEPS,
    LEFT_OUT,
    IndexPart,
)
from keras_parallax.engine.tables.id_policies import Admission, Eviction
from keras_parallax.engine.tables.pull import redirect_readers
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Operation, Tensor, Variable

#: What stands for the row of an id that has none; and of one that needs one of a full table.
WITHOUT_ROW, NO_ROW_LEFT = id_part.WITHOUT_ROW, -2


#: Rows that ids have now; how often since the job began one was given, and taken away; and how
#: often a new id of a training batch has found none.
COUNTS = 'rows_used', 'rows_given', 'rows_evicted', 'ids_left_out'


class _Lookup(NamedTuple):
    """Ids `[n]` that are looked up, each once, whether they get rows, and their rows."""

    ids: tf.Tensor
    giving: tf.Tensor
    rows: tf.Tensor


class IdIndex:
    """The index of a table.

    Args:
        variable: the table.
        beside: dict from names to the weights that lie beside its rows; `id_part` has the names.
        initial: function from ids `[n]` to the values `[n, width]` that their rows begin with.
        admission, eviction: the `id_policies`, or `None`. With an admission the last row is that
            of all ids that are not admitted.

    Attributes:
        variable, beside, initial, admission, eviction: as given.
        parts: the `IndexPart`s.
        storages: dict from these variables to the `Storage`s through which the index writes to
            them, while they have no shards.
    """

    _counts: Optional[Dict[str, Tensor]]
    _used_of_parts: Optional[Tensor]
    _shards_beside: Dict[str, Sequence[Variable]]
    parts: List[IndexPart]

    def __init__(
        self,
        variable: Variable,
        beside: Dict[str, Variable],
        initial: Callable[[Tensor], Tensor],
        admission: Optional[Admission] = None,
        eviction: Optional[Eviction] = None,
    ) -> None:
        self.variable, self.beside, self.initial = variable, beside, initial
        self.admission, self.eviction = admission, eviction
        self._lookups: List[_Lookup] = []
        self._counts = self._used_of_parts = None
        self._shards_beside = {name: [weight] for name, weight in beside.items()}
        weights = [variable, *beside.values()]
        # Under another name, so that who asks what reads or writes the variables, to find out
        # whether they are sparse and to move them, does not meet the index.
        with tf.name_scope(None), tf.control_dependencies(None):
            with tf.device(variable.device or '/device:CPU:0'):
                self.storages = {weight: index_storage.another_name(weight) for weight in weights}
        of_names = {name: self.storages[weight] for name, weight in beside.items()}
        self.parts = [
            self._make_part(
                0, 1, self._rows, variable.device, '', self.storages[variable], of_names
            )
        ]
        for weight in weights:
            weight._parallax_index = self

    @property
    def _rows(self) -> int:
        return self.variable.shape.as_list()[0]

    @property
    def capacity(self) -> int:
        """How many rows ids may have."""
        return self._rows - (self.admission is not None)

    @property
    def shared_row(self) -> Optional[int]:
        """The row of all ids that are not admitted, or `None`."""
        return None if self.admission is None else self._rows - 1

    @property
    def gives_rows(self) -> bool:
        """Whether any lookup gives ids rows in training."""
        return any(lookup.giving is not None for lookup in self._lookups)

    def _make_part(
        self,
        number: int,
        count: int,
        rows: int,
        device: str,
        ending: str,
        values: Any,
        beside: Dict[str, Any],
    ) -> IndexPart:
        shared = None
        if self.shared_row is not None and self.shared_row % count == number:
            shared = rows = rows - 1
        name = 'parallax/%s/index%s' % (self.variable.op.name, ending)
        with tf.name_scope(None), tf.control_dependencies(None):
            storages: Dict[Any, Any] = {None: values, **beside}
            return id_part.make_part(
                number, count, rows, shared, self._rows, device, name, storages
            )

    def follow_assignment(self) -> None:
        """Has Keras make the index again where it sets the weights, without a strategy too."""
        for weight in map(self.beside.get, (IDS, LAST_STEPS)):
            if weight is None:
                continue
            with tf.name_scope(None), tf.control_dependencies(None):
                value = tf.placeholder(tf.int64, weight.shape)
                assigned = tf.assign(weight, value)
                assignment = self.rebuilt(after=[assigned])
            keras_api.assign_by(weight, assignment, value)

    def rows_of(self, ids: Tensor, giving: Optional[Tensor]) -> Tensor:
        """The rows of ids, `[n]` int64; negative for an id that has none.

        That is `NO_ROW_LEFT` in training, if an id was admitted for which there was no row left,
        and else `WITHOUT_ROW`.

        Args:
            ids: `[n]` int64, each once.
            giving: a scalar that tells whether this is training, in which ids without a row get
                one, as far as there are any; `None` if it never is.
        """
        rows = self._found(ids, giving)
        if self.eviction is not None and giving is not None:
            rows = tf.cond(giving, lambda: self._used(rows), lambda: tf.identity(rows))
        self._lookups.append(_Lookup(ids, giving, rows))
        return rows

    def follow(self, table: Table, beside: Mapping[str, Table], rank: int) -> None:
        """Follows the table to its shards; what looks up ids, does so there.

        Args:
            table: the `Table`.
            beside: dict from names to the `Table`s of what lies beside it, with as many shards.
            rank: this process's rank.
        """
        self._shards_beside = {name: of_name.shards for name, of_name in beside.items()}
        self.parts, self._counts, self._used_of_parts = [], None, None
        for number, shard in enumerate(table.shards):
            of_names = {
                name: index_storage.storage_of(of_name.shards[number])
                for name, of_name in beside.items()
            }
            place = number, len(table.shards), table.planned_shards[number].rows, shard.device
            storage = index_storage.storage_of(shard)
            self.parts.append(self._make_part(*place, '_%d' % number, storage, of_names))
        for shards in self._shards_beside.values():
            for shard in shards:
                shard._parallax_index = self
        lookups, self._lookups = self._lookups, []
        for lookup in lookups:
            with tf.device(devices.shard_device(rank)):
                rows = self.rows_of(lookup.ids, lookup.giving)
            redirect_readers(lookup.rows, rows)

    def counts(self) -> Dict[str, Tensor]:
        """What has come of rows and ids in all shards: a dict from `COUNTS` to scalars int64."""
        if self._counts is None:
            of_parts = []
            with self.variable.graph.as_default(), tf.name_scope(None):
                for part in self.parts:
                    with tf.control_dependencies(None), tf.device(part.device):
                        given, free = part.taken()
                        numbers = map(part.number_of, (GIVEN, EVICTED, LEFT_OUT))
                        of_parts.append([given - free, *numbers])
                self._counts = dict(zip(COUNTS, map(tf.add_n, zip(*of_parts))))
        return self._counts

    def rows_used(self) -> Tensor:
        """How many rows of each shard ids have now, a tensor `[n]` for `n` shards."""
        if self._used_of_parts is None:
            of_parts = []
            with self.variable.graph.as_default(), tf.name_scope(None):
                for part in self.parts:
                    with tf.control_dependencies(None), tf.device(part.device):
                        given, free = part.taken()
                        of_parts.append(given - free)
                with tf.control_dependencies(None):
                    self._used_of_parts = tf.stack(of_parts)
        return self._used_of_parts

    def counted(self, counts: Mapping[str, int]) -> Operation:
        """An operation after which that has come of rows and ids before; as `counts`, of numbers.

        What has come of them in the parts, which are new, is forgotten.
        """
        done = []
        with tf.name_scope('parallax/counted'):
            for number, part in enumerate(self.parts):
                values = dict.fromkeys((ASKED, GIVEN, EVICTED, LEFT_OUT, FULL), 0)
                if number == 0:
                    for key, name in zip((GIVEN, EVICTED, LEFT_OUT), COUNTS[1:]):
                        values[key] = counts[name]
                with tf.device(part.device):
                    done.append(part.set_numbers(values))
            return tf.group(*done)

    def follows(self, variable: Variable) -> bool:
        """Whether what the index knows must be made again when a variable is written."""
        return any(
            variable is shard
            for name in (IDS, LAST_STEPS)
            for shard in self._shards_beside.get(name, ())
        )

    def rebuilt(self, after: Sequence[Any] = ()) -> Operation:
        """An operation that makes the index again of what the weights say, after some operations.

        Of several that are run at a time, the last one sees what all have waited for.
        """
        with tf.name_scope('parallax/rebuilt'):
            first = self.parts[0]
            with tf.device(first.device):
                with index_storage.locked(first.mutex, after=after) as lock:
                    lock.hold_until(self._fills())
                return lock.released

    def _fills(self) -> List[Operation]:
        latest: List[Tensor] = []
        by_part: List[Tuple[List[Tensor], List[Tensor]]] = [([], []) for _ in self.parts]
        for part in self.parts:
            with tf.device(part.device):
                ids, rows = part.known()
                for of_part, own in zip(by_part, zip(*id_part.split(ids, self.parts, ids, rows))):
                    for column, values in zip(of_part, own):
                        column.append(values)
                if LAST_STEPS in part.storages:
                    latest.append(tf.reduce_max(part.storages[LAST_STEPS].read()))
        fills = []
        for part, (ids, rows) in zip(self.parts, by_part):
            with tf.device(part.device):
                fills += part.refilled(tf.concat(ids, 0), tf.concat(rows, 0))
                if latest:
                    fills.append(part.set_numbers({CLOCK: tf.reduce_max(latest) + 1}))
        return fills

    def _found(self, ids: Tensor, giving: Optional[Tensor]) -> Tensor:
        if len(self.parts) == 1:
            return self._found_in(self.parts[0], ids, giving)
        of_parts, places = id_part.split(ids, self.parts, ids, tf.range(tf.size(ids)))
        rows = [self._found_in(part, own, giving) for part, own in zip(self.parts, of_parts)]
        return tf.reshape(tf.dynamic_stitch(places, rows), [-1])

    def _found_in(self, part: IndexPart, ids: Tensor, giving: Optional[Tensor]) -> Tensor:
        """The rows of a part's ids, after those without any were given rows, if there are any."""
        with tf.device(part.device):
            found = part.find(ids)
            if giving is None:
                return found
            without = self._noted if self.admission is not None else self._given
            return tf.cond(
                tf.logical_and(giving, tf.reduce_any(found < 0)),
                lambda: without(part, ids, found),
                lambda: tf.identity(found),
            )

    def _noted(self, part: IndexPart, ids: Tensor, found: Tensor) -> Tensor:
        """Notes ids without a row, of whom the end of the step decides; returns `found`."""
        new = tf.boolean_mask(ids, found < 0)
        with tf.control_dependencies([part.met.insert(new, new)]):
            is_short = tf.logical_and(found < 0, part.number_of(FULL) > 0)
            return tf.where(is_short, tf.fill(tf.shape(found), tf.to_int64(NO_ROW_LEFT)), found)

    def _given(self, part: IndexPart, ids: Tensor, found: Tensor) -> Tensor:
        """Gives rows, one process at a time; returns those that ids have then."""
        with index_storage.locked(part.mutex, after=[found]) as lock:
            # Meanwhile another process may have given rows to the same ids.
            new = tf.boolean_mask(ids, part.find(ids) < 0)
            (given, free), wanted = part.taken(), tf.size(new, out_type=tf.int64)
            room = part.rows - given + free
            if self.eviction is None:
                number = tf.where(wanted <= room, wanted, tf.zeros_like(wanted))
            else:
                number = tf.minimum(wanted, room)
            done = [part.give(new, number, self.initial)]
            if self.eviction is not None:
                others = new[number:]
                with tf.control_dependencies(done):
                    done = [part.add_numbers({ASKED: number}), part.met.insert(others, others)]
            with tf.control_dependencies(done):
                rows = part.find(ids)
            lock.hold_until([rows])
        with tf.control_dependencies([lock.released]):
            return tf.identity(rows)

    def _used(self, rows: Tensor) -> Tensor:
        """Notes in which step rows are used; returns them."""
        known, noted = tf.boolean_mask(rows, rows >= 0), []
        for part, own in zip(self.parts, id_part.split_rows(known, self.parts, known)[0]):
            with tf.device(part.device):
                steps = tf.fill([tf.size(own)], part.number_of(CLOCK))
                places = tf.floordiv(own, part.count)
                noted.append(part.storages[LAST_STEPS].write(places, steps))
        with tf.control_dependencies(noted):
            return tf.identity(rows)


#: The contexts of `to_predict` that are open.
_open: List[object] = []


@contextlib.contextmanager
def to_predict() -> Iterator[None]:
    """While open, layers are made that give no rows, and so need not be told of training."""
    _open.append(None)
    try:
        yield
    finally:
        _open.pop()


def is_to_predict() -> bool:
    """Whether layers are made for predictions alone."""
    return bool(_open)


def index_of(variable: Variable) -> Optional[IdIndex]:
    """The `IdIndex` of a table, or of what lies beside it; `None` if it has none."""
    return getattr(variable, '_parallax_index', None)
