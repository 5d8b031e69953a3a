# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The search for the best number of shards: which numbers to measure, and what follows from them.

Pure functions over a list of measurements, pairs of a number of shards and the seconds of a step.
The method is that of Parallax (Kim et al., EuroSys 2019, arXiv 1808.02621): measure some numbers,
fit a curve for the time of a step with `P` shards, take its lowest point.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy.optimize import nnls
from tabulate import tabulate

from keras_parallax.planning.units import counted

#: The curve has three unknowns.
_POINTS_FOR_FIT = 3


class Fit(NamedTuple):
    """The curve `t(P) = constant + divided / P + growing * P`, in seconds.

    Attributes:
        constant: what does not depend on the number of shards, computation above all.
        divided: what shards share, as the update of a table's rows.
        growing: what each shard adds, as its messages.
    """

    constant: float
    divided: float
    growing: float

    def seconds(self, shards: float) -> float:
        """Time of a step with `shards` shards."""
        return self.constant + self.divided / shards + self.growing * shards

    def best(self, lowest: int, highest: int) -> int:
        """The number of shards from `lowest` to `highest` with the shortest step."""
        # The curve falls, then rises: the best whole number is beside its lowest point.
        if self.growing * highest**2 > self.divided:
            turn = (self.divided / self.growing) ** 0.5
            around = [int(turn), int(turn) + 1]
        else:
            around = [highest]
        return min([max(lowest, min(highest, near)) for near in around], key=self.seconds)


def next_count(
    measured: Sequence[Tuple[int, float]], start: int, least: int, most: int, limit: int = 10
) -> Optional[int]:
    """The number of shards to measure next, or `None` when the search is over.

    Doubles from `start`, the number of servers, while the step gets faster, and then halves from
    `start` while it does. It goes no lower than `least` and no higher than `most`, as no table can
    have more shards than rows, and stops after `limit` measurements, which are `measured` in the
    order in which they were asked for.

    Example:
        ```python
        >>> next_count([(4, 0.50), (8, 0.40)], start=4, least=1, most=1000)
        16
        >>> next_count([(4, 0.50), (8, 0.60)], start=4, least=1, most=1000)
        2
        ```
    """
    if len(measured) >= limit:
        return None
    least = max(1, min(least, most))
    start = max(least, min(start, most))
    if not measured:
        return start
    rising = [measured[0]] + [pair for pair in measured if pair[0] > start]
    falling = [measured[0]] + [pair for pair in measured if pair[0] < start]
    if len(falling) == 1 and _improves(rising):
        doubled = min(2 * rising[-1][0], most)
        if doubled > rising[-1][0]:
            return doubled
    if _improves(falling) and falling[-1][0] > least:
        return max(least, falling[-1][0] // 2)
    return None


def _improves(pairs: Sequence[Tuple[int, float]]) -> bool:
    return len(pairs) == 1 or pairs[-1][1] < pairs[-2][1]


def fit(measured: Sequence[Tuple[int, float]]) -> Fit:
    """Fits the curve to pairs of a number of shards and seconds, by least squares: a `Fit`.

    No part of it may be negative. Fewer than three different numbers are a `ValueError`.
    """
    if len({shards for shards, _ in measured}) < _POINTS_FOR_FIT:
        raise ValueError(
            'A fit needs measurements of %d numbers of shards, but there are only those of %s.'
            % (_POINTS_FOR_FIT, ', '.join(map(str, sorted({shards for shards, _ in measured}))))
        )
    shards, seconds = np.array(measured, dtype=float).T
    terms = np.stack([np.ones_like(shards), 1.0 / shards, shards], axis=1)
    # Columns of one length: they differ by the square of the number of shards otherwise.
    lengths = np.linalg.norm(terms, axis=0)
    scaled, _ = nnls(terms / lengths, seconds)
    return Fit(*map(float, scaled / lengths))


class Choice(NamedTuple):
    """What a search comes to.

    Attributes:
        shards: the number of shards to use.
        fit: the `Fit`, or `None` where too few numbers could be measured.
        measured: the measurements.
    """

    shards: int
    fit: Optional[Fit]
    measured: Tuple[Tuple[int, float], ...]

    def report(self) -> str:
        """What was tried, the fit and the choice, as text of several lines."""
        rows = []
        for shards, seconds in sorted(self.measured):
            fitted = self.fit.seconds(shards) * 1e3 if self.fit else None
            rows.append((shards, seconds * 1e3, fitted))
        headers = ('shards', 'measured (ms)', 'fitted (ms)')
        lines = [tabulate(rows, headers, tablefmt='simple', floatfmt=('g', '.2f', '.2f'))]
        if self.fit:
            lines.append(
                'Fit: t(P) = %.3g + %.3g / P + %.3g * P milliseconds'
                % tuple(1e3 * part for part in self.fit)
            )
        else:
            lines.append('Too few numbers of shards for a fit: the fastest one measured is taken.')
        lines.append('Chosen: %s a table' % counted(self.shards, 'shard'))
        return '\n'.join(line.rstrip() for line in '\n'.join(lines).splitlines())


def choose(measured: Sequence[Tuple[int, float]]) -> Choice:
    """The `Choice`: the fit's best within what was tried, of one measurement at least."""
    tried = [shards for shards, _ in measured]
    if len(set(tried)) < _POINTS_FOR_FIT:
        fastest = min(measured, key=lambda pair: pair[1])[0]
        return Choice(fastest, None, tuple(measured))
    fitted = fit(measured)
    # Outside of what was tried, the curve is a guess.
    return Choice(fitted.best(min(tried), max(tried)), fitted, tuple(measured))
