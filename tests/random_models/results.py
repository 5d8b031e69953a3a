# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a script has shown, and how the results of two workers are compared with plain Keras's."""

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

#: Greatest difference of a number, relative to the largest one of its array.
TOLERANCE = {'float32': 2e-5, 'float64': 1e-9}
#: Names of classes of errors that refuse a script with a sentence.
REFUSING = ('ParallaxError', 'PlanError', 'ScopeError', 'CheckpointError')


class Shown(NamedTuple):
    """What a script shows after an action.

    Attributes:
        label: the action.
        numbers: arrays by name: losses, metrics, predictions.
        weights: names and values of all weights.
    """

    label: str
    numbers: Dict[str, List[np.ndarray]]
    weights: List[Tuple[str, np.ndarray]]


class Error(NamedTuple):
    """An exception: the names of its classes, the most special first; text; line of the body."""

    classes: List[str]
    text: str
    trace: str
    line: int


class Result(NamedTuple):
    """What a process shows while it runs a script.

    Attributes:
        shown: what it shows.
        error: what ends it, if anything does.
        seconds: the time of processor that it takes.
    """

    shown: List[Shown]
    error: Optional[Error]
    seconds: float = 0.0


def is_refusal(results: List[Result]) -> bool:
    """Whether all workers refuse the script alike, by an error of ours that has a sentence."""
    errors = [result.error for result in results]
    refuse = all(error and error.classes[0] in REFUSING for error in errors)
    return refuse and not fail_apart(results)


def fail_apart(results: List[Result]) -> bool:
    """Whether the workers do not all end alike: some fail elsewhere than others, or do not fail."""
    return (
        len({result.error and (result.error.classes[0], result.error.line) for result in results})
        > 1
    )


def differences(plain: Result, ranks: List[Result], tolerance: float) -> List[str]:
    """What the first action shows in which a worker has other numbers than plain Keras.

    Args:
        plain: the result of plain Keras.
        ranks: those of the workers, which may end earlier.
        tolerance: the greatest difference, relative to the largest entry of an array.
    """
    for number, expected in enumerate(plain.shown):
        found = []
        for rank, result in enumerate(ranks):
            if number < len(result.shown):
                found += _of_action(expected, result.shown[number], tolerance, rank)
        if found:
            return found
    return []


def _of_action(expected: Shown, shown: Shown, tolerance: float, rank: int) -> List[str]:
    where = 'rank %d, %s' % (rank, shown.label)
    found = []
    if expected.label != shown.label or len(expected.weights) != len(shown.weights):
        return ['%s: plain Keras has %s' % (where, expected.label)]
    missing = set(expected.numbers) - set(shown.numbers)
    more = set(shown.numbers) - set(expected.numbers)
    # A metric may also be logged under the name that it has in Keras's default mode.
    same = {np.asarray(value).tobytes() for value in map(shown.numbers.get, expected.numbers)}
    if missing or any(np.asarray(shown.numbers[name]).tobytes() not in same for name in more):
        names = sorted(shown.numbers), sorted(expected.numbers)
        found.append('%s: numbers are %s, not %s' % ((where,) + names))
    for name in sorted(set(expected.numbers) & set(shown.numbers)):
        pairs = zip(expected.numbers[name], shown.numbers[name])
        for plain, ours in pairs:
            found += _of_array('%s: %s' % (where, name), plain, ours, tolerance)
    for (name, plain), (_, ours) in zip(expected.weights, shown.weights):
        found += _of_array('%s: %s' % (where, name), plain, ours, tolerance)
    return found


def _of_array(where: str, plain: np.ndarray, ours: np.ndarray, tolerance: float) -> List[str]:
    plain, ours = np.asarray(plain, float), np.asarray(ours, float)
    if plain.shape != ours.shape:
        return ['%s: shape %s, plain Keras has %s' % (where, ours.shape, plain.shape)]
    largest = np.abs(plain[np.isfinite(plain)]).max() if np.isfinite(plain).any() else 1.0
    close = np.isclose(plain, ours, rtol=0, atol=tolerance * max(largest, 1e-3), equal_nan=True)
    if close.all():
        return []
    gaps = np.where(close, -1, np.nan_to_num(np.abs(plain - ours)))
    index = np.unravel_index(gaps.argmax(), plain.shape)
    place = list(map(int, index)) if index else ''
    return ['%s%s: %.7g, plain Keras has %.7g' % (where, place, ours[index], plain[index])]
