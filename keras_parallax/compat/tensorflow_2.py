# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is special about TensorFlow 2 and its Keras 2; `installed_frameworks` chooses it.

The engine builds graphs, which TensorFlow 2 has in `tensorflow.compat.v1`.
"""

import importlib
import importlib.util
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow

from keras_parallax.compat import patches, remedies, tensorflow_functions
from keras_parallax.errors import CheckpointError, PlanError, StackError
from keras_parallax.framework_types import Graph, Model, Optimizer, Session, Variable

# isort: split
from tensorflow.python.client import pywrap_tf_session as c_api  # noqa: F401 - for all
from tensorflow.python.eager.polymorphic_function import autograph_util as _autograph_util
from tensorflow.python.framework import tensor_util as _tensor_util
from tensorflow.python.ops import gen_training_ops as training_ops  # noqa: F401
from tensorflow.python.ops import gradients_util as _gradients_util

tf = tensorflow.compat.v1


SUMS_ACTIVITY_PENALTIES = False

DIVIDED_BY_WEIGHTS = ()

COMPILED_WITH = '_compile_%s'

INTERNALS = '1_11'

CONFIG = tf.ConfigProto()

FOR_GRAPHS = (
    'call tf.compat.v1.disable_v2_behavior() at the top of the script, right after '
    '`import tensorflow as tf`.'
)

BY_RESOURCE = True

# A dozen modules have `gradients` of one kind or the other; all call this.
GRADIENTS = (_gradients_util,), '_GradientsHelper'

DATASET = tensorflow.data.Dataset

FUNCTIONS = tensorflow_functions

#: Whether a loop of TensorFlow 1 has a gradient if a branch in it reads a variable.
BRANCHES_IN_LOOPS_READ = True


def concrete_function_of(function: Any, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
    """What a `tf.function` calls for some arguments: a `ConcreteFunction` with a graph."""
    return function.get_concrete_function(*arguments, **named)


def python_of(function: Any) -> Callable[..., Any]:
    """The Python of a `tf.function`, whose `for` and `if` may be loops and branches of a graph."""
    if not function._autograph:
        return function.python_function
    return _autograph_util.py_func_from_autograph(
        function.python_function, function._experimental_autograph_options
    )


def sorts_sums(width: int) -> bool:
    """Whether the CPU sums rows faster after sorting them; see `segment_sums`."""
    return width >= 128


def visible_cards() -> Optional[int]:
    """How many graphics cards TensorFlow sees; `None` if that cannot be known yet."""
    return len(tensorflow.config.list_physical_devices('GPU'))


def group_by_window(
    dataset: Any, group_of: Callable[..., Any], elements_of: Callable[[Any, Any], Any], size: int
) -> Any:
    """What `elements_of` makes of each `size` elements of a group, in a data set."""
    return dataset.group_by_window(group_of, elements_of, size)


def _load_tf_keras() -> None:
    """Loads `tf.keras`, which Horovod does anyway, so that its error does not blame Horovod."""
    try:
        tensorflow.keras.backend  # noqa: B018 - it is loaded when something of it is asked for
    except ImportError as error:
        raise StackError(
            'keras-parallax needs tf.keras, which could not be imported (%s). Set '
            'TF_USE_LEGACY_KERAS=1 in the environment: then it is Keras 2, from tf-keras, which is '
            'installed.' % error
        ) from error


def _has_tf_keras() -> bool:
    try:
        return importlib.util.find_spec('tf_keras') is not None
    except ImportError:  # A finder of packages may say so instead of finding nothing.
        return False


#: The Keras 2 that TensorFlow 2.16 and later keep for themselves. Scripts train no models with it,
#: but it has what the engine needs to build its graphs for models of Keras 3
#: (`tests/parallel/test_keras3.py`, without `tf_keras`).
_KEPT_KERAS = 'tensorflow.python.keras'


def _keras_inside() -> str:
    """The package that has the insides of a Keras 2: that of scripts, or the one of TensorFlow."""
    if _has_tf_keras():
        _load_tf_keras()
        return 'tf_keras.src'
    try:
        found = importlib.import_module('keras').__version__
    except ImportError as error:
        raise StackError(
            'keras-parallax needs Keras, but beside TensorFlow %s there is none (%s); get it with: '
            '%s' % (tensorflow.__version__, error, remedies.ANY_KERAS)
        ) from error
    return 'keras.src' if found.startswith('2.') else _KEPT_KERAS


USUAL_KERAS = 'tf.keras'

#: One package, whatever a script calls it.
KERAS_PACKAGES = {'tf.keras': _keras_inside()}

_IS_KEPT = KERAS_PACKAGES['tf.keras'] == _KEPT_KERAS

REFUSED_PACKAGES: Dict[str, str] = {}

REFUSED_MODELS = ()

#: The methods of models that Keras calls under eager execution, and in a graph not (2.15, 2.21).
IGNORED_METHODS = (
    'train_step',
    'test_step',
    'predict_step',
    'compute_loss',
    'compute_metrics',
    'get_metrics_result',
    'make_train_function',
    'make_test_function',
    'make_predict_function',
)

OPTIMIZER_MODULES = (
    KERAS_PACKAGES['tf.keras'] + ('' if _IS_KEPT else '.optimizers') + '.optimizer_v1',
)

_optimizer_v2 = importlib.import_module(
    KERAS_PACKAGES['tf.keras']
    + ('.optimizer_v2' if _IS_KEPT else '.optimizers.legacy')
    + '.optimizer_v2'
)

OPTIMIZER_V2 = _optimizer_v2.OptimizerV2

_loss_scaling = importlib.import_module(
    KERAS_PACKAGES['tf.keras'] + '.mixed_precision.loss_scale_optimizer'
)
LOSS_SCALE_OPTIMIZER = _loss_scaling.LossScaleOptimizer

AUTO_CAST = importlib.import_module(
    KERAS_PACKAGES['tf.keras'] + '.mixed_precision.autocast_variable'
).AutoCastVariable


#: Whether an iterator must have its data set before it takes a state.
ITERATORS_NEED_DATA = True

#: Whether scripts rely on TensorFlow to initialize lookup tables, as eager execution does.
TABLES_ARE_EAGER = True


#: What an `OptimizerV2` adds up the gradients of `tf.distribute`'s replicas with.
USUAL_AGGREGATOR = _optimizer_v2.optimizer_utils.all_reduce_sum_gradients


def keras_module(name: str) -> Any:
    """The package, as scripts have it."""
    del name
    inside = KERAS_PACKAGES['tf.keras']
    return importlib.import_module(inside if _IS_KEPT else inside.split('.')[0])


def keras_classes(name: str) -> Dict[str, Any]:
    """Dict from names, as `PATCHES` has them, to classes: those of models that are graphs."""
    inside = KERAS_PACKAGES[name]
    model = importlib.import_module(inside + '.engine.training_v1').Model
    return {
        'Layer': importlib.import_module(inside + '.engine.base_layer_v1').Layer,
        'Network': model,
        'Model': model,
        'Optimizer': OPTIMIZER_V2,
        'CallbackList': importlib.import_module(inside + '.callbacks').CallbackList,
        'Metric': importlib.import_module(inside + '.metrics').Metric,
    }


def tensor_board(name: str) -> Any:
    """The class of its callback for TensorBoard that is for graphs, beside the eager one."""
    return importlib.import_module(KERAS_PACKAGES[name] + '.callbacks_v1').TensorBoard


def keras_version(name: str) -> str:
    """Its version, as it writes it to files."""
    return importlib.import_module(KERAS_PACKAGES[name]).__version__


def keras_backend(name: str) -> Any:
    """Its `backend`, with what TensorFlow 2 shows in `tf.compat.v1.keras` alone."""
    return importlib.import_module(KERAS_PACKAGES[name] + '.backend')


def track_slots(name: str, optimizer: Optimizer) -> None:
    """Has Keras initialize the slots of an optimizer that stands for a `tf.train.Optimizer`.

    It knows such optimizers by a set of weak references, and initializes what it knows
    (`tests/parallel/test_equality.py`, the case `tf_adam`).
    """
    keras_backend(name).track_tf_optimizer(optimizer)


def track_variables(name: str, variables: Sequence[Variable]) -> None:
    """Has Keras initialize variables of a script's own, as it does its own ones."""
    for variable in variables:
        keras_backend(name).track_variable(variable)


def tracked_variables(name: str, graph: Graph) -> List[Variable]:
    """What Keras initializes in a graph; those of metrics are in no collection of TensorFlow's."""
    return list(keras_backend(name)._get_variables(graph))


#: Arguments that an optimizer for graphs has not, and their values where they do nothing.
_OF_EAGER = {
    'weight_decay': (None, 0, 0.0),
    'use_ema': (False,),
    'ema_momentum': (),
    'ema_overwrite_frequency': (),
    'jit_compile': (),
    'is_legacy_optimizer': (),
}


def check_policy(policy: Any) -> None:
    """Looks at the precision that a model is to be trained in: each is served."""


def for_graphs(name: str, optimizer: Optimizer) -> Optimizer:
    """An optimizer of Keras, or the one of `optimizers.legacy` that means the same.

    Those of Keras 2.11 and later build no graph.

    Raises:
        PlanError: there is none that means the same.
    """
    if _IS_KEPT:  # It has none for eager execution.
        return optimizer
    eager = importlib.import_module(KERAS_PACKAGES[name] + '.optimizers.optimizer').Optimizer
    if not isinstance(optimizer, eager):
        return optimizer
    if isinstance(optimizer, _loss_scaling.LossScaleOptimizerV3):
        scale = {name: getattr(optimizer, name) for name in ('dynamic', 'initial_scale')}
        inner = for_graphs(name, optimizer.inner_optimizer)
        steps = optimizer.dynamic_growth_steps
        return LOSS_SCALE_OPTIMIZER(inner, dynamic_growth_steps=steps, **scale)
    cls, optimizers = type(optimizer), keras_module(name).optimizers
    legacy = getattr(optimizers.legacy, cls.__name__, None)
    rate = optimizer._learning_rate
    if isinstance(rate, tensorflow.Variable):
        rate = float(_tensor_util.constant_value(rate.initial_value))
    before, optimizer._learning_rate = optimizer._learning_rate, 0.0
    try:
        config = dict(optimizer.get_config(), learning_rate=rate)
    finally:
        optimizer._learning_rate = before
    extra = [
        argument
        for argument, without in _OF_EAGER.items()
        if config.pop(argument, None) not in without and without
    ]
    if legacy is None or extra or not cls.__module__.startswith(KERAS_PACKAGES[name] + '.'):
        raise PlanError(
            'The optimizer %s%s is for eager execution; models of graphs need one of '
            '%s.optimizers.legacy, such as legacy.%s.'
            % (
                cls.__name__,
                ' with %s' % ', '.join(extra) if extra else '',
                keras_module(name).__name__,
                'Adam' if legacy is None else legacy.__name__,
            )
        )
    return legacy(**config)


def keras_saving(name: str) -> Any:
    """The module that reads and writes HDF5 files."""
    folder = '.saving' if _IS_KEPT else '.saving.legacy'
    return importlib.import_module(KERAS_PACKAGES[name] + folder + '.hdf5_format')


def keras_writer(name: str) -> Callable[..., None]:
    """The function that writes a model to an open HDF5 file."""
    return keras_saving(name).save_model_to_hdf5


def arguments_of_save(
    filepath: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Arguments of `model.save(filepath, ...)`, for an HDF5 file.

    Raises:
        CheckpointError: another form is asked for.
    """
    asked = dict(zip(('overwrite', 'save_format'), args), **kwargs)
    form = asked.pop('save_format', None)
    for argument in ('options', 'signatures', 'save_traces'):
        asked.pop(argument, None)  # Of a SavedModel; Keras takes no notice of them here, too.
    if str(filepath).endswith('.keras') or form not in (None, 'h5', 'hdf5'):
        raise CheckpointError(
            'A model of a ParallaxStrategy is saved as HDF5, but %s was asked for; give the path '
            'the ending .h5, and for serving call kp.export_saved_model.'
            % (form or 'the form of ' + str(filepath))
        )
    return (), asked


def model_in_file(model: Model) -> Any:
    """What the functions of `keras_saving` take for a model."""
    return model


def name_in_graphs(metric: str, is_weighted: bool) -> str:
    """What Keras calls a metric in the logs of a model that is a graph.

    Args:
        metric: the string that `compile` was given, which is the name under eager execution.
        is_weighted: whether it is one of `weighted_metrics`.
    """
    training_utils = importlib.import_module(
        KERAS_PACKAGES['tf.keras'] + '.engine.training_utils_v1'
    )
    try:
        return training_utils.get_metric_name(metric, is_weighted)
    except ValueError:  # `compile` has known the name of a function of the script's own.
        return metric


def keras_session(name: str) -> Optional[Session]:
    """The session that Keras has open, or `None`."""
    return getattr(keras_backend(name)._SESSION, 'session', None)


#: By the name of a Keras package, a weak reference to the session of threads that have none.
_shared_sessions: Dict[str, Any] = {}


class _SessionsOfThreads(threading.local):
    """The session of each thread, as a backend of Keras keeps them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.session: Any = _shared_sessions[name]()


def share_session(name: str, session: Session) -> None:
    """Has threads that have not asked Keras for a session yet begin with this one.

    Keras 2.15 opens a session for each thread, in which it initializes all variables anew
    (`tests/parallel/test_sessions.py`, the threads that read).
    """
    backend = keras_backend(name)
    _shared_sessions[name] = weakref.ref(session)
    if _IS_KEPT:
        # Its attribute is an object of a class that cannot be changed.
        if not isinstance(backend._SESSION, _SessionsOfThreads):
            backend._SESSION = _SessionsOfThreads(name)
        return

    def with_shared(initialize: Callable[..., None]) -> Callable[..., None]:
        def initialize_and_share(self: Any) -> None:
            initialize(self)
            self.session = _shared_sessions[name]()

        return initialize_and_share

    patches.replace_method('SessionLocal.__init__', type(backend._SESSION), with_shared)
