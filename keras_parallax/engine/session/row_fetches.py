# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Fetches of a session that are sharded rows, which it moves in blocks."""

import functools
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, cast

import numpy as np

from keras_parallax.engine.tables.row_transfer import BlockAssign, Rows, numpy_dtype
from keras_parallax.framework_types import Array, Session, Variable


class Detours:
    """What a session does with rows while Keras saves or loads a model.

    Keras's own code decides what goes where in a file, but it would take whole tables into memory.
    So it gets arrays without rows to write, and to load it gets arrays that hold one number only,
    though they have the shape of a table; the rows themselves are moved in blocks.

    Args:
        omitted: weights that read as arrays without rows.
        move: function `(rows, source)` that sets `Rows` from what `stand_in` was given.

    Attributes:
        omitted: as given.
        unused: number of stand-ins that no rows were set from.
    """

    _sources: Dict[Optional[int], Tuple[Array, Any]]

    def __init__(
        self, omitted: Iterable[Variable] = (), move: Optional[Callable[[Rows, Any], None]] = None
    ) -> None:
        self.omitted = list(omitted)
        self._move, self._sources = move, {}
        self.unused = 0

    def stand_in(self, source: Any) -> Array:
        """An array for Keras to load that stands for a source of rows.

        Args:
            source: has `shape` and `dtype` and gives `source[first:last]`.

        Returns:
            An array of NaN, or of zeros if it is of integers, with the memory of one number.
        """
        number = np.nan if np.issubdtype(source.dtype, np.inexact) else 0
        array = np.broadcast_to(np.array(number, source.dtype), source.shape)
        self._sources[_memory(array)] = array, source
        self.unused += 1
        return array

    def omits(self, fetch: Any) -> bool:
        """Whether a weight reads as an array without rows."""
        return any(fetch is weight for weight in self.omitted)

    def set(self, rows: Rows, value: Any, session: Session) -> None:
        """Sets rows to a value, or from the source that it stands for."""
        _, source = self._sources.get(_memory(value), (value, None))
        if source is None:
            rows.fill(value, session)
        else:
            self.unused -= 1
            move = cast(Callable[[Rows, Any], None], self._move)  # Stand-ins come with it.
            move(rows, source)

    def skip(self, value: Any) -> None:
        """Counts a stand-in as used: another worker, or a later value in the list, sets rows."""
        if _memory(value) in self._sources:
            self.unused -= 1


def _memory(array: Any) -> Optional[int]:
    """Where an array has its numbers: NumPy makes another object of it to call its dtype anew."""
    return array.ctypes.data if isinstance(array, np.ndarray) else None


def run(
    run_plain: Callable[..., Any],
    session: Session,
    fetches: Any,
    feeds: Optional[Dict[Any, Any]],
    detours: Detours,
    write_order: Callable[[Sequence[str], Callable[[], None], Callable[[], None]], None],
) -> Any:
    """Runs fetches, and moves the sharded rows among them in blocks.

    Args:
        run_plain: function `(fetches, feed_dict)` that runs everything else.
        session: the session.
        fetches: as `tf.Session.run` takes them. Of a list, tables and slots that are sharded, and
            assignments of Keras to them, are moved in blocks.
        feeds: the `feed_dict`, or `None`.
        detours: the session's `Detours`.
        write_order: function `(names, write, skip)` that writes what the job has in common, as
            `WriteOrder` does.

    Returns:
        What `tf.Session.run` returns; `None` for an assignment.
    """
    listed = list(fetches) if type(fetches) in (list, tuple) else [fetches]
    results: Dict[int, Any] = {}
    read: Dict[int, Any] = {}
    others: List[int] = []
    own: List[Tuple[Rows, Any]] = []
    shared: List[Tuple[Rows, Any]] = []
    assigned_to: Dict[Any, Any] = {}
    feeds = dict(feeds or {})
    for number, fetch in enumerate(listed):
        if detours.omits(fetch):
            results[number] = np.empty([0] + fetch.shape.as_list()[1:], numpy_dtype(fetch))
        elif isinstance(fetch, BlockAssign):
            results[number] = None
            if fetch.placeholder in assigned_to:
                # Keras lists a layer's weights once for each sub-model that has the layer. The
                # feed dict holds the last value only, which counts for all of them.
                detours.skip(assigned_to[fetch.placeholder])
                continue
            value = assigned_to[fetch.placeholder] = feeds.pop(fetch.placeholder)
            assigned = shared if getattr(fetch.rows, 'table', None) is not None else own
            assigned.append((fetch.rows, value))
        elif hasattr(fetch, 'sharded_rows'):
            results[number], read[number] = None, fetch.sharded_rows
        else:
            others.append(number)
    if not results:
        return run_plain(fetches, feeds)
    for rows in read.values():
        rows.make_reader()
    results.update((number, rows.read_all(session)) for number, rows in read.items())

    def write(assignments: Iterable[Tuple[Rows, Any]]) -> None:
        for rows, _ in assignments:
            rows.make_writer()
        for rows, value in assignments:
            detours.set(rows, value, session)

    def skip() -> None:
        for _, value in shared:
            detours.skip(value)

    write(own)
    if shared:
        names = [rows.name for rows, _ in shared]
        write_order(names, functools.partial(write, shared), skip)
    if others:
        results.update(zip(others, run_plain([listed[number] for number in others], feeds)))
    ordered = [results[number] for number in range(len(listed))]
    return type(fetches)(ordered) if type(fetches) in (list, tuple) else ordered[0]
