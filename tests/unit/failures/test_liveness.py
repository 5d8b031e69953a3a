"""Who of the other ranks still answers; real servers and sockets."""

import signal
import socket
import subprocess
import sys

import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.failures import liveness
from keras_parallax.failures.liveness import (
    CUT_OFF,
    Peer,
    ask,
    ask_all,
    in_vain,
    lost_ranks_sentence,
    missing,
)
from keras_parallax.failures.probe import ANSWERS, GONE, SILENT

PEERS = {rank: Peer('h%d' % rank, '10.0.0.%d:1' % rank) for rank in range(4)}


@pytest.fixture(scope='module')
def server():
    return tf.train.Server.create_local_server()


def address(server):
    return '127.0.0.1:' + server.target.decode().rpartition(':')[2]


def closed_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return '127.0.0.1:%d' % probe.getsockname()[1]


def test_a_server_that_runs_answers(server):
    assert ask(address(server)) == ANSWERS


def test_a_server_answers_though_another_task_of_its_cluster_is_gone():
    cluster = {'worker': ['127.0.0.1:0', closed_port()]}
    server = tf.train.Server(cluster, job_name='worker', task_index=0)
    assert ask(address(server)) == ANSWERS


def test_where_nobody_listens_the_process_is_gone():
    assert ask(closed_port()) == GONE


def test_a_process_that_takes_connections_and_does_not_answer_is_silent(monkeypatch):
    monkeypatch.setattr(liveness, '_ANSWER_SECONDS', 1)
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen(5)
        assert ask('127.0.0.1:%d' % listener.getsockname()[1]) == SILENT


def test_a_server_that_is_stopped_is_silent_until_it_goes_on(monkeypatch):
    monkeypatch.setattr(liveness, '_ANSWER_SECONDS', 2)
    script = (
        'import tensorflow as tf, time; server = tf.train.Server.create_local_server();'
        'print(server.target.decode(), flush=True); time.sleep(300)'
    )
    process = subprocess.Popen(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    )
    try:
        where = '127.0.0.1:' + process.stdout.readline().strip().rpartition(':')[2]
        assert ask(where) == ANSWERS
        process.send_signal(signal.SIGSTOP)
        assert ask(where) == SILENT
        process.send_signal(signal.SIGCONT)
        monkeypatch.setattr(liveness, '_ANSWER_SECONDS', 60)
        assert ask(where) == ANSWERS
    finally:
        process.kill()
        process.communicate()
    assert ask(where) == GONE


def test_a_host_that_takes_no_connection_is_cut_off(monkeypatch):
    monkeypatch.setattr(liveness, '_ANSWER_SECONDS', 1)
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(('127.0.0.1', 0))
        # Linux answers no more when one connection waits to be taken.
        listener.listen(0)
        first.connect(listener.getsockname())
        assert ask('127.0.0.1:%d' % listener.getsockname()[1]) == CUT_OFF


def test_all_are_asked_and_none_is_no_one(server):
    peers = {1: Peer('a', address(server)), 5: Peer('b', closed_port())}
    assert ask_all(peers) == {1: ANSWERS, 5: GONE}
    assert ask_all({}) == {}


# --- who counts as lost ---


def test_who_has_missed_two_askings_in_a_row_is_missing():
    answers = {0: GONE, 1: CUT_OFF, 2: SILENT, 3: ANSWERS}
    assert missing({}, answers, 12) == {}
    assert missing(dict.fromkeys(range(4), ANSWERS), answers, 12) == {}
    assert missing(answers, answers, 12) == {0: GONE, 1: CUT_OFF}
    assert missing({0: CUT_OFF, 1: GONE}, answers, 12) == {0: GONE, 1: CUT_OFF}


def test_a_host_may_be_out_of_reach_for_a_while_and_without_a_deadline_for_ever():
    answers = {0: GONE, 1: CUT_OFF}
    assert missing(answers, answers, 9) == {0: GONE}
    assert missing(answers, answers, 0) == {0: GONE}


def test_who_is_stopped_or_busy_is_not_missing():
    assert missing({1: SILENT}, {1: SILENT}, 10**6) == {}


# --- sentences ---------------------------------------------------------------


def test_nobody_is_lost_if_all_answer():
    assert lost_ranks_sentence(PEERS, dict.fromkeys(PEERS, ANSWERS)) is None
    assert lost_ranks_sentence({}, {}) is None


def test_who_has_ended_is_named_with_its_host():
    said = lost_ranks_sentence(PEERS, {0: ANSWERS, 2: GONE, 3: ANSWERS})
    assert said == (
        'Rank 2 on host h2 has ended without a word (killed, out of memory, or crashed).'
    )


def test_who_does_not_answer_is_named_apart_from_who_has_ended():
    said = lost_ranks_sentence(PEERS, {0: SILENT, 1: GONE, 2: GONE, 3: SILENT})
    assert said == (
        'Rank 1 on host h1 and rank 2 on host h2 have ended without a word (killed, out of memory, '
        'or crashed); rank 0 on host h0 and rank 3 on host h3 do not answer (stopped, hung, or '
        'its network is down).'
    )


def test_a_host_that_is_cut_off_is_named():
    said = lost_ranks_sentence(PEERS, {0: CUT_OFF, 1: ANSWERS})
    assert said == 'Rank 0 on host h0 does not answer (its host is down, or the network to it).'


# --- ranks that never start --------------------------------------------------


def test_who_did_not_start_is_named_with_its_host_if_that_is_known():
    said = in_vain({2: 'h1', 0: 'gpu-7', 5: None})
    assert said.startswith(
        'has waited in vain for rank 0 on host gpu-7 and rank 2 on host h1 and '
        'rank 5 on another host (it is not known which) to start; see what horovodrun shows'
    )
