# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Why a job failed, read from the lines that its workers and its launcher print."""

import math
import re
import signal
from typing import Dict, List, NamedTuple, Optional

#: What a worker still prints on its way out says nothing against an exception before.
_WAY_OUT_SECONDS = 2.0
_LONGEST_CAUSE = 400
_MOST_LINES = 60

#: The sentences of workers and of their watchdogs about a worker that is lost.
_SENTENCE = re.compile(
    r'(?:(?:keras_parallax\.errors\.)?(?P<error>\w+): |Rank \d+ ends: )?'
    r'(?P<text>Rank (?P<rank>\d+)(?: on host \S+)? (?P<what>failed|ended|was killed|was out of|'
    r'has been stopped|has hung|has ended|has lost|has waited|has had no news|is told to end|'
    r'does not answer).*)'
)
#: What a worker says that has only noticed that another one is gone.
_NOTICED = ('has lost', 'has waited', 'has had no news', 'is told to end')
_TRACEBACK = 'Traceback (most recent call last):'
_EXCEPTION = re.compile(r'(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$')
_NOTICED_BY_TENSORFLOW = re.compile(
    r'(?:\w+\.)*(?:HorovodInternalError|UnavailableError|AbortedError|CancelledError|'
    r'WorkerFailedError)\b|.*Horovod has been shut down'
)
_STATUS = re.compile(r'Process (?P<rank>\d+) exit with status code (?P<code>\d+)')
#: What the shell and the launcher write among a worker's lines when it has been ended, maybe after
#: the bar that it was drawing.
_WAS_ENDED = re.compile(r'(?:Terminated|Killed)$|.*' + _STATUS.pattern)

#: How exit codes of processes tell a signal that has ended them.
_BY_SIGNAL = 128


class Cause(NamedTuple):
    """What has ended a job.

    Attributes:
        rank: the worker, `None` if it is not known.
        text: a sentence without a full stop.
        traceback: the lines of its exception's traceback, empty if there is none.
    """

    rank: Optional[int]
    text: str
    traceback: List[str]


class _Event(NamedTuple):
    rank: int
    text: str
    at: float
    is_noticed: bool
    is_exception: bool
    traceback: List[str]


class FailureCause:
    """Finds the cause in the lines of all workers and of the launcher, in the order of arrival."""

    def __init__(self) -> None:
        self._events: List[_Event] = []
        self._codes: Dict[int, int] = {}
        self._last_lines: Dict[int, str] = {}
        self._tracebacks: Dict[int, List[str]] = {}

    def take(self, rank: Optional[int], line: str, at: float, is_error: bool = True) -> None:
        """Takes a line that is no start-up note.

        Args:
            rank: the worker that has printed it, `None` if it was the launcher.
            line: the line, without its end.
            at: when it came, in seconds.
            is_error: whether it came on the standard error stream.
        """
        if rank is None:
            status = _STATUS.match(line)
            if status:
                self._codes.setdefault(int(status.group('rank')), int(status.group('code')))
                return
        sentence = _SENTENCE.match(line)
        if sentence:
            # It is the last exception of its worker, whose others it explains.
            self._forget_exceptions(rank)
            is_noticed = sentence.group('what') in _NOTICED
            self._add(int(sentence.group('rank')), sentence.group('text'), at, is_noticed, False)
        if rank is None or not line.strip():
            return
        if is_error:
            self._last_lines[rank] = line
            self._take_traceback(rank, line, at, sentence is not None)
        # A worker that goes on has caught its exception.
        if not _WAS_ENDED.match(line):
            self._forget_exceptions(rank, at - _WAY_OUT_SECONDS)

    def _take_traceback(self, rank: int, line: str, at: float, is_sentence: bool) -> None:
        lines = self._tracebacks.get(rank, [])
        # Python shows no heading for a script that it cannot read.
        if line == _TRACEBACK or (not lines and line.startswith('  File "')):
            self._tracebacks[rank] = [line]
            return
        if not lines:
            return
        if len(lines) < _MOST_LINES or not line.startswith(' '):
            lines.append(line)
        exception = _EXCEPTION.match(line)
        if line.startswith(' ') or exception is None:
            return
        del self._tracebacks[rank]
        if not is_sentence:
            is_noticed = bool(_NOTICED_BY_TENSORFLOW.match(line))
            short = line[len('keras_parallax.errors.') :]
            text = short if line.startswith('keras_parallax.errors.') else line
            # Of several exceptions in a row, the last one ends the process.
            self._forget_exceptions(rank)
            self._add(rank, 'Rank %d failed: %s' % (rank, text), at, is_noticed, True, lines)

    def _forget_exceptions(self, rank: Optional[int], before: float = math.inf) -> None:
        self._events = [
            event
            for event in self._events
            if not (event.is_exception and event.rank == rank and event.at < before)
        ]

    def _add(
        self,
        rank: int,
        text: str,
        at: float,
        is_noticed: bool,
        is_exception: bool,
        traceback: Optional[List[str]] = None,
    ) -> None:
        event = _Event(rank, text, at, is_noticed, is_exception, traceback or [])
        self._events.append(event)

    def found(self) -> Optional[Cause]:
        """The cause, or `None` if nothing tells it."""
        first = [event for event in self._events if not event.is_noticed]
        codes = self._codes
        if first:
            return self._of_event(first[0])
        for rank, code in codes.items():
            # The launcher ends all workers by SIGTERM when it has seen one fail.
            if code not in (0, _BY_SIGNAL + signal.SIGTERM):
                return self._of_code(rank, code)
        if self._events:
            return self._of_event(self._events[0])
        for rank, code in codes.items():
            if code:
                return self._of_code(rank, code)
        return None

    def _of_event(self, event: _Event) -> Cause:
        text = event.text
        if ' was killed' in text and event.rank in self._codes and 'memory' not in text:
            name = _signal_name(self._codes[event.rank])
            if name:
                text = '%s was killed by %s' % (text.partition(' was killed')[0], name)
        # A watchdog explains further what exit codes mean.
        text = text.partition('; the exit status that')[0].rstrip('.')
        traceback = event.traceback
        if not traceback:
            own = [other for other in self._events if other.rank == event.rank]
            traceback = next((other.traceback for other in own if other.traceback), [])
        return Cause(event.rank, text[:_LONGEST_CAUSE], traceback)

    def _of_code(self, rank: int, code: int) -> Cause:
        name = _signal_name(code)
        if name:
            return Cause(rank, 'Rank %d was killed by %s' % (rank, name), [])
        text = 'Rank %d ended with exit code %d' % (rank, code)
        if rank in self._last_lines:
            text += '; the last line of its standard error is: ' + self._last_lines[rank]
        return Cause(rank, text[:_LONGEST_CAUSE], [])


def _signal_name(code: int) -> Optional[str]:
    """The name of the signal that has ended a process with this exit code, or `None`."""
    try:
        return signal.Signals(code - _BY_SIGNAL).name if code > _BY_SIGNAL else None
    except ValueError:
        return None
