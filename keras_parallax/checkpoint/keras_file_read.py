# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Reads Keras's own files into models with sharded tables, in row blocks.

Keras's code decides which dataset goes to which weight. Where a dataset is large, Keras gets a
stand-in, and the rows go from the file to the shards block by block.
"""

import contextlib
import json
import os
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import h5py
import numpy as np

from keras_parallax.checkpoint import keras_file_write, other_keras
from keras_parallax.compat import keras_api
from keras_parallax.engine.session.row_fetches import Detours
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, Rows, progress
from keras_parallax.errors import CheckpointError, ParallaxError
from keras_parallax.framework_types import HdfGroup, Model, Variable


def load_weights(
    model: Model,
    filepath: str,
    by_name: bool = False,
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
    **arguments: Any,
) -> None:
    """Loads weights from a file of Keras; `model.load_weights` calls it.

    Args:
        model: a Keras model of this job.
        filepath: path of a file of `model.save` or `model.save_weights`, of plain Keras, too.
        by_name: as in Keras.
        block_bytes: how much memory loading may take for the rows of tables, in bytes.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.
        **arguments: further ones of Keras's `load_weights`.

    Raises:
        CheckpointError: the file is damaged.
    """
    with opened(filepath) as file:
        mover = Mover(model, block_bytes, show_progress)
        read_weights(model, weights_group(file), by_name, mover, **arguments)


def weights_group(file: HdfGroup) -> HdfGroup:
    """The group of the weights in a file of `model.save` or of `model.save_weights`."""
    if 'layer_names' not in file.attrs and keras_file_write.WEIGHTS in file:
        return file[keras_file_write.WEIGHTS]
    return file


class Configs(NamedTuple):
    """What a file of Keras says of its model.

    Attributes:
        package: the name of the Keras package that wrote the file.
        model: the configuration of the model; `None` if the file has none.
        training: how the model was compiled; `None` if the file does not say.
    """

    package: str
    model: Optional[Dict[str, Any]]
    training: Optional[Dict[str, Any]]


def read_configs(file: HdfGroup) -> Configs:
    """What a file of Keras says of its model and of how that was compiled.

    Args:
        file: the open `h5py.File`.

    Returns:
        `Configs`.
    """
    model, training = (_attribute(file, name) for name in ('model_config', 'training_config'))
    return Configs(
        package_that_wrote(version_of(file)),
        json.loads(model) if model else None,
        json.loads(training) if training else None,
    )


def version_of(file: HdfGroup) -> str:
    """The version of Keras that wrote a file, `''` if the file does not tell."""
    return _attribute(file, 'keras_version') or ''


def _attribute(file: HdfGroup, name: str) -> Optional[str]:
    """A text that a file has as an attribute, `None` if it has none of that name."""
    value = file.attrs.get(name)
    return value.decode('utf-8') if isinstance(value, bytes) else value


def package_that_wrote(version: str) -> str:
    """The name of the Keras package that calls its version so: `tf.keras` of TF 1.11 `2.1.6-tf`."""
    return 'tf.keras' if version.endswith('-tf') else 'keras'


class Mover:
    """Sets rows from datasets, in blocks, and shows how far it is.

    Args:
        model: the model.
        block_bytes, show_progress: as in `load_weights`.
        sources: dict from paths in the file to what to read the rows from in place of the dataset.
        share: as in `Rows.fill`, for rows that the whole job has in common.
    """

    def __init__(
        self,
        model: Model,
        block_bytes: int,
        show_progress: Optional[bool],
        sources: Optional[Mapping[str, Any]] = None,
        share: Tuple[int, int] = (0, 1),
    ) -> None:
        self.session = keras_file_write.session_of(model)
        self.sources = sources or {}
        self._options = block_bytes, show_progress, share

    def __call__(self, rows: Rows, source: Any) -> None:
        """Sets `Rows` from a source."""
        block_bytes, show, share = self._options
        if getattr(rows, 'table', None) is None:
            # A variable that every worker has for itself.
            share = (0, 1)
        with progress(rows.bytes // share[1], 'loading ' + rows.name, show) as advance:
            rows.fill(source, self.session, block_bytes, advance, share)

    def source(self, dataset: Any) -> Any:
        """What to read the rows from that Keras would read from a dataset."""
        return self.sources.get(dataset.name, dataset)


def read_weights(
    model: Model, group: HdfGroup, by_name: bool, mover: 'Mover', **arguments: Any
) -> None:
    """Has Keras load weights from an open file, and moves the rows of large ones in blocks.

    Args:
        model: the model.
        group: the `h5py.Group` with the attribute `layer_names`.
        by_name: as in Keras.
        mover: the `Mover`.
        **arguments: further ones of Keras's `load_weights`.
    """
    load = keras_api.package_of(model).read_weights
    detours = Detours(move=mover)
    shapes = {
        tuple(weight.shape.as_list()) for weight in keras_file_write.large_weights(model.weights)
    }
    shapes.update(source.shape for source in mover.sources.values())
    large = [weight for weight in model.weights if tuple(weight.shape.as_list()) in shapes]
    with _assigned_in_blocks(large), mover.session.with_detours(detours):
        load(model, _Group(group, shapes, detours, mover), by_name, **arguments)
    if detours.unused:
        # A layer has made something else of what it was given, of no use without the rows.
        if mover.sources:
            raise ParallaxError(
                'The weights of a layer must be converted when they are loaded, which cannot be '
                'done with a checkpoint of several parts; save it in one file.'
            )
        load(model, group, by_name, **arguments)


class _Group:
    """An HDF5 group as Keras reads it, in which datasets of certain shapes are stand-ins."""

    def __init__(
        self, group: HdfGroup, shapes: Set[Tuple[int, ...]], detours: Detours, mover: 'Mover'
    ) -> None:
        self._group, self._options = group, (shapes, detours, mover)
        self.attrs = group.attrs

    def __contains__(self, name: str) -> bool:
        return name in self._group

    def __getitem__(self, name: str) -> Any:
        shapes, detours, mover = self._options
        node = self._group[name]
        if isinstance(node, h5py.Group):
            return _Group(node, shapes, detours, mover)
        source = mover.source(node)
        return detours.stand_in(source) if tuple(source.shape) in shapes else node


@contextlib.contextmanager
def _assigned_in_blocks(weights: Sequence[Variable]) -> Iterator[None]:
    """While open, Keras assigns large variables in blocks, as it does sharded ones."""
    plain = [weight for weight in weights if not hasattr(weight, 'sharded_rows')]
    rows_of_plain = [keras_file_write.rows_of(weight, however_small=True) for weight in plain]
    before = [dict(weight.__dict__) for weight in plain]
    for weight, rows in zip(plain, rows_of_plain):
        keras_api.assign_by(weight, rows.assignment)
    try:
        yield
    finally:
        for weight, attributes in zip(plain, before):
            weight.__dict__.clear()
            weight.__dict__.update(attributes)


def read_optimizer(model: Model, file: HdfGroup, mover: 'Mover') -> bool:
    """Loads the state of a model's optimizer from an open file of Keras, if the file has it.

    Args:
        model: the model, whose training step is built.
        file: the `h5py.File`.
        mover: the `Mover`.

    Returns:
        Whether the file has it.

    Raises:
        OtherStateError: it is the state of another model or optimizer. Nothing is loaded.
    """
    if keras_file_write.SLOTS not in file:
        return False
    package, group = keras_api.package_of(model), file[keras_file_write.SLOTS]
    names = package.saving.load_attributes_from_hdf5_group(group, 'weight_names')
    weights = model.optimizer.weights
    sources = [mover.source(group[name]) for name in names]
    expected = [tuple(weight.shape.as_list()) for weight in weights]
    given = [tuple(source.shape) for source in sources]
    found: Optional[Sequence[Optional[int]]] = range(len(given)) if expected == given else None
    version = version_of(file)
    if found is None and other_keras.takes_rows(version) != other_keras.takes_rows(package.version):
        found = other_keras.places(expected, given)
    if found is None:
        raise OtherStateError(
            '%s holds the state of another optimizer or model: %s of this model keeps %d weights '
            'of shapes %s, but %d of shapes %s were saved, by Keras %s.'
            % (
                file.filename, type(model.optimizer).__name__,
                len(expected), expected, len(given), given, version,
            )
        )  # fmt: skip
    small = []
    pairs = [(weight, sources[n]) for weight, n in zip(weights, found) if n is not None]
    for weight, source in pairs:
        rows = keras_file_write.rows_of(weight, however_small=not isinstance(source, h5py.Dataset))
        if rows is None:
            small.append((weight, np.asarray(source)))
        else:
            mover(rows, source)
    package.backend.batch_set_value(small)
    return True


class OtherStateError(CheckpointError):
    """A file holds the state of an optimizer that keeps other weights than that of the model."""


class _MissingError(CheckpointError, FileNotFoundError):
    """There is no such file: what plain Keras raises is a `FileNotFoundError`, or an `OSError`."""


def opened(filepath: str) -> h5py.File:
    """The open `h5py.File` of a file of Keras, to read; a context manager.

    Raises:
        CheckpointError: it is no HDF5 file, or cut short, or there is none.
    """
    try:
        return h5py.File(filepath, 'r')
    except OSError as error:
        if not os.path.exists(filepath):
            raise _MissingError(
                'There is no file %s. kp.latest_checkpoint(filepath) finds the newest checkpoint '
                'that a ModelCheckpoint(filepath) has saved.' % (filepath,)
            ) from error
        if os.path.isdir(filepath):
            raise CheckpointError(
                '%s is a folder without the manifest of a checkpoint: its save was broken off, or '
                'it is a folder of something else.' % (filepath,)
            ) from error
        raise CheckpointError(
            '%s cannot be read: it is cut short, damaged or no file of Keras (%s).'
            % (filepath, error)
        ) from error
