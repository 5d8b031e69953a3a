# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether somebody still listens."""

import socket

from keras_parallax.engine.failures.probe import ANSWERS, GONE, SILENT, Contact, probe


def test_a_listening_socket_answers_and_refuses_once_it_is_closed():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen(1)
        address = '127.0.0.1:%d' % listener.getsockname()[1]
        assert probe(address) == ANSWERS
    assert probe(address) == GONE


def test_a_host_that_nobody_knows_is_silent():
    assert probe('no-such-host.invalid:1') == SILENT


def judged(answers, silent_seconds=5):
    """What is judged after each answer, one a second."""
    contact = Contact(silent_seconds, 0)
    return [contact.is_gone(answer, now + 1) for now, answer in enumerate(answers)]


def test_two_refusals_in_a_row_mean_that_it_is_gone():
    assert judged([ANSWERS, GONE, ANSWERS, GONE, GONE]) == [False] * 4 + [True]
    assert judged([GONE, SILENT, GONE]) == [False] * 3


def test_silence_means_that_it_is_gone_only_when_it_lasts():
    assert judged([SILENT] * 6) == [False] * 5 + [True]
    assert judged([SILENT] * 4 + [ANSWERS] + [SILENT] * 5) == [False] * 10
