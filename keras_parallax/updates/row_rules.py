"""Row-wise updates: formulas of Keras 2.2.4's optimizers, and of ours, for some rows of a table.

Each rule of Keras's follows `get_updates` of the class of the same name in `keras/optimizers.py`
2.2.4, so that a row moves by exactly what Keras would move it by, given the same gradient and
slots.
"""

from typing import Callable, NamedTuple, Tuple

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf


class RowRule(NamedTuple):
    """How an optimizer moves rows.

    Attributes:
        keeps: number of slots that Keras keeps for a variable.
        uses: function from an optimizer to how many of those, the first ones, its formula uses.
        step: function `(optimizer, gradients, slots) -> (decrease, new_slots)` on tensors of
            shape `[n] + row_shape`; `decrease` is what to subtract from the rows.
        exact_if: function from an optimizer's config to whether a row without a gradient stands
            still under Keras, so that moving only the touched rows gives Keras's numbers.
        slot_shape: function from the shape of a variable to that of a slot, lists; a slot has a
            row for each row.
    """

    keeps: int
    uses: Callable[[object], int]
    step: Callable[..., Tuple[tf.Tensor, list]]
    exact_if: Callable[[object], bool]
    slot_shape: Callable[[list], list] = list


def learning_rate(optimizer):
    """The learning rate of a step, after decay."""
    if getattr(optimizer, 'initial_decay', 0) > 0:
        iterations = tf.cast(optimizer.iterations, optimizer.decay.dtype.base_dtype)
        return optimizer.lr * (1.0 / (1.0 + optimizer.decay * iterations))
    return optimizer.lr + 0.0


def step_number(optimizer):
    """The number of a step, from 1, of the dtype of the learning rate."""
    return tf.cast(optimizer.iterations, optimizer.lr.dtype.base_dtype) + 1


def _sgd(optimizer, gradient, slots):
    rate, momentum = learning_rate(optimizer), optimizer.momentum
    if not slots:
        # Keras's momentum is a variable, so a callback could switch it on after the fact.
        still_zero = tf.Assert(
            tf.equal(momentum, 0.0),
            [
                'SGD was compiled without momentum, and momentum is now',
                momentum,
                '; compile the model again after changing it.',
            ],
        )
        with tf.control_dependencies([still_zero]):
            return rate * gradient, []
    velocity = momentum * slots[0] - rate * gradient
    if optimizer.nesterov:
        return rate * gradient - momentum * velocity, [velocity]
    return -velocity, [velocity]


def _rmsprop(optimizer, gradient, slots):
    mean = optimizer.rho * slots[0] + (1.0 - optimizer.rho) * tf.square(gradient)
    return learning_rate(optimizer) * gradient / (tf.sqrt(mean) + optimizer.epsilon), [mean]


def _adagrad(optimizer, gradient, slots):
    total = slots[0] + tf.square(gradient)
    return learning_rate(optimizer) * gradient / (tf.sqrt(total) + optimizer.epsilon), [total]


def _adadelta(optimizer, gradient, slots):
    rho, epsilon = optimizer.rho, optimizer.epsilon
    mean = rho * slots[0] + (1.0 - rho) * tf.square(gradient)
    update = gradient * tf.sqrt(slots[1] + epsilon) / tf.sqrt(mean + epsilon)
    return learning_rate(optimizer) * update, [mean, rho * slots[1] + (1 - rho) * tf.square(update)]


def _adam(optimizer, gradient, slots):
    number = step_number(optimizer)
    beta_1, beta_2 = optimizer.beta_1, optimizer.beta_2
    rate = learning_rate(optimizer) * (
        tf.sqrt(1.0 - tf.pow(beta_2, number)) / (1.0 - tf.pow(beta_1, number))
    )
    mean = beta_1 * slots[0] + (1.0 - beta_1) * gradient
    square = beta_2 * slots[1] + (1.0 - beta_2) * tf.square(gradient)
    new_slots, spread = [mean, square], square
    if optimizer.amsgrad:
        spread = tf.maximum(slots[2], square)
        new_slots.append(spread)
    return rate * mean / (tf.sqrt(spread) + optimizer.epsilon), new_slots


def _adamax(optimizer, gradient, slots):
    rate = learning_rate(optimizer) / (1.0 - tf.pow(optimizer.beta_1, step_number(optimizer)))
    mean = optimizer.beta_1 * slots[0] + (1.0 - optimizer.beta_1) * gradient
    largest = tf.maximum(optimizer.beta_2 * slots[1], tf.abs(gradient))
    return rate * mean / (largest + optimizer.epsilon), [mean, largest]


def _nadam(optimizer, gradient, slots):
    number = step_number(optimizer)
    beta_1, beta_2 = optimizer.beta_1, optimizer.beta_2
    base = tf.constant(0.96, number.dtype)
    warmed = [
        beta_1 * (1.0 - 0.5 * tf.pow(base, (number + ahead) * optimizer.schedule_decay))
        for ahead in (0, 1)
    ]
    schedule = optimizer.m_schedule * warmed[0]
    mean = beta_1 * slots[0] + (1.0 - beta_1) * gradient
    square = beta_2 * slots[1] + (1.0 - beta_2) * tf.square(gradient)
    blend = (1.0 - warmed[0]) * (gradient / (1.0 - schedule)) + warmed[1] * (
        mean / (1.0 - schedule * warmed[1])
    )
    spread = tf.sqrt(square / (1.0 - tf.pow(beta_2, number))) + optimizer.epsilon
    return optimizer.lr * blend / spread, [mean, square]


def _rowwise_adagrad(optimizer, gradient, slots):
    of_row = list(range(1, gradient.shape.ndims))
    square = tf.reduce_mean(tf.square(gradient), of_row, keepdims=True)
    total = tf.reshape(slots[0], tf.shape(square)) + square
    decrease = learning_rate(optimizer) * gradient / (tf.sqrt(total) + optimizer.epsilon)
    return decrease, [tf.reshape(total, tf.shape(slots[0]))]


def _never(optimizer):
    return False


def _always(optimizer):
    return True


def _no_momentum(optimizer):
    return float(keras_api.number_in(optimizer.momentum)) == 0.0


def _uses_momentum(optimizer):
    return 0 if _no_momentum(optimizer) else 1


def _uses_largest(optimizer):
    return 3 if optimizer.amsgrad else 2


def _uses(number):
    return lambda optimizer: number


#: By the names of the classes.
RULES = {
    'SGD': RowRule(1, _uses_momentum, _sgd, _no_momentum),
    'RMSprop': RowRule(1, _uses(1), _rmsprop, _never),
    'Adagrad': RowRule(1, _uses(1), _adagrad, _always),
    'Adadelta': RowRule(2, _uses(2), _adadelta, _never),
    'Adam': RowRule(3, _uses_largest, _adam, _never),
    'Adamax': RowRule(2, _uses(2), _adamax, _never),
    'Nadam': RowRule(2, _uses(2), _nadam, _never),
    # Of `keras_parallax.optimizers`.
    'LazyAdam': RowRule(2, _uses(2), _adam, _always),
    'RowwiseAdagrad': RowRule(1, _uses(1), _rowwise_adagrad, _always, lambda shape: shape[:1]),
}
