"""Sparsity-aware data-parallel training for Keras: a few lines of a script, for `horovodrun`."""

from keras_parallax import versions as _versions

# What follows, an older Python cannot even read, and a newer one has no TensorFlow 1.11 for.
_versions.require_python()

from keras_parallax import callbacks
from keras_parallax.compat import hvd as _hvd
from keras_parallax.errors import (
    CheckpointError,
    IdOutOfRangeError,
    MetricMismatchError,
    ModelMismatchError,
    ParallaxError,
    PlanError,
    ReplicaMismatchError,
    ScopeError,
    ServerLostError,
    StackError,
    UnequalBatchesError,
    UnequalCallsError,
    WorkerFailedError,
)
from keras_parallax.export import export_saved_model
from keras_parallax.loading import load_model
from keras_parallax.optimizer import ParallaxOptimizer
from keras_parallax.resuming import latest_checkpoint
from keras_parallax.saving import save_model
from keras_parallax.strategy import ParallaxStrategy

Compression = _hvd.Compression

__version__ = '0.1.0'

__all__ = [
    'CheckpointError',
    'Compression',
    'IdOutOfRangeError',
    'MetricMismatchError',
    'ModelMismatchError',
    'ParallaxError',
    'ParallaxOptimizer',
    'ParallaxStrategy',
    'PlanError',
    'ReplicaMismatchError',
    'ScopeError',
    'ServerLostError',
    'StackError',
    'UnequalBatchesError',
    'UnequalCallsError',
    'WorkerFailedError',
    'callbacks',
    'export_saved_model',
    'latest_checkpoint',
    'load_model',
    'save_model',
]
