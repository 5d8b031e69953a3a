# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A base and its deltas: when the next save is a delta, and what it makes of the manifest. Pure."""

from typing import Any, Dict, Iterable, NamedTuple, Optional, Tuple

from keras_parallax.checkpoint.manifest import CheckpointFile, Delta, Manifest

#: How many deltas a base may have, unless it is said: resuming reads them one after the other.
MAX_DELTAS = 50


class Limits(NamedTuple):
    """When a save is a new base.

    Attributes:
        deltas: how many deltas a base may have.
        bytes: how many bytes of rows they may have together; `None` for as many as the base.
    """

    deltas: int = MAX_DELTAS
    bytes: Optional[int] = None


class Chain(NamedTuple):
    """What is known of the base and the deltas that the next save may build on.

    Attributes:
        path: the folder of the newest save.
        save_id: that of the newest save.
        base_bytes: the size of all rows.
        delta_bytes: for each delta the size of its rows, with their numbers.
    """

    path: str
    save_id: str
    base_bytes: int
    delta_bytes: Tuple[int, ...] = ()

    def takes(self, bytes_of_rows: int, limits: Limits) -> bool:
        """Whether the next save is a delta of so many bytes, rather than a base.

        With as many bytes as the base has, it is better written as one.

        Example:
            ```python
            >>> chain = Chain('model', 'id', base_bytes=100, delta_bytes=(40,))
            >>> [chain.takes(size, Limits()) for size in (59, 60)]
            [True, False]
            ```
        """
        total = sum(self.delta_bytes) + bytes_of_rows
        most = self.base_bytes if limits.bytes is None else limits.bytes
        is_small = bytes_of_rows < self.base_bytes and total < most
        return is_small and len(self.delta_bytes) < limits.deltas

    def with_delta(self, path: str, save_id: str, bytes_of_rows: int) -> 'Chain':
        """The chain after one more delta."""
        delta_bytes = self.delta_bytes + (bytes_of_rows,)
        return self._replace(path=path, save_id=save_id, delta_bytes=delta_bytes)


def kept_parts(manifest: Manifest) -> Tuple[CheckpointFile, ...]:
    """The `CheckpointFile`s of a checkpoint that the next delta builds on: those with rows.

    Args:
        manifest: the checkpoint's `Manifest`.

    Returns:
        A tuple. What else the newest save has, each save has whole.
    """
    names = {part for table in manifest.tables.values() for part, _ in table['shards']}
    for delta in manifest.deltas:
        names.update(shard[1] for shards in delta.tables.values() for shard in shards)
    return tuple(part for part in manifest.parts if part.name in names)


def with_delta(
    manifest: Manifest,
    save_id: str,
    parts: Iterable[CheckpointFile],
    changed: Dict[str, Any],
    model: str,
) -> Manifest:
    """The `Manifest` of a checkpoint after one more delta.

    Args:
        manifest: that of the checkpoint before.
        save_id: names the delta.
        parts: its `CheckpointFile`s.
        changed: the `tables` of the `Delta`.
        model: name of the part that is Keras's file without the rows of tables.
    """
    delta = Delta(save_id, manifest.save_id, changed)
    return manifest._replace(
        save_id=save_id,
        parts=kept_parts(manifest) + tuple(parts),
        model=model,
        deltas=manifest.deltas + (delta,),
    )
