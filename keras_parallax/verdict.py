"""Whether a job can go on, judged from what its ranks report, and when they are to report."""

from typing import NamedTuple

from keras_parallax.errors import ServerLostError, UnequalBatchesError, WorkerFailedError

#: The states that a rank reports.
RUNNING, FINISHED, FAILED = 'running', 'finished', 'failed'
#: How often ranks tell each other how they are. Each time takes Horovod 2 ms of every processor
#: between two ranks, 3 between four, and what they compute meanwhile waits for each other.
INTERVAL_SECONDS = 4.0
#: The same, while they train in lockstep: no step ends if one of them is not well.
QUIET_SECONDS = 32.0


class Progress(NamedTuple):
    """How far a rank has come.

    Attributes:
        steps: training steps begun.
        gathers: calls of `Job.gather` begun.
        in_lockstep: whether it is in a step that ends for no rank before all have begun it.
        in_gather: whether it waits for the other ranks in `Job.gather`.
    """

    steps: int = 0
    gathers: int = 0
    in_lockstep: bool = False
    in_gather: bool = False


def report_due(reported, lockstep_began):
    """When a rank that has nothing new to tell is to tell the others how it is.

    All ranks begin a step of lockstep at about the same time, so they come to the same answer. If
    one fails, the others' step does not end, and they hear of it as soon as if they were idle.

    Args:
        reported: when it last did, seconds of any clock.
        lockstep_began: when it last began a step that ends for no rank before all have begun it.

    Returns:
        A time.

    Example:
        ```python
        >>> report_due(100, 0), report_due(100, 110), report_due(100, 131)
        (104.0, 114.0, 132.0)
        ```
    """
    return min(max(reported, lockstep_began) + INTERVAL_SECONDS, reported + QUIET_SECONDS)


def verdict(states, step_timeout=0):
    """Judges the reports of all ranks.

    Args:
        states: a list with a dict for each rank: `state`, the fields of its `Progress`, `in_step`
            (seconds that its present step lasts, 0 between steps), `host`, `error` (a sentence, of
            a failed rank), `lost` (a sentence about a dedicated server that the rank has found to
            be gone).
        step_timeout: seconds that a step may last; 0 for any time.

    Returns:
        `None` if the job can go on, otherwise an exception that says why it cannot.
    """
    for state in states:
        if state.get('lost'):
            return ServerLostError(state['lost'])
    for rank, state in enumerate(states):
        if state['state'] == FAILED:
            return WorkerFailedError(
                'Rank %d on host %s failed: %s' % (rank, state['host'], state['error'])
            )
    parted = _parted(states)
    if parted:
        return parted
    ended = [rank for rank, state in enumerate(states) if state['state'] == FINISHED]
    if not ended:
        return _overdue(states, step_timeout)
    fewest = min(ended, key=lambda rank: states[rank]['steps'])
    waiting = [
        rank for rank, state in enumerate(states) if state['steps'] > states[fewest]['steps']
    ]
    if not waiting:
        return _overdue(states, step_timeout)
    return UnequalBatchesError(
        'Rank %d ended after %d training batches while %s; give every rank the same number of '
        'batches.'
        % (
            fewest,
            states[fewest]['steps'],
            ', '.join('rank %d began batch %d' % (rank, states[rank]['steps']) for rank in waiting),
        )
    )


def speaker(states):
    """The one rank that tells the user why the job cannot go on; a failed one tells that itself.

    Args:
        states: as `verdict` takes them.

    Returns:
        The lowest of those ranks that are not to blame, if there are any: of the ranks that run,
        one that has begun the most steps.
    """

    def aptness(rank):
        state = states[rank]
        return state['state'] == RUNNING, state['state'] != FAILED, state['steps'], -rank

    return max(range(len(states)), key=aptness)


def _parted(states):
    """The exception for two ranks that wait for each other at different places, or `None`.

    One waits where all ranks tell each other something, and another in a step that the first has
    not begun. Neither can go on, and so the ranks need not have reported at the same moment.
    """
    for rank, state in enumerate(states):
        for other, ahead in enumerate(states):
            waits = state.get('in_gather') and ahead.get('in_lockstep')
            if waits and state['gathers'] > ahead['gathers'] and state['steps'] < ahead['steps']:
                return UnequalBatchesError(
                    'Rank %d waits for the other ranks after %d training batches, at the end of an '
                    'epoch for instance, while rank %d began batch %d; give every rank the same '
                    'number of batches.' % (rank, state['steps'], other, ahead['steps'])
                )
    return None


def _overdue(states, step_timeout):
    """The exception for a step that has lasted too long, or `None`."""
    first = max(range(len(states)), key=lambda rank: states[rank]['in_step'])
    if not step_timeout or states[first]['in_step'] <= step_timeout:
        return None
    step = states[first]['steps']
    behind = [
        'rank %d on host %s' % (rank, state['host'])
        for rank, state in enumerate(states)
        if state['steps'] < step
    ]
    if behind:
        return WorkerFailedError(
            'Rank %d has waited %d s in training batch %d for %s, which did not begin it. If that '
            'is no hang, allow more with ParallaxStrategy(step_timeout=...).'
            % (first, states[first]['in_step'], step, ' and '.join(behind))
        )
    return WorkerFailedError(
        'Training batch %d has lasted %d s on rank %d on host %s, and all ranks have begun it. If '
        'that is no hang, allow more with ParallaxStrategy(step_timeout=...).'
        % (step, states[first]['in_step'], first, states[first]['host'])
    )
