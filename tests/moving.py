# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Has the training step of a model follow one architecture after the other, as a case says."""

from keras_parallax.engine.step.train_step import step_of
from keras_parallax.tuning.moves import replan

#: Steps by each architecture.
STEPS = 2


def follow(model, case, number):
    """Called on every worker before the step of a number, from 0: a move may be due. Collective."""
    if case.moves and number and number % STEPS == 0:
        step = step_of(model)
        replan(step, step.request._replace(architecture=case.moves[number // STEPS - 1]))
