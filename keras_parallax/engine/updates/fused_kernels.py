# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Updates of whole variables by a kernel each, for optimizers of which TensorFlow has the formula.

Keras 2.2.4 makes an update of six to fourteen operations, each of which reads and writes as many
numbers as the variable has. TensorFlow's kernels for its own optimizers take one pass. Those of
SGD, Adam, Adamax and Adadelta have Keras's formulas and slots, and differ by rounding only. Those
of Adagrad and RMSprop leave epsilon out, or have it under the root, and are not used. Which kernel
an optimizer has is in its module in `engine/updates/optimizers/`.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import keras_api, keras_optimizers, tensorflow_api
from keras_parallax.compat.tensorflow_api import AnyResourceVariable, ResourceVariable, tf
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Variable


class FusedKernel(NamedTuple):
    """How a kernel of TensorFlow does an optimizer's update.

    Attributes:
        name: its name.
        slots: how many slots of the variable's shape it updates.
        arguments: function from an optimizer to what it takes beside variables and gradient.
        counted: whether the optimizer of Keras 2.2.4 has `iterations` among its weights.
        fits: function from an optimizer to whether the kernel has its formula.
        factor: function from an optimizer to what its gradients are multiplied by, or `None`.
    """

    name: str
    slots: int
    arguments: Callable[[Any], Dict[str, Any]]
    counted: bool = True
    fits: Callable[[Any], bool] = lambda optimizer: True
    factor: Optional[Callable[[Any], tf.Tensor]] = None

    @property
    def exists(self) -> bool:
        """Whether this TensorFlow has it."""
        return tensorflow_api.has_kernel(self.name)


def updates(
    kernel: FusedKernel,
    optimizer: Optimizer,
    pairs: Sequence[Tuple[Variable, Gradient]],
    keeps: int,
) -> List[Operation]:
    """Builds an optimizer's updates and sets its weights, as its own `get_updates` does.

    Args:
        kernel: the `FusedKernel`, which fits the optimizer.
        optimizer: a Keras optimizer.
        pairs: a list of pairs of a variable without a constraint and its gradient, a tensor of the
            same shape.
        keeps: number of slots that Keras keeps for a variable.

    Returns:
        A list of operations.
    """
    slots = [[_slot(optimizer, variable) for variable, _ in pairs] for _ in range(kernel.slots)]
    # Keras's Adam without amsgrad keeps one number in place of its third slot.
    zeros = keras_api.package_of(optimizer).backend.zeros
    unused = [[zeros((1,)) for _ in pairs] for _ in range(keeps - kernel.slots)]
    is_counted = kernel.counted or keras_optimizers.is_of_keras_2_3(optimizer)
    counters = [optimizer.iterations] * is_counted
    optimizer.weights = counters + [weight for of_all in slots + unused for weight in of_all]
    arguments = kernel.arguments(optimizer)
    factor = kernel.factor and kernel.factor(optimizer)
    operations = [tf.assign_add(optimizer.iterations, 1)]
    for place, (variable, gradient) in enumerate(pairs):
        if factor is not None:
            gradient = factor * gradient
        variables = [variable] + [of_all[place] for of_all in slots]
        with tf.device(variable.device):
            operation = tensorflow_api.run_kernel(
                kernel.name, variables, grad=gradient, **arguments
            )
        operations.append(operation)
    return operations


def _slot(optimizer: Optimizer, variable: Variable) -> Variable:
    """A slot of zeros, where a variable is and of its kind, as a kernel takes the two together."""
    shape, dtype = variable.shape.as_list(), variable.dtype.base_dtype
    of_resource = isinstance(variable, AnyResourceVariable)
    with tf.device(variable.device):
        if isinstance(optimizer.iterations, AnyResourceVariable) == of_resource:
            return keras_api.package_of(optimizer).backend.zeros(shape, dtype.name)
        # A shard is a reference, also of a model of tf.keras.
        kind = ResourceVariable if of_resource else tf.Variable
        return kind(tensorflow_api.zeros(shape, dtype), trainable=False)
