# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Moves the rows of tables between their shards and arrays or files, block by block.

A table may be larger than what one remote call carries (2 GB) or what a process has memory for, so
nothing here ever holds more of it than a block, except where the caller asks for the whole.
"""

import contextlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    cast,
)

import numpy as np
import tqdm

from keras_parallax.compat import jemalloc, keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.framework_types import (
    Array,
    DType,
    Operation,
    Session,
    Shape,
    Tensor,
    Variable,
    Weight,
)
from keras_parallax.planning.placement import rows_of_shard

#: Moving rows takes no more extra memory than this, in bytes, unless another size is given.
BLOCK_BYTES = 64 * 2**20


#: How often a row may exist on its way: in the file's buffer, in the array of all shards' rows, in
#: the message, with the server; and a server may get those of several workers at a time. Measured
#: by `tests/parallel/test_saving.py`, the memory test: up to 9, on a busy machine.
_COPIES = 12


#: Moves of fewer bytes show no progress bar, unless they are asked to.
_SMALL_BYTES = 256 * 2**20
#: What hears of each block that has moved, by its number of bytes, if anything does.
Advance = Optional[Callable[[int], Any]]


def row_blocks(rows: int, row_bytes: int, block_bytes: int = BLOCK_BYTES) -> List[Tuple[int, int]]:
    """Splits the rows of a table into blocks that can be moved at once: pairs `(first, last)`.

    Moving a block takes `block_bytes` of memory at the most, its copies on the way included; but
    each has one row at least, and `last` is excluded.

    Example:
        ```python
        >>> row_blocks(10, 100, 4800)
        [(0, 4), (4, 8), (8, 10)]
        ```
    """
    at_once = max(1, block_bytes // (_COPIES * max(1, row_bytes)))
    return [(first, min(rows, first + at_once)) for first in range(0, rows, at_once)]


@contextlib.contextmanager
def progress(
    total_bytes: int, description: str, show: Optional[bool] = None
) -> Iterator[Callable[[int], Any]]:
    """A progress bar on the standard error stream for rows that are moved.

    Gives a function of a number of bytes, to be called as they move. If `show` is `None`, the bar
    is shown for large moves on a terminal.
    """
    hidden = not show if show is not None else True if total_bytes < _SMALL_BYTES else None
    with tqdm.tqdm(
        total=total_bytes, desc=description, unit='B', unit_scale=True, disable=hidden
    ) as bar:
        yield bar.update


def local_range(first: int, last: int, shards: int, shard: int) -> Tuple[int, int]:
    """The rows of one shard among rows `first` to `last` of a table, numbered within the shard.

    The second of each pair is excluded.

    Example:
        ```python
        >>> [local_range(4, 8, 3, shard) for shard in range(3)]
        [(2, 3), (1, 3), (1, 2)]
        ```
    """
    return rows_of_shard(first, shards, shard), rows_of_shard(last, shards, shard)


class Rows:
    """A table or a slot of one that is read and set in blocks of rows.

    Keras's `batch_get_value`, `batch_set_value` and `set_value` take it for a variable, if their
    session is a `ParallaxSession`. Subclasses have `read` and `write`.

    Args:
        name: name of the whole, with `:0` as a variable has it.
        shape: shape of the whole, a sequence.
        dtype: the dtype, not that of a reference.

    Attributes:
        name, dtype: as given.
        shape: a `tf.TensorShape`.
        rows: number of rows.
        row_bytes: size of a row in bytes.
    """

    def __init__(self, name: str, shape: Shape, dtype: DType) -> None:
        self.name, self.shape, self.dtype = name, tf.TensorShape(shape), dtype
        self._keras_shape = tuple(self.shape.as_list())
        self.rows, self._row_shape = self._keras_shape[0], self._keras_shape[1:]
        self.row_bytes = int(np.prod(self._row_shape, dtype=np.int64)) * dtype.size

    @property
    def sharded_rows(self) -> 'Rows':
        """Itself: what a session moves in blocks when it is asked to run this."""
        return self

    @property
    def bytes(self) -> int:
        """Size of the whole in bytes."""
        return self.rows * self.row_bytes

    def get_shape(self) -> Shape:
        """The shape of the whole."""
        return self.shape

    def eval(self, session: Optional[Session] = None) -> np.ndarray:
        """The whole as an array, as `eval` of a variable gives it; Keras's `get_value` calls it."""
        return (session or tf.get_default_session()).run(self)

    def read(self, session: Session, first: int, last: int) -> Array:
        """The rows from `first` to `last`, excluded, an array `[last - first] + row_shape`."""
        raise NotImplementedError

    def write(self, session: Session, first: int, values: Array) -> None:
        """Writes an array `[n] + row_shape` as the rows from `first` on."""
        raise NotImplementedError

    def make_reader(self) -> None:
        """Makes the operations that `read` runs, if there are none yet.

        A session learns of all new operations at its next run, which takes longer the larger the
        graph is. So those of rows that are moved one after the other are made before the first run.
        """

    def make_writer(self) -> None:
        """Makes the operations that `write` runs, if there are none yet, as `make_reader`."""

    def read_all(
        self, session: Session, block_bytes: int = BLOCK_BYTES, advance: Advance = None
    ) -> Array:
        """Reads all rows into one array, block by block."""
        whole = np.empty(self._keras_shape, self.dtype.as_numpy_dtype)
        self.copy_to(whole, session, block_bytes, advance)
        return whole

    def copy_to(
        self, target: Any, session: Session, block_bytes: int = BLOCK_BYTES, advance: Advance = None
    ) -> None:
        """Copies all rows to an array or an HDF5 dataset, block by block, as `row_blocks` has them.

        After each block, `advance` is called with its number of bytes.
        """
        jemalloc.free_pages().give_back()
        for first, last in row_blocks(self.rows, self.row_bytes, block_bytes):
            target[first:last] = self.read(session, first, last)
            if advance is not None:
                advance((last - first) * self.row_bytes)

    def fill(
        self,
        source: Any,
        session: Session,
        block_bytes: int = BLOCK_BYTES,
        advance: Advance = None,
        share: Tuple[int, int] = (0, 1),
    ) -> None:
        """Copies all rows from an array or an HDF5 dataset of the same shape, block by block.

        After each block, `advance` is called with its number of bytes. Processes that share the
        work have a `share` each, `(number, of)`: every block whose number modulo `of` is `number`.
        A source of another shape is a `ValueError`.
        """
        if tuple(source.shape) != self._keras_shape:
            raise ValueError(
                '%s has shape %s, but a value of shape %s was given.'
                % (self.name, self._keras_shape, tuple(source.shape))
            )
        jemalloc.free_pages().give_back()
        blocks = row_blocks(self.rows, self.row_bytes, block_bytes)
        for first, last in blocks[share[0] :: share[1]]:
            rows = np.asarray(source[first:last], self.dtype.as_numpy_dtype)
            self.write(session, first, rows)
            if advance is not None:
                advance((last - first) * self.row_bytes)


class _Moves(NamedTuple):
    """What reads or writes rows of each shard.

    Attributes:
        bounds: for each shard the placeholders of its first row, and of that after the last.
        rows: for each shard the placeholder of the rows.
        built: what reads or writes them.
    """

    bounds: List[Tuple[Tensor, Tensor]]
    rows: List[Tensor]
    built: List[Tensor]


class ShardedRows(Rows):
    """The rows of a table, or of a slot of one, that lie in shards: row `r` in shard `r % n`.

    One variable that holds all rows will do for shards. These may hold them in fewer bits than
    `dtype`, if that is given: what is written is then rounded to the nearest.

    Attributes:
        shards: the variables of the shards, in order.
        table: the sharded `Table` that they are the rows of, or slots of, or `None`.
        assignment: the `BlockAssign` by which Keras gives it a value.
    """

    _alone: Dict[int, 'ShardedRows']
    _reader: Optional[_Moves]
    _writer: Optional[_Moves]
    _followed: Optional[Operation]
    gathering: Tuple[Tensor, Tensor]

    def __init__(
        self,
        name: str,
        shards: Sequence[Variable],
        shape: Shape,
        table: Optional[Exchanged] = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(name, shape, dtype or shards[0].dtype.base_dtype)
        self.shards, self.table = list(shards), table
        self._alone = {}
        self._reader = self._writer = self._followed = None
        self.assignment = BlockAssign(self)
        keras_api.assign_by(self, self.assignment)

    def make_reader(self) -> None:
        """As `Rows.make_reader`."""
        if self._reader is None:
            self._reader = self._make(
                lambda shard, begin, end, _: tensorflow_api.rows_between(shard, begin, end)
            )

    def make_writer(self) -> None:
        """As `Rows.make_writer`."""
        if self._writer is None:
            self._writer = self._make(
                lambda shard, begin, end, rows: tf.scatter_update(shard, tf.range(begin, end), rows)
            )
            # Of ids of rows there is an index, which must know those that are written.
            index = getattr(self.shards[0], '_parallax_index', None)
            if index is not None and index.follows(self.shards[0]):
                with self.shards[0].graph.as_default(), tf.name_scope(None):
                    self._followed = index.rebuilt(after=self._writer[2])

    def read(self, session: Session, first: int, last: int) -> Array:
        """As `Rows.read`."""
        return self._joined(session.run(*self._reads(first, last)), first, last)

    def write(self, session: Session, first: int, values: Array) -> None:
        """As `Rows.write`."""
        session.run(*self._writes(first, values))

    def _reads(self, first: int, last: int) -> Tuple[List[Tensor], Dict[Tensor, Any]]:
        """What a session runs to read rows, and what it is fed."""
        self.make_reader()
        bounds, _, parts = cast(_Moves, self._reader)  # `make_reader` has made it.
        return parts, self._bounds(bounds, first, last)

    def _joined(self, values: Sequence[Array], first: int, last: int) -> Array:
        """The rows of what `_reads` has given."""
        if len(values) == 1:
            return np.asarray(values[0], self.dtype.as_numpy_dtype)
        rows = np.empty((last - first,) + self._row_shape, self.dtype.as_numpy_dtype)
        for number, part in enumerate(values):
            rows[self._places(number, first)] = part
        return rows

    def _writes(self, first: int, values: Array) -> Tuple[List[Operation], Dict[Tensor, Any]]:
        """What a session runs to write rows, and what it is fed."""
        self.make_writer()
        bounds, rows, writes = cast(_Moves, self._writer)  # `make_writer` has made it.
        feeds = self._bounds(bounds, first, first + len(values))
        for number, placeholder in enumerate(rows):
            part = values[self._places(number, first)]
            feeds[placeholder] = np.asarray(part, placeholder.dtype.as_numpy_dtype)
        operations = [write.op for write in writes]
        return operations if self._followed is None else operations + [self._followed], feeds

    def of_shard(self, number: int) -> 'ShardedRows':
        """The `Rows` of one shard, as they follow each other there."""
        if number not in self._alone:
            shard = self.shards[number]
            self._alone[number] = ShardedRows(shard.name, [shard], shard.shape, dtype=self.dtype)
        return self._alone[number]

    def _places(self, shard: int, first: int) -> slice:
        """Where the rows of a shard are among all rows from `first` on."""
        return slice((shard - first) % len(self.shards), None, len(self.shards))

    def _bounds(
        self, placeholders: Sequence[Tuple[Tensor, Tensor]], first: int, last: int
    ) -> Dict[Tensor, Any]:
        feeds: Dict[Tensor, Any] = {}
        for number, pair in enumerate(placeholders):
            feeds.update(zip(pair, local_range(first, last, len(self.shards), number)))
        return feeds

    def _make(self, build: Callable[[Variable, Tensor, Tensor, Tensor], Tensor]) -> _Moves:
        """Builds an operation for each shard, on the shard's device, and what it is fed."""
        bounds, rows, built = [], [], []
        graph = self.shards[0].graph
        with graph.as_default(), tf.control_dependencies(None), tf.name_scope(None):
            with tf.name_scope('parallax/blocks/'):
                for shard in self.shards:
                    pair = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
                    values = tf.placeholder(shard.dtype.base_dtype, (None,) + self._row_shape)
                    with tf.device(shard.device):
                        built.append(build(shard, pair[0], pair[1], values))
                    bounds.append(pair)
                    rows.append(values)
        return _Moves(bounds, rows, built)

    def __repr__(self) -> str:
        return '<ShardedRows %s shape=%s shards=%d>' % (self.name, self.shape, len(self.shards))


def bytes_of(weight: Weight) -> int:
    """Size of a variable or of `Rows` in bytes."""
    return weight.shape.num_elements() * weight.dtype.base_dtype.size


def read_together(weights: Sequence[Weight], session: Session) -> List[Any]:
    """The values of `Rows`, and of whatever else a session fetches, by one run: a list."""
    bounds = [(0, weight.rows) if isinstance(weight, Rows) else None for weight in weights]
    return _read(weights, bounds, session)


def _read(weights: Sequence[Weight], bounds: Sequence[Any], session: Session) -> List[Any]:
    """Of `Rows` those between two bounds, of whatever else a session fetches the value: a list."""
    fetches, feeds = {}, {}
    for number, (weight, of_weight) in enumerate(zip(weights, bounds)):
        if isinstance(weight, ShardedRows):
            fetches[number], fed = weight._reads(*of_weight)
            feeds.update(fed)
        elif not isinstance(weight, Rows):
            fetches[number] = weight
    values = session.run(fetches, feeds) if fetches else {}
    found = []
    for number, (weight, of_weight) in enumerate(zip(weights, bounds)):
        if isinstance(weight, ShardedRows):
            found.append(weight._joined(values[number], *of_weight))
        elif isinstance(weight, Rows):
            found.append(weight.read(session, *of_weight))
        else:
            found.append(values[number])
    return found


def move(
    pairs: Sequence[Tuple[Rows, Rows]], session: Session, share: Tuple[int, int] = (0, 1)
) -> None:
    """Copies `Rows` to others of the same shapes, some of each at a time.

    Each run of what a session has not run before has it look through the whole graph, which takes
    longer than the rows do. So there are two such runs, however many are moved.

    Args:
        pairs: a list of pairs of `Rows`, `make_for_moves` has been called with; what is written to
            are `ShardedRows`.
        session: the session.
        share: as `Rows.fill` has it.
    """
    jemalloc.free_pages().give_back()
    count = -(-_COPIES * sum(bytes_of(new) for _, new in pairs) // BLOCK_BYTES)
    for number in range(count)[share[0] :: share[1]]:
        bounds = [
            (new.rows * number // count, new.rows * (number + 1) // count) for _, new in pairs
        ]
        writes, feeds = [], {}
        values = _read([old for old, _ in pairs], bounds, session)
        for (_, new), (first, _), of_new in zip(pairs, bounds, values):
            operations, fed = cast(ShardedRows, new)._writes(first, of_new)
            writes.append(operations)
            feeds.update(fed)
        session.run(writes, feeds)


def make_for_moves(pairs: Iterable[Tuple[Rows, Rows]]) -> None:
    """Makes the operations that `move` runs."""
    for old, new in pairs:
        old.make_reader()
        new.make_writer()


def emptied(variables: Iterable[Variable]) -> List[Operation]:
    """Operations that assign variables zeros where they lie: what is to be written by rows."""
    operations = []
    for variable in variables:
        with tf.device(variable.device):
            nothing = tensorflow_api.zeros(variable.shape.as_list(), variable.dtype.base_dtype)
            operations.append(tensorflow_api.assign_freed(variable, nothing))
    return operations


class BlockAssign:
    """Stands for the operation that assigns sharded rows a value; a `ParallaxSession` runs it.

    Attributes:
        rows: the `Rows`.
        placeholder: the key of the value in the `feed_dict`; no graph knows it.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.placeholder = object()


def replaced(fetches: Any, given: Mapping[str, Any]) -> Any:
    """Fetches, as `tf.Session.run` takes them, with those given, by name, in place of some."""
    if not given:
        return fetches
    if isinstance(fetches, dict):
        return type(fetches)((key, replaced(value, given)) for key, value in fetches.items())
    if isinstance(fetches, (list, tuple)):
        values = [replaced(value, given) for value in fetches]
        return type(fetches)(*values) if hasattr(fetches, '_fields') else type(fetches)(values)
    if isinstance(fetches, str):
        return given.get(fetches, fetches)
    if hasattr(fetches, 'sharded_rows'):
        return fetches
    # Of a variable, and of what an assignment to one returns, it is the tensor that is fetched.
    element = tensorflow_api.graph_element(fetches)
    return given.get(element.name, fetches) if isinstance(element, tf.Tensor) else fetches


def numpy_dtype(weight: Weight) -> Any:
    """The NumPy dtype of a variable or of `Rows`."""
    return weight.dtype.base_dtype.as_numpy_dtype
