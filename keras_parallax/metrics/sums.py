"""What metrics have in common whose value follows from sums over samples."""

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.session.run_errors import BATCH_MARK


class SumMetric:
    """A metric whose value follows from sums over samples, which add up over workers.

    It says what is summed and what follows; `model.compile` makes of it, for each output, what its
    Keras package takes for a metric (`layers.py`).

    Args:
        name: the metric's name in the logs.

    Attributes:
        name: as given.
        size: how many sums there are.
    """

    size = None

    def __init__(self, name):
        # Keras writes it to a file of the model, as it does with a function's.
        self.name = self.__name__ = name

    def sums_of(self, labels, predictions, weights):
        """The sums over some samples, a vector of float64.

        Args:
            labels: a vector of float64, each 0 or 1.
            predictions: a vector as long, each in [0, 1].
            weights: a vector as long, what each sample counts.
        """
        raise NotImplementedError

    def value_of(self, sums):
        """The metric, a scalar, given the sums over all samples."""
        raise NotImplementedError

    def __call__(self, y_true, y_pred):
        """Refuses to be called as a function, of whose values Keras would make a mean."""
        raise PlanError(
            'The metric %s is for models of a ParallaxStrategy: make the strategy before '
            'model.compile().' % self.name
        )

    def sums_of_batch(self, y_true, y_pred, sample_weight=None):
        """The sums over a batch, given Keras's tensors; a batch with bad values fails."""
        self._check_shape(y_pred)
        labels, predictions = [
            tf.reshape(tf.cast(tensor, tf.float64), [-1]) for tensor in (y_true, y_pred)
        ]
        if sample_weight is None:
            weights = tf.ones_like(predictions)
        else:
            weights = tf.reshape(tf.cast(sample_weight, tf.float64), [-1])
        checks = [
            self._check(
                tf.equal(tf.size(labels), tf.size(predictions)),
                'takes as many labels as predictions',
            ),
            self._check(
                tf.reduce_all(tf.equal(labels, 0) | tf.equal(labels, 1)),
                'takes labels that are 0 or 1',
            ),
            # Nothing is true of NaN.
            self._check(
                tf.reduce_all((predictions >= 0) & (predictions <= 1)),
                'takes predictions from 0 to 1, of which none is NaN',
            ),
        ]
        with tf.control_dependencies(checks):
            return self.sums_of(*map(tf.identity, (labels, predictions, weights)))

    def _check_shape(self, y_pred):
        shape = y_pred.shape.as_list() if y_pred.shape.ndims is not None else [None]
        if len(shape) > 2 or shape[1:] not in ([], [1], [None]):
            raise PlanError(
                'The metric %s takes one prediction for each sample, but the output %s has the '
                'shape %s.' % (self.name, y_pred.name.split('/')[0], tuple(shape))
            )

    def _check(self, condition, takes):
        return tf.Assert(condition, [BATCH_MARK, 'The metric %s %s' % (self.name, takes)])
