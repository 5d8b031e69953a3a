"""How a process ends, without one that does."""

import threading
from types import SimpleNamespace

import pytest

from keras_parallax.errors import WorkerFailedError
from keras_parallax.job import process_end
from keras_parallax.job.process_end import ProcessEnd

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


def with_watchdog(ending, is_told):
    ending.watchdog = SimpleNamespace(is_told=is_told, dismiss=lambda: None)
    return ending


class Step:
    """A step that notes that it is interrupted."""

    def __init__(self):
        self.is_interrupted = threading.Event()

    def interrupt(self):
        self.is_interrupted.set()


class Session:
    """A session that may be abandoned."""


def test_the_first_problem_counts_and_interrupts_the_steps_there_are(ending):
    step = Step()
    ending.interrupt_on_failure(step)
    ending.fail(PROBLEM)
    ending.fail(WorkerFailedError('another'))
    assert ending.problem is PROBLEM and ending.decided.is_set()
    assert step.is_interrupted.wait(10) and len(Timer.seconds) == 1


def test_no_lock_is_held_while_the_watchdog_asks_the_others(ending):
    """Who fails, or comes to its end, meanwhile does not wait for that."""

    def is_told(words):
        second = threading.Thread(target=ending.fail, args=[WorkerFailedError('another')])
        second.start()
        second.join(10)
        assert not second.is_alive() and ending.problem is None
        return True

    with_watchdog(ending, is_told).fail(PROBLEM)
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
    with_watchdog(ending, lambda words: True).fail(PROBLEM)
    with pytest.raises(Exited):
        ending.finish()
    assert not capsys.readouterr().err
    assert not ending.shows(PROBLEM, is_told=False)


def test_the_problem_is_shown_once_and_another_error_beside_it(ending):
    ending.fail(PROBLEM)
    assert ending.shows(KeyError('another'), is_told=False)
    assert ending.shows(PROBLEM, is_told=False) and not ending.shows(PROBLEM, is_told=False)


def test_what_several_ranks_find_wrong_alike_is_shown_by_one(ending):
    assert not ending.shows(KeyError('the same everywhere'), is_told=True)


@pytest.mark.parametrize(
    'is_told, at_start, seconds', [(False, False, 10), (True, False, 20), (True, True, 0)]
)
def test_after_a_loss_who_tells_of_it_ends_first(ending, is_told, at_start, seconds):
    with_watchdog(ending, lambda words: is_told)
    ending.fail(PROBLEM, lost=True, at_start=at_start)
    assert Timer.seconds == [seconds] and ending.lost_at is not None
