# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Describes a model of Keras 3 in the plan's plain terms; no table gets values, none is trained."""

import json
import zipfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from keras_parallax.compat.keras3_api import keras
from keras_parallax.compat.keras3_variable import TableVariable
from keras_parallax.engine.updates.table_updates import EXACT, LAZY
from keras_parallax.errors import PlanError, ScopeError
from keras_parallax.keras3 import optimizer as optimizer_module
from keras_parallax.keras3 import optimizer_parts
from keras_parallax.keras3.scope import open_scope
from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.planned_variables import Update


class Description(NamedTuple):
    """A model in plain terms.

    Attributes:
        uses: a `VariableUse` for each trainable variable.
        updates: dict from names of variables to how the optimizer would update them; empty if no
            optimizer is known.
        reasons: dict from names of tables that every worker would hold to why, in words.
    """

    uses: List[VariableUse]
    updates: Dict[str, Update]
    reasons: Dict[str, str]


def described(
    make: Callable[[], Tuple[Any, Any]],
    source: str,
    optimizer: Optional[str],
    sparse_update: Optional[str],
) -> Optional[Description]:
    """Describes the model that a function makes in the open scope of a strategy.

    Args:
        make: function without arguments that returns a model, and the config of the optimizer that
            a file has, or `None`.
        source: where the model is from, for errors.
        optimizer: as for `describe_model.describe`.
        sparse_update: as for `describe_model.describe`.

    Returns:
        The `Description`; `None` if what the function makes is no model of Keras 3.

    Raises:
        PlanError: the model has no weights, or there is no such optimizer.
    """
    try:
        model, saved = make()
    except ScopeError:
        # The scope refuses the layers of a model of Keras 2, before they have weights.
        return None
    if not isinstance(model, keras.Model):
        return None
    if not model.built:
        raise PlanError(
            'The model of %s has no weights yet: give it a keras.Input, or call it on a batch.'
            % source
        )
    chosen = _optimizer(optimizer or saved) or getattr(model, 'optimizer', None)
    settings = getattr(chosen, '_parallax_settings', None)
    way = sparse_update or (settings.sparse_update if settings else EXACT)
    scope: Any = open_scope()
    variables = model.trainable_variables
    why_dense = {id(one): _why_dense(chosen, one, scope) for one in variables}
    tables = [one for one in variables if why_dense[id(one)] is None]
    numbers = dict(zip(map(id, tables), optimizer_module.looked_up_with(tables, way)))
    uses, updates, reasons = [], {}, {}
    for variable in variables:
        is_table = isinstance(variable, TableVariable)
        name = variable.table.name if is_table else variable.path
        shape = tuple(variable.table.shape if is_table else variable.shape)
        number, reason = numbers.get(id(variable)), why_dense[id(variable)]
        if reason is None:
            uses.append(VariableUse(name, shape, 'float32', lookups=1, ids_key=number))
        else:
            uses.append(VariableUse(name, shape, str(variable.dtype), whole_reads=('loss',)))
            reasons[name] = reason
        update = chosen and update_of(
            optimizer_parts.part_for(chosen, variable), way, reason is None
        )
        if update is not None:
            updates[name] = update
    return Description(uses, updates, reasons)


def from_file(path: str) -> Tuple[Any, Any]:
    """The model of a `.keras` file without the values of its weights, and its optimizer's config.

    Raises:
        PlanError: it is no such file, or has layers that are not known.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read('config.json').decode('utf-8'))
        # To compile it would build the slots of whole tables.
        compiled = config.pop('compile_config', None) or {}
        return keras.saving.deserialize_keras_object(config), compiled.get('optimizer')
    except (zipfile.BadZipFile, OSError, KeyError, ValueError, TypeError) as error:
        raise PlanError(
            'No model of Keras 3 could be built from %s: %s. A model with layers of your own can '
            'be given as module:function.' % (path, error)
        ) from error


def _why_dense(optimizer: Any, variable: Any, scope: Any) -> Optional[str]:
    """Why every worker would hold a variable, in words; `None` if it would be sharded."""
    if not isinstance(variable, TableVariable):
        return scope.reasons.get(variable.path) or 'not looked up'
    return None if optimizer is None else optimizer_parts.why_dense(optimizer, variable)


def _optimizer(given: Any) -> Any:
    if given is None:
        return None
    try:
        return keras.optimizers.get(given)
    except (ValueError, TypeError) as error:
        raise PlanError('No Keras optimizer could be made of %r: %s' % (given, error)) from error


def update_of(optimizer: Any, way: str, is_sharded: bool) -> Optional[Update]:
    """How an optimizer updates a variable; `None` if its formula is not known.

    Args:
        optimizer: one of `optimizer_parts.parts_of`.
        way: `'exact'` or `'lazy'`.
        is_sharded: whether the variable is a table that is sharded.
    """
    rows = optimizer_parts.rows_of(optimizer)
    if rows is None:
        return None
    slots = float(len(rows.slots))
    if not is_sharded:
        return Update('the whole variable, as in Keras', whole=True, slots=slots)
    if way == LAZY:
        return Update("touched rows only: 'lazy'", slots=slots)
    name = optimizer_parts.own_class(type(optimizer)).__name__
    if rows.moves_all_rows:
        return Update('all rows in each step, as in %s' % name, whole=True, slots=slots)
    return Update('touched rows only, which is exact for %s' % name, slots=slots)
