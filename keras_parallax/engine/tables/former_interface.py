# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is asked of the former storage of a sharded table, which is built on the table."""

from typing import AbstractSet, ContextManager, Dict, Iterable, List, Set

from typing_extensions import Protocol

from keras_parallax.framework_types import Operation, Tensor


class FormerInterface(Protocol):
    """A `former_storage.FormerStorage`, which says what each part is."""

    resting: Set[Operation]

    @property
    def whole(self) -> Tensor:
        """The whole table, brought together from its shards."""

    @property
    def wholes(self) -> List[Tensor]:
        """The tensors of the whole table that models compute with."""

    @property
    def storage(self) -> Tensor:
        """The tensor that stands for the storage."""

    @property
    def written(self) -> List[Operation]:
        """The operations that write to the table."""

    def own(self) -> ContextManager[None]:
        """While open, what is built to use the storage uses the storage itself for good."""

    def leave(self, operations: Iterable[Operation]) -> None:
        """Has operations that use the storage use the storage itself for good."""

    def wake(self, operations: AbstractSet[Operation]) -> bool:
        """Has the next `redirect` see to those of some operations that rest."""

    def replace(self, tensor: Tensor, replacement: Tensor) -> None:
        """Has whatever reads a tensor, now or later, read another."""

    def fetches(self) -> Dict[Tensor, Tensor]:
        """What a session is to give for tensors that are not computed any more."""

    def redirect_reads(self) -> None:
        """Has what reads the storage read the shards."""

    def redirect_writes(self) -> bool:
        """Has what writes to the storage write to the shards, if there is anything."""

    def rebuild(self) -> None:
        """Has all that was redirected go where the table lies now."""
