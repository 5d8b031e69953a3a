"""What the ranks tell each other around the epochs of `fit`, and what follows from it."""

import numpy as np

from keras_parallax.errors import MetricMismatchError, ReplicaMismatchError, UnequalBatchesError

#: How far replicas may be apart, as a fraction of a weight's norm. Ranks may add the same numbers
#: in another order, which moves replicas apart by a rounding error a step.
_ROUNDING = 1e-4


#: The numbers of `sketch`, a prime number of them, so that rows of a matrix get others each.
_SIGNS = np.random.RandomState(0).choice([-1.0, 1.0], 65521)


def batches_per_epoch(params):
    """The number of batches in an epoch, given the `params` of callbacks; `None` if not known."""
    if params.get('steps') is not None:
        return int(params['steps'])
    if params.get('samples') and params.get('batch_size'):
        return -(-int(params['samples']) // int(params['batch_size']))
    return None


def check_equal_batches(batches):
    """Compares each rank's number of batches in an epoch, `None` where it is not known.

    Raises `UnequalBatchesError` if two known numbers differ.
    """
    known = [(number, rank) for rank, number in enumerate(batches) if number is not None]
    if len({number for number, _ in known}) > 1:
        raise UnequalBatchesError(
            'The ranks have unequal numbers of batches in an epoch: %s. Give every rank the same '
            'number, for instance by cutting the data to a multiple of the number of ranks.'
            % ', '.join('rank %d has %d' % (rank, number) for number, rank in known)
        )


def check_equal_epochs(epochs):
    """Compares each rank's `initial_epoch` and `epochs`.

    Raises `UnequalBatchesError` if two ranks have unequal numbers of epochs to train.
    """
    if len({last - first for first, last in epochs}) > 1:
        raise UnequalBatchesError(
            'The ranks have unequal numbers of epochs to train: %s. Give every rank the same '
            'epochs and initial_epoch.'
            % ', '.join(
                'rank %d from initial_epoch=%d to epochs=%d' % (rank, first, last)
                for rank, (first, last) in enumerate(epochs)
            )
        )


def check_equal_calls(calls):
    """Compares each rank's list of names of the callbacks in which ranks wait for each other.

    Raises `MetricMismatchError` if a rank lacks one, or has them in another order.
    """
    lacking = missing(calls)
    if lacking:
        raise MetricMismatchError(
            'These callbacks are for all ranks, which wait for each other in them, but %s. Give '
            'them to every rank.' % _sentence(lacking)
        )
    for rank, own in enumerate(calls):
        if own != calls[0]:
            raise MetricMismatchError(
                'Ranks wait for each other in some callbacks, so their order must be the same: on '
                'rank 0 it is %s, on rank %d %s.' % (', '.join(calls[0]), rank, ', '.join(own))
            )


def missing(names):
    """Which names each rank lacks of those that others have: a dict of lists, of ranks that do.

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


def metrics_missing(names):
    """A sentence about the metrics that ranks lack, or `None` if all have the same names."""
    lacking = missing(names)
    return 'The ranks have different metrics: %s' % _sentence(lacking) if lacking else None


def _sentence(lacking):
    return ', '.join(
        'rank %d lacks %s' % (rank, ' and '.join(names)) for rank, names in sorted(lacking.items())
    )


def shares_differ(trained):
    """A sentence about ranks that trained on different numbers of samples, `None` if none did.

    Example:
        ```python
        >>> shares_differ([24, 24]) is None
        True
        ```
    """
    if len(set(trained)) < 2:
        return None
    return (
        'The ranks trained on different numbers of samples in an epoch: %s. Every rank counts the '
        'same in a step, so a sample of a smaller batch counts more than in one process; give all '
        'ranks equal shares for the numbers of one.'
        % ', '.join('rank %d on %d' % pair for pair in enumerate(trained))
    )


def numbers(logs):
    """Those of a callback's logs that are single numbers, a dict from names to floats."""
    return {
        name: float(value)
        for name, value in (logs or {}).items()
        if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)
    }


def samples_in(validation_data):
    """The number of samples of what Keras gives to callbacks as `validation_data`, or `None`."""
    if not isinstance(validation_data, (list, tuple)) or not len(validation_data):
        return None
    shape = getattr(validation_data[0], 'shape', None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def averages(reports):
    """The metrics of an epoch over all ranks, a dict from the names that any rank has.

    A metric of training counts as many times as its rank has trained samples, one of validation as
    many times as its rank has validated some; where a number is not known, ranks count alike. A
    metric that only some ranks have is that of those.

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


def mean(values, counts=()):
    """The mean of some floats; of equal ones, exactly their value.

    Each counts so many times; if a count is unknown or 0, all count alike.
    """
    if len(set(values)) == 1:
        return values[0]
    weights = counts if counts and all(counts) else None
    return float(np.average(values, weights=weights))


def check_rates(rates, when, users):
    """Compares the rates of the ranks' optimizers, a dict by name for each rank.

    In `users`, each rank has the names of the callbacks that may change a rate, by its name. Raises
    `ReplicaMismatchError` if two ranks have unequal rates.
    """
    for name in sorted(set().union(*rates)):
        values = [own.get(name) for own in rates]
        if len(set(map(repr, values))) == 1:
            continue
        callbacks = sorted(set().union(*(own.get(name, ()) for own in users)))
        raise ReplicaMismatchError(
            "The ranks' optimizers have different values of %s %s: %s. %s Change it on every rank "
            'alike.'
            % (
                name,
                when,
                ', '.join('rank %d has %r' % pair for pair in enumerate(values)),
                'It is changed by %s, perhaps by a metric that ranks see differently.'
                % ' or '.join(callbacks)
                if callbacks
                else 'None of the callbacks mentions it.',
            )
        )


def sketch(value):
    """Two numbers that tell an array from others: its norm, and its sum with fixed signs."""
    flat, squares, signed = np.ravel(value), 0.0, 0.0
    # Part by part: a copy in double precision may be larger than what memory is left.
    for begin in range(0, flat.size, len(_SIGNS)):
        part = flat[begin : begin + len(_SIGNS)].astype(np.float64)
        squares += part.dot(part)
        signed += part.dot(_SIGNS[: len(part)])
    return [float(np.sqrt(squares)), float(signed)]


def check_sketches(sketches, names, when):
    """Compares the `sketch` of each dense weight, a list for each rank.

    Raises `ReplicaMismatchError` if a weight differs by more than rounding.
    """
    for name, of_ranks in zip(names, zip(*sketches)):
        norm, expected = of_ranks[0]
        for rank, (_, signed) in enumerate(of_ranks):
            if np.isfinite([norm, signed]).all() and abs(signed - expected) > _ROUNDING * norm:
                raise ReplicaMismatchError(
                    'The ranks have different values of the dense weight %s %s: ranks 0 and %d '
                    'differ, perhaps because a callback or the script has set it on one of them '
                    'only. Set weights on every rank alike, or between two calls of fit, which '
                    'begins with those of rank 0.' % (name, when, rank)
                )
