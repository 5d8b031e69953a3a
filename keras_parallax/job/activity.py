"""What a rank is doing, as the others hear of it: training steps, and calls that all ranks make."""

import contextlib
import threading
import time

from keras_parallax.compat import graph_queries
from keras_parallax.failures.diagnosis import Progress

#: The longest text about an error that other ranks are told, characters.
_LONGEST_ERROR = 300


#: After this long a run of the script's own that Horovod takes part in may wait in vain: with the
#: time until ranks hear of each other, less than 30 seconds.
_LONG_SECONDS = 15.0


class Activity:
    """Counts what a rank does together with the others. Only the script's own thread changes it.

    Attributes:
        lockstep_began: when the rank last began a step that ends for no rank before all have begun
            it, as `time.monotonic` counts; 0 if it has begun none.
    """

    def __init__(self):
        # Replaced as a whole, so that the watch never sees a half of it.
        self._progress, self._began, self._broken_at, self._call = Progress(), None, 0, None
        self._run, self.lockstep_began = None, 0

    @property
    def progress(self):
        """How far the rank has come, a `diagnosis.Progress`."""
        return self._progress

    @property
    def steps(self):
        """The number of training steps begun."""
        return self._progress.steps

    @property
    def in_call(self):
        """Whether it is in a call that all ranks make."""
        return self._call is not None

    @property
    def waits(self):
        """Whether it may be waiting for the other ranks."""
        return self._began is not None or self._awaited(0) is not None

    @contextlib.contextmanager
    def call(self, name):
        """While open, the rank is in a call that all ranks make.

        Args:
            name: what the user knows it by. Of a call within another, the outer name counts.
        """
        outer = self._call
        self._call = outer or name
        try:
            yield
        finally:
            self._call = outer

    @contextlib.contextmanager
    def gathering(self):
        """While open, the rank waits for the others in a collective; gives the call's name."""
        gathers, self._began = self._progress.gathers + 1, time.monotonic()
        self._progress = self._progress._replace(gathers=gathers, in_gather=True, call=self._call)
        try:
            yield self._call
        finally:
            self._progress = self._progress._replace(in_gather=False, call=None)
            self._began = None

    @contextlib.contextmanager
    def running(self, fetches):
        """While open, a session runs.

        Args:
            fetches: the tensors and operations that it is asked for, a list.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # The script does not wait for it.
            return
        self._run = fetches, time.monotonic()
        try:
            yield
        finally:
            self._run = None

    def _awaited(self, seconds):
        """The name of an operation of Horovod's in a run that lasts for so long, or `None`."""
        run = self._run
        if run is None or time.monotonic() - run[1] < seconds:
            return None
        operations = graph_queries.ancestors(run[0])
        names = [operation.name for operation in operations if operation.type.startswith('Horovod')]
        return min(names, default=None)

    @contextlib.contextmanager
    def step(self, lockstep, is_new=True):
        """While open, a training step runs; the other ranks hear of an error, as of `training`.

        Args:
            lockstep: whether it ends for no rank before all have begun it.
            is_new: whether it is not what is left of steps before.
        """
        self._began = time.monotonic()
        if lockstep:
            self.lockstep_began = self._began
        self._progress = self._progress._replace(
            steps=self.steps + int(is_new), in_lockstep=lockstep
        )
        try:
            yield
        except BaseException as error:
            self._note(error, self.steps)
            raise
        finally:
            self._began = None
            self._progress = self._progress._replace(in_lockstep=False)

    @contextlib.contextmanager
    def training(self, has_ended):
        """While open, `fit` trains; the other ranks hear of an error, which the script may catch.

        Args:
            has_ended: function of nothing: whether no batches are left.
        """
        steps = self.steps
        try:
            yield
        except BaseException as error:
            if self.steps > steps and not has_ended():
                self.break_off(error)
            raise

    def break_off(self, error):
        """Says that an error has ended training, which the script may catch.

        Args:
            error: the exception: that of the last step, or one between two steps.
        """
        broken = self._progress.broken
        if broken is None or broken[0] < self.steps:
            self._note(error, self.steps + 1)

    def _note(self, error, step):
        text = '%s: %s' % (type(error).__name__, getattr(error, 'message', None) or error)
        broken = [step, self._progress.gathers, text.split('\n')[0][:_LONGEST_ERROR]]
        self._broken_at = time.monotonic()
        self._progress = self._progress._replace(broken=broken)

    def report(self):
        """A dict of what there is to tell of it, in the fields of a state that `diagnose` takes."""
        progress, began = self._progress, self._began
        lasts = 0 if began is None else round(time.monotonic() - began, 3)
        report = dict(progress._asdict(), in_step=0 if progress.in_gather else lasts)
        if progress.in_gather:
            report['in_call'] = lasts
        if progress.broken:
            report['broken'] = progress.broken + [round(time.monotonic() - self._broken_at, 3)]
        if began is None:
            report['in_horovod'] = self._awaited(_LONG_SECONDS)
        # Short, for the sake of `collectives.Gatherer`.
        return {name: value for name, value in report.items() if value is not None}
