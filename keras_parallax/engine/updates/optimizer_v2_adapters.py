# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of the optimizers of Keras 2.4 and later, which take rows."""

from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.compat import (
    keras_optimizers,
    loss_scaling,
    optimizer_v2_rows,
)
from keras_parallax.compat.optimizer_v2_rows import NarrowRows
from keras_parallax.engine.updates import clipping, optimizers
from keras_parallax.engine.updates.adapter_base import (
    OF_OURS,
    OptimizerAdapter,
    OptimizerState,
    is_of_ours,
    state_of_names,
)
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Tensor, Variable
from keras_parallax.planning.classify import ANY_ROWS, Described, Reach


class OptimizerV2Adapter(OptimizerAdapter):
    """What is known of an optimizer of Keras 2.4 and later, which takes rows itself."""

    takes_rows = True

    def __init__(self, optimizer: Optimizer, own: type) -> None:
        super().__init__(optimizer)
        self._own, self._is_known = own, keras_optimizers.is_known(own, optimizer, OF_OURS)
        self.shares_slots, self.keeper = self._is_known, optimizer
        self.fed = getattr(optimizer, 'fed_tensors', ())
        # Others clip by themselves what they are given.
        self.bounds = clipping.bounds_of(optimizer) if self._is_known else clipping.Bounds()

    @property
    def rows_alone(self) -> bool:
        """Keras's own can."""
        return self._is_known

    @property
    def moves_all_rows(self) -> bool:  # type: ignore[override]  # It depends on options.
        """Some of Keras's own do."""
        return self._rows is not None and self._rows.moves_all_rows

    @property
    def keeps_numbers(self) -> bool:  # type: ignore[override]  # It depends on options.
        """Nadam does."""
        return self._rows is not None and self._rows.keeps_numbers

    @property
    def needs_touched_rows(self) -> bool:  # type: ignore[override]  # It depends on options.
        """Most do; of one that is not known it is taken for granted."""
        if self._rule_of_ours is not None:
            return not self._rule_of_ours.rests_at_zero(self._optimizer)
        return self._rows is None or not self._rows.takes_zero_for_none

    @property
    def rounds_rows(self) -> bool:  # type: ignore[override]  # It depends on options.
        """It can by a formula for rows."""
        return self._rows is not None and self._rows.formula is not None

    def slots_of(self, shape: List[int]) -> Tuple[Optional[float], Optional[float]]:
        """Those of Keras's own, and of ours, are known before it has any."""
        if not self._is_known:
            return None, None
        known: Optional[float] = None if self._rows is None else len(self._rows.slots)
        if self._rule_of_ours is not None:
            share = int(np.prod(self.slot_shape(shape))) / max(1, int(np.prod(shape)))
            known = self._rule_of_ours.keeps * share
        return known, known

    def slot_shape(self, shape: List[int]) -> List[int]:
        """That of the variable, but for some of ours."""
        rule = self._rule_of_ours
        return shape if rule is None else rule.slot_shape(shape)

    @property
    def _rows(self) -> Optional[optimizers.RowsOfV2]:
        """How it moves rows, if that is known."""
        return optimizers.rows_of_v2(self._own, self._optimizer) if self._is_known else None

    @property
    def _rule_of_ours(self) -> Optional[optimizers.RowRule]:
        return optimizers.rule_of(self._own.__name__) if is_of_ours(self._optimizer) else None

    def reach(self, variables: Tuple[Described, ...], tables: FrozenSet[str]) -> Reach:
        """Keras's own move rows by themselves."""
        if self._is_known or not tables:
            return ANY_ROWS
        return Reach('%s may compute the update of a variable from others too' % self.name)

    def takes_slices(self, variables: Tuple[Described, ...]) -> bool:
        """Keras's own sum rows before they look at them."""
        return not self._is_known and any(variable.rows for variable in variables)

    def updates(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        get_updates: Callable[..., List[Any]],
        lazy: bool = False,
        alone: bool = True,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """An operation in which it applies gradients, which are clipped already if it is known."""
        if not pairs:
            return [self._optimizer.iterations.assign_add(1, read_value=False)]
        if not self._is_known:
            return super().updates(loss, pairs, get_updates)
        updating = self._updating(lazy, alone, narrow)
        return super().updates(loss, pairs, updating.get_updates)

    def _updating(
        self, lazy: bool, alone: bool, narrow: Sequence[optimizer_v2_rows.NarrowRows]
    ) -> Any:
        """A stand-in that builds its updates, if it is known; arguments as of `updates`."""
        rows = self._rows
        by_formula = (lazy and self.moves_all_rows) or (
            not alone and self._rule_of_ours is not None
        )
        return optimizer_v2_rows.updating(
            self._optimizer, self._own, rows and rows.row_formula, by_formula, alone, narrow
        )

    def make_slots(
        self, variables: Sequence[Any], narrow: Sequence[optimizer_v2_rows.NarrowRows] = ()
    ) -> None:
        """Makes what it keeps for variables, before its updates are built."""
        if self._is_known:
            keras_optimizers.make_slots(self._updating(False, True, narrow), variables)
        else:
            keras_optimizers.make_slots(self._optimizer, variables)

    def updates_of_tables(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        lazy: bool,
        alone: bool,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """As `updates`, where it is the optimizer of tables and another one counts the steps."""
        with keras_optimizers.counted_elsewhere(self._optimizer):
            return self.updates(loss, pairs, self._optimizer.get_updates, lazy, alone, narrow)

    def kept(
        self,
        before: Sequence[Variable],
        updated: List[Variable],
        operations: Sequence[Operation],
        gradients: Sequence[Gradient],
    ) -> Optional[OptimizerState]:
        """Its slots by their names, and what belongs to no variable."""
        kept = keras_optimizers.kept_by(self._optimizer, updated)
        if kept is None:
            return None
        counters, by_name, order = kept
        return state_of_names(counters, updated, by_name, order)

    def slots_by_name(self, variable: Variable) -> Dict[str, Any]:
        """Those that Keras has loaded, or that a step has left in which it was not sharded."""
        return keras_optimizers.slots_by_name(self._optimizer, variable)

    def forget_slots(self, variables: Sequence[Variable]) -> None:
        """It would keep those that it has."""
        keras_optimizers.forget_slots(self._optimizer, variables)


class LossScaleAdapter(OptimizerV2Adapter):
    """What is known of an optimizer that scales the loss for another one: what is known of that.

    Args:
        optimizer: the `LossScaleOptimizer`.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        inner = keras_optimizers.inner_of(optimizer)
        super().__init__(inner, type(inner))
        self.loss_scale, self.name = loss_scaling.LossScale(optimizer), type(optimizer).__name__

    def updates(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        get_updates: Callable[..., List[Any]],
        lazy: bool = False,
        alone: bool = True,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """Those of the other one, whose gradients are not scaled any more."""
        return super().updates(loss, pairs, self._optimizer.get_updates, lazy, alone, narrow)
