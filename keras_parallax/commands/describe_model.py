# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Describes a model in the plan's plain terms, without training it and without a cluster.

The model is built for real and its loss is asked as in training, so that the answer is the same.
No weight gets a value, so a table of any size takes no memory.
"""

import contextlib
import functools
import importlib
import json
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

import h5py

from keras_parallax import layers, optimizers
from keras_parallax.checkpoint import keras_file_read
from keras_parallax.compat import keras_api, loaded_keras3, session_config
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session import graph_scope
from keras_parallax.engine.session.graph_scope import GraphScope
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.updates import table_updates
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.table_optimizers import TableOptimizers
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Model, Optimizer
from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.plan import Update
from keras_parallax.strategy import ParallaxStrategy

_HDF5 = ('.h5', '.hdf5')
_KERAS_3 = '.keras'


class Description(NamedTuple):
    """A model in plain terms.

    Attributes:
        uses: a `VariableUse` for each trainable variable.
        updates: dict from names of variables to how the optimizer would update them, by rows if
            they are looked up; empty if no optimizer is known.
        reasons: dict from names of tables of Keras 3 that every worker would hold to why, in words.
    """

    uses: List[VariableUse]
    updates: Dict[str, Update]
    reasons: Mapping[str, str] = {}


def describe(
    source: str, optimizer: Optional[str] = None, sparse_update: Optional[str] = None
) -> Description:
    """Builds a model and describes it.

    Args:
        source: `'model.json'` (of `model.to_json`), `'model.h5'` (of `model.save`),
            `'model.keras'` of Keras 3, or `'module:function'`, a function without arguments that
            returns a Keras model, compiled or not, and makes no strategy of its own. A model
            without a loss gets one of all its outputs.
        optimizer: name of a Keras optimizer; if `None`, the one that the model was compiled or
            saved with.
        sparse_update: `'exact'` or `'lazy'`; if `None`, that of the model's `ParallaxOptimizer`,
            and without one `'exact'`.

    Returns:
        A `Description`.

    Raises:
        PlanError: there is no such model, or it cannot be built.
    """
    of_keras3 = _describe_keras3(source, optimizer, sparse_update)
    if of_keras3 is not None:
        return of_keras3
    # A scope sees the regularizers only of packages that are imported by then.
    keras_api.keras_package('keras')
    with tf.Graph().as_default(), ParallaxStrategy():
        model, package, saved_optimizer = _load(source)
        compiled = getattr(model, 'total_loss', None) is not None
        if not compiled:
            # Which loss it is does not matter, only what it reads.
            model.compile('sgd', 'mse')
        if getattr(model, 'total_loss', None) is None:
            raise PlanError(
                'The model of %s has no weights yet: give its first layer an input_shape.' % source
            )
        scope = cast(GraphScope, graph_scope.scope_of(model.total_loss.graph))
        records = scope.records
        variables = keras_api.trained_weights(model)
        uses = loss_analysis.describe(model.total_loss, variables, records)
        with _session_for_settings(model):
            chosen = model.optimizer if compiled else None
            named = optimizer or saved_optimizer
            if named is not None:
                chosen = _optimizer(package, named)
            if chosen is None:
                return Description(uses, {})
            uses = loss_analysis.as_trained_by(uses, adapter_of(chosen))
            settings = getattr(chosen, '_parallax_settings', None)
            update = sparse_update or (settings.sparse_update if settings else table_updates.EXACT)
            of_tables = settings.tables if settings else TableOptimizers()
            return Description(
                uses,
                table_updates.updates_of(
                    chosen,
                    (update, of_tables),
                    {use.name: variable for use, variable in zip(uses, variables)},
                    {use.name for use in uses if use.lookups},
                    records,
                ),
            )


def _describe_keras3(
    source: str, optimizer: Optional[str], sparse_update: Optional[str]
) -> Optional[Description]:
    """As `describe`; `None` if the source makes no model of Keras 3."""
    is_file = source.endswith(_KERAS_3)
    if is_file and not os.path.isfile(source):
        raise PlanError('There is no file %s.' % source)
    # What a module imports tells whether Keras 3 is in use.
    function = None if is_file or _is_file_of_keras2(source) else _function(*_parts_of(source))
    if not loaded_keras3.is_in_use():
        if is_file:
            raise PlanError('%s is a file of Keras 3, which is not in use here.' % source)
        return None
    # Only now: it imports Keras 3, and its backend.
    from keras_parallax.keras3 import describing

    if function is None and not is_file:
        return None
    make = functools.partial(describing.from_file, source) if is_file else _uncompiled(function)
    with ParallaxStrategy():
        found = describing.described(make, source, optimizer, sparse_update)
    return None if found is None else Description(*found)


def _uncompiled(function: Any) -> Callable[[], Tuple[Model, None]]:
    """A function that returns a model as `describing.from_file` does, without an optimizer."""
    return lambda: (function(), None)


def _is_file_of_keras2(source: str) -> bool:
    return source.endswith('.json') or source.endswith(_HDF5)


def _parts_of(source: str) -> Tuple[str, str]:
    """The module and the function that a source names."""
    module, colon, function = source.partition(':')
    if not (module and colon and function):
        raise PlanError(
            'The model must be given as a .json, .h5 or .keras file or as module:function, but %r '
            'was given.' % source
        )
    return module, function


def _load(source: str) -> Tuple[Model, KerasPackage, Any]:
    """Builds a model; returns it, its `KerasPackage`, and what is saved of its optimizer."""
    if _is_file_of_keras2(source):
        if not os.path.isfile(source):
            raise PlanError('There is no file %s.' % source)
        try:
            return _from_json(source) if source.endswith('.json') else _from_hdf5(source)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise PlanError(
                'No Keras model could be built from %s: %s. A model with layers of your own can be '
                'given as module:function.' % (source, error)
            ) from error
    model = _function(*_parts_of(source))()
    package = keras_api.found_package(model)
    if package is None:
        raise PlanError('%s returned %r, which is no Keras model.' % (source, model))
    return model, package, None


def _function(module: str, function: str) -> Callable[[], Model]:
    # As `python train.py` would find it.
    sys.path.insert(0, os.getcwd())
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise PlanError('Module %s could not be imported: %s' % (module, error)) from error
    finally:
        sys.path.remove(os.getcwd())
    if not callable(getattr(imported, function, None)):
        raise PlanError('Module %s has no function %s.' % (module, function))
    return getattr(imported, function)


def _from_json(path: str) -> Tuple[Model, KerasPackage, Any]:
    with open(path) as file:
        text = file.read()
    version = json.loads(text).get('keras_version', '')
    package = keras_api.keras_package(keras_file_read.package_that_wrote(version))
    known = layers.classes_of(package)
    return package.module.models.model_from_json(text, known), package, None


def _from_hdf5(path: str) -> Tuple[Model, KerasPackage, Any]:
    # Not `load_model`, which would also read the weights.
    with h5py.File(path, 'r') as file:
        package_name, config, training = keras_file_read.read_configs(file)
    if config is None:
        raise ValueError('it has weights only; save it with model.save')
    package = keras_api.keras_package(package_name)
    model = package.module.models.model_from_config(config, layers.classes_of(package))
    return model, package, (training or {}).get('optimizer_config')


def _optimizer(package: KerasPackage, given: Any) -> Optimizer:
    """A Keras optimizer from its name or from its saved class and config."""
    try:
        with package.module.utils.CustomObjectScope(optimizers.classes_of(package)):
            return package.module.optimizers.get(given)
    except (ValueError, TypeError) as error:
        raise PlanError('No Keras optimizer could be made of %r: %s' % (given, error)) from error


@contextlib.contextmanager
def _session_for_settings(model: Model) -> Iterator[None]:
    """While open, an optimizer's settings can be read, and weights are left without values.

    Keras 2.2.4 keeps settings such as the momentum in variables, and reading one initializes every
    variable that it does not take for initialized already.
    """
    weights = set(model.weights)
    for weight in weights:
        keras_api.mark_initialized(weight)
    # The strategy that makes the plan goes on with it.
    with tf.Session(config=session_config.of_worker(0)) as session:
        others = [variable for variable in tf.global_variables() if variable not in weights]
        session.run([variable.initializer for variable in others])
        yield
