"""Metrics of all samples of the job, not means of the workers' own, for both Keras packages."""

from keras_parallax.metrics.auc import AUC

__all__ = ['AUC']
