# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Plain Keras in one process: what N workers must equal.

Keras 2.2.4 races with itself: it may update a variable before the backward pass or another update
has read it. The reference holds its updates back until all gradients are there, and increments the
step number after everything else; its formulas stay Keras's own.
"""

import functools

import cases
import numpy as np
from frameworks import TF1_15, TF2, tf


def with_default_names(history):
    """A history of plain Keras with the names that a strategy logs metrics by besides: a dict.

    Where TensorFlow 2 builds graphs, Keras does not call a metric by the string that it was given.
    """
    other = {'mean_absolute_error': 'mae', 'acc': 'accuracy'} if TF2 and not TF1_15 else {}
    more = {
        prefix + other[name]: history[prefix + name]
        for name in other
        for prefix in ('', 'val_')
        if prefix + name in history
    }
    return {**history, **more}


def gated(optimizer):
    """Makes an optimizer write nothing before all gradients are there."""
    if isinstance(optimizer, tf.train.Optimizer):
        compute = optimizer.compute_gradients

        def compute_gradients(loss, *args, **kwargs):
            gradients, variables = zip(*compute(loss, *args, **kwargs))
            return list(zip(tf.tuple([loss] + list(gradients))[1:], variables))

        optimizer.compute_gradients = compute_gradients
        return optimizer
    if not hasattr(optimizer, 'updates'):
        return optimizer  # Keras 2.15 updates resources, in the order that it needs.
    cls = type(optimizer)

    class Gated(cls):
        def get_gradients(self, loss, params):
            self.computed = [loss] + super().get_gradients(loss, params)
            return tf.tuple(self.computed)[1:]

        def get_updates(self, loss, params):
            updates = super().get_updates(loss=loss, params=params)
            counters = [getattr(self, name, None) for name in ('iterations', 'm_schedule')]
            others, last = [], []
            for update in updates:
                is_pair = isinstance(update, tuple)
                target = update[0] if is_pair else _target(update)
                if any(target is counter or target == _name(counter) for counter in counters):
                    last.append(update)
                else:
                    others.append(update.op)
            with tf.control_dependencies(others):
                for number, update in enumerate(last):
                    if isinstance(update, tuple):
                        last[number] = tf.assign(*update)
                    else:
                        update.op._add_control_inputs(others)
            return others + last

    optimizer.__class__ = Gated
    return optimizer


def gate_updates(model):
    """Makes what a compiled model's layers write with each batch wait for the gradients, too.

    The model is only trained then: what tests and predicts runs the same operations.
    """
    computed = getattr(model.optimizer, 'computed', None)
    if computed is None:
        return
    before = _ancestors([tensor.op for tensor in computed])
    for operation in _ancestors([model.train_function.updates_op]) - before:
        if operation.type.startswith('Assign'):
            operation._add_control_inputs([tensor.op for tensor in computed])


def _ancestors(operations):
    found, pending = set(), list(operations)
    while pending:
        operation = pending.pop()
        if operation not in found:
            found.add(operation)
            pending.extend(tensor.op for tensor in operation.inputs)
            pending.extend(operation.control_inputs)
    return found


def gated_as(cls):
    """What `load_model` takes for an optimizer's class, so that its optimizer is `gated`."""

    class Gated:
        @staticmethod
        def from_config(config):
            optimizer = gated(cls.from_config(config))
            type(optimizer).__name__ = cls.__name__
            return optimizer

    return Gated


def load_model(keras, path, cls):
    """A model of plain Keras from a file, whose optimizer is `gated`.

    Args:
        keras: the Keras package.
        path: the file.
        cls: the class of its optimizer.
    """
    # `keras` looks for its own optimizers by their names in small letters, `tf.keras` does not.
    objects = dict.fromkeys([cls.__name__, cls.__name__.lower()], gated_as(cls))
    model = keras.models.load_model(path, custom_objects=objects)
    assert type(model.optimizer) is not cls or not hasattr(model.optimizer, 'updates')
    return model


def _name(variable):
    return None if variable is None else variable.op.name


def _target(update):
    return update.op.inputs[0].op.name


def run(case, keras, ranks, steps=None):
    """Trains a case in one process on the joined batches of `ranks` workers.

    Returns:
        The start weights, a list of losses, and the final weights.
    """
    # Many cases differ only in what plain Keras knows nothing of: their numbers are the same.
    steps, samples = steps or case.steps, cases.joined_size(case, ranks)
    case = case._replace(wrap=None, strategy=None, tolerance=None, samples=samples)
    return _run(case, keras, steps)


@functools.lru_cache(maxsize=None)
def _run(case, keras, steps):
    model = compiled(case, keras)
    losses = cases.train(model, cases.joined_batches(case, 1, steps))
    return cases.start_weights(model), losses, model.get_weights()


def compiled(case, keras):
    """A case's model with its start weights, ready to train, in a graph of its own."""
    keras.backend.clear_session()
    model = case.model(keras)
    model.compile(
        gated(case.optimizer(keras)), cases.as_lists(case.loss), **cases.compile_arguments(case)
    )
    if case.model in cases.CALLING:
        # A gradient adds outputs to a function's call, which a session must not know before; the
        # second one too, in TensorFlow 1.15.
        for _ in range(2):
            tf.gradients(model.total_loss, model.trainable_weights)
    model.set_weights(cases.start_weights(model))
    # After that: an optimizer may start slots from the weights.
    model._make_train_function()
    gate_updates(model)
    return model


def check(found, case, keras, ranks):
    """Checks what a parallel job of `equality_worker.py` found.

    Args:
        found: its file of results, as `np.load` gives it.
        case, keras, ranks: as `run` takes them.
    """
    start, losses, weights = run(case, keras, ranks)
    np.testing.assert_allclose(found['losses'], losses, rtol=case.tolerance)
    for number, (begin, expected) in enumerate(zip(start, weights)):
        largest = max(np.abs(begin).max(), np.abs(expected).max())
        np.testing.assert_allclose(
            found['arr_%d' % number], expected, rtol=0, atol=case.tolerance * largest
        )
    # A case in which nothing moves would pass whatever the library does.
    moved = [not np.array_equal(*pair) for pair in zip(start, weights)]
    assert any(moved) and len(set(losses)) > 1
