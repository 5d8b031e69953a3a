# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`RowwiseAdagrad` and `LazyAdam`: what they compute is in `engine/updates/optimizers/`."""

from typing import Any, Dict, List, Optional, Tuple

from typing_extensions import TypedDict, Unpack

from keras_parallax.compat.late_package import LatePackage
from keras_parallax.compat.optimizer_bases import base_of
from keras_parallax.engine.updates.optimizers import RowRule, adam, rowwise_adagrad, rule_of
from keras_parallax.framework_types import Tensor


class OptimizerArguments(TypedDict, total=False):
    """The arguments that optimizers of ours hand on to Keras's, for type checkers."""

    name: str
    clipnorm: float
    clipvalue: float
    global_clipnorm: float
    #: With TensorFlow 2, another name of `lr`.
    learning_rate: Any


class _ByRow(LatePackage):
    """An optimizer by a `RowRule`: a row without a gradient, and its slots, stand still.

    In a strategy, `engine/updates/table_updates.py` applies the rule to rows of tables, or Keras
    does.

    Args:
        settings: dict from names to numbers, those of the rule, `'lr'` and `'decay'` among them.
        epsilon: what is added to the divisor; `None` for Keras's `K.epsilon()`.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.
    """

    base = staticmethod(base_of)
    #: The names of what it keeps for each row.
    slots: Tuple[str, ...] = ()

    def __init__(self, settings: Dict[str, Any], epsilon: Optional[float], **kwargs: Any) -> None:
        super().__init__(settings, **kwargs)
        self.epsilon = self._package.backend.epsilon() if epsilon is None else epsilon

    @property
    def _rule(self) -> RowRule:
        rules = (rule_of(cls.__name__) for cls in type(self).__mro__)
        return next(rule for rule in rules if rule is not None)

    def slot_shape(self, shape: List[int]) -> List[int]:
        """The shape of a slot of a variable of a shape, both lists."""
        return self._rule.slot_shape(shape)

    def step(self, gradient: Tensor, slots: List[Tensor]) -> Tuple[Tensor, List[Tensor]]:
        """By how much to decrease rows, and their new slots, of a gradient and slots, tensors."""
        return self._rule.step(self.settings(gradient.dtype.base_dtype), gradient, slots)

    def get_config(self) -> Dict[str, Any]:
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
        ...     model = keras.models.Sequential([
        ...         keras.layers.InputLayer((1,), dtype='int32'), keras.layers.Embedding(9, 8)])
        ...     model.compile(kp.optimizers.RowwiseAdagrad(lr=0.1), 'mse')
        >>> loss = model.train_on_batch(np.array([[7], [3]]), np.zeros([2, 1, 8]))
        >>> [weight.shape for weight in model.optimizer.get_weights()]
        [(), (9,)]
        ```
    """

    slots = rowwise_adagrad.SLOTS

    def __init__(
        self,
        lr: Any = 0.01,
        decay: float = 0.0,
        epsilon: Optional[float] = None,
        keras: Optional[str] = None,
        **kwargs: Unpack[OptimizerArguments],
    ) -> None:
        del keras  # The class is of that package already.
        super().__init__(dict(lr=lr, decay=decay), epsilon, **kwargs)


class LazyAdam(_ByRow):
    """Adam that moves the rows which have a gradient, and their slots, and no others.

    The formula of a row is that of Keras's `Adam`, as in TF-Addons' `LazyAdam` and in PyTorch's
    `SparseAdam`. Other variables, and tables whose gradient has all rows (with a regularizer, or
    tied), are updated as by `Adam`. It is what
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
        ...     model = keras.models.Sequential([
        ...         keras.layers.InputLayer((1,), dtype='int32'), keras.layers.Embedding(9, 8)])
        ...     model.compile(kp.optimizers.LazyAdam(lr=0.1), 'mse')
        >>> before = model.get_weights()[0]
        >>> loss = model.train_on_batch(np.array([[7], [3]]), np.zeros([2, 1, 8]))
        >>> np.flatnonzero((model.get_weights()[0] != before).any(1)).tolist()
        [3, 7]
        ```
    """

    slots = adam.SLOTS

    def __init__(
        self,
        lr: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        decay: float = 0.0,
        epsilon: Optional[float] = None,
        keras: Optional[str] = None,
        **kwargs: Unpack[OptimizerArguments],
    ) -> None:
        del keras
        settings = dict(lr=lr, decay=decay, beta_1=beta_1, beta_2=beta_2)
        super().__init__(settings, epsilon, **kwargs)
