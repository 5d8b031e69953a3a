"""Whether a job can go on, judged from what its ranks report, and when they are to report."""

from typing import NamedTuple

from keras_parallax.errors import (
    ServerLostError,
    UnequalBatchesError,
    UnequalCallsError,
    WorkerFailedError,
)

#: The states that a rank reports.
RUNNING, FINISHED, FAILED = 'running', 'finished', 'failed'

#: How often ranks tell each other how they are: at all; while they train in lockstep, for no step
#: ends if one of them is not well; and while one waits until the others read a table no more, to
#: write it. Each time takes Horovod 2 ms of every processor between two ranks, 3 between four, and
#: what they compute meanwhile waits for each other.
INTERVAL_SECONDS, QUIET_SECONDS, AWAITED_SECONDS = 4.0, 32.0, 0.25


#: How long after an error one rank's step may go on that another's has ended with: where all fail
#: alike, they do not at the same moment.
_TOGETHER_SECONDS = 3.0


class Progress(NamedTuple):
    """How far a rank has come."""

    #: Training steps begun, and collectives begun outside steps, by `Job.collective`.
    steps: int = 0
    gathers: int = 0
    #: Whether it is in a step that ends for no rank before all have begun it.
    in_lockstep: bool = False
    #: Whether it waits for the other ranks in such a collective, and the name of the call it is in.
    in_gather: bool = False
    call: str = None
    #: Where an error has ended training last: the step that it came, or would have come, to,
    #: `gathers` at that time, and the error in words.
    broken: list = None


def report_due(reported, lockstep_began, is_awaited=False):
    """When a rank that has nothing new to tell is to tell the others how it is, a time.

    All ranks begin a step of lockstep at about the same time, so they come to the same answer. If
    one fails, the others' step does not end, and they hear of it as soon as if they were idle.

    Args:
        reported: when it last did.
        lockstep_began: when it last began a step of lockstep.
        is_awaited: whether a rank waits at a write, as `write_order` says.
    """
    if is_awaited:
        return reported + AWAITED_SECONDS
    return min(max(reported, lockstep_began) + INTERVAL_SECONDS, reported + QUIET_SECONDS)


def diagnose(states, step_timeout=0):
    """Judges the reports of all ranks.

    Args:
        states: a list with a dict for each rank: `state`, the fields of its `Progress`, `in_step`
            (seconds that its present step lasts, 0 between steps), `in_call` (the same of a
            collective outside steps, or at a write), `in_write` (as `write_order.met` takes it),
            `in_horovod` (the name of an operation of Horovod's in which the script itself has been
            for long), `host`, `error` (a sentence, of a failed rank), `lost` (a sentence about a
            dedicated server that is gone). `broken` has a fourth item, the seconds since then.
        step_timeout: seconds that a step, or a wait outside steps, may last; 0 for any time.

    Returns:
        `None` if the job can go on, otherwise an exception that says why it cannot.
    """
    for state in states:
        if state.get('lost'):
            return ServerLostError(state['lost'])
    problem = _failed(states) or _parted(states) or _ended(states)
    return problem or _overdue(states, step_timeout)


def different_calls(calls):
    """The exception for ranks that meet in these calls, a list of names, or `None` if they may."""
    for rank, call in enumerate(calls):
        if call != calls[0]:
            return _apart(0, calls[0], rank, call)
    return None


def _apart(first, call, second, another):
    return UnequalCallsError(
        'Rank %d is in %s, but rank %d in %s; make the same calls on every rank, in the same order.'
        % (first, _call_name(call), second, _call_name(another))
    )


def _call_name(call):
    return call or 'a call that all ranks make'


def _names(ranks):
    return ' and '.join('rank %d' % rank for rank in ranks)


def _failed(states):
    """The exception for a rank that has failed, or that has caught what has ended its training.

    Of the latter the others hear unless all have had an error.
    """
    for rank, state in enumerate(states):
        if state['state'] == FAILED:
            words = rank, state['host'], state['error']
            return WorkerFailedError('Rank %d on host %s failed: %s' % words)
    for rank, state in enumerate(states):
        step, gathers, error, ago = state.get('broken') or (0, 0, None, 0)
        for other in states if step and ago >= _TOGETHER_SECONDS else ():
            waits = other.get('in_gather') and other['gathers'] > gathers
            goes_on = other['state'] == RUNNING and (waits or other['steps'] >= step)
            if goes_on and (other.get('broken') or [0])[0] < step:
                words = rank, state['host'], step, error
                return WorkerFailedError(
                    'Rank %d on host %s failed in training batch %d: %s' % words
                )
    return None


def _ended(states):
    """The exception for ranks that have ended while others wait for them, or `None`."""
    ended = [rank for rank, state in enumerate(states) if state['state'] == FINISHED]
    fewest = min(ended, key=lambda rank: states[rank]['steps'], default=None)
    begun = [
        'rank %d began batch %d' % (rank, state['steps'])
        for rank, state in enumerate(states)
        if ended and state['steps'] > states[fewest]['steps']
    ]
    if begun:
        return UnequalBatchesError(
            'Rank %d ended after %d training batches while %s; give every rank the same number of '
            'batches.' % (fewest, states[fewest]['steps'], ', '.join(begun))
        )
    for rank, state in enumerate(states):
        gone, call = ended, "Horovod's operation %s" % state.get('in_horovod')
        if state.get('in_gather'):
            gone = [other for other in ended if _is_behind(states[other], state)]
            call = _call_name(state.get('call'))
        if gone and (state.get('in_gather') or state.get('in_horovod')):
            return UnequalCallsError(
                'Rank %d waits in %s for %s, which %s ended; make the same calls on every rank, '
                'and let none end before the others.'
                % (rank, call, _names(gone), 'has' if len(gone) == 1 else 'have')
            )
    return None


def _parted(states):
    """The exception for two ranks that wait for each other at different places, or `None`.

    One waits where all ranks tell each other something, and another in a step that the first has
    not begun, or in another call. Neither can go on, and so the ranks need not have reported at the
    same moment.
    """
    for rank, state in enumerate(states):
        for other, ahead in enumerate(states):
            call, another = state.get('call'), ahead.get('call')
            meet = state.get('in_gather') and ahead.get('in_gather')
            if meet and state['gathers'] == ahead['gathers'] and call != another:
                return _apart(rank, call, other, another)
            waits = state.get('in_gather') and ahead.get('in_lockstep')
            if waits and state['gathers'] > ahead['gathers'] and state['steps'] < ahead['steps']:
                return UnequalBatchesError(
                    'Rank %d waits for the other ranks after %d training batches, in %s, while '
                    'rank %d began batch %d; give every rank the same number of batches, and make '
                    'the same calls on every rank.'
                    % (rank, state['steps'], _call_name(call), other, ahead['steps'])
                )
    return None


def _overdue(states, step_timeout):
    """The exception for a step or another wait that has lasted too long, or `None`."""
    if not step_timeout:
        return None
    for rank, state in enumerate(states):
        if state.get('in_call', 0) > step_timeout:
            late = [other for other in range(len(states)) if _is_behind(states[other], state)]
            awaited = _names(late) or 'the others'
            waited = rank, state['in_call'], _call_name(state.get('call')), awaited
            return _hang('Rank %d has waited %d s in %s for %s' % waited)
    first = max(range(len(states)), key=lambda rank: states[rank]['in_step'])
    step, seconds, host = (states[first][name] for name in ('steps', 'in_step', 'host'))
    if seconds <= step_timeout:
        return None
    behind = [
        'rank %d on host %s' % (rank, state['host'])
        for rank, state in enumerate(states)
        if state['steps'] < step
    ]
    waited = 'Rank %d has waited %d s in training batch %d for %s, which did not begin it'
    lasted = 'Training batch %d has lasted %d s on rank %d on host %s, and all ranks have begun it'
    if behind:
        return _hang(waited % (first, seconds, step, ' and '.join(behind)))
    return _hang(lasted % (step, seconds, first, host))


def _hang(text):
    advice = '. If that is no hang, allow more with ParallaxStrategy(step_timeout=...).'
    return WorkerFailedError(text + advice)


def _is_behind(state, waiting):
    if waiting.get('in_write'):
        return state.get('in_write') != waiting['in_write']
    return state.get('gathers', 0) < waiting['gathers']
