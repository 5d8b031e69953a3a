# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a process ends, without one that does."""

import socket
import threading
from types import SimpleNamespace

import pytest

from keras_parallax.engine.job import process_end
from keras_parallax.engine.job.process_end import ProcessEnd
from keras_parallax.errors import PlanError, WorkerFailedError

PROBLEM = WorkerFailedError('Rank 1 on host a failed.')


class Exited(BaseException):
    """The process would have ended."""


class Timer:
    """Stands for the last resort, which would end the process that runs the tests."""

    seconds = []

    def __init__(self, seconds, function):
        self.seconds.append(seconds)

    def start(self):
        """Nothing comes of it."""


@pytest.fixture
def ending(monkeypatch):
    def exit_process(code):
        raise Exited(code)

    monkeypatch.setattr(process_end.threading, 'Timer', Timer)
    monkeypatch.setattr(process_end.os, '_exit', exit_process)
    monkeypatch.setattr(process_end.hvd, 'shutdown', lambda: None)
    monkeypatch.setattr(Timer, 'seconds', [])
    return ProcessEnd()


@pytest.fixture
def abandoned(monkeypatch):
    sessions = []
    monkeypatch.setattr(process_end, 'abandon_session', sessions.append)
    return sessions


def with_watchdog(ending, claim):
    ending.watchdog = SimpleNamespace(claim=claim, dismiss=lambda: None)
    return ending


def told_by_another(text):
    return [1, 'another reason']


class Step:
    """A step that notes that it is interrupted."""

    def __init__(self):
        self.is_interrupted = threading.Event()

    def interrupt(self):
        self.is_interrupted.set()


class Session:
    """A session that may be abandoned."""


class StubWatchdog:
    """A watchdog without a process, whose rank tells what it claims."""

    def __init__(self, rank, host, **options):
        self.made_of = rank, host, options

    def attend(self, on_lost, look):
        self.on_lost = on_lost

    def claim(self, text):
        return [self.made_of[0], text]

    def dismiss(self):
        """Nobody hears it."""


def test_the_first_problem_counts_and_interrupts_the_steps_there_are(ending):
    step = Step()
    ending.interrupt_on_failure(step)
    ending.fail(PROBLEM)
    ending.fail(WorkerFailedError('another'))
    assert ending.problem is PROBLEM and ending.decided.is_set()
    assert step.is_interrupted.wait(10) and len(Timer.seconds) == 1


def test_no_lock_is_held_while_the_watchdog_asks_the_others(ending):
    """Who fails, or comes to its end, meanwhile does not wait for that."""

    def claim(text):
        second = threading.Thread(target=ending.fail, args=[WorkerFailedError('another')])
        second.start()
        second.join(10)
        assert not second.is_alive() and ending.problem is None
        return told_by_another(text)

    with_watchdog(ending, claim).fail(PROBLEM)
    assert ending.problem is PROBLEM


def test_what_fails_after_the_job_is_over_is_no_problem_and_sessions_are_abandoned(
    ending, abandoned
):
    session = Session()
    ending.abandon_at_exit(session)
    ending.finish()
    assert abandoned == [session]
    ending.fail(PROBLEM)
    assert ending.problem is None and not Timer.seconds


def test_a_process_whose_job_cannot_go_on_ends_and_says_why_once(ending, abandoned, capsys):
    session = Session()
    ending.abandon_at_exit(session)
    ending.fail(PROBLEM)
    with pytest.raises(Exited):
        ending.finish()
    assert capsys.readouterr().err == 'Rank 0 ends: Rank 1 on host a failed.\n'
    # `interrupt` may be running in it.
    assert not abandoned


def test_a_process_ends_silently_where_the_user_has_been_told(ending, capsys):
    with_watchdog(ending, told_by_another).fail(PROBLEM)
    with pytest.raises(Exited):
        ending.finish()
    assert not capsys.readouterr().err
    assert not ending.shows(PROBLEM)


def test_the_problem_is_shown_once_and_another_error_beside_it(ending):
    ending.fail(PROBLEM)
    assert ending.shows(KeyError('another'))
    assert ending.shows(PROBLEM) and not ending.shows(PROBLEM)


@pytest.mark.parametrize('teller, shown', [(0, True), (1, False), (None, False)])
def test_what_several_ranks_find_wrong_alike_is_shown_by_the_first(ending, teller, shown):
    with_watchdog(ending, lambda text: [teller, text])
    assert ending.shows(PlanError('the same everywhere')) is shown
    # A user's own error is shown wherever it comes.
    assert ending.shows(KeyError('the same everywhere'))
    with_watchdog(ending, told_by_another)
    assert ending.shows(PlanError('of this worker alone'))


def test_a_loss_that_the_watchdog_has_told_ends_the_process_silently_and_without_horovod(
    ending, monkeypatch, capsys
):
    monkeypatch.setattr(process_end, 'Watchdog', StubWatchdog)
    ending.start_watchdog(2, lambda: None, hub='there')
    assert ending.watchdog.made_of == (2, socket.gethostname(), {'hub': 'there'})
    ending.watchdog.on_lost('Rank 1 on host a was killed.', True)
    assert isinstance(ending.problem, WorkerFailedError) and Timer.seconds == [8]
    monkeypatch.setattr(ending, 'shut_horovod_down', pytest.fail)
    with pytest.raises(Exited):
        ending.finish()
    assert ending.has_lost and not capsys.readouterr().err


def test_a_rank_whose_watchdog_was_killed_tells_that_itself(ending, monkeypatch, capsys):
    monkeypatch.setattr(process_end, 'Watchdog', StubWatchdog)
    ending.start_watchdog(2, lambda: None)
    ending.watchdog.on_lost('Rank 2 on host a has lost its watchdog.', False)
    with pytest.raises(Exited):
        ending.finish()
    assert capsys.readouterr().err == 'Rank 2 ends: Rank 2 on host a has lost its watchdog.\n'
