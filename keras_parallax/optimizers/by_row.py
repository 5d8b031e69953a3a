"""`RowwiseAdagrad` and `LazyAdam`: what they compute is in `updates/row_rules.py`."""

from keras_parallax.compat.late_package import LatePackage
from keras_parallax.compat.row_optimizers import base_of
from keras_parallax.updates.row_rules import RULES


class _ByRow(LatePackage):
    """An optimizer by a `RowRule`: a row without a gradient, and its slots, stand still.

    In a strategy, `updates/table_updates.py` applies the rule to rows of tables, or Keras does.

    Args:
        settings: dict from names to numbers, those of the rule, `'lr'` and `'decay'` among them.
        epsilon: what is added to the divisor; `None` for Keras's `K.epsilon()`.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.
    """

    base = staticmethod(base_of)
    #: The names of what it keeps for each row.
    slots = ()

    def __init__(self, settings, epsilon, **kwargs):
        super().__init__(settings, **kwargs)
        self.epsilon = self._package.backend.epsilon() if epsilon is None else epsilon

    @property
    def _rule(self):
        classes = [cls.__name__ for cls in type(self).__mro__]
        return RULES[next(name for name in classes if name in RULES)]

    def slot_shape(self, shape):
        """The shape of a slot of a variable of a shape, both lists."""
        return self._rule.slot_shape(shape)

    def step(self, gradient, slots):
        """By how much to decrease rows, and their new slots, of a gradient and slots, tensors."""
        return self._rule.step(self.settings(gradient.dtype.base_dtype), gradient, slots)

    def get_config(self):
        """The arguments of `__init__`, as Keras writes them to a file."""
        return dict(super().get_config(), epsilon=self.epsilon)


class RowwiseAdagrad(_ByRow):
    """Adagrad with one number a row: the sum of the mean squares of the row's gradients.

    With the gradient `g` of a row, `s += mean(g ** 2)` and `row -= lr * g / (sqrt(s) + epsilon)`.
    So a table of width `w` needs `(w + 1) / (2 * w)` of the memory that it needs with Adagrad. This
    is the formula of FBGEMM's `EXACT_ROWWISE_ADAGRAD` (`rowwise_adagrad` in its code generator,
    without weight decay) and of TorchRec's `RowWiseAdagrad`.

    A row is what lies at one index of the first axis. So a kernel has a number for each input, and
    a bias, each of whose rows is one number, is updated as by Adagrad. Gradients of one row are
    summed before they are squared. A row without a gradient stands still.

    It is an optimizer of Keras like others, with a strategy or without one.
    `keras.models.load_model` needs `custom_objects={'RowwiseAdagrad':
    kp.optimizers.RowwiseAdagrad}`; `kp.load_model` knows it.

    Args:
        lr: the learning rate; with TensorFlow 2 it may be a schedule of Keras, and
            `learning_rate` is its name too.
        decay: the rate is `lr / (1 + decay * step)`, as in Keras.
        epsilon: what is added to the divisor; `None` for Keras's `K.epsilon()`, 1e-7.
        keras: `'keras'` or `'tf.keras'`, the package of the model. Defaults to `'keras'` if the
            script has imported it.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.

    Raises:
        PlanError: `keras` is none of these.

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

    slots = ('accumulator',)

    def __init__(self, lr=0.01, decay=0.0, epsilon=None, keras=None, **kwargs):
        del keras  # The class is of that package already.
        super().__init__(dict(lr=lr, decay=decay), epsilon, **kwargs)


class LazyAdam(_ByRow):
    """Adam that moves the rows which have a gradient, and their slots, and no others.

    The formula of a row is that of Keras's `Adam`, as in TF-Addons' `LazyAdam` and in PyTorch's
    `SparseAdam`. Other variables, and tables whose gradient is a
    tensor (with a regularizer, or made dense), are updated as by `Adam`. It is what
    `ParallaxOptimizer('adam', sparse_update='lazy')` does, as an optimizer, also for plain Keras.

    It takes the same packages as `RowwiseAdagrad`, and is loaded alike.

    Args:
        lr: as in `RowwiseAdagrad`.
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

    amsgrad, slots = False, ('m', 'v')

    def __init__(
        self, lr=0.001, beta_1=0.9, beta_2=0.999, decay=0.0, epsilon=None, keras=None, **kwargs
    ):
        del keras
        settings = dict(lr=lr, decay=decay, beta_1=beta_1, beta_2=beta_2)
        super().__init__(settings, epsilon, **kwargs)
