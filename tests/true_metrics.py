# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics as their definitions say, of all samples at once; compared with scikit-learn's."""

import numpy as np


def auc(labels, predictions, weights=None):
    """The share of pairs of a positive and a negative sample in which the positive is ahead."""
    weights = np.ones(len(labels)) if weights is None else weights
    ahead = np.sign(predictions[labels == 1][:, None] - predictions[labels == 0][None])
    pairs = weights[labels == 1][:, None] * weights[labels == 0][None]
    return float((pairs * (ahead + 1) / 2).sum() / pairs.sum())


def auc_bound(labels, predictions, intervals):
    """How far an area of so many intervals may be from the exact one."""
    edges = np.linspace(0, 1, intervals + 1)
    shares = [np.histogram(predictions[labels == label], edges)[0] for label in (0, 1)]
    return 0.5 * float(np.prod([share / share.sum() for share in shares], 0).sum())


def group_auc(labels, predictions, groups, weights=None):
    """The mean of the groups' areas, each counted by its samples, of groups with both labels."""
    weights = np.ones(len(labels)) if weights is None else weights
    areas, counts = [], []
    for group in np.unique(groups):
        own = groups == group
        positives = weights[own][labels[own] == 1].sum()
        if 0 < positives < weights[own].sum():
            areas.append(auc(labels[own], predictions[own], weights[own]))
            counts.append(weights[own].sum())
    return float(np.average(areas, weights=counts)) if counts else np.nan


def log_loss(labels, predictions, weights=None):
    """The mean of the negative logarithm of the probability of a sample's label."""
    of_labels = np.where(labels == 1, predictions, 1 - predictions).astype(np.float64)
    return float(np.average(-np.log(of_labels), weights=weights))


def normalized_entropy(labels, predictions, weights=None):
    """The log loss over that of the share of positive samples."""
    share = np.average(labels.astype(np.float64), weights=weights)
    loss_of_share = log_loss(labels, np.full(len(labels), share), weights)
    return log_loss(labels, predictions, weights) / loss_of_share


def calibration(labels, predictions, weights=None):
    """The mean prediction over the share of positive samples."""
    sums = [np.average(of.astype(np.float64), weights=weights) for of in (predictions, labels)]
    return float(sums[0] / sums[1])


def precision_at_k(labels, predictions, k=2):
    """The mean share of right items among the first `k` of a sample."""
    return float(np.mean(_hits(labels, predictions, k) / k))


def recall_at_k(labels, predictions, k=2):
    """The mean share of a sample's right items among its first `k`, of samples that have any."""
    right = labels.sum(1)
    return float(np.mean(_hits(labels, predictions, k)[right > 0] / right[right > 0]))


def _hits(labels, predictions, k):
    first = np.argsort(-predictions, 1, kind='mergesort')[:, :k]
    return np.take_along_axis(labels, first, 1).sum(1)
