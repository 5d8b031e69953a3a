# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Losses of the joined batch: what a worker's loss lacks, so that the mean over workers is right.

Keras makes one number of the losses of a batch. A mean over its samples needs nothing. A sum, and
a mean over what a mask or sample weights leave, differ: there each worker's number is multiplied by
its share in the joined batch.
"""

import contextlib
import functools
from typing import Any, Callable, Iterator, Optional

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.errors import PlanError
from keras_parallax.keras3.scope import Keras3Scope


class JointStep:
    """The training step of a model, while Keras builds or runs it.

    Args:
        scope: the `Keras3Scope`.
        optimizer: the wrapped optimizer.

    Attributes:
        scope, job: as given, and its `Job`.
        batch_size: the number of samples of this worker's batch, a scalar or `None`; that of the
            step that is being built.
        test_function: what Keras has built for validations that all workers run together, or
            `None`.
    """

    def __init__(self, scope: Keras3Scope, optimizer: Any) -> None:
        self.scope, self.job, self._optimizer = scope, scope.job, optimizer
        self.batch_size: Any = None
        self.test_function: Any = None
        self._number = 0

    def begun(self) -> None:
        """Takes note that the loss of a batch is about to be computed."""
        self._number = 0

    def ended(self) -> None:
        """Takes note that the gradients of a step are applied."""
        self.batch_size, self._number = None, 0

    @property
    def loss_reduction(self) -> Optional[str]:
        """As of `ParallaxOptimizer`."""
        return self._optimizer._parallax_settings.loss_reduction

    def sum(self, number: Any) -> Any:
        """The sum over the workers of a scalar."""
        self._number += 1
        name = '%s.loss_%d' % (self._optimizer._parallax_name, self._number)
        backend = keras3_api.backend_module()
        collective = self.scope.collective_of('the exchange of a loss')
        return backend.sum_over_workers(number, name, collective)


_current: Optional[JointStep] = None


@contextlib.contextmanager
def step_of(joint: Optional[JointStep]) -> Iterator[None]:
    """While open, losses are those of a training step."""
    global _current
    former, _current = _current, joint
    try:
        yield
    finally:
        _current = former


def current() -> Optional[JointStep]:
    """The `JointStep` that is open, or `None`."""
    return _current


#: How many losses are being called, each within the one before.
_depth = 0


def install() -> None:
    """Has the losses of training steps counted as they are in the joined batch."""
    keras3_api.replace_reduction(_reduction)
    keras3_api.replace_method('Loss.__call__', keras3_api.Loss, _counted)


def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _depth
        _depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _depth -= 1

    return __call__


def _reduction(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce_weighted_values(
        values: Any,
        sample_weight: Any = None,
        mask: Any = None,
        reduction: Optional[str] = 'sum_over_batch_size',
        dtype: Any = None,
    ) -> Any:
        loss = original(values, sample_weight, mask, reduction, dtype)
        joint = current()
        # What a loss of the script's own computes with is counted by that loss.
        if joint is None or joint.job.size == 1 or _depth > 1:
            return loss
        return loss * _factor(joint, values, sample_weight, mask, reduction)

    return reduce_weighted_values


def _factor(joint: JointStep, values: Any, sample_weight: Any, mask: Any, reduction: Any) -> Any:
    """By what to multiply a worker's loss."""
    ranks = float(joint.job.size)
    if len(values.shape) == 0:
        return ranks if _is_sum(joint) else 1.0
    if reduction == keras3_api.SUM:
        return ranks
    ops = keras.ops
    if reduction in keras3_api.MEAN_REDUCTIONS:
        if mask is None:
            return 1.0
        own = ops.sum(ops.cast(mask, 'float32'))
    elif reduction == keras3_api.WEIGHTED_MEAN:
        weight = keras3_api.masked_weight(sample_weight, mask, 'float32')
        if weight is None:
            return 1.0
        own = ops.sum(ops.cast(weight, 'float32'))
    else:
        raise PlanError(
            'A loss with reduction=%r is not one number for a batch, so several workers cannot '
            "tell that of their joined batch. Use reduction='sum_over_batch_size'." % (reduction,)
        )
    total = joint.sum(own)
    return ops.cast(ops.divide_no_nan(own * ranks, total), values.dtype)


def _is_sum(joint: JointStep) -> bool:
    """Whether a loss that is one number for a batch is a sum over its samples."""
    if joint.loss_reduction is None:
        raise PlanError(
            'A loss function returns one number for a batch, and several workers need to know '
            'what it is. Return one number for each sample, or say it: '
            "kp.ParallaxOptimizer(optimizer, loss_reduction='mean') or 'sum'."
        )
    return joint.loss_reduction == 'sum'


def check_added(joint: JointStep, model: Any) -> None:
    """Refuses losses that layers add with `add_loss`, unless it is said what they are."""
    if joint.job.size == 1 or joint.loss_reduction == 'mean':
        return
    for layer in keras3_api.layers_of(model):
        # That of an activity regularizer is a mean over the batch.
        if layer.activity_regularizer is None and keras3_api.added_losses(layer):
            raise PlanError(
                'Layer %s calls add_loss, and several workers need to know that it adds a mean '
                'over the samples of a batch. If it does, say so: '
                "kp.ParallaxOptimizer(optimizer, loss_reduction='mean'). Sums are not supported "
                'with Keras 3 yet.' % layer.name
            )
