# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers as users write them for Keras 2.4 and later: functions as in `own_optimizers`."""

from frameworks import tf


def entrywise(keras):
    """Momentum whose step is kept between bounds, for dense gradients and for rows."""

    class Bounded(keras.optimizers.Optimizer):
        def __init__(self, learning_rate=0.1, name='Bounded', **kwargs):
            super().__init__(name, **kwargs)
            self._set_hyper('learning_rate', learning_rate)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, 'mean')

        def _step(self, mean, dtype):
            return self._decayed_lr(dtype) * mean / (0.01 + abs(mean))

        def _resource_apply_dense(self, grad, var, apply_state=None):
            slot = self.get_slot(var, 'mean')
            mean = 0.9 * slot + 0.1 * grad
            step = self._step(mean, var.dtype.base_dtype)
            return tf.group(slot.assign(mean), var.assign_sub(step))

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            slot = self.get_slot(var, 'mean')
            mean = 0.9 * tf.gather(slot, indices) + 0.1 * grad
            step = self._step(mean, var.dtype.base_dtype)
            return tf.group(
                self._resource_scatter_update(slot, indices, mean),
                self._resource_scatter_add(var, indices, -step),
            )

        def get_config(self):
            rate = self._serialize_hyperparameter('learning_rate')
            return dict(super().get_config(), learning_rate=rate)

    return Bounded()


def layerwise(keras):
    """LARS: the rate of a variable goes with the ratio of its norm to that of its gradient."""

    class Layerwise(keras.optimizers.SGD):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            ratio = tf.norm(var) / (tf.norm(grad) + 1e-6)
            return super()._resource_apply_dense(ratio * grad, var, apply_state)

        def _resource_apply_sparse_duplicate_indices(self, grad, var, indices, **kwargs):
            whole = tf.IndexedSlices(grad, indices, tf.shape(var))
            return self._resource_apply_dense(tf.convert_to_tensor(whole), var, **kwargs)

    return Layerwise(0.02, momentum=0.8)


def layerwise_adam(keras):
    """LAMB, with its slots side by side: `[iterations, m0, v0, m1, v1, ...]`."""

    class LayerwiseAdam(keras.optimizers.Optimizer):
        def __init__(self, learning_rate=0.02, name='LayerwiseAdam', **kwargs):
            super().__init__(name, **kwargs)
            self._set_hyper('learning_rate', learning_rate)

        def _create_slots(self, var_list):
            for variable in var_list:
                self.add_slot(variable, 'm')
                self.add_slot(variable, 'v')

        def _resource_apply_dense(self, grad, var, apply_state=None):
            m, v = [self.get_slot(var, name) for name in 'mv']
            mean, square = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * tf.square(grad)
            step = mean / (tf.sqrt(square) + 1e-3)
            ratio = tf.norm(var) / (tf.norm(step) + 1e-6)
            change = self._decayed_lr(var.dtype.base_dtype) * ratio * step
            return tf.group(m.assign(mean), v.assign(square), var.assign_sub(change))

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            whole = tf.IndexedSlices(grad, indices, tf.shape(var))
            return self._resource_apply_dense(tf.convert_to_tensor(whole), var, apply_state)

        def get_config(self):
            rate = self._serialize_hyperparameter('learning_rate')
            return dict(super().get_config(), learning_rate=rate)

    return LayerwiseAdam()


def _clipped_together(pairs):
    gradients, variables = zip(*pairs)
    return list(zip(tf.clip_by_global_norm(gradients, 0.05)[0], variables))


def transforming(keras):
    """Keras's own, which a function of a user's gives other gradients."""
    return keras.optimizers.Adam(0.02, gradient_transformers=[_clipped_together])


def aggregating(keras):
    """The same, where it would add up gradients of replicas."""
    return keras.optimizers.Adagrad(0.2, gradient_aggregator=_clipped_together)


def together_when_applied(keras):
    """Gradients clipped by the norm of all when they are applied."""

    class Together(keras.optimizers.SGD):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            return super().apply_gradients(_clipped_together(grads_and_vars), *args, **kwargs)

    return Together(0.2, momentum=0.5)


def subclass_with_a_bound(keras):
    """A subclass whose gradients Keras clips."""
    return type('Mine', (keras.optimizers.SGD,), {})(0.2, momentum=0.5, clipnorm=0.02)


#: Those that `own_optimizers` has not; the first three have the names of theirs.
OWN = {
    'entrywise': entrywise,
    'layerwise': layerwise,
    'layerwise_adam': layerwise_adam,
    'transforming': transforming,
    'aggregating': aggregating,
    'together_when_applied': together_when_applied,
    'subclass_with_a_bound': subclass_with_a_bound,
}
