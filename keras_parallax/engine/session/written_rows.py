# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which rows of tables a session writes: what runs is looked through for writes to them.

Whatever writes a table or a slot, its shards or the variable that is not sharded, is an operation
of the graph that a session of ours runs: a training step, a script's assignment, a file that is
loaded row block by row block, a copy to other shards. One that says which rows it writes has them
marked in the same run. After any other, all rows count as written.
"""

import contextlib
from typing import (
    AbstractSet,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.tables.id_index import index_of
from keras_parallax.engine.tables.touched_rows import RowMarks
from keras_parallax.framework_types import Operation, Tensor, Variable

#: What operations are called that write rows of the numbers in their input `indices`, and no other
#: ones; begins of names. Those with `Nd` in their names have numbers of another kind.
_BY_ROWS = ('ResourceScatter', 'ResourceSparseApply', 'Scatter', 'SparseApply')


class Watched(NamedTuple):
    """A variable whose writes are watched.

    Attributes:
        variable: the variable.
        marks: the `RowMarks` of its rows; `None` if it is always written as a whole.
    """

    variable: tf.Variable
    marks: Optional[RowMarks]


class RowWatch:
    """The writes to some variables since somebody has asked for them last.

    Args:
        watched: dict from keys, which all workers share, to `Watched`.

    Attributes:
        watched: as given.
        whole: the set of keys of variables of which any row may have been written by this process.
    """

    whole: Set[Any]
    _operations: Dict[Any, str]

    def __init__(self, watched: Dict[Any, Watched]) -> None:
        self.watched, self.whole = watched, set()
        self._operations = {}

    def begin(self) -> Set[Any]:
        """Takes it that nothing is written yet, marks aside; returns what was, a set of keys."""
        whole, self.whole = self.whole, set()
        return whole

    def marking_of(self, operations: AbstractSet[Operation]) -> '_Marking':
        """What has to be noted when a set of operations runs, a `_Marking`."""
        writes: Dict[Tuple[RowMarks, Tensor], Set[Operation]] = {}
        whole, by_rows = set(), set()
        for key, (variable, marks) in self.watched.items():
            for write in _writes_to(variable):
                if write not in operations:
                    continue
                rows = None if marks is None else _written_by(write)
                if marks is None or rows is None:
                    whole.add(key)
                else:
                    # A kernel may write a table and its slots at once.
                    by_rows.add(key)
                    writes.setdefault((marks, rows), set()).add(write)
        targets = [self._marked(*one, of_rows) for one, of_rows in writes.items()]
        return _Marking(self, targets, whole, by_rows - whole)

    def _marked(self, marks: RowMarks, rows: Tensor, writes: AbstractSet[Operation]) -> str:
        """The name of the operation that marks rows when some operations have written them."""
        key = marks, rows, frozenset(writes)
        if key not in self._operations:
            self._operations[key] = marks.mark_after(writes, rows).name
        return self._operations[key]


class _Marking(NamedTuple):
    """What has to be noted of a run.

    Attributes:
        watch: the `RowWatch`.
        targets: names of operations to run with it, which set marks.
        whole: keys of what it writes, and not by rows.
        by_rows: keys of what it writes by rows that are marked.
    """

    watch: RowWatch
    targets: List[str]
    whole: Set[Any]
    by_rows: Set[Any]


class Noting(NamedTuple):
    """What has to be noted of a run for every `RowWatch`.

    Attributes:
        markings: the `_Marking`s that have something to note.
    """

    markings: List[_Marking] = []

    @property
    def targets(self) -> List[str]:
        """Names of operations to run with it, a list."""
        return [name for marking in self.markings for name in marking.targets]

    @contextlib.contextmanager
    def noted(self, marked: bool = True) -> Iterator[None]:
        """While open, what is to be noted runs; with the `targets`, if it is `marked`."""
        for marking in self.markings:
            marking.watch.whole |= marking.whole if marked else marking.whole | marking.by_rows
        try:
            yield
        except BaseException:
            # Some rows may be written and not marked.
            for marking in self.markings:
                marking.watch.whole |= marking.by_rows
            raise


class WrittenRows:
    """The `RowWatch`es of a graph, and what runs of its sessions have to note for them.

    Args:
        scope: the `GraphScope`.

    Attributes:
        version: another number when other things have to be noted.
    """

    _watches: List[RowWatch]

    def __init__(self, scope: ScopeInterface) -> None:
        self._scope, self._watches, self.version = scope, [], 0
        self._known: Dict[Any, Any] = {}

    def add(self, watch: RowWatch) -> None:
        """Watches from now on."""
        self._watches.append(watch)
        self._forget()

    def remove(self, watch: RowWatch) -> None:
        """Watches no more."""
        self._watches.remove(watch)
        self._forget()

    def _forget(self) -> None:
        self.version += 1
        self._known = {}

    def of_run(self, names: Iterable[str]) -> Noting:
        """What has to be noted of a run of operations, given their names: a `Noting`."""
        if not self._watches:
            return _NOTHING
        key, graph = tuple(names), self._scope.graph
        version, noting = self._known.get(key, (None, None))
        if version != graph.version:
            with self._scope.lock.held(), graph.as_default():
                run = graph_queries.ancestors(map(graph.get_operation_by_name, key))
                with tf.control_dependencies(None), tf.name_scope(None):
                    with tf.name_scope('parallax/marks/'):
                        markings = [watch.marking_of(run) for watch in self._watches]
                noting = Noting([one for one in markings if one.whole or one.by_rows])
                self._known[key] = graph.version, noting
        return noting


_NOTHING = Noting()


def _writes_to(variable: Variable) -> List[Operation]:
    """The operations that may write to a variable, a list."""
    storages, index = [tensorflow_api.storage(variable)], index_of(variable)
    if index is not None and variable in index.storages:
        storages.append(index.storages[variable].tensor)
    return [
        user
        for storage in storages
        for user in tensorflow_api.consumers(storage)
        if tensorflow_api.writes_to(user, storage)
    ]


def _written_by(write: Operation) -> Optional[Tensor]:
    """The numbers of the rows that an operation writes, a tensor; `None` if it may write all."""
    if not write.type.startswith(_BY_ROWS) or 'Nd' in write.type:
        return None
    if tensorflow_api.is_in_control_flow(write):
        return None
    return dict(
        zip((given.name for given in tensorflow_api.op_def(write).input_arg), write.inputs)
    )['indices']
