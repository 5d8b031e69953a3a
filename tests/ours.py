# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Our training of a case in one process, and how it is held against plain Keras's."""

import cases
import numpy as np
import reference

import keras_parallax as kp


def compiled(case, keras):
    """A case's model with its start weights, compiled with our optimizer in a graph of its own."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy(**case.strategy):
        model = case.model(keras)
        model.compile(kp.ParallaxOptimizer(case.optimizer(keras), **case.wrap), case.loss)
    model.set_weights(cases.start_weights(model))
    return model


def trained(model, case, steps, between=lambda model: None, slots=False):
    """Losses, and the final weights of a model, and of its optimizer where `slots` asks for them.

    Args:
        model: ours, or one of plain Keras.
        case: the `cases.Case` that it is of.
        steps: how many to train.
        between: called with the model after half of them.
        slots: whether the optimizer's slots and counters belong to the weights.
    """
    batches, half = list(cases.joined_batches(case, 1, steps)), steps // 2
    losses = cases.train(model, batches[:half])
    between(model)
    losses += cases.train(model, batches[half:])
    return losses, model.get_weights() + (model.optimizer.get_weights() if slots else [])


def assert_equals_plain_keras(case, keras, tolerance=1e-5, steps=6, **arguments):
    """Checks losses and weights of our training against those of plain Keras.

    Args:
        case, steps: as `trained` takes them.
        keras: a Keras package.
        tolerance: greatest difference of a loss, relative to itself, and of an array, relative to
            its largest entry.
        **arguments: others of `trained`.

    Returns:
        Our model, and the weights of plain Keras.
    """
    losses, expected = trained(reference.compiled(case, keras), case, steps, **arguments)
    assert len(set(losses)) > 1
    model = compiled(case, keras)
    own_losses, weights = trained(model, case, steps, **arguments)
    np.testing.assert_allclose(own_losses, losses, rtol=tolerance)
    assert len(weights) == len(expected)
    for weight, plain in zip(weights, expected):
        np.testing.assert_allclose(weight, plain, rtol=0, atol=tolerance * np.abs(plain).max())
    return model, expected
