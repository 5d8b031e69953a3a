# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Callbacks with the names and arguments of Horovod's and Keras's, for both Keras packages."""

from typing import List

from keras_parallax.callbacks.broadcast import BroadcastGlobalVariablesCallback
from keras_parallax.callbacks.graph_export import GraphExport
from keras_parallax.callbacks.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from keras_parallax.callbacks.metric_average import MetricAverageCallback
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint
from keras_parallax.callbacks.plan_report import PlanReport
from keras_parallax.callbacks.profile import Profile
from keras_parallax.callbacks.progress_bar import ProgressBar
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.callbacks.tensor_board import TensorBoard

__all__ = [
    'BroadcastGlobalVariablesCallback',
    'GraphExport',
    'LearningRateScheduleCallback',
    'LearningRateWarmupCallback',
    'MetricAverageCallback',
    'ModelCheckpoint',
    'PlanReport',
    'Profile',
    'ProgressBar',
    'StepMetrics',
    'TensorBoard',
]


def __dir__() -> List[str]:
    return list(__all__)
