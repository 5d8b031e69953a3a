# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Fixtures of tests in one process."""

import cases
import pytest
from frameworks import KERAS_PACKAGES
from hypothesis import settings

# Hypothesis 6.31.6, the last for Python 3.6: with kept examples to replay, `test_table_groups.py`
# failed in a quarter of runs or more (`HealthCheck.data_too_large`), without any in none of 13.
settings.register_profile('nothing_kept', database=None)
settings.load_profile('nothing_kept')


@pytest.fixture
def double_precision():
    """Has both Keras packages compute in float64 for a test."""
    backends = [cases.keras_module(package).backend for package in KERAS_PACKAGES]
    before = [backend.floatx() for backend in backends]
    for backend in backends:
        backend.set_floatx('float64')
    yield
    for backend, kind in zip(backends, before):
        backend.set_floatx(kind)
        backend.clear_session()
