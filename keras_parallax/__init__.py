# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sparsity-aware data-parallel training for Keras: a few lines of a script, for `horovodrun`."""

import os as _os

from keras_parallax.compat import supported_versions as _versions

# What follows, an older Python cannot even read.
_versions.require_python()

# Before TensorFlow says anything.
from keras_parallax import logs as _logs  # isort: skip

_logs.start()

# A worker that ends before its job has begun, by an import that fails for instance, says so.
from keras_parallax.engine.job import last_words as _last_words  # isort: skip

_last_words.install(_os.environ)

# TensorFlow is looked at first: where it is missing, much else may be.
from keras_parallax.compat import installed_frameworks as _stack  # noqa: F401  # isort: skip
from keras_parallax import callbacks, data, layers, metrics, optimizers
from keras_parallax.checkpoint.keras_file_write import save_model
from keras_parallax.checkpoint.resume import latest_checkpoint
from keras_parallax.checkpoint.saved_model import export_saved_model
from keras_parallax.compat.horovod_api import hvd as _hvd
from keras_parallax.engine.tables.id_policies import Admission, Eviction
from keras_parallax.errors import (
    CheckpointError,
    DataError,
    IdOutOfRangeError,
    MetricMismatchError,
    ModelMismatchError,
    ParallaxError,
    PlanError,
    ProfileError,
    PublicServerError,
    ReplicaMismatchError,
    ScopeError,
    ServerLostError,
    StackError,
    TableFullError,
    UnequalBatchesError,
    UnequalCallsError,
    WorkerFailedError,
)
from keras_parallax.keras2.models import load_model
from keras_parallax.optimizer import ParallaxOptimizer
from keras_parallax.strategy import ParallaxStrategy
from keras_parallax.version import VERSION as _VERSION

Compression = _hvd.Compression

__version__ = _VERSION

__all__ = [
    'Admission',
    'CheckpointError',
    'Compression',
    'DataError',
    'Eviction',
    'IdOutOfRangeError',
    'MetricMismatchError',
    'ModelMismatchError',
    'ParallaxError',
    'ParallaxOptimizer',
    'ParallaxStrategy',
    'PlanError',
    'ProfileError',
    'PublicServerError',
    'ReplicaMismatchError',
    'ScopeError',
    'ServerLostError',
    'StackError',
    'TableFullError',
    'UnequalBatchesError',
    'UnequalCallsError',
    'WorkerFailedError',
    'callbacks',
    'data',
    'export_saved_model',
    'latest_checkpoint',
    'layers',
    'load_model',
    'metrics',
    'optimizers',
    'save_model',
]


# Python 3.7 and newer call it. It has no annotation, for an older Python reads this file, too.
def __dir__():
    # type: () -> list[str]
    return __all__ + ['__version__']
