# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The area under the ROC curve within groups, such as the samples of one user."""

from typing import Optional, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Model, Tensor
from keras_parallax.metrics.sums import SumMetric

#: Strings are told apart by so many hashes.
_HASHES = 2**62


class GroupAUC(SumMetric):
    """The mean area under the ROC curve of groups of samples, such as those of one user.

    The area of a group says how well a model orders its samples among each other; which group has
    the higher predictions does not matter. A group counts as many times as it has samples:
    `sum(n[g] * auc[g]) / sum(n[g])` (Zhou et al., "Deep Interest Network for Click-Through Rate
    Prediction", KDD 2018, section 6.3, where a group is a user and a sample an impression). Groups
    without samples of both labels have no area and are left out of both sums. If all are, it is
    NaN. Equal predictions count one half, as in `AUC`; otherwise it is exact.

    Groups are told by an input of the model. A second column of `y_true` is no place for them:
    Keras casts it to the predictions' `float32`, in which ids above 16,777,216 fall together, and
    hands it to the loss. An input that the model does not use otherwise will do, but Keras leaves
    it out of files of the model.

    It is of all samples of the job: those of a group are compared wherever they are. Each worker
    keeps its samples until the end of the epoch, and sends them to the workers that compare them
    then. Training samples are still kept while the model validates. If a worker had more than
    `max_samples`, it is of one half of the groups, a quarter and so on, chosen by a hash of their
    ids and the same on all workers, each with all of its samples; a group of more samples than
    `max_samples` is left out in the end. A million samples take 21 MB, and 120 MB while they
    are compared at the end of an epoch.

    In the logs of `fit`, and in what `model.evaluate` returns, it is as `AUC` says, and so are
    weights: with them a sample counts as many times as it weighs. At the end of a batch, and in
    what `model.test_on_batch` returns, it is of this worker's samples as they were when their
    number had last doubled. A checkpoint within an epoch does not have the samples: after a resume,
    the epoch's training value is of the samples since then.

    Args:
        groups: name of the input with each sample's group, of shape `[batch]` or `[batch, 1]`:
            integers, strings, or whole numbers of a floating dtype.
        max_samples: how many samples each worker keeps at most.
        name: its name in the logs.

    Raises:
        PlanError: `max_samples` is less than 1; `compile` raises it if the model has no such input,
            if that holds more than one number a sample, if an output has more than one prediction
            for a sample, or if it is not called in the scope of a strategy.
        DataError: in a batch, a label is not 0 or 1, a prediction is NaN, or a group is no whole
            number, or one that its dtype cannot tell from the next.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     user = keras.layers.Input((1,), dtype='int32', name='user')
        ...     features = keras.layers.Input((2,), name='features')
        ...     click = keras.layers.Dense(1, activation='sigmoid')(features)
        ...     model = keras.models.Model([user, features], click)
        ...     model.compile(
        ...         'sgd', 'binary_crossentropy', metrics=[kp.metrics.GroupAUC('user')])
        >>> x = [np.array([7, 7, 9, 9]), np.array([[0, 1], [2, 0], [3, 1], [0, 4]])]
        >>> sorted(model.fit(x, np.array([0, 1, 1, 0]), verbose=0).history)
        ['group_auc', 'loss']
        ```
    """

    def __init__(self, groups: str, max_samples: int = 1000000, name: str = 'group_auc') -> None:
        if max_samples < 1:
            raise PlanError(
                'GroupAUC needs to keep at least 1 sample, but got max_samples=%r.' % max_samples
            )
        super().__init__(name)
        self.groups, self.max_samples = groups, max_samples

    def takes(self, predictions: Tensor) -> Tuple[Tensor, str]:
        """Any number."""
        return tf.reduce_all(tf.equal(predictions, predictions)), 'takes no prediction that is NaN'

    def samples_of_batch(
        self, model: Model, y_true: Tensor, y_pred: Tensor, sample_weight: Optional[Tensor] = None
    ) -> Tuple[Tensor, ...]:
        """A batch as `group_samples.GroupSamples` takes it; one with bad values fails.

        Args:
            model: the model, which has the groups as an input.
            y_true: as Keras gives it.
            y_pred: as Keras gives it.
            sample_weight: as Keras gives it.

        Returns:
            A vector for each field of `group_samples.SAMPLE`.
        """
        labels, predictions, weights = self.checked(y_true, y_pred, sample_weight)
        groups = self._groups_of(model)
        checks = [
            self._check(
                tf.equal(tf.size(groups), tf.size(predictions)),
                'takes a group for each prediction',
            )
        ]
        if groups.dtype.is_floating:
            # The first number that is not told from the next.
            limit = 2.0 ** {tf.float16: 11, tf.float32: 24}.get(groups.dtype, 53)
            whole = tf.equal(groups, tf.floor(groups)) & (tf.abs(groups) < limit)
            checks.append(
                self._check(
                    tf.reduce_all(whole),
                    'takes groups that are whole numbers below %d in size as %s; give the input '
                    "dtype='int32' or 'int64' for others" % (limit, groups.dtype.name),
                )
            )
        with tf.control_dependencies(checks):
            groups = tf.reshape(groups, [-1])
            if groups.dtype == tf.string:
                groups = tf.string_to_hash_bucket_fast(groups, _HASHES)
            return tf.cast(groups, tf.int64), predictions, weights, tf.cast(labels, tf.bool)

    def _groups_of(self, model: Model) -> Tensor:
        inputs = dict(zip(model.input_names, model.inputs))
        if self.groups not in inputs:
            raise PlanError(
                'The metric %s takes groups from an input named %r, but the model has the inputs '
                '%s.' % (self.name, self.groups, ', '.join(map(repr, sorted(inputs))))
            )
        groups = inputs[self.groups]
        shape = None if isinstance(groups, tf.SparseTensor) else groups.shape.as_list()
        if shape is None or len(shape) > 2 or shape[1:] not in ([], [1]):
            raise PlanError(
                'The metric %s takes one group for each sample, but the input %s has the shape %s.'
                % (self.name, self.groups, groups.shape)
            )
        return groups
