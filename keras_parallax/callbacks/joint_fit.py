# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the workers of a job do together in a `fit`, before and after the user's callbacks act."""

import warnings
from typing import Any, Dict, Iterable, List, Optional, Tuple, cast

import numpy as np

from keras_parallax.callbacks import epoch_reports, fit_output, replicas, sketches
from keras_parallax.callbacks.broadcast import BroadcastGlobalVariablesCallback
from keras_parallax.callbacks.callback_code import may_end_an_epoch, mentions, name_of
from keras_parallax.callbacks.metric_average import MetricAverageCallback
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint, joint_act
from keras_parallax.callbacks.profile import Profile
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.compat import keras_api
from keras_parallax.compat.horovod_api import is_horovods_callback
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_scope import GraphScope
from keras_parallax.engine.step.dense_values import broadcast, dense_of
from keras_parallax.engine.step.joint_losses import count_weights
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.errors import MetricMismatchError
from keras_parallax.framework_types import Callback, Logs, Model, Variable
from keras_parallax.metrics import keras_sums, reduction


class BeforeCallbacks(keras_api.callbacks.Callback):
    """Acts before the user's callbacks do.

    Attributes:
        step: the model's `TrainStep` while the workers tell each other something, else `None`: each
            trains as it likes then.
        callbacks_of: dict from names of rates to the callbacks that may change them, for each
            worker.
        ends_epochs: whether a callback of some worker may end an epoch that has batches left.
        bars: Keras's callbacks that print.
        has_ended: whether the workers meet no more in this `fit`.
    """

    def __init__(
        self, model: Model, callbacks: List[Callback], initial_epoch: int, has_weights: bool = False
    ) -> None:
        super().__init__()
        self._model, self._callbacks, self._initial_epoch = model, callbacks, initial_epoch
        self._has_weights = has_weights
        self._verbose: List[Tuple[Callback, Any]] = []
        self.step: Optional[TrainStep] = None
        self.callbacks_of: List[Dict[str, List[str]]] = []
        self.bars: List[Callback] = []
        self.ends_epochs, self.has_ended = False, False
        self._trained: float = 0
        self._validated = 0
        self._sums = keras_sums.KerasSums(model)
        self._warned = self._warned_of_shares = False

    def acting(self, callbacks: List[Callback]) -> List[Callback]:
        """Those of some callbacks, Keras's among them, that act on this worker. Collective.

        Those that need not print no longer do.
        """
        step = step_of(self._model)
        if not step.synchronization.acts_in_fit:
            return callbacks
        with step.job.call('the start of fit'):
            of_rank_0 = step.job.gather(fit_output.outputs(self._callbacks))[0]
        if step.job.rank == 0:
            return callbacks
        silent, mute = fit_output.left_to(of_rank_0, callbacks)
        self._verbose = [(callback, callback.verbose) for callback in mute]
        for callback in mute:
            callback.verbose = 0
        return [callback for callback in callbacks if callback not in silent]

    def restore_verbose(self) -> None:
        """Lets callbacks print again as they did before, when training has ended."""
        for callback, verbose in self._verbose:
            callback.verbose = verbose
        self._verbose = []

    def on_train_begin(self, logs: Logs = None) -> None:
        """Compares what the workers are about to do, and gives all the values of one."""
        step = step_of(self.model)
        self.step = step if step.synchronization.acts_in_fit else None
        if self.step is None:
            return
        with step.job.call('the start of fit'):
            self._compare(step)

    def _compare(self, step: TrainStep) -> None:
        rates = replicas.rates_of(self.model.optimizer)
        starts = step.job.gather(
            {
                'batches': epoch_reports.batches_per_epoch(self.params),
                'epochs': [self._initial_epoch, int(self.params['epochs'])],
                'calls': [call for call in map(_call_of, self._callbacks) if call],
                'rates': rates,
                'callbacks_of': {
                    rate: users for rate, users in map(self._users_of, rates) if users
                },
                'has_weights': self._has_weights,
                'ends_epochs': any(map(may_end_an_epoch, self._callbacks)),
            }
        )
        epoch_reports.check_equal_batches([start['batches'] for start in starts])
        epoch_reports.check_equal_epochs([start['epochs'] for start in starts])
        epoch_reports.check_equal_calls([start['calls'] for start in starts])
        self.callbacks_of = [start['callbacks_of'] for start in starts]
        self.ends_epochs = step.synchronization.lockstep and any(
            start['ends_epochs'] for start in starts
        )
        if any(start['has_weights'] for start in starts):
            count_weights(step)
        self._broadcast(step, [start['rates'] for start in starts])

    def _users_of(self, rate: str) -> Tuple[str, List[str]]:
        # Keras 2.15 takes `optimizer.lr` for it, too.
        names = (rate, 'lr') if rate == 'learning_rate' else (rate,)
        users = [one for one in self._callbacks if any(mentions(one, name) for name in names)]
        return rate, [name_of(callback) for callback in users]

    def _broadcast(self, step: TrainStep, rates: List[Dict[str, float]]) -> None:
        explicit = [callback for callback in self._callbacks if _is_broadcast(callback)]
        root_rank = explicit[-1].root_rank if explicit else 0
        if not explicit and any(own != rates[0] for own in rates) and step.job.rank == 0:
            warnings.warn(
                'The workers begin to train with different rates: %s; those of rank 0 count for '
                'all.' % ', '.join('rank %d has %s' % pair for pair in enumerate(rates)),
                stacklevel=2,
            )
        if root_rank == 0 or not step.spec.has_shards:
            broadcast(step, root_rank, replicas.own_states(self.model))

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins to count samples."""
        self._trained = 0
        reduction.begin_epoch(self.model)
        self._sums.begin_epoch()

    def pass_over(self, samples: float) -> None:
        """Counts samples that were trained before a resume."""
        self._trained += samples

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the batch's samples, as Keras does for its own averages."""
        self._trained += (logs or {}).get('size', 0)

    def on_test_begin(self, logs: Logs = None) -> None:
        """Begins to count samples that validate; Keras 2.2.4 shows them to callbacks instead."""
        self._validated = 0
        if self.step is not None:
            self._sums.end_training()

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the batch's samples."""
        self._validated += (logs or {}).get('size', 0)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Averages the epoch's metrics over the workers; those of ours are of all their samples."""
        sums = reduction.end_epoch(self.model, logs)
        step = self.step
        if step is None:
            logs.update(reduction.values_of_rank(self.model, sums))
            return
        numbers = epoch_reports.numbers(logs)
        sums_of_keras = self._sums.end_epoch(list(numbers))
        report = {
            'logs': numbers,
            'trained': int(self._trained),
            'validated': epoch_reports.samples_in(getattr(self, 'validation_data', None))
            or self._validated
            or None,
            'sums': reduction.report(self.model, sums),
            'sums_of_keras': self._sums.report(sums_of_keras),
        }
        with step.job.call('fit, at the end of an epoch'):
            reports = step.job.gather(report)
            job = cast(Job, step.spec.job)  # Workers meet in `fit` of models of a strategy.
            of_ranks = [report['sums'] for report in reports]
            values = self._sums.values_of_all(
                job, sums_of_keras, [report['sums_of_keras'] for report in reports]
            )
            values.update(reduction.values_of_all(job, self.model, sums, of_ranks))
        different = epoch_reports.metrics_missing([report['logs'] for report in reports])
        if different:
            self._tell(step, different)
        uneven = epoch_reports.shares_differ([report['trained'] for report in reports])
        if (
            uneven
            and step.synchronization.lockstep
            and step.job.rank == 0
            and not self._warned_of_shares
        ):
            warnings.warn(uneven, stacklevel=2)
            self._warned_of_shares = True
        for name, value in {**epoch_reports.averages(reports), **values}.items():
            logs[name] = np.float64(value)
        for bar in self.bars:
            # It has averaged this worker's batches itself; now it is to print what it is given.
            if getattr(bar, 'progbar', None) is not None:
                bar.progbar.stateful_metrics = set(logs)

    def _tell(self, step: TrainStep, different: str) -> None:
        if any(map(_is_metric_average, self._callbacks)):
            raise MetricMismatchError(
                '%s, so MetricAverageCallback cannot average them. Compute the same metrics on '
                'every worker, for instance by validating on each, or leave the callback out: fit '
                'averages what it can.' % different
            )
        if not self._warned and step.job.rank == 0:
            warnings.warn(
                '%s. Each gets the average of those that have it.' % different, stacklevel=2
            )
        self._warned = True


class AfterCallbacks(keras_api.callbacks.Callback):
    """Acts when the user's callbacks have acted, those of the same call of `fit`."""

    def __init__(self, before: BeforeCallbacks) -> None:
        super().__init__()
        self._before, self._stops = before, False

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Has all workers end the epoch with one; what was not foreseen waits for its end."""
        step = self._before.step
        if step is None:
            return
        if self._before.ends_epochs:
            with step.job.call('fit, after a batch'):
                self.model.stop_training = any(step.job.gather(bool(self.model.stop_training)))
        elif self.model.stop_training:
            self._stops, self.model.stop_training = True, False

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Has all workers stop if one does, and compares their replicas."""
        step = self._before.step
        if step is None:
            return
        step.fits.count_epoch()
        report: Dict[str, Any] = {'stops': bool(self._stops or self.model.stop_training)}
        if step.synchronization.lockstep:
            report['rates'] = replicas.rates_of(self.model.optimizer)
            if _is_power_of_two(step.fits.epochs):
                report['sketches'] = replicas.sketches_of(self.model, dense_of(step))
        with step.job.call('fit, after the callbacks of an epoch'):
            reports = step.job.gather(report)
        when = 'after epoch %d' % (epoch + 1)
        if step.synchronization.lockstep:
            rates = [report['rates'] for report in reports]
            epoch_reports.check_rates(rates, when, self._before.callbacks_of)
        self.model.stop_training = any(report['stops'] for report in reports)
        is_last = self.model.stop_training or epoch + 1 >= self.params['epochs']
        if 'sketches' in report and not is_last:
            of_ranks = [report['sketches'] for report in reports]
            sketches.check_sketches(of_ranks, _names_of(dense_of(step)), when)

    def on_train_end(self, logs: Logs = None) -> None:
        """Has all workers end with the weights of rank 0, whatever callbacks have set."""
        step = self._before.step
        if step is not None and step.synchronization.lockstep:
            with step.job.call('the end of fit'):
                self._share_weights(step)
        self._before.has_ended = True

    def _share_weights(self, step: TrainStep) -> None:
        scope = cast(GraphScope, step.spec.scope)  # Workers meet in `fit` of models that have one.
        changes, weights = scope.changes, replicas.replicas_of(self.model)
        report = {
            'changes': changes.since_step,
            'sketches': replicas.sketches_of(self.model, weights),
        }
        reports = step.job.gather(report)
        of_ranks, names = [report['sketches'] for report in reports], _names_of(weights)
        found = sketches.differences(of_ranks, names)
        # A worker that alone has set weights may have set ones that differ by less than rounding.
        alone = len({report['changes'] for report in reports}) > 1
        if found or (alone and sketches.differences(of_ranks, names, rounding=0.0)):
            broadcast(step, 0, replicas.own_states(self.model))
        if found and step.job.rank == 0:
            warnings.warn(sketches.warning_of(found), stacklevel=2)
        changes.settle()


def _names_of(variables: Iterable[Variable]) -> List[str]:
    return [variable.name.split(':')[0] for variable in variables]


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _call_of(callback: Callback) -> Optional[str]:
    """What workers wait for each other in, of a callback; `None` if it acts on each worker alone.

    It is a string, the same on every worker that has such a callback, be it Horovod's or ours.
    """
    if _is_broadcast(callback):
        return 'BroadcastGlobalVariablesCallback(%r)' % callback.root_rank
    if _is_metric_average(callback):
        also = getattr(callback, 'average_moving_statistics', False)
        return 'MetricAverageCallback' + ('(average_moving_statistics=True)' if also else '')
    if isinstance(callback, (StepMetrics, Profile)):
        return type(callback).__name__
    return joint_act(callback) if isinstance(callback, ModelCheckpoint) else None


def _is_broadcast(callback: Callback) -> bool:
    """Whether a callback gives all workers the values of one."""
    return isinstance(callback, BroadcastGlobalVariablesCallback) or is_horovods_callback(
        callback, 'BroadcastGlobalVariablesCallbackImpl'
    )


def _is_metric_average(callback: Callback) -> bool:
    """Whether a callback averages metrics over the workers."""
    return isinstance(callback, MetricAverageCallback) or is_horovods_callback(
        callback, 'MetricAverageCallbackImpl'
    )
