# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a worker tells the others that it is doing: training steps, and calls that all make."""

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple, Type

from keras_parallax.compat import graph_queries
from keras_parallax.engine.failures.diagnosis import Progress
from keras_parallax.engine.job.last_words import in_words

#: After this long a run of the script's own that Horovod takes part in may wait in vain: with the
#: time until workers hear of each other, less than 30 seconds.
_LONG_SECONDS = 15.0


class Activity:
    """Counts what a worker does together with the others. Only the script's own thread changes it.

    Attributes:
        lockstep_began: when the worker last began a step that ends for no worker before all have
            begun it, as `time.monotonic` counts; 0 if it has begun none.
    """

    _began: Optional[float]
    _broken_at: float
    _run: Optional[Tuple[Iterable[Any], float]]
    lockstep_began: float

    def __init__(self) -> None:
        # Replaced as a whole, so that the watch never sees a half of it.
        self._progress, self._began, self._broken_at = Progress(), None, 0
        # Keras 3 runs parts of a step in threads of its own, while the script goes on with JAX.
        self._of_thread = threading.local()
        self._run, self.lockstep_began, self._in_step = None, 0, False

    @property
    def progress(self) -> Progress:
        """How far the worker has come, a `diagnosis.Progress`."""
        return self._progress

    @property
    def steps(self) -> int:
        """The number of training steps begun."""
        return self._progress.steps

    @property
    def _call(self) -> Optional[str]:
        """The call that all workers make, in which this thread is."""
        return getattr(self._of_thread, 'call', None)

    @property
    def in_call(self) -> bool:
        """Whether it is in a call that all workers make."""
        return self._call is not None

    @property
    def waits(self) -> bool:
        """Whether it may be waiting for the other workers."""
        return self._began is not None or self._awaited(0) is not None

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """While open, the worker is in a call that all workers make.

        Args:
            name: what the user knows it by. Of a call within another, the outer name counts.
        """
        outer = self._call
        self._of_thread.call = outer or name
        try:
            yield
        finally:
            self._of_thread.call = outer

    @contextlib.contextmanager
    def gathering(self) -> Iterator[Optional[str]]:
        """While open, the worker waits for the others in a collective; gives the call's name."""
        gathers, in_step = self._progress.gathers + 1, self._began is not None
        self._began = time.monotonic()
        self._progress = self._progress._replace(gathers=gathers, in_gather=True, call=self._call)
        try:
            yield self._call
        finally:
            self._progress = self._progress._replace(in_gather=False, call=None)
            # All workers have come as far: what is left of a step has the whole time again.
            self._began = time.monotonic() if in_step else None

    @contextlib.contextmanager
    def running(self, fetches: Iterable[Any]) -> Iterator[None]:
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

    def _awaited(self, seconds: float) -> Optional[str]:
        """The name of an operation of Horovod's in a run that lasts for so long, or `None`."""
        run = self._run
        if run is None or time.monotonic() - run[1] < seconds:
            return None
        operations = graph_queries.ancestors(run[0])
        names = [operation.name for operation in operations if operation.type.startswith('Horovod')]
        return min(names, default=None)

    @contextlib.contextmanager
    def step(
        self,
        lockstep: bool,
        is_new: bool = True,
        ends_of_data: Tuple[Type[BaseException], ...] = (),
    ) -> Iterator[None]:
        """While open, a training step runs; the other workers hear of an error, as of `training`.

        A step within a step is a part of it: one of a Keras 3 model runs that of its tables.

        Args:
            lockstep: whether it ends for no worker before all have begun it.
            is_new: whether it is not what is left of steps before.
            ends_of_data: the exceptions of a step that has found no batch. It does not count.
        """
        if self._in_step:
            self._began = time.monotonic()  # One call of Keras 3 may run several steps.
            yield
            return
        self._in_step, self._began = True, time.monotonic()
        if lockstep:
            self.lockstep_began = self._began
        self._progress = self._progress._replace(
            steps=self.steps + int(is_new), in_lockstep=lockstep
        )
        try:
            yield
        except ends_of_data:
            self._progress = self._progress._replace(steps=self.steps - int(is_new))
            raise
        except BaseException as error:
            self._note(error, self.steps)
            raise
        finally:
            self._in_step, self._began = False, None
            self._progress = self._progress._replace(in_lockstep=False)

    @contextlib.contextmanager
    def training(self, has_ended: Callable[[], bool]) -> Iterator[None]:
        """While open, `fit` trains; the other workers hear of an error, which the script may catch.

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

    def break_off(self, error: BaseException) -> None:
        """Says that an error has ended training, which the script may catch.

        Args:
            error: the exception: that of the last step, or one between two steps.
        """
        broken = self._progress.broken
        if broken is None or broken[0] < self.steps:
            self._note(error, self.steps + 1)

    def _note(self, error: BaseException, step: int) -> None:
        broken = [step, self._progress.gathers, in_words(error)]
        self._broken_at = time.monotonic()
        self._progress = self._progress._replace(broken=broken)

    def report(self) -> Dict[str, Any]:
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
