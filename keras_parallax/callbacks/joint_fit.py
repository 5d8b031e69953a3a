"""What the ranks of a job do together in a `fit`, before and after the user's callbacks act."""

import warnings

import numpy as np

from keras_parallax.callbacks import epoch_reports, fit_output, replicas
from keras_parallax.callbacks.callback_code import may_end_an_epoch, mentions, name_of
from keras_parallax.callbacks.joint_calls import call_of, is_broadcast, is_metric_average
from keras_parallax.compat import keras_api
from keras_parallax.errors import MetricMismatchError
from keras_parallax.metrics import reduction
from keras_parallax.step.train_step import step_of


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
            logs.update(reduction.values_of_rank(self.model, sums))
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
