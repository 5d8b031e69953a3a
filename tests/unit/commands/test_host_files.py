# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files that name the hosts of a job."""

import pytest

from keras_parallax.commands.host_files import Host, environ, hosts_of, launcher
from keras_parallax.engine.job.devices import GPUS_VARIABLE

PARALLAX = """
# two machines with two cards each
worker1: 0, 1
worker2: 2,3   # two others are taken
"""
HOROVOD = """
worker1 slots=2
10.0.0.7
"""


def test_a_file_of_parallax_has_a_worker_for_each_card():
    assert hosts_of(PARALLAX) == [Host('worker1', 2, (0, 1)), Host('worker2', 2, (2, 3))]


def test_a_host_without_cards_has_one_worker():
    assert hosts_of('worker1:\nworker2 :') == [Host('worker1', 1, ()), Host('worker2', 1, ())]


def test_a_host_file_of_horovod_has_numbers_of_workers():
    assert hosts_of(HOROVOD) == [Host('worker1', 2, ()), Host('10.0.0.7', 1, ())]


def test_workers_share_a_card_that_is_named_for_each_of_them():
    hosts = hosts_of('worker1: 0, 0, 1')
    assert hosts == [Host('worker1', 3, (0, 0, 1))]
    assert environ(hosts) == {GPUS_VARIABLE: '0,0,1'}


@pytest.mark.parametrize(
    'text, expected',
    [
        ('', 'it names no host'),
        ('# nothing\n\n', 'it names no host'),
        ('a: 0\nb: 0\na: 1', 'line 3 names the host a a second time'),
        ('a: first', "line 1, 'a: first', must have numbers of cards after the colon"),
        ('a: -1', "line 1, 'a: -1', must have numbers of cards after the colon"),
        ('a slots=0', "line 1, 'a slots=0', must be like `worker1: 0, 1`"),
        ('a slots=two', "line 1, 'a slots=two', must be like"),
        ('a b c', "line 1, 'a b c', must be like"),
        ('\na gpus=2', "line 2, 'a gpus=2', must be like"),
        ('a: 0\nb slots=2', 'it names cards of a, and none of b'),
    ],
)
def test_a_file_that_cannot_be_followed_is_refused_with_the_line(text, expected):
    with pytest.raises(ValueError) as caught:
        hosts_of(text)
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    'words, expected',
    [
        (['train.py', '-H', 'high'], ['python', 'train.py', '-H', 'high']),
        (['python3', 'train.py'], ['python3', 'train.py']),
        (['horovodrun', '-p', '2222', 'python', 'a.py'], ['-p', '2222', 'python', 'a.py']),
        (
            ['horovodrun', '--gloo', 'python', '-u', 'a.py', '-H', 'x'],
            ['--gloo', 'python', '-u', 'a.py', '-H', 'x'],
        ),
        (['horovodrun', '-p', '2222', './a', '-np'], ['-p', '2222', './a', '-np']),
    ],
)
def test_the_launcher_is_given_the_hosts_and_then_the_words(words, expected):
    command = launcher(hosts_of(PARALLAX), words)
    assert command == ['horovodrun', '-np', '4', '-H', 'worker1:2,worker2:2'] + expected


@pytest.mark.parametrize('option', ['-np', '-H', '--hosts=a:1', '-hostfile', '--hostfile'])
def test_a_launcher_that_says_which_hosts_is_refused(option):
    for others in ([], ['-p', '2222'], ['--gloo']):
        with pytest.raises(ValueError, match='the command must not: ' + option):
            launcher(hosts_of(PARALLAX), ['horovodrun', *others, option, 'x', 'python', 'a.py'])


def test_ranks_are_told_their_cards_in_order_of_hosts():
    assert environ(hosts_of(PARALLAX)) == {'KERAS_PARALLAX_GPUS': '0,1,2,3'}
    assert environ(hosts_of(HOROVOD)) == {}
