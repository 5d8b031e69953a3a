# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a plan says of each variable, and what the parts of `planning/` ask of a plan. Pure data."""

import warnings
from typing import NamedTuple, Optional, Tuple

import numpy as np
from typing_extensions import Protocol

from keras_parallax.planning import classify as rules
from keras_parallax.planning import costs
from keras_parallax.planning.row_fill import RowFill
from keras_parallax.planning.units import counted, numbered


class Shard(NamedTuple):
    """A part of a table.

    Row `r` of a table of `n` shards is row `r // n` of shard `r % n`: the frequent ids, which are
    usually the small ones, spread over all shards.
    """

    server: int
    rows: int


class Update(NamedTuple):
    """How a variable is updated.

    Attributes:
        words: in words.
        whole: whether all of its rows are rewritten every step.
        slots: how many times the variable's size its slots have, `None` if it is not known.
    """

    words: str
    whole: bool = False
    slots: Optional[float] = None


class PlannedVariable(NamedTuple):
    """What the plan says of one variable.

    Attributes:
        name: the variable's name without `:0`.
        shape: its shape.
        dtype: its dtype's name.
        kind: `'dense'` or `'sparse'`.
        reason: why, in words.
        shards: the `Shard`s of a variable on servers; empty for a variable that every worker
            holds.
        density: the fraction of its rows that a worker's batch touches, `None` if it is not known;
            1 for what is read whole.
        measured: whether `density` was counted in batches of the job.
        update: the `Update` by which the optimizer moves it, `None` if no optimizer is known.
        count_reason: why it has as many shards, in words; empty if it has none.
        fill: the `RowFill` of a table whose rows are given to ids, once it trains; else `None`.
        row_dtype: the dtype's name in which servers are to keep its rows; `None` for its own.
        row_mask: as of the `VariableUse`.
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    kind: str
    reason: str
    shards: Tuple[Shard, ...] = ()
    density: Optional[float] = None
    measured: bool = False
    update: Optional[Update] = None
    count_reason: str = ''
    fill: Optional[RowFill] = None
    row_dtype: Optional[str] = None
    row_mask: bool = False

    @property
    def alpha(self) -> Optional[float]:
        """The former name of `density`."""
        warnings.warn(
            'PlannedVariable.alpha is called density now; read `.density` instead.',
            DeprecationWarning,
            stacklevel=2,
        )
        return self.density

    @property
    def rows(self) -> int:
        """Its number of rows; a scalar has one."""
        return self.shape[0] if self.shape else 1

    @property
    def exchange(self) -> str:
        """How it is exchanged: through `'servers'`, by `'allgather'` or by `'allreduce'`."""
        if self.shards:
            return 'servers'
        return 'allgather' if self.kind == rules.SPARSE else 'allreduce'

    @property
    def bytes(self) -> int:
        """Size of the variable in bytes, as the model sees it."""
        return self._bytes_of(self.dtype)

    @property
    def gradient_bytes(self) -> int:
        """Size in bytes of what is sent to exchange its gradient whole."""
        return rules.numbers_in(self.shape, self.row_mask) * np.dtype(self.dtype).itemsize

    @property
    def stored_dtype(self) -> str:
        """The dtype's name of what holds it: with shards, that of its rows on servers."""
        return self.row_dtype if self.shards and self.row_dtype else self.dtype

    @property
    def stored_bytes(self) -> int:
        """Size in bytes of what holds it."""
        return self._bytes_of(self.stored_dtype)

    def _bytes_of(self, dtype: str) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    @property
    def place(self) -> str:
        """Where the variable lives, in words."""
        if not self.shards:
            return 'on every rank'
        servers = sorted({shard.server for shard in self.shards})
        words = '%s on %s' % (counted(len(self.shards), 'shard'), numbered('server', servers))
        if self.stored_dtype != self.dtype:
            words += ', rows of %d bits' % (8 * np.dtype(self.stored_dtype).itemsize)
        return words


class PlannedModel(Protocol):
    """What costs and memory are reckoned from: a `plan.Plan`, which says what each part is."""

    @property
    def variables(self) -> Tuple[PlannedVariable, ...]:
        """The `PlannedVariable`s."""

    @property
    def servers(self) -> int:
        """Number of servers."""

    @property
    def cluster(self) -> Optional[costs.Cluster]:
        """The cluster that it is for; `None` if every worker works for itself."""
