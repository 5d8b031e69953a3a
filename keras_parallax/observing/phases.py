# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which part of a training step an operation belongs to. Pure functions, over names and a graph."""

import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional

from keras_parallax.framework_types import Operation

PULL, FORWARD, BACKWARD, PUSH = 'pull', 'forward', 'backward', 'push'
WAIT, UPDATE, ALLREDUCE, BARRIER = 'wait for pushes', "owner's update", 'allreduce', 'barrier'

#: The phases, as they are drawn from top to bottom.
PHASES = (PULL, FORWARD, BACKWARD, ALLREDUCE, PUSH, WAIT, UPDATE, BARRIER)

#: The queue in which a worker's gradients wait for the owner of a shard.
_PUSHED = re.compile(r'_shard_\d+_from_(\d+)$')
#: The queues in which workers find that owners are done, or how far others are.
_ENDS = re.compile(r'_updated_\d+_for_\d+$|_end_of_\d+$|_finished_to_\d+_from_\d+$')


class Role(NamedTuple):
    """What an operation is part of.

    Attributes:
        phase: one of `PHASES`.
        table: the name of the table that it is about, or `None`.
        awaited: the worker whose push it waits for, or `None`.
    """

    phase: str
    table: Optional[str] = None
    awaited: Optional[int] = None


class Marks(NamedTuple):
    """Where the phases of a step lie in its graph: operations.

    Attributes:
        rows: dict from names of tables to operations that have pulled their rows.
        loss: the operation of the loss.
        computed: one that has run when all gradients of the worker are there.
        pushes: dict from names of tables to operations that push their gradients.
        summed: dict from names of tables to operations that have what an owner updates them by.
        whole: the operation that runs all of the step.
    """

    rows: Mapping[str, Iterable[Operation]]
    loss: Operation
    computed: Operation
    pushes: Mapping[Optional[str], Iterable[Operation]]
    summed: Mapping[str, Iterable[Operation]]
    whole: Operation


def roles_of(marks: Marks, ancestors: Callable[[List[Any]], Iterable[Any]]) -> Dict[str, Role]:
    """The `Role`s of the operations of a step, a dict from their names.

    An operation has a `name`, a `type`, and `inputs` whose `op` is another one.

    Args:
        marks: the `Marks`.
        ancestors: function of a list of operations that returns all that they need, and themselves.
    """
    roles: Dict[str, Role] = {}

    def give(operations: Iterable[Operation], phase: str, table: Optional[str] = None) -> None:
        for operation in operations:
            if operation.name not in roles:
                roles[operation.name] = _special(operation, table) or Role(phase, table)

    for table, operations in marks.rows.items():
        give(ancestors(list(operations)), PULL, table)
    give(ancestors([marks.loss]), FORWARD)
    give(ancestors([marks.computed]), BACKWARD)
    for tables, operations in marks.pushes.items():
        give(ancestors(list(operations)), PUSH, tables)
    for table, operations in marks.summed.items():
        give(ancestors(list(operations)), UPDATE, table)
    give(ancestors([marks.whole]), UPDATE)
    return roles


def _special(operation: Operation, table: Optional[str]) -> Optional[Role]:
    """The `Role` of an operation that its type tells, or the name of its queue."""
    if operation.type.startswith('Horovod'):
        return Role(ALLREDUCE)
    if not operation.type.startswith(('QueueDequeue', 'QueueEnqueue')):
        return None
    queue = operation.inputs[0].op.name
    if _ENDS.search(queue):
        return Role(BARRIER)
    pushed = _PUSHED.search(queue)
    if pushed and operation.type.startswith('QueueDequeue'):
        return Role(WAIT, table, int(pushed.group(1)))
    return None


#: What a transfer is called in a trace: `[12B] edge_3_name from DEVICE to DEVICE`.
_TRANSFER = re.compile(r'edge_\d+_(\S+) from \S*/task:(\d+)')


def role_of_node(roles: Mapping[str, Role], name: str, label: str) -> Optional[Role]:
    """The `Role` of something that a trace names, or `None` if it is no part of the step.

    Args:
        roles: as `roles_of` returns them.
        name: what TensorFlow calls it: the name of a node of the graph that ran.
        label: a line about it. A transfer belongs to the operation whose result it carries.
    """
    transfer = _TRANSFER.search(label)
    if transfer:
        return roles.get(transfer.group(1))
    return roles.get(name)
