# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the watch does with what it hears, without other workers."""

import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from keras_parallax.engine.failures.diagnosis import FAILED
from keras_parallax.engine.job import rank_watch
from keras_parallax.engine.job.activity import Activity
from keras_parallax.errors import ServerLostError, WorkerFailedError

ERROR = WorkerFailedError('Rank 1 on host a failed.')


class ProcessEnd:
    """Notes what fails, and what the watchdog is told."""

    def __init__(self):
        self.problem, self.failed, self.reported = None, [], []
        self.decided, self.watchdog = threading.Event(), None
        self.started = []

    def fail(self, problem, **options):
        self.failed.append((problem, options))

    def finish(self):
        raise SystemExit

    def shows(self, error):
        return not isinstance(error, WorkerFailedError)

    def start_watchdog(self, rank, look, **options):
        self.started.append((rank, options))
        self.watchdog = SimpleNamespace(place='here', report=self.reported.append)


@pytest.fixture
def made():
    order = SimpleNamespace(report=dict, waits=False, is_awaited=False)
    return rank_watch.RankWatch(600, Activity(), order, ProcessEnd())


def test_one_rank_alone_is_told_at_once_that_a_server_is_gone(made):
    made.lose_server('The server at a:1 is gone.')
    ((problem, _),) = made._process_end.failed
    assert isinstance(problem, ServerLostError) and str(problem) == 'The server at a:1 is gone.'


def test_of_several_ranks_all_hear_that_a_server_is_gone_by_what_this_one_reports(made):
    made._excepthook = sys.excepthook
    made.lose_server('The server at a:1 is gone.')
    report = made._report()
    assert not made._process_end.failed
    assert report['lost'] == 'The server at a:1 is gone.' and report['host'] == socket.gethostname()


def test_an_error_that_ends_the_script_is_reported_and_shown(made):
    shown = []
    made._excepthook = lambda kind, error, trace: shown.append(error)
    made._has_reported.set()
    error = KeyError('the user made a mistake')
    made._on_exception(KeyError, error, None)
    report = made._report()
    assert shown == [error]
    assert (report['state'], report['error']) == (FAILED, "KeyError: 'the user made a mistake'")


def test_what_another_rank_shows_is_reported_and_not_shown(made):
    made._excepthook = pytest.fail
    made._has_reported.set()
    made._on_exception(WorkerFailedError, ERROR, None)
    assert made._report()['error'] == 'WorkerFailedError: %s' % ERROR


def test_an_error_that_another_hook_has_shown_is_reported_at_the_end(made, monkeypatch):
    made._excepthook = pytest.fail
    made._has_reported.set()
    error = KeyError('the user made a mistake')
    monkeypatch.setattr(sys, 'last_value', error, raising=False)
    with pytest.raises(SystemExit):
        made.finish()
    assert made._report()['error'] == "KeyError: 'the user made a mistake'"


def test_an_error_that_no_rank_takes_note_of_is_told_by_the_watchdog(made, environ, monkeypatch):
    monkeypatch.setattr(rank_watch, 'GRACE_SECONDS', 0)
    made._excepthook = lambda kind, error, trace: None
    made.meet(environ)
    made._on_exception(KeyError, KeyError('the user made a mistake'), None)
    assert made._process_end.reported == ["failed: KeyError: 'the user made a mistake'"]


def test_an_error_before_the_watch_begins_is_told_by_the_watchdog(made, environ, monkeypatch):
    monkeypatch.setattr(rank_watch.os, 'environ', dict(rank_watch.os.environ, **environ))
    made.meet(environ)
    with pytest.raises(ValueError), made.starting():
        raise ValueError('no such card')
    assert made._process_end.reported == ['failed: ValueError: no such card']


def test_nobody_waits_for_a_reason_where_there_is_but_one_rank(made):
    made.await_problem()
    assert not made._process_end.decided.is_set()


@pytest.fixture
def environ(monkeypatch):
    """The environment of rank 1 of 2 on one host, whose hub's place is known; what it leaves."""
    monkeypatch.setattr(rank_watch, 'horovod_aborts', lambda instead: lambda: None)
    left = {0: 'there'}
    monkeypatch.setattr(
        rank_watch.rendezvous, 'leave', lambda environ, rank, hub: left.update({rank: hub})
    )
    monkeypatch.setattr(rank_watch.rendezvous, 'entries', lambda environ, ranks: dict(left))
    return {'HOROVOD_RANK': '1', 'HOROVOD_SIZE': '2'}


def test_a_rank_meets_the_others_and_joins_the_hub_once(made, environ):
    made.meet(environ)
    made.join('elsewhere')
    options = {'silence_seconds': 630, 'stopped_seconds': 18, 'hub': 'there'}
    assert made._process_end.started == [(1, options)] and not made.hub


def test_rank_0_has_the_hub_and_names_who_does_not_come(made, environ, monkeypatch):
    monkeypatch.setenv('HOROVOD_GLOO_TIMEOUT_SECONDS', '1')
    with pytest.raises(SystemExit):
        made.meet(dict(environ, HOROVOD_RANK='0', HOROVOD_SIZE='4'))
    assert made.hub == 'here'
    ((problem, options),) = made._process_end.failed
    assert 'has waited in vain for rank 1 and rank 2 and rank 3 to start' in str(problem)
    assert options == {'has_lost': True}


def test_a_rank_that_has_ended_is_named_at_once_with_the_reason(made, environ, monkeypatch):
    entry = {'host': 'b', 'why': 'OSError: no data'}
    monkeypatch.setattr(rank_watch.rendezvous, 'entries', lambda environ, ranks: {1: entry})
    with pytest.raises(SystemExit):
        made.meet(dict(environ, HOROVOD_RANK='0', HOROVOD_SIZE='3'))
    ((problem, options),) = made._process_end.failed
    assert str(problem).startswith('Rank 1 on host b ended before it had made')
    assert 'OSError: no data' in str(problem) and options == {'has_lost': True}


def test_where_horovod_has_met_before_ranks_do_not_meet_in_its_store(made, environ, monkeypatch):
    def closed(*arguments):
        raise ConnectionRefusedError

    monkeypatch.setattr(rank_watch.rendezvous, 'leave', closed)
    made.meet(environ)
    assert not made._process_end.started
    made.join('there')
    assert made._process_end.started


def test_a_rank_without_its_launcher_or_without_news_has_the_watchdog_tell(made, environ):
    made.meet(environ)
    made._look()
    assert not made._process_end.reported
    made._waiting_since = time.monotonic() - 663
    made._look()
    made._parent = -1
    made._look()
    news, launcher = made._process_end.reported
    assert news == 'has had no news of the other workers for 662 s (step_timeout).'
    assert launcher.startswith('has lost its launcher')
