# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How far the clocks of workers are apart, found from collectives that all of them have made."""

from typing import List, NamedTuple, Sequence, Tuple


class Offset(NamedTuple):
    """A clock against that of rank 0.

    Attributes:
        seconds: how much it is ahead.
        error: by how much that may be wrong, at most, in seconds.
    """

    seconds: float
    error: float


def offsets(rounds: Sequence[Sequence[Tuple[float, float]]]) -> List[Offset]:
    """The `Offset` of each worker's clock, from collectives that none leaves before all have come.

    If rank 0 came at `a` and left at `b` by its clock, and another at `c` and left at `d` by its
    own, which is ahead by `x`, then `c - x <= b` and `a <= d - x`: so `x` lies between `c - b` and
    `d - a`. Every collective narrows that down; what is told is the middle, or 0 if that is between
    them, for clocks of one host or of a well kept network are right.

    Args:
        rounds: for each collective a list of pairs, of the moments when each worker has come and
            left, in seconds by its own clock.

    Example:
        ```python
        >>> offsets([[(0.0, 1.0), (5.5, 6.0)]])
        [Offset(seconds=0.0, error=0.0), Offset(seconds=5.25, error=0.75)]
        ```
    """
    found = [Offset(0.0, 0.0)]
    for rank in range(1, len(rounds[0])):
        least = max(of_ranks[rank][0] - of_ranks[0][1] for of_ranks in rounds)
        most = min(of_ranks[rank][1] - of_ranks[0][0] for of_ranks in rounds)
        middle, error = (least + most) / 2, abs(most - least) / 2
        agrees = least <= 0 <= most
        found.append(Offset(0.0, max(-least, most)) if agrees else Offset(middle, error))
    return found
