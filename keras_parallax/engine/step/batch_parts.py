# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Losses that Keras divides by what a batch's mask and sample weights sum up to, for all workers.

Keras divides some losses by the mean of a mask, or by a sum or a share of sample weights
(`compat/keras_losses.py`). A worker that divided by its own batch's numbers would count its samples
more or less than other workers do. So the workers exchange these few numbers in each step, and
divide by their means.

A mask is seen in the graph. Whether a script gives sample weights is not: with `keras` 2.2.4 and
`tf.keras` of TensorFlow 1.11 every model takes them, and they are ones if none are given. Workers
of a model without masks exchange nothing until a script gives weights, which turns the exchange on.
"""

import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence

from keras_parallax.compat import horovod_api
from keras_parallax.compat.keras_losses import Divided
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.collectives import unmerged
from keras_parallax.engine.step.loss_terms import LossTerm
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Session

#: Every worker builds its training steps in the same order, so the numbers agree between workers.
_numbers = itertools.count()


class BatchParts:
    """How a worker counts the losses and metrics of its model that Keras divides.

    Args:
        terms: a `LossTerm` of each of them.
        weights: the tensors of sample weights that they depend on.
        switch: a variable that says whether the workers exchange their numbers, or `None` if they
            always do, or never.
        accumulate_steps: how many batches a worker adds up before it exchanges gradients.

    Attributes:
        terms, weights: as given.
        takes_weights: whether a script may give sample weights now: whether they are exchanged, if
            they have to be.
    """

    def __init__(
        self,
        terms: Sequence[LossTerm] = (),
        weights: Sequence[tf.Tensor] = (),
        switch: Optional[tf.Variable] = None,
        accumulate_steps: int = 1,
    ) -> None:
        self.terms, self.weights = list(terms), list(weights)
        self._switch, self._steps = switch, accumulate_steps
        self.takes_weights = not weights or (switch is None and accumulate_steps == 1)

    @property
    def initializers(self) -> List[tf.Operation]:
        """The operations to be run before the first step."""
        return [] if self._switch is None else [self._switch.initializer]

    def check_weights(self) -> None:
        """Raises `PlanError` if sample weights cannot be counted as in the joined batch."""
        if self._steps > 1 and self.weights:
            raise _accumulated('sample weights', self._steps)

    def turn_on(self, session: Session) -> None:
        """Has this worker exchange its numbers from now on, as all workers must."""
        self.check_weights()
        if not self.takes_weights:
            session.run(tf.assign(self._switch, True).op)
            self.takes_weights = True


def batch_parts(
    divided: Sequence[Divided], name: str, size: int, accumulate_steps: int, by_switch: bool
) -> BatchParts:
    """The `BatchParts` of a model.

    Args:
        divided: its losses and metrics that Keras divides, in an order that all workers have in
            common.
        name: prefix of the names of collectives and variables, the same on every worker.
        size: the number of workers whose gradients are averaged.
        accumulate_steps: how many batches a worker adds up before it exchanges gradients.
        by_switch: whether `BatchParts.turn_on` will be called before sample weights are given.

    Raises:
        PlanError: the joined batch's values cannot be computed.
    """
    if not divided or size * accumulate_steps == 1:
        return BatchParts()
    weights = list({one.weights: None for one in divided if one.weights is not None})
    for one in divided:
        if one.problem is not None:
            raise PlanError(
                'The loss of a batch on each of %d workers cannot be made that of the joined '
                'batch, because %s. Compute the loss without a mask, or train with one worker.'
                % (size, one.problem)
            )
    is_masked = any(one.is_masked for one in divided)
    is_weighted = any(one.is_weighted for one in divided)
    if accumulate_steps > 1:
        if is_masked:
            raise _accumulated('a mask that reaches the loss', accumulate_steps)
        if is_weighted:
            raise _accumulated('sample weights for a loss that is one number', accumulate_steps)
        terms = [] if by_switch else [_unweighted(one, accumulate_steps) for one in divided]
        return BatchParts(terms, weights, None, accumulate_steps)
    name = '%s.batch_parts.%d' % (name, next(_numbers))
    parts = list({part: None for one in divided for part in (*one.factors, *one.divisors)})
    switch = None
    if by_switch and not (is_masked or is_weighted):
        with tf.control_dependencies(None), tf.name_scope(None), tf.device('/cpu:0'):
            switch = tf.Variable(
                False,
                trainable=False,
                # Local ones go along when the session moves to a server.
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                name='parallax/%s/are_exchanged' % name,
            )
    means = _means(parts, lambda vector: _mean(vector, name, size), switch)
    return BatchParts([_term(one, means) for one in divided], weights, switch)


def _unweighted(one: Divided, steps: int) -> LossTerm:
    """The term of a step that a script builds itself, which fails if its weights are not ones."""
    problem = str(_accumulated('sample weights', steps))
    weights: Any = one.weights  # Without a mask, Keras divides by them.
    are_ones = tf.reduce_all(tf.equal(weights, tf.ones([], weights.dtype)))
    with tf.control_dependencies([tf.Assert(are_ones, [problem])]):
        return LossTerm(one.value, instead=tf.identity(one.value))


def _accumulated(what: str, steps: int) -> PlanError:
    return PlanError(
        'accumulate_steps=%d goes with losses that are means over the samples of a batch, but '
        'Keras divides the loss of this model by numbers of each batch, because it has %s. Leave '
        'accumulate_steps out, with a larger batch or more workers instead, or train without '
        'them.' % (steps, what)
    )


def _mean(vector: tf.Tensor, name: str, size: int) -> tf.Tensor:
    """The mean of a vector over the workers."""
    with tf.name_scope(None):
        return unmerged(horovod_api.allreduce(vector, name=name)) / size


def _means(
    parts: Sequence[tf.Tensor],
    mean: Callable[[tf.Tensor], tf.Tensor],
    switch: Optional[tf.Variable],
) -> Dict[tf.Tensor, tf.Tensor]:
    """A dict from scalar tensors to their means, or to themselves while a switch is off."""
    dtype = tf.float64 if any(part.dtype == tf.float64 for part in parts) else tf.float32
    vector = tf.stack([tf.cast(part, dtype) for part in parts])
    if switch is None:
        joint = mean(vector)
    else:
        joint = tf.cond(tf.identity(switch), lambda: mean(vector), lambda: tf.identity(vector))
    joint = tf.stop_gradient(joint)
    return {part: tf.cast(joint[number], part.dtype) for number, part in enumerate(parts)}


def _term(one: Divided, means: Dict[tf.Tensor, tf.Tensor]) -> LossTerm:
    counted = one.numerator
    for factor in one.factors:
        counted = counted * means[factor]
    for divisor in one.divisors:
        counted = one.divide(counted, means[divisor])
    return LossTerm(one.value, instead=counted)
