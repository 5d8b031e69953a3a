"""The process beside a rank, with small real processes in the place of ranks."""

import os
import signal
import subprocess
import sys

import pytest

from keras_parallax.failures.watchdog import __file__ as WATCHDOG
from keras_parallax.failures.watchdog import sentence

#: A process with a watchdog; it does what the test says. Keeps the standard library's modules only.
RANK = """
import os, signal, sys, time
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog
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


#: Kills the process when its watchdog waits, and leaves a fork of it that holds its pipe for a
#: while and speaks then.
KILLED_BESIDE_A_FORK = """
time.sleep(1)
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(3)
print('The fork ends.', file=sys.stderr)
"""


def test_a_watchdog_speaks_although_a_fork_of_the_process_lives_on():
    first, second = rank(KILLED_BESIDE_A_FORK)[1].splitlines()
    assert first.startswith('Rank 3 on host gpu-7') and second == 'The fork ends.'


def test_a_watchdog_speaks_also_if_the_thread_that_made_it_had_ended():
    script = """
import threading
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


def test_a_process_survives_its_watchdog():
    script = (
        'watchdog._process.kill(); watchdog._process.wait()\n'
        'watchdog.beat(); watchdog.dismiss(); print("lives", file=sys.stderr)'
    )
    assert rank(script) == (0, 'lives\n')


def test_a_watchdog_that_is_told_to_end_says_so():
    script = (
        'time.sleep(1); os.kill(watchdog._process.pid, signal.SIGTERM); watchdog._process.wait()\n'
        'watchdog.dismiss()'
    )
    said = 'Rank 3 on host gpu-7 is told to end by SIGTERM, as by horovodrun after Ctrl-C.\n'
    assert rank(script) == (0, said)


def test_a_rank_that_has_told_why_it_ends_is_not_spoken_for():
    # Python 3.6 keeps what is printed to a pipe, which SIGKILL would lose.
    script = 'print(watchdog.is_told(), file=sys.stderr, flush=True); os.kill(os.getpid(), 9)'
    assert rank(script) == (-signal.SIGKILL, 'False\n')


def test_a_rank_whose_watchdog_is_gone_is_to_tell_the_user_itself():
    script = 'watchdog._process.kill(); watchdog._process.wait()\n'
    script += 'print(watchdog.is_told(), file=sys.stderr)'
    assert rank(script) == (0, 'False\n')


def test_memory_is_named_when_the_kernel_has_killed_for_it():
    assert 'ran out of memory' in sentence(1, 'h', 'out of memory')
    assert '137 is SIGKILL' in sentence(1, 'h', 'ended')


@pytest.mark.skipif(not os.path.exists('/proc/vmstat'), reason='needs Linux')
def test_the_kernel_counts_what_it_has_killed():
    from keras_parallax.failures.watchdog import _out_of_memory_kills

    assert _out_of_memory_kills() >= 0
    with open('/proc/vmstat') as file:
        assert 'oom_kill ' in file.read()
