# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether a job can go on, judged from what its workers report, and when they are to report."""

from typing import Any, Iterable, List, NamedTuple, Optional, Sequence

from typing_extensions import TypedDict

from keras_parallax.errors import (
    ParallaxError,
    ServerLostError,
    UnequalBatchesError,
    UnequalCallsError,
    WorkerFailedError,
)

#: The states that a worker reports.
RUNNING, FINISHED, FAILED = 'running', 'finished', 'failed'

#: How often workers tell each other how they are: at all; while they train in lockstep, for no step
#: ends if one of them is not well; and while one waits until the others read a table no more, to
#: write it. Each time takes Horovod 2 ms of every processor between two workers, 3 between four,
#: and what they compute meanwhile waits for each other.
INTERVAL_SECONDS, QUIET_SECONDS, AWAITED_SECONDS = 4.0, 32.0, 0.25


#: How long after an error one worker's step may go on that another's has ended with: where all fail
#: alike, they do not at the same moment.
_TOGETHER_SECONDS = 3.0


class Progress(NamedTuple):
    """How far a worker has come."""

    #: Training steps begun, and collectives begun outside steps, by `Job.collective`.
    steps: int = 0
    gathers: int = 0
    #: Whether it is in a step that ends for no worker before all have begun it.
    in_lockstep: bool = False
    #: Whether it waits for the other ranks in such a collective, and the name of the call it is in.
    in_gather: bool = False
    call: Optional[str] = None
    #: Where an error has ended training last: the step that it came, or would have come, to,
    #: `gathers` at that time, and the error in words.
    broken: Optional[List[Any]] = None


class State(TypedDict, total=False):
    """What a worker reports, as `diagnose` takes it."""

    state: str
    host: str
    error: Optional[str]
    steps: int
    gathers: int
    in_lockstep: bool
    in_gather: bool
    call: Optional[str]
    broken: Optional[List[Any]]
    in_step: float
    in_call: float
    in_write: List[Any]
    in_horovod: str
    lost: Optional[str]
    by_exit: str
    in_thread: str


def report_due(reported: float, lockstep_began: float, is_awaited: bool = False) -> float:
    """When a worker that has nothing new to tell is to tell the others how it is, a time.

    All workers begin a step of lockstep at about the same time, so they come to the same answer. If
    one fails, the others' step does not end, and they hear of it as soon as if they were idle.

    Args:
        reported: when it last did.
        lockstep_began: when it last began a step of lockstep.
        is_awaited: whether a worker waits at a write, as `write_order` says.
    """
    if is_awaited:
        return reported + AWAITED_SECONDS
    return min(max(reported, lockstep_began) + INTERVAL_SECONDS, reported + QUIET_SECONDS)


def diagnose(states: Sequence[State], step_timeout: float = 0) -> Optional[ParallaxError]:
    """Judges the reports of all workers.

    Args:
        states: a list with a dict for each worker: `state`, the fields of its `Progress`, `in_step`
            (seconds that its present step lasts, 0 between steps), `in_call` (the same of a
            collective outside steps, or at a write), `in_write` (as `write_order.met` takes it),
            `in_horovod` (the name of an operation of Horovod's in which the script itself has been
            for long), `host`, `error` (a sentence, of a failed worker), `lost` (a sentence about a
            dedicated server that is gone), `by_exit` (what `sys.exit` was given) and `in_thread`
            (the exception that has ended a thread). `broken` has a fourth item, the seconds since
            then.
        step_timeout: seconds that a step, or a wait outside steps, may last; 0 for any time.

    Returns:
        `None` if the job can go on, otherwise an exception that says why it cannot.
    """
    for state in states:
        if state.get('lost'):
            return ServerLostError(state['lost'])
    problem = _failed(states) or _parted(states) or _ended(states)
    return problem or _overdue(states, step_timeout)


def different_calls(calls: Sequence[Optional[str]]) -> Optional[ParallaxError]:
    """The exception for workers that meet in calls of these names, or `None` if they may."""
    for rank, call in enumerate(calls):
        if call != calls[0]:
            return _apart(0, calls[0], rank, call)
    return None


def _apart(
    first: int, call: Optional[str], second: int, another: Optional[str]
) -> UnequalCallsError:
    return UnequalCallsError(
        'Rank %d is in %s, but rank %d in %s; make the same calls on every worker, in the same '
        'order.' % (first, _call_name(call), second, _call_name(another))
    )


def _call_name(call: Optional[str]) -> str:
    return call or 'a call that all workers make'


def _names(ranks: Iterable[int]) -> str:
    return ' and '.join('rank %d' % rank for rank in ranks)


def _failed(states: Sequence[State]) -> Optional[ParallaxError]:
    """The exception for a worker that has failed, or that has caught what has ended its training.

    Of the latter the others hear unless all have had an error.
    """
    for rank, state in enumerate(states):
        if state['state'] == FAILED:
            return WorkerFailedError(
                'Rank %d on host %s failed: %s' % (rank, state['host'], state['error'])
            )
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


def _ended(states: Sequence[State]) -> Optional[ParallaxError]:
    """The exception for workers that have ended while others wait for them, or `None`."""
    ended = [rank for rank, state in enumerate(states) if state['state'] == FINISHED]
    if not ended:
        return None
    fewest = min(ended, key=lambda rank: states[rank]['steps'])
    begun = [
        'rank %d began batch %d' % (rank, state['steps'])
        for rank, state in enumerate(states)
        if state['steps'] > states[fewest]['steps']
    ]
    if begun:
        return UnequalBatchesError(
            'Rank %d ended after %d training batches while %s; give every worker the same number '
            'of batches.%s'
            % (fewest, states[fewest]['steps'], ', '.join(begun), _last_words(states, [fewest]))
        )
    for rank, state in enumerate(states):
        gone, call = ended, "Horovod's operation %s" % state.get('in_horovod')
        if state.get('in_gather'):
            gone = [other for other in ended if _is_behind(states[other], state)]
            call = _call_name(state.get('call'))
        if gone and (state.get('in_gather') or state.get('in_horovod')):
            return UnequalCallsError(
                'Rank %d waits in %s for %s, which %s ended; make the same calls on every worker, '
                'and let none end before the others.%s'
                % (
                    rank,
                    call,
                    _names(gone),
                    'has' if len(gone) == 1 else 'have',
                    _last_words(states, gone),
                )
            )
    return None


def _last_words(states: Sequence[State], ranks: Iterable[int]) -> str:
    """Sentences about what has ended some workers, or their threads; `''` if nothing is known."""
    sentences = []
    for rank in ranks:
        if states[rank].get('by_exit'):
            sentences.append(' Rank %d ended by %s.' % (rank, states[rank]['by_exit']))
        if states[rank].get('in_thread'):
            words = rank, states[rank]['in_thread']
            sentences.append(' A thread of rank %d had ended with %s.' % words)
    return ''.join(sentences)


def _parted(states: Sequence[State]) -> Optional[ParallaxError]:
    """The exception for two workers that wait for each other at different places, or `None`.

    One waits where all workers tell each other something, and another in a step that the first has
    not begun, or in another call. Neither can go on, and so the workers need not have reported at
    the same moment.
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
                    'Rank %d waits for the other workers after %d training batches, in %s, while '
                    'rank %d began batch %d; give every worker the same number of batches, and '
                    'make the same calls on every worker.'
                    % (rank, state['steps'], _call_name(call), other, ahead['steps'])
                )
    return None


def _overdue(states: Sequence[State], step_timeout: float) -> Optional[ParallaxError]:
    """The exception for a step or another wait that has lasted too long, or `None`."""
    if not step_timeout:
        return None
    for rank, state in enumerate(states):
        if state.get('in_call', 0) > step_timeout:
            late = [other for other in range(len(states)) if _is_behind(states[other], state)]
            awaited = _names(late) or 'the others'
            waited = rank, state['in_call'], _call_name(state.get('call')), awaited
            text = 'Rank %d has waited %d s in %s for %s' % waited
            if state.get('in_write'):
                text += (
                    ', which may still read the earlier values. Write to a sharded table on every '
                    'worker, in the same order'
                )
            return _hang(text, _last_words(states, late))
    first = max(range(len(states)), key=lambda rank: states[rank]['in_step'])
    step, seconds, host = states[first]['steps'], states[first]['in_step'], states[first]['host']
    if seconds <= step_timeout:
        return None
    behind = [
        'rank %d on host %s' % (rank, state['host'])
        for rank, state in enumerate(states)
        if state['steps'] < step
    ]
    awaits = 'Rank %d has waited %d s in training batch %d for %s, which did not begin it'
    lasted = (
        'Training batch %d has lasted %d s on rank %d on host %s, and all workers have begun it'
    )
    if behind:
        late = [rank for rank, state in enumerate(states) if state['steps'] < step]
        text = awaits % (first, seconds, step, ' and '.join(behind))
        return _hang(text, _last_words(states, late))
    return _hang(lasted % (step, seconds, first, host))


def _hang(text: str, last_words: str = '') -> WorkerFailedError:
    advice = '. If that is no hang, allow more with ParallaxStrategy(step_timeout=...).'
    return WorkerFailedError(text + advice + last_words)


def _is_behind(state: State, waiting: State) -> bool:
    if waiting.get('in_write'):
        return state.get('in_write') != waiting['in_write']
    return state.get('gathers', 0) < waiting['gathers']
