"""The whole state of a job: what is saved of it, and its form of one file.

A checkpoint is Keras's own HDF5 file with one group more, which Keras does not look at. In the form
of several parts (`save_parts.py`) it is a folder: that file without the rows of sharded tables, a
part of each rank with the shards that it owns, and a manifest that is written last.
"""

import json

import numpy as np

from keras_parallax.checkpoint import fit_record, keras_file_write, tensorflow_slots
from keras_parallax.compat import keras_api, keras_optimizers, tensorflow_optimizers
from keras_parallax.tables.rows import BLOCK_BYTES
from keras_parallax.updates.optimizer_adapter import adapter_of

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
        tables = write_model(model, file, include_optimizer)
        keras_file_write.fill_datasets(model, file, tables, block_bytes, show_progress)
        write_state(file, dict(state_of_job(model, epoch, best, written, fit), **fit.own))
        write_order(file, fit.order)


def write_model(model, file, include_optimizer):
    """As `keras_file_write.write_model`, with the slots of TensorFlow's optimizers."""
    is_tensorflows = include_optimizer and adapter_of(model.optimizer).inner is not None
    tables = keras_file_write.write_model(model, file, include_optimizer and not is_tensorflows)
    if is_tensorflows:
        tables.update(tensorflow_slots.write(model, file))
    return tables


def state_of_job(model, epoch, best, written, fit):
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


def _hyperparameters(optimizer):
    variables = scalars(optimizer)
    values = keras_api.package_of(optimizer).backend.batch_get_value(list(variables.values()))
    return {name: value.item() for name, value in zip(variables, values)}


def write_state(file, state):
    """Writes plain data to an open file, for `read_state`."""
    # An attribute holds 64 KiB at most.
    data = np.frombuffer(json.dumps(state).encode('utf-8'), np.uint8)
    file.require_group(OURS).create_dataset(_STATE, data=data)


def write_order(file, order):
    """Writes the order of samples, if there is one."""
    if order is not None:
        file[OURS].create_dataset(ORDER, data=order)


def read_state(file):
    """What `save` and `save_parts` wrote beside Keras's file, or `{}` if it is plain Keras's."""
    if OURS not in file:
        return {}
    return json.loads(file[OURS][_STATE][:].tobytes().decode('utf-8'))
