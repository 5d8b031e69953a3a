# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How full a table is whose rows ids are given and lose."""

import math
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, TypeVar

from typing_extensions import Protocol


class RowFill(NamedTuple):
    """What has come of the rows of a table.

    Attributes:
        capacity: how many rows ids may have.
        rows_used: how many they have now.
        rows_given, rows_evicted: how often one was given, and taken away, since the job began.
        ids_left_out: how often a new id of a training batch has found no row.
    """

    capacity: int
    rows_used: int
    rows_given: int
    rows_evicted: int
    ids_left_out: int

    @property
    def words(self) -> str:
        """The same, as text."""
        return (
            '{0.rows_used:,} of {0.capacity:,} rows have an id; {0.rows_given:,} were given, '
            '{0.rows_evicted:,} taken away, and {0.ids_left_out:,} times an id found none'.format(
                self
            )
        )


#: By how many standard deviations of a shard's number of ids a capacity exceeds the mean: for a
#: hundred shards, one of more ids comes in fewer than one of a hundred tables.
_DEVIATIONS = 4


def capacity_for(ids: int, shards: int) -> int:
    """The capacity of a table whose shards have a row for each of some ids.

    An id belongs to a shard by its hash, so that shards get unequal numbers of ids.

    Example:
        ```python
        >>> capacity_for(1000, 1), capacity_for(1000, 4)
        (1000, 1220)
        ```
    """
    mean = ids / shards
    deviation = math.sqrt(mean * (1 - 1 / shards))
    return shards * math.ceil(mean + _DEVIATIONS * deviation)


def full_words(used: List[int], rows: List[int], capacity: int) -> str:
    """Sentences about a table that has no row left for a new id.

    Args:
        used: for each shard how many of its rows have an id.
        rows: for each shard how many rows ids may have.
        capacity: that of the table.
    """
    count = len(rows)
    if count == 1:
        return '%d of its %d rows have an id.' % (used[0], rows[0])
    fullest = min(range(count), key=lambda shard: rows[shard] - used[shard])
    return (
        'Shard %d of its %d has an id for %d of %d rows, the table for %d of %d. An id belongs to '
        'a shard by its hash, so that for %d ids on %d shards a capacity of %d is needed.'
        % (
            fullest, count, used[fullest], rows[fullest], sum(used), sum(rows), capacity, count,
            capacity_for(capacity, count),
        )
    )  # fmt: skip


class _HasFill(Protocol):
    """A `planned_variables.PlannedVariable`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def fill(self) -> Optional[RowFill]:
        """How full it is, if its rows are given to ids."""


class HasFills(Protocol):
    """A `plan.Plan`."""

    @property
    def variables(self) -> Sequence[_HasFill]:
        """Its variables."""


_Plan = TypeVar('_Plan', bound=Any)


def with_fills(plan: _Plan, fills: Mapping[str, RowFill]) -> _Plan:
    """A `Plan` whose variables have their `RowFill`, as a dict from names has them."""
    variables = [planned._replace(fill=fills.get(planned.name)) for planned in plan.variables]
    return plan._replace(variables=tuple(variables))


def fill_lines(plan: HasFills) -> List[str]:
    """How full the tables of a plan are: lines of text."""
    return [
        'Rows of %s: %s' % (planned.name, planned.fill.words)
        for planned in plan.variables
        if planned.fill is not None
    ]
