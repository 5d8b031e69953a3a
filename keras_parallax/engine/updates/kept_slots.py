# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which slots of shards an optimizer has already: every step that is built later goes on with them.

Plain Keras keeps a slot as long as the optimizer knows its variable. An optimizer of Keras 2.4 and
later, and a `tf.train.Optimizer`, make a slot when they update a variable for the first time, and
never again. Earlier optimizers of Keras make all slots anew for each training function; nothing is
kept for them.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Optimizer, Variable, Weight

#: The slots of a table, by the optimizer's name of the slot: a variable for each shard.
SlotsByName = Dict[Any, List[tf.Variable]]


class _OfTable(NamedTuple):
    """The slots of one table.

    Attributes:
        shards: the shards that they belong to.
        by_name: the slots.
    """

    shards: Tuple[tf.Variable, ...]
    by_name: SlotsByName


class KeptSlots:
    """The slots of shards that one optimizer keeps, whichever steps and wrappers it has.

    All workers build the same steps in the same order, so every worker knows the same slots: a
    variable of its own for each shard that it updates, and a stand-in for each shard of another
    owner.

    Args:
        attributes: the attributes of the optimizer, which its wrappers share; `None` for an
            optimizer that keeps nothing.
    """

    def __init__(self, attributes: Optional[Dict[str, Any]] = None) -> None:
        # Held, so that no other optimizer gets the id by which a scope finds this.
        self._attributes, self._tables = attributes, {}  # type: Any, Dict[Any, _OfTable]

    def has(self, table: Table) -> bool:
        """Whether the optimizer has slots of the shards that a table has now."""
        found = self._tables.get(table.variable)
        return found is not None and _same(found.shards, table.shards)

    def of(self, table: Table) -> SlotsByName:
        """The slots of the shards that a table has now."""
        return self._tables[table.variable].by_name if self.has(table) else {}

    def keep(self, table: Table, by_name: SlotsByName) -> None:
        """Keeps slots of a table that are stored and initialized, beside those that there are.

        An optimizer whose slots cannot be told apart has none by name.
        """
        if self._attributes is not None:
            shards = tuple(table.shards)
            self._tables[table.variable] = _OfTable(shards, {**self.of(table), **by_name})


class MadeSlots(NamedTuple):
    """Slots that a step has made, and that are kept once they are initialized.

    Attributes:
        kept: the `KeptSlots` of their optimizer.
        table: the table.
        by_name: the slots.
        taken: pairs of a variable and a weight: a slot that the optimizer has of the table from
            when every worker held the whole, and the new one, which begins with its values.
    """

    kept: KeptSlots
    table: Table
    by_name: SlotsByName
    taken: List[Tuple[Variable, Weight]]

    def keep(self) -> None:
        """Has the optimizer keep them."""
        self.kept.keep(self.table, self.by_name)


def kept_slots_of(keeper: Optional[Optimizer], by_optimizer: Dict[int, KeptSlots]) -> KeptSlots:
    """The `KeptSlots` of an optimizer in a graph.

    Args:
        keeper: the optimizer; `None` for one that makes new slots for each step.
        by_optimizer: those of the graph, to which it is added.
    """
    if keeper is None:
        return KeptSlots()
    attributes: Any = vars(keeper)
    return by_optimizer.setdefault(id(attributes), KeptSlots(attributes))


def _same(some: Any, others: Any) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))
