# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a run of somebody's script trains: workers' shares of its data go in, numbers come out.

The script stays as it is. Methods of Keras's models are wrapped from outside: `fit` and its kin get
the worker's share of the samples that the script gives, in the order that it gives them, of few
batches; what was trained is noted. The plain run goes through the same, as the only rank, with its
updates held back until all gradients are there (`reference.gated`).
"""

import functools

import numpy as np
import recording
import reference
import shares
from frameworks import model_class, tf
from recording import MOST_BATCHES, MOST_EPOCHS, MOST_FITS, MOST_JUDGED, MOST_STEPS, Enough, first


class Recorder(recording.Recorder):
    """Wraps the models of Keras packages and notes what is trained.

    Args:
        packages: the Keras modules.
        place: whose share of the data is trained on, a `shares.Place`.
        gates: whether optimizers are to be gated, as in plain Keras they must be.
    """

    def __init__(self, packages, place, gates):
        super().__init__(place)
        self.packages, self.gates = packages, gates

    def __enter__(self):
        for package in self.packages:
            cls = model_class(package)
            self.wrap(cls, 'compile', functools.partial(self._compile, package))
            self.wrap(cls, 'fit', functools.partial(self._fit, package))
            self.wrap(cls, 'fit_generator', functools.partial(self._fit_generator, package))
            self.wrap(cls, 'evaluate', self._evaluate)
            self.wrap(cls, 'train_on_batch', functools.partial(self._train_on_batch, package))
        return self

    def _compile(self, package, original, model, arguments):
        if self.gates:
            optimizer = package.optimizers.get(arguments['optimizer'])
            inner = getattr(optimizer, 'optimizer', None)
            if isinstance(inner, package.optimizers.Optimizer):
                _gate_inner(optimizer, inner)
                arguments['optimizer'] = optimizer
            else:
                arguments['optimizer'] = reference.gated(optimizer)
        return original(**arguments)

    def _note(self, package, model):
        if any(model is known for known in self.models):
            return
        self.models.append(model)
        self.reasons.update(_why_not_equal(model))

    def _fit(self, package, original, model, arguments):
        self._fits += 1
        if self._fits > MOST_FITS:
            raise Enough
        self._note(package, model)
        arguments['epochs'] = min(arguments['epochs'], arguments['initial_epoch'] + MOST_EPOCHS)
        arguments['shuffle'] = False
        data = arguments['x'], arguments['y'], arguments['sample_weight']
        if not hasattr(first(data[0]), '__len__'):
            self.reasons.add('its data comes from a graph')
            history = original(**arguments)
        else:
            if arguments['validation_split']:
                data, kept = shares.split(data, arguments.pop('validation_split'))
                arguments['validation_data'] = kept if kept[2] is not None else kept[:2]
            samples = shares.count(data[0])
            if _fixed_batch(model):
                size = arguments['batch_size'] or 32
                steps = max(min(samples // size, MOST_STEPS), 1)
                chosen = np.arange(steps * size)
            else:
                joined = shares.batch_size(arguments['batch_size'] or 32, samples)
                chosen = shares.indices(samples, joined, MOST_STEPS, self.place)
                arguments['batch_size'] = joined // self.place.ranks
            judged = arguments['validation_data']
            if judged is not None and hasattr(first(judged[0]), '__len__'):
                few = np.arange(min(shares.count(judged[0]), MOST_JUDGED))
                arguments['validation_data'] = shares.take_all(judged, few)
            data = shares.take_all(data, chosen)
            arguments['x'], arguments['y'], arguments['sample_weight'] = data
            if arguments['class_weight'] is not None and package.__name__ != 'keras':
                self.reasons.add('tf.keras divides by the sum of weights')
            history = original(**arguments)
        self.losses.extend(history.history['loss'])
        return history

    def _evaluate(self, original, model, arguments):
        """Judges by a few samples only; every worker judges by the same."""
        x, y = arguments['x'], arguments['y']
        if hasattr(first(x), '__len__'):
            chosen = np.arange(min(shares.count(x), MOST_JUDGED))
            weights = shares.take(arguments['sample_weight'], chosen)
            arguments.update(x=shares.take(x, chosen), y=shares.take(y, chosen))
            arguments['sample_weight'] = weights
        return original(**arguments)

    def _fit_generator(self, package, original, model, arguments):
        self._fits += 1
        if self._fits > MOST_FITS:
            raise Enough
        self._note(package, model)
        arguments['epochs'] = min(arguments['epochs'], arguments['initial_epoch'] + MOST_EPOCHS)
        generator, steps = arguments['generator'], arguments['steps_per_epoch']
        base = package.utils.Sequence
        if isinstance(generator, base):
            arguments['generator'] = shares.of_sequence(base, generator, self.place, MOST_STEPS)
        else:
            arguments['generator'] = shares.of_generator(generator, self.place)
        if steps is not None:
            arguments['steps_per_epoch'] = min(steps, MOST_STEPS)
        if arguments['validation_steps'] is not None:
            arguments['validation_steps'] = min(arguments['validation_steps'], 2)
        arguments.update(workers=1, use_multiprocessing=False, shuffle=False)
        history = original(**arguments)
        self.losses.extend(history.history['loss'])
        return history

    def _train_on_batch(self, package, original, model, arguments):
        self._batches += 1
        if self._batches > MOST_BATCHES:
            raise Enough
        self._note(package, model)
        batch = arguments['x'], arguments['y'], arguments['sample_weight']
        if not _fixed_batch(model):
            batch = shares.of_batch(batch, self.place)
        arguments['x'], arguments['y'], arguments['sample_weight'] = batch
        result = original(**arguments)
        self.losses.append(float(np.ravel(result)[0]))
        return result


def _gate_inner(outer, inner):
    """Gates an optimizer that makes its own updates of another's.

    It may ask the other for some variables after the others, so that the gradients of those asked
    for say nothing about the rest: what it writes waits for the gradients of all.
    """
    get_updates, get_gradients = outer.get_updates, inner.get_gradients

    def updates(loss, params):
        computed = tf.group(loss, *get_gradients(loss, params))

        def gradients(loss, params):
            return tf.tuple(get_gradients(loss, params), control_inputs=[computed])

        inner.get_gradients = gradients
        return get_updates(loss=loss, params=params)

    outer.get_updates = updates


def _fixed_batch(model):
    """Whether the model is built for one batch size, so that every worker takes the whole batch."""
    inputs = getattr(model, 'inputs', None) or []
    return any(tensor.shape.ndims and tensor.shape.as_list()[0] for tensor in inputs)


def _layers(model):
    layers = getattr(model, 'layers', [])
    for layer in layers if isinstance(layers, list) else []:
        yield layer
        yield from _layers(layer)
        for name in ('layer', 'cell', 'forward_layer', 'backward_layer'):
            inner = getattr(layer, name, None)
            if inner is not None:
                yield inner


def _why_not_equal(model):
    """Why workers with a share of the batch each need not give the numbers of the whole batch."""
    reasons = set()
    if _fixed_batch(model):
        return reasons
    if any(type(layer).__name__.startswith('BatchNorm') for layer in _layers(model)):
        reasons.add('batch normalization sees its own batch')
    loss = getattr(model, 'total_loss', None)
    if loss is not None and any(op.type.startswith('Random') for op in _ancestors(loss)):
        reasons.add('its step draws random numbers')
    outputs = getattr(model, 'outputs', None) or []
    if any(getattr(tensor, '_keras_mask', None) is not None for tensor in outputs):
        reasons.add('the loss is divided by the samples that a mask leaves')
    return reasons


def _ancestors(tensor):
    pending, seen = [tensor.op], set()
    while pending:
        operation = pending.pop()
        if operation not in seen:
            seen.add(operation)
            pending.extend(source.op for source in operation.inputs)
    return seen
