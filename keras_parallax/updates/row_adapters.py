"""What is known of the optimizers of Keras 2.4 and later, which take rows."""

import contextlib

import numpy as np

from keras_parallax.compat import (
    keras_optimizers,
    loss_scaling,
    row_updates,
    tensorflow_optimizers,
)
from keras_parallax.planning.classify import ANY_ROWS, Reach
from keras_parallax.updates import clipping, row_rules
from keras_parallax.updates.adapter_base import (
    OF_OURS,
    OptimizerAdapter,
    is_of_ours,
    state_of_names,
)


class OptimizerV2Adapter(OptimizerAdapter):
    """What is known of an optimizer of Keras 2.4 and later, which takes rows itself."""

    takes_rows = True

    def __init__(self, optimizer, own):
        super().__init__(optimizer)
        self._own, self._is_known = own, keras_optimizers.is_known(own, optimizer, OF_OURS)
        self.shares_slots = self.goes_on = self._is_known
        # Others clip by themselves what they are given.
        self.bounds = clipping.bounds_of(optimizer) if self._is_known else clipping.Bounds()

    @property
    def rows_alone(self):
        """Keras's own can."""
        return self._is_known

    @property
    def moves_all_rows(self):
        """Some of Keras's own do."""
        return self._is_known and row_updates.moves_all_rows(self._optimizer)

    @property
    def rounds_rows(self):
        """It can by a formula for rows."""
        return self._is_known and row_updates.formula_of(self._optimizer) is not None

    def slots_of(self, shape):
        """Those of Keras's own, and of ours, are known before it has any."""
        if not self._is_known:
            return None, None
        known = keras_optimizers.slots_of(self._own, self._optimizer)
        if self._rule_of_ours is not None:
            share = np.prod(self.slot_shape(shape)) / max(1, np.prod(shape))
            known = self._rule_of_ours.keeps * share
        return known, known

    def slot_shape(self, shape):
        """That of the variable, but for some of ours."""
        rule = self._rule_of_ours
        return shape if rule is None else rule.slot_shape(shape)

    @property
    def _rule_of_ours(self):
        return row_rules.RULES[self._own.__name__] if is_of_ours(self._optimizer) else None

    def reach(self, variables, tables):
        """Keras's own move rows by themselves."""
        if self._is_known or not tables:
            return ANY_ROWS
        return Reach('%s may compute the update of a variable from others too' % self.name)

    def takes_slices(self, variables):
        """Keras's own sum rows before they look at them."""
        return not self._is_known and any(variable.rows for variable in variables)

    def updates(self, loss, pairs, get_updates, lazy=False, alone=True):
        """An operation in which it applies gradients, which are clipped already if it is known."""
        if not pairs:
            return [self._optimizer.iterations.assign_add(1, read_value=False)]
        if not self._is_known:
            return super().updates(loss, pairs, get_updates)
        with contextlib.ExitStack() as stack:
            stack.enter_context(keras_optimizers.without_clipping(self._optimizer))
            stack.enter_context(keras_optimizers.slots_made_in_place(self._optimizer))
            stack.enter_context(row_updates.by_formula(self._optimizer, lazy, alone))
            if not alone:
                stack.enter_context(row_updates.locked(self._optimizer))
            stack.enter_context(row_updates.given_each_row_once(self._optimizer))
            stack.enter_context(tensorflow_optimizers.waiting_for_rows(self._optimizer))
            return super().updates(loss, pairs, get_updates)

    def updates_of_tables(self, loss, pairs, lazy, alone):
        """As `updates`, where it is the optimizer of tables and another one counts the steps."""
        with keras_optimizers.counted_elsewhere(self._optimizer):
            return self.updates(loss, pairs, self._optimizer.get_updates, lazy, alone)

    def kept(self, before, updated, operations, gradients):
        """Its slots by their names, and what belongs to no variable."""
        kept = keras_optimizers.kept_by(self._optimizer, updated)
        if kept is None:
            return None
        counters, by_name, order = kept
        return state_of_names(counters, updated, by_name, order)

    def weights_before(self, variables):
        """Those that Keras has loaded, or that another model of the same variables has left."""
        kept = None
        if self._is_known and self._optimizer.get_slot_names():
            kept = keras_optimizers.kept_by(self._optimizer, variables)
        if kept is None:
            return []
        _, by_name, order = kept
        slots, places = list(by_name.values()), {id(of): n for n, of in enumerate(variables)}
        return [
            slots[entry[1]][places[id(entry[0])]] if isinstance(entry, tuple) else entry
            for entry in order
        ]

    def forget_slots(self, variables):
        """It would keep those that it has."""
        keras_optimizers.forget_slots(self._optimizer, variables)


class LossScaleAdapter(OptimizerV2Adapter):
    """What is known of an optimizer that scales the loss for another one: what is known of that.

    Args:
        optimizer: the `LossScaleOptimizer`.
    """

    def __init__(self, optimizer):
        inner = keras_optimizers.inner_of(optimizer)
        super().__init__(inner, type(inner))
        self.loss_scale, self.name = loss_scaling.LossScale(optimizer), type(optimizer).__name__

    def updates(self, loss, pairs, get_updates, lazy=False, alone=True):
        """Those of the other one, whose gradients are not scaled any more."""
        return super().updates(loss, pairs, self._optimizer.get_updates, lazy, alone)
