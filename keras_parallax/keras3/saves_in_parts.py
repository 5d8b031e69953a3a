# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of Keras 3 models in several parts: each worker writes and reads its own rows."""

import contextlib
import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from keras_parallax.checkpoint import keras_file_read, keras_file_write, resume
from keras_parallax.checkpoint.delta_chain import Limits
from keras_parallax.checkpoint.increments import Increments, increments_of
from keras_parallax.checkpoint.keras3_state import WEIGHTS, write_state
from keras_parallax.checkpoint.manifest import read_manifest
from keras_parallax.checkpoint.owned_rows import SharedRows
from keras_parallax.checkpoint.saved_rows import PartFiles
from keras_parallax.checkpoint.write_parts import write_parts
from keras_parallax.compat import keras3_api, keras3_files
from keras_parallax.compat.keras3_variable import EngineVariable, RowsInParts
from keras_parallax.engine.tables.row_transfer import Rows, ShardedRows
from keras_parallax.framework_types import HdfGroup
from keras_parallax.keras3.scope import GRAPH, Keras3Scope
from keras_parallax.keras3.sharded_tables import scope_of_graph
from keras_parallax.keras3.stored_rows import engine_backend


class _LeftOut(NamedTuple):
    """A variable whose rows are not in Keras's file.

    Attributes:
        variable: the variable.
        name: what its rows are called in the other parts.
        rows: the rows.
    """

    variable: EngineVariable
    name: str
    rows: ShardedRows


def save(
    model: Any, path: str, state: Mapping[str, Any], limits: Optional[Limits] = None, key: str = ''
) -> None:
    """Saves a model, and what there is to know of its job, to a folder. A collective call.

    Args:
        model: the model, which is in `fit`.
        path: path of the folder.
        state: plain data.
        limits: when to save all rows again; `None` to do so each time.
        key: with `limits`, the argument of the callback, whose saves build on each other.

    Raises:
        CheckpointError: on every worker, if one cannot write its part.
    """
    scope: Keras3Scope = model.optimizer._parallax_scope
    increments: Optional[Increments] = None
    if limits is not None:
        increments = increments_of(scope_of_graph(GRAPH), key, limits)
    left = _left_out_of(model)
    for one in left:
        # Before any worker reads rows: a step that JAX has begun writes to those of others.
        keras3_api.backend_module().wait_for(one.variable)
    write_parts(_Source(model, scope, state, left), path, increments)


class _Source:
    """A job that trains a model of Keras 3, as `write_parts.PartSource` has it."""

    ending = WEIGHTS

    def __init__(
        self, model: Any, scope: Keras3Scope, state: Mapping[str, Any], left: List[_LeftOut]
    ) -> None:
        self.job, self._model, self._state, self._left = scope.job, model, state, left

    def write_model(self, path: Optional[str]) -> SharedRows:
        """As `PartSource.write_model`."""
        if path is not None:
            with keras3_files.rows_left_out((left.variable, left.name) for left in self._left):
                self._model.save_weights(path)
            write_state(path, self._state)
        replicated = {
            left.name: left.variable.table.variable.op.name
            for left in self._left
            if left.rows.table is None
        }
        return SharedRows({left.name: left.rows for left in self._left}, replicated)

    def fill(self, file: HdfGroup, rows: Mapping[str, Rows]) -> None:
        """As `PartSource.fill`."""
        with GRAPH.as_default():
            keras_file_write.fill_rows(engine_backend().get_session(), file, rows)

    def write_own(self, file: HdfGroup) -> None:
        """Each worker of Keras 3 has nothing for itself that is saved."""


def _left_out_of(model: Any) -> List[_LeftOut]:
    """The tables of a model, and their slots, that the engine has: the same on every worker."""
    found = []
    for number, variable in enumerate([*model.variables, *model.optimizer.variables]):
        if isinstance(variable, EngineVariable):
            rows = variable.whole.rows
            if rows is not None:
                found.append(_LeftOut(variable, '%d/%s' % (number, variable.path), rows))
    return found


@contextlib.contextmanager
def opened(path: str, share: Tuple[int, int]) -> Iterator[str]:
    """While open, Keras loads the file whose path it gives with the rows that lie beside it.

    Args:
        path: path of the folder, of a model of Keras 3.
        share: `(number, of)`, which blocks of the rows this worker writes to the engine.
    """
    manifest = read_manifest(path, checked=False)
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(PartFiles(path, keras_file_read.opened))
        rows: Dict[str, RowsInParts] = {
            name: RowsInParts(resume.rows_of(manifest, name, np.float32, files), share)
            for name in manifest.tables
        }
        stack.enter_context(keras3_files.rows_given(rows))
        yield os.path.join(path, manifest.model)
