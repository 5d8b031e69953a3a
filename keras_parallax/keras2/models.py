# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`load_model`: a model and its optimizer from a file, compiled to train on in a job."""

import functools
import os
import warnings
from typing import Any, Callable, Dict, List, Optional, Union

from keras_parallax import layers, optimizers
from keras_parallax.checkpoint import (
    keras_file_read,
    keras_file_write,
    optimizer_options,
    resume,
    write_once,
)
from keras_parallax.compat import (
    function_calls,
    keras_api,
    keras_losses,
    late_import,
    loaded_keras3,
    patches,
    tensorflow_api,
)
from keras_parallax.compat.graph_queries import ancestors
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_scope import WeightRecord, scope_of
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.errors import CheckpointError, ParallaxError, ScopeError
from keras_parallax.framework_types import Layer, Model, Optimizer, Variable
from keras_parallax.keras2 import compiling, training_loop
from keras_parallax.optimizer import ParallaxOptimizer


def load_model(
    filepath: str,
    custom_objects: Optional[Dict[str, Any]] = None,
    compile: bool = True,
    name: Optional[str] = None,
    compression: Any = None,
    pull_compression: Any = None,
    sparse_update: Optional[str] = None,
    sparse_reduction: Optional[str] = None,
    tables: Union[None, str, Optimizer] = None,
    per_table: Optional[Dict[str, Union[str, Optimizer]]] = None,
    accumulate_steps: Optional[int] = None,
    loss_reduction: Optional[str] = None,
) -> Model:
    """Loads a model to train on in this job. A collective call, inside the strategy's scope.

    Args:
        filepath: a checkpoint of `kp.callbacks.ModelCheckpoint` of either form, or a file that
            `model.save` wrote, with keras-parallax or with plain Keras.
        custom_objects: dict from names to classes or functions that Keras does not know.
        compile: whether to compile the model as it was when it was saved, and to restore the
            state of its optimizer. If the saved state does not fit, because layers were frozen and
            the model was saved before it trained again, the optimizer starts afresh with a
            warning, as in plain Keras. Without, every worker must see the file.
        name: as in `ParallaxOptimizer`.
        compression: as in `ParallaxOptimizer`. By default this and the options below, down to
            `loss_reduction`, are as the model was saved with; a file of plain Keras has the
            defaults of `ParallaxOptimizer`.
        pull_compression: as in `ParallaxOptimizer`.
        sparse_update: as in `ParallaxOptimizer`.
        sparse_reduction: as in `ParallaxOptimizer`.
        tables: as in `ParallaxOptimizer`. If the model was saved with it, give it again: a file
            has the state of optimizers of tables, but not their rates.
        per_table: as `tables`.
        accumulate_steps: as in `ParallaxOptimizer`.
        loss_reduction: as in `ParallaxOptimizer`.

    Returns:
        A model of the Keras package that wrote the file.

    Raises:
        ScopeError: called outside `with strategy:`.
        CheckpointError: the file is damaged, or holds weights only; or the model was saved with
            `tables`, `per_table` or a compression of a class of your own, and another or none is
            given.

    Example:
        ```python
        >>> import os, tempfile, keras, keras_parallax as kp
        >>> model = keras.models.Sequential([
        ...     keras.layers.InputLayer((1,), dtype='int32'), keras.layers.Embedding(9, 1)])
        >>> model.compile('adagrad', 'mse')
        >>> path = os.path.join(tempfile.mkdtemp(), 'model.h5')
        >>> model.save(path)
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = kp.load_model(path, sparse_update='lazy')
        >>> model.layers[0].input_dim
        9
        ```
    """
    scope = scope_of(tf.get_default_graph())
    if scope is None or scope.open_strategy is None:
        raise ScopeError('Call kp.load_model inside `with strategy:`.')
    read = functools.partial(_read_configs, filepath) if scope.job.rank == 0 else lambda: None
    # Only rank 0 may see a file, and all must make the same model.
    with scope.job.call('kp.load_model'):
        found = resume.on_every_worker(scope.job, filepath, read)[0]
    name_of_package, config, training, saved = found
    package = keras_api.keras_package(name_of_package)
    known = dict(layers.classes_of(package), **(custom_objects or {}))
    model = package.module.models.model_from_config(config, known)
    if not compile or training is None:
        if compile:
            message = '%s holds no compiled model: compile it yourself.' % filepath
            warnings.warn(message, stacklevel=2)
        with resume.opened(filepath, checked=False) as (file, sources, _):
            mover = keras_file_read.Mover(model, BLOCK_BYTES, None, sources)
            keras_file_read.read_weights(model, keras_file_read.weights_group(file), False, mover)
        return model
    given = {
        'compression': compression,
        'pull_compression': pull_compression,
        'sparse_update': sparse_update,
        'sparse_reduction': sparse_reduction,
        'accumulate_steps': accumulate_steps,
        'loss_reduction': loss_reduction,
    }
    options = optimizer_options.chosen(saved, given, filepath)
    wrap = functools.partial(
        ParallaxOptimizer, name=name, tables=tables, per_table=per_table, **options
    )
    known = dict(optimizers.classes_of(package), **(custom_objects or {}))
    _compile(package, model, training, known, wrap)
    with scope.job.call('kp.load_model'):
        resume.resume(model, filepath, like_keras=True)
    return model


def _read_configs(filepath: str) -> List[Any]:
    """The name of the Keras package that wrote a file, its model, and how that was compiled.

    The fourth are the options of its `ParallaxOptimizer`.
    """
    with resume.opened(filepath, checked=False) as (file, _, _):
        configs = keras_file_read.read_configs(file)
        if configs.model is None:
            raise CheckpointError(
                '%s holds no model, only weights; build the model and call model.load_weights.'
                % filepath
            )
        return [*configs, optimizer_options.read(file)]


def _compile(
    package: KerasPackage,
    model: Model,
    training: Dict[str, Any],
    custom_objects: Dict[str, Any],
    wrap: Callable[[Optimizer], Optimizer],
) -> None:
    optimizer = package.module.optimizers.deserialize(
        training['optimizer_config'], custom_objects=custom_objects
    )
    module = package.module
    classes = {'loss': module.losses, 'metrics': module.metrics, 'weighted_metrics': module.metrics}
    arguments = {
        name: _with_objects(value, custom_objects, classes.get(name))
        for name, value in training.items()
        if name != 'optimizer_config'
    }
    model.compile(wrap(optimizer), **arguments)


def _with_objects(value: Any, custom_objects: Dict[str, Any], classes: Any) -> Any:
    """Puts the user's functions in the place of names, and objects in the place of their configs.

    Args:
        value: an argument of `compile` as the file has it.
        custom_objects: dict from names to what the user has given for them.
        classes: the module of Keras that makes objects of configs, or `None`.
    """
    if isinstance(value, list):
        return [_with_objects(item, custom_objects, classes) for item in value]
    if isinstance(value, dict):
        if classes is not None and {'class_name', 'config'} <= value.keys():
            return classes.deserialize(value, custom_objects=custom_objects)
        return {name: _with_objects(item, custom_objects, classes) for name, item in value.items()}
    return custom_objects.get(value, value) if isinstance(value, str) else value


def _routed(ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a network's that writes or reads a file: ours, if the model is of a strategy."""

    def method(model: Model, filepath: str, *args: Any, **kwargs: Any) -> Any:
        # An open file of the caller's is for Keras to fill.
        if not isinstance(filepath, str) or not keras_file_write.is_ours(model):
            return original(model, filepath, *args, **kwargs)
        return ours(original, model, filepath, *args, **kwargs)

    return method


def _save(
    original: Callable[..., Any], model: Model, filepath: str, *args: Any, **kwargs: Any
) -> Any:
    del original
    args, kwargs = generation.arguments_of_save(filepath, args, kwargs)
    return keras_file_write.save_model(model, filepath, *args, **kwargs)


def _save_weights(
    original: Callable[..., Any],
    model: Model,
    filepath: str,
    overwrite: bool = True,
    save_format: Optional[str] = None,
    **arguments: Any,
) -> None:
    if _is_tensorflows(model, filepath, save_format):
        _refuse_sharded(model, filepath, 'saved')
        scope = keras_file_write.scope_of_model(model)
        write_once.save(
            scope.job,
            write_once.point_of(scope),
            filepath,
            ['checkpoint'] + keras_file_write.described(model),
            write=lambda: original(model, filepath, overwrite, save_format, **arguments),
            own=lambda: None,
            witness=filepath + '.index',
        )
    else:
        keras_file_write.save_weights(model, filepath, overwrite)


def _load_weights(
    original: Callable[..., Any],
    model: Model,
    filepath: str,
    by_name: bool = False,
    **arguments: Any,
) -> Any:
    if _is_tensorflows(model, filepath) and not os.path.isfile(filepath):
        _refuse_sharded(model, filepath, 'loaded')
        return original(model, filepath, by_name, **arguments)
    return keras_file_read.load_weights(model, filepath, by_name, **arguments)


def _is_tensorflows(model: Model, filepath: str, save_format: Optional[str] = None) -> bool:
    """Whether `tf.keras` takes a path for a checkpoint of TensorFlow's, not an HDF5 file."""
    if keras_api.package_of(model).name == 'keras':
        return False
    if save_format is not None:
        return save_format.lower().strip() in ('tf', 'tensorflow')
    return not filepath.endswith(('.h5', '.keras'))


def _refuse_sharded(model: Model, filepath: str, done: str) -> None:
    if any(isinstance(weight, ShardedVariable) for weight in model.weights):
        raise ParallaxError(
            "Sharded tables cannot be %s in TensorFlow's own checkpoint format, which tf.keras "
            'takes for %s; give the path the ending .h5.' % (done, filepath)
        )


def _recording(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Layer.add_weight` that notes each weight of a strategy's graph in its `records`.

    A model may make its weights after its scope was left, when it sees its first batch.
    """

    def add_weight(layer: Layer, *args: Any, **kwargs: Any) -> Variable:
        graph_scope = scope_of(tf.get_default_graph())
        if graph_scope is None:
            return original(layer, *args, **kwargs)
        package = keras_api.package_of(layer)
        # Both packages: add_weight(name, shape, dtype, initializer, regularizer, ...).
        by_place = list(args)
        given = by_place[4] if len(by_place) > 4 else kwargs.get('regularizer')
        regularizer = package.module.regularizers.get(given)
        penalties = []
        if regularizer is not None:

            def penalty(weight: Variable) -> Any:
                value = regularizer(weight)
                if _depends_on(value, weight):
                    penalties.append(value)
                return value

            if len(by_place) > 4:
                by_place[4] = penalty
            else:
                kwargs['regularizer'] = penalty
        weight = original(layer, *by_place, **kwargs)
        # Keras 2.15 asks for the penalty later, and for a new one each time.
        record = WeightRecord(package.name, layer.name, regularizer, penalties)
        graph_scope.records[tensorflow_api.uncast(weight)] = record
        return weight

    return add_weight


def _depends_on(penalty: Any, weight: Variable) -> bool:
    """Whether what a regularizer has returned is a tensor that tells something of the weight."""
    return isinstance(penalty, tf.Tensor) and tensorflow_api.storage(weight).op in ancestors(
        [penalty]
    )


_METHODS: Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    'Layer.add_weight': _recording,
    'Network.save': functools.partial(_routed, _save),
    'Network.save_weights': functools.partial(_routed, _save_weights),
    'Network.load_weights': functools.partial(_routed, _load_weights),
    **compiling.METHODS,
    **training_loop.METHODS,
}

_is_installed = False


def install() -> None:
    """Has what models of a strategy do go through here, once in a process.

    That is also so for a Keras package that the script imports later. Other models keep Keras's own
    methods, as ever.
    """
    global _is_installed
    if not _is_installed:
        _is_installed = True
        _install()
        late_import.when_imported('keras', _install)


def _install() -> None:
    graph_scope = scope_of(tf.get_default_graph())
    if graph_scope is not None:
        graph_scope.sessions.hand_to_keras()
    patches.replace_method(
        'tf.train.Optimizer.apply_gradients', tf.train.Optimizer, compiling.apply_gradients_of
    )
    function_calls.install(lambda graph: scope_of(graph) is not None)
    for cls in (*keras_api.REFUSED_MODELS, *loaded_keras3.compiling_classes()):
        patches.replace_method('Model.compile', cls, compiling.refused_compile_of)
    for package in keras_api.loaded_keras_packages():
        owners = package.patched
        keras_losses.install(package)
        for target, make in _METHODS.items():
            patches.replace_method(target, owners[target.split('.')[0]], make)
