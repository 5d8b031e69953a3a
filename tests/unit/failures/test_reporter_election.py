"""That the user is told once; real watchdogs, beside small processes for ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from horovod.run.gloo_run import _allocate
from horovod.run.http.http_server import RendezvousServer

from keras_parallax.failures import rendezvous
from keras_parallax.failures.watchdog import __file__ as WATCHDOG

#: A process with a watchdog that does what it reads.
RANK = """
import json, os, sys
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog
rank = int(sys.argv[2])
watchdog = Watchdog(rank, 'h', 0, 2, '127.0.0.1')
print(json.dumps([watchdog._process.pid, watchdog.place]), flush=True)
for line in sys.stdin:
    word, *rest = json.loads(line)
    print(json.dumps(getattr(watchdog, word)(*rest)), flush=True)
"""


class Rank:
    """A process in the place of a rank; its watchdog writes where it writes."""

    def __init__(self, rank, stderr, environ=None):
        self.process = subprocess.Popen(
            [sys.executable, '-c', RANK, WATCHDOG, str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ,
            universal_newlines=True,
        )
        number, self.place = json.loads(self.process.stdout.readline())
        self.watchdog = psutil.Process(number)

    def do(self, *words):
        self.process.stdin.write(json.dumps(words) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()

    def end(self):
        self.process.kill()
        self.process.communicate()
        self.await_watchdog()

    def await_watchdog(self):
        """Waits until the watchdog has ended, if perhaps not been reaped."""
        wait_for(
            lambda: not self.watchdog.is_running() or self.watchdog.status() == psutil.STATUS_ZOMBIE
        )


def meet(ranks):
    for rank in ranks:
        rank.do('meet', [other.place for other in ranks])


class Job:
    """Some ranks whose watchdogs know each other, or can find each other where ranks meet."""

    def __init__(self, ranks, environ=None):
        self._read, self._write = os.pipe()
        self.ranks = [Rank(rank, self._write, environ) for rank in range(ranks)]
        if environ is None:
            meet(self.ranks)

    def said(self):
        """What the ranks and watchdogs have said, a list of lines, when all have ended."""
        for rank in self.ranks:
            rank.end()
        os.close(self._write)
        with open(self._read) as file:
            return file.read().splitlines()


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize('killed', [[0], [1], [2], [1, 2], [0, 1, 2], [2, 1, 0]])
def test_one_watchdog_tells_of_ranks_that_are_killed_and_no_survivor_does(killed):
    job = Job(3)
    for rank in killed:
        job.ranks[rank].kill()
    for rank in killed:
        job.ranks[rank].await_watchdog()
    for rank in set(range(3)) - set(killed):
        assert job.ranks[rank].do('is_told')
    lines = job.said()
    assert len(lines) == 1 and 'was killed from outside or crashed' in lines[0], lines
    assert int(lines[0].split()[1]) in killed


@pytest.mark.parametrize('teller', [0, 1])
def test_one_survivor_tells_where_no_watchdog_has_and_then_no_watchdog_does(teller):
    job = Job(3)
    assert not job.ranks[teller].do('is_told')
    assert [rank.do('is_told') for rank in job.ranks] == [True] * 3
    assert job.said() == []  # All are killed now.


@pytest.mark.parametrize('teller', [0, 1])
def test_a_rank_that_is_stopped_is_killed_without_a_word_once_the_user_has_been_told(teller):
    job = Job(2)
    assert not job.ranks[teller].do('is_told')
    job.ranks[1].process.send_signal(signal.SIGSTOP)
    assert job.ranks[1].process.wait(60) == -signal.SIGKILL
    assert job.said() == []


def test_the_watchdogs_tell_by_themselves_when_that_of_rank_0_is_gone():
    job = Job(2)
    job.ranks[0].watchdog.kill()
    job.ranks[1].kill()
    lines = job.said()
    assert len(lines) == 1 and lines[0].startswith('Rank 1 on host h was killed'), lines


def test_the_watchdogs_tell_by_themselves_when_that_of_rank_0_is_silent():
    job = Job(2)
    job.ranks[0].watchdog.suspend()
    job.ranks[1].kill()
    job.ranks[1].await_watchdog()
    job.ranks[0].watchdog.kill()
    lines = job.said()
    assert len(lines) == 1 and lines[0].startswith('Rank 1 on host h was killed'), lines


@pytest.mark.parametrize('first', [1, 2])
def test_one_survivor_tells_also_where_the_watchdog_of_rank_0_is_gone(first):
    job = Job(3)
    job.ranks[0].watchdog.kill()
    job.ranks[0].await_watchdog()
    assert not job.ranks[first].do('is_told')
    assert job.ranks[3 - first].do('is_told')
    job.ranks[3 - first].kill()
    job.ranks[3 - first].await_watchdog()
    # Of rank 0 nobody has to be told, and its watchdog is gone.
    assert job.said() == []


@pytest.fixture
def store():
    """The environment of a job of 3 ranks whose store is open."""
    server = RendezvousServer(verbose=0)
    port = server.start_server(_allocate('h:3', 3))
    yield dict(
        os.environ,
        HOROVOD_GLOO_RENDEZVOUS_ADDR='127.0.0.1',
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
        HOROVOD_SIZE='3',
        HOROVOD_LOCAL_SIZE='3',
    )
    server.httpd.server_close()


def announce(store, rank, place):
    variables = dict(store, HOROVOD_RANK=str(rank), HOROVOD_LOCAL_RANK=str(rank))
    rendezvous.RendezvousStore(variables).announce('h', None, place)


@pytest.mark.parametrize('killed', [[2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize('announced', [[0, 1, 2], [1, 2], [2]])
def test_one_tells_before_the_ranks_have_met(store, announced, killed):
    job = Job(3, store)
    for rank in announced:
        announce(store, rank, job.ranks[rank].place)
    for rank in killed:
        job.ranks[rank].kill()
        job.ranks[rank].await_watchdog()
    for rank in set(range(3)) - set(killed):
        assert job.ranks[rank].do('is_told')
    lines = job.said()
    assert len(lines) == 1 and 'was killed from outside or crashed' in lines[0], lines


@pytest.mark.parametrize('mute', [0, 1])
def test_a_sentence_is_told_where_it_can_be_heard(mute):
    # As on a host whose ssh was killed.
    read, write = os.pipe()
    os.close(read)
    heard_read, heard_write = os.pipe()
    ranks = [Rank(rank, write if rank == mute else heard_write) for rank in range(2)]
    meet(ranks)
    assert ranks[1].do('is_told', 'Rank 1 ends:\nof this.')
    for rank in ranks:
        rank.end()
    os.close(write)
    os.close(heard_write)
    with open(heard_read) as file:
        assert file.read() == 'Rank 1 ends: of this.\n'


def test_nobody_counts_as_heard_who_is_not():
    read, write = os.pipe()
    os.close(read)
    rank = Rank(0, write)
    assert not rank.do('is_told', 'Rank 0 ends.')
    rank.end()
    os.close(write)


@pytest.mark.parametrize('words', [b'5\n', b'["no key", "tell", ""]\n', b'x' * 10000])
def test_a_stranger_is_not_listened_to(words):
    job = Job(2)
    address, port, _ = job.ranks[0].place
    with socket.create_connection((address, port)) as stranger:
        stranger.sendall(words)
        try:
            assert stranger.recv(100) == b''
        except ConnectionResetError:
            pass
    assert not job.ranks[1].do('is_told')
    job.said()


def test_the_port_is_closed_when_the_watchdog_has_ended():
    job = Job(1)
    address, port, _ = job.ranks[0].place
    job.ranks[0].do('dismiss')
    assert job.said() == []
    with socket.socket() as probe:
        assert probe.connect_ex((address, port)) != 0
