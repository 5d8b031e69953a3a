# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics of all samples of the job, not means of the workers' own, for both Keras packages."""

from typing import List

from keras_parallax.metrics.auc import AUC
from keras_parallax.metrics.group_auc import GroupAUC
from keras_parallax.metrics.log_loss import Calibration, LogLoss, NormalizedEntropy
from keras_parallax.metrics.top_k import PrecisionAtK, RecallAtK

__all__ = [
    'AUC',
    'Calibration',
    'GroupAUC',
    'LogLoss',
    'NormalizedEntropy',
    'PrecisionAtK',
    'RecallAtK',
]


def __dir__() -> List[str]:
    return list(__all__)
