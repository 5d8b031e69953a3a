# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The whole state of a job, saved to a folder: a part of each worker, of all rows or of some."""

import functools
from typing import Any, Callable, Dict, Mapping, Optional, cast

from keras_parallax.checkpoint import fit_record, keras_file_write
from keras_parallax.checkpoint.fit_record import FitRecord
from keras_parallax.checkpoint.increments import Increments
from keras_parallax.checkpoint.owned_rows import SharedRows, replicated_tables, shared_rows
from keras_parallax.checkpoint.save import state_of_job, write_model, write_order, write_state
from keras_parallax.checkpoint.write_parts import write_parts
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, Rows, numpy_dtype
from keras_parallax.framework_types import HdfGroup, Model, Variable


def save_parts(
    model: Model,
    path: str,
    epoch: int = 0,
    include_optimizer: bool = True,
    block_bytes: int = BLOCK_BYTES,
    show_progress: Optional[bool] = None,
    best: Optional[Dict[str, float]] = None,
    written: Optional[Dict[str, str]] = None,
    fit: Optional[FitRecord] = None,
    increments: Optional[Increments] = None,
) -> None:
    """Saves the job's state to a folder, each worker what it owns. A collective call.

    Args:
        model: the model.
        path: path of the folder, on storage that every host sees.
        epoch: number of epochs that are over.
        include_optimizer: whether to save the optimizer's state, too.
        block_bytes: as in `keras_file_write.save_model`.
        show_progress: as in `keras_file_write.save_model`.
        best: as in `save.save`.
        written: as in `save.save`.
        fit: as in `save.save`.
        increments: the `Increments`, which know what has changed since the last save; `None` to
            save all rows.

    Raises:
        CheckpointError: on every worker, if one cannot write its part. The checkpoint that the
            folder held before is whole.
    """
    step, fit = step_of(model), fit or fit_record.now()
    state = state_of_job(model, epoch, best, written, fit)
    replicated = replicated_tables(step) if increments else {}
    fill = functools.partial(
        keras_file_write.fill_datasets,
        model,
        block_bytes=block_bytes,
        show_progress=show_progress,
    )
    source = _Source(cast(Job, step.job), model, include_optimizer, state, replicated, fill, fit)
    write_parts(source, path, increments)


class _Source:
    """A job that trains a model of Keras 2, as `write_parts.PartSource` has it."""

    ending = '.h5'

    def __init__(
        self,
        job: Job,
        model: Model,
        include_optimizer: bool,
        state: Mapping[str, Any],
        replicated: Mapping[Variable, str],
        fill: Callable[..., None],
        fit: FitRecord,
    ) -> None:
        self.job, self._model, self._include_optimizer = job, model, include_optimizer
        self._state, self._replicated, self._fit = state, replicated, fit
        self._fill = fill

    def write_model(self, path: Optional[str]) -> SharedRows:
        """As `PartSource.write_model`."""
        if path is None:
            # What belongs where in the file is known when it is written.
            with keras_file_write.in_memory() as file:
                return self._shared(write_model(self._model, file, self._include_optimizer))
        with keras_file_write.created(path) as file:
            tables = write_model(self._model, file, self._include_optimizer)
            shared = self._shared(tables)
            own = {name: rows for name, rows in tables.items() if name not in shared.tables}
            self._fill(file, own)
            for name, rows in shared.tables.items():
                if name not in file:
                    file.create_dataset(name, [0] + rows.shape.as_list()[1:], numpy_dtype(rows))
            write_state(file, self._state)
        return shared

    def _shared(self, tables: Dict[str, Rows]) -> SharedRows:
        return shared_rows(tables, self._replicated)

    def fill(self, file: HdfGroup, rows: Mapping[str, Rows]) -> None:
        """As `PartSource.fill`."""
        self._fill(file, rows)

    def write_own(self, file: HdfGroup) -> None:
        """As `PartSource.write_own`."""
        write_state(file, self._fit.own)
        write_order(file, self._fit.order)
