# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Counts what a session runs that may change variables, besides training steps."""

import contextlib
import itertools
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from keras_parallax.compat import graph_queries
from keras_parallax.engine.job.job_interface import JobInterface
from keras_parallax.framework_types import Graph

#: What operations are called that change variables, or begin with.
_CHANGES = (
    'Apply',
    'Assign',
    'CountUpTo',
    'DestroyResource',
    'PyFunc',
    'ResourceApply',
    'ResourceCountUpTo',
    'ResourceScatter',
    'ResourceSparseApply',
    'ResourceStridedSliceAssign',
    'ScatterAdd',
    'ScatterDiv',
    'ScatterMax',
    'ScatterMin',
    'ScatterMul',
    'ScatterNdAdd',
    'ScatterNdSub',
    'ScatterNdUpdate',
    'ScatterSub',
    'ScatterUpdate',
    'SparseApply',
    'StridedSliceAssign',
)


#: Every worker attaches its graphs in the same order, so the numbers agree between workers.
_numbers = itertools.count()


class Changes:
    """Counts what a process runs that may change variables, besides training steps.

    Workers that have made equally many steps, and as many changes since, have run the same; and if
    they have also met as often, none of them knows of anything that another has done since.

    Args:
        job: the `Job`.
    """

    _known: Dict[Tuple[Any, ...], Tuple[bool, List[Any]]]

    def __init__(self, job: JobInterface) -> None:
        self._job, self._number = job, next(_numbers)
        self._steps = self._count = 0
        self._known = {}

    def note(self) -> None:
        """Counts a change."""
        self._count = self.point[-1] + 1
        self._steps = self._job.activity.progress.steps

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """While open, what runs belongs to a change that is counted, also where it does not run."""
        counted = self._steps, self._count
        try:
            yield
        finally:
            self._steps, self._count = counted

    def note_run(self, owner: Graph, fetches: Any) -> None:
        """Counts a run of a graph if it may change a variable.

        Args:
            owner: the `tf.Graph`.
            fetches: what is run, in any form that `tf.Session.run` takes.
        """
        parts = flat(fetches)
        key = tuple(fetch if isinstance(fetch, str) else id(fetch) for fetch in parts)
        # Kept with what has these ids, so that nothing else gets them.
        if key not in self._known:
            self._known[key] = changes_variables(owner, parts), parts
        if self._known[key][0]:
            self.note()

    @property
    def since_step(self) -> int:
        """The number of changes since the last training step."""
        return self.point[-1]

    def settle(self) -> None:
        """Counts changes from here on. Called by all workers, when they have the same values."""
        self._steps, self._count = self._job.activity.progress.steps, 0

    @property
    def point(self) -> List[int]:
        """Where training is: the graph, the numbers of steps, meetings and changes since then."""
        progress = self._job.activity.progress
        count = self._count if self._steps == progress.steps else 0
        return [self._number, progress.steps, progress.gathers, count]


def changes_variables(owner: Graph, fetches: Sequence[Any]) -> bool:
    """Whether running a list of tensors and operations, or their names, may change a variable."""
    elements = []
    for fetch in fetches:
        if hasattr(fetch, 'sharded_rows'):
            continue  # Only read.
        try:
            elements.append(owner.as_graph_element(fetch))
        except (TypeError, ValueError, KeyError):
            return True
    operations = graph_queries.ancestors(elements)
    if any(operation.type.startswith(_CHANGES) for operation in operations):
        return True
    called = [operation.node_def for operation in operations if _calls(operation.node_def)]
    return bool(called) and _functions_change(owner, called)


def _calls(node: Any) -> List[str]:
    """The names of the functions that a node calls, branches and bodies of loops among them."""
    names = [value.func.name for value in node.attr.values() if value.HasField('func')]
    names += [one.name for value in node.attr.values() for one in value.list.func]
    return names


def _functions_change(owner: Graph, nodes: Sequence[Any]) -> bool:
    """Whether functions that some nodes call, or that these call, may change a variable."""
    bodies = {one.signature.name: one.node_def for one in owner.as_graph_def().library.function}
    pending, seen = [name for node in nodes for name in _calls(node)], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for node in bodies.get(name, ()):
            if node.op.startswith(_CHANGES):
                return True
            pending += _calls(node)
    return False


def flat(fetches: Any) -> List[Any]:
    """The tensors, operations and names in what a session is asked to run, as a list."""
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if not isinstance(fetches, (list, tuple)):
        return [fetches]
    return [part for fetch in fetches for part in flat(fetch)]
