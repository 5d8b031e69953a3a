# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`Model.compile` in a strategy's scope, and models that train although they are not of one."""

import functools
import sys
import warnings
from types import FrameType
from typing import Any, Callable, Dict, Iterable, List, NoReturn, Optional, Tuple, cast

from keras_parallax.compat import (
    graph_queries,
    keras_api,
    keras_metrics,
    loaded_keras3,
    patches,
    tensorflow_api,
)
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import job
from keras_parallax.engine.session.graph_scope import (
    GraphScope,
    compiled_outside,
    scope_is_open,
    scope_of,
)
from keras_parallax.engine.step import joint_losses, loss_trial
from keras_parallax.engine.tables import float_ids, loss_analysis
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.errors import PlanError, ScopeError
from keras_parallax.framework_types import Model, Optimizer, Tensor
from keras_parallax.metrics import reduction
from keras_parallax.metrics.layers import has_ours, layers_for
from keras_parallax.optimizer import install_with, is_horovods, is_wrapped, of_model

#: The arguments of `Model.compile` that have metrics.
_METRICS = ('metrics', 'weighted_metrics')


def compile_of(original: Callable[..., Any]) -> Callable[..., None]:
    """A `Model.compile` that wraps the optimizer of a model of a strategy."""
    original = _with_metrics(original)

    def compile(model: Model, optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
        graph_scope = scope_of(tf.get_default_graph())
        if graph_scope is None:
            _check_graph()
            original(model, optimizer, *arguments, **named)
        elif graph_scope.open_strategy is not None:
            _compile(original, model, optimizer, arguments, named, graph_scope)
        else:
            _compile_later(original, model, optimizer, arguments, named, graph_scope)

    return compile


def refused_compile_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Model.compile` of models that no strategy can train; they train where there is none."""

    def compile(model: Model, *arguments: Any, **named: Any) -> Any:
        if scope_is_open() or scope_of(tf.get_default_graph()) is not None:
            loaded_keras3.check(model)
            keras_api.package_of(model)  # Which says so.
        return original(model, *arguments, **named)

    return compile


def _with_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Model.compile` that takes metrics of ours."""

    @functools.wraps(original)
    def compile(model: Model, *arguments: Any, **named: Any) -> Any:
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


def _check_graph() -> None:
    """Refuses to compile on another graph than that of the scope that is open."""
    if scope_is_open() and _current_job().size > 1:
        raise ScopeError(
            'model.compile() ran inside the scope of a ParallaxStrategy, but on another graph than '
            'the one that was the default when the scope was entered; call '
            'keras.backend.clear_session() or open a tf.Graph before `with strategy:`.'
        )


def _compile(
    original: Callable[..., Any],
    model: Model,
    given: Any,
    arguments: Tuple[Any, ...],
    named: Dict[str, Any],
    graph_scope: GraphScope,
) -> None:
    """Compiles in an open scope."""
    # The last argument of `tf.keras` 1.11.
    if named.get('distribute') or (len(arguments) > 6 and arguments[6]):
        raise PlanError(
            'model.compile(distribute=...) is of another kind of distribution; inside a '
            'ParallaxStrategy compile without it.'
        )
    _require_no_ignored(model)
    strategy: Any = graph_scope.open_strategy
    graph_scope.compiled[model] = strategy
    original(model, of_model(model, given), *arguments, **named)
    if model.built:
        graph_scope.unbuilt.pop(model, None)
    else:
        graph_scope.unbuilt[model] = strategy
    _move_lookups(model, graph_scope)
    _warn_of_float_ids(model)


def _require_no_ignored(model: Any) -> None:
    """Refuses a model with methods that Keras calls under eager execution alone."""
    ignored = keras_api.ignored_methods(model)
    if ignored:
        raise PlanError(
            'Keras calls these methods under eager execution only, and a ParallaxStrategy trains '
            'graphs, so they would be ignored: %s. Write the loss as compile(loss=...) or '
            'model.add_loss(...), a change of gradients as an optimizer, and a measure as '
            'compile(metrics=[...]); without these methods the model trains in a scope.'
            % ', '.join('%s.%s' % (cls.__name__, name) for name, cls in ignored.items())
        )


def _move_lookups(model: Model, graph_scope: GraphScope) -> None:
    """Changes the graph before a session runs it."""
    loss = getattr(model, 'total_loss', None)
    if loss is not None:
        weights = keras_api.trained_weights(model)
        loss_analysis.move_lookups(loss, weights, graph_scope.records)
        loss_analysis.settle_functions(loss, weights, graph_scope.records)


def _warn_of_float_ids(model: Any) -> None:
    if model.built and _current_job().rank == 0:
        float_ids.warn_of_tables(list(map(tensorflow_api.uncast, model.weights)))


def _current_job() -> job.Job:
    """The job of this process, which a strategy has started."""
    return cast(job.Job, job.current())


def _compile_later(
    original: Callable[..., Any],
    model: Model,
    given: Any,
    arguments: Tuple[Any, ...],
    named: Dict[str, Any],
    graph_scope: GraphScope,
) -> None:
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
    _warn_of_float_ids(model)


def train_function_of(original: Callable[..., Any]) -> Callable[..., None]:
    """A `Model._make_train_function` for models that may train outside of all scopes."""

    def make_train_function(model: Model) -> None:
        first = _before_training(model)
        if is_wrapped(model.optimizer):
            with model.optimizer._parallax_training.built(model):
                original(model)
            joint_losses.use_joint_losses(model)
        else:
            original(model)
        # Keras makes the function when it loads a model too, perhaps only to evaluate it.
        if isinstance(model.train_function, _TrainFunction):
            return
        firsts = [act for act in (first, _trial_of(model)) if act]
        if firsts:
            model.train_function = _TrainFunction(model.train_function, firsts)
            if is_wrapped(model.optimizer):
                model.optimizer._parallax_training.joint = model.train_function

    return make_train_function


def _before_training(model: Model) -> Optional[Callable[..., Any]]:
    """What is to be done before a model's first step, a function, or `None`.

    It takes the function that trains, and the values that it is given.

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
        outcome = 'its gradients are exchanged, but every worker holds all rows of its tables'
    elif exchanges:
        outcome = "Horovod's optimizer exchanges its gradients, tables as a whole"
    else:
        outcome = 'each of the %d workers trains it alone' % _current_job().size
    return lambda *_: warnings.warn(
        'A model trains outside the scope of the ParallaxStrategy: %s. Build and compile it inside '
        '`with strategy:`.' % outcome,
        stacklevel=4,
    )


def _trial_of(model: Model) -> Optional[Callable[..., Any]]:
    """What finds out how the terms of a model's loss grow, a function, or `None` if all are known.

    It takes the function that trains, and the values that it is given.
    """
    step = model.optimizer._parallax_step if is_wrapped(model.optimizer) else None
    if step is None or not step.spec.sums.untried:
        return None
    return lambda function, values: loss_trial.settle(step, function.inputs, values)


def get_gradients_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """An `Optimizer.get_gradients` that refuses to train alone in a step of the script's own.

    The original is of a Keras package's base class, whose optimizers call it in `get_updates`.
    """

    def get_gradients(optimizer: Optimizer, loss: Tensor, params: Any) -> Any:
        if _must_exchange() and _is_own_step(optimizer, sys._getframe(1)):
            raise ScopeError(
                'The updates of an optimizer of class %s are built that is no ParallaxOptimizer, '
                'so that each worker would train alone; build them with '
                'kp.ParallaxOptimizer(optimizer).get_updates(loss, params) inside `with strategy:`.'
                % type(optimizer).__name__
            )
        return original(optimizer, loss, params)

    return get_gradients


def _must_exchange() -> bool:
    """Whether a step on the default graph has to exchange what it trains."""
    graph_scope = scope_of(tf.get_default_graph())
    return graph_scope is not None and graph_scope.must_exchange


def _is_own_step(optimizer: Optimizer, caller: FrameType) -> bool:
    """Whether a frame builds the updates of an optimizer that nobody looks after.

    A callback may ask for gradients just to look at them.
    """
    builds = caller.f_code.co_name == 'get_updates' and not is_horovods(optimizer)
    return builds and not _is_called_by_a_step(caller)


def _is_called_by_a_step(frame: Optional[FrameType]) -> bool:
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


def apply_gradients_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `tf.train.Optimizer.apply_gradients` that refuses to train alone in a script's own step.

    The original is of the base class, which `minimize` and those of subclasses call.
    """

    def apply_gradients(
        optimizer: Optimizer, grads_and_vars: Any, *arguments: Any, **named: Any
    ) -> Any:
        pairs = list(grads_and_vars)
        if (
            _must_exchange()
            and not _is_exchanged([gradient for gradient, _ in pairs])
            and not _is_called_by_a_step(sys._getframe(1))
        ):
            raise ScopeError(
                'The gradients of an optimizer of class %s are applied in a step of the script '
                'itself, so that each worker would train alone; inside `with strategy:` build the '
                'step of kp.ParallaxOptimizer(optimizer).get_updates(loss, params), or give the '
                'optimizer to model.compile().' % type(optimizer).__name__
            )
        return original(optimizer, pairs, *arguments, **named)

    return apply_gradients


def _is_exchanged(gradients: Iterable[Any]) -> bool:
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
METHODS: Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    'Model.compile': compile_of,
    'Model._make_train_function': train_function_of,
    'Optimizer.get_gradients': get_gradients_of,
}


def _install(package: KerasPackage) -> None:
    """Has models of a Keras package that train without a strategy count their losses, too."""
    target = 'Model._make_train_function'
    patches.replace_method(target, package.patched['Model'], METHODS[target])


install_with(_install)


class _TrainFunction:
    """A function that Keras runs a training step with, and what is to be done before the first one.

    Args:
        function: the function.
        firsts: functions of it and of the values that it is given. One that raises is called again
            in place of the next step.
    """

    def __init__(self, function: Callable[..., Any], firsts: List[Callable[..., Any]]) -> None:
        self._function, self._firsts = function, firsts

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        while self._firsts:
            self._firsts[0](self._function, *arguments)
            del self._firsts[0]
        return self._function(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _refuse(*_: Any) -> NoReturn:
    raise compiled_outside()
