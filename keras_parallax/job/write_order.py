"""When a script's own write gives a sharded table its values: when no rank reads the earlier ones.

A table lives once in the job, and all ranks run the same lines: what the fast rank loads, the slow
one would see in what it does before. So a rank that comes to a write tells the others, with what
the watch reports anyway, and waits until each of them has come to the same write, or waits
elsewhere for this rank, or has ended. Then the lowest of those that have come writes, and the
others of them go on when it has. A rank may write alone (`if hvd.rank() == 0`), for the others
cannot go on without it: nothing here is a collective call.
"""

import threading
import time
import zlib

from keras_parallax.failures.diagnosis import FINISHED

#: What a rank waits for: that the others come, and that the one of them that writes has written.
BEGIN, END = 0, 1


#: How often a rank that waits looks whether it need not.
_LOOK_SECONDS = 0.5


def met(states):
    """The ranks whose wait at a write is over, in order; none, if all that wait are to wait on.

    It takes all reports, as `diagnosis.diagnose` does, with `in_write`: a list of the number of the
    write that a rank waits at, for what, and whether it has written. Of several writes that could
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


def _place(state):
    if not state.get('in_write'):
        return None
    number, phase, _ = state['in_write']
    return number, phase, state['steps'], state['gathers']


def _waits_for(writer, state):
    """Whether a rank cannot go on before one that waits at a write does."""
    if _stays(writer, state) or state.get('in_horovod'):
        return True
    return bool(state.get('in_write')) and state['in_write'][1] == BEGIN


def _stays(writer, state):
    """Whether a rank cannot go on before one at a write begins a step, or a call of all ranks."""
    in_step = state.get('in_lockstep') and state['steps'] > writer['steps']
    in_call = state.get('in_gather') and state['gathers'] > writer['gathers']
    return state['state'] == FINISHED or bool(in_step) or bool(in_call)


class _Wait:
    """A wait of this rank's at a write: what `met` takes, and `Progress`, which stays as it is."""

    def __init__(self, in_write, progress):
        self.in_write, self.progress = in_write, progress
        self.began, self.over, self.states = time.monotonic(), threading.Event(), None


class WriteOrder:
    """Has the writes of this rank take their turn.

    Args:
        job: the `Job`.

    Attributes:
        is_awaited: whether a rank waits at a write, as far as this one has heard.
    """

    def __init__(self, job):
        self._job, self._wait, self._alone_at = job, None, None
        self.is_awaited = False

    @property
    def waits(self):
        """Whether this rank waits at a write."""
        return self._wait is not None

    def __call__(self, names, write, skip):
        """Writes when it is time, or calls `skip` when another rank has written.

        What is written has some names. Raises `ParallaxError` if the job cannot go on.
        """
        # Who writes in a call that all ranks make is in order already; of a thread nobody knows
        # where it would be on the other ranks.
        is_main = threading.current_thread() is threading.main_thread()
        if self._job.size == 1 or self._job.activity.in_call or not is_main:
            write()
            return
        if self._alone_at == self._position():
            write()  # The others still wait where they did.
            return
        number = zlib.crc32('\n'.join(names).encode('utf-8'))
        ranks, states = self._meet(number, BEGIN, False)
        own = states[self._job.rank]
        if len(ranks) == 1:
            if all(_stays(own, state) for rank, state in enumerate(states) if rank not in ranks):
                self._alone_at = self._position()
            write()
            return
        if ranks[0] != self._job.rank:
            ranks, states = self._meet(number, END, False)
            # The other may have had an error; then this rank has the same, or does without.
            has_written = any(states[rank]['in_write'][2] for rank in ranks)
            (skip if has_written else write)()
            return
        has_written = False
        try:
            write()
            has_written = True
        finally:
            self._meet(number, END, has_written)

    def _position(self):
        progress = self._job.activity.progress
        return progress.steps, progress.gathers

    def _meet(self, number, phase, has_written):
        """Waits; returns the ranks whose wait is over, and the reports of all ranks."""
        wait = self._wait = _Wait([number, phase, has_written], self._job.activity.progress)
        try:
            self._job.watch.tell_now()
            while not wait.over.wait(_LOOK_SECONDS):
                if self._job.problem is not None:
                    raise self._job.problem
        finally:
            self._wait = None
        return met(wait.states), wait.states

    def report(self):
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
            call='a write to a sharded table',
        )

    def hear(self, states):
        """Ends this rank's wait if all ranks' reports say so; only the watch calls it."""
        self.is_awaited = any(state.get('in_write') for state in states)
        wait, rank = self._wait, self._job.rank
        if wait is None or states[rank].get('in_write') != wait.in_write:
            return
        if rank not in met(states):
            return
        # Before the next report, which is of what this rank does then.
        self._wait, wait.states = None, states
        wait.over.set()
