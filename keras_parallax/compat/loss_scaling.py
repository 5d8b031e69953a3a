# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Mixed precision of Keras: the optimizer that scales the loss, and variables that are cast.

Half precision takes small gradients for 0. So a `LossScaleOptimizer` multiplies the loss by a
number, divides the gradients by it, and leaves a step out whose gradients are not finite.
"""

from typing import Any, Callable, List, Sequence

from keras_parallax.compat import keras_optimizers
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Model, Operation, Optimizer, Tensor


class LossScale:
    """The scale of a loss.

    Args:
        optimizer: the `LossScaleOptimizer`.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    @property
    def is_dynamic(self) -> bool:
        """Whether it changes, and steps are left out for it."""
        return self._optimizer.dynamic

    def gradients(
        self, loss: Tensor, tensors: Sequence[Tensor], parts: int, **arguments: Any
    ) -> List[Any]:
        """The gradients of a loss, which are computed of the scaled one.

        The loss is a mean, so that a sample of one of several equal parts of a batch has a larger
        share in it. It is scaled less then, so that nothing overflows that would not in the whole
        batch.

        Args:
            loss: a scalar tensor.
            tensors: with respect to what, a list.
            parts: of how many parts of a batch it is one.
            **arguments: further ones of `tf.gradients`.

        Returns:
            A list as `tf.gradients` returns it.
        """
        scale = self._optimizer.loss_scale / float(parts)
        scaled = tf.gradients(loss, tensors, grad_ys=[tf.cast(scale, loss.dtype)], **arguments)
        return [
            gradient if gradient is None else _times(gradient, 1 / scale) for gradient in scaled
        ]

    def applied_if_finite(
        self, total: Tensor, make_slots: Callable[[], None], build: Callable[[], List[Operation]]
    ) -> List[Operation]:
        """Builds updates that are left out in a step whose gradients are not finite.

        Args:
            total: a scalar that is not finite in such a step, the same on every worker.
            make_slots: function of nothing that makes what the optimizers keep for variables.
            build: function of nothing that builds the updates, a list of operations.

        Returns:
            A list of operations, which change the scale, too.
        """
        inner = keras_optimizers.inner_of(self._optimizer)
        make_slots()  # Not in the branch.
        changed, is_finite = self._optimizer._loss_scale.update([total])
        applied = tf.cond(
            is_finite,
            lambda: tf.group(*build()),
            lambda: inner.iterations.assign_add(1, read_value=False),
        )
        return [tf.group(applied, changed)]


def _times(gradient: Any, factor: Tensor) -> Any:
    """A gradient times a number, a scalar of single precision."""
    if isinstance(gradient, tf.IndexedSlices):
        values = _times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def not_finite_if_any(gradients: Sequence[Any]) -> Tensor:
    """A scalar that is 0 if all gradients are finite, else not a number.

    Args:
        gradients: a list of tensors and `IndexedSlices`.
    """
    values = [getattr(gradient, 'values', gradient) for gradient in gradients]
    finite = tf.reduce_all([tf.reduce_all(tf.is_finite(value)) for value in values])
    return tf.where(finite, 0.0, float('nan'))


def as_compiled(model: Model, optimizer: Optimizer) -> Optimizer:
    """The optimizer that Keras's `compile` makes of one: where it must, one that scales the loss.

    Args:
        model: the model.
        optimizer: an optimizer of Keras.

    Raises:
        PlanError: this TensorFlow would have to scale the loss, and cannot.
    """
    policy = getattr(model, '_dtype_policy', None)
    if policy is not None:
        generation.check_policy(policy)
    needs_scale = policy is not None and policy.name == 'mixed_float16'
    if not needs_scale or isinstance(optimizer, keras_optimizers.LOSS_SCALE_OPTIMIZER):
        return optimizer
    return keras_optimizers.LOSS_SCALE_OPTIMIZER(optimizer)
