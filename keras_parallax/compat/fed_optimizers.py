# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The optimizer of the rows of tables whose model is one of Keras 3.

The hyperparameters of a step are computed outside the graph, from the learning rate and the number
of the step that the optimizer of Keras 3 has, and are fed to the graph that holds the tables.
"""

from typing import Any, Callable, Dict, List

import numpy as np

from keras_parallax.compat.keras_optimizers import OPTIMIZER_V2
from keras_parallax.compat.tensorflow_api import tf


class FedHyperparameters:
    """The numbers of a step, fed to a graph as one vector.

    Args:
        sample: hyperparameters of some step, a NamedTuple. Members of type `float` are fed, others
            are the same in all steps.
    """

    def __init__(self, sample: Any) -> None:
        self._sample = sample
        self._fed = [name for name in sample._fields if isinstance(getattr(sample, name), float)]
        #: The placeholder, float32 of shape `[number of members that are fed]`.
        self.placeholder = tf.placeholder(tf.float32, [len(self._fed)], 'hyperparameters')
        self._scalars = dict(zip(self._fed, tf.unstack(self.placeholder)))

    def tensors(self, dtype: Any) -> Any:
        """The hyperparameters as scalars of a dtype."""
        scalars = {name: tf.cast(value, dtype) for name, value in self._scalars.items()}
        return self._sample._replace(**scalars)

    def values(self, hyperparameters: Any) -> np.ndarray:
        """What to feed for the hyperparameters of a step."""
        return np.array([getattr(hyperparameters, name) for name in self._fed], np.float32)


class _Uncounted:
    """Takes the place of the variable in which an optimizer counts its steps."""

    def assign_add(self, *_: Any, **__: Any) -> Any:
        """An operation that does nothing."""
        return tf.no_op()


#: The class, which every TensorFlow beside which Keras 3 runs has.
_BASE: Any = OPTIMIZER_V2


class FedRows(_BASE):
    """Moves rows by a formula with hyperparameters that are fed.

    Args:
        rows: the `RowsOfKeras3`.
        fed: the `FedHyperparameters`.
        make_rows: the class `RowsOfV2`.
    """

    def __init__(self, rows: Any, fed: FedHyperparameters, make_rows: Callable[..., Any]) -> None:
        super().__init__('FedRows')
        self.rows, self.fed, self.fed_tensors = rows, fed, (fed.placeholder,)
        # The optimizer of Keras 3 counts the steps. A variable would cost two runs of a session for
        # each model, to initialize and broadcast it.
        self._iterations = _Uncounted()
        self._make_rows = make_rows

    def rows_of_v2(self) -> Any:
        """How it moves rows, as `RowsOfV2` has it."""
        return self._make_rows(
            tuple(name for name, _ in self.rows.slots),
            self.rows.formula,
            lambda coefficients: self.fed.tensors(tf.float32),
            moves_all_rows=self.rows.moves_all_rows,
            takes_zero_for_none=True,
        )

    def _create_slots(self, var_list: List[Any]) -> None:
        for name, start in self.rows.slots:
            for variable in var_list:
                self.add_slot(variable, name, _filled(start))

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        return _all_moved(self, var, grad)

    def _resource_apply_sparse(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        if self.rows.moves_all_rows:
            rows = tf.shape(var, out_type=indices.dtype)[0]
            return _all_moved(self, var, tf.unsorted_segment_sum(grad, indices, rows))
        slots = _slots_of(self, var)
        of_rows = [tf.gather(slot, indices) for slot in slots]
        decrease, new = self.rows.formula(self.fed.tensors(grad.dtype), grad, of_rows)
        writes = [tf.scatter_update(slot, indices, values).op for slot, values in zip(slots, new)]
        return tf.group(tf.scatter_sub(var, indices, decrease).op, *writes)

    def get_config(self) -> Dict[str, Any]:
        """What workers compare: the names of its slots."""
        return dict(super().get_config(), slots=[name for name, _ in self.rows.slots])


def _slots_of(optimizer: FedRows, variable: Any) -> List[Any]:
    return [optimizer.get_slot(variable, name) for name, _ in optimizer.rows.slots]


def _all_moved(optimizer: FedRows, variable: Any, gradient: Any) -> Any:
    slots = _slots_of(optimizer, variable)
    of = optimizer.fed.tensors(gradient.dtype)
    decrease, new = optimizer.rows.formula(of, gradient, [slot + 0.0 for slot in slots])
    writes = [tf.assign(slot, values).op for slot, values in zip(slots, new)]
    return tf.group(tf.assign_sub(variable, decrease).op, *writes)


def _filled(value: float) -> Any:
    return lambda shape, dtype: tf.fill(shape, tf.cast(value, dtype))
