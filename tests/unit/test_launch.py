# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the tests' own launcher does with a `horovodrun` that hangs; a shell stands for it here."""

import launch
import pytest


def shell(text):
    """A prefix that runs `text` instead of the launcher."""
    return ['sh', '-c', text, 'sh']


def test_a_launcher_that_starts_no_rank_is_started_once_more_and_not_in_silence(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(launch, 'START_SECONDS', 1)
    once = shell('mkdir %s && sleep 300; echo second' % (tmp_path / 'first'))
    with pytest.warns(UserWarning, match='started no worker'):
        outcome = launch.run(2, 'nothing.py', prefix=once, limit=60)
    assert outcome.code == 0 and outcome.output.endswith('second\n')


def test_a_job_that_hangs_after_a_rank_has_started_counts_as_hung(monkeypatch):
    monkeypatch.setattr(launch, 'START_SECONDS', 1)
    outcome = launch.run(2, 'nothing.py', prefix=shell('echo RANK 1 STARTED; sleep 300'), limit=2)
    assert outcome == (None, 'RANK 1 STARTED\n')


def test_a_launcher_that_hangs_twice_counts_as_hung(monkeypatch):
    monkeypatch.setattr(launch, 'START_SECONDS', 1)
    with pytest.warns(UserWarning, match='started no worker'):
        assert launch.run(2, 'nothing.py', prefix=shell('sleep 300'), limit=1).code is None
