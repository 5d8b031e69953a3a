# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 in a strategy's scope: `compile`, `fit` and what they call."""

import contextlib
import functools
import inspect
import warnings
import weakref
from typing import Any, Callable, Iterator, List, Optional

import numpy as np

from keras_parallax.compat import keras3_api, keras3_files, loaded_keras3
from keras_parallax.compat.keras3_api import keras
from keras_parallax.engine.session.graph_scope import require_graph
from keras_parallax.errors import MetricMismatchError, PlanError, StackError
from keras_parallax.keras3 import (
    checkpoints,
    embedding_layer,
    exporting,
    fit_callbacks,
    joint_lookups,
    joint_losses,
    optimizer,
    saving,
)
from keras_parallax.keras3.joint_losses import JointStep
from keras_parallax.keras3.scope import Keras3Scope, open_scope
from keras_parallax.optimizer import wrap_keras3_with

#: Models whose `fit` is running: their metrics are those of all workers.
_in_fit: Any = weakref.WeakSet()
#: Models whose `compile` was asked for XLA.
_asked_for_xla: Any = weakref.WeakSet()
#: The steps of models, with the optimizers that they are of.
_steps: Any = weakref.WeakKeyDictionary()

#: From models to how many sharded tables they had when they were called last.
_tables_before: Any = weakref.WeakKeyDictionary()

#: Metrics of Keras whose state is not a sum over the samples.
_NO_SUMS = ('ConcordanceCorrelation', 'PearsonCorrelation')

_installed = False


def install() -> None:
    """Replaces the methods of Keras 3 that train models. A second call does nothing.

    Raises:
        StackError: Keras has another backend.
    """
    global _installed
    if keras3_api.BACKEND not in keras3_api.BACKENDS:
        raise StackError(
            'keras-parallax trains models of Keras 3 with the backends %s, but Keras has %r. Set '
            'KERAS_BACKEND=tensorflow, or another one of these.'
            % (' and '.join(keras3_api.BACKENDS), keras3_api.BACKEND)
        )
    if _installed:
        return
    _installed = True
    wrap_keras3_with(optimizer.wrap)
    embedding_layer.install()
    joint_lookups.install()
    joint_losses.install()
    fit_callbacks.install(_rank_of)
    exporting.install(_rank_of)
    saving.install(_scope_of_tables, lambda model: model in _in_fit)
    keras3_files.find_rows_in_parts()
    keras3_files.replace_memory_check(lambda model: bool(embedding_layer.tables_in(model)))
    for layer in loaded_keras3.eager_layers():
        keras3_api.replace_method('tf_keras Layer.add_weight', layer, _refused_weight)
    owners = {'Trainer': keras3_api.BaseTrainer, 'backend Trainer': keras3_api.Trainer}
    for target, make in _REPLACED.items():
        owner, name = target.rsplit('.', 1)
        if name in vars(owners[owner]):
            keras3_api.replace_method(target, owners[owner], make)


def _refused_weight(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        if open_scope() is not None:
            # Nothing of a model of Keras 2 that executes eagerly would be exchanged.
            require_graph()
        return original(self, *args, **kwargs)

    return add_weight


def _scope_of(model: Any) -> Optional[Keras3Scope]:
    """The scope of the strategy that a compiled model trains in, or `None`."""
    own: Any = getattr(model, 'optimizer', None)
    return own._parallax_scope if optimizer.is_wrapped(own) else None


def _scope_of_tables(model: Any) -> Optional[Keras3Scope]:
    """The scope of a model that is compiled in one, or has tables of one."""
    tables = embedding_layer.tables_in(model)
    return _scope_of(model) or (tables[0].scope if tables else None)


def _rank_of(model: Any) -> int:
    scope = _scope_of_tables(model)
    return 0 if scope is None else scope.job.rank


def _compile(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> None:
        tables = embedding_layer.tables_in(self)
        scope = open_scope() or (tables[0].scope if tables else None)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        asked = arguments['jit_compile'] is True
        if scope is not None:
            arguments['optimizer'] = optimizer.with_own_optimizers(self, arguments['optimizer'])
        with _told_otherwise(asked and scope is not None):
            original(*bound.args, **bound.kwargs)
        _steps.pop(self, None)
        if scope is None or self.optimizer is None:
            return
        if not optimizer.is_wrapped(self.optimizer):
            inner = getattr(self.optimizer, 'inner_optimizer', None)
            if optimizer.is_wrapped(inner):
                raise PlanError(
                    'The LossScaleOptimizer has a ParallaxOptimizer inside; give compile the '
                    'optimizer that you gave to ParallaxOptimizer.'
                )
            with scope:
                self.optimizer = optimizer.wrap(self.optimizer, None, optimizer.usual_settings())
        _asked_for_xla.discard(self)
        if asked:
            _asked_for_xla.add(self)

    return compile


@contextlib.contextmanager
def _told_otherwise(asked_for_xla: bool) -> Iterator[None]:
    """While open, Keras does not warn that XLA cannot compile a layer that looks rows up."""
    if not asked_for_xla:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', message="Model doesn't support `jit_compile=True`")
        yield


def _make_train_function(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_train_function(self: Any, force: bool = False) -> Any:
        scope = _scope_of(self)
        if scope is None or (self.train_function is not None and not force):
            return original(self, force)
        if self in _steps:
            joint = _steps[self]
        else:
            joint = _steps[self] = JointStep(scope, self.optimizer)
            _prepare(self, scope)
        original(self, force)
        inner = self.train_function

        def train_function(*args: Any) -> Any:
            passed_over = checkpoints.passed_over(self, args)
            if passed_over is not None:
                return passed_over
            with scope.translated(), scope.step(), joint_losses.step_of(joint):
                return inner(*args)

        self.train_function = train_function

    return make_train_function


def _prepare(model: Any, scope: Keras3Scope) -> None:
    """Makes a model ready for its first step, or refuses it. A collective call."""
    _check_xla(model, scope)
    optimizer.check_own_optimizers(model)
    if scope.job.size > 1:
        _check_losses(model)
        _check_metrics(model)
    model.optimizer.build(model.trainable_variables)
    with scope.job.call('the first training call of a model'):
        optimizer.broadcast_rest(scope, model)


def _check_xla(model: Any, scope: Keras3Scope) -> None:
    if keras3_api.backend_module().CAN_COMPILE:
        return
    if not embedding_layer.tables_in(model) and scope.job.size == 1:
        return
    graph = keras3_api.function_of(model)
    if model in _asked_for_xla:
        if graph is None:
            raise PlanError(
                "jit_compile=True is supported with Keras's TensorFlow backend if the model is "
                'functional or Sequential: XLA cannot compile the exchange of gradients, and must '
                "know where it begins. Leave it out, or use KERAS_BACKEND='jax'."
            )
        alone = [layer.name for layer in joint_lookups.looked_up_alone(model)]
        if alone:
            raise PlanError(
                'jit_compile=True needs the ids of each table before the model is called, but '
                'those of %s are computed by a layer, or looked up within one. Leave jit_compile '
                "out, keep the table from being sharded (overrides={%r: 'dense'}), or use "
                "KERAS_BACKEND='jax'." % (', '.join(alone), alone[0])
            )
        joint_lookups.compiled_graphs.add(graph)
    elif graph is not None:
        joint_lookups.compiled_graphs.discard(graph)
    model.jit_compile = False


def _check_losses(model: Any) -> None:
    for loss in keras3_api.compiled_losses(model):
        if isinstance(loss, keras3_api.Loss) and type(loss).__call__ is keras3_api.Loss.__call__:
            continue
        if loss is not None:
            raise PlanError(
                'The loss %r has a __call__ of its own, so several workers cannot tell what it is '
                "in their joined batch. Override `call` of keras.losses.Loss instead." % (loss,)
            )


def _check_metrics(model: Any) -> None:
    for metric in keras3_api.metrics_of(model):
        if not _are_sums(metric):
            raise MetricMismatchError(
                'Several workers add up the states of a metric, and it is not known whether those '
                'of %s are sums over samples. If they are, say so by a class attribute: '
                'parallax_states_are_sums = True.' % type(metric).__name__
            )


def _are_sums(metric: Any) -> bool:
    if getattr(metric, 'parallax_states_are_sums', False):
        return True
    for cls in type(metric).__mro__:
        # Those of keras-rs are means over lists of samples.
        if cls.__module__.split('.')[0] in ('keras', 'keras_rs'):
            return cls.__name__ not in _NO_SUMS and cls is not keras.metrics.Metric
        if not {'update_state', 'result'}.isdisjoint(vars(cls)):
            return False
    return False


def _symbolic_build(original: Callable[..., None]) -> Callable[..., None]:
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if _scope_of(self) is None:
            return original(self, iterator=iterator, data_batch=data_batch)
        # Keras would build the optimizer within the first step.
        keras3_api.symbolic_build(self, iterator=iterator, data_batch=data_batch)

    return _maybe_symbolic_build


def _compute_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    def compute_loss(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        joint = joint_losses.current()
        if joint is not None:
            joint.begun()
        loss = original(self, x, *args, **kwargs)
        if joint is not None and kwargs.get('training', True) and x is not None:
            joint.batch_size = keras3_api.first_size(x)
            joint_losses.check_added(joint, self)
        return loss

    return compute_loss


def _fit(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = _scope_of(self)
        if scope is None:
            return original(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        arguments = bound.arguments
        first = arguments.get('initial_epoch', 0)
        arguments['callbacks'] = fit_callbacks.with_agreement(
            arguments.get('callbacks'), scope, first
        )
        shuffles = bool(arguments.get('shuffle', True))
        if scope.job.rank != 0:
            arguments.setdefault('verbose', 0)
        checkpoints.begin_fit(self, first, scope, arguments.get('x'), shuffles)
        if scope.job.size > 1:
            _in_fit.add(self)
        try:
            with scope.translated():
                return original(*bound.args, **bound.kwargs)
        finally:
            _in_fit.discard(self)

    return fit


def _evaluate(original: Callable[..., Any]) -> Callable[..., Any]:
    translated = _translated(original)

    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in _in_fit or self not in _steps:
            return translated(self, *args, **kwargs)
        # As `fit` does it, on all workers.
        joint = _steps[self]
        scope = joint.scope
        with scope.job.call('a validation'):
            batches = scope.job.gather(keras3_api.batches_of_validation(self))
        if None in batches or len(set(batches)) > 1:
            # Workers cannot wait for each other at each batch.
            return translated(self, *args, **kwargs)
        own, self.test_function = self.test_function, joint.test_function
        try:
            with joint_losses.step_of(joint):
                return translated(self, *args, **kwargs)
        finally:
            joint.test_function, self.test_function = self.test_function, own

    return evaluate


def _translated(original: Callable[..., Any]) -> Callable[..., Any]:
    def translated(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope, tables = _scope_of_tables(self), embedding_layer.tables_in(self)
        if scope is None:
            return original(self, *args, **kwargs)
        if len(tables) < _tables_before.get(self, 0):
            # A table has become dense, and the model's functions look its rows up in the shards.
            self.predict_function = self.test_function = None
        try:
            with scope.translated():
                return original(self, *args, **kwargs)
        finally:
            # The call may have built them.
            _tables_before[self] = len(embedding_layer.tables_in(self))

    return translated


def _metrics_result(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        scope = _scope_of(self)
        if scope is not None and scope.job.size > 1 and self in _in_fit:
            with scope.job.call('the end of an epoch, or of a validation'):
                _join(scope, self.metrics_variables)
        if scope is not None and not logs:
            # The last step was passed over.
            logs = self.get_metrics_result()
        return original(self, logs)

    return _get_metrics_result_or_logs


def _join(scope: Keras3Scope, variables: List[Any]) -> None:
    """Sets the states of metrics to their sums over the workers. A collective call."""
    own = [keras.ops.convert_to_numpy(variable.value) for variable in variables]
    flat = np.concatenate([np.zeros(0)] + [value.ravel().astype(np.float64) for value in own])
    scope.job.gather(flat.size)
    parts = np.split(scope.job.sum(flat), np.cumsum([value.size for value in own])[:-1])
    for variable, value, part in zip(variables, own, parts):
        variable.assign(part.reshape(value.shape).astype(value.dtype))


_REPLACED = {
    'Trainer.compile': _compile,
    'Trainer._compute_loss': _compute_loss,
    'Trainer._get_metrics_result_or_logs': _metrics_result,
    'backend Trainer.fit': _fit,
    'backend Trainer.evaluate': _evaluate,
    'backend Trainer.predict': _translated,
    'backend Trainer.make_train_function': _make_train_function,
    # Of the TensorFlow backend alone.
    'backend Trainer._maybe_symbolic_build': _symbolic_build,
}
