# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the workers tell each other around the epochs of `fit`, and what follows from it."""

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

import numpy as np

from keras_parallax.errors import MetricMismatchError, ReplicaMismatchError, UnequalBatchesError
from keras_parallax.framework_types import Logs


def batches_per_epoch(params: Mapping[str, Any]) -> Optional[int]:
    """The number of batches in an epoch, given the `params` of callbacks; `None` if not known."""
    if params.get('steps') is not None:
        return int(params['steps'])
    if params.get('samples') and params.get('batch_size'):
        return -(-int(params['samples']) // int(params['batch_size']))
    return None


def check_equal_batches(batches: Sequence[Optional[int]]) -> None:
    """Compares each worker's number of batches in an epoch, `None` where it is not known.

    Raises `UnequalBatchesError` if two known numbers differ.
    """
    known = [(number, rank) for rank, number in enumerate(batches) if number is not None]
    if len({number for number, _ in known}) > 1:
        raise UnequalBatchesError(
            'The workers have unequal numbers of batches in an epoch: %s. Give every worker the '
            'same number, for instance by cutting the data to a multiple of the number of workers.'
            % ', '.join('rank %d has %d' % (rank, number) for number, rank in known)
        )


def check_equal_epochs(epochs: Sequence[Sequence[int]]) -> None:
    """Compares each worker's `initial_epoch` and `epochs`.

    Raises `UnequalBatchesError` if two workers have unequal numbers of epochs to train.
    """
    if len({last - first for first, last in epochs}) > 1:
        raise UnequalBatchesError(
            'The workers have unequal numbers of epochs to train: %s. Give every worker the same '
            'epochs and initial_epoch.'
            % ', '.join(
                'rank %d from initial_epoch=%d to epochs=%d' % (rank, first, last)
                for rank, (first, last) in enumerate(epochs)
            )
        )


def check_equal_calls(calls: Sequence[Sequence[str]]) -> None:
    """Compares each worker's list of names of the callbacks in which workers wait for each other.

    Raises `MetricMismatchError` if a worker lacks one, or has them in another order.
    """
    lacking = missing(calls)
    if lacking:
        raise MetricMismatchError(
            'These callbacks are for all workers, which wait for each other in them, but %s. Give '
            'them to every worker.' % _sentence(lacking)
        )
    for rank, own in enumerate(calls):
        if own != calls[0]:
            raise MetricMismatchError(
                'Workers wait for each other in some callbacks, so their order must be the same: '
                'on rank 0 it is %s, on rank %d %s.' % (', '.join(calls[0]), rank, ', '.join(own))
            )


def missing(names: Sequence[Iterable[str]]) -> Dict[int, List[str]]:
    """Which names each worker lacks of those that others have: a dict of lists, of workers that do.

    Example:
        ```python
        >>> missing([['loss', 'val_loss'], ['loss']])
        {1: ['val_loss']}
        ```
    """
    everywhere = set().union(*names)
    return {
        rank: sorted(everywhere.difference(own))
        for rank, own in enumerate(names)
        if everywhere.difference(own)
    }


def metrics_missing(names: Sequence[Iterable[str]]) -> Optional[str]:
    """A sentence about the metrics that workers lack, or `None` if all have the same names."""
    lacking = missing(names)
    return 'The workers have different metrics: %s' % _sentence(lacking) if lacking else None


def _sentence(lacking: Mapping[int, Sequence[str]]) -> str:
    return ', '.join(
        'rank %d lacks %s' % (rank, ' and '.join(names)) for rank, names in sorted(lacking.items())
    )


def shares_differ(trained: Sequence[int]) -> Optional[str]:
    """A sentence about workers that trained on different numbers of samples, `None` if none did.

    Example:
        ```python
        >>> shares_differ([24, 24]) is None
        True
        ```
    """
    if len(set(trained)) < 2:
        return None
    return (
        'The workers trained on different numbers of samples in an epoch: %s. Every worker counts '
        'the same in a step, so a sample of a smaller batch counts more than in one process; give '
        'all workers equal shares for the numbers of one.'
        % ', '.join('rank %d on %d' % pair for pair in enumerate(trained))
    )


def numbers(logs: Logs) -> Dict[str, float]:
    """Those of a callback's logs that are single numbers, a dict from names to floats."""
    return {
        name: float(value)
        for name, value in (logs or {}).items()
        if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)
    }


def samples_in(validation_data: Any) -> Optional[int]:
    """The number of samples of what Keras gives to callbacks as `validation_data`, or `None`."""
    if not isinstance(validation_data, (list, tuple)) or not len(validation_data):
        return None
    shape = getattr(validation_data[0], 'shape', None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def averages(reports: Sequence[Mapping[str, Any]]) -> Dict[str, float]:
    """The metrics of an epoch over all workers, a dict from the names that any worker has.

    A metric of training counts as many times as its rank has trained samples, one of validation as
    many times as its rank has validated some; where a number is not known, workers count alike. A
    metric that only some workers have is that of those.

    Example:
        ```python
        >>> of_ranks = [{'loss': 1.0}, {'loss': 2.0, 'val_loss': 3.0}]
        >>> averages([{'logs': logs, 'trained': 8, 'validated': 4} for logs in of_ranks])
        {'loss': 1.5, 'val_loss': 3.0}
        ```
    """
    averaged = {}
    for name in sorted(set().union(*(report['logs'] for report in reports))):
        having = [report for report in reports if name in report['logs']]
        counts = [
            report['validated' if name.startswith('val_') else 'trained'] for report in having
        ]
        averaged[name] = mean([report['logs'][name] for report in having], counts)
    return averaged


def mean(values: Sequence[float], counts: Sequence[Optional[float]] = ()) -> float:
    """The mean of some floats; of equal ones, exactly their value.

    Each counts so many times; if a count is unknown or 0, all count alike.
    """
    if len(set(values)) == 1:
        return values[0]
    weights = [count for count in counts if count] if all(counts) else []
    return float(np.average(list(values), weights=weights or None))


def check_rates(
    rates: Sequence[Mapping[str, float]], when: str, users: Sequence[Mapping[str, Sequence[str]]]
) -> None:
    """Compares the rates of the workers' optimizers, a dict by name for each worker.

    In `users`, each worker has the names of the callbacks that may change a rate, by its name.
    Raises `ReplicaMismatchError` if two workers have unequal rates.
    """
    for name in sorted(set().union(*rates)):
        values = [own.get(name) for own in rates]
        if len(set(map(repr, values))) == 1:
            continue
        callbacks = sorted(set().union(*(own.get(name, ()) for own in users)))
        raise ReplicaMismatchError(
            "The workers' optimizers have different values of %s %s: %s. %s Change it on every "
            "worker "
            'alike.'
            % (
                name,
                when,
                ', '.join('rank %d has %r' % pair for pair in enumerate(values)),
                'It is changed by %s, perhaps by a metric that workers see differently.'
                % ' or '.join(callbacks)
                if callbacks
                else 'None of the callbacks mentions it.',
            )
        )
