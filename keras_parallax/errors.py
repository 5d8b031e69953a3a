# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The errors that keras-parallax raises: each a sentence that a user can act on."""


class ParallaxError(Exception):
    """Base class of every error that this package raises.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> issubclass(kp.PlanError, kp.ParallaxError)
        True
        ```
    """


class StackError(ParallaxError, ImportError):
    """TensorFlow, Keras or Horovod is missing, of a wrong version, or built without the other.

    Example:
        ```python
        >>> try:
        ...     import keras_parallax as kp
        ... except ImportError as error:
        ...     print(error)
        ```
    """


class ScopeError(ParallaxError, RuntimeError):
    """A model, an optimizer or a strategy was used outside, or twice inside, a strategy's scope.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     try:
        ...         strategy.__enter__()
        ...     except kp.ScopeError:
        ...         print('one scope at a time')
        one scope at a time
        ```
    """


class PlanError(ParallaxError, ValueError):
    """What was asked for cannot be planned: an unknown name, or settings that contradict.

    Example:
        ```python
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy(overrides={'no/such_variable': 'dense'}) as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        ...     model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
        >>> try:
        ...     strategy.plan(model)
        ... except kp.PlanError:
        ...     print('overrides names no variable of the model')
        overrides names no variable of the model
        ```
    """


class DataError(ParallaxError, ValueError):
    """Data cannot be shared or judged, or it is not known where in it to go on.

    One worker would have none, or it is of no kind; or it is not what a checkpoint within an epoch
    was saved with; or `kp.metrics` has met a label that is not 0 or 1, or a prediction that is NaN.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> strategy = kp.ParallaxStrategy()
        >>> try:
        ...     kp.data.shard([])
        ... except kp.DataError:
        ...     print('no files')
        no files
        ```
    """


class ProfileError(ParallaxError, ValueError):
    """Traces cannot be drawn: they are none of ours, or of different jobs.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.observing.trace import from_chrome
        >>> try:
        ...     trace = from_chrome({'traceEvents': []}, 'trace.json')
        ... except kp.ProfileError:
        ...     print('no trace of ours')
        no trace of ours
        ```
    """


class IdOutOfRangeError(ParallaxError, ValueError):
    """A batch held an id outside `[0, input_dim)` of the table it looks up.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.InputLayer((1,), dtype='int32'), keras.layers.Embedding(9, 1)])
        ...     model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
        >>> try:
        ...     loss = model.train_on_batch(np.array([[9]]), np.zeros((1, 1, 1)))
        ... except kp.IdOutOfRangeError:
        ...     print('ids start from 0')
        ids start from 0
        ```
    """


class TableFullError(ParallaxError, RuntimeError):
    """A training batch held more new ids than a `DynamicEmbedding` has rows left.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     ids = keras.layers.Input((3,), dtype='int64')
        ...     model = keras.models.Model(ids, kp.layers.DynamicEmbedding(1, capacity=2)(ids))
        ...     model.compile(kp.ParallaxOptimizer('sgd'), 'mse')
        >>> try:
        ...     loss = model.train_on_batch(np.array([[7, 8, 9]]), np.zeros([1, 3, 1]))
        ... except kp.TableFullError:
        ...     print('three ids for two rows')
        three ids for two rows
        ```
    """


class ModelMismatchError(ParallaxError, RuntimeError):
    """The workers of one job did not build the same model.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.engine.step.agreement import check_agreement
        >>> try:
        ...     check_agreement([[('dense/kernel', '[2, 3]')], [('dense/kernel', '[2, 4]')]])
        ... except kp.ModelMismatchError:
        ...     print('rank 1 differs')
        rank 1 differs
        ```
    """


class UnequalBatchesError(ParallaxError, RuntimeError):
    """The workers of one job have unequal numbers of training batches.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.callbacks.epoch_reports import check_equal_batches
        >>> try:
        ...     check_equal_batches([100, 99])
        ... except kp.UnequalBatchesError:
        ...     print('cut the data to a multiple of the number of workers')
        cut the data to a multiple of the number of workers
        ```
    """


class UnequalCallsError(ParallaxError, RuntimeError):
    """A worker waits in a call that all workers make, and another has ended or is in another call.

    Such calls are `strategy.resume`, the first training call of a model, and callbacks that gather
    something from all workers.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> try:
        ...     pass  # model.fit(...)
        ... except kp.UnequalCallsError as error:
        ...     print(error)
        ```
    """


class MetricMismatchError(ParallaxError, RuntimeError):
    """The workers of one job have different metrics, or different callbacks that need all workers.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.callbacks.epoch_reports import check_equal_calls
        >>> try:
        ...     check_equal_calls([['MetricAverageCallback'], []])
        ... except kp.MetricMismatchError:
        ...     print('give MetricAverageCallback to rank 1 too')
        give MetricAverageCallback to rank 1 too
        ```
    """


class ReplicaMismatchError(ParallaxError, RuntimeError):
    """The workers of one job no longer have equal learning rates or equal dense weights.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.callbacks.epoch_reports import check_rates
        >>> try:
        ...     check_rates([{'lr': 0.1}, {'lr': 0.05}], 'after epoch 1', [{}, {}])
        ... except kp.ReplicaMismatchError:
        ...     print('rank 1 has another rate')
        rank 1 has another rate
        ```
    """


class ServerLostError(ParallaxError, RuntimeError):
    """A dedicated server is not there, or has lost the shards that it held.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> try:
        ...     pass  # model.fit(...)
        ... except kp.ServerLostError as error:
        ...     print(error)
        ```
    """


class PublicServerError(ParallaxError, RuntimeError):
    """Hosts outside the job could connect to its servers, and `require_private_servers` is set.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> issubclass(kp.PublicServerError, kp.ParallaxError)
        True
        ```
    """


class WorkerFailedError(ParallaxError, RuntimeError):
    """Another worker of the job failed, so this one cannot go on.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> try:
        ...     pass  # model.fit(...)
        ... except kp.WorkerFailedError as error:
        ...     print(error)
        ```
    """


class CheckpointError(ParallaxError, OSError):
    """A checkpoint cannot be written, or is incomplete, damaged or of another model.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> from keras_parallax.checkpoint.manifest import read_manifest
        >>> try:
        ...     manifest = read_manifest('no-such-folder')
        ... except kp.CheckpointError:
        ...     print('no checkpoint there')
        no checkpoint there
        ```
    """
