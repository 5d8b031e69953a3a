"""The whole state of a job, saved to a folder: a part of each worker, of all rows or of some."""

import contextlib
import functools
import os
import secrets
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, cast

from keras_parallax.checkpoint import delta_chain, fit_record, keras_file_write
from keras_parallax.checkpoint.fit_record import FitRecord
from keras_parallax.checkpoint.increments import Increments
from keras_parallax.checkpoint.manifest import (
    CheckpointFile,
    Manifest,
    describe_part,
    remove_parts,
    write_manifest,
)
from keras_parallax.checkpoint.owned_rows import (
    OwnedRows,
    SharedRows,
    replicated_tables,
    shared_rows,
)
from keras_parallax.checkpoint.save import OURS, state_of_job, write_model, write_order, write_state
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, Rows, numpy_dtype
from keras_parallax.engine.tables.touched_rows import TouchedRows
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import HdfGroup, Model, Variable

#: The group of the numbers of rows, where a part has not all of a shard.
_IDS = OURS + '/rows'


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
    save_id = step.job.gather(secrets.token_hex(8))[0]
    fill = functools.partial(
        keras_file_write.fill_datasets,
        model,
        block_bytes=block_bytes,
        show_progress=show_progress,
    )
    replicated = replicated_tables(step) if increments else {}
    parts, attempt = _PartsOfRank(step, path, save_id, fill), _Attempt()
    state = state_of_job(model, epoch, best, written, fit)
    attempt.do(lambda: parts.write_model(model, include_optimizer, state, replicated))
    changed = None
    if increments:
        changed = increments.changed(step, path, save_id, parts.shared, attempt.problem)
    attempt.do(lambda: parts.write_rows(fit, changed))
    reports = step.job.gather({'problem': attempt.problem, 'saved': parts.report})
    if step.job.rank == 0 and not any(report['problem'] for report in reports):
        saved = [report['saved'] for report in reports]
        before = increments.manifest if increments and changed is not None else None
        attempt.do(lambda: write_manifest(path, _manifest_of(path, save_id, saved, before)))
    problems = [report['problem'] for report in reports]
    problems[0] = step.job.gather(attempt.problem)[0]
    for rank, problem in enumerate(problems):
        if problem:
            remove_parts(path, save_id)
            if increments:
                increments.forget(path)
            raise CheckpointError('Rank %d could not save to %s: %s' % (rank, path, problem))
    if increments:
        increments.saved()


class _Attempt:
    """What a worker writes, step by step, as far as it can.

    Attributes:
        problem: why it cannot go on, in words, or `None`.
    """

    problem: Optional[str] = None

    def do(self, write: Callable[[], None]) -> None:
        """Calls a function of nothing that writes something, unless there is a problem."""
        if self.problem is None:
            try:
                write()
            except OSError as error:
                self.problem = str(error)


class _PartsOfRank:
    """The parts that a worker writes.

    Args:
        step: the `TrainStep`.
        folder: the checkpoint's folder.
        save_id: names the save.
        fill: function that puts the rows of a dict from paths into an open file.

    Attributes:
        shared: the `SharedRows` of all workers, once the model is written.
        report: what the manifest must know of the parts, as plain data.
    """

    def __init__(
        self, step: TrainStep, folder: str, save_id: str, fill: Callable[..., None]
    ) -> None:
        self._step, self._folder, self._save_id, self._fill = step, folder, save_id, fill
        self.shared: Optional[SharedRows] = None
        self.report: Dict[str, Any] = {'parts': [], 'model': None, 'tables': {}, 'shards': []}

    def write_model(
        self,
        model: Model,
        include_optimizer: bool,
        state: Mapping[str, Any],
        replicated: Mapping[Variable, str],
    ) -> None:
        """Writes what is not by rows, on rank 0; on others, finds out what belongs where."""
        os.makedirs(self._folder, exist_ok=True)
        if self._step.job.rank != 0:
            # What belongs where in the file is known when it is written.
            with keras_file_write.in_memory() as file:
                self.shared = shared_rows(write_model(model, file, include_optimizer), replicated)
            return
        with self._part('model') as file:
            tables = write_model(model, file, include_optimizer)
            self.shared = shared_rows(tables, replicated)
            shared = self.shared.tables
            self._fill(file, {name: rows for name, rows in tables.items() if name not in shared})
            for name, rows in shared.items():
                if name not in file:
                    file.create_dataset(name, [0] + rows.shape.as_list()[1:], numpy_dtype(rows))
            write_state(file, state)
        self.report['model'] = self.report['parts'][0]['name']

    def write_rows(self, fit: FitRecord, changed: Optional[List[OwnedRows]]) -> None:
        """Writes the rows of this worker, and what it has for itself of `fit`, a `FitRecord`.

        They are those `changed`, a list of `OwnedRows`, or all, if it is `None`.
        """
        shared = cast(SharedRows, self.shared)  # The model is written.
        for name, rows in shared.tables.items():
            self.report['tables'][name] = rows.shape.as_list()
        owned = shared.shards(self._step.job.rank) if changed is None else changed
        with self._part('rank-%05d-of-%05d' % (self._step.job.rank, self._step.job.size)) as file:
            self._fill(file, {_dataset(one): _rows_of(one) for one in owned})
            for one in owned:
                ids = None if one.ids is None else '%s/%s' % (_IDS, one.group)
                if ids is not None and ids not in file:
                    file.create_dataset(ids, data=one.ids)
                self.report['shards'].append([one.name, one.shard, _dataset(one), ids])
            write_state(file, fit.own)
            write_order(file, fit.order)

    @contextlib.contextmanager
    def _part(self, name: str) -> Iterator[HdfGroup]:
        path = os.path.join(self._folder, '%s-%s.h5' % (self._save_id, name))
        with keras_file_write.created(path) as file:
            yield file
        self.report['parts'].append(describe_part(path)._asdict())


def _dataset(owned: OwnedRows) -> str:
    return '%s/%d' % (owned.name, owned.shard)


def _rows_of(owned: OwnedRows) -> Rows:
    return owned.rows if owned.ids is None else TouchedRows(owned.rows, owned.ids)


def _manifest_of(
    folder: str, save_id: str, reports: Sequence[Dict[str, Any]], before: Optional[Manifest]
) -> Manifest:
    """The manifest of what all workers report; on rank 0, when all parts are there.

    If there is a `Manifest` from `before`, the save is a delta over it.
    """
    parts = tuple(CheckpointFile(**part) for report in reports for part in report['parts'])
    for part in parts:
        if not os.path.exists(os.path.join(folder, part.name)):
            raise CheckpointError(
                '%s is not there on the host of rank 0; all workers must save to storage that '
                'every host sees, or in one file (sharded=False).' % os.path.join(folder, part.name)
            )
    shards = sorted(
        (name, shard, report['parts'][-1]['name'], dataset, ids)
        for report in reports
        for name, shard, dataset, ids in report['shards']
    )
    model = reports[0]['model']
    if before is not None:
        changed: Dict[str, List[Any]] = {name: [] for name in reports[0]['tables']}
        for name, *shard in shards:
            changed[name].append(shard)
        return delta_chain.with_delta(before, save_id, parts, changed, model)
    tables = {name: {'shape': shape, 'shards': []} for name, shape in reports[0]['tables'].items()}
    for name, _, part, dataset, _ in shards:
        tables[name]['shards'].append([part, dataset])
    return Manifest(save_id, parts, tables, model)
