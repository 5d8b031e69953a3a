"""Updates of whole variables by a kernel each, for optimizers of which TensorFlow has the formula.

Keras 2.2.4 makes an update of six to fourteen operations, each of which reads and writes as many
numbers as the variable has. TensorFlow's kernels for its own optimizers take one pass. Those of
SGD, Adam, Adamax and Adadelta have Keras's formulas and slots, and differ by rounding only. Those
of Adagrad and RMSprop leave epsilon out, or have it under the root, and are not used.
"""

from typing import Callable, NamedTuple, Optional

from keras_parallax.compat import keras_api, keras_optimizers, tensorflow_api
from keras_parallax.compat.tensorflow_api import AnyResourceVariable, ResourceVariable, tf
from keras_parallax.updates.row_rules import learning_rate, step_number


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
    arguments: Callable[[object], dict]
    counted: bool = True
    fits: Callable[[object], bool] = lambda optimizer: True
    factor: Optional[Callable[[object], tf.Tensor]] = None


def updates(kernel, optimizer, pairs, keeps):
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


def _slot(optimizer, variable):
    """A slot of zeros, where a variable is and of its kind, as a kernel takes the two together."""
    shape, dtype = variable.shape.as_list(), variable.dtype.base_dtype
    of_resource = isinstance(variable, AnyResourceVariable)
    with tf.device(variable.device):
        if isinstance(optimizer.iterations, AnyResourceVariable) == of_resource:
            return keras_api.package_of(optimizer).backend.zeros(shape, dtype.name)
        # A shard is a reference, also of a model of tf.keras.
        kind = ResourceVariable if of_resource else tf.Variable
        return kind(tensorflow_api.zeros(shape, dtype), trainable=False)


def _of_sgd(optimizer):
    # The kernel sums gradients and multiplies by the rate what it subtracts. Keras's velocity is a
    # sum of steps, in which each gradient has had the rate of its time: so steps are given to the
    # kernel in place of gradients (`factor`), and it adds what it sums.
    return dict(
        lr=tf.constant(-1, optimizer.lr.dtype.base_dtype),
        momentum=optimizer.momentum,
        use_nesterov=optimizer.nesterov,
    )


def _of_adam(optimizer):
    number = step_number(optimizer)
    return dict(
        beta1_power=tf.pow(optimizer.beta_1, number),
        beta2_power=tf.pow(optimizer.beta_2, number),
        lr=learning_rate(optimizer),
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon,
    )


def _of_adamax(optimizer):
    arguments = _of_adam(optimizer)
    del arguments['beta2_power']
    return arguments


def _of_adadelta(optimizer):
    return dict(lr=learning_rate(optimizer), rho=optimizer.rho, epsilon=optimizer.epsilon)


_KERNELS = {
    'SGD': FusedKernel(
        'apply_momentum', 1, _of_sgd, factor=lambda optimizer: -learning_rate(optimizer)
    ),
    'Adam': FusedKernel('apply_adam', 2, _of_adam, fits=lambda optimizer: not optimizer.amsgrad),
    'Adamax': FusedKernel('apply_ada_max', 2, _of_adamax),
    'Adadelta': FusedKernel('apply_adadelta', 2, _of_adadelta, counted=False),
}

#: By the names of the classes of optimizers; TensorFlow 1.6 has no kernel for Adamax.
KERNELS = {
    name: kernel for name, kernel in _KERNELS.items() if tensorflow_api.has_kernel(kernel.name)
}
