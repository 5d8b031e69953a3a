"""`Model.compile` in a strategy's scope, and models that train although they are not of one."""

import functools
import sys
import warnings

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.compat import graph_queries, keras_api, keras_metrics
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError, ScopeError
from keras_parallax.job import job
from keras_parallax.metrics import reduction
from keras_parallax.metrics.layers import has_ours, layers_for
from keras_parallax.optimizer import is_horovods, is_wrapped, of_model
from keras_parallax.session.graph_scope import compiled_outside, scope_is_open, scope_of
from keras_parallax.tables import loss_analysis
from keras_parallax.tables.sharded_variable import ShardedVariable

#: The arguments of `Model.compile` that have metrics.
_METRICS = ('metrics', 'weighted_metrics')


def compile_of(original):
    """A `Model.compile` that wraps the optimizer of a model of a strategy."""
    original = _with_metrics(original)

    def compile(model, optimizer, *arguments, **named):
        graph_scope = scope_of(tf.get_default_graph())
        if graph_scope is None:
            _check_graph()
            original(model, optimizer, *arguments, **named)
        elif graph_scope.open_strategy is not None:
            _compile(original, model, optimizer, arguments, named, graph_scope)
        else:
            _compile_later(original, model, optimizer, arguments, named, graph_scope)

    return compile


def refused_compile_of(original):
    """A `Model.compile` of models that no strategy can train; they train where there is none."""

    def compile(model, *arguments, **named):
        if scope_is_open() or scope_of(tf.get_default_graph()) is not None:
            keras_api.package_of(model)  # Which says so.
        return original(model, *arguments, **named)

    return compile


def _with_metrics(original):
    """A `Model.compile` that takes metrics of ours."""

    @functools.wraps(original)
    def compile(model, *arguments, **named):
        by_name = keras_api.arguments_by_name(original, model, arguments, named)
        given = {name: by_name[name] for name in _METRICS if has_ours(by_name.get(name))}
        package = keras_api.package_of(model)
        if 'weighted_metrics' in given and package.name == 'keras':
            raise PlanError(
                'Keras 2.2.4 multiplies the value of a metric in weighted_metrics by the weights '
                'of a batch; give metrics of kp.metrics in metrics, or use tf.keras.'
            )
        if not given:
            return original(model, *arguments, **named)
        layers = {name: layers_for(model, metrics) for name, metrics in given.items()}
        original(model, **{**by_name, **layers})
        if reduction.is_needed(model) and not is_wrapped(model.optimizer):
            raise PlanError('GroupAUC is for models that are compiled in the scope of a strategy.')
        # Keras writes them to files, and compiles with them again what is built later.
        for name, metrics in given.items():
            keras_metrics.remember_metrics(model, name, metrics)

    return compile


def _check_graph():
    """Refuses to compile on another graph than that of the scope that is open."""
    if scope_is_open() and job.current().size > 1:
        raise ScopeError(
            'model.compile() ran inside the scope of a ParallaxStrategy, but on another graph than '
            'the one that was the default when the scope was entered; call '
            'keras.backend.clear_session() or open a tf.Graph before `with strategy:`.'
        )


def _compile(original, model, given, arguments, named, graph_scope):
    """Compiles in an open scope."""
    # The last argument of `tf.keras` 1.11.
    if named.get('distribute') or (len(arguments) > 6 and arguments[6]):
        raise PlanError(
            'model.compile(distribute=...) is of another kind of distribution; inside a '
            'ParallaxStrategy compile without it.'
        )
    graph_scope.compiled[model] = graph_scope.open_strategy
    original(model, of_model(model, given), *arguments, **named)
    if job.current().size > 1 and keras_api.package_of(model).sums_activity_penalties:
        _warn_of_sums(model)
    if model.built:
        graph_scope.unbuilt.pop(model, None)
    else:
        graph_scope.unbuilt[model] = graph_scope.open_strategy
    _move_lookups(model, graph_scope)


def _move_lookups(model, graph_scope):
    """Changes the graph before a session runs it."""
    loss = getattr(model, 'total_loss', None)
    if loss is not None:
        weights = keras_api.trained_weights(model)
        loss_analysis.move_lookups(loss, weights, graph_scope.records)
        loss_analysis.settle_functions(loss, weights, graph_scope.records)


def _warn_of_sums(model):
    """Warns of penalties that grow with the batch: the ranks' mean is not that of the joined one.

    An `activity_regularizer` is summed over the batch, and not divided (Keras 2.2.4, TF 1.11).
    """
    layers = keras_file_write.layers_in(keras_api.package_of(model), model)
    regularizers = [getattr(layer, 'activity_regularizer', None) for layer in layers]
    named = [
        layer.name
        for layer, regularizer in zip(layers, regularizers)
        if regularizer is not None
        and any(getattr(regularizer, factor, 1.0) for factor in ('l1', 'l2'))
    ]
    size = job.current().size
    if named and job.current().rank == 0:
        warnings.warn(
            'Keras sums the activity_regularizer of %s over the batch, so that of a batch on each '
            'of %d ranks weighs 1/%d of that of the joined batch; multiply its factors by %d for '
            'the same numbers.' % (', '.join(named), size, size, size),
            stacklevel=4,
        )


def _compile_later(original, model, given, arguments, named, graph_scope):
    """Compiles when no scope is open: the model's own, or as Keras does when it has been built."""
    strategy = graph_scope.unbuilt.pop(model, None)
    graph_scope.compiled.pop(model, None)
    if strategy is None or given is not model.optimizer:
        original(model, given, *arguments, **named)
        return
    graph_scope.compiled[model] = strategy
    with graph_scope.opened_by(strategy):
        original(model, given, *arguments, **named)
    if not model.built:
        graph_scope.unbuilt[model] = strategy
    graph_scope.expect_tables()
    _move_lookups(model, graph_scope)


def train_function_of(original):
    """A `Model._make_train_function` for models that may train outside of all scopes."""

    def make_train_function(model):
        first = _before_training(model)
        original(model)
        # Keras makes the function when it loads a model too, perhaps only to evaluate it.
        if first and not isinstance(model.train_function, _TrainFunction):
            model.train_function = _TrainFunction(model.train_function, first)

    return make_train_function


def _before_training(model):
    """What is to be done before a model's first step, a function of nothing, or `None`.

    Raises `ScopeError` if not even a function for training can be made.
    """
    graph_scope, current = scope_of(tf.get_default_graph()), job.current()
    ours, exchanges = is_wrapped(model.optimizer), is_horovods(model.optimizer)
    if graph_scope is not None and graph_scope.must_exchange:
        if ours:
            return None  # Its `TrainStep` has looked at the scope.
        weights = keras_api.trained_weights(model)
        if any(isinstance(weight, ShardedVariable) for weight in weights):
            raise compiled_outside()
        if not exchanges:
            return _refuse
    elif current is None or current.size == 1:
        return None
    if ours:
        outcome = 'its gradients are exchanged, but every rank holds all rows of its tables'
    elif exchanges:
        outcome = "Horovod's optimizer exchanges its gradients, tables as a whole"
    else:
        outcome = 'each of the %d ranks trains it alone' % current.size
    return functools.partial(
        warnings.warn,
        'A model trains outside the scope of the ParallaxStrategy: %s. Build and compile it inside '
        '`with strategy:`.' % outcome,
        stacklevel=3,
    )


def get_gradients_of(original):
    """An `Optimizer.get_gradients` that refuses to train alone in a step of the script's own.

    The original is of a Keras package's base class, whose optimizers call it in `get_updates`.
    """

    def get_gradients(optimizer, loss, params):
        if _must_exchange() and _is_own_step(optimizer, sys._getframe(1)):
            raise ScopeError(
                'The updates of an optimizer of class %s are built that is no ParallaxOptimizer, '
                'so that each rank would train alone; build them with '
                'kp.ParallaxOptimizer(optimizer).get_updates(loss, params) inside `with strategy:`.'
                % type(optimizer).__name__
            )
        return original(optimizer, loss, params)

    return get_gradients


def _must_exchange():
    """Whether a step on the default graph has to exchange what it trains."""
    graph_scope = scope_of(tf.get_default_graph())
    return graph_scope is not None and graph_scope.must_exchange


def _is_own_step(optimizer, caller):
    """Whether a frame builds the updates of an optimizer that nobody looks after.

    A callback may ask for gradients just to look at them.
    """
    builds = caller.f_code.co_name == 'get_updates' and not is_horovods(optimizer)
    return builds and not _is_called_by_a_step(caller)


def _is_called_by_a_step(frame):
    """Whether Keras makes a model's function, or a wrapped optimizer its updates."""
    while frame is not None:
        name, caller = frame.f_code.co_name, frame.f_locals.get('self')
        # For a model of Keras `_before_training` decides; an optimizer of ours may hold others.
        if name == 'make_train_function':
            return True
        if name in ('get_updates', '_updates_of') and is_wrapped(caller):
            return True
        frame = frame.f_back
    return False


def apply_gradients_of(original):
    """A `tf.train.Optimizer.apply_gradients` that refuses to train alone in a script's own step.

    The original is of the base class, which `minimize` and those of subclasses call.
    """

    def apply_gradients(optimizer, grads_and_vars, *arguments, **named):
        pairs = list(grads_and_vars)
        if (
            _must_exchange()
            and not _is_exchanged([gradient for gradient, _ in pairs])
            and not _is_called_by_a_step(sys._getframe(1))
        ):
            raise ScopeError(
                'The gradients of an optimizer of class %s are applied in a step of the script '
                'itself, so that each rank would train alone; inside `with strategy:` build the '
                'step of kp.ParallaxOptimizer(optimizer).get_updates(loss, params), or give the '
                'optimizer to model.compile().' % type(optimizer).__name__
            )
        return original(optimizer, pairs, *arguments, **named)

    return apply_gradients


def _is_exchanged(gradients):
    """Whether gradients have been through an operation of Horovod's."""
    tensors = []
    for gradient in gradients:
        is_rows = isinstance(gradient, tf.IndexedSlices)
        tensors += [gradient.values] if is_rows else [] if gradient is None else [gradient]
    return any(
        operation.type.startswith('Horovod') for operation in graph_queries.ancestors(tensors)
    )


#: What takes the place of a method of Keras's: dict from targets of `PATCHES` to functions of the
#: original.
METHODS = {
    'Model.compile': compile_of,
    'Model._make_train_function': train_function_of,
    'Optimizer.get_gradients': get_gradients_of,
}


class _TrainFunction:
    """A function that Keras runs a training step with, and something to do before the first one.

    If that raises, it is called again in place of the next step.
    """

    def __init__(self, function, first):
        self._function, self._first = function, first

    def __call__(self, *arguments, **named):
        if self._first is not None:
            self._first()
            self._first = None
        return self._function(*arguments, **named)

    def __getattr__(self, name):
        return getattr(self._function, name)


def _refuse():
    raise compiled_outside()
