# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Arrays for `fit`: each worker's share, which is another one in each epoch."""

from typing import Any, Dict

from keras_parallax.data import conversion, structures, worker
from keras_parallax.data.share import ArrayShare, sparse_share_of
from keras_parallax.errors import DataError
from keras_parallax.framework_types import Array


def arrays(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    validation_split: float = 0.0,
    shuffle: bool = True,
    seed: int = 0,
    drop_remainder: bool = True,
) -> Dict[str, Any]:
    """This worker's share of arrays, as arguments of `model.fit`.

    Call it on every worker with the same arrays. `fit` gives each worker another share in each
    epoch, so that the samples of all are shuffled. With a `batch_size` of B, N workers train on the
    batches of one process with a `batch_size` of N x B: their i-th batches are, together, its i-th.

    Args:
        x: an array with a row for each sample, or a list or dict of arrays; all samples. Instead of
            an array it may be a list of numbers or strings, a `Series`, a categorical or a
            `DataFrame` of pandas, or a sparse matrix of SciPy. A `DataFrame` becomes a dict of
            arrays, by the names of its columns, if some are numbers and some are strings; otherwise
            it is one array, as in Keras, and `dict(frame)` makes a dict of its columns.
        y: the same of targets, or `None`.
        sample_weight: the same of weights, or `None`. A `class_weight` of `fit` has to be given so,
            too: `fit` refuses it, because samples change with the epoch.
        validation_split: the fraction of the samples, the last ones, that is not trained on: they
            become `validation_data`. Give it here and not to `fit`.
        shuffle: whether the samples have another order in each epoch.
        seed: what shuffles them, a whole number; the same on every worker.
        drop_remainder: where the samples are no multiple of the number of workers, whether the rest
            is left out. Otherwise the first samples of the epoch come again. A warning on rank 0
            says how many.

    Returns:
        A dict with `x`, `y`, `shuffle=False`, for it is done, and what else was asked for.

    Raises:
        DataError: the arrays are of unequal lengths, or fewer samples than workers, or values are
            missing.
        ScopeError: there is no `ParallaxStrategy` yet.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        ...     model.compile('adagrad', 'mse')
        >>> x, y = np.ones((100, 2)), np.ones((100, 1))
        >>> history = model.fit(**kp.data.arrays(x, y), batch_size=10, epochs=2, verbose=0)
        >>> len(history.history['loss'])
        2
        ```
    """
    given = {'x': x, 'y': y, 'sample_weight': sample_weight}
    given = {name: structures.as_arrays(data) for name, data in given.items() if data is not None}
    count, job = structures.count_of(list(given.values())), worker.current()
    if not 0 <= validation_split < 1:
        raise DataError('validation_split is from 0 to below 1, not %r.' % (validation_split,))
    trained = int(count * (1.0 - validation_split))
    order = worker.order_of(trained, 'samples', shuffle, seed, drop_remainder)

    def share(array: Array) -> Any:
        make = sparse_share_of if conversion.is_sparse(array) else ArrayShare.of
        return make(array[:trained], order, job.rank)

    arguments = {name: structures.mapped(share, data) for name, data in given.items()}
    if trained < count:
        if count - trained < job.size:
            raise DataError(
                'validation_split leaves %d samples to validate on for %d workers: the share of '
                'some is empty. Make it larger.' % (count - trained, job.size)
            )

        def held_out(array: Array) -> Array:
            return array[trained + job.rank :: job.size]

        names = ('x', 'y', 'sample_weight')[: 3 if sample_weight is not None else 2]
        arguments['validation_data'] = tuple(
            structures.mapped(held_out, given.get(name)) for name in names
        )
    return dict(arguments, shuffle=False)
