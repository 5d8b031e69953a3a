# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is special about TensorFlow 1.15, whose Keras has the optimizers of TensorFlow 2.

`installed_frameworks` chooses this module. The package `keras` 2.3 beside TensorFlow 1.15 has the
optimizers of Keras 2.2.4, and the session of `tf.keras`.
"""

import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow

from keras_parallax.compat import tensorflow_1, tensorflow_functions
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Graph, Optimizer, Session, Variable

# isort: split
from tensorflow.python import autograph
from tensorflow.python import pywrap_tensorflow as c_api  # noqa: F401 - for all
from tensorflow.python.keras import backend as _backend
from tensorflow.python.keras.engine import base_layer, training
from tensorflow.python.keras.mixed_precision.experimental import autocast_variable
from tensorflow.python.keras.mixed_precision.experimental import (
    loss_scale_optimizer as _loss_scaling,
)
from tensorflow.python.keras.optimizer_v2 import optimizer_v2
from tensorflow.python.keras.saving import hdf5_format
from tensorflow.python.ops import gradients_util as _gradients_util
from tensorflow.python.training import training_ops  # noqa: F401
from tensorflow.python.util import tf_decorator

tf = tensorflow.compat.v1


SUMS_ACTIVITY_PENALTIES = False

# Losses are means over all entries, also with `keras` 2.3.
DIVIDED_BY_WEIGHTS = ()

COMPILED_WITH = '_compile_%s'

INTERNALS = '1_11'

CONFIG = tf.ConfigProto()

FOR_GRAPHS = tensorflow_1.FOR_GRAPHS

# Keras's optimizers take no others.
BY_RESOURCE = True

OPTIMIZER_MODULES = tensorflow_1.OPTIMIZER_MODULES

OPTIMIZER_V2 = optimizer_v2.OptimizerV2

# They are refused.
LOSS_SCALE_OPTIMIZER = ()

AUTO_CAST = autocast_variable.AutoCastVariable

ITERATORS_NEED_DATA = True

#: Whether scripts rely on TensorFlow to initialize lookup tables, as eager execution does.
TABLES_ARE_EAGER = False

#: Its optimizers have no function for it.
USUAL_AGGREGATOR = None

GRADIENTS = (_gradients_util,), '_GradientsHelper'

DATASET = tf.data.Dataset

FUNCTIONS = tensorflow_functions

# `Incompatible types: <dtype: 'resource'> vs. int64`: test_function_calls.py has such a loop.
BRANCHES_IN_LOOPS_READ = False


def concrete_function_of(function: Any, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
    """What a `tf.function` calls for some arguments: a `ConcreteFunction` with a graph."""
    if function._stateful_fn is None:
        # As its `get_concrete_function`, which calls a function even if there is nothing to do.
        initializers: Dict[Any, Any] = {}
        function._initialize(arguments, named, add_initializers_to=initializers)
        # Functions that are traced in it, and called elsewhere, need its graph.
        function._concrete_stateful_fn._garbage_collector.release()
        if initializers:
            function._initialize_uninitialized_variables(initializers)
    of = function._stateless_fn if function._created_variables else function._stateful_fn
    return of.get_concrete_function(*arguments, **named)


def python_of(function: Any) -> Callable[..., Any]:
    """The Python of a `tf.function`, whose `for` and `if` may be loops and branches of a graph.

    As TensorFlow 1.15 makes it when it traces the function, in `func_graph_from_py_func`.
    """
    if not function._autograph:
        return function.python_function
    _, original = tf_decorator.unwrap(function.python_function)
    options = autograph.ConversionOptions(
        recursive=True,
        optional_features=function._experimental_autograph_options,
        user_requested=True,
    )
    converted = tf_decorator.make_decorator(
        original, lambda *given, **named: autograph.converted_call(original, options, given, named)
    )
    return tf_decorator.rewrap(function.python_function, original, converted)


sorts_sums = tensorflow_1.sorts_sums

visible_cards = tensorflow_1.visible_cards

USUAL_KERAS = 'tf.keras'

KERAS_PACKAGES = tensorflow_1.KERAS_PACKAGES

REFUSED_PACKAGES: Dict[str, str] = {}

REFUSED_MODELS = ()

IGNORED_METHODS = ()


def group_by_window(
    dataset: Any, group_of: Callable[..., Any], elements_of: Callable[[Any, Any], Any], size: int
) -> Any:
    """What `elements_of` makes of each `size` elements of a group, in a data set."""
    return dataset.apply(tf.data.experimental.group_by_window(group_of, elements_of, size))


keras_module = tensorflow_1.keras_module

name_in_graphs = tensorflow_1.name_in_graphs


def keras_classes(name: str) -> Dict[str, Any]:
    """Dict from names, as `PATCHES` has them, to classes of the package called `name`."""
    if name == 'keras':
        return tensorflow_1.keras_classes(name)
    return {
        'Layer': base_layer.Layer,
        'Network': training.Model,
        'Model': training.Model,
        'Optimizer': OPTIMIZER_V2,
        'CallbackList': importlib.import_module('tensorflow.python.keras.callbacks').CallbackList,
        'Metric': importlib.import_module('tensorflow.python.keras.metrics').Metric,
    }


tensor_board = tensorflow_1.tensor_board

keras_version = tensorflow_1.keras_version


def keras_backend(name: str) -> Any:
    """Its `backend`; of `tf.keras` with what scripts are not shown."""
    return keras_module(name).backend if name == 'keras' else _backend


def track_slots(name: str, optimizer: Optimizer) -> None:
    """Has Keras initialize the slots of an optimizer that stands for a `tf.train.Optimizer`."""
    del name
    _backend.track_tf_optimizer(optimizer)


def track_variables(name: str, variables: Sequence[Variable]) -> None:
    """Has Keras initialize variables of a script's own, as it does its own ones."""
    del name
    for variable in variables:
        _backend.track_variable(variable)


def tracked_variables(name: str, graph: Graph) -> List[Variable]:
    """What Keras initializes in a graph; those of metrics are in no collection of TensorFlow's."""
    del name
    return list(_backend._get_variables(graph))


_NO_SCALE = (
    'With TensorFlow 1.15 no loss is scaled: train in single precision, or in mixed precision with '
    'TensorFlow 2.'
)


def check_policy(policy: Any) -> None:
    """Looks at the precision that a model is to be trained in.

    Raises:
        PlanError: its loss has to be scaled.
    """
    if policy.loss_scale is not None:
        raise PlanError(_NO_SCALE)


def for_graphs(name: str, optimizer: Optimizer) -> Optimizer:
    """An optimizer of Keras: each is for graphs.

    Raises:
        PlanError: it scales the loss.
    """
    del name
    if isinstance(optimizer, _loss_scaling.LossScaleOptimizer):
        raise PlanError(_NO_SCALE)
    return optimizer


def keras_saving(name: str) -> Any:
    """The module that reads and writes the package's HDF5 files."""
    return tensorflow_1.keras_saving(name) if name == 'keras' else hdf5_format


def keras_writer(name: str) -> Callable[..., None]:
    """The function that writes a model to an open HDF5 file."""
    return tensorflow_1.keras_writer(name) if name == 'keras' else hdf5_format.save_model_to_hdf5


arguments_of_save = tensorflow_1.arguments_of_save

model_in_file = tensorflow_1.model_in_file


def keras_session(name: str) -> Optional[Session]:
    """The session that Keras has open, or `None`."""
    del name
    return getattr(_backend._SESSION, 'session', None)


def share_session(name: str, session: Session) -> None:
    """Does nothing: each thread that asks Keras for a session has one of its own, as plainly."""
