# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A worker of a job that is not there."""

from types import SimpleNamespace

import pytest

from keras_parallax.data import worker


@pytest.fixture
def as_worker(monkeypatch):
    """Function that makes this process rank `rank` of `size`, for what shares data."""

    def become(rank, size):
        monkeypatch.setattr(worker, 'current', lambda: SimpleNamespace(rank=rank, size=size))

    return become
