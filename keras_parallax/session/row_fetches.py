"""Fetches of a session that are sharded rows, which it moves in blocks."""

import functools

import numpy as np

from keras_parallax.tables.rows import (
    BlockAssign,
    numpy_dtype,
)


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

    def __init__(self, omitted=(), move=None):
        self.omitted = list(omitted)
        self._move, self._sources = move, {}
        self.unused = 0

    def stand_in(self, source):
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

    def omits(self, fetch):
        """Whether a weight reads as an array without rows."""
        return any(fetch is weight for weight in self.omitted)

    def set(self, rows, value, session):
        """Sets rows to a value, or from the source that it stands for."""
        _, source = self._sources.get(_memory(value), (value, None))
        if source is None:
            rows.fill(value, session)
        else:
            self.unused -= 1
            self._move(rows, source)

    def skip(self, value):
        """Takes note of a value that another rank has set rows to."""
        if _memory(value) in self._sources:
            self.unused -= 1


def _memory(array):
    """Where an array has its numbers: NumPy makes another object of it to call its dtype anew."""
    return array.ctypes.data if isinstance(array, np.ndarray) else None


def run(run_plain, session, fetches, feeds, detours, write_order):
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
    results, read, others, own, shared = {}, {}, [], [], []
    feeds = dict(feeds or {})
    for number, fetch in enumerate(listed):
        if detours.omits(fetch):
            results[number] = np.empty([0] + fetch.shape.as_list()[1:], numpy_dtype(fetch))
        elif isinstance(fetch, BlockAssign):
            results[number] = None
            assigned = shared if getattr(fetch.rows, 'table', None) is not None else own
            assigned.append((fetch.rows, feeds.pop(fetch.placeholder)))
        elif hasattr(fetch, 'sharded_rows'):
            results[number], read[number] = None, fetch.sharded_rows
        else:
            others.append(number)
    if not results:
        return run_plain(fetches, feeds)
    for rows in read.values():
        rows.make_reader()
    results.update((number, rows.read_all(session)) for number, rows in read.items())

    def write(assignments):
        for rows, _ in assignments:
            rows.make_writer()
        for rows, value in assignments:
            detours.set(rows, value, session)

    def skip():
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
