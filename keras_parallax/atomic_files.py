# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files and folders that appear under their names only when they are complete. Pure."""

import contextlib
import errno
import io
import os
import secrets
import shutil
import tempfile
from typing import Any, Iterator, List, Optional


@contextlib.contextmanager
def written_aside(path: str) -> Iterator[str]:
    """Gives a path to write to; the file gets its name when the block ends without an error.

    What was at `path` before stays whole until then, and altogether if there is an error. Folders
    on the way to it that do not exist are made.

    Args:
        path: where the file is to appear.

    Example:
        ```python
        >>> path = os.path.join(tempfile.mkdtemp(), 'numbers.txt')
        >>> with written_aside(path) as aside:
        ...     with open(aside, 'w') as file:
        ...         count = file.write('1 2 3')
        >>> os.path.exists(path)
        True
        ```
    """
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    aside = _aside(path)
    try:
        yield aside
        sync(aside)
        os.rename(aside, path)
        sync(folder)
    finally:
        if os.path.exists(aside):
            os.remove(aside)


def _aside(path: str) -> str:
    """Creates an empty file beside a path, with the rights that `open` gives."""
    folder, name = os.path.split(os.path.abspath(path))
    aside = os.path.join(folder, '.%s.%s.part' % (name, secrets.token_hex(8)))
    # The kernel applies the umask; to ask for it would set it, for all threads.
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return aside


@contextlib.contextmanager
def folder_aside(path: str) -> Iterator[str]:
    """Gives a path to write a folder to, which gets its name when the block ends without an error.

    If there is an error, nothing is left, also of the folders on the way that were made. A folder
    that is there already makes way for it.
    """
    parent = os.path.dirname(os.path.abspath(path))
    made = _make_folders(parent)
    try:
        with tempfile.TemporaryDirectory('.part', '.%s.' % os.path.basename(path), parent) as aside:
            inner = os.path.join(aside, 'folder')
            yield inner
            if os.path.isdir(path):
                os.rename(path, os.path.join(aside, 'before'))
            os.rename(inner, path)
    except BaseException:
        for folder in made:
            # Somebody else may have put something there.
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        raise


def _make_folders(folder: str) -> List[str]:
    """Makes a folder and those above it; returns the ones that were made, the innermost first."""
    missing = []
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        missing.append(folder)
        folder = os.path.dirname(folder)
    for part in reversed(missing):
        os.makedirs(part, exist_ok=True)
    return missing


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ForgivingFile(io.FileIO):
    """A file that takes whatever is written to it, and remembers if that could not be done.

    HDF5 1.10 keeps a file whose flush has failed half open, and the process crashes later (proven
    by `tests/cluster/test_full_disk.py`). So it is not told; who uses it calls `check`.
    """

    _problem: Optional[OSError] = None

    def write(self, data: Any) -> int:
        """Writes all of `data`, or nothing more once that has failed."""
        data = memoryview(data).cast('B')
        written = 0
        while self._problem is None and written < len(data):
            try:
                written += super().write(data[written:])
            except OSError as error:
                self._problem = error
        return len(data)

    def truncate(self, size: Optional[int] = None) -> int:
        """Sets the length of the file, unless something has failed."""
        length = self.tell() if size is None else size
        try:
            return length if self._problem else super().truncate(size)
        except OSError as error:
            self._problem = error
            return length

    def check(self) -> None:
        """Raises the `OSError` of the first write that could not be done, if there was one."""
        if self._problem is not None:
            raise self._problem


def why_unwritten(path: str, error: OSError) -> str:
    """A sentence or two about a file or a folder that an `OSError` has kept from being written."""
    message = '%s could not be written: %s. What was there before is unchanged' % (path, error)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return message + '.'
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    return '%s; %d MiB are free on its disk without the incomplete file.' % (message, free // 2**20)
