# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras.layers.Embedding`, whose table the engine keeps if it is made in a strategy's scope."""

import contextlib
import functools
import inspect
import sys
import threading
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple, cast

import numpy as np

from keras_parallax.compat import keras3_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_files import StoreOfBlocks
from keras_parallax.compat.keras3_variable import TableVariable
from keras_parallax.errors import PlanError
from keras_parallax.keras3.scope import Keras3Scope, open_scope
from keras_parallax.keras3.start_values import StartValues

#: The attribute in which Keras's layer has its table.
_WEIGHT = '_embeddings'

#: The methods in which a layer takes the variables that it has, its own or those of others.
_MAKING = ('__init__', 'build')

#: From layers to the scopes in which they were made.
_scopes: Any = weakref.WeakKeyDictionary()


def install() -> None:
    """Replaces the methods of `keras.layers.Embedding` that make, read or write its table."""
    for name, make in _REPLACED:
        keras3_api.replace_method('Embedding.' + name, keras3_api.Embedding, make)
    # It does not call that of `Embedding`.
    keras3_api.replace_method(
        'ReversibleEmbedding.quantize', keras.layers.ReversibleEmbedding, _quantize
    )


def table_of(layer: Any) -> Optional[TableVariable]:
    """The variable that stands for a layer's table, if the engine keeps it."""
    weight = getattr(layer, _WEIGHT, None) if isinstance(layer, keras3_api.Embedding) else None
    return weight if isinstance(weight, TableVariable) else None


def tables_in(model: Any) -> List[TableVariable]:
    """The `TableVariable`s of a model's layers."""
    found = (table_of(layer) for layer in keras3_api.layers_of(model))
    return [variable for variable in found if variable is not None]


def as_ids(inputs: Any) -> Any:
    """What a layer is called with, as the integers that Keras makes of it."""
    if keras.backend.standardize_dtype(inputs.dtype) in ('int32', 'int64'):
        return inputs
    return keras.ops.cast(inputs, 'int32')


class _Given(threading.local):
    """Rows that the next call of a layer need not look up."""

    def __init__(self) -> None:
        self.layer: Any = None
        self.rows: Any = None

    @contextlib.contextmanager
    def to(self, layer: Any, rows: Any) -> Iterator[None]:
        """While open, a call of a layer looks up nothing, and returns rows that are there."""
        former = self.layer, self.rows
        self.layer, self.rows = layer, rows
        try:
            yield
        finally:
            self.layer, self.rows = former


#: What gives rows to layers.
given = _Given()

#: While layers of plain Keras are made for a copy of a model, what their tables start as.
_plain_start: Optional[Callable[..., Any]] = None


@contextlib.contextmanager
def plain_starts(start: Callable[..., Any]) -> Iterator[None]:
    """While open, layers outside of every scope take the start values of their tables from here.

    Such a layer also takes a tensor that it loads as it is, without a copy.

    Args:
        start: an initializer of Keras, for tables of float32.
    """
    global _plain_start
    _plain_start = start
    try:
        yield
    finally:
        _plain_start = None


def calls_ours(layer: Any) -> bool:
    """Whether a call of a layer looks its inputs up, and does nothing before or after."""
    cls = type(layer)
    return (
        cls.call is keras3_api.Embedding.call
        and cls.__call__ is keras.Layer.__call__
        and 'call' not in vars(layer)
    )


def make_dense(layer: Any, reason: str) -> Any:
    """Has every worker hold the table of a layer.

    Args:
        layer: the layer.
        reason: why, in words.

    Returns:
        The variable of Keras that has the table.

    Raises:
        PlanError: an optimizer has taken the table.
    """
    table: Any = cast(TableVariable, table_of(layer)).table
    if table.is_trained:
        raise PlanError(
            'The table %s is sharded, and now %s, for which every worker must hold it. Keep it '
            "from being sharded: ParallaxStrategy(overrides={'%s': 'dense'})."
            % (table.name, reason, layer.name)
        )
    return _held_by_keras(layer, reason, table.read)


def _held_by_keras(layer: Any, reason: str, read: Callable[[], np.ndarray]) -> Any:
    """Has a variable of Keras take the place of a layer's table, and returns it.

    Args:
        layer: the layer.
        reason: why, in words.
        read: function of nothing that returns the values.
    """
    variable: Any = table_of(layer)
    table = variable.table
    variable.scope.reasons[table.name] = reason

    def start(shape: Any, dtype: Any = None) -> Any:
        return keras.ops.convert_to_tensor(read(), dtype)

    def make() -> Any:
        return keras.Variable(start, shape=table.shape, dtype='float32', name=variable.name)

    made = variable.dense = keras3_api.replace_weight(layer, _WEIGHT, make)
    table.given_up(reason)
    return made


def _why_dense(layer: Any, scope: Keras3Scope) -> Optional[str]:
    name = '%s/embeddings' % layer.name
    if layer.embeddings_regularizer is not None:
        return 'it has a regularizer'
    if layer.embeddings_constraint is not None:
        return 'it has a constraint'
    if layer.lora_rank:
        return 'it has LoRA'
    if layer.quantization_mode:
        return 'it is quantized'
    if layer.variable_dtype != 'float32':
        return 'it is of %s' % layer.variable_dtype
    return scope.why_dense(layer.name, name)


def _init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        scope = open_scope()
        if scope is not None:
            # A model may be built by its first batch, outside the scope.
            _scopes[self] = scope
        original(self, *args, **kwargs)

    # Keras asks a constructor for its arguments, and does not ask what a function wraps.
    vars(__init__)['__signature__'] = inspect.signature(original)
    return __init__


@contextlib.contextmanager
def _as_told(layer: Any) -> Iterator[None]:
    """While open, a layer has the initializer of `plain_starts`, if that is open."""
    former = layer.embeddings_initializer
    if _plain_start is not None and layer.variable_dtype == 'float32':
        layer.embeddings_initializer = _plain_start
    try:
        yield
    finally:
        layer.embeddings_initializer = former


def _build(original: Callable[..., None]) -> Callable[..., None]:
    def build(self: Any, input_shape: Any = None) -> None:
        scope = open_scope() or _scopes.get(self)
        if scope is None or self.built:
            with _as_told(self):
                return original(self, input_shape)
        name, reason = '%s/embeddings' % self.name, _why_dense(self, scope)
        if reason is not None:
            scope.reasons[name] = reason
            return original(self, input_shape)
        shape = (self.input_dim, self.output_dim)
        table = scope.new_table(name, StartValues(self.embeddings_initializer, shape))
        self._embeddings = keras3_api.new_weight(
            self, lambda: TableVariable(table, 'embeddings', scope, self, make_dense)
        )
        # Only now: what is frozen when a layer gets it stays so for good.
        self._embeddings.trainable = self.trainable
        if not keras3_api.backend_module().CAN_COMPILE:
            self.supports_jit = False
        self.built = True

    return build


def _call(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, inputs: Any) -> Any:
        variable = table_of(self)
        if variable is None:
            return original(self, inputs)
        rows = given.rows if given.layer is self else None
        if rows is None:
            pull = variable.scope.noting_errors(lambda ids: [variable.table.pull(ids[0])])
            ids = as_ids(inputs)
            rows = keras3_api.backend_module().lookup(pull, variable, ids, self.output_dim)
        return keras.ops.cast(rows, self.compute_dtype)

    return call


def _embeddings(original: Any) -> property:
    def embeddings(self: Any) -> Any:
        if table_of(self) is not None:
            if keras3_api.is_in_call():
                make_dense(self, 'a layer reads it whole')
            elif sys._getframe(1).f_code.co_name in _MAKING:
                # Keras counts it among the variables of what is being made.
                make_dense(self, 'another layer takes its variable')
        return original.fget(self)

    return property(embeddings)


def _enable_lora(original: Callable[..., None]) -> Callable[..., None]:
    def enable_lora(self: Any, *args: Any, **kwargs: Any) -> None:
        variable = table_of(self)
        if variable is not None:
            _held_by_keras(self, 'it has LoRA', variable.numpy)
        original(self, *args, **kwargs)

    return enable_lora


def _quantize(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def quantize(self: Any, *args: Any, **kwargs: Any) -> None:
        variable = table_of(self)
        # Reads the table, and puts variables of other types in its place; or refuses the mode.
        original(self, *args, **kwargs)
        if variable is not None and table_of(self) is None:
            variable.scope.reasons[variable.table.name] = 'it is quantized'
            variable.table.given_up('it is quantized')

    return quantize


def _saved_table(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_embeddings_with_merged_lora(self: Any) -> Any:
        variable = table_of(self)
        if variable is None:
            return original(self)
        return (variable, *keras3_api.no_scales())

    return _get_embeddings_with_merged_lora


def _in_blocks(original: Callable[..., None]) -> Callable[..., None]:
    def save_or_load_own_variables(self: Any, store: Any) -> None:
        is_plain = table_of(self) is None and _plain_start is None
        original(self, store if is_plain else StoreOfBlocks(store))

    return save_or_load_own_variables


_REPLACED: Tuple[Tuple[str, Callable[[Any], Any]], ...] = (
    ('__init__', _init),
    ('build', _build),
    ('call', _call),
    ('embeddings', _embeddings),
    ('enable_lora', _enable_lora),
    ('quantize', _quantize),
    ('_get_embeddings_with_merged_lora', _saved_table),
    ('save_own_variables', _in_blocks),
    ('load_own_variables', _in_blocks),
)
