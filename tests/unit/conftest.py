"""Fixtures of tests in one process."""

import cases
import pytest


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
