# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of several parts: each worker writes what it owns, and rank 0 says what there is."""

import os
import secrets
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, cast

from typing_extensions import Protocol

from keras_parallax.checkpoint import delta_chain, keras_file_write
from keras_parallax.checkpoint.increments import Increments
from keras_parallax.checkpoint.manifest import (
    CheckpointFile,
    Manifest,
    describe_part,
    remove_parts,
    write_manifest,
)
from keras_parallax.checkpoint.owned_rows import OwnedRows, SharedRows
from keras_parallax.checkpoint.save import OURS
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.tables.row_transfer import Rows
from keras_parallax.engine.tables.touched_rows import TouchedRows
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import HdfGroup

#: The group of the numbers of rows, where a part has not all of a shard.
_IDS = OURS + '/rows'


class PartSource(Protocol):
    """A job whose state is saved, and the files of its Keras.

    Attributes:
        job: the `Job`.
        ending: that of the names of Keras's files.
    """

    job: Job
    ending: str

    def write_model(self, path: Optional[str]) -> SharedRows:
        """Writes Keras's file and the state of the job, but no rows that workers share.

        Args:
            path: path of the file, for rank 0; `None` for other workers, which write none.

        Returns:
            The rows that workers share, the same on each.
        """

    def fill(self, file: HdfGroup, rows: Mapping[str, Rows]) -> None:
        """Puts rows into datasets of an open file, given a dict from their paths."""

    def write_own(self, file: HdfGroup) -> None:
        """Writes what this worker has for itself to an open file."""


def write_parts(source: PartSource, path: str, increments: Optional[Increments] = None) -> None:
    """Saves the state of a job to a folder. A collective call.

    Args:
        source: what is saved.
        path: path of the folder, on storage that every host sees.
        increments: what has changed since the last save; `None` to save all rows.

    Raises:
        CheckpointError: on every worker, if one cannot write its part. The checkpoint that the
            folder held before is whole.
    """
    job = source.job
    save_id = job.gather(secrets.token_hex(8))[0]
    parts, attempt = _PartsOfRank(source, path, save_id), _Attempt()
    attempt.do(parts.write_model)
    changed = None
    if increments:
        changed = increments.changed(job, path, save_id, parts.shared, attempt.problem)
    attempt.do(lambda: parts.write_rows(changed))
    reports = job.gather({'problem': attempt.problem, 'saved': parts.report})
    if job.rank == 0 and not any(report['problem'] for report in reports):
        saved = [report['saved'] for report in reports]
        before = increments.manifest if increments and changed is not None else None
        attempt.do(lambda: write_manifest(path, _manifest_of(path, save_id, saved, before)))
    problems = [report['problem'] for report in reports]
    problems[0] = job.gather(attempt.problem)[0]
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
        source: what is saved.
        folder: the checkpoint's folder.
        save_id: names the save.

    Attributes:
        shared: the rows of all workers, once the model is written.
        report: what the manifest must know of the parts, as plain data.
    """

    def __init__(self, source: PartSource, folder: str, save_id: str) -> None:
        self._source, self._folder, self._save_id = source, folder, save_id
        self.shared: Optional[SharedRows] = None
        self.report: Dict[str, Any] = {'parts': [], 'model': None, 'tables': {}, 'shards': []}

    def write_model(self) -> None:
        """Writes what is not by rows, on rank 0; on others, finds out what belongs where."""
        os.makedirs(self._folder, exist_ok=True)
        path = self._path('model' + self._source.ending) if self._source.job.rank == 0 else None
        self.shared = self._source.write_model(path)
        if path is not None:
            self._note(path)
            self.report['model'] = os.path.basename(path)

    def write_rows(self, changed: Optional[List[OwnedRows]]) -> None:
        """Writes the rows of this worker that have changed, or all, and what it has for itself."""
        shared, job = cast(SharedRows, self.shared), self._source.job  # The model is written.
        for name, rows in shared.tables.items():
            self.report['tables'][name] = rows.shape.as_list()
        owned = shared.shards(job.rank) if changed is None else changed
        path = self._path('rank-%05d-of-%05d.h5' % (job.rank, job.size))
        with keras_file_write.created(path) as file:
            self._source.fill(file, {_dataset(one): _rows_of(one) for one in owned})
            for one in owned:
                ids = None if one.ids is None else '%s/%s' % (_IDS, one.group)
                if ids is not None and ids not in file:
                    file.create_dataset(ids, data=one.ids)
                self.report['shards'].append([one.name, one.shard, _dataset(one), ids])
            self._source.write_own(file)
        self._note(path)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, '%s-%s' % (self._save_id, name))

    def _note(self, path: str) -> None:
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
