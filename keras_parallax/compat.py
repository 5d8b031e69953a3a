"""Every difference between versions of TensorFlow, Keras and Horovod, in one module.

The rest of the package imports TensorFlow as `from keras_parallax.compat import tf`.
"""

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from types import ModuleType
from typing import NamedTuple

from keras_parallax.errors import StackError
from keras_parallax.versions import SUPPORTED, require_python, version_problem


def _require(package, version):
    problem = version_problem(package, version)
    if problem:
        raise StackError(problem)


require_python()
try:
    import tensorflow as tf
except ImportError as error:
    raise StackError(
        'keras-parallax needs TensorFlow, which could not be imported (%s); get it with: %s'
        % (error, SUPPORTED['TensorFlow'][1])
    ) from error
_require('TensorFlow', tf.__version__)


def _no_horovod(error):
    return StackError(
        'keras-parallax needs Horovod built with TensorFlow support, but it could not be imported '
        '(%s); get it with: %s' % (error, SUPPORTED['Horovod'][1])
    )


try:
    import horovod
except ImportError as error:
    raise _no_horovod(error) from error
_require('Horovod', horovod.__version__)

try:
    import horovod.tensorflow as hvd  # noqa: F401 - for all
    from horovod._keras import callbacks as horovod_callbacks  # noqa: F401 - for callbacks.py
    from horovod.tensorflow import mpi_ops as horovod_ops  # noqa: F401 - for the collectives
except ImportError as error:
    raise _no_horovod(error) from error

from tensorflow.core.framework import attr_value_pb2  # noqa: E402
from tensorflow.core.protobuf import config_pb2 as _config_pb2  # noqa: E402
from tensorflow.python import pywrap_tensorflow as _c_api  # noqa: E402
from tensorflow.python.framework import tensor_util as _tensor_util  # noqa: E402
from tensorflow.python.keras.engine import base_layer as _tf_keras_base  # noqa: E402
from tensorflow.python.ops import gen_dataset_ops as dataset_ops  # noqa: E402, F401
from tensorflow.python.ops import gen_io_ops as io_ops  # noqa: E402, F401 - for resources.py
from tensorflow.python.ops import gen_logging_ops as _gen_logging_ops  # noqa: E402
from tensorflow.python.ops import gen_lookup_ops as lookup_ops  # noqa: E402, F401
from tensorflow.python.ops import gen_resource_variable_ops as _gen_resource_ops  # noqa: E402
from tensorflow.python.ops import gradients as _gradients  # noqa: E402
from tensorflow.python.ops import gradients_impl as _gradients_impl  # noqa: E402
from tensorflow.python.ops import inplace_ops as _inplace_ops  # noqa: E402
from tensorflow.python.ops import resource_variable_ops as _resource_ops  # noqa: E402
from tensorflow.python.ops import state_ops as _state_ops  # noqa: E402
from tensorflow.python.training import saver as _saver  # noqa: E402
from tensorflow.python.training import training_ops as _training_ops  # noqa: E402

ResourceVariable = _resource_ops.ResourceVariable


class KerasPackage(NamedTuple):
    """What the rest of the package needs of `keras` or of `tf.keras`.

    Attributes:
        name: `'keras'` or `'tf.keras'`.
        module: the package itself.
        layer: the base class of its layers.
        clip_together: whether `clipnorm` is a bound on the norm of all gradients together
            (`keras` 2.2.4) or on each gradient's own (`tf.keras` of TF 1.11).
    """

    name: str
    module: ModuleType
    layer: type
    clip_together: bool

    @property
    def backend(self):
        """The package's `backend` module."""
        return self.module.backend

    @property
    def saving(self):
        """The module that reads and writes the package's files."""
        return importlib.import_module(self._internal + '.engine.saving')

    @property
    def network(self):
        """The base class of its models, which has `save`, `save_weights` and `load_weights`."""
        return importlib.import_module(self._internal + '.engine.network').Network

    @property
    def callbacks(self):
        """The module of its callbacks, with `CallbackList`."""
        return importlib.import_module(self._internal + '.callbacks')

    @property
    def may_overwrite(self):
        """Function that asks at the terminal whether to overwrite a path."""
        module = importlib.import_module(self._internal + '.utils.io_utils')
        return module.ask_to_proceed_with_overwrite

    @property
    def _internal(self):
        return 'keras' if self.name == 'keras' else 'tensorflow.python.keras'


def keras_package(name):
    """The `KerasPackage` called `'keras'` or `'tf.keras'`; the latter where they are the same.

    Raises:
        StackError: `keras` is missing, or has an unsupported version or backend.
    """
    if name == 'tf.keras':
        return KerasPackage('tf.keras', tf.keras, _tf_keras_base.Layer, clip_together=False)
    try:
        import keras

        if _is_tensorflows(keras):
            return keras_package('tf.keras')
        from keras.engine import base_layer
    except ImportError as error:
        raise StackError(
            'Keras could not be imported (%s); get it with: %s' % (error, SUPPORTED['Keras'][1])
        ) from error
    _require('Keras', keras.__version__)
    if keras.backend.backend() != 'tensorflow':
        raise StackError(
            'keras-parallax needs Keras with its TensorFlow backend, but it uses %s; set '
            'KERAS_BACKEND=tensorflow, or "backend" in ~/.keras/keras.json.'
            % keras.backend.backend()
        )
    return KerasPackage('keras', keras, base_layer.Layer, clip_together=True)


def loaded_keras_packages():
    """The `KerasPackage`s that this process has imported: `tf.keras`, and `keras` if it has."""
    imported = sys.modules.get('keras')
    is_other = imported is not None and not _is_tensorflows(imported)
    return [keras_package(name) for name in ['tf.keras'] + ['keras'] * is_other]


def _is_tensorflows(module):
    """Whether a module called `keras` is TensorFlow's, after `sys.modules['keras'] = tf.keras`."""
    return module.__name__.split('.')[0] == 'tensorflow'


def package_of(thing):
    """The `KerasPackage` that a layer, a model or an optimizer belongs to, or `None`."""
    for cls in type(thing).__mro__:
        if cls.__module__.startswith('keras.'):
            return keras_package('keras')
        if cls.__module__.startswith('tensorflow.python.keras.'):
            return keras_package('tf.keras')
    return None


def tensorflows(optimizer):
    """The `tf.train.Optimizer` that a Keras optimizer stands for, or `None` if it is no wrapper.

    Asked by class: optimizers of users keep an inner one under the name `optimizer`, too.
    """
    for cls in type(optimizer).__mro__:
        in_keras = cls.__module__ in ('keras.optimizers', 'tensorflow.python.keras.optimizers')
        if in_keras and cls.__name__ == 'TFOptimizer':
            return optimizer.optimizer
    return None


def name_of_optimizer(optimizer):
    """The name of an optimizer's class, that of TensorFlow's rather than of Keras's wrapper."""
    return type(tensorflows(optimizer) or optimizer).__name__


@contextlib.contextmanager
def gradients_by(function):
    """While open, `tf.gradients` is `function(tf.gradients, ys, xs, ...)` for all who call it.

    Both Keras packages and `tf.train.Optimizer` look it up in a module when they call it (TF 1.11).
    """
    compute = _gradients_impl.gradients
    stand_in = functools.partial(function, compute)
    modules = [tf, _gradients_impl, _gradients]
    for module in modules:
        module.gradients = stand_in
    try:
        yield
    finally:
        for module in modules:
            module.gradients = compute


@contextlib.contextmanager
def get_gradients_by(package, function):
    """While open, `get_gradients` of a package's optimizers is another function.

    Args:
        package: the `KerasPackage`.
        function: `(get_gradients, optimizer, loss, params) -> gradients`; classes that have
            their own still come first.
    """
    base = package.module.optimizers.Optimizer
    compute = base.get_gradients

    def get_gradients(self, loss, params):
        return function(compute, self, loss, params)

    base.get_gradients = get_gradients
    try:
        yield
    finally:
        base.get_gradients = compute


def computes_own_gradients(optimizer):
    """Whether a `tf.train.Optimizer` has a `compute_gradients` other than TensorFlow's."""
    return not optimizer.compute_gradients.__func__.__module__.startswith(
        'tensorflow.python.training.'
    )


#: Those of TensorFlow, and of `tf.contrib.opt`, whose sparse kernels move rows by themselves.
_BY_ROW = set(
    'GradientDescentOptimizer MomentumOptimizer AdagradOptimizer AdadeltaOptimizer AdamOptimizer '
    'RMSPropOptimizer FtrlOptimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer '
    'AdagradDAOptimizer LazyAdamOptimizer AdaMaxOptimizer NadamOptimizer'.split()
)
_OF_TENSORFLOW = ('tensorflow.python.training.', 'tensorflow.contrib.opt.')


def applies_by_row(optimizer):
    """Whether a `tf.train.Optimizer` is known to update rows by themselves, given those of rows."""
    cls = type(optimizer)
    return cls.__name__ in _BY_ROW and cls.__module__.startswith(_OF_TENSORFLOW)


def applies_own_gradients(optimizer):
    """Whether a `tf.train.Optimizer` has another `apply_gradients` than the base class."""
    return optimizer.apply_gradients.__func__ is not tf.train.Optimizer.apply_gradients


def sums_own_rows(optimizer):
    """Whether a `tf.train.Optimizer` of a user's takes rows that come more than once itself."""
    methods = ('_apply_sparse_duplicate_indices', '_resource_apply_sparse_duplicate_indices')
    return any(
        not getattr(optimizer, method).__func__.__module__.startswith(_OF_TENSORFLOW)
        for method in methods
    )


def replace_input(operation, index, tensor):
    """Connects input number `index` of an operation to another tensor.

    `_update_input` is private, but it is what TensorFlow 1.x's own while loops are built with.
    A session that has already run the operation does not see the change: open a new one.
    """
    operation._update_input(index, tensor)


def add_control_inputs(operation, operations):
    """Makes an operation wait for others."""
    operation._add_control_inputs(list(operations))


def set_control_inputs(operation, operations):
    """Makes an operation wait for others, and for nothing else that it has waited for.

    A session that has already run the operation does not see the change: open a new one.
    """
    operation._remove_all_control_inputs()
    operation._add_control_inputs(list(operations))


def copy_operation(operation, inputs, control_inputs):
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
            op_def=operation.op_def,
        )


def operation_id(operation):
    """A number that grows with every operation added to a graph."""
    return operation._id


def set_device(operation, device):
    """Places an operation that exists already."""
    operation._set_device(device)


def set_seeds(operation, seeds):
    """Gives an operation that draws random numbers, and that no session has run yet, its seeds."""
    for name, seed in zip(('seed', 'seed2'), seeds):
        operation._set_attr(name, attr_value_pb2.AttrValue(i=seed))


def no_new_operations(graph):
    """A context manager: while open, other threads that add operations to a graph wait.

    Whoever is inside adds none either. TF 1.11 has it for the moment in which a session learns what
    is new in a graph.
    """
    return graph._session_run_lock()


def has_attr(operation, name):
    """Whether operations of an operation's type have an attribute."""
    if operation.type not in _attrs_of_types:
        attrs = operation.op_def.attr  # Which TF 1.11 copies at every call.
        _attrs_of_types[operation.type] = {attr.name for attr in attrs}
    return name in _attrs_of_types[operation.type]


#: Dict from types of operations to sets of names.
_attrs_of_types = {}


def set_string(operation, name, value):
    """Sets an attribute of an operation that no session has run yet."""
    operation._set_attr(name, attr_value_pb2.AttrValue(s=value.encode('utf-8')))


def name_storage(variable, name, device):
    """Gives a variable that no session has run yet a storage of another name, on a device.

    Another process's graph reaches the storage by that name. Whatever is colocated with the
    variable, its initializer among it, goes along.
    """
    operation = variable.op
    set_string(operation, 'shared_name', name)
    set_device(operation, device)


def keep_variable_in(operation, container):
    """Has an operation, if it makes a variable, keep it in a container of the server.

    A session that has already run the operation does not see the change: open a new one.
    """
    if operation.type in ('VariableV2', 'VarHandleOp'):
        value = attr_value_pb2.AttrValue(s=container.encode('utf-8'))
        operation._set_attr('container', value)


@contextlib.contextmanager
def inside_loop_of(operation):
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


def is_in_control_flow(tensor):
    """Whether a tensor is computed, or an operation is, in a loop or a branch."""
    return getattr(tensor, 'op', tensor)._get_control_flow_context() is not None


def storage(variable):
    """The tensor that stands for a variable's storage: its reference or its resource handle."""
    if isinstance(variable, ResourceVariable):
        return variable.handle
    return variable._ref()


def resource_handle(name, shape, dtype):
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


def linked(tensor, others, gradient):
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


#: The type of the operation that `linked` builds.
LINK = 'Print'


def without_elements(dtype, name, by_handle):
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


def no_elements(dtype):
    """A tensor without elements that may take the place of one of any shape."""
    return tf.placeholder_with_default(tf.zeros([0], dtype), None)


def read_of(storage, dtype):
    """What a `tf.train.Saver` takes for the variable with a storage: its value or reference."""
    if storage.dtype != tf.resource:
        return storage
    with tf.control_dependencies(None):
        return _gen_resource_ops.read_variable_op(storage, dtype)


def saveable(variable):
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


def writes_to(operation, storage):
    """Whether an operation that has a variable's `storage` as an input may write to it."""
    if storage.dtype == tf.resource or operation.type in _TAKE_HANDLE:
        return operation.type not in _TAKE_HANDLE
    # Who only reads declares a value, and TensorFlow takes that of the reference.
    declared = zip(operation.inputs, operation.op_def.input_arg)
    return any(given is storage and argument.is_ref for given, argument in declared)


def run_kernel(name, variables, **arguments):
    """An operation of TensorFlow's training kernels.

    Args:
        name: that of the kernel for references, such as `'apply_adam'`.
        variables: the variables that it changes, all of one kind, in its order.
        **arguments: what else it takes, by name.

    Returns:
        The operation. Kernels of several workers do not change a variable at the same time.
    """
    if isinstance(variables[0], ResourceVariable):
        name = 'resource_' + name
    kernel = getattr(_training_ops, name)
    changed = kernel(*map(storage, variables), use_locking=True, **arguments)
    return getattr(changed, 'op', changed)


def open_session_of(package, graph):
    """The session that a Keras package has open for a graph, or `None`; it never opens one.

    `backend.get_session` would open one and initialize every variable.
    """
    if package.name == 'keras':
        from keras.backend import tensorflow_backend as backend
    else:
        from tensorflow.python.keras import backend
    session = backend._SESSION
    return session if session is not None and session.graph is graph else None


def open_sessions(graph):
    """The sessions that are open for a graph: the default one, and those of the Keras packages.

    Returns:
        A list of `tf.Session`s and what stands for one, such as a debugger's, each once. The first
        is what Keras uses.
    """
    sessions = [open_session_of(package, graph) for package in loaded_keras_packages()]
    default = tf.get_default_session()
    if default is not None and default.graph is graph:
        sessions.insert(0, default)
    return list(dict.fromkeys(session for session in sessions if session is not None))


def number_in(variable):
    """The value of a small variable, without initializing any: its initial one if it has none yet.

    `backend.get_value` would initialize every variable of the graph, tables among them.

    Args:
        variable: a variable of either kind.

    Returns:
        An array.
    """
    graph = variable.graph
    for session in open_sessions(graph):
        with graph.as_default():
            if session.run(tf.is_variable_initialized(variable)):
                return session.run(variable)
    start = _tensor_util.constant_value(variable.initial_value)
    return _value_without_devices(variable.initial_value) if start is None else start


def _value_without_devices(tensor):
    """The value of a tensor whose graph may be for servers, which a plain session has not."""
    everything = tensor.graph.as_graph_def()
    definition = tf.graph_util.extract_sub_graph(everything, [tensor.op.name])
    for node in definition.node:
        node.device = ''
        node.attr.pop('_class', None)
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        return session.run(tf.import_graph_def(definition, return_elements=[tensor.name]))[0]


def kept_by(optimizer, graph, variables):
    """The variables that a `tf.train.Optimizer` keeps for some of its graph's variables.

    Args:
        optimizer: the optimizer, whose updates are built.
        graph: the graph.
        variables: variables of the graph, all of which it updates.

    Returns:
        A pair: dict from names to the variables that belong to none of them, such as the powers of
        Adam's betas, and dict from names of slots to lists of variables, in order of `variables`.
        `None` if it keeps more than a number besides slots, or not the same slots for all.
    """
    # `variables()` lists them without their names (TF 1.11).
    others = {name: one for (name, of), one in optimizer._non_slot_dict.items() if of is graph}
    slots = {
        name: [optimizer.get_slot(variable, name) for variable in variables]
        for name in optimizer.get_slot_names()
    }
    found = [slot for of_name in slots.values() for slot in of_name]
    if None in found or any(one.shape.ndims != 0 for one in others.values()):
        return None
    return others, slots


def forget_slots(optimizer, variables):
    """Has a `tf.train.Optimizer` make new slots for variables that it has updated before.

    It would keep those that it has (TF 1.11; proven by `tests/parallel/test_behaviour.py`, the case
    `measured:tf_adam`).

    Args:
        optimizer: the optimizer.
        variables: the variables.
    """
    for slots in optimizer._slots.values():
        for variable in variables:
            slots.pop((variable.op.graph, variable.op.name), None)


def order_of_samples():
    """The numbers of the samples in the order of the `fit` that called this, or `None`.

    Both Keras packages keep them in a local variable, an array that they shuffle in place (Keras
    2.2.4, TF 1.11; proven by `tests/parallel/test_resuming.py`).
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == 'fit_loop' and 'index_array' in frame.f_locals:
            return frame.f_locals['index_array']
        frame = frame.f_back
    return None


def assign_freed(variable, value):
    """An operation that assigns a variable whose memory was freed."""
    if isinstance(variable, ResourceVariable):
        return _gen_resource_ops.assign_variable_op(variable.handle, value)
    return tf.assign(variable, value, validate_shape=False).op


def zeros(shape, dtype):
    """Zeros that are made where they are placed.

    A session makes those of `tf.zeros` itself, on rank 0 for instance, and sends them to the server
    inside the graph, of which 2 GB are too much (TF 1.11; proven by
    `tests/parallel/test_start_values.py::test_no_worker_holds_a_table_that_lies_on_a_dedicated_server`).

    Args:
        shape: a list of integers.
        dtype: the dtype, one of a trainable variable.
    """
    return _inplace_ops.empty(shape, dtype, init=True)


def memory_release(variable):
    """An operation that frees the memory of a variable of either kind.

    A variable by reference must have been initialized.
    """
    if isinstance(variable, ResourceVariable):
        return _gen_resource_ops.destroy_resource_op(variable.handle, ignore_lookup_error=True)
    # Its memory goes when it is assigned a value without rows.
    nothing = tf.zeros([0] + variable.shape.as_list()[1:], variable.dtype.base_dtype)
    return tf.assign(variable, nothing, validate_shape=False).op


def jemalloc_control():
    """The function `mallctl` of TensorFlow's allocator, or `None` if that is not jemalloc 4.

    It is in the wheels of TF 1.11 for Linux (proven by `tests/unit/test_allocator.py`).
    """
    path = os.path.join(tf.sysconfig.get_lib(), 'libtensorflow_framework.so')
    return getattr(ctypes.CDLL(path), 'je_mallctl', None) if os.path.exists(path) else None


def names_of_operations(outputs, operations):
    """The names of the operations that `Session._call_tf_sessionrun` is given.

    Args:
        outputs: a list of `TF_Output`s.
        operations: a list of `TF_Operation`s.
    """
    return [
        _c_api.TF_OperationName(operation)
        for operation in [output.oper for output in outputs] + list(operations)
    ]


def name_of_output(output):
    """The name of the tensor that a `TF_Output` is."""
    return '%s:%d' % (_c_api.TF_OperationName(output.oper), output.index)


def callable_options(feeds, fetches, targets, run_options):
    """The `CallableOptions` that do what `Session._call_tf_sessionrun` is asked to.

    Args:
        feeds: a list of `TF_Output`s.
        fetches: a list of `TF_Output`s.
        targets: a list of `TF_Operation`s.
        run_options: a buffer that holds `RunOptions`, or `None`.
    """
    options = _config_pb2.CallableOptions(
        feed=map(name_of_output, feeds),
        fetch=map(name_of_output, fetches),
        target=map(_c_api.TF_OperationName, targets),
    )
    if run_options is not None:
        options.run_options.ParseFromString(_c_api.TF_GetBuffer(run_options))
    return options


def connected_options(options, connections):
    """`CallableOptions` with further edges.

    Args:
        options: the `CallableOptions`, which stay as they are.
        connections: a list of `pull.Connection`s.
    """
    connected = _config_pb2.CallableOptions()
    connected.CopyFrom(options)
    for connection in connections:
        edge = connected.tensor_connection.add()
        edge.from_tensor = connection.replacement.name
        edge.to_tensor = connection.replaced.name
    return connected


def abandon_session(session):
    """Gives a session up without closing it.

    To close it would be another call, which in TensorFlow 1.11 has no time limit.
    """
    session._closed, session._session = True, None


def answers_calls(target, seconds):
    """Whether the server at `target` answers a call within so many seconds."""
    # Without a filter, TensorFlow 1.11 has the server wait for every other task of its cluster, of
    # which some may be gone (`tests/unit/test_liveness.py`).
    config = tf.ConfigProto(
        operation_timeout_in_ms=int(1000 * seconds), device_filters=['/job:nobody']
    )
    session = tf.Session(target, graph=tf.Graph(), config=config)
    try:
        session.list_devices()
        return True
    except tf.errors.OpError:
        return False
    finally:
        abandon_session(session)


def horovod_aborts(instead):
    """Has a function called where Horovod would end the process because a connection broke.

    With Gloo, Horovod 0.19.5 lets an exception out of its thread when another rank has gone or has
    not answered for `HOROVOD_GLOO_TIMEOUT_SECONDS` (30), so that the C++ runtime aborts the process
    and no reason is told (`tests/parallel/test_failures.py`). `std::set_terminate` is the place at
    which C++ lets a program have its own way. Other exceptions end the process as they always did.

    Args:
        instead: a function, called on Horovod's thread. It must not return.

    Returns:
        A function that makes Horovod end the process again.
    """
    library = ctypes.CDLL('libstdc++.so.6')
    handler_type = ctypes.CFUNCTYPE(None)
    set_terminate = library._ZSt13set_terminatePFvvE
    set_terminate.restype, set_terminate.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    current_type = library.__cxa_current_exception_type
    current_type.restype = ctypes.POINTER(ctypes.c_void_p)

    def handle():
        # A `std::type_info` is a pointer to its virtual table and one to its name.
        found = current_type()
        name = ctypes.cast(found[1], ctypes.c_char_p).value if found else b''
        if b'gloo' in name:
            instead()
        handler_type(previous)()

    handler = handler_type(handle)
    previous = set_terminate(ctypes.cast(handler, ctypes.c_void_p))

    def restore():
        set_terminate(previous)
        return handler  # Which keeps the handler alive for as long as it may be called.

    return restore


def constant_value(tensor):
    """The value of a tensor that is known without running anything, or `None`.

    `tf.contrib.util` offers it too, but the first use of `tf.contrib` imports all of it: seconds of
    processor time on every rank, and some 100 MB (TF 1.11; proven by
    `tests/unit/test_graph.py::test_reading_a_graph_does_not_import_contrib`).
    """
    return _tensor_util.constant_value(tensor)
