"""What is known of an optimizer: an adapter for each kind, which all else asks.

The formulas of Keras's own are known (`row_rules`), and TensorFlow has kernels for some
(`fused_kernels`). TensorFlow's own apply gradients themselves. Of a user's nothing is known but
what the graph of its updates tells (`formulas`).
"""

import collections
import contextlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from keras_parallax.compat import (
    keras_optimizers,
    loss_scaling,
    row_updates,
    tensorflow_optimizers,
)
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.planning.classify import ANY_ROWS, Reach
from keras_parallax.tables.id_index import index_of
from keras_parallax.updates import clipping, formula_graph, formulas, fused_kernels, row_rules

_KERAS_MODULES = keras_optimizers.MODULES

#: Starts the names of the modules of our own optimizers.
_OF_OURS = 'keras_parallax.optimizers.'


#: Those of TensorFlow, and of `tf.contrib.opt`, whose sparse kernels move rows by themselves.
_BY_ROW = set(
    'GradientDescentOptimizer MomentumOptimizer AdagradOptimizer AdadeltaOptimizer AdamOptimizer '
    'RMSPropOptimizer FtrlOptimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer '
    'AdagradDAOptimizer LazyAdamOptimizer AdaMaxOptimizer NadamOptimizer'.split()
)


class OptimizerState(NamedTuple):
    """The variables that an optimizer keeps.

    Attributes:
        counters: its variables that belong to no variable of the model, `iterations` among them.
        slots: dict from the variables that it updates to their slots, in Keras's order: a variable
            each, and of a sharded table of the model a list of variables, one for each shard. Every
            rank has them all, whoever owns the shard.
        names: names of the slots, the same for each variable, if it is one of TensorFlow's.
        order: its weights in its own order, each a variable of its own or a pair of a variable that
            it updates and the number of its slot; `None` for the order of Keras 2.2.4.
    """

    counters: List[tf.Variable]
    slots: Dict[Any, List[Any]]
    names: Tuple[str, ...] = ()
    order: Optional[List[Any]] = None


def is_of_ours(optimizer):
    """Whether an optimizer, wrapped or not, is one of our own, not of a user's subclass of it."""
    return _own_class(optimizer).__module__.startswith(_OF_OURS)


def _own_class(optimizer):
    """The class that an optimizer had before it was wrapped."""
    classes = type(optimizer).__mro__
    return next(cls for cls in classes if not getattr(cls, '_parallax_wrapper', False))


def adapter_of(optimizer):
    """The `OptimizerAdapter` of a Keras optimizer, wrapped or not.

    Asked by class: optimizers of users keep an inner one under the name `optimizer`, too. A user's
    subclass has a formula of its own, whatever its parent's, and so has an optimizer with a method
    of its own (`optimizer.get_gradients = centralized`).
    """
    own = _own_class(optimizer)
    of_keras = [cls.__name__ for cls in type(optimizer).__mro__ if cls.__module__ in _KERAS_MODULES]
    if 'TFOptimizer' in of_keras:
        return TensorFlowAdapter(optimizer)
    if isinstance(optimizer, keras_optimizers.LOSS_SCALE_OPTIMIZER):
        return LossScaleAdapter(optimizer)
    if isinstance(optimizer, keras_optimizers.OPTIMIZER_V2):
        return OptimizerV2Adapter(optimizer, own)
    by_rule = own.__module__ in _KERAS_MODULES or is_of_ours(optimizer)
    known = by_rule and own.__name__ in row_rules.RULES
    if known and {'get_gradients', 'get_updates'}.isdisjoint(vars(optimizer)):
        return KerasAdapter(optimizer, own.__name__)
    return OptimizerAdapter(optimizer)


def _state_of_names(counters, updated, by_name, order=None):
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
        rounds_rows: whether it can move rows that are kept in fewer bits than their slots.
        shares_slots: whether several workers may apply gradients to the same slots at a time.
        goes_on: whether its slots go on when a model is compiled with it once more.
        bounds: the `clipping.Bounds` of one that clips rows before repeats are summed, or `None`.
        loss_scale: the `LossScale` by which it has the loss multiplied, or `None`.
    """

    rule = inner = bounds = loss_scale = None
    takes_rows, shares_slots, goes_on, moves_all_rows = False, True, False, False
    rounds_rows = False

    def __init__(self, optimizer):
        self._optimizer, self.name = optimizer, type(optimizer).__name__

    @property
    def rows_alone(self):
        """Whether it can move touched rows and their slots only, by its rule or itself."""
        return self.rule is not None

    def slots_of(self, shape):
        """How many slots of its size a dense variable and a table of a shape, a list, have.

        It is `None` if that is not known, and a fraction where slots are smaller.
        """
        if self.rule is None:
            return None, None
        used = self.rule.uses(self._optimizer)
        # Keras's Adam without amsgrad keeps one number in place of its third slot.
        kept = self.rule.keeps if self.rule.keeps < 3 else used
        share = np.prod(self.slot_shape(shape)) / max(1, np.prod(shape))
        return kept * share, used * share

    def slot_shape(self, shape):
        """The shape of a slot that has a row for each row of a variable, given its, both lists."""
        return shape if self.rule is None else self.rule.slot_shape(shape)

    def reach(self, variables, tables):
        """How far its formula reaches: over rows, over a whole variable, or over all of them.

        Args:
            variables: a tuple of the model's trainable variables, as `classify.Described`.
            tables: the names of those that might get shards, a frozenset.

        Returns:
            A `Reach`.
        """
        return formulas.reach_of(self._optimizer, variables, tables) if tables else ANY_ROWS

    def takes_slices(self, variables):
        """Whether its formula looks into gradients that are `IndexedSlices`, or it cannot be told.

        Args:
            variables: as in `reach`.
        """
        return formulas.takes_slices(self._optimizer, variables)

    def updates(self, loss, pairs, get_updates, lazy=False, alone=True):
        """Builds its own updates.

        Args:
            loss: the model's total loss.
            pairs: a list of pairs of a variable and its gradient.
            get_updates: the method of its class.
            lazy: whether rows without a gradient, and their slots, are to rest; only where it can.
            alone: whether no other worker updates the same variables.

        Returns:
            A list of operations, and of what else Keras takes for updates.
        """
        return get_updates(loss=loss, params=[variable for variable, _ in pairs])

    def kept(self, before, updated, operations, gradients):
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
        reads = formula_graph.dependencies(operations, updated, kept, gradients)
        owners = formula_graph.slots_by_variable(reads, updated, kept)
        unused = [
            place for place, owner in enumerate(owners) if owner == () and kept[place] in made
        ]
        if updated and len(unused) % len(updated) == 0:
            # As Adam keeps a number for each variable in place of a slot.
            for count, place in enumerate(unused):
                owners[place] = count % len(updated)
        counters, slots, order = [], {variable: [] for variable in updated}, []
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

    def weights_before(self, variables):
        """What it keeps for variables from before its updates are built, a list of variables.

        It is in Keras's order. Most keep nothing: they make new slots.
        """
        return []

    def forget_slots(self, variables):
        """Has it make new slots for variables that it has updated before; most do by themselves."""


class KerasAdapter(OptimizerAdapter):
    """What is known of one of Keras's own optimizers or of ours: its formula, that of its class."""

    def __init__(self, optimizer, name):
        super().__init__(optimizer)
        self.rule, self._kernel = row_rules.RULES[name], fused_kernels.KERNELS.get(name)

    def reach(self, variables, tables):
        """It moves rows by themselves."""
        return ANY_ROWS

    def takes_slices(self, variables):
        """It takes tensors."""
        return False

    def updates(self, loss, pairs, get_updates, lazy=False, alone=True):
        """Those of a kernel, where TensorFlow has one and no variable has a constraint.

        Where a `DynamicEmbedding` is no shard, `tf.keras` makes slots of another kind than the
        table, and a kernel takes those of one kind.
        """
        unfit = any(
            getattr(variable, 'constraint', None) or index_of(variable) is not None
            for variable, _ in pairs
        )
        if self._kernel is None or unfit or not self._kernel.fits(self._optimizer):
            return super().updates(loss, pairs, get_updates)
        return fused_kernels.updates(self._kernel, self._optimizer, pairs, self.rule.keeps)

    def kept(self, before, updated, operations, gradients):
        """Its weights: the first slot of each variable, then the second one of each."""
        weights = self._optimizer.own_weights
        made = [weight for weight in weights if weight not in before]
        slots = {variable: made[place :: len(updated)] for place, variable in enumerate(updated)}
        return OptimizerState([weight for weight in weights if weight in before], slots)


class TensorFlowAdapter(OptimizerAdapter):
    """What is known of a `tf.train.Optimizer`, which takes rows, in Keras's wrapper."""

    takes_rows, shares_slots = True, False

    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.inner = optimizer.optimizer
        self.name = type(self.inner).__name__

    def reach(self, variables, tables):
        """It moves rows by themselves if it is known for that."""
        cls = type(self.inner)
        by_row = cls.__name__ in _BY_ROW and cls.__module__.startswith(
            tensorflow_optimizers.OF_TENSORFLOW
        )
        if by_row or not tables:
            return ANY_ROWS
        if self._takes_own_way():
            return Reach('%s may compute the update of a variable from others too' % self.name)
        return Reach(None, frozenset(tables), '%s has a formula that is not known' % self.name)

    def takes_slices(self, variables):
        """It does unless rows are summed before it sees them."""
        return any(variable.rows for variable in variables) and self._takes_own_way()

    def _computes_own_gradients(self):
        compute = self.inner.compute_gradients.__func__
        return not compute.__module__.startswith('tensorflow.python.training.')

    def _takes_own_way(self):
        """Whether a user's class treats all gradients, or rows that come more than once, itself."""
        applies = self.inner.apply_gradients.__func__ is not tf.train.Optimizer.apply_gradients
        return (
            self._computes_own_gradients()
            or applies
            or tensorflow_optimizers.sums_own_rows(self.inner)
        )

    def updates(self, loss, pairs, get_updates, lazy=False, alone=True):
        """An operation in which the inner optimizer applies the gradients, or its own."""
        iterations = self._optimizer.iterations
        if not pairs:
            return [tf.assign_add(iterations, 1)]
        gradients = [(gradient, variable) for variable, gradient in pairs]
        if self._computes_own_gradients():
            gradients = self.inner.compute_gradients(loss, [variable for variable, _ in pairs])
        with tensorflow_optimizers.waiting_for_rows(self.inner):
            return [self.inner.apply_gradients(gradients, global_step=iterations)]

    def kept(self, before, updated, operations, gradients):
        """Its slots by their names, and single numbers."""
        iterations = self._optimizer.iterations
        kept = tensorflow_optimizers.kept_by(self.inner, iterations.graph, updated)
        if kept is None:
            return None
        others, by_name = kept
        counters = [iterations] + [others[name] for name in sorted(others)]
        return _state_of_names(counters, updated, collections.OrderedDict(sorted(by_name.items())))

    def forget_slots(self, variables):
        """It would keep those that it has."""
        tensorflow_optimizers.forget_slots(self.inner, variables)


class OptimizerV2Adapter(OptimizerAdapter):
    """What is known of an optimizer of Keras 2.4 and later, which takes rows itself."""

    takes_rows = True

    def __init__(self, optimizer, own):
        super().__init__(optimizer)
        self._own, self._is_known = own, keras_optimizers.is_known(own, optimizer, _OF_OURS)
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
        return _state_of_names(counters, updated, by_name, order)

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
