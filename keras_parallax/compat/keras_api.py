# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What differs between the Keras packages, and between their versions."""

import functools
import importlib
import inspect
import numbers
import sys
from types import FrameType, ModuleType
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Optional, Sequence, cast

from keras_parallax.compat import loaded_keras3, patches
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.supported_versions import SUPPORTED, require
from keras_parallax.compat.tensorflow_api import constant_value, tf, uncast, value_without_devices
from keras_parallax.errors import StackError
from keras_parallax.framework_types import Graph, Layer, Model, Optimizer, Session, Tensor, Variable


class KerasPackage(NamedTuple):
    """What the rest of the package needs of `keras` or of `tf.keras`.

    Attributes:
        name: `'keras'` or `'tf.keras'`.
        module: the package itself.
        layer: the base class of its layers.
        clip_together: whether `clipnorm` is a bound on the norm of all gradients together
            (`keras` 2.2.4) or on each gradient's own (`tf.keras` of TF 1.11).
        sums_activity_penalties: whether the penalty of an `activity_regularizer` is a sum over the
            batch, rather than a mean.
    """

    name: str
    module: ModuleType
    layer: type
    clip_together: bool
    sums_activity_penalties: bool

    @property
    def backend(self) -> Any:
        """The package's `backend` module."""
        return generation.keras_backend(self.name)

    @property
    def saving(self) -> Any:
        """The module that reads and writes the package's HDF5 files."""
        return generation.keras_saving(self.name)

    @property
    def version(self) -> str:
        """The package's version, a string."""
        return generation.keras_version(self.name)

    def write_model(self, model: Model, file: Any, include_optimizer: bool) -> None:
        """Has Keras write a model to an open HDF5 file."""
        generation.keras_writer(self.name)(model, file, include_optimizer=include_optimizer)

    def write_weights(self, model: Model, group: Any) -> None:
        """Has Keras write a model's weights to an open HDF5 group."""
        self.saving.save_weights_to_hdf5_group(group, generation.model_in_file(model))

    def read_weights(self, model: Model, group: Any, by_name: bool, **arguments: Any) -> None:
        """Has Keras set a model's weights to those of an open HDF5 group."""
        name = 'load_weights_from_hdf5_group' + ('_by_name' if by_name else '')
        getattr(self.saving, name)(group, generation.model_in_file(model), **arguments)

    @property
    def network(self) -> Any:
        """The base class of its models, which has `save`, `save_weights` and `load_weights`."""
        return self.patched['Network']

    @property
    def optimizer(self) -> Any:
        """The base class of its optimizers."""
        return self.patched['Optimizer']

    @property
    def patched(self) -> Dict[str, Any]:
        """Dict from names, as `PATCHES` has them, to the classes whose methods are replaced."""
        return generation.keras_classes(self.name)

    @property
    def tensor_board(self) -> Any:
        """The class of its callback for TensorBoard that knows graphs."""
        return generation.tensor_board(self.name)

    @property
    def may_overwrite(self) -> Callable[[str], bool]:
        """Function that asks at the terminal whether to overwrite a path."""
        inside = generation.KERAS_PACKAGES[self.name]
        module = importlib.import_module(inside + '.utils.io_utils')
        return module.ask_to_proceed_with_overwrite


def keras_package(name: str) -> KerasPackage:
    """The `KerasPackage` called `'keras'` or `'tf.keras'`; the latter where they are the same.

    Raises:
        StackError: `keras` is missing, or has an unsupported version or backend; or the package is
            not served beside this TensorFlow.
    """
    if name in generation.REFUSED_PACKAGES:
        raise StackError(
            'Beside TensorFlow %s models of the package keras are trained, and not those of %s; '
            'write `import keras`.' % (tf.__version__, name)
        )
    if name not in generation.KERAS_PACKAGES:
        name = 'tf.keras'
    try:
        module = generation.keras_module(name)
    except ImportError as error:
        raise StackError(
            'Keras could not be imported (%s); get it with: %s' % (error, SUPPORTED['Keras'][1])
        ) from error
    if name == 'keras':
        if _is_tensorflows(module):
            return keras_package('tf.keras')
        require('Keras', module.__version__)
        if module.backend.backend() != 'tensorflow':
            raise StackError(
                'keras-parallax needs Keras with its TensorFlow backend, but it uses %s; set '
                'KERAS_BACKEND=tensorflow, or "backend" in ~/.keras/keras.json.'
                % module.backend.backend()
            )
    layer = generation.keras_classes(name)['Layer']
    is_other = name == 'keras'
    sums = is_other or generation.SUMS_ACTIVITY_PENALTIES
    return KerasPackage(name, module, layer, is_other, sums)


def loaded_keras_packages() -> List[KerasPackage]:
    """The `KerasPackage`s that there are: the one that always is, and `keras` if it was imported.

    Raises:
        StackError: as of `keras_package`.
    """
    imported = sys.modules.get('keras')
    is_other = imported is not None and not _is_tensorflows(imported)
    names = [generation.USUAL_KERAS]
    if is_other and 'keras' in generation.KERAS_PACKAGES:
        names.append('keras')
    return [keras_package(name) for name in dict.fromkeys(names)]


def _is_tensorflows(module: ModuleType) -> bool:
    """Whether a module called `keras` is TensorFlow's, after `sys.modules['keras'] = tf.keras`."""
    return module.__name__.split('.')[0] == 'tensorflow'


def package_of(thing: Any) -> KerasPackage:
    """The `KerasPackage` of a layer, a model or an optimizer that belongs to one."""
    return cast(KerasPackage, found_package(thing))


def found_package(thing: Any) -> Optional[KerasPackage]:
    """The `KerasPackage` that something belongs to, or `None`."""
    for cls in type(thing).__mro__:
        name = _name_of_package(cls)
        if name is not None:
            return keras_package(name)
    return None


def is_of_layer(tensor: Tensor) -> bool:
    """Whether a tensor is an output of a layer."""
    return hasattr(tensor, '_keras_history')


def package_of_tensor(tensor: Tensor) -> Optional[KerasPackage]:
    """The `KerasPackage` of the layer that has made a tensor of a model, or `None`."""
    history = getattr(tensor, '_keras_history', None)
    return found_package(history[0]) if history else None


def is_of_keras(cls: Any) -> bool:
    """Whether a class is one of a Keras package's own."""
    return _name_of_package(cls) is not None


def _name_of_package(cls: Any) -> Optional[str]:
    packages = {**generation.KERAS_PACKAGES, **generation.REFUSED_PACKAGES}
    for name, inside in packages.items():
        if (cls.__module__ + '.').startswith(inside + '.'):
            return name
    return None


def gradients_by(function: Callable[..., Any]) -> ContextManager[None]:
    """While open, `tf.gradients` is `function(tf.gradients, ys=ys, xs=xs, ...)` for all.

    Keras and `tf.train.Optimizer` look it up in a module when they call it.
    """
    owners, name = generation.GRADIENTS
    compute = getattr(owners[0], name)
    signature = inspect.signature(compute)

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return function(compute, **signature.bind(*args, **kwargs).arguments)

    return patches.replaced('tf.gradients', owners, stand_in, name)


def get_gradients_by(package: KerasPackage, function: Callable[..., Any]) -> ContextManager[None]:
    """While open, `get_gradients` of a package's optimizers is another function.

    Args:
        package: the `KerasPackage`.
        function: `(get_gradients, optimizer, loss, params) -> gradients`; classes that have
            their own still come first.
    """
    base = package.optimizer
    compute = base.get_gradients

    def get_gradients(self: Any, loss: Tensor, params: Any) -> Any:
        return function(compute, self, loss, params)

    return patches.replaced('Optimizer.get_gradients', [base], get_gradients)


def open_session_of(package: KerasPackage, graph: Graph) -> Optional[Session]:
    """The session that a Keras package has open for a graph, or `None`; it never opens one.

    `backend.get_session` would open one and initialize every variable.
    """
    session = generation.keras_session(package.name)
    return session if session is not None and session.graph is graph else None


def set_session(package: KerasPackage, session: Session) -> None:
    """Has a Keras package use a session, also in threads that have none of their own yet."""
    package.backend.set_session(session)
    generation.share_session(package.name, session)


def open_sessions(graph: Graph) -> List[Session]:
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


def number_in(number: Any) -> Any:
    """The value of a hyperparameter or another small variable, without initializing any variable.

    `backend.get_value` would initialize every variable of the graph, tables among them.

    Args:
        number: a variable of either kind, whose initial value counts if it has no other yet, or the
            Python number that a script has put in its place (`optimizer.momentum = 0.5`).

    Returns:
        An array, or the Python number.
    """
    if isinstance(number, numbers.Number):
        return number
    variable, graph = number, number.graph
    for session in open_sessions(graph):
        with graph.as_default():
            if session.run(tf.is_variable_initialized(variable)):
                return session.run(variable)
    start = variable.initial_value
    return constant_value(start) if start.op.type == 'Const' else value_without_devices(start)


#: The base classes of models that are not served.
REFUSED_MODELS = generation.REFUSED_MODELS

#: Where the callbacks of Keras 2 are, from which ours derive: from TensorFlow 2.16 on `tf.keras`
#: may be Keras 3 (`tests/unit/callbacks/test_learning_rate.py`).
callbacks = keras_package(generation.USUAL_KERAS).module.callbacks


def track_slots(optimizer: Optimizer) -> None:
    """Has Keras initialize the slots of an optimizer that stands for a `tf.train.Optimizer`."""
    if isinstance(getattr(optimizer, 'optimizer', None), tf.train.Optimizer):
        generation.track_slots(package_of(optimizer).name, optimizer)


def for_graphs(optimizer: Optimizer) -> Optimizer:
    """An optimizer, or one that means the same if it is of a kind that builds no graphs."""
    loaded_keras3.check(optimizer)
    package = None if isinstance(optimizer, str) else found_package(optimizer)
    return optimizer if package is None else generation.for_graphs(package.name, optimizer)


def track_variables(package: KerasPackage, variables: Sequence[Variable]) -> None:
    """Has a Keras package initialize variables of a script's own, as it does its own ones."""
    generation.track_variables(package.name, variables)


def variables_in(graph: Graph) -> List[Variable]:
    """The variables of a graph, global and local ones and those that Keras alone knows, each once.

    Tables with shards are in no collection, but Keras may know them.
    """
    collections = (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.LOCAL_VARIABLES)
    known = [variable for key in collections for variable in graph.get_collection(key)]
    for package in loaded_keras_packages():
        known.extend(generation.tracked_variables(package.name, graph))
    return list(dict.fromkeys(known))


def trained_weights(model: Model) -> List[Variable]:
    """The weights that a compiled model trains, a list; without any if it is not compiled."""
    return list(map(uncast, getattr(model, '_collected_trainable_weights', [])))


def layers_in(package: KerasPackage, layer: Layer) -> List[Layer]:
    """A layer and those in it, of models, wrappers and layers of the user's, each once."""
    layers, pending = {}, [layer]
    while pending:
        layer = pending.pop()
        if id(layer) not in layers:
            layers[id(layer)] = layer
            # A layer of the user's may call anything `layers`, the number of them for instance.
            pending += layer.layers if isinstance(layer, package.network) else []
            pending += [value for value in vars(layer).values() if isinstance(value, package.layer)]
    return list(layers.values())


def make_train_function(model: Model) -> None:
    """Has a compiled model build its training step, if it has none yet."""
    model._make_train_function()


def ignored_methods(model: Any) -> Dict[str, type]:
    """The methods by which a model means to train or test in another way, and Keras calls none.

    Returns:
        A dict from names of methods to the classes that define them.
    """
    cls, ignored = type(model), {}
    of_keras = package_of(model).patched['Model'].__mro__
    # A model of Keras's own may have the same for graphs (`WideDeepModel`).
    classes = [one for one in cls.__mro__ if '_make_train_function' not in vars(one)]
    for name in generation.IGNORED_METHODS:
        if name in vars(model):
            ignored[name] = cls
            continue
        for one in classes:
            if one not in of_keras and name in vars(one):
                ignored.setdefault(name, one)
    return ignored


class RunBeside(NamedTuple):
    """What Keras runs together with the training step of a model.

    Attributes:
        fetched: the tensors of metrics that are fetched.
        updates: what layers and metrics write: operations, tensors, pairs of variable and value.
    """

    fetched: Sequence[Any] = ()
    updates: Sequence[Any] = ()


def run_beside(model: Any) -> RunBeside:
    """What Keras runs together with the training step of a compiled model."""
    if hasattr(model, '_get_training_eval_metrics'):  # From TensorFlow 1.15 on.
        metrics = model._get_training_eval_metrics()
        fetched = [one._call_result for one in metrics if hasattr(one, '_call_result')]
    else:
        fetched = list(model.metrics_tensors)
    if package_of(model).name == 'keras':
        updates = list(model.updates)
    else:
        updates = model.get_updates_for(None) + model.get_updates_for(model.inputs)
    return RunBeside(fetched, updates + list(getattr(model, 'metrics_updates', [])))


def mark_initialized(variable: Variable) -> None:
    """Has Keras take a variable for one that has a value, and leave that alone."""
    variable._keras_initialized = True


def with_shape(variable: Variable, shape: Any) -> Variable:
    """A variable that no backend has made, with the shape that `int_shape` reads off it."""
    variable._keras_shape = tuple(shape)
    return variable


def assign_by(variable: Variable, assignment: Any, placeholder: Optional[Tensor] = None) -> None:
    """Has `set_value` and `batch_set_value` of both packages assign a variable its value our way.

    Args:
        variable: the variable, or what stands for one.
        assignment: what their session is told to run.
        placeholder: what the value is fed to; if it is `None`, the `placeholder` of `assignment`.
    """
    placeholder = assignment.placeholder if placeholder is None else placeholder
    variable._assign_op, variable._assign_placeholder = assignment, placeholder


def is_phase_set(package: KerasPackage) -> bool:
    """Whether `set_learning_phase` has said whether this is training, in a `KerasPackage`."""
    return isinstance(package.backend.learning_phase(), int)


def forget_assignment(variable: Variable) -> None:
    """Has `set_value` make anew what it assigns a variable its value by."""
    for cached in ('_assign_placeholder', '_assign_op'):
        variable.__dict__.pop(cached, None)


def is_sequence(data: Any) -> bool:
    """Whether something is a `keras.utils.Sequence`."""
    package = found_package(data)
    return package is not None and isinstance(data, package.module.utils.Sequence)


def gives_batches(data: Any) -> bool:
    """Whether Keras takes data for a generator, or a `Sequence`, of batches."""
    return hasattr(data, '__next__') or is_sequence(data)


#: From functions to their signatures. Keras trains each batch by a method that asks for one.
_signature_of = functools.lru_cache(maxsize=128)(inspect.signature)


def arguments_by_name(
    method: Callable[..., Any], model: Model, arguments: Sequence[Any], named: Dict[str, Any]
) -> Dict[str, Any]:
    """What one of Keras's methods was called with, without the model, all of it by name.

    Names are not checked here: Keras still takes some of its earlier versions'.

    Args:
        method: the method, as a function.
        model: the model.
        arguments: what was given by place, after the model.
        named: what was given by name.

    Returns:
        A dict.
    """
    _, *given = _signature_of(method).bind_partial(model, *arguments).arguments.items()
    return dict(**dict(given), **named)


#: The functions of Keras's in which `fit` goes through arrays, the second one of Keras 2.15.
_LOOPS = ('fit_loop', 'model_iteration')


def order_of_samples() -> Any:
    """The numbers of the samples in the order of the `fit` that called this, or `None`.

    Both Keras packages keep them in a local variable, an array that they shuffle in place (Keras
    2.2.4, TF 1.11; proven by `tests/parallel/test_resuming.py`).
    """
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in _LOOPS and 'index_array' in frame.f_locals:
            return frame.f_locals['index_array']
        frame = frame.f_back
    return None
