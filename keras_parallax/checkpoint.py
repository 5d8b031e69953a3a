"""The whole state of a job: saved as Keras's file or as one part a rank, and continued from.

A checkpoint is Keras's own HDF5 file with one group more, which Keras does not look at. In the form
of several parts it is a folder: that file without the rows of sharded tables, a part of each rank
with the shards that it owns, and a manifest that is written last.
"""

import contextlib
import functools
import json
import os
import secrets
import warnings

import h5py
import numpy as np

from keras_parallax import compat, restoring, saving
from keras_parallax.blocks import BLOCK_BYTES, ShardedRows, local_range, numpy_dtype
from keras_parallax.errors import CheckpointError
from keras_parallax.files import (
    Manifest,
    Part,
    describe_part,
    is_sharded,
    read_manifest,
    remove_parts,
    saved_under,
    write_manifest,
)
from keras_parallax.optimizer import step_of
from keras_parallax.slots import UnusedRows

#: The group and the dataset of what only we read.
_OURS, _STATE = 'keras_parallax', 'state'


def save(model, path, epoch=0, include_optimizer=True, block_bytes=BLOCK_BYTES, show_progress=None):
    """Saves the job's state to one file, on one rank, alone.

    Args:
        model: the model.
        path: path of the file.
        epoch: number of epochs that are over.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: as in `saving.save_model`.
        show_progress: as in `saving.save_model`.
    """
    with saving.created(path) as file:
        tables = saving.write_model(model, file, include_optimizer)
        saving.fill_datasets(model, file, tables, block_bytes, show_progress)
        _write_state(file, dict(_state(model, epoch), random=[_random_state()]))


def save_parts(
    model, path, epoch=0, include_optimizer=True, block_bytes=BLOCK_BYTES, show_progress=None
):
    """Saves the job's state to a folder, each rank what it owns. A collective call.

    Args:
        model: the model.
        path: path of the folder, on storage that every host sees.
        epoch: number of epochs that are over.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: as in `saving.save_model`.
        show_progress: as in `saving.save_model`.

    Raises:
        CheckpointError: on every rank, if one cannot write its part. The checkpoint that the
            folder held before is whole.
    """
    step = step_of(model)
    save_id = step.gather(secrets.token_hex(8))[0]
    mine = problem = None
    try:
        os.makedirs(path, exist_ok=True)
        fill = functools.partial(
            saving.fill_datasets, model, block_bytes=block_bytes, show_progress=show_progress
        )
        mine = _write_parts(model, step, path, save_id, epoch, include_optimizer, fill)
    except OSError as error:
        problem = str(error)
    reports = step.gather({'problem': problem, 'saved': mine})
    if step.rank == 0 and not any(report['problem'] for report in reports):
        try:
            _write_manifest(path, save_id, [report['saved'] for report in reports])
        except OSError as error:
            problem = str(error)
    problems = [report['problem'] for report in reports]
    problems[0] = step.gather(problem)[0]
    for rank, found in enumerate(problems):
        if found:
            remove_parts(path, save_id)
            raise CheckpointError('Rank %d could not save to %s: %s' % (rank, path, found))


def _sentence(error):
    return '%s: %s' % (type(error).__name__, error)


def _write_parts(model, step, folder, save_id, epoch, include_optimizer, fill):
    """Writes this rank's parts; returns what the manifest must know of them, as plain data."""
    report = {'parts': [], 'model': None, 'tables': {}, 'shards': []}

    @contextlib.contextmanager
    def part(name):
        path = os.path.join(folder, '%s-%s.h5' % (save_id, name))
        with saving.created(path) as file:
            yield file
        report['parts'].append(describe_part(path)._asdict())

    if step.rank == 0:
        with part('model') as file:
            tables = saving.write_model(model, file, include_optimizer)
            whole = {name: rows for name, rows in tables.items() if not _in_parts(rows)}
            fill(file, whole)
            for name, rows in tables.items():
                if name not in file:
                    file.create_dataset(name, [0] + rows.shape.as_list()[1:], numpy_dtype(rows))
            _write_state(file, _state(model, epoch))
        report['model'] = report['parts'][0]['name']
    else:
        # What belongs where in the file is known when it is written.
        with h5py.File('none', 'w', driver='core', backing_store=False) as file:
            tables = saving.write_model(model, file, include_optimizer)
    tables = {name: rows for name, rows in tables.items() if _in_parts(rows)}
    own = {}
    for name, rows in tables.items():
        report['tables'][name] = rows.shape.as_list()
        if isinstance(rows, ShardedRows):
            for of_rank in rows.table.parts_of(step.rank):
                dataset = '%s/%d' % (name, of_rank.shard)
                own[dataset] = rows.of_shard(of_rank.shard)
                report['shards'].append([name, of_rank.shard, dataset])
    with part('rank-%05d-of-%05d' % (step.rank, step.size)) as file:
        fill(file, own)
        _write_state(file, {'random': _random_state()})
    return report


def _in_parts(rows):
    """Whether rows go to the ranks' parts; an unused slot has none at all."""
    return isinstance(rows, UnusedRows) or rows.table is not None


def _write_manifest(folder, save_id, reports):
    """Writes the manifest of what all ranks report; on rank 0, when all parts are there."""
    tables = {name: {'shape': shape, 'shards': []} for name, shape in reports[0]['tables'].items()}
    found = [
        (name, shard, report['parts'][-1]['name'], dataset)
        for report in reports
        for name, shard, dataset in report['shards']
    ]
    for name, _, part, dataset in sorted(found):
        tables[name]['shards'].append([part, dataset])
    parts = tuple(Part(**part) for report in reports for part in report['parts'])
    for part in parts:
        if not os.path.exists(os.path.join(folder, part.name)):
            raise CheckpointError(
                '%s is not there on the host of rank 0; all ranks must save to storage that every '
                'host sees, or in one file (sharded=False).' % os.path.join(folder, part.name)
            )
    write_manifest(folder, Manifest(save_id, parts, tables, reports[0]['model']))


def _state(model, epoch):
    """What belongs to the job's state and not to Keras's file, as plain data."""
    optimizer = getattr(model, 'optimizer', None)
    return {
        'epoch': epoch,
        'optimizer': type(optimizer).__name__,
        'hyperparameters': _hyperparameters(optimizer) if optimizer else {},
    }


def _scalars(optimizer):
    """The optimizer's own variables of one number, by attribute: rates, counters, schedules."""
    return {
        name: value
        for name, value in sorted(vars(optimizer).items())
        if hasattr(value, 'assign') and hasattr(value, 'shape') and value.shape.ndims == 0
    }


def _hyperparameters(optimizer):
    scalars = _scalars(optimizer)
    values = compat.package_of(optimizer).backend.batch_get_value(list(scalars.values()))
    return {name: value.item() for name, value in zip(scalars, values)}


def _random_state():
    kind, keys, *rest = np.random.get_state()
    return [kind, keys.tolist()] + rest


def _write_state(file, state):
    # An attribute holds 64 KiB at most.
    data = np.frombuffer(json.dumps(state).encode('utf-8'), np.uint8)
    file.create_group(_OURS).create_dataset(_STATE, data=data)


def read_state(file):
    """What `save` and `save_parts` wrote beside Keras's file, or `{}` if it is plain Keras's."""
    if _OURS not in file:
        return {}
    return json.loads(file[_OURS][_STATE][:].tobytes().decode('utf-8'))


class _Parts:
    """The rows of a table as they lie in the parts of a checkpoint, to be read as one dataset.

    Args:
        shape: shape of the whole.
        dtype: its NumPy dtype.
        shards: the datasets of its shards, in order; none if all rows are zeros.
    """

    def __init__(self, shape, dtype, shards):
        self.shape, self.dtype, self._shards = tuple(shape), dtype, shards

    def __getitem__(self, places):
        first, last, _ = places.indices(self.shape[0])
        rows = np.zeros((last - first,) + self.shape[1:], self.dtype)
        count = len(self._shards)
        for number, shard in enumerate(self._shards):
            begin, end = local_range(first, last, count, number)
            rows[(number - first) % count :: count] = shard[begin:end]
        return rows


@contextlib.contextmanager
def opened(path, checked=True):
    """Opens a checkpoint of either form, or a file of plain Keras.

    Args:
        path: path of the file or the folder.
        checked: whether to compare the checksums of parts.

    Returns:
        A context manager that gives Keras's file, a dict from paths in it to where the rows are
        instead (see `restoring.Mover`), and a list with each saving rank's random state.

    Raises:
        CheckpointError: the checkpoint is incomplete or damaged.
    """
    with contextlib.ExitStack() as stack:
        if not is_sharded(path):
            file = stack.enter_context(restoring.opened(path))
            yield file, {}, read_state(file).get('random', [])
            return
        manifest = read_manifest(path, checked)
        files = {
            part.name: stack.enter_context(restoring.opened(os.path.join(path, part.name)))
            for part in manifest.parts
        }
        file = files[manifest.model]
        sources = {
            name: _Parts(
                table['shape'],
                file[name].dtype,
                [files[part][dataset] for part, dataset in table['shards']],
            )
            for name, table in manifest.tables.items()
        }
        states = [read_state(files[part.name]) for part in manifest.parts]
        yield file, sources, [state['random'] for state in states if 'random' in state]


def resume(model, path, block_bytes=BLOCK_BYTES, show_progress=None):
    """Gives a job the state that another had, with any number of ranks. A collective call.

    Args:
        model: the compiled model.
        path: a checkpoint of either form, or a file of plain Keras.
        block_bytes: how much memory loading may take for the rows of tables, in bytes.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.

    Returns:
        The number of epochs that are over, for `fit(initial_epoch=...)`; 0 if it is not known.

    Raises:
        CheckpointError: on every rank, if the checkpoint is damaged or of another model.
    """
    if model.train_function is None:
        model._make_train_function()
    step = step_of(model)
    state, problem = {}, None
    try:
        # Of one file, rank 0 gives all the rest to the others, who may not see it.
        if step.rank == 0 or is_sharded(path):
            state = _read(model, step, path, block_bytes, show_progress)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        problem = error
    reports = step.gather({'problem': problem and _sentence(problem), 'state': state})
    for rank, report in enumerate(reports):
        if report['problem']:
            raise CheckpointError(
                'Rank %d could not load %s: %s' % (rank, path, report['problem'])
            ) from problem
    step.broadcast(0)
    state = reports[0]['state']
    _set_hyperparameters(model.optimizer, state['hyperparameters'])
    if step.rank < len(state['random']):
        kind, keys, *rest = state['random'][step.rank]
        np.random.set_state((kind, np.array(keys, np.uint32), *rest))
    return state['epoch']


def latest_checkpoint(filepath):
    """The newest complete checkpoint that a `kp.callbacks.ModelCheckpoint` has saved.

    Args:
        filepath: the callback's argument, with its fields, for instance `'model-{epoch:02d}.h5'`.

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
        if is_checkpoint(path):
            return path
    return None


def is_checkpoint(path):
    """Whether a path is that of a checkpoint of ours; checksums are not compared."""
    try:
        with opened(path, checked=False) as (file, _, _):
            return bool(read_state(file))
    except CheckpointError:
        return False


def _read(model, step, path, block_bytes, show_progress):
    """Reads what falls to this rank, and returns the state besides weights and slots."""
    with opened(path, checked=step.rank == 0) as (file, sources, random):
        state = dict({'epoch': 0, 'hyperparameters': {}}, **read_state(file))
        _check_optimizer(model, file, path)
        share = (step.rank, step.size) if sources else (0, 1)
        mover = restoring.Mover(model, block_bytes, show_progress, sources, share)
        restoring.read_weights(model, restoring.weights_group(file), False, mover)
        if not restoring.read_optimizer(model, file, mover):
            warnings.warn(
                '%s holds no state of an optimizer; it starts afresh.' % path, stacklevel=2
            )
        return dict(state, random=random if step.rank == 0 else [])


def _check_optimizer(model, file, path):
    config = file.attrs.get('training_config')
    if config is None:
        return
    saved = json.loads(config.decode('utf-8'))['optimizer_config']['class_name']
    own = type(model.optimizer).__name__
    if saved.lower() != own.lower():
        raise CheckpointError(
            '%s was saved with the optimizer %s, but the model is compiled with %s; compile it '
            'with %s, or load the weights alone with model.load_weights.'
            % (path, saved, own, saved)
        )


def _set_hyperparameters(optimizer, values):
    scalars = _scalars(optimizer)
    known = [(scalars[name], values[name]) for name in sorted(values) if name in scalars]
    compat.package_of(optimizer).backend.batch_set_value(known)
