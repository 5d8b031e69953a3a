"""Metrics of all samples of the job, not means of the workers' own, for both Keras packages."""

from keras_parallax.metrics.auc import AUC
from keras_parallax.metrics.log_loss import Calibration, LogLoss, NormalizedEntropy

__all__ = ['AUC', 'Calibration', 'LogLoss', 'NormalizedEntropy']
