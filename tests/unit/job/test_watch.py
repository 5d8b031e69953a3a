"""What the watch does with what it hears, without other ranks."""

import socket
import threading
from types import SimpleNamespace

import pytest

from keras_parallax.errors import ServerLostError, WorkerFailedError
from keras_parallax.failures.diagnosis import FAILED
from keras_parallax.job import watch
from keras_parallax.job.activity import Activity

ERROR = WorkerFailedError('Rank 1 on host a failed.')


class ProcessEnd:
    """Notes what fails, and says whether an error is shown."""

    def __init__(self):
        self.problem, self.failed, self.is_told = None, [], None
        self.decided = threading.Event()

    def fail(self, problem, **options):
        self.failed.append((problem, options))

    def shows(self, error, is_told):
        self.is_told = is_told
        return not is_told


@pytest.fixture
def made():
    order = SimpleNamespace(report=dict, waits=False, is_awaited=False)
    return watch.Watch(600, Activity(), order, ProcessEnd())


def test_one_rank_alone_is_told_at_once_that_a_server_is_gone(made):
    made.lose_server('The server at a:1 is gone.')
    ((problem, _),) = made._process_end.failed
    assert isinstance(problem, ServerLostError) and str(problem) == 'The server at a:1 is gone.'


def test_of_several_ranks_all_hear_that_a_server_is_gone_by_what_this_one_reports(made):
    made._liveness = SimpleNamespace(peers={})
    made.lose_server('The server at a:1 is gone.')
    report = made._report()
    assert not made._process_end.failed
    assert report['lost'] == 'The server at a:1 is gone.' and report['host'] == socket.gethostname()


@pytest.mark.parametrize('peers, is_heard', [({}, True), ({1: 'b'}, False)])
def test_lost_ranks_end_the_job_at_once_where_nothing_has_begun(made, peers, is_heard):
    made._liveness = SimpleNamespace(peers=peers)
    made._lose(ERROR, is_heard=is_heard)
    words = '' if is_heard else str(ERROR)
    expected = {'words': words, 'lost': True, 'at_start': not peers}
    assert made._process_end.failed == [(ERROR, expected)]


def test_an_error_that_ends_the_script_is_reported_and_shown(made):
    shown = []
    made._excepthook = lambda kind, error, trace: shown.append(error)
    made._has_reported.set()
    error = KeyError('the user made a mistake')
    made._on_exception(KeyError, error, None)
    report = made._report()
    assert shown == [error]
    assert (report['state'], report['error']) == (FAILED, "KeyError: 'the user made a mistake'")


@pytest.mark.parametrize('rank, is_told', [(0, False), (1, True)])
def test_what_ranks_find_wrong_alike_is_shown_by_the_lowest(made, rank, is_told):
    name = 'keras_parallax.errors.WorkerFailedError: %s' % ERROR
    made._rank, made._states = rank, [{'error': name}, {'error': name}]
    made._excepthook = lambda kind, error, trace: None
    made._has_reported.set()
    made._on_exception(WorkerFailedError, ERROR, None)
    assert made._process_end.is_told is is_told


def test_nobody_waits_for_a_reason_where_there_is_but_one_rank(made):
    made.await_problem()
    assert not made._process_end.decided.is_set()
