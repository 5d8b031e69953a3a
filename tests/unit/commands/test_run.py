# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax run` around small real commands in the place of `horovodrun`."""

import datetime
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import run_alone

from keras_parallax.commands import run as run_module
from keras_parallax.commands.run import STARTED, STARTING, UNKNOWN, delay, stage

#: Fails as often as its first argument says, with the code of the second; counts in a file.
FAILS = 'echo $KERAS_PARALLAX_RESTARTS >> "$0"; test $KERAS_PARALLAX_RESTARTS -ge $1 || exit $2'
STARTS = 'echo $$ >> "$0"; exec sleep 300'


def start(options, shell, *arguments):
    command = ['--', 'sh', '-c', shell] + list(map(str, arguments))
    return subprocess.Popen(
        run_alone.COMMAND + options + command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'),
    )


def run(*arguments):
    process = start(*arguments)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def lines(path, number=1):
    """The lines of a file, when it has so many."""
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().split()) < number:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text().split()


def test_a_job_that_fails_is_restarted_and_told_how_often(tmp_path):
    code, output = run(['--max-restarts', '3', '--backoff', '0'], FAILS, tmp_path / 'log', 2, 7)
    assert code == 0
    assert lines(tmp_path / 'log') == ['0', '1', '2']
    assert 'the job failed with exit code 7' in output
    assert 'restart 1 of 3' in output and 'restart 2 of 3' in output
    assert 'the job has ended well after restart 2' in output


def test_a_job_that_fails_too_often_ends_with_the_code_of_its_last_attempt(tmp_path):
    code, output = run(['--max-restarts', '1', '--backoff', '0'], FAILS, tmp_path / 'log', 9, 7)
    assert code == 7
    assert lines(tmp_path / 'log') == ['0', '1']
    assert 'giving up after 1 restart.' in output


def test_a_job_that_ends_well_is_not_restarted(tmp_path):
    assert run([], FAILS, tmp_path / 'log', 0, 7) == (0, '')
    assert lines(tmp_path / 'log') == ['0']


def test_a_job_is_not_restarted_unless_that_is_asked_for(tmp_path):
    assert run([], FAILS, tmp_path / 'log', 9, 7)[0] == 7
    assert lines(tmp_path / 'log') == ['0']


def test_a_number_of_workers_makes_the_command_of_horovodrun(tmp_path):
    script = ['-x.py', '--epochs', '2']
    local = ['horovodrun', '-np', '2', '-H', 'localhost:2']
    assert run_module._own_words(2, None, script) == [*local, 'python', *script]
    hosts = ['horovodrun', '-np', '4', '-H', 'a:2,b:2']
    assert run_module._own_words(4, 'a:2,b:2', ['./own', 'x']) == [*hosts, './own', 'x']


@pytest.mark.parametrize('options', [['-H', 'a:2'], ['-np', '2', '--resources', os.devnull]])
def test_options_that_contradict_each_other_start_nothing(options, tmp_path):
    process = start(options, 'echo STARTED')
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and 'STARTED' not in output and '-np' in output


def test_each_job_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(str(tmp_path))
    now = datetime.datetime(2026, 11, 30, 23, 5, 1)
    folders = [run_module._new_folder(now) for _ in range(3)]
    assert folders[0] == 'keras-parallax-logs/2026-11-30-230501'
    assert len(set(folders)) == 3 and all(map(os.path.isdir, folders))


def test_a_job_that_is_killed_is_restarted(tmp_path):
    script = FAILS.replace('exit', 'kill -9 $$; exit')
    code, output = run(['--backoff', '0', '--max-restarts', '1'], script, tmp_path / 'log', 1, 0)
    assert code == 0 and 'failed with exit code 137' in output


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_to_the_job_which_is_not_restarted(tmp_path, number):
    process = start(['--backoff', '0'], STARTS, tmp_path / 'log')
    (pid,) = lines(tmp_path / 'log')
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert '%s; it is not restarted' % number.name in output
    assert lines(tmp_path / 'log') == [pid] and not psutil.pid_exists(int(pid))


def test_a_signal_while_it_waits_ends_the_wait(tmp_path):
    process = start(['--max-restarts', '3', '--backoff', '300'], FAILS, tmp_path / 'log', 9, 7)
    assert 'restart 1 of 3 in 300 s' in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 7 and 'the job is not restarted' in output


def test_a_job_ends_when_what_runs_it_is_killed(tmp_path):
    process = start([], STARTS, tmp_path / 'log')
    lines(tmp_path / 'log')
    process.kill()
    process.communicate(timeout=120)  # Waits for the job too, which has the same pipe.


def test_a_launcher_that_does_not_exist_is_named():
    process = subprocess.run(
        [
            sys.executable,
            '-c',
            'from keras_parallax.commands.cli import main; main()',
            'run',
            'nowhere/x',
        ],
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
    )
    assert process.returncode == 127
    assert 'nowhere/x could not be started' in process.stderr


def test_horovodrun_that_is_not_on_path_is_told_with_its_environment():
    process = subprocess.run(
        run_alone.COMMAND + ['--', 'horovodrun', '-np', '2', 'python', 'train.py'],
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
        env=dict(os.environ, PATH='/nowhere', TF_CPP_MIN_LOG_LEVEL='2'),
    )
    assert process.returncode == 127
    assert 'horovodrun is not on PATH' in process.stderr and 'environment' in process.stderr
    assert 'Errno' not in process.stderr


# --- a launcher that hangs ---

#: A `horovodrun` that forks, as the real one does, and hangs in the first attempt.
HANGS = """
import os, subprocess, sys, time
log = sys.argv[1]
with open(log, 'a') as file:
    file.write(os.environ['KERAS_PARALLAX_RESTARTS'] + '\\n')
if os.environ['KERAS_PARALLAX_RESTARTS'] == '0':
    pid = os.fork() or os.getpid()
    with open(log + '.pids', 'a') as file:
        file.write('%d\\n' % pid)
    time.sleep(300)
subprocess.check_call('HOROVOD_RANK=0 sleep 4', shell=True)
"""


def test_a_launcher_that_starts_no_rank_is_ended_with_its_forks_and_started_again(tmp_path):
    launcher = tmp_path / 'horovodrun'
    launcher.write_text('#!%s\n%s' % (sys.executable, HANGS))
    launcher.chmod(0o755)
    # Not the command itself, but started by it: a launcher may be wrapped.
    code, output = run(
        ['--max-restarts', '3', '--backoff', '0', '--start-limit', '5'],
        '"$0" "$1"; exit',
        launcher,
        tmp_path / 'log',
    )
    assert code == 0, output
    assert lines(tmp_path / 'log')[:2] == ['0', '1']
    assert 'horovodrun has started no worker within 5 s; it is ended' in output
    assert 'the job has ended well after restart' in output
    for number in lines(tmp_path / 'log.pids', 2):
        assert not psutil.pid_exists(int(number))


def test_another_command_may_take_as_long_as_it_likes():
    assert run(['--start-limit', '1'], 'sleep 3') == (0, '')


def test_what_horovodrun_has_started_is_told_from_its_processes():
    horovodrun = ['python', '/venv/bin/horovodrun', '-np', '2', 'python', 'train.py']
    assert stage([horovodrun, horovodrun]) == STARTING
    assert stage([['sh', '-c', 'horovodrun -np 2 python train.py']]) == UNKNOWN
    assert stage([horovodrun, ['/bin/sh', '-c', 'HOROVOD_RANK=0 python train.py']]) == STARTED
    assert stage([horovodrun, ['ssh', 'h1', 'cd /; HOROVOD_RANK=1 python train.py']]) == STARTED
    assert stage([horovodrun, ['/usr/bin/mpirun', '-np', '2', 'python', 'train.py']]) == STARTED
    assert stage([['python', 'train.py']]) == UNKNOWN


def test_each_restart_waits_twice_as_long_up_to_a_limit():
    assert [delay(restart, 5) for restart in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert delay(60, 5) == 300
    assert delay(9, 0) == 0
