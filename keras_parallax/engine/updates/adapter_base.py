# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of a user's optimizer, and what the adapters of all others derive from."""

from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np

from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.optimizer_v2_rows import NarrowRows
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates import inferred_formula, update_dependencies
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.engine.updates.optimizers.known_optimizer import RowRule
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Tensor, Variable
from keras_parallax.planning.classify import ANY_ROWS, Described, Reach

#: Start the names of the modules of our own optimizers.
OF_OURS = ('keras_parallax.optimizers.', 'keras_parallax.compat.fed_optimizers')


class OptimizerState(NamedTuple):
    """The variables that an optimizer keeps.

    Attributes:
        counters: its variables that belong to no variable of the model, `iterations` among them.
        slots: dict from the variables that it updates to their slots, in Keras's order: a variable
            each, and of a sharded table of the model a list of variables, one for each shard. Every
            worker has them all, whoever owns the shard.
        names: names of the slots, the same for each variable, if it is one of TensorFlow's.
        order: its weights in its own order, each a variable of its own or a pair of a variable that
            it updates and the number of its slot; `None` for the order of Keras 2.2.4.
    """

    counters: List[tf.Variable]
    slots: Dict[Any, List[Any]]
    names: Tuple[str, ...] = ()
    order: Optional[List[Any]] = None


def is_of_ours(optimizer: Optimizer) -> bool:
    """Whether an optimizer, wrapped or not, is one of our own, not of a user's subclass of it."""
    return own_class(optimizer).__module__.startswith(OF_OURS)


def own_class(optimizer: Optimizer) -> type:
    """The class that an optimizer had before it was wrapped."""
    classes = type(optimizer).__mro__
    return next(cls for cls in classes if not getattr(cls, '_parallax_wrapper', False))


def state_of_names(
    counters: List[Variable],
    updated: Sequence[Variable],
    by_name: Mapping[str, Sequence[Variable]],
    order: Optional[List[Any]] = None,
) -> OptimizerState:
    """The `OptimizerState` of slots by their names: lists, as `updated` has their variables."""
    slots = {
        variable: [of_name[place] for of_name in by_name.values()]
        for place, variable in enumerate(updated)
    }
    return OptimizerState(counters, slots, tuple(by_name), order)


class OptimizerAdapter:
    """What is known of a user's optimizer, and the base of what is known of others.

    Attributes:
        name: the name of its class, that of TensorFlow's rather than of Keras's wrapper.
        rule: the `RowRule` of its formula, or `None` if that is not known.
        inner: the `tf.train.Optimizer` that it stands for, or `None`.
        takes_rows: whether it moves rows itself, given `IndexedSlices`.
        moves_all_rows: whether it then moves all rows, or changes the slots of all.
        needs_touched_rows: whether it treats a row without a gradient otherwise than a row whose
            gradient is zero, so that a tensor must not take the place of `IndexedSlices`.
        keeps_numbers: whether it keeps numbers besides slots that only its own updates write.
        rounds_rows: whether it can move rows that are kept in fewer bits than their slots.
        shares_slots: whether several workers may apply gradients to the same slots at a time.
        keeper: the optimizer that keeps a slot for as long as it knows the variable; `None` of one
            that makes new slots for each training step that is built.
        bounds: the `clipping.Bounds` of one that clips rows before repeats are summed, or `None`.
        fed: tensors that every worker feeds with the same values, a sequence.
        loss_scale: the `LossScale` by which it has the loss multiplied, or `None`.
    """

    fed: Sequence[Tensor] = ()
    rule: Optional[RowRule] = None
    inner: Optional[Optimizer] = None
    bounds: Optional[Bounds] = None
    loss_scale: Optional[LossScale] = None
    keeper: Optional[Optimizer] = None
    takes_rows = False
    shares_slots = True
    moves_all_rows = False
    rounds_rows = False
    needs_touched_rows = False
    keeps_numbers = False

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer, self.name = optimizer, type(optimizer).__name__

    @property
    def clips(self) -> bool:
        """Whether it clips each looked-up row before repeats are summed, unlike a tensor's rows."""
        return self.bounds is not None and self.bounds.clips

    @property
    def rows_alone(self) -> bool:
        """Whether it can move touched rows and their slots only, by its rule or itself."""
        return self.rule is not None

    def slots_of(self, shape: List[int]) -> Tuple[Optional[float], Optional[float]]:
        """How many slots of its size a dense variable and a table of a shape, a list, have.

        It is `None` if that is not known, and a fraction where slots are smaller.
        """
        if self.rule is None:
            return None, None
        used = self.rule.uses(self._optimizer)
        # Keras's Adam without amsgrad keeps one number in place of its third slot.
        kept = self.rule.keeps if self.rule.keeps < 3 else used
        share = int(np.prod(self.slot_shape(shape))) / max(1, int(np.prod(shape)))
        return kept * share, used * share

    def slot_shape(self, shape: List[int]) -> List[int]:
        """The shape of a slot that has a row for each row of a variable, given its, both lists."""
        return shape if self.rule is None else self.rule.slot_shape(shape)

    def reach(self, variables: Tuple[Described, ...], tables: FrozenSet[str]) -> Reach:
        """How far its formula reaches: over rows, over a whole variable, or over all of them.

        Args:
            variables: a tuple of the model's trainable variables, as `classify.Described`.
            tables: the names of those that might get shards, a frozenset.

        Returns:
            A `Reach`.
        """
        return inferred_formula.reach_of(self._optimizer, variables, tables) if tables else ANY_ROWS

    def takes_slices(self, variables: Tuple[Described, ...]) -> bool:
        """Whether its formula looks into gradients that are `IndexedSlices`, or it cannot be told.

        Args:
            variables: as in `reach`.
        """
        return inferred_formula.takes_slices(self._optimizer, variables)

    def updates(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        get_updates: Callable[..., List[Any]],
        lazy: bool = False,
        alone: bool = True,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """Builds its own updates.

        Args:
            loss: the model's total loss.
            pairs: a list of pairs of a variable and its gradient.
            get_updates: the method of its class.
            lazy: whether rows without a gradient, and their slots, are to rest; only where it can.
            alone: whether no other worker updates the same variables.
            narrow: the `NarrowRows` among the variables; there are none unless it `rounds_rows`.

        Returns:
            A list of operations, and of what else Keras takes for updates.
        """
        return get_updates(loss=loss, params=[variable for variable, _ in pairs])

    def kept(
        self,
        before: Sequence[Variable],
        updated: List[Variable],
        operations: Sequence[Operation],
        gradients: Sequence[Gradient],
    ) -> Optional[OptimizerState]:
        """What it keeps for variables, an `OptimizerState`, or `None` if that is not known.

        Args:
            before: the variables that existed before it made its own.
            updated: the variables, all that it has updated itself.
            operations: its update operations.
            gradients: the gradients that it has taken, in order of `updated`, time and again.
        """
        made = [variable for variable in tf.global_variables() if variable not in before]
        listed = [weight for weight in self._optimizer.own_weights if weight not in updated]
        kept = listed + [variable for variable in made if variable not in listed]
        reads = update_dependencies.dependencies(operations, updated, kept, gradients)
        owners = update_dependencies.slots_by_variable(reads, updated, kept)
        unused = [
            place for place, owner in enumerate(owners) if owner == () and kept[place] in made
        ]
        if updated and len(unused) % len(updated) == 0:
            # As Adam keeps a number for each variable in place of a slot.
            for count, place in enumerate(unused):
                owners[place] = count % len(updated)
        counters: List[Variable] = []
        slots: Dict[Any, List[Any]] = {variable: [] for variable in updated}
        order: List[Any] = []
        for variable, owner in zip(kept, owners):
            if owner in (None, ()):
                counters.append(variable)
                entry = variable
            else:
                of_owner = slots[updated[owner]]
                entry = (updated[owner], len(of_owner))
                of_owner.append(variable)
            if variable in listed:
                order.append(entry)
        return OptimizerState(counters, slots, order=order)

    def slots_by_name(self, variable: Variable) -> Dict[str, Any]:
        """The slots that it keeps for a variable from before its updates are built."""
        return {}

    def forget_slots(self, variables: Sequence[Variable]) -> None:
        """Has it make new slots for variables that it has updated before; most do by themselves."""
