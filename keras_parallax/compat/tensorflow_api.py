# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow, and what differs between its versions.

The rest of the package imports it as `from keras_parallax.compat.tensorflow_api import tf`.
"""

import contextlib
import importlib
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Set, Tuple

from keras_parallax.compat import session_config
from keras_parallax.compat.installed_frameworks import generation, tf
from keras_parallax.framework_types import Array, Operation, Session, Tensor, Variable

# isort: split
# Only a TensorFlow that fits is asked for its insides (`test_installed_frameworks.py`).
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import tensor_util as _tensor_util
from tensorflow.python.ops import gen_logging_ops as _gen_logging_ops
from tensorflow.python.ops import gen_resource_variable_ops as _gen_resource_ops
from tensorflow.python.ops import resource_variable_ops as _resource_ops
from tensorflow.python.ops import state_ops as _state_ops
from tensorflow.python.training import saver as _saver
from tensorflow.python.util import deprecation as _deprecation

# The private side of graphs, and modules of generated operations.
_internals = importlib.import_module(
    'keras_parallax.compat.graph_internals_' + generation.INTERNALS
)
dataset_ops, io_ops, lookup_ops = _internals.dataset_ops, _internals.io_ops, _internals.lookup_ops
consumers, op_def = _internals.consumers, _internals.op_def
control_outputs = _internals.control_outputs
no_new_operations = _internals.no_new_operations
allow_threads = _internals.allow_threads
zeros = _internals.zeros

ResourceVariable = _resource_ops.ResourceVariable

#: Its base class, of which a function of TensorFlow 2 makes another kind.
AnyResourceVariable = getattr(_resource_ops, 'BaseResourceVariable', ResourceVariable)

#: The classes of variables: with TensorFlow 2 neither is derived from the other.
VARIABLES = (tf.Variable, AnyResourceVariable)

#: The class of variables that nobody has asked for another kind of.
UsualVariable = ResourceVariable if generation.BY_RESOURCE else tf.Variable


def has_card() -> bool:
    """Whether operations may run on a graphics card."""
    return generation.visible_cards() != 0


@contextlib.contextmanager
def silent_deprecations() -> Iterator[None]:
    """While open, TensorFlow does not warn of deprecated arguments.

    To warn of them, TensorFlow 1.11 compares the arguments of each operation that is made with the
    signature of a function: 8 % of the first step of a model with 200 tables.
    """
    silence = getattr(_deprecation, 'silence', None)
    if silence is None:
        yield
        return
    silenced = silence()
    silenced.__enter__()
    try:
        yield
    finally:
        # Told of an exception, it would leave TensorFlow silent.
        silenced.__exit__(None, None, None)


def replace_input(operation: Operation, index: int, tensor: Tensor) -> None:
    """Connects input number `index` of an operation to another tensor.

    `_update_input` is private, but it is what TensorFlow 1.x's own while loops are built with.
    A session that has already run the operation does not see the change: open a new one.
    """
    operation._update_input(index, tensor)


def add_control_inputs(operation: Operation, operations: Iterable[Operation]) -> None:
    """Makes an operation wait for others."""
    operation._add_control_inputs(list(operations))


def set_control_inputs(operation: Operation, operations: Iterable[Operation]) -> None:
    """Makes an operation wait for others, and for nothing else that it has waited for.

    A session that has already run the operation does not see the change: open a new one.
    """
    _internals.remove_control_inputs(operation)
    operation._add_control_inputs(list(operations))


def copy_operation(
    operation: Operation, inputs: Sequence[Tensor], control_inputs: Sequence[Operation]
) -> Operation:
    """Copies an operation.

    Args:
        operation: the operation.
        inputs: the inputs of the copy, a list of tensors.
        control_inputs: what the copy waits for.
    """
    with tf.control_dependencies(control_inputs), tf.device(operation.device):
        return operation.graph.create_op(
            operation.type,
            inputs,
            [output.dtype for output in operation.outputs],
            input_types=operation._input_types,
            name=operation.name,
            attrs=dict(operation.node_def.attr),
            op_def=op_def(operation),
        )


def operation_id(operation: Operation) -> int:
    """A number that grows with every operation added to a graph."""
    return operation._id


def set_device(operation: Operation, device: str) -> None:
    """Places an operation that exists already."""
    operation._set_device(device)


def set_seeds(operation: Operation, seeds: Iterable[int]) -> None:
    """Gives an operation that draws random numbers, and that no session has run yet, its seeds."""
    for name, seed in zip(('seed', 'seed2'), seeds):
        operation._set_attr(name, attr_value_pb2.AttrValue(i=seed))


def has_attr(operation: Operation, name: str) -> bool:
    """Whether operations of an operation's type have an attribute."""
    if operation.type not in _attrs_of_types:
        attrs = op_def(operation).attr  # Which TF 1.11 copies at every call.
        _attrs_of_types[operation.type] = {attr.name for attr in attrs}
    return name in _attrs_of_types[operation.type]


#: Dict from types of operations to sets of names.
_attrs_of_types: Dict[str, Set[str]] = {}


def set_string(operation: Operation, name: str, value: str) -> None:
    """Sets an attribute of an operation that no session has run yet."""
    operation._set_attr(name, attr_value_pb2.AttrValue(s=value.encode('utf-8')))


def name_storage(variable: Variable, name: str, device: str) -> None:
    """Gives a variable that no session has run yet a storage of another name, on a device.

    Another process's graph reaches the storage by that name. Whatever is colocated with the
    variable, its initializer among it, goes along.
    """
    operation = variable.op
    set_string(operation, 'shared_name', name)
    set_device(operation, device)


def keep_variable_in(operation: Operation, container: str) -> None:
    """Has an operation, if it makes a variable, keep it in a container of the server.

    A session that has already run the operation does not see the change: open a new one.
    """
    if operation.type in ('VariableV2', 'VarHandleOp'):
        value = attr_value_pb2.AttrValue(s=container.encode('utf-8'))
        operation._set_attr('container', value)


@contextlib.contextmanager
def inside_loop_of(operation: Operation) -> Iterator[None]:
    """Builds operations in the loop or the branch that an operation is in, if it is in one."""
    context = operation._get_control_flow_context()
    if context is None:
        yield
        return
    context.Enter()
    try:
        yield
    finally:
        context.Exit()


def ragged_parts(tensor: Any) -> Optional[Tuple[Tensor, Tensor]]:
    """The values and row splits of a `RaggedTensor`, which TensorFlow 1.11 has not, else `None`."""
    is_ragged = hasattr(tf, 'RaggedTensor') and isinstance(tensor, tf.RaggedTensor)
    return (tensor.values, tensor.row_splits) if is_ragged else None


def static_shape(tensor: Any) -> Any:
    """The static shape of a tensor; a sparse one of TensorFlow 1.6 has no `shape`."""
    return tensor.shape if hasattr(tensor, 'shape') else tensor.get_shape()


def is_in_control_flow(tensor: Any) -> bool:
    """Whether a tensor is computed, or an operation is, in a loop or a branch."""
    return getattr(tensor, 'op', tensor)._get_control_flow_context() is not None


def shape_of_storage(operation: Operation) -> Any:
    """The `tf.TensorShape` of the variable whose storage an operation stands for."""
    return tf.TensorShape(operation.get_attr('shape'))


def uncast(variable: Variable) -> Variable:
    """The variable itself, where a layer of mixed precision casts what it reads of it."""
    return variable._variable if isinstance(variable, generation.AUTO_CAST) else variable


def storage(variable: Variable) -> Tensor:
    """The tensor that stands for a variable's storage: its reference or its resource handle."""
    variable = uncast(variable)
    if isinstance(variable, AnyResourceVariable):
        return variable.handle
    return variable._ref()


def key_of(variable: Variable) -> Dict[str, Any]:
    """What optimizers of Keras 2.15 know a variable by, as an attribute of its class, a dict.

    It follows from the variable's name, unless it is kept: shards of one table, which are given
    the name of that, would share their slots.
    """
    key = getattr(variable, '_shared_name', None)
    return {} if key is None else {'_shared_name': property(lambda self: key)}


def resource_handle(name: str, shape: Any, dtype: Any) -> Tensor:
    """The handle of a resource variable that nothing has a value for.

    Args:
        name: the handle's name.
        shape: a list.
        dtype: the dtype.
    """
    container = tf.get_default_graph()._container or ''
    return _gen_resource_ops.var_handle_op(
        dtype=dtype, shape=shape, shared_name=name, name=name, container=container
    )


def linked(tensor: Tensor, others: Sequence[Tensor], gradient: str) -> Tensor:
    """A tensor, with a way back through which gradients reach others, a resource handle for one.

    Args:
        tensor: the tensor.
        others: a list of tensors.
        gradient: the name of a gradient registered for an operation that is given all of them.

    Returns:
        The same values.
    """
    # No operation of TF 1.11 is made for this. `Print` hands its first input on, takes tensors of
    # any type beside it, and prints what it is told to, which is nothing.
    with tensor.graph.gradient_override_map({'Print': gradient}):
        return _gen_logging_ops._print(tensor, others, first_n=0)


def raw_assert(condition: Tensor, data: Sequence[Any], summarize: int) -> Operation:
    """The operation that ends a step with an error, which shows data, unless a condition holds.

    `tf.Assert` makes a branch of its own, which cannot be put into a loop that is built already.
    """
    return _gen_logging_ops._assert(condition, data, summarize)


#: The type of the operation that `linked` builds.
LINK = 'Print'


def colocated_with(tensor: Any, ignore_existing: bool = False) -> Any:
    """While open, operations that are made are placed where a tensor or an operation is.

    `tf.colocate_with` does the same, but newer TensorFlow warns that it is deprecated.

    Args:
        tensor: the tensor or operation; `None` for no place.
        ignore_existing: whether places that were given before do not count.
    """
    return tf.get_default_graph().colocate_with(tensor, ignore_existing)


def without_elements(dtype: Any, name: str, by_handle: bool) -> Tuple[Tensor, Operation]:
    """A variable without elements, of which no static shape is known.

    Args:
        dtype: the dtype.
        name: the variable's name.
        by_handle: whether it is a resource.

    Returns:
        A pair: the tensor that stands for its storage, and an operation that initializes it.
    """
    nothing = no_elements(dtype)
    if by_handle:
        handle = resource_handle(name, None, dtype)
        return handle, _gen_resource_ops.assign_variable_op(handle, nothing)
    reference = _state_ops.variable_op_v2(tf.TensorShape(None), dtype, name)
    return reference, tf.assign(reference, nothing, validate_shape=False).op


def no_elements(dtype: Any) -> Tensor:
    """A tensor without elements that may take the place of one of any shape."""
    return tf.placeholder_with_default(tf.zeros([0], dtype), None)


def read_of(storage: Tensor, dtype: Any) -> Tensor:
    """What a `tf.train.Saver` takes for the variable with a storage: its value or reference."""
    if storage.dtype != tf.resource:
        return storage
    with tf.control_dependencies(None):
        return _gen_resource_ops.read_variable_op(storage, dtype)


def saveable(variable: Variable) -> Any:
    """What a `tf.train.Saver` saves that is not told what to save, of a variable of either kind."""
    builder, name = _saver.BaseSaverBuilder, variable.op.name
    kind = (
        builder.ResourceVariableSaveable
        if storage(variable).dtype == tf.resource
        else builder.VariableSaveable
    )
    return kind(read_of(storage(variable), variable.dtype.base_dtype), '', name)


#: Operations that take the handle of a variable, or its reference, and leave it as it is.
_TAKE_HANDLE = {
    'IsVariableInitialized',
    'ReadVariableOp',
    'ResourceGather',
    'VarIsInitializedOp',
    'VariableShape',
}


def writes_to(operation: Operation, storage: Tensor) -> bool:
    """Whether an operation that has a variable's `storage` as an input may write to it."""
    if storage.dtype == tf.resource or operation.type in _TAKE_HANDLE:
        return operation.type not in _TAKE_HANDLE
    # Who only reads declares a value, and TensorFlow takes that of the reference.
    declared = zip(operation.inputs, op_def(operation).input_arg)
    return any(given is storage and argument.is_ref for given, argument in declared)


def has_kernel(name: str) -> bool:
    """Whether TensorFlow has a training kernel of a name, as `run_kernel` takes it."""
    return hasattr(generation.training_ops, name)


def run_kernel(name: str, variables: Sequence[Variable], **arguments: Any) -> Operation:
    """An operation of TensorFlow's training kernels.

    Args:
        name: that of the kernel for references, such as `'apply_adam'`.
        variables: the variables that it changes, all of one kind, in its order.
        **arguments: what else it takes, by name.

    Returns:
        The operation. Kernels of several workers do not change a variable at the same time.
    """
    if isinstance(variables[0], AnyResourceVariable):
        name = 'resource_' + name
    kernel = getattr(generation.training_ops, name)
    changed = kernel(*map(storage, variables), use_locking=True, **arguments)
    return getattr(changed, 'op', changed)


def value_without_devices(tensor: Tensor) -> Array:
    """The value of a tensor whose graph may be for servers, which a plain session has not."""
    everything = tensor.graph.as_graph_def()
    definition = tf.graph_util.extract_sub_graph(everything, [tensor.op.name])
    for node in definition.node:
        node.device = ''
        node.attr.pop('_class', None)
    config = session_config.without_card()
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=config) as session:
        return session.run(tf.import_graph_def(definition, return_elements=[tensor.name]))[0]


def assign_freed(variable: Variable, value: Tensor) -> Operation:
    """An operation that assigns a variable whose memory was freed."""
    if isinstance(variable, AnyResourceVariable):
        return _gen_resource_ops.assign_variable_op(variable.handle, value)
    return tf.assign(variable, value, validate_shape=False).op


def looked_up(variable: Variable, rows: Tensor) -> Tensor:
    """Rows of a variable of either kind, of numbers `[n]`, and nothing else of it.

    To read a resource whole whose rows are written is to copy it whole.
    """
    if isinstance(variable, AnyResourceVariable):
        return _gen_resource_ops.resource_gather(
            variable.handle, rows, dtype=variable.dtype.base_dtype
        )
    return tf.gather(variable.read_value(), rows)


def rows_between(variable: Variable, first: Any, last: Any) -> Tensor:
    """Rows of a variable of either kind, those that follow each other, and nothing else of it."""
    if isinstance(variable, AnyResourceVariable):
        # A slice of it reads it whole: see `looked_up`.
        return looked_up(variable, tf.range(first, last))
    return variable[first:last]


def memory_release(variable: Variable) -> Operation:
    """An operation that frees the memory of a variable of either kind.

    A variable by reference must have been initialized.
    """
    if isinstance(variable, AnyResourceVariable):
        return _gen_resource_ops.destroy_resource_op(variable.handle, ignore_lookup_error=True)
    # Its memory goes when it is assigned a value without rows.
    shape = [] if variable.shape.ndims is None else variable.shape.as_list()
    nothing = tf.zeros([0] + shape[1:], variable.dtype.base_dtype)
    return tf.assign(variable, nothing, validate_shape=False).op


def config_of(session: Session) -> Any:
    """The `tf.ConfigProto` that a session was given, or `None`."""
    return getattr(session, '_config', None)


def has_usual_config(session: Any) -> bool:
    """Whether a session was opened without a configuration.

    TensorFlow 1.15 and 2 then give it one of their own.
    """
    config = config_of(session)
    return config is None or config == getattr(_context.context(), 'config', None)


def is_closed(session: Session) -> bool:
    """Whether a session has been closed."""
    return session._closed


def abandon_session(session: Session) -> None:
    """Gives a session up without closing it.

    To close it would be another call, which in TensorFlow 1.11 has no time limit.
    """
    for one in [session, *getattr(session, 'connected', {}).values()]:
        one._closed, one._session = True, None


def graph_element(fetch: Any) -> Any:
    """What is fetched where a session is asked for this: a variable's value, for one."""
    return fetch._as_graph_element() if hasattr(fetch, '_as_graph_element') else fetch


def constrain(variable: Variable, constraint: Optional[Callable[..., Any]]) -> None:
    """Gives a variable the constraint that optimizers of Keras read off it."""
    variable._constraint = constraint


def constant_value(tensor: Tensor) -> Any:
    """The value of a tensor that is known without running anything, or `None`.

    `tf.contrib.util` offers it too, but the first use of `tf.contrib` imports all of it: seconds of
    processor time on every worker, and some 100 MB (TF 1.11; proven by
    `tests/unit/compat/test_graph_queries.py::test_reading_a_graph_does_not_import_contrib`).
    """
    if tensor.op.type == 'Const':
        # TensorFlow 1.11 refuses to feed a tensor once `constant_value` has told its value, and a
        # variable is loaded by feeding its initial value (`tests/unit/test_single_process.py::
        # test_weights_can_be_set_between_a_summary_and_the_first_step`).
        return _tensor_util.MakeNdarray(tensor.op.get_attr('value'))
    return _tensor_util.constant_value(tensor)
