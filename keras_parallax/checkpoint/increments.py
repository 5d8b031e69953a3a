"""What has changed since a checkpoint, so that the next save under its path writes that alone."""

import contextlib
import os
import warnings

from keras_parallax.checkpoint.chain import Chain, Limits, kept_parts
from keras_parallax.checkpoint.keras_file_write import scope_of_model
from keras_parallax.checkpoint.manifest import link_parts, read_manifest
from keras_parallax.errors import CheckpointError
from keras_parallax.session.written_rows import Watch, Watched
from keras_parallax.tables.touched_rows import RowMarks

#: Bytes of a row's number in a file.
_ID_BYTES = 8


def increments_of(model, filepath, limits=None):
    """The `Increments` of the saves under a path, the same ones for each callback that has it.

    Args:
        model: the model.
        filepath: the callback's argument.
        limits: the `chain.Limits` of the next saves.
    """
    scope = scope_of_model(model)
    if filepath not in scope.increments:
        scope.increments[filepath] = Increments(scope)
    found = scope.increments[filepath]
    found.limits = limits or Limits()
    return found


class Increments:
    """What has changed since the last save under a path. Collective calls, from first to last.

    A save calls `changed`, and then `saved` or `forget`. No rank trains in between, for
    each waits for the others in `changed`, and after what it writes.

    Args:
        scope: the `GraphScope`.

    Attributes:
        limits: the `chain.Limits`.
        manifest: on rank 0, the `Manifest` of the checkpoint that a delta is to be added to.
    """

    def __init__(self, scope):
        self._scope, self.limits, self.manifest = scope, Limits(), None
        self._chain = self._next = self._watch = None
        self._own_marks, self._links, self._has_warned = [], [], False

    def changed(self, step, path, save_id, shared, problem):
        """What a rank saves of its rows in a delta.

        Args:
            step: the `TrainStep`.
            path: the folder of the save.
            save_id: names the save.
            shared: the `SharedRows`; `None` if there is a problem.
            problem: why this rank cannot save, or `None`.

        Returns:
            A list of `OwnedRows`; `None` if all rows are to be saved, or nothing.
        """
        self._links, places = [], {} if problem else self._places(shared, step.rank)
        is_ready = bool(not problem and self._chain and self._watches(places))
        if is_ready and step.rank == 0:
            is_ready = self._has_base(path)
        whole = self._watch.begin() if is_ready else set()
        reports = step.gather(
            {'problem': bool(problem), 'ready': is_ready, 'whole': sorted(map(list, whole))}
        )
        if any(report['problem'] for report in reports):
            return None
        base_bytes = sum(owned.rows.bytes for owned in shared.shards())
        self._next = Chain(path, save_id, base_bytes)
        own = shared.shards(step.rank)
        if not all(report['ready'] for report in reports):
            self._begin(places, shared, own, save_id)
            return None
        whole = {tuple(key) for report in reports for key in report['whole']}
        changed = self._touched(own, whole)
        total = sum(step.gather(_bytes_of(changed)))
        if self._chain.takes(total, self.limits):
            self._next = self._chain.with_delta(path, save_id, total)
            return changed
        if step.rank == 0 and not self._chain.delta_bytes:
            self._warn(shared, whole)
        return None

    def saved(self):
        """Notes that the save is complete."""
        self._chain = self._next

    def forget(self, path):
        """Notes that the save has failed: the next one saves all rows."""
        for part in self._links:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(path, part.name))
        self._chain = self.manifest = None

    def _places(self, shared, rank):
        """Dict from keys to the `OwnedRows` of all that this rank may write."""
        # A table that every rank holds is saved by rank 0, from its own.
        return {
            owned.key: owned
            for owned in shared.shards()
            if rank == 0 or shared.tables[owned.name].table is not None
        }

    def _watches(self, places):
        """Whether these are the variables that are watched: not if they were made anew since."""
        watched = self._watch.watched if self._watch else {}
        return watched.keys() == places.keys() and all(
            watched[key].variable is owned.rows.shards[0] for key, owned in places.items()
        )

    def _has_base(self, path):
        """Whether the last checkpoint is there, and its rows in the new folder, too."""
        before, self.manifest = self._chain.path, None
        try:
            manifest = read_manifest(before, checked=False)
            if manifest.save_id != self._chain.save_id:
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

    def _begin(self, places, shared, own, save_id):
        """Watches what is written from now on."""
        self._chain = None
        if not self._watches(places):
            session, graph = self._scope.session, self._scope.graph
            if self._watch is not None:
                self._scope.written_rows.remove(self._watch)
                with graph.as_default():
                    session.run([marks.release() for marks in self._own_marks])
            watched, of_groups = {}, {}
            with graph.as_default():
                for key, owned in places.items():
                    marks = None
                    if shared.is_by_row(owned):
                        if owned.group not in of_groups:
                            of_groups[owned.group] = _marks_of(owned, save_id)
                        marks = of_groups[owned.group]
                    watched[key] = Watched(owned.rows.shards[0], marks)
            self._watch = Watch(watched)
            self._own_marks = list(
                dict.fromkeys(of_groups[one.group] for one in own if one.group in of_groups)
            )
            self._scope.written_rows.add(self._watch)
        self._clear()

    def _clear(self):
        """Takes away what is noted: no rank writes to rows before all have done so."""
        self._watch.begin()
        self._scope.session.run([marks.initializer for marks in self._own_marks])

    def _touched(self, own, whole):
        """The `OwnedRows` of a rank that were written since the last save; forgets that they were.

        Args:
            own: all `OwnedRows` of the rank.
            whole: the keys of those of which all rows count as written.
        """
        touched = {marks: marks.touched(self._scope.session) for marks in self._own_marks}
        changed = []
        for owned in own:
            marks = self._watch.watched[owned.key].marks
            if marks is not None and owned.key not in whole:
                ids = touched[marks]
                if len(ids) * (owned.rows.row_bytes + _ID_BYTES) < owned.rows.bytes:
                    owned = owned._replace(ids=ids)
            changed.append(owned)
        self._clear()
        return changed

    def _warn(self, shared, whole):
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


def _marks_of(owned, save_id):
    name = 'marks/%s/%s' % (save_id, owned.group)
    device = owned.rows.shards[0].device
    return RowMarks(name, device, owned.rows.rows)


def _bytes_of(changed):
    """The size of rows with their numbers."""
    ids = {owned.group: owned.ids for owned in changed if owned.ids is not None}
    rows = [
        (owned.rows.rows if owned.ids is None else len(owned.ids)) * owned.rows.row_bytes
        for owned in changed
    ]
    return int(sum(rows) + sum(len(numbers) * _ID_BYTES for numbers in ids.values()))
