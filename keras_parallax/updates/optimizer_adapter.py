"""What is known of an optimizer: an adapter for each kind, which all else asks.

The formulas of Keras's own are known (`row_rules`), and TensorFlow has kernels for some
(`fused_kernels`). TensorFlow's own apply gradients themselves, and so do Keras's later ones
(`row_adapters`). Of a user's nothing is known but what the graph of its updates tells (`formulas`).
"""

import collections

from keras_parallax.compat import keras_optimizers, tensorflow_optimizers
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.planning.classify import ANY_ROWS, Reach
from keras_parallax.tables.id_index import index_of
from keras_parallax.updates import fused_kernels, row_rules
from keras_parallax.updates.adapter_base import (
    OptimizerAdapter,
    OptimizerState,
    is_of_ours,
    own_class,
    state_of_names,
)
from keras_parallax.updates.row_adapters import LossScaleAdapter, OptimizerV2Adapter

_KERAS_MODULES = keras_optimizers.MODULES


#: Those of TensorFlow, and of `tf.contrib.opt`, whose sparse kernels move rows by themselves.
_BY_ROW = set(
    'GradientDescentOptimizer MomentumOptimizer AdagradOptimizer AdadeltaOptimizer AdamOptimizer '
    'RMSPropOptimizer FtrlOptimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer '
    'AdagradDAOptimizer LazyAdamOptimizer AdaMaxOptimizer NadamOptimizer'.split()
)


def adapter_of(optimizer):
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
    known = by_rule and own.__name__ in row_rules.RULES
    if known and {'get_gradients', 'get_updates'}.isdisjoint(vars(optimizer)):
        return KerasAdapter(optimizer, own.__name__)
    return OptimizerAdapter(optimizer)


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
        return state_of_names(counters, updated, collections.OrderedDict(sorted(by_name.items())))

    def forget_slots(self, variables):
        """It would keep those that it has."""
        tensorflow_optimizers.forget_slots(self.inner, variables)
