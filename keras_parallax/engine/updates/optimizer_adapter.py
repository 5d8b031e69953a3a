# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of an optimizer: an adapter for each kind, which all else asks.

The formulas of Keras's own are known (`optimizers/`), and TensorFlow has kernels for some
(`fused_kernels`). TensorFlow's own apply gradients themselves, and so do Keras's later ones
(`optimizer_v2_adapters`). Of a user's nothing is known but what the graph of its updates tells
(`inferred_formula`).
"""

import collections
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from keras_parallax.compat import keras_optimizers, tensorflow_optimizers
from keras_parallax.compat.optimizer_v2_rows import NarrowRows
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.id_index import index_of
from keras_parallax.engine.updates import fused_kernels, optimizers
from keras_parallax.engine.updates.adapter_base import (
    OptimizerAdapter,
    OptimizerState,
    is_of_ours,
    own_class,
    state_of_names,
)
from keras_parallax.engine.updates.optimizer_v2_adapters import LossScaleAdapter, OptimizerV2Adapter
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Tensor, Variable
from keras_parallax.planning.classify import ANY_ROWS, Described, Reach

_KERAS_MODULES = keras_optimizers.MODULES


def adapter_of(optimizer: Optimizer) -> OptimizerAdapter:
    """The `OptimizerAdapter` of a Keras optimizer, wrapped or not.

    Asked by class: optimizers of users keep an inner one under the name `optimizer`, too. A user's
    subclass has a formula of its own, whatever its parent's, and so has an optimizer with a method
    of its own (`optimizer.get_gradients = centralized`).
    """
    own = own_class(optimizer)
    of_keras = [cls.__name__ for cls in type(optimizer).__mro__ if cls.__module__ in _KERAS_MODULES]
    if 'TFOptimizer' in of_keras:
        return TensorFlowAdapter(optimizer)
    if isinstance(optimizer, keras_optimizers.LOSS_SCALE_OPTIMIZER):
        return LossScaleAdapter(optimizer)
    if isinstance(optimizer, keras_optimizers.OPTIMIZER_V2):
        return OptimizerV2Adapter(optimizer, own)
    by_rule = own.__module__ in _KERAS_MODULES or is_of_ours(optimizer)
    rule = optimizers.rule_of(own.__name__) if by_rule else None
    if rule is not None and {'get_gradients', 'get_updates'}.isdisjoint(vars(optimizer)):
        return KerasAdapter(optimizer, rule)
    return OptimizerAdapter(optimizer)


class KerasAdapter(OptimizerAdapter):
    """What is known of one of Keras's own optimizers or of ours: its formula, that of its class."""

    rule: optimizers.RowRule

    def __init__(self, optimizer: Optimizer, rule: optimizers.RowRule) -> None:
        super().__init__(optimizer)
        self.rule, self.keeps_numbers = rule, rule.keeps_numbers
        # Keras's own make tensors of all gradients.
        self.needs_touched_rows = is_of_ours(optimizer) and not self.rule.rests_at_zero(optimizer)

    def reach(self, variables: Tuple[Described, ...], tables: FrozenSet[str]) -> Reach:
        """It moves rows by themselves."""
        return ANY_ROWS

    def takes_slices(self, variables: Tuple[Described, ...]) -> bool:
        """It takes tensors."""
        return False

    def updates(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        get_updates: Callable[..., List[Any]],
        lazy: bool = False,
        alone: bool = True,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """Those of a kernel, where TensorFlow has one and no variable has a constraint.

        Where a `DynamicEmbedding` is no shard, `tf.keras` makes slots of another kind than the
        table, and a kernel takes those of one kind.
        """
        unfit = any(
            getattr(variable, 'constraint', None) or index_of(variable) is not None
            for variable, _ in pairs
        )
        kernel = self.rule.kernel
        if kernel is None or unfit or not (kernel.exists and kernel.fits(self._optimizer)):
            return super().updates(loss, pairs, get_updates)
        return fused_kernels.updates(kernel, self._optimizer, pairs, self.rule.keeps)

    def kept(
        self,
        before: Sequence[Variable],
        updated: List[Variable],
        operations: Sequence[Operation],
        gradients: Sequence[Gradient],
    ) -> Optional[OptimizerState]:
        """Its weights: the first slot of each variable, then the second one of each."""
        weights = self._optimizer.own_weights
        made = [weight for weight in weights if weight not in before]
        slots = {variable: made[place :: len(updated)] for place, variable in enumerate(updated)}
        return OptimizerState([weight for weight in weights if weight in before], slots)


class TensorFlowAdapter(OptimizerAdapter):
    """What is known of a `tf.train.Optimizer`, which takes rows, in Keras's wrapper."""

    inner: Optimizer
    takes_rows, shares_slots = True, False

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer)
        self.inner = self.keeper = optimizer.optimizer
        self.name = type(self.inner).__name__
        self.needs_touched_rows = not (self._rows and self._rows.takes_zero_for_none)

    @property
    def _rows(self) -> Optional[optimizers.RowsOfTensorFlow]:
        """How it moves rows, if it is one of TensorFlow's own and known."""
        cls = type(self.inner)
        is_of_tensorflow = cls.__module__.startswith(tensorflow_optimizers.OF_TENSORFLOW)
        return optimizers.rows_of_tensorflow(cls.__name__) if is_of_tensorflow else None

    def reach(self, variables: Tuple[Described, ...], tables: FrozenSet[str]) -> Reach:
        """It moves rows by themselves if it is known for that."""
        if self._rows is not None or not tables:
            return ANY_ROWS
        if self._takes_own_way():
            return Reach('%s may compute the update of a variable from others too' % self.name)
        return Reach(None, frozenset(tables), '%s has a formula that is not known' % self.name)

    def takes_slices(self, variables: Tuple[Described, ...]) -> bool:
        """It does unless rows are summed before it sees them."""
        return any(variable.rows for variable in variables) and self._takes_own_way()

    def _computes_own_gradients(self) -> bool:
        compute = self.inner.compute_gradients.__func__
        return not compute.__module__.startswith('tensorflow.python.training.')

    def _takes_own_way(self) -> bool:
        """Whether a class that is not known treats all gradients, or repeated rows, itself."""
        if self._rows is not None:
            return False
        applies = self.inner.apply_gradients.__func__ is not tf.train.Optimizer.apply_gradients
        return (
            self._computes_own_gradients()
            or applies
            or tensorflow_optimizers.sums_own_rows(self.inner)
        )

    def updates(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        get_updates: Callable[..., List[Any]],
        lazy: bool = False,
        alone: bool = True,
        narrow: Sequence[NarrowRows] = (),
    ) -> List[Any]:
        """An operation in which the inner optimizer applies the gradients, or its own."""
        iterations = self._optimizer.iterations
        if not pairs:
            return [tf.assign_add(iterations, 1)]
        gradients = [(gradient, variable) for variable, gradient in pairs]
        if self._computes_own_gradients():
            gradients = self.inner.compute_gradients(loss, [variable for variable, _ in pairs])
        updating = tensorflow_optimizers.waiting_for_rows(self.inner)
        return [updating.apply_gradients(gradients, global_step=iterations)]

    def kept(
        self,
        before: Sequence[Variable],
        updated: List[Variable],
        operations: Sequence[Operation],
        gradients: Sequence[Gradient],
    ) -> Optional[OptimizerState]:
        """Its slots by their names, and single numbers."""
        iterations = self._optimizer.iterations
        kept = tensorflow_optimizers.kept_by(self.inner, iterations.graph, updated)
        if kept is None:
            return None
        others, by_name = kept
        counters = [iterations] + [others[name] for name in sorted(others)]
        return state_of_names(counters, updated, collections.OrderedDict(sorted(by_name.items())))

    def slots_by_name(self, variable: Variable) -> Dict[str, Any]:
        """Those that a step has left in which the variable was not sharded."""
        return tensorflow_optimizers.slots_by_name(self.inner, variable)

    def forget_slots(self, variables: Sequence[Variable]) -> None:
        """It would keep those that it has."""
        tensorflow_optimizers.forget_slots(self.inner, variables)
