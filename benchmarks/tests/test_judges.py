# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The judges of `convergence.py`, against what is known of a model."""

import numpy as np
import pytest
from works import judges, models
from works.stack import tf


def weights_of(work):
    with tf.Graph().as_default(), tf.Session().as_default() as session:
        model, _ = work.build(models.Table, models.SampledSoftmax, 0)
        session.run(tf.global_variables_initializer())
        return model.get_weights()


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_words():
    work = models.language_model(vocabulary=500, width=4, state=3, batch=8, words='corpus')
    weights = weights_of(work)
    nothing = [np.zeros_like(weight) for weight in weights]
    assert judges.perplexity(work, nothing, 1) == pytest.approx(500, rel=1e-5)
    # A bias for frequent words, which have small ids, perplexes less.
    nothing[-1] = -np.log1p(np.arange(500, dtype=np.float32))
    assert judges.perplexity(work, nothing, 1) < 400


def test_no_worker_trains_on_what_is_judged():
    work = models.language_model(vocabulary=500, batch=8, words='corpus')
    held_out = models.language_model(vocabulary=500, batch=8, words='held out')
    (((judged, _), _),) = held_out.batches(judges.HELD_OUT_RANK, 1)
    (((trained, _), _),) = work.batches(judges.HELD_OUT_RANK, 1)
    assert (judged != trained).any()


def test_accuracy_is_the_share_of_samples_that_are_right():
    work = models.residual_model(batch=200)
    weights = [np.zeros_like(weight) for weight in weights_of(work)]
    # Whatever the image, it says class 3.
    weights[-1][3] = 1
    ((_, targets),) = work.batches(judges.HELD_OUT_RANK, 1)
    assert judges.accuracy(work, weights, 1) == pytest.approx(targets[:, 3].mean())
