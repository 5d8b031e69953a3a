"""The whole state of a job, saved as Keras's file or as one part a rank.

A checkpoint is Keras's own HDF5 file with one group more, which Keras does not look at. In the form
of several parts it is a folder: that file without the rows of sharded tables, a part of each rank
with the shards that it owns, and a manifest that is written last.
"""

import contextlib
import functools
import json
import os
import secrets

import numpy as np

from keras_parallax.checkpoint import fit_record, keras_file_write, tensorflow_slots
from keras_parallax.checkpoint.manifest import (
    CheckpointFile,
    Manifest,
    describe_part,
    remove_parts,
    write_manifest,
)
from keras_parallax.compat import keras_api, keras_optimizers, tensorflow_optimizers
from keras_parallax.errors import CheckpointError
from keras_parallax.step.train_step import step_of
from keras_parallax.tables.rows import BLOCK_BYTES, ShardedRows, numpy_dtype
from keras_parallax.updates.optimizer_adapter import adapter_of
from keras_parallax.updates.slots import UnusedRows

#: The group of what only we read, and its datasets.
OURS, _STATE, ORDER = 'keras_parallax', 'state', 'order'


def save(
    model,
    path,
    epoch=0,
    include_optimizer=True,
    block_bytes=BLOCK_BYTES,
    show_progress=None,
    best=None,
    written=None,
    fit=None,
):
    """Saves the job's state to one file, on one rank, alone.

    Args:
        model: the model.
        path: path of the file.
        epoch: number of epochs that are over.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: as in `keras_file_write.save_model`.
        show_progress: as in `keras_file_write.save_model`.
        best: dict from the names of metrics to their best values so far.
        written: what `resume.record_of` says of the path, or `None`.
        fit: the `FitRecord`, or `None` if no more is known of it than there is now.
    """
    fit = fit or fit_record.now()
    with keras_file_write.created(path) as file:
        tables = _write_model(model, file, include_optimizer)
        keras_file_write.fill_datasets(model, file, tables, block_bytes, show_progress)
        _write_state(file, dict(_state(model, epoch, best, written, fit), **fit.own))
        _write_order(file, fit.order)


def save_parts(
    model,
    path,
    epoch=0,
    include_optimizer=True,
    block_bytes=BLOCK_BYTES,
    show_progress=None,
    best=None,
    written=None,
    fit=None,
):
    """Saves the job's state to a folder, each rank what it owns. A collective call.

    Args:
        model: the model.
        path: path of the folder, on storage that every host sees.
        epoch: number of epochs that are over.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: as in `keras_file_write.save_model`.
        show_progress: as in `keras_file_write.save_model`.
        best: as in `save`.
        written: as in `save`.
        fit: as in `save`.

    Raises:
        CheckpointError: on every rank, if one cannot write its part. The checkpoint that the
            folder held before is whole.
    """
    step, fit = step_of(model), fit or fit_record.now()
    save_id = step.gather(secrets.token_hex(8))[0]
    saved = problem = None
    try:
        os.makedirs(path, exist_ok=True)
        fill = functools.partial(
            keras_file_write.fill_datasets,
            model,
            block_bytes=block_bytes,
            show_progress=show_progress,
        )
        state = _state(model, epoch, best, written, fit)
        saved = _write_parts(model, step, path, save_id, state, fit, include_optimizer, fill)
    except OSError as error:
        problem = str(error)
    reports = step.gather({'problem': problem, 'saved': saved})
    if step.rank == 0 and not any(report['problem'] for report in reports):
        try:
            _write_manifest(path, save_id, [report['saved'] for report in reports])
        except OSError as error:
            problem = str(error)
    problems = [report['problem'] for report in reports]
    problems[0] = step.gather(problem)[0]
    for rank, problem in enumerate(problems):
        if problem:
            remove_parts(path, save_id)
            raise CheckpointError('Rank %d could not save to %s: %s' % (rank, path, problem))


def _write_model(model, file, include_optimizer):
    """As `keras_file_write.write_model`, with the slots of TensorFlow's optimizers."""
    is_tensorflows = include_optimizer and adapter_of(model.optimizer).inner is not None
    tables = keras_file_write.write_model(model, file, include_optimizer and not is_tensorflows)
    if is_tensorflows:
        tables.update(tensorflow_slots.write(model, file))
    return tables


def _write_parts(model, step, folder, save_id, state, fit, include_optimizer, fill):
    """Writes this rank's parts; returns what the manifest must know of them, as plain data."""
    report = {'parts': [], 'model': None, 'tables': {}, 'shards': []}

    @contextlib.contextmanager
    def part(name):
        path = os.path.join(folder, '%s-%s.h5' % (save_id, name))
        with keras_file_write.created(path) as file:
            yield file
        report['parts'].append(describe_part(path)._asdict())

    if step.rank == 0:
        with part('model') as file:
            tables = _write_model(model, file, include_optimizer)
            whole = {name: rows for name, rows in tables.items() if not _in_parts(rows)}
            fill(file, whole)
            for name, rows in tables.items():
                if name not in file:
                    file.create_dataset(name, [0] + rows.shape.as_list()[1:], numpy_dtype(rows))
            _write_state(file, state)
        report['model'] = report['parts'][0]['name']
    else:
        # What belongs where in the file is known when it is written.
        with keras_file_write.in_memory() as file:
            tables = _write_model(model, file, include_optimizer)
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
        _write_state(file, fit.own)
        _write_order(file, fit.order)
    return report


def _in_parts(rows):
    """Whether rows go to the ranks' parts; an unused slot has none at all."""
    return isinstance(rows, UnusedRows) or rows.table is not None


def _write_manifest(folder, save_id, reports):
    """Writes the manifest of what all ranks report; on rank 0, when all parts are there."""
    tables = {name: {'shape': shape, 'shards': []} for name, shape in reports[0]['tables'].items()}
    datasets = [
        (name, shard, report['parts'][-1]['name'], dataset)
        for report in reports
        for name, shard, dataset in report['shards']
    ]
    for name, _, part, dataset in sorted(datasets):
        tables[name]['shards'].append([part, dataset])
    parts = tuple(CheckpointFile(**part) for report in reports for part in report['parts'])
    for part in parts:
        if not os.path.exists(os.path.join(folder, part.name)):
            raise CheckpointError(
                '%s is not there on the host of rank 0; all ranks must save to storage that every '
                'host sees, or in one file (sharded=False).' % os.path.join(folder, part.name)
            )
    write_manifest(folder, Manifest(save_id, parts, tables, reports[0]['model']))


def _state(model, epoch, best, written, fit):
    """What belongs to the job's state and not to Keras's file, as plain data."""
    optimizer = getattr(model, 'optimizer', None)
    return {
        'epoch': epoch,
        'best': best or {},
        'written': written,
        'fit': fit.job,
        'optimizer': adapter_of(optimizer).name,
        'hyperparameters': _hyperparameters(optimizer) if optimizer else {},
    }


def scalars(optimizer):
    """The optimizer's own variables of one number, by attribute: rates, counters, schedules."""
    attributes = {**vars(optimizer), **keras_optimizers.hyperparameters(optimizer)}
    inner = adapter_of(optimizer).inner
    if inner is not None:
        attributes.update({'optimizer.' + name: value for name, value in vars(inner).items()})
        others = (tensorflow_optimizers.kept_by(inner, optimizer.iterations.graph, []) or [{}])[0]
        attributes.update({'optimizer.' + name: value for name, value in others.items()})
    return {
        name: value
        for name, value in sorted(attributes.items())
        if hasattr(value, 'assign') and hasattr(value, 'shape') and value.shape.ndims == 0
    }


def _hyperparameters(optimizer):
    variables = scalars(optimizer)
    values = keras_api.package_of(optimizer).backend.batch_get_value(list(variables.values()))
    return {name: value.item() for name, value in zip(variables, values)}


def _write_state(file, state):
    # An attribute holds 64 KiB at most.
    data = np.frombuffer(json.dumps(state).encode('utf-8'), np.uint8)
    file.require_group(OURS).create_dataset(_STATE, data=data)


def _write_order(file, order):
    if order is not None:
        file[OURS].create_dataset(ORDER, data=order)


def read_state(file):
    """What `save` and `save_parts` wrote beside Keras's file, or `{}` if it is plain Keras's."""
    if OURS not in file:
        return {}
    return json.loads(file[OURS][_STATE][:].tobytes().decode('utf-8'))
