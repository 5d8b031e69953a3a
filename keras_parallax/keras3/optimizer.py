"""An optimizer of Keras 3 whose gradients are exchanged between the workers."""

import itertools
import weakref
from typing import Any, Dict, List, Optional, Sequence, cast

import numpy as np

from keras_parallax.compat import keras3_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_files import StoreOfBlocks
from keras_parallax.compat.keras3_variable import EngineVariable, SlotVariable, TableVariable
from keras_parallax.compat.stand_ins import sharing
from keras_parallax.engine.step.agreement import check_agreement
from keras_parallax.engine.step.exchange import MEAN
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.updates.optimizers import RowsOfKeras3, rows_of_keras3
from keras_parallax.engine.updates.table_optimizers import TableOptimizers
from keras_parallax.engine.updates.table_updates import EXACT, LAZY
from keras_parallax.errors import PlanError, ScopeError, UnequalBatchesError
from keras_parallax.framework_types import Mixin
from keras_parallax.keras3 import embedding_layer, joint_losses
from keras_parallax.keras3.scope import Keras3Scope, open_scope
from keras_parallax.keras3.table_step import TableStep

#: Every worker wraps its optimizers in the same order, so the numbers agree between workers.
_numbers = itertools.count()

#: From optimizers to what they were wrapped as, so that slots go on if a model is compiled again.
_wrappers: Any = weakref.WeakKeyDictionary()

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


class _Wrapper(Mixin):
    """What a wrapped optimizer does differently; put before the optimizer's own class."""

    _parallax_wrapper = True
    _parallax_settings: OptimizerSettings
    _parallax_name: str
    _parallax_scope: Keras3Scope
    _parallax_tables: List[TableVariable]
    _parallax_step: Optional[TableStep]
    __slots__ = (
        '_parallax_settings',
        '_parallax_name',
        '_parallax_scope',
        '_parallax_tables',
        '_parallax_step',
    )

    @classmethod
    def from_config(cls, config: Dict[str, Any], **arguments: Any) -> Any:
        """An optimizer of the own class that is not wrapped."""
        own: Any = own_class(cls)
        return own.from_config(config, **arguments)

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
                # Keras counts variables in an ordinary attribute among the optimizer's own.
                tables = [one for one in variables if _is_table(one)]
                object.__setattr__(self, '_parallax_tables', tables)
                object.__setattr__(self, '_parallax_step', self._new_step())

    def add_variable_from_reference(
        self, reference_variable: Any, name: Optional[str] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Makes a slot, as in Keras; those of tables are kept by the engine."""
        if not _is_table(reference_variable):
            return super().add_variable_from_reference(reference_variable, name, *args, **kwargs)
        table, called = reference_variable.table, cast(str, name)

        def find() -> Any:
            return cast(TableStep, self._parallax_step).slot(table, called)

        path = '%s_%s' % (reference_variable.path.replace('/', '_'), name)
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

    def _new_step(self) -> Optional[TableStep]:
        tables = [variable.table for variable in self._parallax_tables]
        rows = rows_of(self)
        if not tables or rows is None:
            return None
        settings = self._parallax_settings
        options: Dict[str, Any] = dict(
            name=self._parallax_name,
            compression=settings.compression,
            pull_compression=settings.pull_compression,
            sparse_update=settings.sparse_update,
            sparse_reduction=settings.sparse_reduction,
        )
        dense = {
            name
            for variable in keras3_api.built_for(self)
            if not _is_table(variable)
            for name in _names_of(variable)
        }
        numbers = looked_up_with(self._parallax_tables, settings.sparse_update)
        return self._parallax_scope.new_step(tables, rows, options, numbers, dense)

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Any] = None) -> None:
        """Updates variables by gradients, as in Keras, and tables by those of their rows."""
        grads = list(grads)
        if trainable_variables is not None:
            self.build(list(trainable_variables))
        known = keras3_api.built_for(self) if trainable_variables is None else trainable_variables
        pairs = list(zip(grads, known))
        dense = [(by, of) for by, of in pairs if not _is_table(of) and by is not None]
        of_tables = {id(of): by for by, of in pairs if _is_table(of)}
        if of_tables:
            self._push(of_tables)
        reduced = self._averaged([by for by, _ in dense])
        if dense:
            super().apply(reduced, [of for _, of in dense])
        else:
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
        backend, tables = keras3_api.backend_module(), self._parallax_tables
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
        number = keras.ops.cast(keras3_api.iterations_of(self) + 1, 'int32')
        rate = keras.ops.cast(keras3_api.learning_rate_of(self), 'float32')
        step: Any = self._parallax_step

        def act(number: np.ndarray, rate: np.ndarray, *parts: np.ndarray) -> None:
            step(parts[::2], parts[1::2], float(rate), int(number))

        pushed = backend.push(
            self._parallax_scope.noting_errors(act), [number, rate], gradients, tables
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


def _is_table(variable: Any) -> bool:
    return isinstance(variable, TableVariable)


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


def own_class(cls: type) -> type:
    """The class of an optimizer that a class wraps."""
    return cls.__mro__[cls.__mro__.index(_Wrapper) + 1] if issubclass(cls, _Wrapper) else cls


def rows_of(optimizer: Any) -> Optional[RowsOfKeras3]:
    """The formula by which an optimizer of Keras 3 moves rows, if it is known."""
    cls = own_class(type(optimizer))
    if not cls.__module__.startswith('keras.'):
        return None
    return rows_of_keras3(cls.__name__, optimizer)


def why_dense(optimizer: Any) -> Optional[str]:
    """Why no table can be sharded with an optimizer, in words."""
    if rows_of(optimizer) is None:
        return 'the formula of %s for rows is not known' % own_class(type(optimizer)).__name__
    for option in _OF_ALL:
        if getattr(optimizer, option, None):
            return 'the optimizer has %s' % option
    return None


def _with_dense_tables(optimizer: Any, variables: List[Any]) -> List[Any]:
    """Variables, in which tables that the optimizer cannot update by rows are Keras's own."""
    reason = why_dense(optimizer)
    if reason is None:
        return variables
    made = {}
    for variable in variables:
        if _is_table(variable):
            made[id(variable)] = embedding_layer.make_dense(variable.layer(), reason)
    return [made.get(id(variable), variable) for variable in variables]


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
        (one.path, '%s %s%s' % (list(one.shape), one.dtype, ', sharded' * _is_table(one)))
        for one in variables
    ]
    tables = [one for one in variables if _is_table(one)]
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
    cls = type(optimizer)
    wrapper = type(cls.__name__, (_Wrapper, cls), {'__module__': cls.__module__, '__slots__': ()})
    wrapped = sharing(optimizer, wrapper)
    set_own = object.__setattr__
    set_own(wrapped, '_parallax_settings', settings)
    set_own(wrapped, '_parallax_name', name or 'keras3.%s.%d' % (cls.__name__, next(_numbers)))
    set_own(wrapped, '_parallax_scope', scope)
    set_own(wrapped, '_parallax_tables', [])
    set_own(wrapped, '_parallax_step', None)
    _wrappers[optimizer] = wrapped
    return wrapped


def usual_settings() -> OptimizerSettings:
    """The `OptimizerSettings` of a `ParallaxOptimizer` without options."""
    none = hvd.Compression.none
    return OptimizerSettings('', none, none, EXACT, MEAN, TableOptimizers())
