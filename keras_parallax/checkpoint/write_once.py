# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Has the workers of a host that save the same thing to the same path write it once.

Scripts without chief guards save on every worker. Workers do not wait for each other here, since
any one may save alone; so there is nothing collective. A worker that saves holds a lock for the
path, a file in the host's folder for temporary files, and leaves a note in it: what it has written,
at which point of training, and which file that made. A worker that comes later, with the same to
save at the same point, sees that this file is still there and leaves it at that.

Whenever that is not certain, the file is written again: it appears as a whole, so this costs time
and nothing else. The lowest rank decides what each worker has for itself (dense weights, the
averages of batch normalization): a lower rank writes again unless it has the same values, and a
higher rank leaves the file of a lower rank that has set weights since the last training step.
"""

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from keras_parallax.engine.job.job import Job
from keras_parallax.engine.session.graph_scope import GraphScope
from keras_parallax.engine.tables.row_transfer import Rows
from keras_parallax.framework_types import Array, HdfGroup, Session

_POLL_SECONDS = 0.05

#: Lock files of this process, and the number of steps at which they were written.
_own_locks: Dict[str, int] = {}


class Note(NamedTuple):
    """What is known of a file that was written.

    Attributes:
        content: what was written, plain data.
        point: `Changes.point` when it was.
        rank: the worker that has written it.
        own: the digest of what that worker has for itself.
        file: which file that made, as `identity` says.
    """

    content: Any
    point: Any
    rank: int
    own: Optional[str]
    file: Any


def is_written(
    note: Optional[Note],
    content: Any,
    point: Any,
    rank: int,
    file: Any,
    own: Callable[[], Optional[str]],
) -> bool:
    """Whether what a worker is to write is there already.

    Args:
        note: the `Note`, or `None`.
        content: as in a `Note`, of the worker that is to write.
        point: its `Changes.point`, or `None` if workers have none in common.
        rank: its number.
        file: the `identity` of the file that is there now.
        own: function that returns the digest of what the worker has for itself, or `None` if it is
            not known.
    """
    if note is None or file is None or point is None or note.point is None:
        return False
    *place, changes = point
    *place_of_note, changes_of_note = note.point
    if [note.content, place_of_note, note.file] != [content, place, file]:
        return False
    if changes_of_note > changes:
        return note.rank < rank  # The lower rank alone has set weights.
    if changes_of_note < changes:
        return False
    return note.rank <= rank or (note.own is not None and note.own == own())


def identity(path: str) -> Optional[List[int]]:
    """Tells a file or a folder from any other, and from itself when it has been changed."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]


def is_shared(job: Job) -> bool:
    """Whether another worker of the job is on this host."""
    return any(job.rank in ranks and len(ranks) > 1 for ranks in job.hosts)


def point_of(scope: GraphScope) -> Any:
    """The point at which the workers are that train in a scope; `None` if they have none."""
    return scope.changes.point if scope.is_synchronous else None


def save(
    job: Job,
    point: Any,
    path: str,
    content: Any,
    write: Callable[[], Optional[str]],
    own: Callable[[], Optional[str]],
    witness: Optional[str] = None,
) -> None:
    """Writes to a path, unless another worker of this host has just written the same.

    Args:
        job: the `Job`.
        point: the point of training at which this worker is: numbers that can be compared, the last
            of which counts changes of its own since the last step; `None` if it is not known.
        path: the path.
        content: what is saved, plain data that is equal where workers save the same.
        write: function that writes it, and returns the digest of what this worker has for itself,
            or `None`.
        own: function that returns that digest without writing.
        witness: the file that is there, and new, when it was written; `path` by default.
    """
    witness = witness or path
    if not is_shared(job):
        write()
        return
    content = json.loads(json.dumps(content))
    with _locked(job, os.path.realpath(path)) as file:
        if file is None:
            write()
            return
        if is_written(_read(file), content, point, job.rank, identity(witness), own):
            return
        digest = write()
        note = Note(content, point, job.rank, digest, identity(witness))
        file.seek(0)
        file.truncate()
        json.dump(note, file)
        file.flush()


def _read(file: Any) -> Optional[Note]:
    try:
        return Note(*json.load(file))
    except (ValueError, TypeError):
        return None


@contextlib.contextmanager
def _locked(job: Job, path: str) -> Iterator[Any]:
    """While open, no other worker of this host saves to a path; gives the lock's file.

    It gives `None` if there is no place for locks; a worker then saves for itself.
    """
    folder = os.path.join(tempfile.gettempdir(), 'keras-parallax-%s' % job.token)
    lock = os.path.join(folder, hashlib.sha256(path.encode('utf-8')).hexdigest()[:32])
    _forget_earlier(job.activity.progress.steps, lock)
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            file = stack.enter_context(open(lock, 'a+'))
            while not _try_lock(file):
                if job.problem is not None:
                    raise job.problem
                time.sleep(_POLL_SECONDS)
            file.seek(0)
        except OSError:
            file = None
        if file is not None:
            if not _own_locks:
                atexit.register(_remove_locks, folder)
            _own_locks[lock] = job.activity.progress.steps
        yield file


def _try_lock(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _forget_earlier(steps: int, needed: str) -> None:
    """Removes lock files with notes of earlier steps: nobody will find there what it has.

    If another worker has just opened such a file, it will write once too often.
    """
    for lock in [lock for lock in _own_locks if _own_locks[lock] < steps and lock != needed]:
        with contextlib.suppress(OSError), open(lock) as file:
            note = _read(file) if _try_lock(file) else None
            if note is not None and note.point is not None and note.point[1] < steps:
                os.remove(lock)
        if not os.path.exists(lock):
            del _own_locks[lock]


def _remove_locks(folder: str) -> None:
    for lock in _own_locks:
        with contextlib.suppress(OSError):
            os.remove(lock)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def digest_of(file: HdfGroup, rows: Sequence[Rows] = (), session: Optional[Session] = None) -> str:
    """The digest of everything in an HDF5 file, and of rows that are not in it yet.

    Args:
        file: the open `h5py.File`.
        rows: a list of `Rows`.
        session: the session to read them with.
    """
    digest = hashlib.sha256()

    def take(name: str, node: Any) -> None:
        digest.update(name.encode('utf-8'))
        for key in sorted(node.attrs):
            digest.update(repr((key, node.attrs[key])).encode('utf-8'))
        if hasattr(node, 'dtype'):
            digest.update(repr(node[()].tolist()).encode('utf-8'))

    take('', file)
    file.visititems(take)
    for table in rows:
        table.make_reader()
    for table in rows:
        table.copy_to(_Taking(digest), session)
    return digest.hexdigest()


class _Taking:
    """Takes rows as an array does, and adds them to a digest."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def __setitem__(self, places: Any, values: Array) -> None:
        self._digest.update(values.tobytes())
