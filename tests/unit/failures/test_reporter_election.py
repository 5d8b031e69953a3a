"""That the guards of a job tell the user once; real guards, beside small processes for ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from keras_parallax.failures.watchdog import __file__ as GUARD

#: A process with a guard that does what it reads.
RANK = """
import json, os, sys
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog
rank = int(sys.argv[2])
guard = Watchdog(rank, 'h', 0, 2, None if rank else '127.0.0.1')
print(json.dumps([guard._process.pid, guard.place]), flush=True)
for line in sys.stdin:
    word, *rest = json.loads(line)
    print(json.dumps(getattr(guard, word)(*rest)), flush=True)
"""


class Rank:
    """A process in the place of a rank; its guard writes where it writes."""

    def __init__(self, rank, stderr):
        self.process = subprocess.Popen(
            [sys.executable, '-c', RANK, GUARD, str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            universal_newlines=True,
        )
        guard, self.place = json.loads(self.process.stdout.readline())
        self.guard = psutil.Process(guard)

    def do(self, *words):
        self.process.stdin.write(json.dumps(words) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.kill()

    def end(self):
        self.process.kill()
        self.process.communicate()
        self.await_guard()

    def await_guard(self):
        """Waits until the guard has ended, if perhaps not been reaped."""
        wait_for(lambda: not self.guard.is_running() or self.guard.status() == psutil.STATUS_ZOMBIE)


class Job:
    """Some ranks whose guards know each other."""

    def __init__(self, ranks):
        self._read, self._write = os.pipe()
        self.ranks = [Rank(rank, self._write) for rank in range(ranks)]
        for rank in self.ranks[1:]:
            rank.do('meet', self.ranks[0].place)
        wait_for(lambda: connections(self.ranks[0]) == ranks - 1)

    def said(self):
        """What the ranks and guards have said, a list of lines, when all have ended."""
        for rank in self.ranks:
            rank.end()
        os.close(self._write)
        with open(self._read) as file:
            return file.read().splitlines()


def connections(rank):
    found = rank.guard.net_connections('tcp')
    return len([each for each in found if each.status == psutil.CONN_ESTABLISHED])


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize('killed', [[0], [1], [2], [1, 2], [0, 1, 2], [2, 1, 0]])
def test_one_guard_tells_of_ranks_that_are_killed_and_no_survivor_does(killed):
    job = Job(3)
    for rank in killed:
        job.ranks[rank].kill()
    for rank in killed:
        job.ranks[rank].await_guard()
    for rank in set(range(3)) - set(killed):
        assert job.ranks[rank].do('is_told')
    lines = job.said()
    assert len(lines) == 1 and 'was killed from outside or crashed' in lines[0], lines
    assert int(lines[0].split()[1]) in killed


@pytest.mark.parametrize('teller', [0, 1])
def test_one_survivor_tells_where_no_guard_has_and_then_no_guard_does(teller):
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


def test_the_guards_tell_by_themselves_when_that_of_rank_0_is_gone():
    job = Job(2)
    job.ranks[0].guard.kill()
    job.ranks[1].kill()
    lines = job.said()
    assert len(lines) == 1 and lines[0].startswith('Rank 1 on host h was killed'), lines


def test_the_guards_tell_by_themselves_when_that_of_rank_0_is_silent():
    job = Job(2)
    job.ranks[0].guard.suspend()
    job.ranks[1].kill()
    job.ranks[1].await_guard()
    job.ranks[0].guard.kill()
    lines = job.said()
    assert len(lines) == 1 and lines[0].startswith('Rank 1 on host h was killed'), lines


@pytest.mark.parametrize('first', [0, 1])
def test_of_those_who_find_the_same_the_first_tells_whoever_would_alone(first):
    job = Job(2)
    assert not job.ranks[first].do('is_told', '', False)
    assert job.ranks[1 - first].do('is_told', '', True)
    assert job.said() == []


def test_who_would_not_tell_alone_does_not_where_the_guard_of_rank_0_is_gone():
    job = Job(3)
    job.ranks[0].guard.kill()
    job.ranks[0].await_guard()
    assert job.ranks[2].do('is_told', '', False)
    assert not job.ranks[1].do('is_told', '', True)
    # Who has not told is spoken for, if it is lost later.
    job.ranks[2].kill()
    job.ranks[2].await_guard()
    assert len(job.said()) == 1


@pytest.mark.parametrize('mute', [0, 1])
def test_a_sentence_is_told_where_it_can_be_heard(mute):
    # As on a host whose ssh was killed.
    read, write = os.pipe()
    os.close(read)
    heard_read, heard_write = os.pipe()
    ranks = [Rank(rank, write if rank == mute else heard_write) for rank in range(2)]
    ranks[1].do('meet', ranks[0].place)
    wait_for(lambda: connections(ranks[0]) == 1)
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


@pytest.mark.parametrize('words', [b'tell\n', b'no key\ntell\n', b'x' * 10000])
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


def test_the_port_is_closed_when_the_guard_has_ended():
    job = Job(1)
    address, port, _ = job.ranks[0].place
    job.ranks[0].do('dismiss')
    assert job.said() == []
    with socket.socket() as probe:
        assert probe.connect_ex((address, port)) != 0
