# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers as users write them: functions from a Keras package to an optimizer.

Where a formula asks for gradients itself it also has them wait for each other, which `reference`
does for all others: plain Keras 2.2.4 races with itself.
"""

import os

import numpy as np
import own_optimizers_v2
from frameworks import TF2, tf


def _gated(loss, gradients):
    return tf.tuple([tf.convert_to_tensor(g) for g in gradients] + [loss])[:-1]


def centralized(keras):
    """Adam whose gradients have a mean of 0 over all axes but the last."""
    backend = keras.backend

    class Centralized(keras.optimizers.Adam):
        def get_gradients(self, loss, params):
            gradients = super().get_gradients(loss, params)
            return [
                g - backend.mean(g, axis=list(range(len(p.shape) - 1)), keepdims=True)
                if len(p.shape) > 1
                else g
                for g, p in zip(map(tf.convert_to_tensor, gradients), params)
            ]

    return Centralized(lr=0.01)


def halving_clipped(keras):
    """SGD with a norm, whose gradients are halved after they have been clipped."""

    class Halving(keras.optimizers.SGD):
        def get_gradients(self, loss, params):
            return [0.5 * tf.convert_to_tensor(g) for g in super().get_gradients(loss, params)]

    return Halving(lr=0.2, momentum=0.5, clipnorm=0.05)


def with_a_method_of_its_own(keras):
    """An object of Keras's own class, with another `get_gradients`."""
    optimizer = keras.optimizers.Adagrad(lr=0.1)
    compute = optimizer.get_gradients

    def get_gradients(loss, params):
        return [tf.clip_by_value(g, -0.02, 0.02) for g in _gated(loss, compute(loss, params))]

    optimizer.get_gradients = get_gradients
    return optimizer


def asking_the_backend(keras):
    """A formula that calls `K.gradients` itself."""
    backend = keras.backend

    class Asking(keras.optimizers.Optimizer):
        def __init__(self, lr=0.05, **kwargs):
            super().__init__(**kwargs)
            self.lr = backend.variable(lr)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            gradients = _gated(loss, backend.gradients(loss, params))
            self.updates = [
                backend.update(p, p - self.lr * g / (1 + abs(g))) for p, g in zip(params, gradients)
            ]
            return self.updates

    return Asking()


def accumulating(keras):
    """Updates by another optimizer, with the mean gradient of two steps, every second one.

    The inner optimizer gets gradients from a function that knows `self`.
    """
    backend = keras.backend

    class Accumulating(keras.optimizers.Optimizer):
        def __init__(self, optimizer, every, **kwargs):
            super().__init__(**kwargs)
            self.optimizer = optimizer
            self.iterations = backend.variable(0, dtype='int64', name='iterations')
            self.is_last = backend.equal(self.iterations % every, every - 1)
            self.lr = optimizer.lr
            optimizer.lr = backend.switch(self.is_last, optimizer.lr, 0.0 * optimizer.lr)

            def get_gradients(loss, params):
                return [total / every for total in self.totals]

            optimizer.get_gradients = get_gradients

        def get_updates(self, loss, params):
            self.kept = [backend.zeros(backend.int_shape(p)) for p in params]
            gradients = self.get_gradients(loss, params)
            self.totals = [kept + g for kept, g in zip(self.kept, gradients)]
            self.updates = [
                backend.update(kept, backend.switch(self.is_last, 0 * total, total))
                for kept, total in zip(self.kept, self.totals)
            ]
            with tf.control_dependencies([getattr(u, 'op', u) for u in self.updates]):
                self.updates.append(backend.update_add(self.iterations, 1))
            self.updates += self.optimizer.get_updates(loss=loss, params=params)[1:]
            self.weights = [self.iterations] + self.kept
            return self.updates

    return Accumulating(keras.optimizers.SGD(lr=0.2), 2)


def lookahead(keras):
    """Every third step, weights go half the way from the slow ones to those of an inner Adam."""
    backend = keras.backend

    class Lookahead(keras.optimizers.Optimizer):
        def __init__(self, optimizer, period=3, **kwargs):
            super().__init__(**kwargs)
            self.optimizer, self.period = optimizer, period

        @property
        def lr(self):
            return self.optimizer.lr

        @property
        def iterations(self):
            return self.optimizer.iterations

        def get_updates(self, loss, params):
            slow = {p.name: backend.variable(backend.get_value(p)) for p in params}
            update = backend.update
            backend.update = lambda variable, value: (variable, value)
            try:
                pending = self.optimizer.get_updates(loss=loss, params=params)
            finally:
                backend.update = update
            at_end = backend.equal((self.optimizer.iterations + 1) % self.period, 0)
            self.updates = [one for one in pending if not isinstance(one, tuple)]
            pairs = []
            for variable, value in (one for one in pending if isinstance(one, tuple)):
                if variable.name in slow:
                    near = slow[variable.name] + 0.5 * (value - slow[variable.name])
                    kept = backend.switch(at_end, near, 1.0 * slow[variable.name])
                    pairs.append((slow[variable.name], kept))
                    value = backend.switch(at_end, near, value)
                pairs.append((variable, value))
            # The inner optimizer's gradients wait for nothing, in plain Keras.
            values = _gated(loss, [value for _, value in pairs])
            self.updates += [update(pair[0], value) for pair, value in zip(pairs, values)]
            self.weights = self.optimizer.weights + list(slow.values())
            return self.updates

    return Lookahead(keras.optimizers.RMSprop(lr=0.01, clipnorm=0.1))


class ClippedTogether(tf.train.MomentumOptimizer):
    """TensorFlow's, with gradients clipped by the norm of all, as estimators do it."""

    def compute_gradients(self, *args, **kwargs):
        kwargs['gate_gradients'] = self.GATE_GRAPH
        gradients, variables = zip(*super().compute_gradients(*args, **kwargs))
        # The norm of slices would count a row's parts one by one.
        gradients = list(map(tf.convert_to_tensor, gradients))
        return list(zip(tf.clip_by_global_norm(gradients, 0.05)[0], variables))


def tf_clipped(keras):
    return ClippedTogether(0.2, 0.9)


class SlicesClippedTogether(tf.train.MomentumOptimizer):
    """TensorFlow's, with the norm of slices, which counts the parts of a row one by one."""

    def compute_gradients(self, *args, **kwargs):
        kwargs['gate_gradients'] = self.GATE_GRAPH
        gradients, variables = zip(*super().compute_gradients(*args, **kwargs))
        return list(zip(tf.clip_by_global_norm(gradients, 0.05)[0], variables))


def tf_slices_clipped(keras):
    return SlicesClippedTogether(0.2, 0.9)


class ClippedBeforeApplied(tf.train.AdagradOptimizer):
    """TensorFlow's, clipped by the norm of slices when gradients are applied."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        gradients, variables = zip(*grads_and_vars)
        gradients = tf.clip_by_global_norm(gradients, 0.05)[0]
        return super().apply_gradients(list(zip(gradients, variables)), *args, **kwargs)


def tf_clipped_before_applied(keras):
    return ClippedBeforeApplied(0.2)


def slices_clipped(keras):
    """Gradients clipped by a norm that counts the parts of a row one by one."""

    class Together(keras.optimizers.SGD):
        def get_gradients(self, loss, params):
            return tf.clip_by_global_norm(super().get_gradients(loss, params), 0.05)[0]

    return Together(lr=0.2, momentum=0.5)


def slices_clipped_twice(keras):
    """The same of gradients that Keras has clipped."""
    optimizer = slices_clipped(keras)
    optimizer.clipnorm = 0.1
    return optimizer


def by_slices(keras):
    """Rows are moved part by part where a gradient has rows, as lazy optimizers do."""
    backend = keras.backend

    class BySlices(keras.optimizers.Optimizer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            self.updates = [backend.update_add(self.iterations, 1)]
            for p, g in zip(params, self.get_gradients(loss, params)):
                if isinstance(g, tf.IndexedSlices):
                    step = 0.05 * g.values / (0.01 + abs(g.values))
                    self.updates.append(tf.scatter_sub(p, g.indices, step))
                else:
                    self.updates.append(backend.update(p, p - 0.1 * g))
            return self.updates

    return BySlices()


def by_kind_of_gradient(keras):
    """Another rate for what has a gradient of rows."""

    class ByKind(keras.optimizers.SGD):
        def get_gradients(self, loss, params):
            return [
                (0.5 if isinstance(g, tf.IndexedSlices) else 2.0) * tf.convert_to_tensor(g)
                for g in super().get_gradients(loss, params)
            ]

    return ByKind(lr=0.1)


def layerwise(keras):
    """LARS: the rate of a variable goes with the ratio of its norm to that of its gradient."""
    backend = keras.backend

    class Layerwise(keras.optimizers.SGD):
        def get_updates(self, loss, params):
            gradients = self.get_gradients(loss, params)
            self.updates = [backend.update_add(self.iterations, 1)]
            moments = [backend.zeros(backend.int_shape(p)) for p in params]
            self.weights = [self.iterations] + moments
            for p, g, m in zip(params, gradients, moments):
                norm = backend.sqrt(backend.sum(backend.square(p)))
                ratio = norm / (backend.sqrt(backend.sum(backend.square(g))) + 1e-6)
                step = self.momentum * m - self.lr * ratio * g
                self.updates += [backend.update(m, step), backend.update(p, p + step)]
            return self.updates

    return Layerwise(lr=0.02, momentum=0.8)


def layerwise_adam(keras):
    """LAMB, with its slots side by side: `[iterations, m0, v0, m1, v1, ...]`."""
    backend = keras.backend

    class LayerwiseAdam(keras.optimizers.Optimizer):
        def __init__(self, lr=0.02, **kwargs):
            super().__init__(**kwargs)
            self.lr = backend.variable(lr)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            self.updates, self.weights = [], [self.iterations]
            for p, g in zip(params, self.get_gradients(loss, params)):
                m, v = [backend.zeros(backend.int_shape(p)) for _ in range(2)]
                self.weights += [m, v]
                g = tf.convert_to_tensor(g)
                mean, square = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * backend.square(g)
                step = mean / (backend.sqrt(square) + 1e-3)
                ratio = tf.norm(p) / (tf.norm(step) + 1e-6)
                self.updates += [
                    backend.update(m, mean),
                    backend.update(v, square),
                    backend.update(p, p - self.lr * ratio * step),
                ]
            self.updates.append(backend.update_add(self.iterations, 1))
            return self.updates

    return LayerwiseAdam()


def factored(keras):
    """Adafactor: the second moment of a matrix as the product of means over rows and columns."""
    backend = keras.backend

    class Factored(keras.optimizers.Optimizer):
        def __init__(self, lr=0.02, **kwargs):
            super().__init__(**kwargs)
            self.lr = backend.variable(lr)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            self.updates, self.weights = [backend.update_add(self.iterations, 1)], []
            for p, g in zip(params, self.get_gradients(loss, params)):
                shape, square = backend.int_shape(p), backend.square(g) + 1e-6
                if len(shape) == 2:
                    rows, columns = backend.zeros(shape[:1]), backend.zeros(shape[1:])
                    new = [0.9 * rows + 0.1 * backend.mean(square, axis=1)]
                    new.append(0.9 * columns + 0.1 * backend.mean(square, axis=0))
                    outer = backend.expand_dims(new[0], 1) * backend.expand_dims(new[1], 0)
                    slots, second = [rows, columns], outer / backend.mean(new[0])
                else:
                    slots = [backend.zeros(shape)]
                    new = [0.9 * slots[0] + 0.1 * square]
                    second = new[0]
                self.weights += slots
                self.updates += [backend.update(*pair) for pair in zip(slots, new)]
                self.updates.append(backend.update(p, p - self.lr * g / backend.sqrt(second)))
            return self.updates

    return Factored()


def clipped_together(keras):
    """A formula that clips by the norm of all gradients itself."""

    class Together(keras.optimizers.SGD):
        def get_gradients(self, loss, params):
            gradients = super().get_gradients(loss, params)
            return tf.clip_by_global_norm(list(map(tf.convert_to_tensor, gradients)), 0.05)[0]

    return Together(lr=0.2, momentum=0.5)


def by_name(keras):
    """Weight decay and rates that go by the name of a variable, with a slot kept by name."""
    backend = keras.backend

    class ByName(keras.optimizers.Optimizer):
        def __init__(self, rates, **kwargs):
            super().__init__(**kwargs)
            self.rates = rates
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            self.updates = [backend.update_add(self.iterations, 1)]
            slots = {p.name: backend.zeros(backend.int_shape(p)) for p in params}
            self.weights = [self.iterations] + list(slots.values())
            for p, g in zip(params, self.get_gradients(loss, params)):
                rate = self.rates.get(p.name.split('/')[0], 0.05)
                total = slots[p.name] + backend.square(g)
                step = rate * (g / backend.sqrt(total + 1e-3) + 0.01 * p)
                self.updates += [backend.update(slots[p.name], total), backend.update(p, p - step)]
            return self.updates

    return ByName({'table': 0.2, 'out': 0.1})


def noisy(keras):
    """Gradients with noise, which workers would draw from seeds of their own."""
    backend, seed = keras.backend, 5 + int(os.environ.get('HOROVOD_RANK', 0))

    class Noisy(keras.optimizers.Adagrad):
        def get_gradients(self, loss, params):
            return [
                g + backend.random_normal(backend.int_shape(p), stddev=0.01, seed=seed)
                for g, p in zip(super().get_gradients(loss, params), params)
            ]

    return Noisy(lr=0.1)


def by_number_of_entries(keras):
    """A rate that depends on the number of entries of a variable."""
    backend = keras.backend

    class Sized(keras.optimizers.Optimizer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            self.updates = [backend.update_add(self.iterations, 1)]
            for p, g in zip(params, self.get_gradients(loss, params)):
                rate = 1.0 / np.sqrt(np.prod(backend.int_shape(p)))
                self.updates.append(backend.update(p, p - rate * tf.convert_to_tensor(g)))
            return self.updates

    return Sized()


def entrywise(keras):
    """AdaBound, by and large: Adam, whose rate for each entry is kept between bounds."""
    backend = keras.backend

    class Bounded(keras.optimizers.Optimizer):
        def __init__(self, lr=0.01, **kwargs):
            super().__init__(**kwargs)
            self.lr = backend.variable(lr)
            self.iterations = backend.variable(0, dtype='int64', name='iterations')

        def get_updates(self, loss, params):
            gradients = self.get_gradients(loss, params)
            number = backend.cast(self.iterations, 'float32') + 1
            self.updates = [backend.update_add(self.iterations, 1)]
            low, high = 0.02 * (1 - 1 / (number + 1)), 0.02 * (1 + 1 / number)
            means = [backend.zeros(backend.int_shape(p)) for p in params]
            squares = [backend.zeros(backend.int_shape(p)) for p in params]
            self.weights = [self.iterations]
            for p, g, m, v in zip(params, gradients, means, squares):
                g = tf.convert_to_tensor(g)
                mean, square = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * backend.square(g)
                rate = backend.minimum(
                    backend.maximum(self.lr / (backend.sqrt(square) + 1e-6), low), high
                )
                self.updates += [backend.update(m, mean), backend.update(v, square)]
                self.updates.append(backend.update(p, p - rate * mean))
                self.weights += [m, v]
            return self.updates

    return Bounded()


#: What is asked of every other value: gradients.
OWN_GRADIENTS = {
    'centralized': centralized,
    'halving_clipped': halving_clipped,
    'with_a_method_of_its_own': with_a_method_of_its_own,
    'asking_the_backend': asking_the_backend,
    'accumulating': accumulating,
    'lookahead': lookahead,
    'tf_clipped': tf_clipped,
    'clipped_together': clipped_together,
    'tf_slices_clipped': tf_slices_clipped,
    'tf_clipped_before_applied': tf_clipped_before_applied,
    'slices_clipped': slices_clipped,
    'slices_clipped_twice': slices_clipped_twice,
    'by_slices': by_slices,
    'by_kind_of_gradient': by_kind_of_gradient,
}
#: Formulas that look at more than an entry.
OWN_FORMULAS = {
    'entrywise': entrywise,
    'layerwise': layerwise,
    'layerwise_adam': layerwise_adam,
    'factored': factored,
    'by_name': by_name,
    'noisy': noisy,
    'by_number_of_entries': by_number_of_entries,
}
#: Those that build updates as the base class of Keras 2.2.4 has them do; later ones have another.
OF_KERAS_1 = (
    'asking_the_backend',
    'accumulating',
    'lookahead',
    'by_slices',
    'entrywise',
    'layerwise',
    'layerwise_adam',
    'factored',
    'by_name',
    'by_number_of_entries',
)
#: All that the installed Keras can have.
OWN = dict(OWN_GRADIENTS, **OWN_FORMULAS)
if TF2:
    for _name in OF_KERAS_1:
        del OWN[_name]
    OWN.update(own_optimizers_v2.OWN)
