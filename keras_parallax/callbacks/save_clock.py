# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When it is time to save by the clock: all workers after the same batch, without asking each time.

The clock is that of rank 0. The workers look at it together, which is a collective, and when they
have looked they all know after how many batches they look again: half of those that fit into the
time that is left. So there are as many looks between two saves as the number of batches between
them has binary digits, and a save is not late as long as batches do not get slower.
"""

import time
from typing import Any, Callable, List, Optional

#: Seconds that a batch takes at least, in the reckoning.
_SHORTEST = 1e-6


def batches_until_look(left: float, seconds_per_batch: float) -> int:
    """After how many batches to look at the clock again.

    Args:
        left: seconds until it is time to save.
        seconds_per_batch: how long a batch has taken so far.

    Example:
        ```python
        >>> batches_until_look(60.0, 0.5), batches_until_look(0.7, 0.5)
        (60, 1)
        ```
    """
    return max(1, int(left / max(seconds_per_batch, _SHORTEST) / 2))


class SaveClock:
    """Tells after which batches so many seconds are over since the last save.

    Args:
        seconds: how many.
        now: function that returns the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._last: Optional[float] = None
        self._pace: Optional[float] = None
        self._batches, self._until_look = 0, 1

    def begin(self) -> None:
        """Starts the clock, unless it runs already."""
        if self._last is None:
            self._last = self._now()

    def is_due(self, gather: Callable[[Any], List[Any]]) -> bool:
        """Whether to save, after a batch. A collective call when it is time to look.

        Args:
            gather: function that gives each worker's value.
        """
        self._batches += 1
        self._until_look -= 1
        if self._until_look > 0:
            return False
        over = gather(self._now() - (self._last or 0.0))[0]
        pace = self._pace = over / self._batches
        left = self._seconds - over
        self._until_look = batches_until_look(left, pace)
        return left <= 0

    def restart(self) -> None:
        """Begins anew, after a save of all workers."""
        self._last, self._batches = self._now(), 0
        self._until_look = batches_until_look(self._seconds, self._pace) if self._pace else 1
