# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The whole state of a job: what is saved of it, and its form of one file.

A checkpoint is Keras's own HDF5 file with one group more, which Keras does not look at. In the form
of several parts (`save_parts.py`) it is a folder: that file without the rows of sharded tables, a
part of each worker with the shards that it owns, and a manifest that is written last.
"""

import json
from typing import Any, Dict, Mapping, Optional

import numpy as np

from keras_parallax.checkpoint import fit_record, keras_file_write, tensorflow_slots
from keras_parallax.checkpoint.fit_record import FitRecord
from keras_parallax.compat import keras_api, keras_optimizers, tensorflow_optimizers
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, Rows
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.framework_types import Array, HdfGroup, Model, Optimizer, Variable

#: The group of what only we read, and its datasets.
OURS, _STATE, ORDER = 'keras_parallax', 'state', 'order'


def save(
    model: Model,
    path: str,
    epoch: int = 0,
    include_optimizer: bool = True,
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
    best: Optional[Dict[str, float]] = None,
    written: Optional[Dict[str, str]] = None,
    fit: Optional[FitRecord] = None,
) -> None:
    """Saves the job's state to one file, on one worker, alone.

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
        tables = write_model(model, file, include_optimizer)
        keras_file_write.fill_datasets(model, file, tables, block_bytes, show_progress)
        write_state(file, dict(state_of_job(model, epoch, best, written, fit), **fit.own))
        write_order(file, fit.order)


def write_model(model: Model, file: HdfGroup, include_optimizer: bool) -> Dict[str, Rows]:
    """As `keras_file_write.write_model`, with the slots of TensorFlow's optimizers."""
    is_tensorflows = include_optimizer and adapter_of(model.optimizer).inner is not None
    tables = keras_file_write.write_model(model, file, include_optimizer and not is_tensorflows)
    if is_tensorflows:
        tables.update(tensorflow_slots.write(model, file))
    return tables


def state_of_job(
    model: Model,
    epoch: int,
    best: Optional[Dict[str, float]],
    written: Optional[Dict[str, str]],
    fit: FitRecord,
) -> Dict[str, Any]:
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


def scalars(optimizer: Optimizer) -> Dict[str, Variable]:
    """The optimizer's own variables of one number, by attribute: rates, counters, schedules."""
    attributes = {**vars(optimizer), **keras_optimizers.hyperparameters(optimizer)}
    settings = getattr(optimizer, '_parallax_settings', None)
    for name, one in settings.tables.all().items() if settings else ():
        of_table = {**vars(one), **keras_optimizers.hyperparameters(one)}
        attributes.update({'tables.%s.%s' % (name, key): of for key, of in of_table.items()})
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


def _hyperparameters(optimizer: Optimizer) -> Dict[str, Any]:
    variables = scalars(optimizer)
    values = keras_api.package_of(optimizer).backend.batch_get_value(list(variables.values()))
    return {name: value.item() for name, value in zip(variables, values)}


def write_state(file: HdfGroup, state: Mapping[str, Any]) -> None:
    """Writes plain data to an open file, for `read_state`."""
    # An attribute holds 64 KiB at most.
    data = np.frombuffer(json.dumps(state).encode('utf-8'), np.uint8)
    file.require_group(OURS).create_dataset(_STATE, data=data)


def write_order(file: HdfGroup, order: Optional[Array]) -> None:
    """Writes the order of samples, if there is one."""
    if order is not None:
        file[OURS].create_dataset(ORDER, data=order)


def read_state(file: HdfGroup) -> Dict[str, Any]:
    """What `save` and `save_parts` wrote beside Keras's file, or `{}` if it is plain Keras's."""
    if OURS not in file:
        return {}
    return json.loads(file[OURS][_STATE][:].tobytes().decode('utf-8'))
