# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What optimizers of ours derive from: a class of Keras's, with one way to keep settings and slots.

Such a class says what it keeps for rows (`slots`, `slot_shape`), and by how much it moves them
(`step`).
"""

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.keras_optimizers import OPTIMIZER_V2, is_of_keras_2_3
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Mixin, Operation, Tensor, Variable


@functools.lru_cache(maxsize=None)
def base_of(package: Any) -> Any:
    """The class that optimizers of ours derive from, of a `KerasPackage`."""
    takes_rows = OPTIMIZER_V2 and issubclass(package.optimizer, OPTIMIZER_V2)
    ours = _TakingRows if takes_rows else _TakingTensors
    return type(ours.__name__, (ours, package.optimizer), {'__module__': __name__})


class _TakingTensors(Mixin):
    """An optimizer of Keras 2.2.4 or 2.3, which makes all updates at once.

    Args:
        settings: dict from names to numbers, `'lr'` and `'decay'` among them, which become
            variables.
        kwargs: `clipnorm` and `clipvalue`, as in Keras's optimizers.
    """

    def __init__(self, settings: Dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        backend = self._package.backend
        with backend.name_scope(type(self).__name__):
            self.iterations = backend.variable(0, dtype='int64', name='iterations')
            for name, value in settings.items():
                is_read = name == 'lr' and is_of_keras_2_3(self)
                attribute = 'learning_rate' if is_read else name
                setattr(self, attribute, backend.variable(value, name=attribute))
        self.initial_decay, self._names = settings['decay'], list(settings)

    def settings(self, dtype: Any) -> Any:
        """What has its settings as numbers of a dtype, for a formula."""
        del dtype  # They are of Keras's.
        return self

    def get_gradients(self, loss: Tensor, params: Sequence[Variable]) -> List[Any]:
        """The clipped gradients of the loss. `IndexedSlices` stay `IndexedSlices`.

        Keras turns gradients that it clips by value into tensors, and `tf.keras` also gradients
        that it clips by norm (TF 1.11; proven by `tests/unit/optimizers/test_by_row.py`).
        """
        clipped = super().get_gradients(loss, params)
        if not (hasattr(self, 'clipnorm') or hasattr(self, 'clipvalue')):
            return clipped
        # A step computes the row numbers of these alone, and no gradient twice.
        given = self._package.backend.gradients(loss, params)
        return [_rows_of(*pair) for pair in zip(clipped, given)]

    def get_updates(self, loss: Tensor, params: Sequence[Variable]) -> List[Operation]:
        """Builds the updates of variables, as Keras's optimizers do.

        Args:
            loss: the loss, a scalar.
            params: a list of variables.

        Returns:
            A list of operations.
        """
        backend = self._package.backend
        gradients = self.get_gradients(loss, params)
        slots = [
            [backend.zeros(self.slot_shape(param.shape.as_list())) for param in params]
            for _ in self.slots
        ]
        self.weights = [self.iterations] + [slot for of_all in slots for slot in of_all]
        # Nothing is written that another gradient may still be computed from.
        with tf.control_dependencies([_values_of(gradient) for gradient in gradients]):
            updates = [
                write
                for param, gradient, *of_param in zip(params, gradients, *slots)
                for write in self._update(param, gradient, of_param)
            ]
        with tf.control_dependencies([write.op for write in updates]):
            self.updates = updates + [backend.update_add(self.iterations, 1)]
        return self.updates

    def _update(self, param: Variable, gradient: Any, slots: Sequence[Tensor]) -> List[Tensor]:
        """What writes a variable and its slots, a list."""
        constraint = getattr(param, 'constraint', None)
        if isinstance(gradient, tf.IndexedSlices) and constraint is None:
            rows, places = tf.unique(gradient.indices)
            values = tf.unsorted_segment_sum(gradient.values, places, tf.size(rows))
            values.set_shape([None] + param.shape.as_list()[1:])
            return _rows_written(self, param, values, rows, slots)
        return _all_written(self, param, tf.convert_to_tensor(gradient), slots, constraint)

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, as Keras writes them to a file."""
        value = self._package.backend.get_value
        numbers = {name: float(value(getattr(self, name))) for name in self._names}
        return dict(super().get_config(), **numbers)


class _TakingRows(Mixin):
    """An optimizer of Keras 2.4 and later, which asks for the update of a variable at a time.

    Args:
        settings: as of `_TakingTensors`; `'lr'` may be a schedule, or its config.
        kwargs: `name`, bounds of gradients, and `learning_rate`, which stands for `'lr'`: as in
            Keras's optimizers.
    """

    def __init__(self, settings: Dict[str, Any], **kwargs: Any) -> None:
        settings = dict(settings)
        rate = kwargs.pop('learning_rate', settings.pop('lr'))
        kwargs.setdefault('name', type(self).__name__)
        super().__init__(decay=settings.pop('decay'), **kwargs)
        if isinstance(rate, dict):
            rate = self._package.module.optimizers.schedules.deserialize(rate)
        self._set_hyper('learning_rate', rate)
        self._set_hyper('decay', self._initial_decay)
        for name, value in settings.items():
            self._set_hyper(name, value)

    def settings(self, dtype: Any) -> Any:
        """What has its settings as numbers of a dtype, for a formula; the rate after decay."""
        return _Settings(self, dtype)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for name in self.slots:
            for var in var_list:
                self.add_slot(var, name, _zeros_of(self.slot_shape(var.shape.as_list())))

    def _resource_apply_dense(
        self, grad: Tensor, var: Variable, apply_state: Any = None
    ) -> Operation:
        slots = [self.get_slot(var, name) for name in self.slots]
        return tf.group(*[write.op for write in _all_written(self, var, grad, slots)])

    def _resource_apply_sparse(
        self, grad: Tensor, var: Variable, indices: Tensor, apply_state: Any = None
    ) -> Operation:
        slots = [self.get_slot(var, name) for name in self.slots]
        return tf.group(*[write.op for write in _rows_written(self, var, grad, indices, slots)])

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, as Keras writes them to a file."""
        values = {name: self._serialize_hyperparameter(name) for name in self._hyper}
        values = {
            name: value if isinstance(value, dict) else float(value)
            for name, value in values.items()
        }
        values['decay'], values['lr'] = self._initial_decay, values.pop('learning_rate')
        return dict(super().get_config(), **values)


class _Settings:
    """The settings of an optimizer of ours, as those of Keras 2.2.4 have them."""

    initial_decay = 0

    def __init__(self, optimizer: Any, dtype: Any) -> None:
        self._optimizer, self._dtype = optimizer, dtype
        self.lr, self.iterations = optimizer._decayed_lr(dtype), optimizer.iterations

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._optimizer, name)
        return tf.cast(value, self._dtype) if name in self._optimizer._hyper else value


def _rows_of(clipped: Any, given: Any) -> Any:
    """A clipped gradient, as `IndexedSlices` if the gradient was given as `IndexedSlices`."""
    if isinstance(clipped, tf.IndexedSlices) or not isinstance(given, tf.IndexedSlices):
        return clipped
    rows, _ = tf.unique(given.indices)
    return tf.IndexedSlices(tf.gather(clipped, rows), rows, given.dense_shape)


def _zeros_of(slot_shape: List[int]) -> Callable[..., Tensor]:
    """An initializer of a slot of another shape than its variable, which TensorFlow 1.15 asks."""
    return lambda shape, dtype: tensorflow_api.zeros(slot_shape, dtype)


def _rows_written(
    optimizer: Any, param: Variable, values: Tensor, rows: Tensor, slots: Sequence[Tensor]
) -> List[Tensor]:
    """What writes rows of a variable and of its slots, a list."""
    decrease, new = optimizer.step(values, [tf.gather(slot, rows) for slot in slots])
    writes = [tf.scatter_update(slot, rows, value) for slot, value in zip(slots, new)]
    # Faster than a scattered subtraction (`engine/updates/table_updates.py`).
    return writes + [tf.scatter_update(param, rows, tf.gather(param, rows) - decrease)]


def _all_written(
    optimizer: Any,
    param: Variable,
    gradient: Any,
    slots: Sequence[Tensor],
    constraint: Optional[Callable[..., Any]] = None,
) -> List[Tensor]:
    """What writes a variable and its slots, a list."""
    decrease, new = optimizer.step(gradient, [slot + 0.0 for slot in slots])
    moved = param - decrease
    new.append(moved if constraint is None else constraint(moved))
    return [tf.assign(variable, value) for variable, value in zip([*slots, param], new)]


def _values_of(gradient: Any) -> Tensor:
    return getattr(gradient, 'values', gradient)
