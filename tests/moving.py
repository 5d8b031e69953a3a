"""Has the training step of a model follow one architecture after the other, as a case says."""

from keras_parallax.step.train_step import step_of

#: Steps by each architecture.
STEPS = 2


def follow(model, case, number):
    """Called on every rank before the step of a number, from 0: a move may be due. Collective."""
    if case.moves and number and number % STEPS == 0:
        step = step_of(model)
        step.replan(step.request._replace(architecture=case.moves[number // STEPS - 1]))
