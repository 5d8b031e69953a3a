# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The slots of a `tf.train.Optimizer` in a checkpoint: Keras's file has no place for them.

They go by name of slot and of variable into a group that Keras does not look at.
"""

import itertools
from typing import Any, Dict

import numpy as np

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.checkpoint.keras_file_read import Mover
from keras_parallax.compat import keras_api
from keras_parallax.engine.tables.row_transfer import Rows
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import HdfGroup, Model, Variable

#: The group, below which a dataset is called `slot/variable`.
GROUP = '/keras_parallax/slots'


def write(model: Model, file: HdfGroup) -> Dict[str, Rows]:
    """Writes the slots, but for the rows of large ones.

    Args:
        model: the model, whose training step is built.
        file: the open `h5py.File`.

    Returns:
        A dict from the paths of the datasets that have no rows yet to their `Rows`.
    """
    tables, small = {}, {}
    file.require_group(GROUP)
    for path, weight in _paths(model).items():
        rows = keras_file_write.rows_of(weight)
        if rows is None:
            small[path] = weight
        else:
            tables[path] = rows
    values = keras_api.package_of(model).backend.batch_get_value(list(small.values()))
    for path, value in zip(small, values):
        file.create_dataset(path, data=value)
    return tables


def read(model: Model, file: HdfGroup, mover: Mover) -> bool:
    """Loads the slots from an open file, if it has them.

    Args:
        model: the model, whose training step is built.
        file: the `h5py.File`.
        mover: the `keras_file_read.Mover`.

    Returns:
        Whether the file has them.

    Raises:
        CheckpointError: they are those of another model or optimizer.
    """
    if GROUP not in file:
        return False
    datasets, weights = {}, _paths(model)
    file[GROUP].visititems(
        lambda name, node: datasets.update({node.name: node}) if hasattr(node, 'shape') else None
    )
    saved = {path: tuple(mover.source(node).shape) for path, node in datasets.items()}
    expected = {path: tuple(weight.shape.as_list()) for path, weight in weights.items()}
    if saved != expected:
        differing = sorted(
            path[len(GROUP) + 1 :]
            for path in set(saved) | set(expected)
            if saved.get(path) != expected.get(path)
        )
        raise CheckpointError(
            '%s holds the state of another optimizer or model: %s of this model differs from the '
            'saved one in the slots %s.'
            % (file.filename, adapter_of(model.optimizer).name, ', '.join(differing))
        )
    small = []
    for path, weight in weights.items():
        source = mover.source(datasets[path])
        rows = keras_file_write.rows_of(weight, however_small=source is not datasets[path])
        if rows is None:
            small.append((weight, np.asarray(source)))
        else:
            mover(rows, source)
    keras_api.package_of(model).backend.batch_set_value(small)
    return True


def _paths(model: Model) -> Dict[str, Variable]:
    """The slots of a model's optimizer, as a dict from paths in a file to weights."""
    named = named_slots(model.optimizer._parallax_shown)
    return {'%s/%s' % (GROUP, name): weight for name, weight in named.items()}


def named_slots(step: Any) -> Dict[str, Any]:
    """The slots of one of TensorFlow's optimizers.

    Args:
        step: the `TrainStep`.

    Returns:
        A dict from `'slot/variable'` to weights.
    """
    state = step.operations.state
    names = itertools.product(state.names, step.spec.variables)
    slots = step.operations.weights[len(state.counters) :]
    return {'%s/%s' % (name, of.op.name): slot for (name, of), slot in zip(names, slots)}
