# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which tables a search for the best number of shards is for, and the least number it tries."""

import numbers
from typing import Any, Mapping, NamedTuple, Optional

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures

#: What a user writes in place of a number.
SEARCH = 'search'


class Found(int):
    """A number of shards that a search tries, or has found to be the fastest."""


class Search(NamedTuple):
    """The `partitions` of a `plan_request.Request` before a number of shards is found.

    Attributes:
        chosen: dict from names of tables to numbers of shards, or to `SEARCH` for those that the
            search is for; `None` if it is for all.
        least: the smallest number that it tries.
    """

    chosen: Optional[Mapping[str, Any]] = None
    least: int = 1

    def is_for(self, name: str) -> bool:
        """Whether the table of that name is one of those that get the number that is found."""
        return self.chosen is None or self.chosen.get(name) == SEARCH

    def wanted(self, name: str, servers: int) -> Optional[int]:
        """The number of shards of a table to begin with, `None` to leave it to the cost model."""
        if self.chosen is not None and not self.is_for(name):
            return self.chosen.get(name)
        return max(self.least, servers) if self.least > 1 else None

    def with_count(self, count: int) -> Any:
        """What `make_plan` takes as `partitions` once a number of shards is to be used."""
        count = Found(count)
        if self.chosen is None:
            return count
        return {name: count if number == SEARCH else number for name, number in self.chosen.items()}


def requested_partitions(partitions: Any, min_partitions: Any = None) -> Any:
    """What a user has given for `partitions`, as a `Search` if there is one to make.

    Raises:
        PlanError: it is neither a number, nor a dict, nor `'search'`; `min_partitions` is no whole
            number from 1, or comes without a search.

    Example:
        ```python
        >>> requested_partitions({'words': 'search', 'items': 2}, 4)
        Search(chosen={'words': 'search', 'items': 2}, least=4)
        >>> requested_partitions(8)
        8
        ```
    """
    if isinstance(partitions, str) and partitions != SEARCH:
        raise PlanError(
            "partitions must be a number, a dict from names of variables to numbers, or 'search', "
            'but %r was given.' % partitions
        )
    chosen = dict(partitions) if isinstance(partitions, Mapping) else None
    if partitions != SEARCH and SEARCH not in (chosen or {}).values():
        if min_partitions is not None:
            raise PlanError(
                'min_partitions=%r is the least number of shards that a search tries, but '
                "partitions=%r searches for none; give 'search', for all tables or for some in a "
                'dict, or leave min_partitions out.' % (min_partitions, partitions)
            )
        return partitions
    least = 1 if min_partitions is None else min_partitions
    if isinstance(least, bool) or not isinstance(least, numbers.Integral) or least < 1:
        raise PlanError(
            'min_partitions must be a whole number from 1, but %r was given.' % (min_partitions,)
        )
    return Search(chosen, int(least))


def check_search(partitions: Any, architecture: str, sync: bool) -> None:
    """Refuses a `Search` that makes no sense, with a `PlanError`."""
    if isinstance(partitions, Search) and (architecture == architectures.ALLREDUCE or not sync):
        raise PlanError(
            "partitions='search' measures synchronous steps with tables on servers, but %s was "
            'given; leave one of the two out.'
            % ('sync=False' if not sync else 'architecture=%r' % architecture)
        )
