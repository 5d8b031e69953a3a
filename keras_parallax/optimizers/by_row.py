"""`RowwiseAdagrad` and `LazyAdam`: what they compute is in `updates/row_rules.py`."""

from keras_parallax.compat.keras_optimizers import OPTIMIZER_V2
from keras_parallax.compat.late_package import LatePackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.updates.row_rules import RULES


def _optimizer_of(package):
    if OPTIMIZER_V2:
        raise PlanError(
            'kp.optimizers are for TensorFlow 1.11; here, give an optimizer of Keras to '
            "ParallaxOptimizer(..., sparse_update='lazy')."
        )
    return package.optimizer


class _ByRow(LatePackage):
    """An optimizer by a `RowRule`: a row without a gradient, and its slots, stand still.

    In a strategy, `updates/table_updates.py` applies the rule to rows of tables.

    Args:
        lr: the learning rate.
        decay: as in Keras's optimizers.
        epsilon: what is added to the divisor; `None` for Keras's `K.epsilon()`.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.
    """

    base = staticmethod(_optimizer_of)

    def __init__(self, lr, decay, epsilon, **kwargs):
        super().__init__(**kwargs)
        backend = self._package.backend
        with backend.name_scope(type(self).__name__):
            self.iterations = backend.variable(0, dtype='int64', name='iterations')
            self.lr = backend.variable(lr, name='lr')
            self.decay = backend.variable(decay, name='decay')
        self.initial_decay = decay
        self.epsilon = backend.epsilon() if epsilon is None else epsilon

    @property
    def _rule(self):
        classes = [cls.__name__ for cls in type(self).__mro__]
        return RULES[next(name for name in classes if name in RULES)]

    def get_updates(self, loss, params):
        """Builds the updates of variables, as Keras's optimizers do.

        Args:
            loss: the loss, a scalar.
            params: a list of variables.

        Returns:
            A list of operations.
        """
        backend, rule = self._package.backend, self._rule
        gradients = self.get_gradients(loss, params)
        slots = [
            [backend.zeros(rule.slot_shape(param.shape.as_list())) for param in params]
            for _ in range(rule.keeps)
        ]
        self.weights = [self.iterations] + [slot for of_all in slots for slot in of_all]
        # Nothing is written that another gradient may still be computed from.
        with tf.control_dependencies([_values_of(gradient) for gradient in gradients]):
            updates = [
                write
                for param, gradient, *of_param in zip(params, gradients, *slots)
                for write in self._update(rule, param, gradient, of_param)
            ]
        with tf.control_dependencies([write.op for write in updates]):
            self.updates = updates + [backend.update_add(self.iterations, 1)]
        return self.updates

    def _update(self, rule, param, gradient, slots):
        """What writes a variable and its slots, a list."""
        constraint = getattr(param, 'constraint', None)
        if isinstance(gradient, tf.IndexedSlices) and constraint is None:
            rows, places = tf.unique(gradient.indices)
            values = tf.unsorted_segment_sum(gradient.values, places, tf.size(rows))
            values.set_shape([None] + param.shape.as_list()[1:])
            decrease, new = rule.step(self, values, [tf.gather(slot, rows) for slot in slots])
            writes = [tf.scatter_update(slot, rows, value) for slot, value in zip(slots, new)]
            # Faster than a scattered subtraction (`updates/table_updates.py`).
            moved = tf.gather(param, rows) - decrease
            return writes + [tf.scatter_update(param, rows, moved)]
        gradient = tf.convert_to_tensor(gradient)
        decrease, new = rule.step(self, gradient, [slot + 0.0 for slot in slots])
        moved = param - decrease
        new.append(moved if constraint is None else constraint(moved))
        return [tf.assign(variable, value) for variable, value in zip([*slots, param], new)]

    def get_config(self):
        """The arguments of `__init__`, as Keras writes them to a file."""
        value = self._package.backend.get_value
        return dict(
            super().get_config(),
            lr=float(value(self.lr)),
            decay=float(value(self.decay)),
            epsilon=self.epsilon,
        )


def _values_of(gradient):
    return getattr(gradient, 'values', gradient)


class RowwiseAdagrad(_ByRow):
    """Adagrad with one number a row: the sum of the mean squares of the row's gradients.

    With the gradient `g` of a row, `s += mean(g ** 2)` and `row -= lr * g / (sqrt(s) + epsilon)`.
    So a table of width `w` needs `(w + 1) / (2 * w)` of the memory that it needs with Adagrad. This
    is the formula of FBGEMM's `EXACT_ROWWISE_ADAGRAD` (`rowwise_adagrad` in its code generator,
    without weight decay) and of TorchRec's `RowWiseAdagrad`.

    A row is what lies at one index of the first axis. So a kernel has a number for each input, and
    a bias, each of whose rows is one number, is updated as by Adagrad. Gradients of one row are
    summed before they are squared. A row without a gradient stands still.

    It is an optimizer of Keras like others, with a strategy or without one, and needs TensorFlow
    1.11. `keras.models.load_model` needs `custom_objects={'RowwiseAdagrad':
    kp.optimizers.RowwiseAdagrad}`; `kp.load_model` knows it.

    Args:
        lr: the learning rate.
        decay: the rate is `lr / (1 + decay * step)`, as in Keras.
        epsilon: what is added to the divisor; `None` for Keras's `K.epsilon()`, 1e-7.
        keras: `'keras'` or `'tf.keras'`, the package of the model. Defaults to `'keras'` if the
            script has imported it.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.

    Raises:
        PlanError: `keras` is none of these, or Keras is one of TensorFlow 2.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Embedding(9, 8, input_length=1)])
        ...     model.compile(kp.optimizers.RowwiseAdagrad(lr=0.1), 'mse')
        >>> loss = model.train_on_batch(np.array([[7], [3]]), np.zeros([2, 1, 8]))
        >>> [weight.shape for weight in model.optimizer.get_weights()]
        [(), (9,)]
        ```
    """

    def __init__(self, lr=0.01, decay=0.0, epsilon=None, keras=None, **kwargs):
        del keras  # The class is of that package already.
        super().__init__(lr, decay, epsilon, **kwargs)


class LazyAdam(_ByRow):
    """Adam that moves the rows which have a gradient, and their slots, and no others.

    The formula of a row is that of Keras's `Adam`, as in TF-Addons' `LazyAdam` and in PyTorch's
    `SparseAdam`. Other variables, and tables whose gradient is a
    tensor (with a regularizer, or made dense), are updated as by `Adam`. It is what
    `ParallaxOptimizer('adam', sparse_update='lazy')` does, as an optimizer, also for plain Keras.

    It takes the same packages as `RowwiseAdagrad`, and is loaded alike.

    Args:
        lr: the learning rate.
        beta_1: how much of the mean of gradients stays in a step.
        beta_2: how much of the mean of their squares stays in a step.
        decay: as in `RowwiseAdagrad`.
        epsilon: as in `RowwiseAdagrad`.
        keras: as in `RowwiseAdagrad`.
        kwargs: as in `RowwiseAdagrad`.

    Raises:
        PlanError: as `RowwiseAdagrad`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Embedding(9, 8, input_length=1)])
        ...     model.compile(kp.optimizers.LazyAdam(lr=0.1), 'mse')
        >>> before = model.get_weights()[0]
        >>> loss = model.train_on_batch(np.array([[7], [3]]), np.zeros([2, 1, 8]))
        >>> np.flatnonzero((model.get_weights()[0] != before).any(1)).tolist()
        [3, 7]
        ```
    """

    amsgrad = False

    def __init__(
        self, lr=0.001, beta_1=0.9, beta_2=0.999, decay=0.0, epsilon=None, keras=None, **kwargs
    ):
        del keras
        super().__init__(lr, decay, epsilon, **kwargs)
        backend = self._package.backend
        with backend.name_scope(type(self).__name__):
            self.beta_1 = backend.variable(beta_1, name='beta_1')
            self.beta_2 = backend.variable(beta_2, name='beta_2')

    def get_config(self):
        """The arguments of `__init__`, as Keras writes them to a file."""
        value = self._package.backend.get_value
        betas = {name: float(value(getattr(self, name))) for name in ('beta_1', 'beta_2')}
        return dict(super().get_config(), **betas)
