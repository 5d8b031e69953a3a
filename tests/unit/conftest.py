"""Fixtures of tests in one process."""

import cases
import pytest
from hypothesis import settings

# Hypothesis 6.31, the last for Python 3.6, may fail a test whose kept examples it replays: it takes
# those that it has cut short for too large ones (`HealthCheck.data_too_large`).
settings.register_profile('nothing_kept', database=None)
settings.load_profile('nothing_kept')


@pytest.fixture
def double_precision():
    """Has both Keras packages compute in float64 for a test."""
    backends = [cases.keras_module(package).backend for package in ('keras', 'tf.keras')]
    before = [backend.floatx() for backend in backends]
    for backend in backends:
        backend.set_floatx('float64')
    yield
    for backend, kind in zip(backends, before):
        backend.set_floatx(kind)
        backend.clear_session()
