# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a job is given, and who may not give it."""

from types import SimpleNamespace

import pytest

from keras_parallax import ParallaxStrategy
from keras_parallax.engine.job import job
from keras_parallax.errors import PlanError, ScopeError


def test_a_job_has_one_step_timeout(monkeypatch):
    started = SimpleNamespace(step_timeout=600)
    monkeypatch.setattr(job, '_job', started)
    assert job.start() is started and job.start(600) is started
    with pytest.raises(ScopeError, match='600 s was given first, now 5 s'):
        job.start(5)


@pytest.mark.parametrize('seconds', [-1, float('nan')])
def test_a_step_timeout_that_no_step_could_keep_is_refused(seconds):
    with pytest.raises(PlanError, match='step_timeout must be a number of seconds, 0 or more'):
        ParallaxStrategy(step_timeout=seconds)
