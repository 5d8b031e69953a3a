# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The process beside a worker, with small real processes in the place of workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from keras_parallax.engine.failures.watchdog import __file__ as WATCHDOG

#: A process with a watchdog; it does what the test says. Keeps the standard library's modules only.
RANK = """
import os, signal, sys, threading, time
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog

lost = threading.Event()


def on_lost(text, is_told):
    if not is_told:
        print(text, file=sys.stderr)
    lost.set()


watchdog = Watchdog(3, 'gpu-7', float(sys.argv[2]), float(sys.argv[3]))
"""


def rank(script, silence=0, stopped=0):
    """Exit code and error output of a watched process; both processes have ended by then."""
    process = subprocess.Popen(
        [sys.executable, '-c', RANK + script, WATCHDOG, str(silence), str(stopped)],
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    # Ends when the watchdog has ended too, for it has the same pipe.
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def test_a_watchdog_speaks_for_a_process_that_is_killed():
    code, errors = rank('os.kill(os.getpid(), signal.SIGKILL)')
    assert code == -signal.SIGKILL
    assert errors.count('\n') == 1
    assert errors.startswith('Rank 3 on host gpu-7 was killed from outside or crashed')


def test_a_watchdog_speaks_for_a_process_that_ends_without_a_word():
    code, errors = rank('os._exit(0)')
    assert code == 0 and errors.startswith('Rank 3 on host gpu-7')


def test_a_watchdog_that_is_dismissed_says_nothing():
    assert rank('watchdog.dismiss(); os._exit(5)') == (5, '')


#: Kills the process when its watchdog waits, and leaves a fork of it that holds its pipe for longer
#: than the watchdog waits for a beat, and speaks then.
KILLED_BESIDE_A_FORK = """
time.sleep(1)
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(9)
print('The fork ends.', file=sys.stderr)
"""


def test_a_watchdog_speaks_although_a_fork_of_the_process_lives_on():
    first, second = rank(KILLED_BESIDE_A_FORK)[1].splitlines()
    assert first.startswith('Rank 3 on host gpu-7') and second == 'The fork ends.'


def test_a_watchdog_speaks_also_if_the_thread_that_made_it_had_ended():
    script = """
watchdog.dismiss()
thread = threading.Thread(target=Watchdog, args=(4, 'gpu-8', 0, 0))
thread.start()
thread.join()
"""
    first, second = rank(script + KILLED_BESIDE_A_FORK)[1].splitlines()
    assert first.startswith('Rank 4 on host gpu-8') and second == 'The fork ends.'


def test_a_process_that_is_stopped_for_too_long_is_killed():
    code, errors = rank('os.kill(os.getpid(), signal.SIGSTOP)', stopped=1)
    assert code == -signal.SIGKILL
    assert 'Rank 3 on host gpu-7 has been stopped for 1 s' in errors


def test_a_process_that_does_not_beat_is_killed():
    code, errors = rank('time.sleep(300)', silence=1)
    assert code == -signal.SIGKILL
    assert errors == 'Rank 3 on host gpu-7 has hung for 1 s and is killed.\n'


def test_a_process_that_beats_is_left_alone():
    script = 'for _ in range(30):\n    watchdog.beat()\n    time.sleep(0.1)\n'
    script += 'watchdog.dismiss()\nos._exit(0)'
    assert rank(script, silence=1.5) == (0, '')


def test_without_limits_a_process_may_be_silent():
    assert rank('time.sleep(2)\nwatchdog.dismiss()\nos._exit(0)') == (0, '')


def test_a_process_that_loses_its_watchdog_hears_of_it_and_may_end_as_it_likes():
    script = """
watchdog.attend(on_lost, lambda: None)
watchdog._process.kill()
lost.wait(60)
watchdog.beat()
watchdog.dismiss()
print(watchdog.claim('this'), file=sys.stderr)
"""
    said = "Rank 3 on host gpu-7 has lost its watchdog, which was killed.\n[3, 'this']\n"
    assert rank(script) == (0, said)


def test_a_watchdog_that_is_told_to_end_says_so_and_ends_with_its_rank():
    script = """
watchdog.attend(on_lost, lambda: None)
time.sleep(1)
os.kill(watchdog._process.pid, signal.SIGTERM)
lost.wait(60)
watchdog.dismiss()
"""
    said = 'Rank 3 on host gpu-7 is told to end by SIGTERM, as by the launcher after Ctrl-C.\n'
    assert rank(script) == (0, said)


def test_a_rank_that_tells_why_it_ends_is_not_spoken_for():
    # Python 3.6 keeps what is printed to a pipe, which SIGKILL would lose.
    script = """
watchdog.attend(on_lost, lambda: None)
print(watchdog.claim('this'), file=sys.stderr, flush=True)
os.kill(os.getpid(), 9)
"""
    assert rank(script) == (-signal.SIGKILL, "[3, 'this']\n")


def test_a_rank_has_its_watchdog_tell_what_it_has_lost():
    script = """
watchdog.attend(on_lost, lambda: None)
watchdog.report('has lost its launcher.')
lost.wait(60)
print(watchdog.claim('this'), file=sys.stderr)
watchdog.dismiss()
"""
    said = 'Rank 3 on host gpu-7 has lost its launcher.'
    assert rank(script) == (0, "%s\n[None, '%s']\n" % (said, said))


def test_a_rank_is_looked_after_from_time_to_time():
    script = """
looks = threading.Semaphore(0)
watchdog.attend(on_lost, looks.release)
print(looks.acquire(timeout=60), looks.acquire(timeout=60), file=sys.stderr)
watchdog.dismiss()
"""
    assert rank(script, silence=10) == (0, 'True True\n')


@pytest.mark.skipif(not os.path.exists('/proc/vmstat'), reason='needs Linux')
def test_the_kernel_counts_what_it_has_killed():
    from keras_parallax.engine.failures.watchdog import _out_of_memory_kills

    assert _out_of_memory_kills() >= 0
    with open('/proc/vmstat') as file:
        assert 'oom_kill ' in file.read()


# --- several workers ---

#: A process with a watchdog that is the hub, or connected to it, and does what it reads.
MEMBER = """
import json, os, sys, threading
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog

lost = []
rank, hub = int(sys.argv[2]), json.loads(sys.argv[3])
watchdog = Watchdog(rank, 'h', 0, 1, address='' if rank else '127.0.0.1', hub=hub)
watchdog.attend(lambda text, is_told: lost.append(text if is_told else 'untold'), lambda: None)
print(json.dumps([watchdog._process.pid, watchdog.place]), flush=True)
for line in sys.stdin:
    word, *rest = json.loads(line)
    print(json.dumps(lost if word == 'lost' else getattr(watchdog, word)(*rest)), flush=True)
"""


class Member:
    """A process in the place of a worker; its watchdog writes where it writes."""

    def __init__(self, rank, stderr, hub=None):
        self.process = subprocess.Popen(
            [sys.executable, '-c', MEMBER, WATCHDOG, str(rank), json.dumps(hub)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            universal_newlines=True,
        )
        number, self.place = json.loads(self.process.stdout.readline())
        self.watchdog = psutil.Process(number)

    def do(self, *words):
        self.process.stdin.write(json.dumps(words) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def hears(self):
        """The sentence of which this worker hears that it is why the job ends."""
        wait_for(lambda: self.do('lost'))
        (text,) = self.do('lost')
        return text

    def has_watchdog(self):
        """Whether its watchdog runs; it may not have been reaped."""
        return self.watchdog.is_running() and self.watchdog.status() != psutil.STATUS_ZOMBIE


class Job:
    """Some workers whose watchdogs are connected."""

    def __init__(self, ranks):
        self._read, self._write = os.pipe()
        self.ranks = [Member(0, self._write)]
        hub = self.ranks[0].place
        self.ranks += [Member(rank, self._write, hub) for rank in range(1, ranks)]

    def said(self):
        """What the workers and watchdogs have said, a list of lines, when all have ended."""
        for rank in self.ranks:
            rank.process.kill()
            rank.process.communicate()
        for rank in self.ranks:
            wait_for(lambda rank=rank: not rank.has_watchdog())
        os.close(self._write)
        with open(self._read) as file:
            return file.read().splitlines()


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize('killed', [[0], [1], [2], [1, 2], [0, 1, 2], [2, 1, 0]])
def test_the_hub_tells_once_of_ranks_that_are_killed_and_all_others_hear_the_same(killed):
    job = Job(3)
    for rank in killed:
        job.ranks[rank].process.kill()
    heard = {job.ranks[rank].hears() for rank in set(range(3)) - set(killed)}
    lines = job.said()
    assert len(lines) == 1 and 'was killed from outside or crashed' in lines[0], lines
    assert int(lines[0].split()[1]) in killed
    assert heard <= set(lines)


@pytest.mark.parametrize('teller', [0, 1, 2])
def test_the_first_rank_that_claims_to_tell_does_and_no_other_nor_a_watchdog(teller):
    job = Job(3)
    assert job.ranks[teller].do('claim', 'this') == [teller, 'this']
    assert [rank.do('claim', 'that') for rank in job.ranks] == [[teller, 'this']] * 3
    assert not any(rank.do('lost') for rank in job.ranks)
    assert job.said() == []  # All are killed now.


@pytest.mark.parametrize('teller', [0, 1])
def test_a_rank_that_is_stopped_is_killed_without_a_word_once_the_user_has_been_told(teller):
    job = Job(2)
    job.ranks[teller].do('claim', 'this')
    job.ranks[1].process.send_signal(signal.SIGSTOP)
    assert job.ranks[1].process.wait(60) == -signal.SIGKILL
    assert job.said() == []


@pytest.mark.parametrize('lost', [0, 1])
def test_a_rank_that_is_killed_with_its_watchdog_is_named_to_all_others(lost):
    job = Job(3)
    # The watchdog first, which would have something to tell.
    job.ranks[lost].process.send_signal(signal.SIGSTOP)
    job.ranks[lost].watchdog.kill()
    job.ranks[lost].process.kill()
    said = 'Rank %d on host h has ended without a word (killed, out of memory, or crashed).' % lost
    assert [job.ranks[other].hears() for other in {0, 1, 2} - {lost}] == [said] * 2
    # Without a hub, each tells for itself.
    assert job.said() == [said] * (2 if lost == 0 else 1)


def test_who_is_dismissed_is_not_missed_and_the_hub_stays_for_the_others():
    job = Job(3)
    job.ranks[0].do('dismiss')
    job.ranks[1].do('dismiss')
    wait_for(lambda: not job.ranks[1].has_watchdog())
    assert job.ranks[0].has_watchdog() and not job.ranks[2].do('lost')
    assert job.ranks[2].do('claim', 'this') == [2, 'this']
    job.ranks[2].do('dismiss')
    wait_for(lambda: not job.ranks[0].has_watchdog())
    address, port, *_ = job.ranks[0].place
    with socket.socket() as probe:
        assert probe.connect_ex((address, port)) != 0
    assert job.said() == []


def test_a_hub_hears_who_has_come_while_it_had_no_processor_before_it_ends():
    job = Job(2)
    job.ranks[0].watchdog.suspend()
    job.ranks.append(Member(2, job._write, job.ranks[0].place))
    job.ranks[0].do('dismiss')
    job.ranks[1].do('dismiss')
    wait_for(lambda: not job.ranks[1].has_watchdog())
    job.ranks[0].watchdog.resume()
    assert job.ranks[2].do('claim', 'this') == [2, 'this']
    assert job.ranks[0].has_watchdog() and job.said() == []


def test_who_comes_late_hears_why_the_job_has_ended():
    job = Job(2)
    job.ranks[0].do('report', 'has lost its launcher.')
    assert job.ranks[1].hears() == 'Rank 0 on host h has lost its launcher.'
    job.ranks.append(Member(2, job._write, job.ranks[0].place))
    assert job.ranks[2].hears() == 'Rank 0 on host h has lost its launcher.'
    assert job.said() == ['Rank 0 on host h has lost its launcher.']


@pytest.mark.parametrize('words', [b'5\n', b'["no key", "Rank 1"]\n', b'x' * 10000])
def test_a_stranger_is_not_listened_to(words):
    job = Job(2)
    address, port, *_ = job.ranks[0].place
    with socket.create_connection((address, port)) as stranger:
        stranger.sendall(words)
        try:
            assert stranger.recv(100) == b''
        except ConnectionResetError:
            pass
    assert job.ranks[1].do('claim', 'this') == [1, 'this']
    job.said()
