# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Questions to a TensorFlow graph: who reads a variable, and what must wait for whom."""

from typing import (
    AbstractSet,
    Any,
    Container,
    FrozenSet,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Operation, Tensor, Variable

#: Operations that hand a variable's value on unchanged.
TRANSPARENT = {'Identity', 'ReadVariableOp'}


_GATHERS = {'Gather', 'GatherV2', 'ResourceGather'}


#: How a tensor gets into a loop or a branch.
ENTRANCES = {'Enter', 'RefEnter', 'Switch', 'RefSwitch'}


#: Operations whose output may be the memory of their first input. TensorFlow's kernels do not copy
#: in them, so that whoever reads the output of one on a variable reads the variable.
_SHARES_MEMORY = {
    'Bitcast', 'CheckNumerics', 'ExpandDims', 'Identity', 'PlaceholderWithDefault',
    'PreventGradient', 'RefIdentity', 'Reshape', 'Slice', 'Snapshot', 'Squeeze', 'StopGradient',
    'StridedSlice',
}  # fmt: skip


#: Operations that stand for the storage of a variable.
_VARIABLES = {'VariableV2', 'VarHandleOp'}


#: Operations that write a whole variable.
WRITES = {
    'Assign',
    'AssignAdd',
    'AssignSub',
    'AssignVariableOp',
    'AssignAddVariableOp',
    'AssignSubVariableOp',
}


#: Operations that are loops or part of one, and calls of functions, which may have some.
_LOOPS = {
    'Enter', 'PartitionedCall', 'RefEnter', 'StatefulPartitionedCall', 'StatelessWhile', 'While',
}  # fmt: skip


class Reads(NamedTuple):
    """The operations that read a variable: row lookups, and those that read it whole."""

    lookups: List[tf.Operation]
    whole: List[tf.Operation]


#: The attribute of an operation whose output has no number twice.
_NO_REPEATS = '_parallax_no_repeats'


def mark_no_repeats(numbers: Tensor) -> None:
    """Says of a tensor of integers, an operation's only output, that none is in it twice."""
    tensorflow_api.set_string(numbers.op, _NO_REPEATS, 'yes')


def has_no_repeats(numbers: Tensor) -> bool:
    """Whether a tensor of integers is known to have none of them twice.

    `tf.unique` has made it, or whoever made it has said so.
    """
    while numbers.op.type in ('Identity', 'Reshape'):
        numbers = numbers.op.inputs[0]
    if _NO_REPEATS in numbers.op.node_def.attr:
        return True
    return numbers.op.type in ('Unique', 'UniqueV2') and numbers.value_index == 0


def ancestors(
    tensors: Iterable[Any], leaves: Iterable[Operation] = (), by_data: bool = False
) -> Set[Operation]:
    """The operations that tensors depend on, themselves included.

    Args:
        tensors: a list of tensors or operations.
        leaves: operations at which to stop; they are not part of the answer.
        by_data: whether to leave out what is only waited for, but for what a group waits for.

    Returns:
        A set of operations.
    """
    passed, leaves = set(), set(leaves)
    pending = [getattr(tensor, 'op', tensor) for tensor in tensors]
    while pending:
        operation = pending.pop()
        if operation in passed or operation in leaves:
            continue
        passed.add(operation)
        pending.extend(tensor.op for tensor in operation.inputs)
        if not by_data or operation.type == 'NoOp':
            pending.extend(operation.control_inputs)
    return passed


def descendants(
    operation: Operation, among: Optional[AbstractSet[Operation]] = None
) -> Set[Operation]:
    """The operations that depend on an operation, itself included, as a set.

    Args:
        operation: the operation.
        among: a set of operations to which the search is limited, or `None` for all.
    """
    following, pending = set(), [operation]
    waiting = tensorflow_api.control_outputs(operation.graph, among)
    while pending:
        operation = pending.pop()
        if operation in following or (among is not None and operation not in among):
            continue
        following.add(operation)
        pending.extend(
            user for tensor in operation.outputs for user in tensorflow_api.consumers(tensor)
        )
        pending.extend(waiting(operation))
    return following


#: Beginnings of the types of operations whose values differ from one run to the next.
_VARYING = ('Placeholder', 'Iterator', 'Queue', 'Reader', 'PyFunc', 'Random', 'TruncatedNormal')

#: Operations on scalars whose value changes in proportion to the sum of their inputs.
_ADDS = {'Add', 'AddV2', 'AddN', 'Sub', 'Neg', 'Identity', 'Cast', 'Reshape', 'Mean', 'Sum'}
_SCALES = {'Mul', 'RealDiv', 'Div', 'DivNoNan'}


def summands(total: Tensor, whole: Container[Tensor] = ()) -> List[Tensor]:
    """The scalars of which a scalar is a sum, each with a constant factor; or itself.

    Args:
        total: a scalar tensor.
        whole: tensors that are not taken apart.

    Returns:
        A list of tensors, each once.
    """
    found, passed, pending = [], set(), [total]
    while pending:
        tensor = pending.pop()
        if tensor in passed:
            continue
        passed.add(tensor)
        parts = None if tensor in whole else _added(tensor.op)
        if parts is None:
            found.append(tensor)
        else:
            pending.extend(parts)
    return found


def _added(operation: Operation) -> Optional[List[Tensor]]:
    """The scalars that an operation adds up, or `None` if it does something else."""
    inputs = list(operation.inputs)
    if operation.type in ('Mean', 'Sum', 'Reshape'):
        inputs = inputs[:1]  # Others are axes, or a shape.
    if not inputs or any(tensor.shape.ndims != 0 for tensor in inputs):
        return None
    if operation.type in _ADDS and all(tensor.dtype.is_floating for tensor in inputs):
        return inputs
    if operation.type not in _SCALES:
        return None
    fixed = [not _varies(tensor) for tensor in inputs]
    if operation.type == 'Mul' and fixed[0]:
        return inputs[1:]
    return inputs[:1] if fixed[1] else None


def _varies(tensor: Tensor) -> bool:
    """Whether a tensor depends on more than variables and constants."""
    return any(
        operation.type.startswith(_VARYING) for operation in ancestors([tensor], by_data=True)
    )


def descendants_by_data(operations: Iterable[Operation], since: int) -> Set[Operation]:
    """The operations that compute with what operations put out, as a set.

    Args:
        operations: a list of operations.
        since: only operations with a greater id (`tensorflow_api.operation_id`) belong to the
            answer.
    """
    following, pending = set(), list(operations)
    while pending:
        for tensor in pending.pop().outputs:
            for user in tensorflow_api.consumers(tensor):
                if user not in following and tensorflow_api.operation_id(user) > since:
                    following.add(user)
                    pending.append(user)
    return following


def reads(variable: Variable, among: Optional[AbstractSet[Operation]] = None) -> Reads:
    """Finds who reads a variable.

    Args:
        variable: a `tf.Variable` of either kind.
        among: a set of operations to which the answer is limited, or `None` for all.

    Returns:
        `Reads`. A lookup is a gather along axis 0 straight from the variable; a gather inside a
        loop or a branch gets the variable through an operation of its own (`Enter`, `Switch`), and
        counts as a whole read.
    """
    return reads_of(tensorflow_api.storage(variable), among)


def reads_of(storage: Tensor, among: Optional[AbstractSet[Operation]] = None) -> Reads:
    """The same for the tensor that a variable is known by to operations."""
    lookups, whole = [], []
    pending = [storage]
    while pending:
        tensor = pending.pop()
        for operation in tensorflow_api.consumers(tensor):
            if among is not None and operation not in among:
                continue
            if operation.type in TRANSPARENT:
                pending.extend(operation.outputs)
            elif is_lookup(operation, tensor):
                lookups.append(operation)
            else:
                whole.append(operation)
    by_age = tensorflow_api.operation_id
    return Reads(sorted(lookups, key=by_age), sorted(whole, key=by_age))


def is_lookup(operation: Operation, tensor: Tensor) -> bool:
    """Whether an operation that reads a tensor gathers rows of it."""
    if operation.type not in _GATHERS or operation.inputs[0] is not tensor:
        return False
    if operation.type != 'GatherV2':
        return True
    axis = tensorflow_api.constant_value(operation.inputs[2])
    return axis is not None and int(axis) == 0


def variable_looked_up(operation: Operation) -> Optional[Operation]:
    """The operation of the variable of which an operation gathers rows; else `None`.

    Given any operation; in a loop or a branch as well.
    """
    if operation.type not in _GATHERS or not is_lookup(operation, operation.inputs[0]):
        return None
    source = operation.inputs[0].op
    while source.type in TRANSPARENT | ENTRANCES | {'Cast'}:
        source = source.inputs[0].op
    return source if source.type in _VARIABLES else None


def after_writes(variables: Iterable[Variable]) -> Set[Operation]:
    """The operations that write to variables, and all that depend on them, as a set."""
    writers = set()
    for variable in variables:
        storage = tensorflow_api.storage(variable)
        for operation in tensorflow_api.consumers(storage):
            if tensorflow_api.writes_to(operation, storage):
                writers |= descendants(operation)
    return writers


def has_loops(operations: Iterable[Operation]) -> bool:
    """Whether some of a graph's operations are loops, or call functions, which may have some."""
    return any(operation.type in _LOOPS for operation in operations)


def placeholders(tensor: Tensor) -> FrozenSet[Operation]:
    """The placeholders that must be fed to compute a tensor, as a frozenset of operations."""
    return frozenset(op for op in ancestors([tensor]) if op.type.startswith('Placeholder'))


def constant_of(tensor: Tensor) -> Optional[float]:
    """The number that all entries of a tensor have, as far as its graph says so; else `None`."""
    operation = tensor.op
    while operation.type in ('Identity', 'Enter'):
        operation = operation.inputs[0].op
    if operation.type == 'Empty':  # As `tensorflow_api.zeros` makes it.
        return 0.0
    if operation.type == 'Fill':
        return constant_of(operation.inputs[1])
    if operation.type == 'AddV2':  # As `keras_optimizers.in_place` makes it.
        parts = [constant_of(part) for part in operation.inputs]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    value = tensorflow_api.constant_value(operation.outputs[0])
    if operation.type != 'Const' or value is None or (value != value.flat[0]).any():
        return None
    return float(value.flat[0])


def held_back(
    items: Sequence[Sequence[Any]], operations: Sequence[Operation]
) -> List[Tuple[Any, ...]]:
    """Has what is sent to other devices wait for operations on this one.

    Each edge from one process to another is a message, those that only tell to wait too. If what
    receives a tensor waited for fifty operations, it would get fifty messages beside it.

    Args:
        items: a list of tuples of tensors.
        operations: the operations.

    Returns:
        The items, each of which is there as a whole only after the operations have run. They are
        on the device in whose scope this is called.
    """
    with tf.control_dependencies(operations):
        ready = tf.no_op()
    with tf.control_dependencies([ready]):
        return [(*rest, tf.identity(last)) for *rest, last in items]


def as_operations(updates: Iterable[Any]) -> List[Operation]:
    """Turns Keras's list of updates (operations, tensors, pairs of variable and value) into ops."""
    return [
        tf.assign(*update).op if isinstance(update, tuple) else getattr(update, 'op', update)
        for update in updates
    ]


def write_after_reads(updates: Iterable[Operation], since: int) -> None:
    """Makes the assignments of a step wait for the reads of their variables in the same step.

    Keras 2.2.4 increments `optimizer.iterations` and multiplies `Nadam.m_schedule` in the same run
    that reads them, in no order, so that a step may see the old or the new number. Here all reads
    of a step see the old one. Proven by
    `tests/unit/compat/test_graph_queries.py::test_assignments_wait_for_the_reads_of_the_old_value`.

    Args:
        updates: the step's update operations.
        since: only operations with a greater id (`tensorflow_api.operation_id`) take part.
    """
    recent = {op for op in ancestors(updates) if tensorflow_api.operation_id(op) > since}
    for write in recent:
        if write.type not in WRITES:
            continue
        later = descendants(write)
        readers = {
            reader
            for reader in memory_readers(write.inputs[0])
            if reader in recent and reader not in later and reader.type not in WRITES
        }
        tensorflow_api.add_control_inputs(write, readers)


def memory_readers(storage: tf.Tensor) -> Set[tf.Operation]:
    """The operations that may read the memory of a variable, given the tensor it is known by."""
    readers: Set[tf.Operation] = set()
    pending = [storage]
    while pending:
        for reader in tensorflow_api.consumers(pending.pop()):
            if reader.type in _SHARES_MEMORY and reader not in readers:
                pending.extend(reader.outputs)  # Their readers count, too.
            readers.add(reader)
    return readers
