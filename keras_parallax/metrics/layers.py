"""What a Keras package takes for a metric: a layer that keeps the sums of a `SumMetric`.

All packages have a list of such layers in a compiled model. They set them back at the start of an
epoch and of an evaluation, and take the last value that they return for that of all batches.
"""

import functools

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import ResourceVariable, tf
from keras_parallax.errors import PlanError
from keras_parallax.metrics.sums import SumMetric


class SumLayer:
    """The sums of a metric, for one output of a model, on this rank.

    They are a variable that is this rank's own: not in Keras's nor in TensorFlow's list of what
    ranks hold the same values of, and no weight of the model.

    Args:
        metric: the `SumMetric`.

    Attributes:
        metric: as given.
        earlier: the sums of what has been evaluated since the epoch began, before what is evaluated
            now; a list of arrays.
        in_epoch: whether `fit` is between the begin and the end of an epoch's batches.
    """

    def __init__(self, metric):
        super().__init__(name=metric.name)
        self.stateful, self.built = True, True
        self._keep(metric=metric, earlier=[], in_epoch=False)
        self._keep(_variable=None, _total=None, _value=None)

    def _keep(self, **values):
        """Sets attributes, of which Keras 2.15 would take variables for weights."""
        vars(self).update(values)

    def get_config(self):
        """What `from_config` makes another one of, for another output of the model."""
        return {'metric': self.metric}

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Adds a batch, and returns the value so far, a tensor."""
        with tf.device('/cpu:0'):
            variable = ResourceVariable(
                tf.zeros([self.metric.size], tf.float64),
                trainable=False,
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
                name='sums',
            )
            self._keep(_variable=variable)
            sums = self.metric.sums_of_batch(y_true, y_pred, sample_weight)
            with tf.control_dependencies([self._made()]):
                added = variable.assign_add(sums)
            with tf.control_dependencies([added]):
                total = variable.read_value()
            value = self.metric.value_of(total)
            result = tf.cast(value, y_pred.dtype)
            self._keep(_total=total, _value=value)
            keras_api.note_result(self, result)
            return result

    def _made(self):
        """Gives the variable its initial value, if it has none: no Keras package does."""
        there = tf.is_variable_initialized(self._variable)
        return tf.cond(there, lambda: tf.constant(0), self._begin)

    def _begin(self):
        zeros = tf.zeros([self.metric.size], tf.float64)
        with tf.control_dependencies([self._variable.assign(zeros)]):
            return tf.constant(0)

    def reset_states(self):
        """Begins anew, as Keras does before an epoch and before it evaluates."""
        session = keras_api.package_of(self).backend.get_session()
        if self.in_epoch:
            self.earlier.append(self.sums())
        session.run(self._variable.initializer)

    #: Keras 2.15 calls it so.
    reset_state = reset_states

    def update_state(self, *arguments, **named):
        """Refused: Keras calls the layer itself."""
        raise PlanError('The metric %s is for model.compile() alone.' % self.metric.name)

    result = update_state

    def begin_epoch(self):
        """Keeps what is evaluated from now on."""
        self._keep(earlier=[], in_epoch=True)

    def sums(self):
        """The sums so far, an array."""
        return keras_api.package_of(self).backend.get_session().run(self._variable)

    def value_of(self, sums):
        """The metric's value, a float, given sums."""
        session = keras_api.package_of(self).backend.get_session()
        return float(session.run(self._value, {self._total: sums}))


@functools.lru_cache()
def _layer_class(name):
    """The class of layers of the Keras package called `name`."""
    return type('SumLayer', (SumLayer, keras_api.keras_package(name).patched['Metric']), {})


def layers_for(package, metrics):
    """The `metrics` of `model.compile`, with layers in place of metrics of ours."""
    if isinstance(metrics, dict):
        return {name: layers_for(package, value) for name, value in metrics.items()}
    if isinstance(metrics, (list, tuple)):
        return [layers_for(package, value) for value in metrics]
    return _layer_class(package.name)(metrics) if isinstance(metrics, SumMetric) else metrics


def has_ours(metrics):
    """Whether there is a metric of ours in the `metrics` of `model.compile`."""
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    if isinstance(metrics, (list, tuple)):
        return any(map(has_ours, metrics))
    return isinstance(metrics, SumMetric)


def layers_of(model):
    """The layers that keep sums for a compiled model, a dict from names in the logs."""
    metrics = keras_api.metrics_by_name(model)
    return {name: layer for name, layer in metrics.items() if isinstance(layer, SumLayer)}
