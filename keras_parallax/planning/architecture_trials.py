# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which architectures a job tries with steps of its own, and which it keeps. Pure functions.

A trial is some steps by one of them. Its measurement is a pair of the architecture and the seconds
of a step.
"""

import statistics
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tabulate import tabulate
from typing_extensions import Protocol

from keras_parallax.planning.architectures import ALLREDUCE, AUTO, HYBRID, PS
from keras_parallax.planning.memory import HostMemory
from keras_parallax.planning.planned_variables import PlannedModel, PlannedVariable
from keras_parallax.planning.units import counted, seconds_in_words, size_in_words

#: What is tried, in this order: what comes first needs less memory, or is what is followed anyway.
#: `'auto'` is hybrid with those tables dense for which that is cheaper.
TRIED = AUTO, HYBRID, PS, ALLREDUCE

_WORDS = {AUTO: 'hybrid with dense tables'}

#: What takes up to so many times as long as the fastest is tried so often, in turns: the machine's
#: own speed drifts, too. Each change builds the step anew, so there are no more.
_NEAR, _TRIALS = 1.15, 2

#: What is slower than the fastest by no more than this is as good, if it comes first.
_AS_GOOD = 1.02

#: Variables are moved for a trial if they have no more bytes, slots included. To copy more takes
#: longer than the trial, and a message has 2 GB.
_MOST_MOVED = 2**30

#: And if there are no more of them, for each makes the graph larger: with TensorFlow 1.11 fifty
#: tables of a DeepFM took minutes on their way to every worker.
_MOST_VARIABLES = 32


class _Candidate(PlannedModel, Protocol):
    """A plan whose memory is known."""

    def memory(self) -> List[HostMemory]:
        """The memory of each host."""


def words_of(architecture: str) -> str:
    """What reports call an architecture that is tried."""
    return _WORDS.get(architecture, architecture)


class Trials(NamedTuple):
    """What has come of the trials so far.

    Attributes:
        following: the architecture that is followed.
        measured: the measurements, in order.
        left_out: pairs of an architecture that is not tried, and why, in words.
        is_over: whether it is followed for good.
    """

    following: str
    measured: Tuple[Tuple[str, float], ...] = ()
    left_out: Tuple[Tuple[str, str], ...] = ()
    is_over: bool = False

    def in_words(self) -> str:
        """Why `following` is followed, with numbers.

        Example:
            ```python
            >>> Trials('ps', (('hybrid', 0.04), ('ps', 0.03)), (), True).in_words()
            'the fastest of those tried: ps takes 30 ms a step, hybrid 40 ms'
            ```
        """
        taken = sorted(_typical(self.measured).items(), key=lambda pair: pair[1])
        forms = ['%s takes %s a step'] + ['%s %s'] * len(taken)
        told = [
            form % (words_of(name), seconds_in_words(seconds))
            for form, (name, seconds) in zip(forms, taken)
        ]
        if not self.is_over:
            parts = [', '.join(['being tried'] + told)]
        elif len(told) < 2:
            parts = ['nothing else was tried']
        else:
            best = 'the fastest' if taken[0][0] == self.following else 'as good as the fastest'
            parts = ['%s of those tried: %s' % (best, ', '.join(told))]
        return '; '.join(
            parts + ['not tried: %s, %s' % (words_of(name), why) for name, why in self.left_out]
        )

    def report(self) -> str:
        """The measurements and what has come of them, as text of several lines."""
        rows = [
            (words_of(name), counted(_count(self.measured, name), 'trial'), seconds * 1e3)
            for name, seconds in _typical(self.measured).items()
        ]
        table = tabulate(rows, ('architecture', '', 'a step (ms)'), 'simple', floatfmt='.2f')
        lines = table.splitlines()
        lines += ['Not tried: %s, %s' % (words_of(name), why) for name, why in self.left_out]
        return '\n'.join(line.rstrip() for line in lines + ['Chosen: ' + words_of(self.following)])


def _typical(measured: Iterable[Tuple[str, float]]) -> Dict[str, float]:
    """The seconds of a step of each architecture, a dict: the median of its trials."""
    by_name: Dict[str, List[float]] = {}
    for name, seconds in measured:
        by_name.setdefault(name, []).append(seconds)
    return {name: statistics.median(of_name) for name, of_name in by_name.items()}


def _count(measured: Iterable[Tuple[str, float]], name: str) -> int:
    return sum(1 for other, _ in measured if other == name)


def candidates(
    plans: Mapping[str, _Candidate], free_memory: float
) -> Tuple[List[str], List[Tuple[str, str]]]:
    """Which plans are worth a trial.

    Args:
        plans: a dict from architectures to `Plan`s of one model; the first one is followed. Their
            variables have `Update`s, as far as those are known.
        free_memory: bytes that are free on the fullest host.

    Returns:
        A list of architectures, and a list of pairs of what is left out, and why. What is the same
        as one before it is left out without a word.
    """
    exchanged = {
        name: [(variable.kind, variable.shards) for variable in plan.variables]
        for name, plan in plans.items()
    }
    if exchanged.get(AUTO) == exchanged.get(HYBRID):
        exchanged.pop(AUTO, None)  # No table is cheaper dense.
    now, found, left_out, seen = next(iter(plans.values())), [], [], []
    # What has left its shards already may go back to them.
    home = plans.get(HYBRID, now)
    for name, of_name in exchanged.items():
        if of_name in seen:
            continue
        seen.append(of_name)
        plan = plans[name]
        moving = [
            after
            for before, after in zip(home.variables, plan.variables)
            if plan is not now and bool(before.shards) != bool(after.shards)
        ]
        moved = sum(map(_bytes_with_slots, moving))
        added = _most_memory(plan) - _most_memory(now)
        if moved > _MOST_MOVED:
            why = 'for which %s would have to move (at most %s do)' % tuple(
                map(size_in_words, (moved, _MOST_MOVED))
            )
        elif len(moving) > _MOST_VARIABLES:
            why = 'for which %d variables would have to move (at most %d do)' % (
                len(moving),
                _MOST_VARIABLES,
            )
        elif added > free_memory:
            why = 'which needs %s more of memory on a host (%s are free)' % tuple(
                map(size_in_words, (added, free_memory))
            )
        else:
            found.append(name)
            continue
        left_out.append((name, why))
    return found, left_out


def _bytes_with_slots(variable: PlannedVariable) -> float:
    slots = variable.update.slots if variable.update else None
    return variable.bytes * (1 + (slots or 0))


def _most_memory(plan: _Candidate) -> float:
    return max(host.total for host in plan.memory())


def next_trial(measured: Sequence[Tuple[str, float]], names: Sequence[str]) -> Optional[str]:
    """The architecture to try next, of those of some names; `None` if there has been enough.

    Each is tried once. Those that are near the fastest are tried again, in turns, beginning with
    the one that was tried last, which is still followed.

    Example:
        ```python
        >>> next_trial([('hybrid', 0.03)], ['hybrid', 'ps'])
        'ps'
        >>> next_trial([('hybrid', 0.03), ('ps', 0.031)], ['hybrid', 'ps'])
        'ps'
        >>> next_trial([('hybrid', 0.03), ('ps', 0.06)], ['hybrid', 'ps']) is None
        True
        ```
    """
    typical = _typical(measured)
    for name in names:
        if name not in typical:
            return name
    near = [name for name in names if typical[name] <= _NEAR * min(typical.values())]
    count = min(_count(measured, name) for name in near)
    if len(near) == 1 or count >= _TRIALS:
        return None
    due = [name for name in near if _count(measured, name) == count]
    return measured[-1][0] if measured[-1][0] in due else due[0]


def choose(measured: Sequence[Tuple[str, float]], names: Sequence[str]) -> str:
    """The architecture to keep: the first of those names that are about as fast as the fastest.

    Example:
        ```python
        >>> choose([('hybrid', 0.0303), ('ps', 0.03), ('allreduce', 0.02)], ['hybrid', 'ps'])
        'hybrid'
        ```
    """
    typical = {name: seconds for name, seconds in _typical(measured).items() if name in names}
    return next(name for name in names if typical[name] <= _AS_GOOD * min(typical.values()))
