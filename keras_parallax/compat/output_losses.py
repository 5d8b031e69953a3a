# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The losses of a compiled model: of each output, and what layers add."""

from typing import Any, Dict, List, NamedTuple, Optional

from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf

#: How the value of a loss grows with its batch.
MEAN, SUM = 'mean', 'sum'

#: What a loss object of TensorFlow 1.15 and later calls its reductions: `'auto'` is a mean in
#: `compile`, and the gradient of a loss that is not reduced is that of its sum.
_REDUCTIONS = {'auto': MEAN, 'sum_over_batch_size': MEAN, 'sum': SUM, 'none': SUM}

#: The classes of regularizers whose value is a sum over the entries of what they regularize.
_SUMMING = ('L1L2', 'L1', 'L2')


class OutputLoss(NamedTuple):
    """The loss of one output.

    Attributes:
        name: the output's name.
        function: the function or the loss object.
        target: the tensor that it takes for the targets.
        output: the tensor of the model's output.
        weights: the placeholder of sample weights, or `None`.
        is_masked: whether the output has a mask, by whose mean Keras may divide.
        kind: `MEAN` or `SUM` if Keras itself defines the loss, else `None`.
    """

    name: str
    function: Any
    target: tf.Tensor
    output: tf.Tensor
    weights: Optional[tf.Tensor]
    is_masked: bool
    kind: Optional[str]

    @property
    def described(self) -> str:
        """The loss in a message."""
        function = getattr(self.function, 'fn', self.function)
        named = getattr(function, '__name__', type(self.function).__name__)
        return 'The loss %s of the output %s' % (named, self.name)


def output_losses(model: Any, package: KerasPackage) -> List[OutputLoss]:
    """The losses of a compiled model's outputs, without outputs that have none."""
    endpoints = getattr(model, '_training_endpoints', None)
    if endpoints is not None:  # Keras of TensorFlow 1.15 and later.
        return [
            OutputLoss(
                endpoint.output_name,
                endpoint.loss_fn,
                endpoint.training_target.target,
                endpoint.output,
                endpoint.sample_weight,
                _is_masked(endpoint.output),
                _own_kind(endpoint.loss_fn, package),
            )
            for endpoint in endpoints
            if not endpoint.should_skip_target()
        ]
    if package.name == 'keras':
        # It remembers the masks that `compile` has asked for.
        masks = model.compute_mask(model.inputs, mask=None)
        masks = masks if isinstance(masks, (list, tuple)) else [masks] * len(model.outputs)
        are_masked = [mask is not None for mask in masks]
    else:
        are_masked = list(map(_is_masked, model.outputs))
    columns = (
        model.output_names,
        model.loss_functions,
        model.targets,
        model.outputs,
        getattr(model, 'sample_weights', None) or [None] * len(model.outputs),
        are_masked,
    )
    return [
        OutputLoss(name, function, target, output, weights, masked, _own_kind(function, package))
        for name, function, target, output, weights, masked in zip(*columns)
        if target is not None and function is not None
    ]


def computed(loss: OutputLoss, target: tf.Tensor, output: tf.Tensor, package: KerasPackage) -> Any:
    """What a loss is for other targets and outputs, without sample weights and a mask."""
    value = loss.function(target, output)
    # A loss object reduces its value itself; Keras takes the mean of what a function returns.
    return value if hasattr(loss.function, 'reduction') else package.backend.mean(value)


def added_losses(layers: List[Any]) -> List[tf.Tensor]:
    """The losses that layers, and models, have added, penalties of outputs among them."""
    return [
        loss
        for layer in layers
        for loss in getattr(layer, '_losses', ())
        if isinstance(loss, tf.Tensor)
    ]


def activity_penalties(layers: List[Any], package: KerasPackage) -> Dict[tf.Tensor, str]:
    """The penalties of outputs whose kind is known by their classes: dict from tensors to kinds.

    Args:
        layers: all layers of a model.
        package: their `KerasPackage`.
    """
    kind = SUM if package.sums_activity_penalties else MEAN
    return {
        penalty: kind
        for layer in layers
        # A wrapper may sum the penalty of the layer in it (`TimeDistributed`, Keras 2.15).
        if _is_keras(type(layer), package)
        and not hasattr(layer, 'layer')
        and _is_summing(getattr(layer, 'activity_regularizer', None), package)
        for penalty in added_losses([layer])
    }


def _is_masked(output: tf.Tensor) -> bool:
    return getattr(output, '_keras_mask', None) is not None


def _own_kind(function: Any, package: KerasPackage) -> Optional[str]:
    """The kind of a loss that Keras itself defines: all of them have a value for each sample."""
    if not hasattr(function, 'reduction'):
        return MEAN if _is_keras(function, package, '.losses') else None
    inner = getattr(function, 'fn', None)
    if _is_keras(type(function), package) and _is_keras(inner, package, '.losses'):
        return _REDUCTIONS.get(str(function.reduction))
    return None


def _is_summing(regularizer: Any, package: KerasPackage) -> bool:
    cls = type(regularizer)
    return cls.__name__ in _SUMMING and _is_keras(cls, package)


def _is_keras(thing: Any, package: KerasPackage, ending: str = '') -> bool:
    """Whether a class or function is of a Keras package, of a module whose name ends so."""
    module = getattr(thing, '__module__', None) or ''
    return module.startswith(generation.KERAS_PACKAGES[package.name] + '.') and module.endswith(
        ending
    )
