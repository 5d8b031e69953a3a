# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""An optimizer of Keras 3 whose gradients are exchanged between the workers."""

import itertools
import weakref
from typing import Any, Dict, List, Optional, Sequence, cast

import numpy as np

from keras_parallax.compat import keras3_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_variable import EngineVariable, TableVariable
from keras_parallax.compat.stand_ins import sharing
from keras_parallax.engine.step.agreement import check_agreement
from keras_parallax.engine.step.exchange import MEAN
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.updates.optimizers import RowsOfKeras3
from keras_parallax.engine.updates.table_optimizers import TableOptimizers
from keras_parallax.engine.updates.table_updates import EXACT, LAZY
from keras_parallax.errors import PlanError, ScopeError, UnequalBatchesError
from keras_parallax.keras3 import embedding_layer, joint_losses, table_configs
from keras_parallax.keras3.optimizer_parts import (
    EngineSlots,
    is_map,
    is_table,
    own_class,
    part_for,
    parts_of,
    rows_of,
    set_tables,
    take_parts,
    why_dense,
    with_engine_slots,
)
from keras_parallax.keras3.scope import Keras3Scope, open_scope
from keras_parallax.keras3.table_step import TableStep

#: Every worker wraps its optimizers in the same order, so the numbers agree between workers.
_numbers = itertools.count()

#: From optimizers to what they were wrapped as, so that slots go on if a model is compiled again.
_wrappers: Any = weakref.WeakKeyDictionary()

#: What a wrapped optimizer has besides.
_SLOTS = ('_parallax_settings', '_parallax_name', '_parallax_scope')


class _Wrapper(EngineSlots):
    """What a wrapped optimizer does differently; put before the optimizer's own class."""

    _parallax_settings: OptimizerSettings
    _parallax_name: str
    _parallax_scope: Keras3Scope
    __slots__ = _SLOTS

    def build(self, variables: Sequence[Any]) -> None:
        """Takes the variables that it updates, as in Keras. A collective call."""
        if self.built:
            return
        scope = self._parallax_scope
        with keras3_api.backend_module().outside_steps():
            with scope.job.call('the first training call of a model'):
                variables = _with_dense_tables(self, list(variables))
                _check_models(self, variables)
                _broadcast(scope, variables)
                super().build(variables)
                self._take_tables([one for one in variables if is_table(one)])

    def _take_tables(self, tables: List[TableVariable]) -> None:
        parts = parts_of(self)
        set_tables(self, tables, None)
        for number, part in enumerate(parts):
            own = [one for one in tables if part_for(self, one) is part]
            name = self._parallax_name + '.%d' % number * (len(parts) > 1)
            set_tables(part, own, self._new_step(part, own, name) if own else None)

    def _new_step(self, part: Any, tables: List[TableVariable], name: str) -> TableStep:
        settings = self._parallax_settings
        options: Dict[str, Any] = dict(
            name=name,
            compression=settings.compression,
            pull_compression=settings.pull_compression,
            sparse_update=settings.sparse_update,
            sparse_reduction=settings.sparse_reduction,
        )
        others = {
            name
            for variable in keras3_api.built_for(self)
            if not any(variable is table for table in tables)
            for name in _names_of(variable)
        }
        return self._parallax_scope.new_step(
            [variable.table for variable in tables],
            cast(RowsOfKeras3, rows_of(part)),
            options,
            looked_up_with(tables, settings.sparse_update),
            others,
        )

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Any] = None) -> None:
        """Updates variables by gradients, as in Keras, and tables by those of their rows."""
        grads = list(grads)
        if trainable_variables is not None:
            self.build(list(trainable_variables))
        known = keras3_api.built_for(self) if trainable_variables is None else trainable_variables
        pairs = list(zip(grads, known))
        dense = [(by, of) for by, of in pairs if not is_table(of) and by is not None]
        of_tables = {id(of): by for by, of in pairs if is_table(of)}
        if of_tables:
            self._push(of_tables)
        reduced = self._averaged([by for by, _ in dense])
        if is_map(self):
            self._apply_by_parts(reduced, [of for _, of in dense])
        elif dense:
            super().apply(reduced, [of for _, of in dense])
        else:
            keras3_api.iterations_of(self).assign_add(1)

    def _apply_by_parts(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        for part in parts_of(self):
            own = [pair for pair in zip(gradients, variables) if part_for(self, pair[1]) is part]
            if own:
                part.apply(*map(list, zip(*own)))
            elif part._parallax_tables:
                keras3_api.iterations_of(part).assign_add(1)
        keras3_api.iterations_of(self).assign_add(1)

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        """As `apply`, given and returning the values of variables, as in Keras."""
        if isinstance(self, keras3_api.LossScaleOptimizer):
            # It calls that of the optimizer within, and none of its own.
            grads = self._averaged(list(grads))
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)

    def _push(self, of_tables: Dict[int, Any]) -> None:
        backend = keras3_api.backend_module()
        parts = [part for part in parts_of(self) if part._parallax_tables]
        tables = [variable for part in parts for variable in part._parallax_tables]
        gradients = [of_tables.get(id(variable)) for variable in tables]
        missing = [
            variable.table.name
            for variable, by in zip(tables, gradients)
            if not backend.has_gradient(by)
        ]
        if missing:
            raise PlanError(
                'A step has no gradient of table %s, but the optimizer was built for it. Use an '
                "optimizer for each set of variables, or overrides={'layer': 'dense'}."
                % ', '.join(missing)
            )
        stack, cast_to = keras.ops.stack, keras.ops.cast
        numbers = [cast_to(keras3_api.iterations_of(part) + 1, 'int32') for part in parts]
        rates = [cast_to(keras3_api.learning_rate_of(part), 'float32') for part in parts]

        def act(numbers: np.ndarray, rates: np.ndarray, *arrays: np.ndarray) -> None:
            # One call for all of them, since workers wait for each other in each of their steps.
            ids, of_ids = iter(arrays[::2]), iter(arrays[1::2])
            for part, number, rate in zip(parts, numbers, rates):
                count = len(part._parallax_tables)
                own = list(itertools.islice(ids, count)), list(itertools.islice(of_ids, count))
                part._parallax_step(*own, float(rate), int(number))

        pushed = backend.push(
            self._parallax_scope.noting_errors(act),
            [stack(numbers), stack(rates)],
            gradients,
            tables,
        )
        for variable, value in zip(tables, pushed):
            variable.assign(value)

    def _averaged(self, gradients: List[Any]) -> List[Any]:
        """The means of gradients over the workers; raises if batches are unequal."""
        backend, scope = keras3_api.backend_module(), self._parallax_scope
        gradients = backend.as_tensors(gradients, keep_rows=scope.job.size == 1)
        joint = joint_losses.current()
        size = joint.batch_size if joint is not None else None
        if joint is not None:
            joint.ended()
        if scope.job.size == 1:
            return gradients
        sizes = []
        if size is not None:
            own = keras.ops.cast(size, 'float32')
            sizes = [keras.ops.stack([own, own * own])]
        if not gradients and not sizes:
            return gradients
        means = backend.mean_over_workers(
            [*sizes, *gradients],
            self._parallax_name + '.dense',
            self._parallax_settings.compression,
            scope.collective_of('the exchange of gradients'),
            scope.noting_errors(lambda *of: _check_sizes(scope, *of)) if sizes else None,
        )
        return means[len(sizes) :]


def _check_sizes(scope: Keras3Scope, own: np.ndarray, mean: np.ndarray) -> None:
    # The sizes are equal if their variance is zero.
    if abs(mean[1] - mean[0] ** 2) > 1e-3 * max(1.0, mean[1]):
        raise UnequalBatchesError(
            'The workers have batches of unequal sizes: rank %d has %d samples, and the mean over '
            'the workers is %g. Give all workers equally many samples in each step, for example by '
            'kp.data.arrays.' % (scope.job.rank, own[0], mean[0])
        )


def _names_of(variable: Any) -> Sequence[str]:
    """The names by which options call a variable: its own, and that of its layer."""
    parts = variable.path.split('/')
    return variable.path, '/'.join(parts[-2:]), parts[max(0, len(parts) - 2)]


def looked_up_with(tables: Sequence[TableVariable], sparse_update: str) -> List[int]:
    """For each table a number, the same for those that a functional model looks up alike."""
    if sparse_update == LAZY:
        # There a row with a gradient of zero moves, and one that is not looked up does not.
        return list(range(len(tables)))
    numbers: Dict[Any, int] = {}
    of_tables = []
    for place, variable in enumerate(tables):
        source = keras3_api.only_input_of(variable.layer())
        # Tables of other numbers of rows have other shards.
        key = place if source is None else (id(source), variable.table.shape[0])
        of_tables.append(numbers.setdefault(key, place))
    return of_tables


def _with_dense_tables(optimizer: Any, variables: List[Any]) -> List[Any]:
    """Variables, in which tables that the optimizer cannot update by rows are Keras's own."""
    made = []
    for variable in variables:
        reason = why_dense(optimizer, variable) if is_table(variable) else None
        if reason is not None:
            variable = embedding_layer.make_dense(variable.layer(), reason)
        made.append(variable)
    return made


def _check_models(optimizer: Any, variables: Sequence[Any]) -> None:
    scope = optimizer._parallax_scope
    if scope.job.size == 1:
        return
    overwritten = [one.path for one in variables if one.overwrite_with_gradient]
    if overwritten:
        raise PlanError(
            'Variable %s is set to its gradient, as layers quantized to float8 do with their '
            'scales, and the mean of the gradients of %d workers is not the gradient of their '
            'joined batch. Train with one worker, or use a 16-bit policy such as mixed_bfloat16.'
            % (overwritten[0], scope.job.size)
        )
    report = [
        (one.path, '%s %s%s' % (list(one.shape), one.dtype, ', sharded' * is_table(one)))
        for one in variables
    ]
    tables = [one for one in variables if is_table(one)]
    numbers = looked_up_with(tables, optimizer._parallax_settings.sparse_update)
    report.append(('lookups with the same ids', str(numbers)))
    report.append(('optimizer', own_class(type(optimizer)).__name__))
    config = {name: str(value) for name, value in optimizer.get_config().items()}
    report.append(('optimizer config', str(sorted(config.items()))))
    check_agreement(scope.job.gather(report))


def _broadcast(scope: Keras3Scope, variables: Sequence[Any]) -> None:
    """Sets variables to the values of rank 0, those of the engine and whole numbers apart."""
    floats = [one for one in variables if keras.backend.is_float_dtype(one.dtype)]
    _set_to_rank_0(scope, floats)


def _set_to_rank_0(scope: Keras3Scope, variables: Sequence[Any]) -> None:
    if scope.job.size == 1:
        return
    of_keras = [one for one in variables if not isinstance(one, EngineVariable)]
    values = [keras.ops.convert_to_numpy(variable.value) for variable in of_keras]
    for variable, value in zip(of_keras, scope.broadcast(values)):
        variable.assign(value)


def broadcast_rest(scope: Keras3Scope, model: Any) -> None:
    """Sets what a model has besides trainable weights to the values of rank 0."""
    _broadcast(scope, model.non_trainable_variables)


def broadcast_all(scope: Keras3Scope, model: Any) -> None:
    """Sets a model, and the state of its optimizer, to those of rank 0; tables are there already.

    Whole numbers of the model are seeds, of which every worker has its own.
    """
    _broadcast(scope, model.variables)
    _set_to_rank_0(scope, model.optimizer.variables)


def is_wrapped(optimizer: Any) -> bool:
    """Whether an optimizer is a `ParallaxOptimizer`."""
    return isinstance(optimizer, _Wrapper)


def wrap(optimizer: Any, name: Optional[str], settings: OptimizerSettings) -> Any:
    """The `ParallaxOptimizer` of an optimizer of Keras 3.

    Raises:
        PlanError: it is Horovod's, or has been built for a model.
        ScopeError: no strategy's scope is open.
        ValueError: the optimizer is wrapped already.
    """
    scope = open_scope()
    if scope is None:
        raise ScopeError(
            'With Keras 3, ParallaxOptimizer needs a ParallaxStrategy: call it inside '
            '`with kp.ParallaxStrategy():`.'
        )
    if is_wrapped(optimizer):
        raise ValueError('The optimizer is a ParallaxOptimizer already; wrap it once.')
    optimizer = keras.optimizers.get(optimizer)
    if any(cls.__module__.split('.')[0] == 'horovod' for cls in type(optimizer).__mro__):
        raise PlanError(
            'The optimizer is a DistributedOptimizer of Horovod. Keras 3 does not call what it '
            'adds, so that each worker would train alone. Give the optimizer that you gave to '
            'hvd.DistributedOptimizer.'
        )
    if optimizer in _wrappers:
        return _wrappers[optimizer]
    if optimizer.built:
        raise PlanError(
            'The optimizer has been built for a model already; make a new one, or wrap it before '
            'it is used.'
        )
    take_parts(optimizer)
    wrapped = with_engine_slots(optimizer, _Wrapper, _SLOTS)
    set_own, cls = object.__setattr__, type(optimizer)
    set_own(wrapped, '_parallax_settings', settings)
    set_own(wrapped, '_parallax_name', name or 'keras3.%s.%d' % (cls.__name__, next(_numbers)))
    set_own(wrapped, '_parallax_scope', scope)
    _wrappers[optimizer] = wrapped
    return wrapped


def with_own_optimizers(model: Any, given: Any) -> Any:
    """As of `table_configs`; the optimizer may be wrapped."""
    if not is_wrapped(given):
        return table_configs.with_own_optimizers(model, given)
    plain = sharing(given, own_class(type(given)))
    made = table_configs.with_own_optimizers(model, plain)
    if made is plain:
        return given
    with given._parallax_scope:
        return wrap(made, None, given._parallax_settings)


def check_own_optimizers(model: Any) -> None:
    """Refuses a model whose tables of keras-rs came after `compile`, with other optimizers.

    Raises:
        PlanError: as said.
    """
    plain = sharing(model.optimizer, own_class(type(model.optimizer)))
    if table_configs.differing(model, plain):
        raise PlanError(
            'The model got a DistributedEmbedding after compile, and its tables have optimizers of '
            'their own. Make the layer before compile, for example in __init__ of the model.'
        )


def usual_settings() -> OptimizerSettings:
    """The `OptimizerSettings` of a `ParallaxOptimizer` without options."""
    none = hvd.Compression.none
    return OptimizerSettings('', none, none, EXACT, MEAN, TableOptimizers())
