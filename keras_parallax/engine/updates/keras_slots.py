# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The list of an optimizer's weights, in the order and by the names of Keras."""

from typing import Any, Callable, List, Mapping, Optional, Sequence

import numpy as np

from keras_parallax.compat import keras_optimizers
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.row_transfer import Rows, ShardedRows
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.framework_types import (
    Array,
    DType,
    Operation,
    Optimizer,
    Session,
    Shape,
    Tensor,
    Variable,
    Weight,
)


class UnusedRows(Rows):
    """A slot of a table that Keras keeps and saves, but that the optimizer's formula does not use.

    It reads as zeros and forgets what it is assigned: SGD without momentum has no use for the last
    step. So it needs no memory.

    Args:
        name: its name.
        shape: the shape that Keras's slot has, a sequence.
        dtype: its dtype.
    """

    def __init__(self, name: str, shape: Shape, dtype: DType) -> None:
        super().__init__(name, shape, dtype)
        self._zeros = tf.zeros(self.shape, dtype)

    def read(self, session: Session, first: int, last: int) -> Array:
        """Zeros for the rows from `first` to `last`."""
        return np.zeros([last - first] + self.shape.as_list()[1:], self.dtype.as_numpy_dtype)

    def write(self, session: Session, first: int, values: Array) -> None:
        """Does nothing."""

    def _as_graph_element(self) -> Tensor:
        # A session that is not ours reads it whole.
        return self._zeros

    def assign(self, value: Any) -> Operation:
        """Does nothing with a value."""
        return tf.group(value)


class EqualSlots:
    """A slot that is not by rows, and that every shard has for itself, as one weight.

    Args:
        variables: the slots of the shards.
    """

    def __init__(self, variables: Sequence[Variable]) -> None:
        self._variables = variables
        self.name, self.dtype = variables[0].name, variables[0].dtype
        self.shape = variables[0].shape
        self._keras_shape = tuple(self.shape.as_list())

    def _as_graph_element(self) -> Tensor:
        return self._variables[0].value()

    def eval(self, session: Optional[Session] = None) -> np.ndarray:
        """The value, as `eval` of a variable gives it; Keras's `get_value` calls it."""
        return (session or tf.get_default_session()).run(self)

    def assign(self, value: Any) -> Operation:
        """Assigns a value to every shard's."""
        return tf.group(*[tf.assign(variable, value) for variable in self._variables])


def keras_order(
    optimizer: Optimizer,
    state: OptimizerState,
    variables: Sequence[Variable],
    of_tables: Optional[Mapping[Variable, Optimizer]] = None,
) -> List[Any]:
    """An optimizer's weights as Keras has them: counters, each variable's first slot, its second.

    Those of an optimizer that is not one of Keras 2.2.4's are in the order in which it lists them.

    Args:
        optimizer: the Keras optimizer.
        state: its `OptimizerState`.
        variables: the variables of the model, in order.
        of_tables: dict from variables to their optimizers, if they have others. Their slots, of
            which Keras knows nothing, come last.

    Returns:
        A list of variables, and of what Keras's backend takes for variables.
    """
    if of_tables:
        ordered = keras_order(optimizer, state, [one for one in variables if one not in of_tables])
        return ordered + [
            _weight(one, number, slot, False, (), adapter_of(of_tables[one]).slot_shape)
            for one in variables
            if one in of_tables
            for number, slot in enumerate(state.slots[one])
        ]
    adapter = adapter_of(optimizer)
    rule, names = adapter.rule, () if adapter.inner else state.names
    if state.order is not None:
        return [
            _weight(
                entry[0],
                entry[1],
                state.slots[entry[0]][entry[1]],
                False,
                names,
                adapter.slot_shape,
            )
            if isinstance(entry, tuple)
            else entry
            for entry in state.order
        ]
    keeps = rule.keeps if rule else max([0] + [len(slots) for slots in state.slots.values()])
    ordered = list(state.counters)
    for number in range(keeps):
        # Keras's Adam without amsgrad keeps one number in place of its third slot.
        one_number = keeps == 3 and rule is not None and number >= rule.uses(optimizer)
        for variable in variables:
            slots = state.slots[variable]
            if number < len(slots):
                slot = slots[number]
                ordered.append(
                    _weight(variable, number, slot, one_number, names, adapter.slot_shape)
                )
            else:
                shape = [1] if one_number else variable.shape
                name = '%s/unused_slot_%d:0' % (variable.name.split(':')[0], number)
                with variable.graph.as_default():
                    ordered.append(UnusedRows(name, shape, variable.dtype.base_dtype))
    return ordered


def _weight(
    variable: Variable,
    number: int,
    slot: Any,
    one_number: bool,
    names: Sequence[str],
    slot_shape: Callable[[List[int]], List[int]],
) -> Any:
    if not isinstance(slot, list):
        return slot
    if one_number:
        return EqualSlots(slot)
    called = names[number] if number < len(names) else 'slot_%d' % number
    return weight_of(variable, called, slot, slot_shape)


def weight_of(
    variable: Variable, called: str, slot: List[Any], slot_shape: Callable[[List[int]], List[int]]
) -> Any:
    """One slot of a sharded table as one weight.

    Args:
        variable: the table's variable.
        called: the name of the slot.
        slot: a variable for each shard.
        slot_shape: function from the shape of a variable to that of a slot with a row for each row.
    """
    shapes = [part.shape.as_list() for part in slot]
    if not shapes[0]:
        return EqualSlots(slot)
    whole = [sum(shape[0] for shape in shapes)] + shapes[0][1:]
    if whole != slot_shape(variable.shape.as_list()):
        return EqualSlots(slot)
    name = '%s/%s:0' % (variable.name.split(':')[0], called)
    return ShardedRows(name, slot, whole, variable.table)


def names_in_keras(
    optimizer: Optimizer, weights: Sequence[Weight], counters: int, name_scope: str
) -> List[str]:
    """The names that an optimizer's weights have in plain Keras, as it writes them to a file.

    Args:
        optimizer: the Keras optimizer.
        weights: its weights in Keras's order.
        counters: how many of them, the first ones, are no slots.
        name_scope: the name scope in which Keras built the training step.

    Returns:
        A list of strings. An optimizer that is not Keras's own names its slots as it likes; they
        keep the names that they have here.
    """
    names = [weight.name for weight in weights]
    if adapter_of(optimizer).rule is not None:
        # Keras's own make slots without a name, one after the other.
        for place in range(counters, len(weights)):
            number = place - counters
            names[place] = '%s/Variable%s:0' % (name_scope, '_%d' % number if number else '')
    elif isinstance(optimizer, keras_optimizers.OPTIMIZER_V2):
        # Slots of shards are named as Keras names those of a table, but for the scope.
        for place, weight in enumerate(weights):
            if isinstance(weight, ShardedRows):
                names[place] = '/'.join(
                    [name_scope, keras_optimizers.scope_of(optimizer), weight.name]
                )
    return names
