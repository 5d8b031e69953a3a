# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a Keras package takes for a metric: a layer that keeps what a `SumMetric` is made of.

All packages have a list of such layers in a compiled model. They set them back at the start of an
epoch and of an evaluation, and take the last value that they return for that of all batches.
"""

import functools
from typing import Any, Dict, List, NoReturn, Optional

import numpy as np

from keras_parallax.compat import keras_api, keras_metrics
from keras_parallax.compat.tensorflow_api import ResourceVariable, tf
from keras_parallax.engine.job.job import Job
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Array, Mixin, Model, Tensor
from keras_parallax.metrics.group_auc import GroupAUC
from keras_parallax.metrics.group_samples import GroupSamples, sums_of_groups
from keras_parallax.metrics.sums import SumMetric


class SumLayer(Mixin):
    """The sums of a metric, for one output of a model, on this worker.

    They are a variable that is this worker's own: not in Keras's nor in TensorFlow's list of what
    workers hold the same values of, and no weight of the model.

    Args:
        metric: the `SumMetric`.
        model: the model that is compiled with it.

    Attributes:
        metric: as given.
        model: as given.
        earlier: the sums of what has been evaluated since the epoch began, before what is evaluated
            now; a list of what `sums` returns.
        in_epoch: whether `fit` is between the begin and the end of an epoch's batches.
    """

    metric: Any
    model: Model
    earlier: List[Any]
    in_epoch: bool

    def __init__(self, metric: SumMetric, model: Model) -> None:
        super().__init__(name=metric.name)
        self.stateful, self.built = True, True
        self._keep(metric=metric, model=model, earlier=[], in_epoch=False)
        self._keep(_variable=None, _total=None, _value=None)

    def _keep(self, **values: Any) -> None:
        """Sets attributes, of which Keras 2.15 would take variables for weights."""
        self.__dict__.update(values)

    def get_config(self) -> Dict[str, Any]:
        """What `from_config` makes another one of, for another output of the model."""
        return {'metric': self.metric, 'model': self.model}

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Optional[Tensor] = None
    ) -> Tensor:
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
            keras_metrics.note_result(self, result)
            return result

    def _made(self) -> Tensor:
        """Gives the variable its initial value, if it has none: no Keras package does."""
        there = tf.is_variable_initialized(self._variable)
        return tf.cond(there, lambda: tf.constant(0), self._begin)

    def _begin(self) -> Tensor:
        zeros = tf.zeros([self.metric.size], tf.float64)
        with tf.control_dependencies([self._variable.assign(zeros)]):
            return tf.constant(0)

    def reset_states(self) -> None:
        """Begins anew, as Keras does before an epoch and before it evaluates."""
        if self.in_epoch:
            self.earlier.append(self.sums())
        self._clear()

    #: Keras 2.15 calls it so.
    reset_state = reset_states

    def update_state(self, *arguments: Any, **named: Any) -> NoReturn:
        """Refused: Keras calls the layer itself."""
        raise PlanError('The metric %s is for model.compile() alone.' % self.metric.name)

    result = update_state

    def _clear(self) -> None:
        keras_api.package_of(self).backend.get_session().run(self._variable.initializer)

    def begin_epoch(self) -> None:
        """Keeps what is evaluated from now on."""
        self._keep(earlier=[], in_epoch=True)

    def sums(self) -> Any:
        """The sums so far, an array."""
        return keras_api.package_of(self).backend.get_session().run(self._variable)

    def share_of(self, job: Optional[Job], sums: Any) -> Array:
        """What this worker adds to the sums of all, an array. Some layers make collective calls.

        Args:
            job: the `Job`.
            sums: what `sums` has returned; `None` if this worker has no samples.
        """
        return np.zeros(self.metric.size) if sums is None else sums

    def value_of(self, sums: Array) -> float:
        """The metric's value, a float, given the sums of all workers."""
        session = keras_api.package_of(self).backend.get_session()
        return float(session.run(self._value, {self._total: sums}))


class SampleLayer(SumLayer):
    """The samples of a `GroupAUC`, which workers turn into its `sums` when they meet.

    They are in this process's memory, to which the graph hands them.
    """

    def __init__(self, metric: GroupAUC, model: Model) -> None:
        super().__init__(metric, model)
        self._clear()

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Optional[Tensor] = None
    ) -> Tensor:
        """Adds a batch, and returns about the value so far, a tensor."""
        with tf.device('/cpu:0'):
            columns = self.metric.samples_of_batch(self.model, y_true, y_pred, sample_weight)
            value = tf.py_func(self._add, columns, tf.float64, name='samples')
            value.set_shape([])
            result = tf.cast(value, y_pred.dtype)
            keras_metrics.note_result(self, result)
            return result

    def _add(self, *columns: Array) -> Any:
        samples = self._samples
        samples.add(*columns)
        # It takes two seconds for a million samples, so not after each batch.
        if samples.count > 2 * self._counted:
            self._keep(_counted=samples.count, _so_far=self.value_of(self.share_of(None, samples)))
        return np.float64(self._so_far)

    def _clear(self) -> None:
        samples = GroupSamples(self.metric.max_samples)
        self._keep(_samples=samples, _counted=0, _so_far=np.nan)

    def sums(self) -> GroupSamples:
        """The samples so far, `GroupSamples`."""
        return self._samples

    def share_of(self, job: Optional[Job], sums: Any) -> Array:
        """As `SumLayer.share_of`; collective if there is a job, else of this worker's groups."""
        if job is None:
            return sums_of_groups(sums.samples())
        samples = GroupSamples(self.metric.max_samples) if sums is None else sums
        return samples.sums_of_share(job)

    def value_of(self, sums: Array) -> float:
        """As `SumLayer.value_of`."""
        return float(sums[0] / sums[1]) if sums[1] else np.nan


@functools.lru_cache()
def _layer_class(cls: type, name: str) -> Any:
    """The class of layers of the Keras package called `name`."""
    return type(cls.__name__, (cls, keras_api.keras_package(name).patched['Metric']), {})


def layers_for(model: Model, metrics: Any) -> Any:
    """The `metrics` of `model.compile`, with layers in place of metrics of ours."""
    if isinstance(metrics, dict):
        return {name: layers_for(model, value) for name, value in metrics.items()}
    if isinstance(metrics, (list, tuple)):
        return [layers_for(model, value) for value in metrics]
    if not isinstance(metrics, SumMetric):
        return metrics
    cls = SampleLayer if isinstance(metrics, GroupAUC) else SumLayer
    return _layer_class(cls, keras_api.package_of(model).name)(metrics, model)


def has_ours(metrics: Any) -> bool:
    """Whether there is a metric of ours in the `metrics` of `model.compile`."""
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    if isinstance(metrics, (list, tuple)):
        return any(map(has_ours, metrics))
    return isinstance(metrics, SumMetric)


def layers_of(model: Model) -> Dict[str, SumLayer]:
    """The layers that keep sums for a compiled model, a dict from names in the logs."""
    metrics = keras_metrics.metrics_by_name(model)
    return {name: layer for name, layer in metrics.items() if isinstance(layer, SumLayer)}
