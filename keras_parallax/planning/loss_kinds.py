# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a term of a loss grows with its batch, found from the values that it has for some batches."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

#: The term of two batches joined is the mean of their terms.
MEAN = 'mean'
#: The term of two batches joined is the sum of their terms.
SUM = 'sum'
#: The term of two batches joined is neither.
NEITHER = 'neither'
#: The values do not tell, for instance because all of them are 0.
UNKNOWN = 'unknown'

#: How far rounding moves a term, as a fraction of the greatest value, by the type of its values.
#: A square root of a mean is as far from a mean if the terms of two batches differ by 2 %.
_ROUNDING = {2: 1e-2, 4: 5e-5, 8: 1e-9}


class Trial(NamedTuple):
    """What a term is for two batches of equal size, and for the two joined; arrays or numbers.

    A term that is an array counts as the sum of its entries, for its gradient is the sum's.
    """

    first: float
    second: float
    joined: float


def trial_of(first: np.ndarray, second: np.ndarray, joined: np.ndarray) -> Tuple[Trial, int]:
    """The `Trial` of three values of a term, and the bytes of a number in them."""
    values = [np.asarray(value) for value in (first, second, joined)]
    sums = [float(np.sum(value, dtype=np.float64)) for value in values]
    return Trial(*sums), values[0].dtype.itemsize


def kind_of(trial: Trial, number_bytes: int = 4) -> str:
    """How a term grows with its batch, as one trial tells: one of the constants of this module.

    Example:
        ```python
        >>> kind_of(Trial(2.0, 3.0, 5.0)), kind_of(Trial(2.0, 3.0, 2.5))
        ('sum', 'mean')
        >>> kind_of(Trial(3.0, 4.0, 5.0)), kind_of(Trial(0.0, 0.0, 0.0))
        ('neither', 'unknown')
        ```
    """
    scale = max(map(abs, trial))
    if scale == 0:
        return UNKNOWN
    if not np.isfinite(scale):
        return NEITHER if np.isfinite(trial.first) else UNKNOWN
    total, rounding = trial.first + trial.second, _ROUNDING[number_bytes] * scale
    fits = [
        kind
        for kind, expected in ((MEAN, total / 2), (SUM, total))
        if abs(trial.joined - expected) <= rounding
    ]
    if not fits:
        return NEITHER
    return fits[0] if len(fits) == 1 else UNKNOWN


def joint_kind(kinds: Sequence[str]) -> str:
    """The kind of a term that several trials have found, or several workers: what all agree on.

    Example:
        ```python
        >>> joint_kind(['sum', 'unknown']), joint_kind(['sum', 'mean']), joint_kind([])
        ('sum', 'neither', 'unknown')
        ```
    """
    known = {kind for kind in kinds if kind != UNKNOWN}
    if not known:
        return UNKNOWN
    return known.pop() if len(known) == 1 else NEITHER


def telling(trials: Sequence[Trial], kind: str, number_bytes: int = 4) -> Optional[Trial]:
    """The first of some trials that has found a kind, or else the first one, if there is any."""
    found: List[Trial] = [trial for trial in trials if kind_of(trial, number_bytes) == kind]
    return next(iter(found or trials), None)
