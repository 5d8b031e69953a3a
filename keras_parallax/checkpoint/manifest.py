# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The parts of a sharded checkpoint, and what tells them from damaged ones. Pure."""

import contextlib
import glob
import hashlib
import json
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from keras_parallax.atomic_files import written_aside
from keras_parallax.checkpoint import path_patterns
from keras_parallax.errors import CheckpointError

#: The file of a checkpoint of several parts that names the others; it is written last.
MANIFEST = 'manifest.json'

#: The layouts of such a checkpoint, without deltas and with some; a reader refuses a later one.
_WHOLE, FORMAT = 1, 2

_CHUNK_BYTES = 2**20


class CheckpointFile(NamedTuple):
    """One file of a checkpoint.

    Attributes:
        name: its name in the checkpoint's folder.
        bytes: its size.
        sha256: its checksum, in hexadecimal.
    """

    name: str
    bytes: int
    sha256: str


def describe_part(path: str) -> CheckpointFile:
    """The `CheckpointFile` that a file is."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b''):
            digest.update(chunk)
    return CheckpointFile(os.path.basename(path), os.path.getsize(path), digest.hexdigest())


class Delta(NamedTuple):
    """A save of the rows that have changed since the one before it.

    Attributes:
        save_id: names the save; the names of its parts start with it.
        after: the `save_id` of the one before it.
        tables: dict from the path of a dataset in Keras's file to a list of its shards: `[shard,
            name of the part, dataset of rows, dataset of their numbers in the shard]`, the last of
            which is `None` if there are all rows.
    """

    save_id: str
    after: str
    tables: Dict[str, Any]


class Manifest(NamedTuple):
    """What a checkpoint of several parts consists of: a base, and the deltas since.

    Attributes:
        save_id: names the newest save; the names of its parts start with it.
        parts: the `CheckpointFile`s.
        tables: dict from the path of a dataset in Keras's file to a dict: `shape`, and `shards`, a
            list of pairs of a part's name and the dataset in it, in order of shard: what the base
            has of it.
        model: name of the part that is Keras's file without the rows of `tables`.
        deltas: the `Delta`s, the oldest first.
    """

    save_id: str
    parts: Tuple[CheckpointFile, ...]
    tables: Dict[str, Any]
    model: str
    deltas: Tuple[Delta, ...] = ()

    @property
    def saves(self) -> List[str]:
        """The `save_id`s of the base and its deltas, the oldest first."""
        base = self.deltas[0].after if self.deltas else self.save_id
        return [base] + [delta.save_id for delta in self.deltas]

    @property
    def newest_parts(self) -> List[CheckpointFile]:
        """The `CheckpointFile`s of the newest save, a list."""
        return [part for part in self.parts if part.name.startswith(self.save_id)]


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Writes a manifest, which makes its parts the checkpoint, and removes those of older saves.

    Args:
        folder: the checkpoint's folder.
        manifest: the `Manifest`.
    """
    data = dict(manifest._asdict(), parts=[part._asdict() for part in manifest.parts])
    data['deltas'] = [delta._asdict() for delta in manifest.deltas]
    data['format'] = FORMAT if manifest.deltas else _WHOLE
    with written_aside(os.path.join(folder, MANIFEST)) as aside, open(aside, 'w') as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.flush()
    keep = {part.name for part in manifest.parts}
    for name in os.listdir(folder):
        if re.match(r'\.?[0-9a-f]{16}-', name) and name not in keep:
            os.remove(os.path.join(folder, name))


def link_parts(parts: Iterable[CheckpointFile], before: str, folder: str) -> None:
    """Has a folder hold parts of another, too, by links: the rows are on the disk once.

    Args:
        parts: the `CheckpointFile`s.
        before: the folder that has them.
        folder: the folder that is to have them; it exists.

    Raises:
        OSError: the storage has no hard links, or a part is gone.
    """
    for part in parts:
        source, target = (os.path.join(one, part.name) for one in (before, folder))
        # An attempt that was broken off may have left one.
        if os.path.lexists(target):
            if os.path.samefile(source, target):
                continue
            os.remove(target)
        os.link(source, target)


def remove_parts(folder: str, save_id: str) -> None:
    """Removes the parts of a save that has failed; workers may do it at the same time.

    Args:
        folder: the checkpoint's folder.
        save_id: what the names of the parts start with.
    """
    for path in glob.glob(os.path.join(glob.escape(folder), save_id + '-*')):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def remove_sharded(folder: str) -> None:
    """Removes a checkpoint of several parts, and its folder unless there is something else in it.

    Args:
        folder: the checkpoint's folder.
    """
    parts = read_manifest(folder, checked=False).parts
    # Without its manifest, what is left is no checkpoint.
    for name in [MANIFEST] + [part.name for part in parts]:
        os.remove(os.path.join(folder, name))
    if not os.listdir(folder):
        os.rmdir(folder)


def read_manifest(folder: str, checked: bool = True) -> Manifest:
    """Reads the manifest of a checkpoint, and checks that each part is the one that was saved.

    Args:
        folder: the checkpoint's folder.
        checked: whether to read all parts and compare their checksums.

    Returns:
        A `Manifest`.

    Raises:
        CheckpointError: the manifest or a part is missing, cut short or not of this save.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path) as file:
            data = json.load(file)
        if data['format'] > FORMAT:
            raise CheckpointError(
                '%s has format %s, but this release reads up to %d; load it with the release that '
                'saved it, or a later one.' % (path, data['format'], FORMAT)
            )
        parts = tuple(CheckpointFile(**part) for part in data['parts'])
        deltas = tuple(Delta(**delta) for delta in data.get('deltas', ()))
        manifest = Manifest(data['save_id'], parts, data['tables'], data['model'], deltas)
    except FileNotFoundError as error:
        raise CheckpointError(
            '%s does not exist: the folder holds no complete checkpoint.' % path
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            '%s is damaged (%s); use an earlier checkpoint.' % (path, error)
        ) from error
    _check_chain(path, manifest)
    for part in manifest.parts:
        _check_part(os.path.join(folder, part.name), part, checked, _role_of(part, manifest))
    return manifest


def _check_chain(path: str, manifest: Manifest) -> None:
    """Checks that each delta comes after the save before it, and that all parts are theirs."""
    saves = manifest.saves
    before = [delta.after for delta in manifest.deltas]
    others = [part.name for part in manifest.parts if part.name.split('-')[0] not in saves]
    if before != saves[:-1] or saves[-1] != manifest.save_id or others:
        raise CheckpointError(
            '%s puts together what does not belong together: expected a base and deltas that each '
            'come after the one before, but %s; use an earlier checkpoint.'
            % (
                path,
                '%s is of none of them' % others[0]
                if others
                else 'saves %s come after %s' % (', '.join(saves[1:]), ', '.join(before)),
            )
        )


def _role_of(part: CheckpointFile, manifest: Manifest) -> str:
    """Words for what a part is in a chain, or `''` where there is none."""
    number = manifest.saves.index(part.name.split('-')[0])
    if not manifest.deltas:
        return ''
    if not number:
        return ', a part of the base on which %d deltas build,' % len(manifest.deltas)
    return ', a part of delta %d of %d,' % (number, len(manifest.deltas))


def _check_part(path: str, part: CheckpointFile, checked: bool, role: str) -> None:
    if not os.path.exists(path):
        raise CheckpointError(
            '%s%s is missing. All parts of a checkpoint must be in one folder, on storage that '
            'every host sees.' % (path, role)
        )
    size = os.path.getsize(path)
    if size != part.bytes:
        raise CheckpointError(
            '%s%s has %d bytes, but %d were saved: it is cut short or belongs to another save; use '
            'an earlier checkpoint.' % (path, role, size, part.bytes)
        )
    if checked and describe_part(path).sha256 != part.sha256:
        raise CheckpointError(
            '%s%s does not have the checksum that was saved: it is damaged or belongs to another '
            'save; use an earlier checkpoint.' % (path, role)
        )


def remove_leftovers(pattern: str) -> None:
    """Removes what `written_aside` left of files of a pattern when its process was killed.

    Args:
        pattern: as `saved_under` takes it.
    """
    folder, name = os.path.split(pattern)
    for aside in glob.glob(path_patterns.wildcard(os.path.join(folder, '.%s.' % name)) + '*.part'):
        hidden = re.match(r'\.(.+)\.[0-9a-f]{16}\.part$', os.path.basename(aside))
        path = hidden and os.path.join(os.path.dirname(aside), hidden.group(1))
        if path and path_patterns.can_name(pattern, path):
            os.remove(aside)


def is_sharded(path: str) -> bool:
    """Whether a path is that of a checkpoint of several parts, rather than of one file."""
    return os.path.isdir(path)


def saved_under(pattern: str) -> List[str]:
    """The files and folders that stand where `pattern` may have named one, oldest first.

    Args:
        pattern: a path with fields as `str.format` fills them, for instance
            `'model-{epoch:02d}.h5'`. Any text passes for a value.

    Returns:
        A list of paths.

    Example:
        ```python
        >>> saved_under('no-such-folder/{epoch}.h5')
        []
        ```
    """
    return sorted(glob.glob(path_patterns.wildcard(pattern)), key=_age)


def _age(path: str) -> Tuple[float, List[Tuple[int, str]]]:
    """Sorts by time; where the file system has the same for two, as people sort numbers."""
    # The manifest is written last.
    manifest = os.path.join(path, MANIFEST)
    time = os.path.getmtime(manifest if os.path.exists(manifest) else path)
    parts = re.split(r'(\d+)', path)
    return time, [(int(part), '') if part.isdigit() else (-1, part) for part in parts]
