# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `fit` does for models of a strategy in a job of several workers, beside what Keras does.

At its start the workers compare what they are about to do, and take over the values of rank 0. At
the end of an epoch its metrics are averaged before the user's callbacks see them; after these, the
workers compare their rates, and all stop if one does. So callbacks decide alike everywhere.
"""

import functools
from typing import Any, Callable, Dict, Optional, cast

from keras_parallax.callbacks.callback_code import name_of
from keras_parallax.callbacks.default_names import DefaultNames
from keras_parallax.callbacks.epoch_reports import batches_per_epoch
from keras_parallax.callbacks.fit_progress import FitProgress, take_saved_fit
from keras_parallax.callbacks.joint_fit import AfterCallbacks, BeforeCallbacks
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.callbacks.progress_bar import ProgressBar
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.compat import keras_api, keras_metrics, patches
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.data import positions, structures
from keras_parallax.data.epochs import telling_epochs
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_scope import GraphScope, scope_of
from keras_parallax.engine.step import joint_losses
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.errors import DataError
from keras_parallax.framework_types import Callback, Logs, Model, Optimizer
from keras_parallax.metrics import reduction
from keras_parallax.optimizer import install_with, is_wrapped


class _AccumulatedRest(keras_api.callbacks.Callback):
    """Has the last update of an epoch be that of the batches that are left.

    It comes before the user's callbacks, and after the last batch, so that what validates or saves
    sees the update. Where it is not known which batch is the last, it comes after the validation.
    """

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Applies the rest, if the batch is known to be the last."""
        step, batches = step_of(self.model), batches_per_epoch(self.params)
        if batch == 0 and batches is not None:
            # Nothing is applied yet.
            step.spec.sums.require_batches(batches, step.spec.settings.accumulate_steps)
        if batch + 1 == batches:
            step.runs.apply_rest()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Applies the rest."""
        step_of(self.model).runs.apply_rest()


def _with_callbacks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` that has the callbacks of this module, and is quiet."""

    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        if not (_is_of_several(model) or reduction.is_needed(model)):
            if is_wrapped(getattr(model, 'optimizer', None)) and _scope_of_model(model) is None:
                by_name = keras_api.arguments_by_name(original, model, arguments, named)
                joint_losses.agree_on_weights(
                    model, by_name.get('sample_weight'), by_name.get('class_weight')
                )
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if any(map(_is_before, callbacks)):
            return original(model, **named)
        before = BeforeCallbacks(
            model,
            callbacks,
            int(named.get('initial_epoch') or 0),
            joint_losses.has_weights(named.get('sample_weight'), named.get('class_weight')),
        )
        named['callbacks'] = [before] + callbacks + [AfterCallbacks(before)]
        _hush(model, named)
        try:
            with _job_of(model).activity.training(lambda: before.has_ended):
                return original(model, **named)
        finally:
            before.restore_verbose()
            reduction.abandon_epoch(model)

    return method


def _with_rest(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` whose epochs leave no gradients that are not applied."""

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        optimizer: Optimizer = getattr(model, 'optimizer', None)
        if not is_wrapped(optimizer) or optimizer._parallax_settings.accumulate_steps == 1:
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if not any(isinstance(one, _AccumulatedRest) for one in callbacks):
            named['callbacks'] = [_AccumulatedRest()] + callbacks
        return original(model, **named)

    return method


def _with_default_names(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` that logs metrics by the names of Keras's default mode, too."""

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        is_ours = is_wrapped(getattr(model, 'optimizer', None))
        if not is_ours or not keras_metrics.has_other_names(model):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if not any(isinstance(one, DefaultNames) for one in callbacks):
            named['callbacks'] = [DefaultNames()] + callbacks
        return original(model, **named)

    return method


def _with_progress(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` that goes on from a checkpoint, and can be saved within epochs."""

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        if not is_wrapped(getattr(model, 'optimizer', None)):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if any(isinstance(one, ProgressBar) for one in callbacks):
            named.setdefault('verbose', 0)  # One bar is enough.
        of_ours = BeforeCallbacks, AfterCallbacks, _AccumulatedRest, DefaultNames
        own = [one for one in callbacks if not isinstance(one, of_ours)]
        savers = [one for one in own if isinstance(one, ModelCheckpoint)]
        saved = take_saved_fit(model, int(named.get('initial_epoch') or 0))
        if any(map(_is_progress, callbacks)) or not (savers or saved):
            return original(model, **named)
        data = positions.described(named)
        if any(saver.saves_within_epochs for saver in savers):
            positions.check_known(data)
        passed = positions.passed(saved, data) if saved else 0
        positions.passing_over(named, passed)
        progress = FitProgress(own, data, saved, passed)
        named['callbacks'] = callbacks + [progress]
        with progress.passing_over(model):
            return original(model, **named)

    return method


def _with_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` that has a training step when it calls callbacks.

    For a generator or a `Sequence`, `fit_generator` of `tf.keras` 1.11 would build it with the
    first batch, and so would `fit` of Keras 2.15 and later.
    """

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        by_name = keras_api.arguments_by_name(original, model, arguments, named)
        if (
            keras_api.gives_batches(by_name.get('generator', by_name.get('x')))
            and is_wrapped(getattr(model, 'optimizer', None))
            and getattr(model, 'total_loss', None) is not None
        ):
            keras_api.make_train_function(model)
        return original(model, *arguments, **named)

    return method


def _quiet(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that prints on rank 0 only, unless the caller says otherwise."""

    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        if not _is_of_several(model):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        _hush(model, named)
        return original(model, **named)

    return method


def _of_all_samples(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that evaluates, and returns what metrics of ours are over all workers' samples."""

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        results = original(model, *arguments, **named)
        if not (_is_of_several(model) or reduction.is_needed(model)):
            return results
        return reduction.evaluated(_job_of(model), model, results)

    return method


def _refusing_empty_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `train_on_batch` that refuses a batch without samples, of which a worker has no gradient.

    The step would take the mean of the gradients of all workers, of which this one's is 0 or NaN.
    """

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        if _is_of_several(model):
            by_name = keras_api.arguments_by_name(original, model, arguments, named)
            given = [by_name.get('x'), by_name.get('y')]
            shapes = [getattr(array, 'shape', None) for array in structures.leaves(given)]
            if any(isinstance(shape, tuple) and shape[:1] == (0,) for shape in shapes):
                raise DataError(
                    'Rank %d: the batch has no samples. A step takes the mean of the gradients of '
                    'all workers, and this worker has none. Give every worker samples in every '
                    'step, or leave the step out on all workers.' % _job_of(model).rank
                )
        return original(model, *arguments, **named)

    return method


def _hush(model: Model, named: Dict[str, Any]) -> None:
    if _job_of(model).rank != 0:
        named.setdefault('verbose', 0)


def _averaging_first(original: Callable[..., Any]) -> Callable[..., None]:
    """A `CallbackList.__init__` that lets averages come before Keras's own progress bar too.

    It leaves out what rank 0 writes for all. Later would be too late: TensorBoard opens its file
    when it is given the model.
    """

    def init(callback_list: Any, callbacks: Any = None, *arguments: Any, **named: Any) -> None:
        callbacks = list(callbacks or [])
        for callback in [one for one in callbacks if isinstance(one, StepMetrics)]:
            # Before whatever shows or writes logs.
            callbacks.remove(callback)
            callbacks.insert(1, callback)
            callback.bars = [bar for bar in callbacks if name_of(bar) == 'ProgbarLogger']
        for callback in filter(_is_before, list(callbacks)):
            callbacks.remove(callback)
            callbacks.insert(1, callback)  # The first one makes the logs.
            callback.bars = [bar for bar in callbacks if name_of(bar) == 'ProgbarLogger']
            callbacks = callback.acting(callbacks)
        all_progress = list(filter(_is_progress, callbacks))
        for callback in all_progress:
            callbacks.remove(callback)
            callbacks.insert(1, callback)
        original(callback_list, callbacks, *arguments, **named)
        for callback in all_progress:
            callback.bind(callback_list, [one.pass_over for one in filter(_is_before, callbacks)])

    return init


def _fit_of(original: Callable[..., Any]) -> Callable[..., Any]:
    inner = _with_rest(_with_progress(telling_epochs(_with_step(original))))
    return _with_callbacks(_with_default_names(inner))


#: What takes the place of a method of Keras's: dict from targets of `PATCHES` to functions of the
#: original.
METHODS: Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    'Model.fit': _fit_of,
    'Model.fit_generator': _fit_of,
    'Model.train_on_batch': lambda original: _refusing_empty_batches(
        joint_losses.noting_weights(original)
    ),
    'Model.evaluate': lambda original: _of_all_samples(_quiet(original)),
    'Model.evaluate_generator': _of_all_samples,
    'CallbackList.__init__': _averaging_first,
}


def _install(package: KerasPackage) -> None:
    """Has the workers of models without a strategy exchange sample weights, too."""
    for target in ('Model.fit', 'Model.train_on_batch'):
        patches.replace_method(target, package.patched['Model'], METHODS[target])


install_with(_install)


def _scope_of_model(model: Model) -> Optional[GraphScope]:
    loss = getattr(model, 'total_loss', None)
    return scope_of(tf.get_default_graph() if loss is None else loss.graph)


def _job_of(model: Model) -> Job:
    """The job of a model that is one of a strategy."""
    return cast(GraphScope, _scope_of_model(model)).job


def _is_of_several(model: Model) -> bool:
    """Whether a model is one of a strategy in a job of several workers."""
    if not is_wrapped(getattr(model, 'optimizer', None)):
        return False
    graph_scope = _scope_of_model(model)
    return graph_scope is not None and graph_scope.job.size > 1


def _is_before(callback: Callback) -> bool:
    return isinstance(callback, BeforeCallbacks)


def _is_progress(callback: Callback) -> bool:
    return isinstance(callback, FitProgress)
