# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A dedicated server: which worker's answer counts, and a port that another process has."""

import socket
from types import SimpleNamespace

import click
import pytest

from keras_parallax.commands import server
from keras_parallax.engine.failures import probe


@pytest.mark.parametrize('answers, best', [
    ([probe.GONE, probe.SILENT, probe.ANSWERS], probe.ANSWERS),
    ([probe.GONE, probe.SILENT, probe.GONE], probe.SILENT),
    ([probe.GONE, probe.GONE], probe.GONE),
])  # fmt: skip
def test_a_job_is_there_while_one_worker_is(answers, best, monkeypatch):
    workers = list(range(len(answers)))
    monkeypatch.setattr(probe, 'probe', answers.__getitem__)
    assert server._best_answer(workers) == best


def test_the_worker_that_answers_is_asked_first_the_next_time(monkeypatch):
    asked, workers = [], ['a', 'b', 'c']

    def answer(address):
        asked.append(address)
        return probe.ANSWERS if address == 'c' else probe.GONE

    monkeypatch.setattr(probe, 'probe', answer)
    server._best_answer(workers), server._best_answer(workers)
    assert asked == ['a', 'b', 'c', 'c']


def test_a_port_that_another_process_has_is_refused_by_number():
    with socket.socket() as other:
        other.bind(('', 0))
        other.listen(1)
        port = other.getsockname()[1]
        with pytest.raises(click.ClickException) as caught:
            server._wait_for_job(port, (), SimpleNamespace(by=None))
    assert caught.value.message == 'Port %d: Address already in use.' % port
