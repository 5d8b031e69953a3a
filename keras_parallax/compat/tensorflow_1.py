# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is special about TensorFlow 1 and the Keras packages beside it.

`installed_frameworks` chooses this module.
"""

import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from keras_parallax.framework_types import Graph, Model, Optimizer, Session, Variable

# isort: split
from tensorflow.core.protobuf import config_pb2
from tensorflow.python import pywrap_tensorflow as c_api  # noqa: F401 - for all
from tensorflow.python.ops import gradients as _gradients
from tensorflow.python.ops import gradients_impl as _gradients_impl
from tensorflow.python.training import training_ops  # noqa: F401

#: Whether `tf.keras` sums the penalty of an `activity_regularizer` over a batch, as `keras` does.
SUMS_ACTIVITY_PENALTIES = True

#: The Keras packages that divide losses by numbers of sample weights, and of masks too.
DIVIDED_BY_WEIGHTS = ('keras', 'tf.keras')

#: The attribute of a compiled model that has an argument of `compile`.
COMPILED_WITH = '%s'

#: What the names of our modules end with that know the private side of its graphs and sessions.
INTERNALS = '1_11'

#: What every session of ours needs: a `tf.ConfigProto`.
CONFIG = config_pb2.ConfigProto()

#: What a script has to do so that TensorFlow builds graphs.
FOR_GRAPHS = 'leave tf.enable_eager_execution() out.'

#: Whether a variable is a resource unless somebody asks for another kind.
BY_RESOURCE = False

#: The modules of the Keras packages' optimizers.
OPTIMIZER_MODULES = ('keras.optimizers', 'tensorflow.python.keras.optimizers')

#: The base class of optimizers of Keras that take rows; there are none.
OPTIMIZER_V2 = ()

#: The class of optimizers that scale the loss for another one; there is none.
LOSS_SCALE_OPTIMIZER = ()

#: What adds up gradients by default in an `OptimizerV2`; there is none.
USUAL_AGGREGATOR: Any = None

#: The class of variables that a layer casts when it reads them; there is none.
AUTO_CAST = ()

#: Whether an iterator must have its data set before it takes a state.
ITERATORS_NEED_DATA = False

#: Whether scripts rely on TensorFlow to initialize lookup tables, as eager execution does.
TABLES_ARE_EAGER = False

#: The modules in which Keras and optimizers look up `gradients`, and its name there.
GRADIENTS = (tf, _gradients_impl, _gradients), 'gradients'

#: The base class of data sets.
DATASET = tf.data.Dataset

FUNCTIONS = None

BRANCHES_IN_LOOPS_READ = False

concrete_function_of: Any = None
python_of: Any = None

#: The Keras package that every process has: it is made of TensorFlow's.
USUAL_KERAS = 'tf.keras'

#: Names of the Keras packages, to the modules that they are made of.
KERAS_PACKAGES = {'keras': 'keras', 'tf.keras': 'tensorflow.python.keras'}

#: The same of those that are not served, though they may be there.
REFUSED_PACKAGES: Dict[str, str] = {}

#: The base classes of their models.
REFUSED_MODELS = ()

#: The methods of models that only Keras of eager execution calls; there are none.
IGNORED_METHODS = ()


def sorts_sums(width: int) -> bool:
    """Whether the CPU sums rows faster after sorting them; see `segment_sums`."""
    del width
    return False


def visible_cards() -> Optional[int]:
    """How many graphics cards TensorFlow sees; `None` if that cannot be known yet.

    TensorFlow 1 takes the memory of all cards when it is asked for their number.
    """
    return None if tf.test.is_built_with_cuda() else 0


def group_by_window(
    dataset: Any, group_of: Callable[..., Any], elements_of: Callable[[Any, Any], Any], size: int
) -> Any:
    """What `elements_of` makes of each `size` elements of a group, in a data set.

    It imports all of `tf.contrib`, which others need not.
    """
    contrib = importlib.import_module('tensorflow.contrib.data')
    return dataset.apply(contrib.group_by_window(group_of, elements_of, size))


def name_in_graphs(metric: str, is_weighted: bool) -> str:
    """What Keras calls a metric in the logs where that is not its default name: never."""
    del is_weighted
    return metric


def keras_module(name: str) -> Any:
    """The package called `'keras'` or `'tf.keras'`, as scripts have it.

    Raises:
        ImportError: it is not there.
    """
    return tf.keras if name == 'tf.keras' else importlib.import_module('keras')


def keras_classes(name: str) -> Dict[str, Any]:
    """Dict from names, as `PATCHES` has them, to classes of the package called `name`."""
    module, inside = keras_module(name), KERAS_PACKAGES[name]
    layer = importlib.import_module(inside + '.engine.base_layer').Layer
    return {
        'Layer': layer,
        'Network': importlib.import_module(inside + '.engine.network').Network,
        'Model': module.models.Model,
        'Optimizer': module.optimizers.Optimizer,
        'CallbackList': importlib.import_module(inside + '.callbacks').CallbackList,
        # `keras` 2.2.4 has no class of metrics of its own, and looks for layers.
        'Metric': getattr(importlib.import_module(inside + '.metrics'), 'Metric', layer),
    }


def tensor_board(name: str) -> Any:
    """The class of the package's callback for TensorBoard."""
    return keras_module(name).callbacks.TensorBoard


def keras_version(name: str) -> str:
    """The version of the package, as it writes it to files."""
    return keras_module(name).__version__


def keras_backend(name: str) -> Any:
    """The package's `backend`."""
    return keras_module(name).backend


def track_slots(name: str, optimizer: Optimizer) -> None:
    """Keras initializes all variables of a graph."""


def track_variables(name: str, variables: Sequence[Variable]) -> None:
    """Keras initializes all variables of a graph."""


def tracked_variables(name: str, graph: Graph) -> List[Variable]:
    """Those that are in no collection: none."""
    return []


def check_policy(policy: Any) -> None:
    """Looks at the precision that a model is to be trained in: there is one."""


def for_graphs(name: str, optimizer: Optimizer) -> Optimizer:
    """An optimizer of Keras: each is for graphs."""
    return optimizer


def keras_saving(name: str) -> Any:
    """The module that reads and writes the package's HDF5 files."""
    return importlib.import_module(KERAS_PACKAGES[name] + '.engine.saving')


def keras_writer(name: str) -> Callable[..., None]:
    """The function that writes a model to an open HDF5 file."""
    return keras_module(name).models.save_model


def arguments_of_save(
    filepath: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Arguments of `model.save(filepath, ...)`, for an HDF5 file; there is no other form."""
    return args, kwargs


def model_in_file(model: Model) -> Any:
    """What the functions of `keras_saving` take for a model."""
    return model.layers


def keras_session(name: str) -> Optional[Session]:
    """The session that the package called `name` has open, or `None`."""
    inside = '.backend.tensorflow_backend' if name == 'keras' else '.backend'
    return importlib.import_module(KERAS_PACKAGES[name] + inside)._SESSION


def share_session(name: str, session: Session) -> None:
    """Does nothing: Keras 2.2.4 has one session for all threads."""
