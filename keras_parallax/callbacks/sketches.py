# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sketches of weights: a few numbers by which workers compare large arrays."""

from typing import Any, List, NamedTuple, Sequence

import numpy as np

from keras_parallax.errors import ReplicaMismatchError

#: How far replicas may be apart, as a fraction of a weight's norm. Workers may add the same numbers
#: in another order, which moves replicas apart by a rounding error a step.
ROUNDING = 1e-4


#: The signs of a `Sketch`. Their number is prime, so that the rows of a matrix get different signs.
_SIGNS = np.random.RandomState(0).choice([-1.0, 1.0], 65521)

#: A warning names as many weights at the most.
_MOST_SHOWN = 8


class Sketch:
    """Two numbers that tell an array from others: its norm, and its sum with fixed signs.

    `Rows.copy_to` takes it for an array, so that it can sketch a table without holding all of it.
    """

    def __init__(self) -> None:
        self._squares, self._signed, self._seen = 0.0, 0.0, 0

    def __setitem__(self, places: slice, values: Any) -> None:
        self.add(values)

    def add(self, value: Any) -> 'Sketch':
        """Takes the next entries of the array."""
        flat, begin = np.ravel(value), 0
        # Part by part: a copy in double precision may be larger than what memory is left.
        while begin < flat.size:
            first = self._seen % len(_SIGNS)
            part = flat[begin : begin + len(_SIGNS) - first].astype(np.float64)
            self._squares += part.dot(part)
            self._signed += part.dot(_SIGNS[first : first + len(part)])
            begin += len(part)
            self._seen += len(part)
        return self

    @property
    def numbers(self) -> List[float]:
        """The norm, and the sum with signs."""
        return [float(np.sqrt(self._squares)), float(self._signed)]


def sketch(value: Any) -> List[float]:
    """The numbers of the `Sketch` of an array."""
    return Sketch().add(value).numbers


class Difference(NamedTuple):
    """A weight that two workers have different values of.

    Attributes:
        name: the name of the weight.
        rank: the worker that differs most from rank 0.
        distance: how far, as a fraction of the norm of rank 0's. A sketch tells its magnitude.
    """

    name: str
    rank: int
    distance: float


def differences(
    sketches: Sequence[Sequence[Sequence[float]]], names: Sequence[str], rounding: float = ROUNDING
) -> List[Difference]:
    """The weights that differ between workers by more than `rounding`, a fraction of their norms.

    Args:
        sketches: for each worker, the numbers of the `Sketch` of each weight.
        names: the names of the weights.
        rounding: the largest distance that is no difference.
    """
    found = []
    for name, of_ranks in zip(names, zip(*sketches)):
        norm, expected = of_ranks[0]
        apart = [_distance(norm, expected, signed) for _, signed in of_ranks]
        rank = int(np.argmax(apart))
        if apart[rank] > rounding:
            found.append(Difference(name, rank, apart[rank]))
    return found


def _distance(norm: float, expected: float, signed: float) -> float:
    finite = np.isfinite([norm, expected]).all(), np.isfinite(signed)
    if signed == expected or not any(finite):
        return 0.0  # What is no number on all workers is left to others to complain of.
    return abs(signed - expected) / norm if all(finite) and norm else np.inf


def check_sketches(
    sketches: Sequence[Sequence[Sequence[float]]], names: Sequence[str], when: str
) -> None:
    """Raises `ReplicaMismatchError` if a weight differs between workers by more than rounding."""
    for one in differences(sketches, names)[:1]:
        raise ReplicaMismatchError(
            'The workers have different values of the dense weight %s %s: ranks 0 and %d '
            'differ, perhaps because a callback or the script has set it on one of them '
            'only. Set weights on every worker alike, or between two calls of fit, which '
            'begins with those of rank 0.' % (one.name, when, one.rank)
        )


def warning_of(found: Sequence[Difference]) -> str:
    """The text of the warning about weights that differ between workers when `fit` ends.

    Example:
        ```python
        >>> warning_of([Difference('out/kernel', 1, 0.254)]).split('. ')[0]
        'The workers have different weights at the end of fit: out/kernel (rank 1, by about 25 %)'
        ```
    """
    farthest = sorted(found, key=lambda one: -one.distance)
    shown = [
        '%s (rank %d, by about %.2g %%)' % (one.name, one.rank, 100 * one.distance)
        for one in farthest[:_MOST_SHOWN]
    ]
    if len(found) > _MOST_SHOWN:
        shown.append('and %d more' % (len(found) - _MOST_SHOWN))
    return (
        'The workers have different weights at the end of fit: %s. A callback has set weights on '
        'some workers only, such as EarlyStopping(restore_best_weights=True) on one worker. All '
        'workers now take the weights of rank 0; sharded tables keep the rows that were set last. '
        'Give the callback to every worker.' % ', '.join(shown)
    )
