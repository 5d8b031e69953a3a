# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`ParallaxOptimizer`: a Keras optimizer whose gradients are exchanged between the workers."""

import collections
import functools
import numbers
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Union, cast

from keras_parallax.compat import (
    keras_api,
    keras_losses,
    keras_optimizers,
    loaded_keras3,
    loss_scaling,
    tensorflow_api,
)
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.stand_ins import sharing
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_scope import GraphScope, require_graph, scope_of
from keras_parallax.engine.step.build import build_step, last_step_of
from keras_parallax.engine.step.exchange import MEAN, SUM
from keras_parallax.engine.step.joint_losses import TrainingFunction
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.step.step_spec import spec_of
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.table_optimizers import TableOptimizers, table_optimizers
from keras_parallax.engine.updates.table_updates import EXACT, LAZY
from keras_parallax.errors import ParallaxError, PlanError, ScopeError
from keras_parallax.framework_types import (
    Array,
    Mixin,
    Model,
    Operation,
    Optimizer,
    Tensor,
    Variable,
)
from keras_parallax.tuning.job_tuning import Tuning
from keras_parallax.tuning.moves import check_moves


class _Wrapper(Mixin):
    """What a wrapped optimizer does differently; put before the optimizer's own class."""

    _parallax_wrapper = True
    # Of the wrapper alone: all else it shares with the optimizer that it wraps, by whose methods
    # closures of its own may go on (the accumulating one in
    # `tests/unit/engine/updates/test_requested_gradients.py`).
    __slots__ = (
        '_parallax_step',
        '_parallax_former',
        '_parallax_hidden',
        '_parallax_settings',
        '_parallax_model',
        '_parallax_training',
    )
    _parallax_step: Optional[TrainStep]
    _parallax_former: Optional[TrainStep]
    _parallax_hidden: bool
    _parallax_settings: OptimizerSettings
    _parallax_model: Optional[Callable[[], Model]]
    _parallax_training: TrainingFunction

    def __repr__(self) -> str:
        settings = getattr(self, '_parallax_settings', None)
        given = [] if settings is None else ['sparse_update=%r' % settings.sparse_update]
        if settings is not None and settings.accumulate_steps > 1:
            given.append('accumulate_steps=%d' % settings.accumulate_steps)
        return '<ParallaxOptimizer: %s>' % ', '.join([type(self).__name__] + given)

    @property
    def _parallax_shown(self) -> Optional[TrainStep]:
        """The step whose weights it shows: until its own one is built, that of before `compile`."""
        return self._parallax_step or self._parallax_former

    @classmethod
    def from_config(cls, config: Dict[str, Any], **arguments: Any) -> Optimizer:
        """An optimizer of the own class that is not wrapped, as Keras makes it from a config."""
        if _is_horovods_class(cls):
            raise PlanError(_HOROVODS)
        return _own_class(cls).from_config(config, **arguments)

    @property
    def weights(self) -> List[Variable]:
        """The optimizer's weights, in Keras's order; of a sharded table, each slot as a whole.

        Raises:
            ParallaxError: a table of the model is sharded, and the optimizer is of a kind whose
                slots are not told apart.
        """
        step = self._parallax_shown
        if self._parallax_hidden:
            return []
        if step is None:
            return self.own_weights
        if step.operations.state is None:
            if step.spec.has_shards and self.own_weights:
                raise ParallaxError(
                    "The slots of %s cannot be assigned to the variables of the model, so its "
                    'state of sharded tables cannot be read; save with '
                    'model.save(path, include_optimizer=False) or model.save_weights(path).'
                    % type(self).__name__
                )
            return self.own_weights
        return step.operations.weights

    @weights.setter
    def weights(self, weights: List[Variable]) -> None:
        self.__dict__['weights'] = weights

    @property
    def own_weights(self) -> List[Variable]:
        """The weights of the optimizer's own class, for the variables that this worker updates."""
        # TFOptimizer has no weights of its own.
        return self.__dict__['weights'] if 'weights' in self.__dict__ else super().weights

    def set_weights(self, weights: Sequence[Array]) -> None:
        """Sets the optimizer's weights, sharded ones block by block.

        Args:
            weights: a list of arrays of the shapes that `get_weights` has.

        Raises:
            ValueError: the number of arrays or a shape is wrong.
        """
        own = self.weights
        shapes = [tuple(weight.shape.as_list()) for weight in own]
        given = [tuple(value.shape) for value in weights]
        if shapes != given:
            raise ValueError(
                'The optimizer has %d weights of shapes %s, but %d of shapes %s were given.'
                % (len(shapes), shapes, len(given), given)
            )
        keras_api.package_of(self).backend.batch_set_value(list(zip(own, weights)))

    def get_updates(self, loss: Tensor, params: Sequence[Variable]) -> List[Operation]:
        """Builds the operations that a training step of the model runs."""
        steps = self._parallax_settings.accumulate_steps
        if steps > 1 and scope_of(loss.graph) is None:
            raise ScopeError(
                'accumulate_steps=%d needs a ParallaxStrategy, whose session counts the batches: '
                'build and compile the model inside `with kp.ParallaxStrategy():`, also in a '
                'single process.' % steps
            )
        variables = list(map(tensorflow_api.uncast, params))
        _require_each_once(variables)
        self._warn_of_pending()
        shown, self._parallax_step, self._parallax_former = self._parallax_shown, None, None
        own = functools.partial(self._updates_of, loss)
        settings, training = self._parallax_settings, self._parallax_training
        model = self._parallax_model and self._parallax_model()
        if scope_of(loss.graph) is None:
            model = training.model
        spec = spec_of(self, model, loss, variables, settings, own, training.is_being_built)
        try:
            step = build_step(spec, check_moves)
        except BaseException:
            self._parallax_former = shown
            raise
        if step.spec.scope is not None:
            step.observers.append(Tuning(step))
        # Keras keeps the list, whatever the step is made of later.
        updates = [step.whole_step]
        # The class that derives from this one has a dict for attributes of Keras's.
        self.updates, self._parallax_step = updates, step  # type: ignore[misc]
        return updates

    def _warn_of_pending(self) -> None:
        step = self._parallax_step
        if step is not None and step.runs.pending and step.job.rank == 0:
            warnings.warn(
                'The model is compiled anew, and the gradients of the last %d of '
                'accumulate_steps=%d batches will not be applied.'
                % (step.runs.pending, step.spec.settings.accumulate_steps),
                stacklevel=4,
            )

    def _updates_of(self, loss: Tensor, pairs: Any, alone: Any, narrow: Any) -> Any:
        """The update operations of the optimizer itself, as `StepSpec.keras_updates` has them."""
        # Until the end of it, `weights` are those that the formula has set.
        step, self._parallax_step = self._parallax_step, None
        try:
            lazy = self._parallax_settings.sparse_update == LAZY
            return adapter_of(self).updates(loss, pairs, super().get_updates, lazy, alone, narrow)
        finally:
            self._parallax_step = step


def _own_class(cls: type) -> Any:
    """The class of an optimizer that a class wraps."""
    return cls.__mro__[cls.__mro__.index(_Wrapper) + 1]


def ParallaxOptimizer(  # noqa: N802 - named as Horovod names its DistributedOptimizer
    optimizer: Union[str, Optimizer],
    name: Optional[str] = None,
    compression: Any = hvd.Compression.none,
    pull_compression: Any = hvd.Compression.none,
    sparse_update: str = EXACT,
    sparse_reduction: str = MEAN,
    keras: Optional[str] = None,
    tables: Union[None, str, Optimizer] = None,
    per_table: Optional[Dict[str, Union[str, Optimizer]]] = None,
    accumulate_steps: int = 1,
    loss_reduction: Optional[str] = None,
) -> Optimizer:
    """Wraps an optimizer so that `model.compile` trains data-parallel and sparsity-aware.

    In a strategy's scope `model.compile` does so itself; this is for what the arguments below say,
    for training without a strategy, and for steps that a script makes of `get_updates` itself.

    Gradients of dense variables are averaged by Horovod's allreduce. Gradients of sparse variables
    stay rows: under a `ParallaxStrategy` of several workers they go to the owners of the table's
    shards; without a strategy every worker holds the table and the rows are gathered.

    Args:
        optimizer: a `keras` or `tf.keras` optimizer, its name as a string, or a
            `tf.train.Optimizer`.
        name: prefix of the names of Horovod's collectives; the same on every worker. Defaults to
            `'Parallax'` and the class of the optimizer.
        compression: one of `hvd.Compression`, for gradients on their way, dense ones and rows.
        pull_compression: one of `hvd.Compression`, for the rows of tables that a training step
            pulls. The shards, evaluations and predictions keep full precision.
        sparse_update: `'exact'` gives Keras's numbers: an optimizer with momentum moves every row
            of a table every step. `'lazy'` moves the touched rows and their slots only, which is
            far cheaper on a large table: momentum of a row without a gradient neither decays nor
            moves it, as in TF-Addons' `LazyAdam` and PyTorch's `SparseAdam`. The two are the same
            for SGD without momentum and for Adagrad.
        sparse_reduction: `'mean'` over workers, as for dense gradients, or `'sum'`, as Parallax
            does (EuroSys 2019), which makes the rate of tables grow with the number of workers.
        keras: `'keras'` or `'tf.keras'`, only for a string or a `tf.train.Optimizer`, which do not
            tell. Defaults to the package of the layers built last in the strategy's scope, and
            without a strategy to `'keras'` if the script has imported it.
        tables: another optimizer, or its name, for the rows of all tables; `optimizer` is then that
            of the dense variables. It moves touched rows only: `SGD`, `Adagrad` or one of
            `kp.optimizers`, or with `sparse_update='lazy'` one of Keras's others.
        per_table: dict from names of layers, such as `'user'`, or of variables, to optimizers of
            these tables. Others are left to `tables`, or else to `optimizer`.
        accumulate_steps: number of batches whose gradients each worker adds up before they are
            exchanged and applied once, as those of a batch so many times as large: the mean over
            the batches and the workers. `fit` applies what is left at the end of an epoch; between
            updates weights, slots and `iterations` stay. Only under a strategy, which may be one of
            a single process.
        loss_reduction: what losses of your own are, in `compile`, `add_loss` and
            `activity_regularizer`: `'mean'` or `'sum'` over the samples of a batch. By default they
            are tried with the first batch, and refused if they are neither. With `'mean'` or
            `'sum'` nothing is tried. Keras's own losses are known.

    Returns:
        An optimizer of a class of the same name as the given one's, so that a saved model loads
        without this package. It shares its attributes with the given one, whose class stays.

    Raises:
        ValueError: an argument is none of the above, or the optimizer's `get_updates` was replaced
            on the object.
        PlanError: the optimizer is a `DistributedOptimizer` of Horovod, or one of those for tables
            cannot be for tables. The first step raises it if a name is that of no table.
        ScopeError: made outside `with strategy:` although the graph belongs to a strategy of
            several workers or with dedicated servers, or under eager execution. The first step
            raises it if there is `accumulate_steps` and no strategy.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     ids = keras.layers.Input((1,), dtype='int32')
        ...     model = keras.models.Model(ids, keras.layers.Embedding(100, 4)(ids))
        ...     model.compile(kp.ParallaxOptimizer('adam', sparse_update='lazy'), 'mse')
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        ...     sgd = kp.ParallaxOptimizer(keras.optimizers.SGD(lr=0.1), accumulate_steps=2)
        ...     model.compile(sgd, 'mse')
        >>> history = model.fit(np.zeros((6, 1)), np.ones((6, 1)), batch_size=2, verbose=0)
        >>> int(keras.backend.get_value(sgd.iterations))  # Of two batches, then of the one left.
        2
        ```
    """
    _require_one_of('sparse_update', sparse_update, (EXACT, LAZY))
    _require_one_of('sparse_reduction', sparse_reduction, (MEAN, SUM))
    _require_compression('compression', compression)
    _require_compression('pull_compression', pull_compression)
    _require_steps('accumulate_steps', accumulate_steps)
    _require_one_of('loss_reduction', loss_reduction, (None, MEAN, SUM))
    if loaded_keras3.is_in_use() and not isinstance(optimizer, tuple(loaded_keras3.others())):
        settings = OptimizerSettings(
            name or '',
            compression,
            pull_compression,
            sparse_update,
            sparse_reduction,
            TableOptimizers(),
            loss_reduction=loss_reduction,
        )
        given = dict(
            tables=tables,
            per_table=per_table,
            accumulate_steps=accumulate_steps > 1,
            pull_compression=pull_compression is not hvd.Compression.none,
        )
        for option, value in given.items():
            if value:
                raise PlanError(
                    '%s of ParallaxOptimizer is not supported with Keras 3 yet; leave it out, or '
                    'train a model of Keras 2 (docs/keras3.md).' % option
                )
        if not _OF_KERAS_3:
            raise ScopeError(
                'With Keras 3, ParallaxOptimizer needs a ParallaxStrategy: call it inside '
                '`with kp.ParallaxStrategy():`.'
            )
        return _OF_KERAS_3[-1](optimizer, name, settings)
    require_graph()
    scope = scope_of(tf.get_default_graph())
    optimizer = _as_keras_optimizer(optimizer, keras, scope)
    if is_wrapped(optimizer):
        raise ValueError('The optimizer is a ParallaxOptimizer already; wrap it once.')
    _refuse_horovods(optimizer)
    if is_wrapped(keras_optimizers.inner_of(optimizer)):
        raise ValueError(
            'The LossScaleOptimizer has a ParallaxOptimizer inside; wrap the LossScaleOptimizer '
            'instead of the optimizer that it is given.'
        )
    if 'get_updates' in vars(optimizer):
        raise ValueError(
            'get_updates of the optimizer was replaced on the object; replace it in a subclass.'
        )
    if scope is not None and scope.must_exchange and scope.open_strategy is None:
        raise ScopeError(
            'ParallaxOptimizer was made outside the scope of the ParallaxStrategy; build and '
            'compile the model inside `with strategy:`.'
        )
    if scope is not None:
        scope.expect_tables()
    keras_losses.install(keras_api.package_of(optimizer))
    for install in _INSTALLERS:
        install(keras_api.package_of(optimizer))
    cls = type(optimizer)
    wrapped = _sharing(
        optimizer,
        type(cls.__name__, (_Wrapper, cls), {'__module__': cls.__module__, '__slots__': ()}),
    )
    keras_api.track_slots(wrapped)
    wrapped._parallax_settings = OptimizerSettings(
        name or 'Parallax' + cls.__name__,
        compression,
        pull_compression,
        sparse_update,
        sparse_reduction,
        table_optimizers(optimizer, tables, per_table),
        int(accumulate_steps),
        loss_reduction,
    )
    return wrapped


#: Functions of a `KerasPackage` that have its models call us, without a strategy as well.
_INSTALLERS: List[Callable[[keras_api.KerasPackage], None]] = []


#: The function that wraps optimizers of Keras 3, once a strategy is there.
_OF_KERAS_3: List[Callable[[Any, Optional[str], OptimizerSettings], Any]] = []


def wrap_keras3_with(wrap: Callable[[Any, Optional[str], OptimizerSettings], Any]) -> None:
    """Wraps optimizers of Keras 3 by a function of one, a name and `OptimizerSettings`."""
    _OF_KERAS_3.append(wrap)


def install_with(install: Callable[[keras_api.KerasPackage], None]) -> None:
    """Has a function of a `KerasPackage` called whenever an optimizer of it is wrapped."""
    _INSTALLERS.append(install)


def _sharing(optimizer: Optimizer, cls: type) -> Any:
    """A wrapper of a class, without settings, that has the attributes of an optimizer."""
    wrapper = sharing(optimizer, cls)
    wrapper._parallax_step = wrapper._parallax_former = wrapper._parallax_model = None
    wrapper._parallax_hidden, wrapper._parallax_training = False, TrainingFunction()
    return wrapper


def is_wrapped(optimizer: Any) -> bool:
    """Whether an optimizer is a `ParallaxOptimizer`."""
    return isinstance(optimizer, _Wrapper)


def of_model(model: Model, optimizer: Optimizer) -> Optimizer:
    """The optimizer with which a model of a strategy is compiled, a `ParallaxOptimizer`.

    It is the given one, unless it has a training step of another model. What `model.compile` was
    given may also be a name or a config.
    """
    _refuse_horovods(optimizer)
    optimizer = keras_api.for_graphs(optimizer)
    optimizer = keras_api.package_of(model).module.optimizers.get(optimizer)
    optimizer = _scaling_loss(model, optimizer)
    if not is_wrapped(optimizer):
        optimizer = ParallaxOptimizer(optimizer)
    of = optimizer._parallax_model and optimizer._parallax_model()
    if of is not None and of is not model:
        # The two share their rates and their number of steps, as in plain Keras.
        settings = optimizer._parallax_settings
        optimizer = _sharing(optimizer, type(optimizer))
        optimizer._parallax_settings = settings
    optimizer._parallax_model = weakref.ref(model)
    if optimizer._parallax_step is None:
        # That of the model itself, if it has one, rather than another model's.
        scope = cast(GraphScope, scope_of(tf.get_default_graph()))
        steps = scope.runs.train_steps
        own = getattr(getattr(model, 'optimizer', None), '_parallax_shown', None)
        optimizer._parallax_former = last_step_of(optimizer, steps + [own] * (own is not None))
    return optimizer


def _scaling_loss(model: Model, optimizer: Optimizer) -> Optimizer:
    """An optimizer, wrapped or not, that scales the loss if `compile` of Keras would have it so."""
    if not is_wrapped(optimizer):
        return loss_scaling.as_compiled(model, optimizer)
    plain = sharing(optimizer, _own_class(type(optimizer)))
    scaling = loss_scaling.as_compiled(model, plain)
    if scaling is plain:
        return optimizer
    wrapped = ParallaxOptimizer(scaling)
    wrapped._parallax_settings = optimizer._parallax_settings
    return wrapped


_HOROVODS = (
    'The optimizer is a DistributedOptimizer of Horovod, which exchanges gradients itself; inside '
    'a ParallaxStrategy and in ParallaxOptimizer give the optimizer that you gave to '
    'hvd.DistributedOptimizer.'
)


def is_horovods(optimizer: Optimizer) -> bool:
    """Whether an optimizer is a `DistributedOptimizer` of Horovod's, of any of its modules."""
    inner = getattr(optimizer, 'optimizer', None)  # As a TFOptimizer has one.
    return any(map(_is_horovods_class, (type(optimizer), type(inner))))


def _is_horovods_class(cls: type) -> bool:
    # Horovod makes a class for each optimizer; that it is of its modules they have in common.
    return any(base.__module__.split('.')[0] == 'horovod' for base in cls.__mro__)


def _refuse_horovods(optimizer: Optimizer) -> None:
    if is_horovods(optimizer):
        raise PlanError(_HOROVODS)


def _require_each_once(variables: List[Any]) -> None:
    """Raises `PlanError` if a variable is listed twice, which Keras 2.2.4 then moves twice a step.

    Keras 2.2.4 collects the weights of each sub-model. `tf.keras` lists a shared weight once.
    """
    counts = collections.Counter(variable.name.split(':')[0] for variable in variables)
    repeated = ['%s (%d times)' % pair for pair in counts.items() if pair[1] > 1]
    if repeated:
        raise PlanError(
            'The model lists weights more than once: %s. Keras 2.2.4 does so if several sub-models '
            'share a layer, and then moves the weights of the layer as often in each step; '
            'keras-parallax moves each weight once. Call one sub-model several times, call the '
            'layer in the main model, or use tf.keras.' % ', '.join(repeated)
        )


def _require_compression(argument: str, value: Any) -> None:
    if not (hasattr(value, 'compress') and hasattr(value, 'decompress')):
        raise ValueError(
            '%s must be one of kp.Compression, for instance kp.Compression.fp16, but %r was given.'
            % (argument, value)
        )


def _require_steps(argument: str, value: Any) -> None:
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or value < 1:
        raise ValueError(
            '%s must be a whole number of batches from 1, but %r was given.' % (argument, value)
        )


def _require_one_of(argument: str, value: Any, accepted: Sequence[Any]) -> None:
    if value not in accepted:
        raise ValueError(
            '%s must be one of %s, but %r was given.'
            % (argument, ', '.join(map(repr, accepted)), value)
        )


def _as_keras_optimizer(
    optimizer: Optimizer, keras: Optional[str], scope: Optional[GraphScope]
) -> Optimizer:
    optimizer = keras_api.for_graphs(optimizer)
    package = keras_api.found_package(optimizer)
    if package is not None and not isinstance(optimizer, str):
        return optimizer
    if not isinstance(optimizer, (str, tf.train.Optimizer)):
        raise ValueError(
            'optimizer must be a Keras optimizer, its name or a tf.train.Optimizer, but %r was '
            'given.' % (optimizer,)
        )
    if keras is None:
        records = list(scope.records.values()) if scope is not None else []
        last = records[-1] if records else None
        keras = last.package if last else keras_api.loaded_keras_packages()[-1].name
    _require_one_of('keras', keras, ('keras', 'tf.keras'))
    return keras_api.keras_package(keras).module.optimizers.get(optimizer)
