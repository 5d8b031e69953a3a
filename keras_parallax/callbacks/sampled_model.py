# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model as a callback of Keras's sees it, in which large tables are a few of their rows."""

import random
from typing import Any, Callable, List

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.framework_types import Layer, Model, Optimizer, Tensor, Variable


def sampled_ids(rows: int, count: int) -> List[int]:
    """The ids of the rows that stand for a table, in order: the same ones each time, a list.

    They are drawn by chance: ids in equal distances could all be of one shard.

    Args:
        rows: the number of rows.
        count: the number of ids at most.

    Example:
        ```python
        >>> sampled_ids(2, 9)
        [0, 1]
        >>> sampled_ids(10**9, 2) == sampled_ids(10**9, 2)
        True
        ```
    """
    if rows <= count:
        return list(range(rows))
    return sorted(random.Random(0).sample(range(rows), count))


class SampledModel:
    """A model whose weights are samples where they are large tables on shards.

    Args:
        model: the model.
        rows: the number of rows beyond which a table is sampled, and that are.

    Attributes:
        layers: its layers, whose `weights` and `trainable_weights` are so.
        optimizer: its optimizer, which gives gradients with respect to those.
    """

    def __init__(self, model: Model, rows: int) -> None:
        self._model, sampled = model, {}

        def stand_in(weight: Variable) -> Any:
            if not _is_large(weight, rows):
                return weight
            if weight not in sampled:
                sampled[weight] = SampledTable(weight, rows)
            return sampled[weight]

        self.layers = [_Layer(layer, stand_in) for layer in model.layers]
        self.optimizer = _Optimizer(model.optimizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _is_large(weight: Variable, rows: int) -> bool:
    # A table that is not looked up by row is read whole in each step.
    return isinstance(weight, ShardedVariable) and weight.table.by_row and weight.table.rows > rows


class SampledTable:
    """Some rows of a table, for functions of TensorFlow that take a tensor.

    Attributes:
        name: the table's.
        variable: the table.
        rows: a tensor, `[count] + row_shape`.
    """

    def __init__(self, variable: Variable, count: int) -> None:
        self.name, self.variable = variable.name, variable
        self.rows = tf.gather(variable, sampled_ids(variable.table.rows, count))


def _to_tensor(
    sampled: SampledTable, dtype: Any = None, name: Any = None, as_ref: bool = False
) -> Tensor:
    del dtype, name, as_ref
    return sampled.rows


tf.register_tensor_conversion_function(SampledTable, _to_tensor)


class _Layer:
    """A layer with other weights."""

    def __init__(self, layer: Layer, stand_in: Callable[[Variable], Any]) -> None:
        self._layer, self._stand_in = layer, stand_in

    @property
    def weights(self) -> List[Any]:
        return list(map(self._stand_in, self._layer.weights))

    @property
    def trainable_weights(self) -> List[Any]:
        return list(map(self._stand_in, self._layer.trainable_weights))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _Optimizer:
    """An optimizer that gives gradients with respect to tables of which samples stand."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def get_gradients(self, loss: Tensor, params: Any) -> Any:
        return self._optimizer.get_gradients(loss, getattr(params, 'variable', params))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)
