# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model's training function: losses of the joined batch, and sample weights.

`batch_parts.py` says why losses and metrics that Keras divides are not those of the joined batch by
themselves.
"""

import contextlib
import functools
from typing import Any, Callable, Iterator, List

import numpy as np

from keras_parallax.compat import keras_api, keras_losses
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step import loss_terms
from keras_parallax.engine.step.batch_parts import BatchParts
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Model


class TrainingFunction:
    """What an optimizer knows of the function by which Keras trains its model.

    Attributes:
        is_being_built: whether Keras is building it.
        model: the model for which Keras is building it, or `None`.
        has_weights: whether `train_on_batch` was given sample weights.
        joint: the function whose losses are those of the joined batch, or `None`.
    """

    def __init__(self) -> None:
        self.is_being_built = self.has_weights = False
        self.joint: Any = None
        self.model: Model = None

    @contextlib.contextmanager
    def built(self, model: Model) -> Iterator[None]:
        """While open, Keras builds the function of a model."""
        self.is_being_built, self.model = True, model
        try:
            yield
        finally:
            self.is_being_built, self.model = False, None


def use_joint_losses(model: Model) -> None:
    """Has the function that trains a model report losses as the joined batch has them.

    The mean over the workers of what each reports is the joined batch's loss. A collective call at
    the first batch to which a script gives sample weights.
    """
    training, step = model.optimizer._parallax_training, model.optimizer._parallax_step
    if step is None or not (step.spec.terms or step.spec.parts.weights):
        return
    function, parts = model.train_function, step.spec.parts
    if function is not training.joint and hasattr(function, 'outputs'):
        total = loss_terms.LossTerm(step.spec.loss, instead=step.spec.trained)
        terms = [term for term in step.spec.terms if term.value is not total.value]
        with step.spec.loss.graph.as_default():
            function.outputs[:] = loss_terms.joined(function.outputs, [total, *terms])
        if not parts.takes_weights:
            function = model.train_function = _Checked(function, parts)
        training.joint = function
    if training.has_weights and not parts.takes_weights:
        parts.check_weights()
        with step.job.call('the first training batch with sample weights'):
            step.job.gather(True)
            count_weights(step)


def agree_on_weights(model: Model, sample_weight: Any, class_weight: Any) -> None:
    """Has the workers exchange sample weights if `fit` of any worker was given some.

    A collective call of the workers of a model without a strategy, whose Keras divides by weights.
    The workers of a model with a strategy agree in `callbacks/joint_fit.py`.
    """
    is_built = getattr(model, 'total_loss', None) is not None
    if not (is_built and keras_losses.divides_by_weights(keras_api.package_of(model))):
        return
    keras_api.make_train_function(model)
    step = model.optimizer._parallax_step
    if step.spec.parts.takes_weights:
        return
    if any(step.job.gather(has_weights(sample_weight, class_weight))):
        count_weights(step)


def count_weights(step: TrainStep) -> None:
    """Has the workers exchange what sample weights sum up to. All workers call it.

    Args:
        step: the `TrainStep`.

    Raises:
        PlanError: sample weights cannot be counted as in the joined batch.
    """
    parts, graph = step.spec.parts, step.spec.loss.graph
    parts.check_weights()
    if not parts.takes_weights:
        with lock_of(graph).held(), graph.as_default():
            parts.turn_on(step.spec.package.backend.get_session())


def has_weights(sample_weight: Any, class_weight: Any) -> bool:
    """Whether a call that trains was given weights."""
    return sample_weight is not None or class_weight is not None


def noting_weights(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Model.train_on_batch` that notes whether it is given sample weights."""

    @functools.wraps(original)
    def train_on_batch(
        model: Model, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None,
        *others: Any, **named: Any,
    ) -> Any:  # fmt: skip
        if has_weights(sample_weight, class_weight):
            training = getattr(getattr(model, 'optimizer', None), '_parallax_training', None)
            if training is not None:
                training.has_weights = True
        return original(model, x, y, sample_weight, class_weight, *others, **named)

    return train_on_batch


class _Checked:
    """A function that trains a model, and that refuses sample weights until they are exchanged.

    `fit` and `train_on_batch` have the workers exchange them before they call it. A script that
    calls it itself would train each worker with the weights of its own batch.
    """

    def __init__(self, function: Any, parts: BatchParts) -> None:
        self._function, self._parts = function, parts
        self._places = [
            place for place, tensor in enumerate(function.inputs) if tensor in parts.weights
        ]

    def __call__(self, inputs: List[Any]) -> Any:
        if not self._parts.takes_weights and any(
            inputs[place] is not None and np.any(np.not_equal(inputs[place], 1))
            for place in self._places
        ):
            self._parts.check_weights()
            raise PlanError(
                'model.train_function was called with sample weights. Give them to '
                'model.train_on_batch or model.fit, so that all workers count them together.'
            )
        return self._function(inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)
