# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The definitions that metrics are compared with give the numbers of scikit-learn 1.9.1.

It does not run on Python 3.6, so its numbers are written here: of `roc_auc_score`, `log_loss`
and `top_k_accuracy_score`.
"""

import numpy as np
import pytest
import true_metrics

RANDOM = np.random.RandomState(0)
LABELS = (RANDOM.rand(200) < 0.3).astype(int)
PREDICTIONS = np.round(np.clip(0.25 * LABELS + 0.7 * RANDOM.rand(200), 0.01, 0.99), 2)
WEIGHTS = RANDOM.randint(0, 4, 200)
SCORES = RANDOM.rand(50, 6)
ONE_OF_SIX = np.eye(6)[RANDOM.randint(0, 6, 50)]
GROUPS = np.arange(200) ** 2 % 23


def test_the_area_is_scikit_learns():
    assert true_metrics.auc(LABELS, PREDICTIONS) == pytest.approx(0.820733577072768, rel=1e-12)
    weighted = true_metrics.auc(LABELS, PREDICTIONS, WEIGHTS)
    assert weighted == pytest.approx(0.8353964946684642, rel=1e-12)


def test_the_area_within_groups_is_the_mean_of_scikit_learns_by_samples():
    found = true_metrics.group_auc(LABELS, PREDICTIONS, GROUPS)
    assert found == pytest.approx(0.8349775918525918, rel=1e-12)
    weighted = true_metrics.group_auc(LABELS, PREDICTIONS, GROUPS, WEIGHTS)
    assert weighted == pytest.approx(0.8399873311290633, rel=1e-12)


def test_the_log_loss_is_scikit_learns():
    assert true_metrics.log_loss(LABELS, PREDICTIONS) == pytest.approx(0.49310918562231115)
    weighted = true_metrics.log_loss(LABELS, PREDICTIONS, WEIGHTS)
    assert weighted == pytest.approx(0.472039266794051)


def test_the_normalized_entropy_is_one_log_loss_of_scikit_learns_over_another():
    assert true_metrics.normalized_entropy(LABELS, PREDICTIONS) == pytest.approx(0.8017495114435788)


def test_the_recall_of_one_right_item_is_scikit_learns_top_k_accuracy():
    assert true_metrics.recall_at_k(ONE_OF_SIX, SCORES, 2) == pytest.approx(0.32)
    assert true_metrics.precision_at_k(ONE_OF_SIX, SCORES, 2) == pytest.approx(0.32 / 2)
