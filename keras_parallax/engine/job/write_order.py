# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When a script's own write gives a sharded table its values: once no worker reads former ones.

A table lives once in the job, and all workers run the same lines: what the fast worker loads, the
slow one would see in what it does before. So a worker that comes to a write tells the others, with
what the watch reports anyway, and waits until each of them has come to the same write, or waits
elsewhere for this worker, or has ended. Then the lowest of those that have come writes, and the
others of them go on when it has. A worker may write alone (`if hvd.rank() == 0`), for the others
cannot go on without it: nothing here is a collective call.
"""

import threading
import time
import zlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from keras_parallax.engine.failures.diagnosis import FINISHED, Progress, State
from keras_parallax.engine.job.job_interface import JobInterface
from keras_parallax.engine.job.script_line import script_line

#: What a worker waits for: that the others come, and that the one of them that writes has written.
BEGIN, END = 0, 1


#: How often a worker that waits looks whether it need not.
_LOOK_SECONDS = 0.5


#: How many tables of a write are named.
_NAMED = 3


def call_of(names: Sequence[str], line: Optional[str]) -> str:
    """A write in words.

    Args:
        names: the names of what is written.
        line: where the script does it, as `script_line` says, or `None`.

    Example:
        ```python
        >>> call_of(['words/embeddings'], 'train.py, line 7: `model.set_weights(values)`')
        'a write to words/embeddings (train.py, line 7: `model.set_weights(values)`)'
        ```
    """
    named = ', '.join(names[:_NAMED])
    if len(names) > _NAMED:
        named += ' and %d more' % (len(names) - _NAMED)
    return 'a write to %s%s' % (named, '' if line is None else ' (%s)' % line)


def met(states: Sequence[State]) -> List[int]:
    """The workers whose wait at a write is over, in order; none, if all that wait are to wait on.

    It takes all reports, as `diagnosis.diagnose` does, with `in_write`: a list of the number of the
    write that a worker waits at, for what, and whether it has written. Of several writes that could
    be next, it is that of the lowest rank.

    Example:
        ```python
        >>> steps = {'state': 'running', 'steps': 3, 'gathers': 1}
        >>> writes = dict(steps, in_write=[7, BEGIN, False])
        >>> met([writes, writes]), met([writes, steps])
        ([0, 1], [])
        >>> met([writes, dict(steps, steps=4, in_lockstep=True)])
        [0]
        ```
    """
    places = [_place(state) for state in states]
    for place in filter(None, places):
        ranks = [rank for rank, other in enumerate(places) if other == place]
        others = [state for state, other in zip(states, places) if other != place]
        if all(_waits_for(states[ranks[0]], other) for other in others):
            return ranks
    return []


def _place(state: State) -> Optional[Tuple[int, int, int, int]]:
    if not state.get('in_write'):
        return None
    number, phase, _ = state['in_write']
    return number, phase, state['steps'], state['gathers']


def _waits_for(writer: State, state: State) -> bool:
    """Whether a worker cannot go on before one that waits at a write does."""
    if _stays(writer, state) or state.get('in_horovod'):
        return True
    return bool(state.get('in_write')) and state['in_write'][1] == BEGIN


def _stays(writer: State, state: State) -> bool:
    """Whether a worker waits until one at a write begins a step, or a call of all workers."""
    in_step = state.get('in_lockstep') and state['steps'] > writer['steps']
    in_call = state.get('in_gather') and state['gathers'] > writer['gathers']
    return state['state'] == FINISHED or bool(in_step) or bool(in_call)


class _Wait:
    """A wait of this worker's at a write.

    Args:
        in_write: what `met` takes.
        progress: the `Progress`, which stays as it is.
        call: what is written and where, in words.
    """

    states: Sequence[State]

    def __init__(self, in_write: List[Any], progress: Progress, call: Optional[str]) -> None:
        self.in_write, self.progress, self.call = in_write, progress, call
        self.began, self.over, self.states = time.monotonic(), threading.Event(), []


class WriteOrder:
    """Has the writes of this worker take their turn.

    Args:
        job: the `Job`.

    Attributes:
        is_awaited: whether a worker waits at a write, as far as this one has heard.
    """

    _wait: Optional[_Wait]
    _alone_at: Optional[Tuple[int, int]]
    _call: Optional[str]

    def __init__(self, job: JobInterface) -> None:
        self._job, self._wait, self._alone_at, self._call = job, None, None, None
        self.is_awaited = False

    @property
    def waits(self) -> bool:
        """Whether this worker waits at a write."""
        return self._wait is not None

    def __call__(
        self, names: Sequence[str], write: Callable[[], None], skip: Callable[[], None]
    ) -> None:
        """Writes when it is time, or calls `skip` when another worker has written.

        What is written has some names. Raises `ParallaxError` if the job cannot go on.
        """
        # Who writes in a call that all workers make is in order already; of a thread nobody knows
        # where it would be on the other workers.
        is_main = threading.current_thread() is threading.main_thread()
        if self._job.size == 1 or self._job.activity.in_call or not is_main:
            write()
            return
        if self._alone_at == self._position():
            write()  # The others still wait where they did.
            return
        number = zlib.crc32('\n'.join(names).encode('utf-8'))
        self._call = call_of(names, script_line())
        ranks, states = self._meet(number, BEGIN, False)
        own = states[self._job.rank]
        if len(ranks) == 1:
            if all(_stays(own, state) for rank, state in enumerate(states) if rank not in ranks):
                self._alone_at = self._position()
            write()
            return
        if ranks[0] != self._job.rank:
            ranks, states = self._meet(number, END, False)
            # The other may have had an error; then this worker has the same, or does without.
            has_written = any(states[rank]['in_write'][2] for rank in ranks)
            (skip if has_written else write)()
            return
        has_written = False
        try:
            write()
            has_written = True
        finally:
            self._meet(number, END, has_written)

    def _position(self) -> Tuple[int, int]:
        progress = self._job.activity.progress
        return progress.steps, progress.gathers

    def _meet(
        self, number: int, phase: int, has_written: bool
    ) -> Tuple[List[int], Sequence[State]]:
        """Waits; returns the workers whose wait is over, and the reports of all workers."""
        progress = self._job.activity.progress
        wait = self._wait = _Wait([number, phase, has_written], progress, self._call)
        try:
            self._job.watch.tell_now()
            while not wait.over.wait(_LOOK_SECONDS):
                if self._job.problem is not None:
                    raise self._job.problem
        finally:
            self._wait = None
        return met(wait.states), wait.states

    def report(self) -> Dict[str, Any]:
        """A dict of what there is to tell of it, in the fields of a state that `diagnose` takes."""
        wait = self._wait
        if wait is None:
            return {}
        lasts = round(time.monotonic() - wait.began, 3)
        return dict(
            steps=wait.progress.steps,
            gathers=wait.progress.gathers,
            in_lockstep=False,
            in_gather=False,
            in_step=0,
            in_write=wait.in_write,
            in_call=lasts,
            call=wait.call,
        )

    def hear(self, states: Sequence[State]) -> None:
        """Ends this worker's wait if all workers' reports say so; only the watch calls it."""
        self.is_awaited = any(state.get('in_write') for state in states)
        wait, rank = self._wait, self._job.rank
        if wait is None or states[rank].get('in_write') != wait.in_write:
            return
        if rank not in met(states):
            return
        # Before the next report, which is of what this worker does then.
        self._wait, wait.states = None, states
        wait.over.set()
