# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Goes on from a checkpoint, or from a file of plain Keras, with any number of workers."""

import contextlib
import json
import os
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, cast

from keras_parallax.checkpoint import (
    keras3_state,
    keras_file_read,
    keras_file_write,
    other_keras,
    random_state,
    tensorflow_slots,
)
from keras_parallax.checkpoint.fit_record import SavedFit
from keras_parallax.checkpoint.manifest import Manifest, is_sharded, read_manifest, saved_under
from keras_parallax.checkpoint.other_keras import check_gates, gates
from keras_parallax.checkpoint.path_patterns import can_name, changing_part
from keras_parallax.checkpoint.save import ORDER, OURS, read_state, scalars
from keras_parallax.checkpoint.saved_rows import ChangedShard, PartDataset, PartFiles, SavedRows
from keras_parallax.compat import keras_api
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.step.dense_values import broadcast
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import CheckpointError, ParallaxError
from keras_parallax.framework_types import Array, HdfGroup, Model, Optimizer

#: The state of a file that does not tell one: that of plain Keras.
_UNKNOWN = {'epoch': 0, 'hyperparameters': {}, 'best': {}, 'written': None, 'fit': {}}


class Opened(NamedTuple):
    """An open checkpoint of either form, or a file of plain Keras.

    Attributes:
        file: Keras's file.
        sources: dict from paths in it to where the rows are instead (`keras_file_read.Mover`).
        of_ranks: the files with each saving worker's own state.
    """

    file: HdfGroup
    sources: Dict[str, SavedRows]
    of_ranks: List[HdfGroup]


@contextlib.contextmanager
def opened(path: str, checked: bool = True) -> Iterator[Opened]:
    """Opens a checkpoint of either form, or a file of plain Keras.

    Args:
        path: path of the file or the folder.
        checked: whether to compare the checksums of parts.

    Returns:
        A context manager that gives `Opened`.

    Raises:
        CheckpointError: the checkpoint is incomplete or damaged.
    """
    with contextlib.ExitStack() as stack:
        if not is_sharded(path):
            file = stack.enter_context(keras_file_read.opened(path))
            yield Opened(file, {}, [file] if 'random' in read_state(file) else [])
            return
        manifest = read_manifest(path, checked)
        if manifest.model.endswith(keras3_state.WEIGHTS):
            raise CheckpointError(
                '%s was saved from a model of Keras 3, but this model is of Keras 2. Give '
                'strategy.resume a model of Keras 3.' % path
            )
        # Those of the newest save: what is older has rows alone that still count.
        newest = {
            part.name: stack.enter_context(keras_file_read.opened(os.path.join(path, part.name)))
            for part in manifest.newest_parts
        }
        file = newest[manifest.model]
        files = stack.enter_context(PartFiles(path, keras_file_read.opened))
        sources = {
            name: rows_of(manifest, name, file[name].dtype, files) for name in manifest.tables
        }
        of_ranks = [part for part in newest.values() if 'random' in read_state(part)]
        yield Opened(file, sources, of_ranks)


def rows_of(manifest: Manifest, name: str, dtype: Any, files: PartFiles) -> SavedRows:
    """The `SavedRows` of a table, given its name in the manifest and the `PartFiles`."""
    table = manifest.tables[name]
    deltas = []
    for delta in manifest.deltas:
        changed = []
        for shard, part, path, ids in delta.tables.get(name, []):
            numbers = ids and PartDataset(files, part, ids)
            changed.append(ChangedShard(shard, PartDataset(files, part, path), numbers))
        deltas.append(changed)
    shards = [PartDataset(files, part, path) for part, path in table['shards']]
    return SavedRows(table['shape'], dtype, shards, deltas)


def resume(
    model: Model,
    path: Optional[str],
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
    like_keras: bool = False,
) -> int:
    """Gives a job the state that another had, with any number of workers. A collective call.

    Args:
        model: the compiled model.
        path: a checkpoint of either form, or a file of plain Keras; `None` if there is none. That
            of rank 0 counts.
        block_bytes: how much memory loading may take for the rows of tables, in bytes.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.
        like_keras: whether the optimizer starts afresh, with a warning, if the saved optimizer
            state does not fit the model, as with the `load_model` of plain Keras. That happens
            when a layer was frozen and the model was saved before it trained again.

    Returns:
        The number of epochs that are over, for `fit(initial_epoch=...)`; 0 if it is not known.

    Raises:
        CheckpointError: on every worker, if the checkpoint is damaged or of another model, or if
            not every worker sees all parts of it.
    """
    if model.train_function is None:
        keras_api.make_train_function(model)
    step = step_of(model)
    path = step.job.gather(path)[0]
    if path is None:
        return 0
    # First of all, so that nothing is changed by some of the workers only.
    whole = not is_in_parts(cast(Job, step.job), path)

    own: Dict[str, Any] = {}
    order: Optional[Array] = None

    def read() -> Optional[Dict[str, Any]]:
        nonlocal own, order
        # Of one file, rank 0 gives all the rest to the others, who may not see it.
        if step.job.rank == 0 or not whole:
            # What each worker writes here is its own share, and waits for no other's.
            with step.job.call('strategy.resume'):
                state, own, order = _read(model, step, path, block_bytes, show_progress, like_keras)
                return state
        return None

    state = on_every_worker(cast(Job, step.job), path, read)[0]
    step.runs.drop_pending()
    broadcast(step, 0)
    _set_hyperparameters(model.optimizer, state['hyperparameters'])
    step.fits.keep(SavedFit(state['epoch'], state['fit'], own, order, state['ranks']))
    return state['epoch']


def is_in_parts(job: Job, path: str) -> bool:
    """Whether a checkpoint has several parts, which every worker sees. A collective call.

    Args:
        job: the `Job`.
        path: path of the file or the folder; that of rank 0 counts.

    Raises:
        CheckpointError: on every worker, if it is damaged, or if one does not see what rank 0 sees.
    """
    seen = on_every_worker(job, path, lambda: _save_id(path, checked=job.rank == 0))
    for rank, save_id in enumerate(seen):
        if seen[0] is not None and save_id != seen[0]:
            raise CheckpointError(
                'Rank %d does not see the checkpoint that rank 0 sees at %s; one of several parts '
                'must be on storage that every host sees.' % (rank, path)
            )
    return seen[0] is not None


def on_every_worker(job: Job, path: str, act: Callable[[], Any]) -> List[Any]:
    """What a function returns on each worker. A collective call.

    Args:
        job: the `Job`.
        path: path of what is loaded.
        act: the function, of nothing; the JSON-able value that it returns may differ by rank.

    Returns:
        A list.

    Raises:
        CheckpointError: on every worker, if it could not load on one.
    """
    value = problem = None
    try:
        value = act()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        problem = error
    words = problem and str(problem)
    if not isinstance(problem, ParallaxError):
        words = problem and '%s: %s' % (type(problem).__name__, problem)
    reports = job.gather({'problem': words, 'value': value})
    for rank, report in enumerate(reports):
        if report['problem']:
            raise CheckpointError(
                'Rank %d could not load %s: %s' % (rank, path, report['problem'])
            ) from problem
    return [report['value'] for report in reports]


def _save_id(path: str, checked: bool) -> Optional[str]:
    """What tells a checkpoint of several parts from any other, or `None`."""
    return read_manifest(path, checked).save_id if is_sharded(path) else None


def latest_checkpoint(filepath: str) -> Optional[str]:
    """The newest complete checkpoint that a `kp.callbacks.ModelCheckpoint` has saved.

    Args:
        filepath: the callback's argument, with its fields, for instance `'model-{epoch:02d}.h5'`.
            A name that filling them cannot have given, such as `model-best.h5`, is passed over.

    Returns:
        A path, or `None` if there is none.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> print(kp.latest_checkpoint('no-such-folder/model-{epoch:02d}.h5'))
        None
        ```
    """
    for path in reversed(saved_under(filepath)):
        if (can_name(filepath, path) or is_written_by(filepath, path)) and is_checkpoint(path):
            return path
    return None


def is_checkpoint(path: str) -> bool:
    """Whether a path is that of a checkpoint of ours; checksums are not compared."""
    if keras3_state.read_state(path):
        return True
    try:
        with opened(path, checked=False) as (file, _, _):
            return bool(read_state(file))
    except CheckpointError:
        return False


def record_of(filepath: str, path: str) -> Dict[str, str]:
    """What a checkpoint keeps of the callback that wrote it, to be known by after a restart.

    Args:
        filepath: the callback's argument.
        path: the path of the checkpoint.

    Returns:
        A dict of strings. A folder may be moved, or named by another path.
    """
    return {
        'filepath': changing_part(filepath, filepath),
        'name': changing_part(filepath, path),
    }


def is_written_by(filepath: str, path: str) -> bool:
    """Whether a callback has written a checkpoint, under the name that it has.

    What else lies there under such a name, a copy of a checkpoint under another name, and a
    checkpoint that does not tell, is not the callback's.

    Args:
        filepath: the callback's argument.
        path: the path of a file or a folder.
    """
    try:
        return state_of(path)['written'] == record_of(filepath, path)
    except (CheckpointError, OSError):
        return False


def state_of(path: str) -> Dict[str, Any]:
    """What a checkpoint says of its job besides weights and slots, a dict; checksums aside."""
    of_keras3 = keras3_state.read_state(path)
    if of_keras3:
        return dict(_UNKNOWN, **of_keras3)
    with opened(path, checked=False) as (file, _, _):
        return dict(_UNKNOWN, **read_state(file))


def _read(
    model: Model,
    step: TrainStep,
    path: str,
    block_bytes: int,
    show_progress: Optional[bool],
    like_keras: bool,
) -> Tuple[Dict[str, Any], Dict[str, Any], Optional[Array]]:
    """Reads what falls to this worker, weights and slots.

    Returns:
        The state of the job besides, that which only this worker has, and its order of samples.
    """
    with opened(path, checked=False) as (file, sources, of_ranks):
        state = dict(_UNKNOWN, **read_state(file))
        _check_optimizer(model, file, path)
        saved_model = keras_file_read.read_configs(file).model
        if gates(saved_model):
            check_gates(path, saved_model, json.loads(model.to_json()))
        share = (step.job.rank, step.job.size) if sources else (0, 1)
        mover = keras_file_read.Mover(model, block_bytes, show_progress, sources, share)
        keras_file_read.read_weights(model, keras_file_read.weights_group(file), False, mover)
        is_tensorflows = adapter_of(model.optimizer).inner is not None
        read_optimizer = tensorflow_slots.read if is_tensorflows else keras_file_read.read_optimizer
        try:
            if not read_optimizer(model, file, mover):
                warnings.warn(
                    '%s holds no state of an optimizer; the optimizer keeps the state that it has.'
                    % path,
                    stacklevel=2,
                )
        except keras_file_read.OtherStateError as error:
            if not like_keras:
                raise
            if step.job.rank == 0:
                message = 'The optimizer starts afresh, as in plain Keras. %s' % error
                warnings.warn(message, stacklevel=2)
            # The optimizer was made with the saved rates; its steps count from 0 again.
            state['hyperparameters'] = {}
        own, order = {}, None
        if step.job.rank < len(of_ranks):
            part = of_ranks[step.job.rank]
            own, order = read_state(part), part[OURS].get(ORDER)
            own = {name: own[name] for name in ('random', 'begin') if name in own}
            random_state.restore(own['random'])
            order = None if order is None else order[:]
        state = {name: state[name] for name in ('epoch', 'hyperparameters', 'fit')}
        return dict(state, ranks=len(of_ranks)), own, order


def _check_optimizer(model: Model, file: HdfGroup, path: str) -> None:
    training = keras_file_read.read_configs(file).training
    if tensorflow_slots.GROUP in file:
        saved = read_state(file)['optimizer']
    elif training is not None:
        saved = training['optimizer_config']['class_name']
    else:
        return
    of_tables = json.loads(file.attrs.get(keras_file_write.OF_TABLES, '{}'))
    given = model.optimizer._parallax_settings.tables.described()
    if of_tables != given:
        raise CheckpointError(
            '%s was saved with %s for tables, but the model is compiled with %s; give '
            'kp.load_model or ParallaxOptimizer the same tables and per_table, or load the weights '
            'alone with model.load_weights.' % (path, _listed(of_tables), _listed(given))
        )
    own = adapter_of(model.optimizer).name
    if saved.lower() != own.lower():
        raise CheckpointError(
            '%s was saved with the optimizer %s, but the model is compiled with %s; compile it '
            'with %s, or load the weights alone with model.load_weights.'
            % (path, saved, own, saved)
        )


def _listed(of_tables: Mapping[str, str]) -> str:
    words = ['%s for %s' % (of_tables[name], name or 'all others') for name in sorted(of_tables)]
    return 'optimizers (%s)' % ', '.join(words) if words else 'no other optimizers'


def _set_hyperparameters(optimizer: Optimizer, values: Mapping[str, Any]) -> None:
    variables = scalars(optimizer)
    values = other_keras.named(values, variables)
    known = [(variables[name], values[name]) for name in sorted(values)]
    keras_api.package_of(optimizer).backend.batch_set_value(known)
