# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What has changed since a checkpoint, so that the next save under its path writes that alone."""

import contextlib
import os
import warnings
from typing import Dict, List, Optional, Set, Tuple, cast

from keras_parallax.checkpoint.delta_chain import Chain, Limits, kept_parts
from keras_parallax.checkpoint.manifest import CheckpointFile, Manifest, link_parts, read_manifest
from keras_parallax.checkpoint.owned_rows import OwnedRows, SharedRows
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_scope import GraphScope
from keras_parallax.engine.session.written_rows import RowWatch, Watched
from keras_parallax.engine.tables.touched_rows import RowMarks
from keras_parallax.errors import CheckpointError

#: Bytes of a row's number in a file.
_ID_BYTES = 8


def increments_of(
    scope: GraphScope, filepath: str, limits: Optional[Limits] = None
) -> 'Increments':
    """The `Increments` of the saves under a path, the same ones for each callback that has it.

    Args:
        scope: the scope of the model's graph.
        filepath: the callback's argument.
        limits: the `delta_chain.Limits` of the next saves.
    """
    if filepath not in scope.increments:
        scope.increments[filepath] = Increments(scope)
    found = scope.increments[filepath]
    found.limits = limits or Limits()
    return found


class Increments:
    """What has changed since the last save under a path. Collective calls, from first to last.

    A save calls `changed`, and then `saved` or `forget`. No worker trains in between, for
    each waits for the others in `changed`, and after what it writes.

    Args:
        scope: the `GraphScope`.

    Attributes:
        limits: the `delta_chain.Limits`.
        manifest: on rank 0, the `Manifest` of the checkpoint that a delta is to be added to.
    """

    def __init__(self, scope: GraphScope) -> None:
        self._scope, self.limits = scope, Limits()
        self.manifest: Optional[Manifest] = None
        self._chain: Optional[Chain] = None
        self._next: Optional[Chain] = None
        self._watch: Optional[RowWatch] = None
        self._own_marks: List[RowMarks] = []
        self._links: Tuple[CheckpointFile, ...] = ()
        self._has_warned = False

    def changed(
        self,
        job: Job,
        path: str,
        save_id: str,
        shared: Optional[SharedRows],
        problem: Optional[str],
    ) -> Optional[List[OwnedRows]]:
        """What a worker saves of its rows in a delta.

        Args:
            job: the `Job`.
            path: the folder of the save.
            save_id: names the save.
            shared: the `SharedRows`; `None` if there is a problem.
            problem: why this worker cannot save, or `None`.

        Returns:
            A list of `OwnedRows`; `None` if all rows are to be saved, or nothing.
        """
        places: Dict[Tuple[str, int], OwnedRows] = {}
        if shared is not None and not problem:
            places = self._places(shared, job.rank)
        chain, self._links = self._chain, ()
        is_ready = bool(not problem and chain and self._watches(places))
        if chain and is_ready and job.rank == 0:
            is_ready = self._has_base(chain, path)
        whole = self._watch.begin() if self._watch and is_ready else set()
        reports = job.gather(
            {'problem': bool(problem), 'ready': is_ready, 'whole': sorted(map(list, whole))}
        )
        if shared is None or any(report['problem'] for report in reports):
            return None
        base_bytes = sum(owned.rows.bytes for owned in shared.shards())
        self._next = Chain(path, save_id, base_bytes)
        own = shared.shards(job.rank)
        if chain is None or not all(report['ready'] for report in reports):
            self._begin(places, shared, own, save_id)
            return None
        whole = {tuple(key) for report in reports for key in report['whole']}
        changed = self._touched(own, whole)
        total = sum(job.gather(_bytes_of(changed)))
        if chain.takes(total, self.limits):
            self._next = chain.with_delta(path, save_id, total)
            return changed
        if job.rank == 0 and not chain.delta_bytes:
            self._warn(shared, whole)
        return None

    def saved(self) -> None:
        """Notes that the save is complete."""
        self._chain = self._next

    def forget(self, path: str) -> None:
        """Notes that the save has failed: the next one saves all rows."""
        for part in self._links:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(path, part.name))
        self._chain = self.manifest = None

    def _places(self, shared: SharedRows, rank: int) -> Dict[Tuple[str, int], OwnedRows]:
        """Dict from keys to the `OwnedRows` of all that this worker may write."""
        # A table that every worker holds is saved by rank 0, from its own.
        return {
            owned.key: owned
            for owned in shared.shards()
            if rank == 0 or shared.tables[owned.name].table is not None
        }

    def _watches(self, places: Dict[Tuple[str, int], OwnedRows]) -> bool:
        """Whether these are the variables that are watched: not if they were made anew since."""
        watched = self._watch.watched if self._watch else {}
        return watched.keys() == places.keys() and all(
            watched[key].variable is owned.rows.shards[0] for key, owned in places.items()
        )

    def _has_base(self, chain: Chain, path: str) -> bool:
        """Whether the last checkpoint is there, and its rows in the new folder, too."""
        before, self.manifest = chain.path, None
        try:
            manifest = read_manifest(before, checked=False)
            if manifest.save_id != chain.save_id:
                return False
        except CheckpointError:
            return False  # It was taken away.
        if os.path.realpath(path) != os.path.realpath(before):
            self._links = kept_parts(manifest)
            try:
                link_parts(self._links, before, path)
            except OSError as error:
                if not self._has_warned:
                    warnings.warn(
                        'All rows are saved to %s, not only those that have changed since %s, for '
                        'no hard links can be made there (%s); give ModelCheckpoint a path without '
                        'fields, so that base and deltas are in one folder.'
                        % (path, before, error),
                        stacklevel=2,
                    )
                self._has_warned = True
                return False
        self.manifest = manifest
        return True

    def _begin(
        self,
        places: Dict[Tuple[str, int], OwnedRows],
        shared: SharedRows,
        own: List[OwnedRows],
        save_id: str,
    ) -> None:
        """Watches what is written from now on."""
        self._chain = None
        # Without shards a worker has nothing to watch, and an empty watch is made all the same.
        if self._watch is None or not self._watches(places):
            session, graph = self._scope.session, self._scope.graph
            if self._watch is not None:
                self._scope.written_rows.remove(self._watch)
                with graph.as_default():
                    session.run([marks.release() for marks in self._own_marks])
            watched: Dict[Tuple[str, int], Watched] = {}
            of_groups: Dict[str, RowMarks] = {}
            with graph.as_default():
                for key, owned in places.items():
                    marks = None
                    if shared.is_by_row(owned):
                        if owned.group not in of_groups:
                            of_groups[owned.group] = _marks_of(owned, save_id)
                        marks = of_groups[owned.group]
                    watched[key] = Watched(owned.rows.shards[0], marks)
            self._watch = RowWatch(watched)
            self._own_marks = list(
                dict.fromkeys(of_groups[one.group] for one in own if one.group in of_groups)
            )
            self._scope.written_rows.add(self._watch)
        self._clear()

    def _clear(self) -> None:
        """Takes away what is noted: no worker writes to rows before all have done so."""
        cast(RowWatch, self._watch).begin()  # `_begin` has made it.
        self._scope.session.run([marks.initializer for marks in self._own_marks])

    def _touched(self, own: List[OwnedRows], whole: Set[Tuple[str, int]]) -> List[OwnedRows]:
        """The `OwnedRows` of a worker that were written since the last save; forgets their writes.

        Args:
            own: all `OwnedRows` of the worker.
            whole: the keys of those of which all rows count as written.
        """
        touched = {marks: marks.touched(self._scope.session) for marks in self._own_marks}
        watched = cast(RowWatch, self._watch).watched  # `_begin` has made it.
        changed = []
        for owned in own:
            marks = watched[owned.key].marks
            if marks is not None and owned.key not in whole:
                ids = touched[marks]
                if len(ids) * (owned.rows.row_bytes + _ID_BYTES) < owned.rows.bytes:
                    owned = owned._replace(ids=ids)
            changed.append(owned)
        self._clear()
        return changed

    def _warn(self, shared: SharedRows, whole: Set[Tuple[str, int]]) -> None:
        """Says why a save is a full one that comes after a base."""
        written = [one for one in shared.shards() if one.key in whole and shared.is_by_row(one)]
        tables = sorted({one.group.rsplit('/', 1)[0] for one in written})
        if tables and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                'ModelCheckpoint(incremental=True) saves all rows again: since the last save every '
                'row of %s was written. strategy.summary() says of each table how it is updated; '
                "sparse_update='lazy' moves the touched rows of a table only." % ', '.join(tables),
                stacklevel=2,
            )


def _marks_of(owned: OwnedRows, save_id: str) -> RowMarks:
    name = 'marks/%s/%s' % (save_id, owned.group)
    device = owned.rows.shards[0].device
    return RowMarks(name, device, owned.rows.rows)


def _bytes_of(changed: List[OwnedRows]) -> int:
    """The size of rows with their numbers."""
    ids = {owned.group: owned.ids for owned in changed if owned.ids is not None}
    rows = [
        (owned.rows.rows if owned.ids is None else len(owned.ids)) * owned.rows.row_bytes
        for owned in changed
    ]
    return int(sum(rows) + sum(len(numbers) * _ID_BYTES for numbers in ids.values()))
