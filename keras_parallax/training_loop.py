"""What `fit` does for models of a strategy in a job of several ranks, beside what Keras does.

At its start the ranks compare what they are about to do, and take over the values of rank 0. At the
end of an epoch its metrics are averaged before the user's callbacks see them; after these, the
ranks compare their rates, and all stop if one does. So callbacks decide alike everywhere.
"""

import functools

from keras_parallax.callbacks.accumulated_rest import AccumulatedRest
from keras_parallax.callbacks.callback_code import name_of
from keras_parallax.callbacks.fit_progress import FitProgress, take_saved_fit
from keras_parallax.callbacks.joint_fit import AfterCallbacks, BeforeCallbacks
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.callbacks.progress_bar import ProgressBar
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.data import positions
from keras_parallax.data.epochs import telling_epochs
from keras_parallax.metrics import reduction
from keras_parallax.optimizer import is_wrapped
from keras_parallax.session.graph_scope import scope_of


def _with_callbacks(original):
    """A `fit` or `fit_generator` that has the callbacks of this module, and is quiet."""

    def method(model, *arguments, **named):
        if not (_is_of_several(model) or reduction.is_needed(model)):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if any(map(_is_before, callbacks)):
            return original(model, **named)
        before = BeforeCallbacks(model, callbacks, int(named.get('initial_epoch') or 0))
        named['callbacks'] = [before] + callbacks + [AfterCallbacks(before)]
        _hush(model, named)
        try:
            with _scope_of_model(model).job.activity.training(lambda: before.has_ended):
                return original(model, **named)
        finally:
            before.restore_verbose()
            reduction.abandon_epoch(model)

    return method


def _with_rest(original):
    """A `fit` or `fit_generator` whose epochs leave no gradients that are not applied."""

    @functools.wraps(original)
    def method(model, *arguments, **named):
        optimizer = getattr(model, 'optimizer', None)
        if not is_wrapped(optimizer) or optimizer._parallax_settings.accumulate_steps == 1:
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if not any(isinstance(one, AccumulatedRest) for one in callbacks):
            named['callbacks'] = [AccumulatedRest()] + callbacks
        return original(model, **named)

    return method


def _with_progress(original):
    """A `fit` or `fit_generator` that goes on from a checkpoint, and can be saved within epochs."""

    @functools.wraps(original)
    def method(model, *arguments, **named):
        if not is_wrapped(getattr(model, 'optimizer', None)):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        callbacks = list(named.get('callbacks') or [])
        if any(isinstance(one, ProgressBar) for one in callbacks):
            named.setdefault('verbose', 0)  # One bar is enough.
        of_ours = BeforeCallbacks, AfterCallbacks, AccumulatedRest
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


def _with_step(original):
    """A `fit` or `fit_generator` that has a training step when it calls callbacks.

    For a generator or a `Sequence`, `fit_generator` of `tf.keras` 1.11 would build it with the
    first batch, and so would `fit` of Keras 2.15 and later.
    """

    @functools.wraps(original)
    def method(model, *arguments, **named):
        by_name = keras_api.arguments_by_name(original, model, arguments, named)
        if (
            keras_api.gives_batches(by_name.get('generator', by_name.get('x')))
            and is_wrapped(getattr(model, 'optimizer', None))
            and getattr(model, 'total_loss', None) is not None
        ):
            keras_api.make_train_function(model)
        return original(model, *arguments, **named)

    return method


def _quiet(original):
    """A method that prints on rank 0 only, unless the caller says otherwise."""

    def method(model, *arguments, **named):
        if not _is_of_several(model):
            return original(model, *arguments, **named)
        named = keras_api.arguments_by_name(original, model, arguments, named)
        _hush(model, named)
        return original(model, **named)

    return method


def _of_all_samples(original):
    """A method that evaluates, and returns what metrics of ours are over all ranks' samples."""

    @functools.wraps(original)
    def method(model, *arguments, **named):
        results = original(model, *arguments, **named)
        if not (_is_of_several(model) or reduction.is_needed(model)):
            return results
        return reduction.evaluated(_scope_of_model(model).job, model, results)

    return method


def _hush(model, named):
    if _scope_of_model(model).job.rank != 0:
        named.setdefault('verbose', 0)


def _averaging_first(original):
    """A `CallbackList.__init__` that lets averages come before Keras's own progress bar too.

    It leaves out what rank 0 writes for all. Later would be too late: TensorBoard opens its file
    when it is given the model.
    """

    def init(callback_list, callbacks=None, *arguments, **named):
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


def _fit_of(original):
    return _with_callbacks(_with_rest(_with_progress(telling_epochs(_with_step(original)))))


#: What takes the place of a method of Keras's: dict from targets of `PATCHES` to functions of the
#: original.
METHODS = {
    'Model.fit': _fit_of,
    'Model.fit_generator': _fit_of,
    'Model.evaluate': lambda original: _of_all_samples(_quiet(original)),
    'Model.evaluate_generator': _of_all_samples,
    'CallbackList.__init__': _averaging_first,
}


def _scope_of_model(model):
    loss = getattr(model, 'total_loss', None)
    return scope_of(tf.get_default_graph() if loss is None else loss.graph)


def _is_of_several(model):
    """Whether a model is one of a strategy in a job of several ranks."""
    if not is_wrapped(getattr(model, 'optimizer', None)):
        return False
    graph_scope = _scope_of_model(model)
    return graph_scope is not None and graph_scope.job.size > 1


def _is_before(callback):
    return isinstance(callback, BeforeCallbacks)


def _is_progress(callback):
    return isinstance(callback, FitProgress)
