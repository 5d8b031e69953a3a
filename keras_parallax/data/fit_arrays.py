"""Arrays for `fit`: each worker's share, which is another one in each epoch."""

import numpy as np

from keras_parallax.data import structures, worker
from keras_parallax.errors import DataError


class ArrayShare(np.ndarray):
    """The rows of an array that are this rank's in an epoch; `fit` has them change with it.

    A view of it, or an array made from it, is a plain array of the rows that are there.

    Attributes:
        order: the `Order` of all rows; `None` of an array made from a share.
    """

    _source = _rank = order = None

    @classmethod
    def of(cls, source, order, rank):
        """The share of a rank in epoch 0.

        Args:
            source: the whole array.
            order: the `Order` of its rows.
            rank: the rank.
        """
        share = np.empty((order.length,) + source.shape[1:], source.dtype).view(cls)
        share._source, share._rank, share.order = source, rank, order
        share._fill(0)
        return share

    @property
    def changes(self):
        """Whether it has other rows in another epoch."""
        return self.order is not None and self.order.seed is not None

    def begin_epoch(self, epoch):
        """Takes the rows of an epoch."""
        if self.changes:
            self._fill(epoch)

    def _fill(self, epoch):
        self[...] = self._source[self.order.of_rank(self._rank, epoch)]


def arrays(
    x,
    y=None,
    sample_weight=None,
    validation_split=0.0,
    shuffle=True,
    seed=0,
    drop_remainder=True,
):
    """This worker's share of arrays, as arguments of `model.fit`.

    Call it on every worker with the same arrays. `fit` gives each worker another share in each
    epoch, so that the samples of all are shuffled. With a `batch_size` of B, N workers train on the
    batches of one process with a `batch_size` of N x B: their i-th batches are, together, its i-th.

    Args:
        x: an array with a row for each sample, or a list or dict of arrays; all samples.
        y: the same of targets, or `None`.
        sample_weight: the same of weights, or `None`.
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
        DataError: the arrays are of unequal lengths, or fewer samples than workers.
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

    def share(array):
        return ArrayShare.of(array[:trained], order, job.rank)

    arguments = {name: structures.mapped(share, data) for name, data in given.items()}
    if trained < count:
        if count - trained < job.size:
            raise DataError(
                'validation_split leaves %d samples to validate on for %d workers: the share of '
                'some is empty. Make it larger.' % (count - trained, job.size)
            )

        def held_out(array):
            return array[trained + job.rank :: job.size]

        names = ('x', 'y', 'sample_weight')[: 3 if sample_weight is not None else 2]
        arguments['validation_data'] = tuple(
            structures.mapped(held_out, given.get(name)) for name in names
        )
    return dict(arguments, shuffle=False)
