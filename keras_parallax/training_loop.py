"""What `fit` does for models of a strategy in a job of several ranks, beside what Keras does.

At its start the ranks compare what they are about to do, and take over the values of rank 0. At the
end of an epoch its metrics are averaged before the user's callbacks see them; after these, the
ranks compare their rates, and all stop if one does. So callbacks decide alike everywhere.
"""

import functools
import warnings

import numpy as np

from keras_parallax.callbacks import epoch_reports, fit_output, replicas
from keras_parallax.callbacks.accumulated_rest import AccumulatedRest
from keras_parallax.callbacks.callback_code import may_end_an_epoch, mentions, name_of
from keras_parallax.callbacks.fit_progress import FitProgress, take_saved_fit
from keras_parallax.callbacks.joint_calls import call_of, is_broadcast, is_metric_average
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.callbacks.progress_bar import ProgressBar
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.data import positions
from keras_parallax.data.epochs import telling_epochs
from keras_parallax.errors import MetricMismatchError
from keras_parallax.metrics import reduction
from keras_parallax.optimizer import is_wrapped
from keras_parallax.session.graph_scope import scope_of
from keras_parallax.step.train_step import step_of


def _with_callbacks(original):
    """A `fit` or `fit_generator` that has the callbacks of this module, and is quiet."""

    def method(model, *arguments, **named):
        if not _is_of_several(model):
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
        if not _is_of_several(model):
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


class BeforeCallbacks(keras_api.callbacks.Callback):
    """Acts before the user's callbacks do.

    Attributes:
        step: the model's `TrainStep` while the ranks tell each other something, else `None`: each
            trains as it likes then.
        callbacks_of: dict from names of rates to the callbacks that may change them, for each rank.
        ends_epochs: whether a callback of some rank may end an epoch that has batches left.
        bars: Keras's callbacks that print.
        has_ended: whether there are no batches left.
    """

    def __init__(self, model, callbacks, initial_epoch):
        super().__init__()
        self._model, self._callbacks, self._initial_epoch = model, callbacks, initial_epoch
        self._verbose = []
        self.step = self.callbacks_of = None
        self.ends_epochs, self.bars, self.has_ended = False, [], False
        self._trained = self._validated = 0
        self._warned = self._warned_of_shares = False

    def acting(self, callbacks):
        """Those of some callbacks, Keras's among them, that act on this rank. Collective.

        Those that need not print no longer do.
        """
        step = step_of(self._model)
        if not step.acts_in_fit:
            return callbacks
        with step.call('the start of fit'):
            of_rank_0 = step.gather(fit_output.outputs(self._callbacks))[0]
        if step.rank == 0:
            return callbacks
        silent, mute = fit_output.left_to(of_rank_0, callbacks)
        self._verbose = [(callback, callback.verbose) for callback in mute]
        for callback in mute:
            callback.verbose = 0
        return [callback for callback in callbacks if callback not in silent]

    def restore_verbose(self):
        """Lets callbacks print again as they did before, when training has ended."""
        for callback, verbose in self._verbose:
            callback.verbose = verbose
        self._verbose = []

    def on_train_begin(self, logs=None):
        """Compares what the ranks are about to do, and gives all the values of one."""
        step = step_of(self.model)
        self.step = step if step.acts_in_fit else None
        if self.step is None:
            return
        with step.call('the start of fit'):
            self._compare(step)

    def _compare(self, step):
        rates = replicas.rates_of(self.model.optimizer)
        starts = step.gather(
            {
                'batches': epoch_reports.batches_per_epoch(self.params),
                'epochs': [self._initial_epoch, int(self.params['epochs'])],
                'calls': [call for call in map(call_of, self._callbacks) if call],
                'rates': rates,
                'callbacks_of': {
                    rate: users for rate, users in map(self._users_of, rates) if users
                },
                'ends_epochs': any(map(may_end_an_epoch, self._callbacks)),
            }
        )
        epoch_reports.check_equal_batches([start['batches'] for start in starts])
        epoch_reports.check_equal_epochs([start['epochs'] for start in starts])
        epoch_reports.check_equal_calls([start['calls'] for start in starts])
        self.callbacks_of = [start['callbacks_of'] for start in starts]
        self.ends_epochs = step.lockstep and any(start['ends_epochs'] for start in starts)
        self._broadcast([start['rates'] for start in starts])

    def _users_of(self, rate):
        # Keras 2.15 takes `optimizer.lr` for it, too.
        names = (rate, 'lr') if rate == 'learning_rate' else (rate,)
        users = [one for one in self._callbacks if any(mentions(one, name) for name in names)]
        return rate, [name_of(callback) for callback in users]

    def _broadcast(self, rates):
        explicit = [callback for callback in self._callbacks if is_broadcast(callback)]
        root_rank = explicit[-1].root_rank if explicit else 0
        if not explicit and any(own != rates[0] for own in rates) and self.step.rank == 0:
            warnings.warn(
                'The ranks begin to train with different rates: %s; those of rank 0 count for all.'
                % ', '.join('rank %d has %s' % pair for pair in enumerate(rates)),
                stacklevel=2,
            )
        if root_rank == 0 or not self.step.has_shards:
            self.step.broadcast(root_rank, replicas.own_states(self.model))

    def on_train_end(self, logs=None):
        """Takes note that all batches have been."""
        self.has_ended = True

    def on_epoch_begin(self, epoch, logs=None):
        """Begins to count samples."""
        self._trained = 0
        reduction.begin_epoch(self.model)

    def pass_over(self, samples):
        """Counts samples that were trained before a resume."""
        self._trained += samples

    def on_batch_end(self, batch, logs=None):
        """Counts the batch's samples, as Keras does for its own averages."""
        self._trained += (logs or {}).get('size', 0)

    def on_test_begin(self, logs=None):
        """Begins to count samples that validate; Keras 2.2.4 shows them to callbacks instead."""
        self._validated = 0

    def on_test_batch_end(self, batch, logs=None):
        """Counts the batch's samples."""
        self._validated += (logs or {}).get('size', 0)

    def on_epoch_end(self, epoch, logs=None):
        """Averages the epoch's metrics over the ranks; those of ours are of all their samples."""
        sums = reduction.end_epoch(self.model, logs)
        if self.step is None:
            return
        report = {
            'logs': epoch_reports.numbers(logs),
            'trained': int(self._trained),
            'validated': epoch_reports.samples_in(getattr(self, 'validation_data', None))
            or self._validated
            or None,
            'sums': reduction.report(self.model, sums),
        }
        with self.step.call('fit, at the end of an epoch'):
            reports = self.step.gather(report)
            job, of_ranks = self.step.spec.job, [report['sums'] for report in reports]
            values = reduction.values_of_all(job, self.model, sums, of_ranks)
        different = epoch_reports.metrics_missing([report['logs'] for report in reports])
        if different:
            self._tell(different)
        uneven = epoch_reports.shares_differ([report['trained'] for report in reports])
        if uneven and self.step.lockstep and self.step.rank == 0 and not self._warned_of_shares:
            warnings.warn(uneven, stacklevel=2)
            self._warned_of_shares = True
        for name, value in {**epoch_reports.averages(reports), **values}.items():
            logs[name] = np.float64(value)
        for bar in self.bars:
            # It has averaged this rank's batches itself; now it is to print what it is given.
            if getattr(bar, 'progbar', None) is not None:
                bar.progbar.stateful_metrics = set(logs)

    def _tell(self, different):
        if any(map(is_metric_average, self._callbacks)):
            raise MetricMismatchError(
                '%s, so MetricAverageCallback cannot average them. Compute the same metrics on '
                'every rank, for instance by validating on each, or leave the callback out: fit '
                'averages what it can.' % different
            )
        if not self._warned and self.step.rank == 0:
            warnings.warn(
                '%s. Each gets the average of those that have it.' % different, stacklevel=2
            )
        self._warned = True


class AfterCallbacks(keras_api.callbacks.Callback):
    """Acts when the user's callbacks have acted, those of the same call of `fit`."""

    def __init__(self, before):
        super().__init__()
        self._before, self._stops = before, False

    def on_batch_end(self, batch, logs=None):
        """Has all ranks end the epoch with one; what was not foreseen waits for its end."""
        step = self._before.step
        if step is None:
            return
        if self._before.ends_epochs:
            with step.call('fit, after a batch'):
                self.model.stop_training = any(step.gather(bool(self.model.stop_training)))
        elif self.model.stop_training:
            self._stops, self.model.stop_training = True, False

    def on_epoch_end(self, epoch, logs=None):
        """Has all ranks stop if one does, and compares their replicas."""
        step = self._before.step
        if step is None:
            return
        step.epochs += 1
        report = {'stops': bool(self._stops or self.model.stop_training)}
        if step.lockstep:
            report['rates'] = replicas.rates_of(self.model.optimizer)
            if _is_power_of_two(step.epochs):
                report['sketches'] = replicas.sketches_of(step)
        with step.call('fit, after the callbacks of an epoch'):
            reports = step.gather(report)
        when = 'after epoch %d' % (epoch + 1)
        if step.lockstep:
            rates = [report['rates'] for report in reports]
            epoch_reports.check_rates(rates, when, self._before.callbacks_of)
        if 'sketches' in report:
            names = [variable.name.split(':')[0] for variable in step.replicas]
            epoch_reports.check_sketches([report['sketches'] for report in reports], names, when)
        self.model.stop_training = any(report['stops'] for report in reports)


def _is_power_of_two(number):
    return number & (number - 1) == 0
