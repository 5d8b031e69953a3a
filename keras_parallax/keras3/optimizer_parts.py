# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The optimizers that update a model's tables: one, or those within a `MultiOptimizer`."""

from typing import Any, Dict, List, Optional, Sequence, cast

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_files import StoreOfBlocks
from keras_parallax.compat.keras3_variable import EngineVariable, SlotVariable, TableVariable
from keras_parallax.compat.stand_ins import sharing
from keras_parallax.engine.updates.optimizers import RowsOfKeras3, rows_of_keras3
from keras_parallax.framework_types import Mixin
from keras_parallax.keras3.table_step import TableStep

#: What Keras does with all gradients, or with all variables, and the engine does not do.
_OF_ALL = (
    'global_clipnorm',
    'clipnorm',
    'clipvalue',
    'use_ema',
    'gradient_accumulation_steps',
    'weight_decay',
    'loss_scale_factor',
)


class EngineSlots(Mixin):
    """Has the engine keep the slots of tables; put before the class of an optimizer of Keras.

    Attributes:
        _parallax_tables: the `TableVariable`s that it updates, once it is built.
        _parallax_step: the `TableStep` that updates them; `None` without tables.
    """

    _parallax_wrapper = True
    _parallax_tables: List[TableVariable]
    _parallax_step: Optional[TableStep]
    __slots__ = ('_parallax_tables', '_parallax_step')

    @classmethod
    def from_config(cls, config: Dict[str, Any], **arguments: Any) -> Any:
        """An optimizer of the own class that is not wrapped."""
        own: Any = own_class(cls)
        return own.from_config(config, **arguments)

    def add_variable_from_reference(
        self, reference_variable: Any, name: Optional[str] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Makes a slot, as in Keras; those of tables are kept by the engine."""
        if not is_table(reference_variable):
            return super().add_variable_from_reference(reference_variable, name, *args, **kwargs)
        table, called = reference_variable.table, cast(str, name)

        def find() -> Any:
            return cast(TableStep, self._parallax_step).slot(table, called)

        path = keras3_api.name_of_slot(reference_variable, called)
        slot = keras3_api.new_weight(self, lambda: SlotVariable(path, table, find))
        self._track_variable(slot)
        return slot

    def save_own_variables(self, store: Any) -> None:
        """Writes all variables to a store of Keras's, tables' slots block by block."""
        if not self._parallax_tables:
            super().save_own_variables(store)
            return
        blocks = StoreOfBlocks(store)
        for number, variable in enumerate(self.variables):
            is_slot = isinstance(variable, EngineVariable)
            blocks[str(number)] = variable if is_slot else variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads all variables from a store of Keras's, tables' slots block by block."""
        if not self._parallax_tables or len(store.keys()) != len(self.variables):
            # Keras warns of a file that has not the variables of this optimizer.
            super().load_own_variables(store)
            return
        blocks = StoreOfBlocks(store)
        for number, variable in enumerate(self.variables):
            source = blocks if isinstance(variable, EngineVariable) else store
            variable.assign(source[str(number)])


def is_table(variable: Any) -> bool:
    """Whether a variable stands for a table that the engine keeps."""
    return isinstance(variable, TableVariable)


def own_class(cls: type) -> type:
    """The class of an optimizer that a class wraps."""
    # `EngineSlots`, or what derives from it, is followed by the class that it is put before.
    if not issubclass(cls, EngineSlots):
        return cls
    return cls.__mro__[cls.__mro__.index(EngineSlots) + 1]


def with_engine_slots(optimizer: Any, first: type, slots: Sequence[str] = ()) -> Any:
    """A stand-in for an optimizer, with a class before its own; it has no tables yet.

    Args:
        optimizer: the optimizer.
        first: `EngineSlots`, or a class that derives from it.
        slots: names of slots of the class, which become `None`.
    """
    cls = type(optimizer)
    members = {'__module__': cls.__module__, '__slots__': ()}
    made = sharing(optimizer, type(cls.__name__, (first, cls), members))
    for name in slots:
        object.__setattr__(made, name, None)
    set_tables(made, [], None)
    return made


def set_tables(part: Any, tables: List[TableVariable], step: Optional[TableStep]) -> None:
    """Gives an optimizer its tables, and what updates them."""
    # Keras counts variables in an ordinary attribute among the optimizer's own.
    object.__setattr__(part, '_parallax_tables', tables)
    object.__setattr__(part, '_parallax_step', step)


def is_map(optimizer: Any) -> bool:
    """Whether an optimizer has others within, each for the variables of some paths."""
    multi = keras3_api.MultiOptimizer
    if multi is None or not isinstance(optimizer, multi):
        return False
    return type(keras3_api.map_of(optimizer)) is keras.optimizers.OptimizerMap


def take_parts(optimizer: Any) -> None:
    """Has the optimizers within a `MultiOptimizer` keep the slots of tables in the engine."""
    if is_map(optimizer):
        keras3_api.replace_parts(optimizer, lambda part: with_engine_slots(part, EngineSlots))


def parts_of(optimizer: Any) -> List[Any]:
    """The optimizers that update variables: those within a `MultiOptimizer`, else itself."""
    return list(optimizer.optimizers) if is_map(optimizer) else [optimizer]


def part_for(optimizer: Any, variable: Any) -> Any:
    """The one of `parts_of` that updates a variable."""
    return keras3_api.map_of(optimizer)(variable) if is_map(optimizer) else optimizer


def rows_of(optimizer: Any) -> Optional[RowsOfKeras3]:
    """The formula by which one of `parts_of` moves rows, if it is known."""
    cls = own_class(type(optimizer))
    if not cls.__module__.startswith('keras.'):
        return None
    return rows_of_keras3(cls.__name__, optimizer)


def why_dense(optimizer: Any, variable: Any) -> Optional[str]:
    """Why a table cannot be sharded with an optimizer, in words; `None` if it can."""
    part = part_for(optimizer, variable)
    if rows_of(part) is None:
        return 'the formula of %s for rows is not known' % own_class(type(part)).__name__
    for option in _OF_ALL:
        if getattr(part, option, None):
            return 'the optimizer has %s' % option
    return None
