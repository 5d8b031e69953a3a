"""What a command of `horovodrun` tells of the hosts; the ranks' places are Horovod's own."""

import os
import subprocess
import sys

import pytest
from horovod.run.gloo_run import _allocate

from keras_parallax.job.launcher import (
    HOSTS_VARIABLE,
    hosts_of,
    hosts_of_ranks,
    is_launcher,
    spread,
)


def environ(hosts, size, rank):
    slot = _allocate(hosts, size)[rank]
    return {
        'HOROVOD_SIZE': str(size),
        'HOROVOD_RANK': str(rank),
        'HOROVOD_LOCAL_RANK': str(slot.local_rank),
        'HOROVOD_LOCAL_SIZE': str(slot.local_size),
        'HOROVOD_CROSS_RANK': str(slot.cross_rank),
    }


@pytest.mark.parametrize(
    'options',
    [
        ['-H', 'a:2,b:1'],
        ['-Ha:2,b:1'],
        ['--hosts', 'a:2,b:1'],
        ['--hosts=a:2,b:1'],
        ['-hostfile', 'hosts'],
        ['--hostfile=hosts'],
    ],
)
def test_the_hosts_are_found_however_they_are_given(options, tmp_path):
    (tmp_path / 'hosts').write_text('a slots=2\nb slots=1\n')
    words = ['python', '/bin/horovodrun', '-np', '3'] + options + ['python', 'train.py', '-H', '9']
    assert hosts_of(words, str(tmp_path), 'here') == 'a:2,b:1'


def test_names_that_mean_another_host_elsewhere_are_replaced():
    words = ['horovodrun', '-np', '3', '-H', 'localhost:1,b:1,127.0.0.1:1', 'python', 'train.py']
    assert hosts_of(words, '/', 'here') == 'here:1,b:1,here:1'


def test_an_option_of_the_script_is_not_taken_for_hosts():
    assert (
        hosts_of(['horovodrun', '-np', '2', 'python', 'train.py', '-H', '512'], '/', 'here') == ''
    )
    assert hosts_of(['horovodrun', '-np', '2', '--hostfile', 'missing', 'train'], '/', 'here') == ''
    assert hosts_of(['horovodrun', '-np', '2', 'python', 'train.py'], '/', 'here') == ''


@pytest.mark.parametrize('rank', range(4))
def test_ranks_are_spread_as_horovod_does_it(rank):
    hosts = 'a:2,b:1,c:4'
    variables = environ(hosts, 4, rank)
    assert spread(hosts, variables) == [slot.hostname for slot in _allocate(hosts, 4)]


def test_hosts_that_contradict_the_place_of_this_rank_are_not_believed():
    assert spread('a:1,b:3', environ('a:2,b:2', 4, 1)) is None
    assert spread('a:2', environ('a:2,b:2', 4, 0)) is None
    assert spread('', environ('a:2,b:2', 4, 0)) is None


def test_a_rank_sees_the_command_of_the_launcher_above_it(tmp_path):
    launcher = tmp_path / 'horovodrun'
    launcher.write_text('import subprocess, sys; subprocess.check_call(sys.argv[5:])')
    rank = (
        'from keras_parallax.job.launcher import hosts_of_ranks; import os; '
        'print(hosts_of_ranks(os.environ))'
    )
    command = [sys.executable, str(launcher), '-np', '3', '-H', 'a:2,b:1']
    said = subprocess.check_output(
        command + ['sh', '-c', '"$0" -c "$1"; exit $?', sys.executable, rank],
        env=dict(os.environ, **environ('a:2,b:1', 3, 0)),
        universal_newlines=True,
    )
    assert said == "['a', 'a', 'b']\n"


def test_what_keras_parallax_run_has_found_counts_where_the_command_is_out_of_sight():
    variables = dict(environ('a:2,b:1', 3, 2), **{HOSTS_VARIABLE: 'a:2,b:1'})
    assert hosts_of_ranks(variables) == ['a', 'a', 'b']
    assert hosts_of_ranks(environ('a:2,b:1', 3, 2)) is None


def test_horovodrun_is_known_as_a_program_and_as_a_script():
    assert is_launcher(['/usr/bin/horovodrun', '-np', '2'])
    assert is_launcher(['python3', '/venv/bin/horovodrun', '-np', '2'])
    assert not is_launcher(['sh', '-c', 'horovodrun'])
