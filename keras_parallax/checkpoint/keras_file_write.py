# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keras's own files of models with sharded tables: written and read in row blocks.

Keras's code lays the file out and fills it, all but the rows of large tables; these are put in
afterwards. So the file is the one that plain Keras writes, and plain Keras loads it.
"""

import contextlib
import functools
import json
import os
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, cast

import h5py
import numpy as np

from keras_parallax.atomic_files import ForgivingFile, why_unwritten, written_aside
from keras_parallax.checkpoint import optimizer_options, write_once
from keras_parallax.compat import keras_api
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.engine.session.graph_scope import GraphScope, scope_of
from keras_parallax.engine.session.row_fetches import Detours
from keras_parallax.engine.session.session import ParallaxSession
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.row_transfer import (
    BLOCK_BYTES,
    Rows,
    ShardedRows,
    numpy_dtype,
    progress,
)
from keras_parallax.engine.updates.keras_slots import names_in_keras
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import HdfGroup, Model, Optimizer, Session, Variable

#: The groups of the weights and of the optimizer's state in a file of `model.save`.
WEIGHTS, SLOTS = 'model_weights', 'optimizer_weights'

#: The attribute of a file that says which tables have optimizers of their own.
OF_TABLES = 'keras_parallax_optimizers_of_tables'


def save_model(
    model: Model,
    filepath: str,
    overwrite: bool = True,
    include_optimizer: bool = True,
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
) -> None:
    """Saves a model to the HDF5 file that plain Keras would write; `model.save` calls it.

    Any one worker may call it, on its own, and all may: those of a host that save the same thing to
    the same path write it once. The file gets its name when it is complete.

    Args:
        model: a Keras model of this job.
        filepath: path of the file.
        overwrite: if false, asks before a file is overwritten.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: how much memory saving may take for the rows of tables, in bytes.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.

    Raises:
        ParallaxError: the optimizer's state cannot be told apart; see the message.

    Example:
        ```python
        >>> import os, tempfile, keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        >>> path = os.path.join(tempfile.mkdtemp(), 'model.h5')
        >>> kp.save_model(model, path, block_bytes=2**20)
        >>> os.path.exists(path)
        True
        ```
    """
    write = functools.partial(write_model, model, include_optimizer=include_optimizer)
    content = ['model', include_optimizer]
    _save(model, filepath, overwrite, content, write, block_bytes, show_progress)


def save_weights(
    model: Model,
    filepath: str,
    overwrite: bool = True,
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
) -> None:
    """Saves a model's weights as plain Keras would; `model.save_weights` calls it.

    Args:
        model: as in `save_model`.
        filepath: as in `save_model`.
        overwrite: as in `save_model`.
        block_bytes: as in `save_model`.
        show_progress: as in `save_model`.
    """
    write = functools.partial(write_weights, model)
    _save(model, filepath, overwrite, ['weights'], write, block_bytes, show_progress)


def _save(
    model: Model,
    filepath: str,
    overwrite: bool,
    content: List[Any],
    write: Callable[[HdfGroup], Dict[str, Rows]],
    block_bytes: int,
    show_progress: Optional[bool],
) -> None:
    """Saves what `write` writes to an open file; it returns the `Rows` that it has left out."""
    package = keras_api.package_of(model)

    def save() -> Optional[str]:
        if not overwrite and os.path.isfile(filepath) and not package.may_overwrite(filepath):
            return None
        with created(filepath) as file:
            tables = write(file)
            own = own_digest(model, file, tables)
            fill_datasets(model, file, tables, block_bytes, show_progress)
        return own

    def own() -> Optional[str]:
        with in_memory() as file:
            return own_digest(model, file, write(file))

    scope = scope_of_model(model)
    point = write_once.point_of(scope)
    write_once.save(scope.job, point, filepath, content + described(model), save, own)


def described(model: Model) -> List[Any]:
    """What workers that save the same model say of it, plain data."""
    return [model.name] + [[weight.name, weight.shape.as_list()] for weight in model.weights]


def in_memory() -> h5py.File:
    """An HDF5 file that is on no disk, as a context manager."""
    return h5py.File('none', 'w', driver='core', backing_store=False)


def own_digest(model: Model, file: HdfGroup, tables: Dict[str, Rows]) -> Optional[str]:
    """The digest of what a worker has for itself: all of a file but the rows of sharded tables."""
    if not write_once.is_shared(scope_of_model(model).job):
        return None
    replicated = [
        rows
        for _, rows in sorted(tables.items())
        if isinstance(rows, ShardedRows) and rows.table is None
    ]
    return write_once.digest_of(file, replicated, session_of(model))


@contextlib.contextmanager
def created(filepath: str) -> Iterator[HdfGroup]:
    """Creates an HDF5 file that gets its name when it is complete.

    Raises:
        CheckpointError: it cannot be written, because the disk is full for instance.
    """
    try:
        with written_aside(filepath) as aside, ForgivingFile(aside, 'w+') as target:
            with h5py.File(cast(Any, target), 'w') as file:  # The stubs know of paths alone.
                yield file
            target.check()
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(why_unwritten(filepath, error)) from error


def write_model(model: Model, file: HdfGroup, include_optimizer: bool = True) -> Dict[str, Rows]:
    """Writes Keras's file of a model, but for the rows of large tables and slots.

    Args:
        model: the model.
        file: an open, empty `h5py.File`.
        include_optimizer: whether to write the optimizer's state, too.

    Returns:
        A dict from the paths of the datasets that have no rows yet to their `Rows`.
    """
    package, optimizer = keras_api.package_of(model), cast(Any, getattr(model, 'optimizer', None))
    step = getattr(optimizer, '_parallax_shown', None)
    _warn_of_pending(step)
    is_wrapped = step is not None
    has_slots = is_wrapped and include_optimizer and _has_weights(optimizer)
    slots = optimizer.weights if has_slots else []
    hidden = _without_weights(optimizer if is_wrapped else None)
    with _omitted(model, large_weights(model.weights)), hidden:
        package.write_model(model, file, include_optimizer)
    tables = _weights_in(model, package, file[WEIGHTS])
    if slots:
        tables.update(_write_slots(package, optimizer, slots, file))
        of_tables = optimizer._parallax_settings.tables.described()
        if of_tables:
            file.attrs[OF_TABLES] = json.dumps(of_tables)
    settings = getattr(optimizer, '_parallax_settings', None)
    if settings is not None and include_optimizer:
        optimizer_options.write(file, settings)
    return tables


def _warn_of_pending(step: Optional[TrainStep]) -> None:
    if step is not None and step.runs.pending and step.job.rank == 0:
        warnings.warn(
            'The gradients of the last %d of accumulate_steps=%d batches are not applied yet, and '
            'they are not saved; save after a multiple of accumulate_steps batches, or after an '
            'epoch of fit, which applies them.'
            % (step.runs.pending, step.spec.settings.accumulate_steps),
            stacklevel=4,
        )


def write_weights(model: Model, file: HdfGroup) -> Dict[str, Rows]:
    """Writes Keras's file of a model's weights, but for rows of large ones."""
    package = keras_api.package_of(model)
    with _omitted(model, large_weights(model.weights)):
        package.write_weights(model, file)
    return _weights_in(model, package, file)


def fill_datasets(
    model: Model,
    file: HdfGroup,
    tables: Mapping[str, Rows],
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
) -> None:
    """Puts the rows of tables into datasets of a file.

    Args:
        model: the model.
        file: the `h5py.File`.
        tables: dict from paths in the file to `Rows`; a dataset that is there already is replaced.
        block_bytes: as in `save_model`.
        show_progress: as in `save_model`.
    """
    fill_rows(session_of(model), file, tables, block_bytes, show_progress)


def fill_rows(
    session: Session,
    file: HdfGroup,
    tables: Mapping[str, Rows],
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
) -> None:
    """As `fill_datasets`, given the session that reads the rows."""
    total = sum(rows.bytes for rows in tables.values())
    for rows in tables.values():
        rows.make_reader()
    with progress(total, 'saving', show_progress) as advance:
        for path, rows in tables.items():
            if path in file:
                del file[path]
            dataset = file.create_dataset(path, rows.shape.as_list(), numpy_dtype(rows))
            rows.copy_to(dataset, session, block_bytes, advance)


def _has_weights(optimizer: Optimizer) -> bool:
    # Keras does not save the state of TensorFlow's optimizers, and warns of it.
    return adapter_of(optimizer).inner is None


def _write_slots(
    package: KerasPackage, optimizer: Optimizer, weights: Sequence[Variable], file: HdfGroup
) -> Dict[str, Rows]:
    step = optimizer._parallax_shown
    counters = len(step.operations.state.counters) if step.operations.state else 0
    names = names_in_keras(optimizer, weights, counters, step.spec.name_scope)
    group = file.create_group(SLOTS)
    names = unique_names(names)
    package.saving.save_attributes_to_hdf5_group(
        group, 'weight_names', [name.encode('utf8') for name in names]
    )
    tables = {}
    small = []
    for name, weight in zip(names, weights):
        rows = rows_of(weight)
        if rows is None:
            small.append((name, weight))
        else:
            tables['%s/%s' % (group.name, name)] = rows
    values = package.backend.batch_get_value([weight for _, weight in small])
    for (name, _), value in zip(small, values):
        group.create_dataset(name, data=value)
    return tables


def unique_names(names: Iterable[str]) -> List[str]:
    """Tells equal names apart as Keras 2.2.4 does."""
    told_apart = []
    for name in names:
        unique, number = name, 0
        while unique in told_apart:
            number += 1
            unique = '%s_%d' % (name, number)
        told_apart.append(unique)
    return told_apart


def rows_of(weight: Variable, however_small: bool = False) -> Any:
    """The `Rows` of a weight that is moved in blocks, or `None` of one that is not.

    Sharded tables and slots are, and variables that are larger than a block, or `however_small`,
    once and for all.
    """
    if hasattr(weight, 'sharded_rows'):
        return weight.sharded_rows
    if hasattr(weight, '_parallax_rows'):
        return weight._parallax_rows
    shape = weight.shape.as_list()
    bytes_of_weight = np.prod(shape, dtype=np.int64) * weight.dtype.size
    if not shape or (bytes_of_weight <= BLOCK_BYTES // 2 and not however_small):
        return None
    # Kept, because it adds operations to the graph.
    weight._parallax_rows = ShardedRows(weight.name, [weight], shape)
    return weight._parallax_rows


def large_weights(weights: Sequence[Variable]) -> List[Variable]:
    """Those weights that are moved in blocks."""
    return [weight for weight in weights if rows_of(weight) is not None]


def _weights_in(model: Model, package: KerasPackage, group: HdfGroup) -> Dict[str, Rows]:
    """The weights of a model that are moved in blocks, by the paths of their datasets."""
    tables = {}
    for layer in model.layers:
        names = package.saving.load_attributes_from_hdf5_group(group[layer.name], 'weight_names')
        for name, weight in zip(names, layer.weights):
            rows = rows_of(weight)
            if rows is not None:
                tables['/'.join([group.name.rstrip('/'), layer.name, name])] = rows
    return tables


@contextlib.contextmanager
def _omitted(model: Model, weights: Sequence[Variable]) -> Iterator[None]:
    """While open, these weights read as arrays without rows."""
    if not weights:
        yield
        return
    with session_of(model).with_detours(Detours(weights)):
        yield


@contextlib.contextmanager
def _without_weights(optimizer: Optional[Optimizer]) -> Iterator[None]:
    """While open, an optimizer says that it has no weights."""
    if optimizer is None or not _has_weights(optimizer):
        yield
        return
    optimizer._parallax_hidden = True
    try:
        yield
    finally:
        optimizer._parallax_hidden = False


def session_of(model: Model) -> ParallaxSession:
    """The `ParallaxSession` of a model that was built in a strategy's scope."""
    return scope_of_model(model).session


def scope_of_model(model: Model) -> GraphScope:
    """The `GraphScope` of a model that was built in a strategy's scope."""
    return cast(GraphScope, scope_of(model.weights[0].graph))


def is_ours(model: Model) -> bool:
    """Whether a model was built in a strategy's scope."""
    weights = model.weights
    return bool(weights) and scope_of(getattr(weights[0], 'graph', None)) is not None
