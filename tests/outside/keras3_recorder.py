# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a run of a Keras 3 script trains, as `recorder.py` has it for Keras 2."""

import inspect
import itertools
import os
import types

import keras
import numpy as np
import recording
import shares
import tensorflow as tf
from keras3_cases import Summed
from recording import MOST_BATCHES, MOST_EPOCHS, MOST_FITS, MOST_JUDGED, MOST_STEPS, Enough, first

BATCH_NORMALIZATION = 'batch normalization sees its own batch'
RANDOM_NUMBERS = 'its step draws random numbers'
NO_MEAN = 'its loss is not a mean over the samples of a batch'

#: Whether batch normalization trains with its moving statistics, which no batch changes.
MOVING_STATISTICS = os.environ.get('MOVING_STATISTICS') == '1'

#: Of Keras's own methods; keras-parallax replaces them by functions of any arguments.
SIGNATURES = {
    name: inspect.signature(getattr(keras.Model, name))
    for name in ('compile', 'fit', 'evaluate', 'train_on_batch')
}


class Recorder(recording.Recorder):
    """Wraps `keras.Model` and notes what is trained.

    Args:
        place: whose share of the data is trained on, a `shares.Place`.
        plain: whether this is the run without keras-parallax, whose optimizers are to sum the
            gradients of repeated ids.
    """

    def __init__(self, place, plain):
        super().__init__(place)
        self.plain, self._batches_of, self._read = plain, [], {}

    def __enter__(self):
        for name, signature in SIGNATURES.items():
            self.wrap(keras.Model, name, getattr(self, '_' + name), signature)
        return self

    def _compile(self, original, model, arguments):
        optimizer = arguments['optimizer'] = keras.optimizers.get(arguments['optimizer'])
        if self.plain and not isinstance(optimizer, Summed):
            cls = type(optimizer)
            summed = type(cls.__name__, (Summed, cls), {'__module__': cls.__module__})
            object.__setattr__(optimizer, '__class__', summed)
        return original(**arguments)

    def _note(self, model, batch):
        """Notes a model that has trained, the first time."""
        if any(model is known for known in self.models):
            return
        self.models.append(model)
        self._batches_of.append(batch)
        if _fixed_batch(model):
            return
        for layer in model._flatten_layers():
            normalizes = isinstance(layer, keras.layers.BatchNormalization)
            if normalizes and not MOVING_STATISTICS:
                self.reasons.add(BATCH_NORMALIZATION)
            # What is only for dropout draws nothing.
            drops = 'Dropout' in type(layer).__name__ or hasattr(layer, 'dropout')
            if not drops and any(map(_draws, vars(layer).values())):
                self.reasons.add(RANDOM_NUMBERS)

    def _fit(self, original, model, arguments):
        self._fits += 1
        if self._fits > MOST_FITS:
            raise Enough
        arguments['epochs'] = min(arguments['epochs'], arguments['initial_epoch'] + MOST_EPOCHS)
        arguments['shuffle'] = False
        place = shares.Place() if _fixed_batch(model) else self.place
        x = arguments['x']
        if isinstance(x, tf.data.Dataset):
            few = self._first_batches(x)
            arguments.update(x=of_dataset(few, place), steps_per_epoch=None)
            batch = next(iter(of_dataset(few, shares.Place())))
        elif isinstance(x, keras.utils.PyDataset):
            share = shares.of_sequence(keras.utils.PyDataset, x, place, MOST_STEPS)
            arguments.update(x=share, steps_per_epoch=None)
            batch = x[0]
        elif isinstance(x, types.GeneratorType) or not hasattr(first(x), '__len__'):
            batches = list(itertools.islice(x, MOST_STEPS))
            shared = shares.of_generator(itertools.cycle(batches), place)
            arguments.update(x=shared, steps_per_epoch=len(batches))
            batch = batches[0]
        else:
            batch = self._take_arrays(arguments, place)
        judged = arguments['validation_data']
        if isinstance(judged, tf.data.Dataset):
            arguments['validation_data'] = self._first_batches(judged).take(2)
        elif isinstance(judged, (list, tuple)):
            few = np.arange(min(shares.count(judged[0]), MOST_JUDGED))
            arguments['validation_data'] = shares.take_all(judged, few)
        elif judged is not None:
            arguments['validation_steps'] = 2
        history = original(**arguments)
        self._note(model, batch)
        # A step of the user's own may call its loss by another name.
        self.losses.extend(history.history.get('loss') or next(iter(history.history.values())))
        return history

    def _first_batches(self, dataset):
        """A data set of the first batches of another one, which is read once.

        One with a cache that is read again in part, while what was read before is still being
        prefetched, may end too early.
        """
        if id(dataset) not in self._read:
            batches = list(dataset.take(MOST_STEPS))
            spec = dataset.element_spec
            few = tf.data.Dataset.from_generator(lambda: batches, output_signature=spec)
            few = few.apply(tf.data.experimental.assert_cardinality(len(batches)))
            self._read[id(dataset)] = dataset, few
        return self._read[id(dataset)][1]

    def _take_arrays(self, arguments, place):
        """Has `fit` train on a place's share of arrays; returns the first joined batch."""
        data = arguments['x'], arguments['y'], arguments['sample_weight']
        if arguments['validation_split']:
            data, kept = shares.split(data, arguments.pop('validation_split'))
            arguments['validation_data'] = kept if kept[2] is not None else kept[:2]
        samples, wanted = shares.count(data[0]), arguments['batch_size'] or 32
        joined = shares.batch_size(wanted, samples)
        arguments['batch_size'] = joined // place.ranks
        chosen = shares.indices(samples, joined, MOST_STEPS, place)
        for name, part in zip(('x', 'y', 'sample_weight'), shares.take_all(data, chosen)):
            arguments[name] = part
        return shares.take_all(data, shares.indices(samples, joined, 1, shares.Place()))

    def _evaluate(self, original, model, arguments):
        """Judges by a few samples only; every worker judges by the same."""
        x = arguments['x']
        if isinstance(x, tf.data.Dataset):
            arguments['x'] = self._first_batches(x).take(2)
        elif hasattr(first(x), '__len__') and not isinstance(x, keras.utils.PyDataset):
            chosen = np.arange(min(shares.count(x), MOST_JUDGED))
            for name in ('x', 'y', 'sample_weight'):
                arguments[name] = shares.take(arguments[name], chosen)
        return original(**arguments)

    def _train_on_batch(self, original, model, arguments):
        self._batches += 1
        if self._batches > MOST_BATCHES:
            raise Enough
        batch = arguments['x'], arguments['y'], arguments['sample_weight']
        place = shares.Place() if _fixed_batch(model) else self.place
        for name, part in zip(('x', 'y', 'sample_weight'), shares.of_batch(batch, place)):
            arguments[name] = part
        result = original(**arguments)
        self._note(model, batch)
        result = result['loss'] if isinstance(result, dict) else np.ravel(result)[0]
        self.losses.append(float(result))
        return result

    def save(self, path):
        """As of `recording.Recorder`; also notes where tables are, or which losses are no means."""
        for model, batch in zip(self.models, self._batches_of):
            if self.plain:
                if not _fixed_batch(model) and not _is_mean(model, batch):
                    self.reasons.add(NO_MEAN)
            else:
                self.tables.update(_tables(model))
        super().save(path)


def of_dataset(dataset, place):
    """A data set's batches, each cut to the part for a place."""

    def share(*batch):
        samples = tf.shape(first(batch))[0]
        whole = tf.maximum(samples // shares.MULTIPLE * shares.MULTIPLE, shares.MULTIPLE)
        chosen = tf.range(whole // place.ranks) + place.rank * (whole // place.ranks)
        # A batch of very few samples has some of them more than once.
        chosen = (chosen[::-1] if place.backwards else chosen) % samples
        parts = tf.nest.map_structure(lambda part: tf.gather(part, chosen), batch)
        return parts if isinstance(dataset.element_spec, tuple) else parts[0]

    return dataset.map(share)


def _fixed_batch(model):
    """Whether the model is built for one batch size, so that every worker takes the whole batch."""
    inputs = keras.tree.flatten(getattr(model, 'inputs', None) or [])
    return any(len(tensor.shape) and tensor.shape[0] is not None for tensor in inputs)


def _draws(part):
    return isinstance(part, keras.random.SeedGenerator)


def _is_mean(model, batch):
    """Whether the loss of a batch is the mean, or the sum, of the losses of its halves.

    Losses that masks or weights divide are counted as in the joined batch, which halves do not
    show; where the model has no loss of its own, they are taken for means.
    """
    x, y, weight = keras.utils.unpack_x_y_sample_weight(tuple(batch))
    own = type(model).compute_loss is not keras.Model.compute_loss
    masks = any(getattr(layer, 'mask_zero', False) for layer in model._flatten_layers())
    if not own and (weight is not None or masks):
        return True
    size = shares.count(x) // 2

    def loss(start, stop):
        part = keras.tree.map_structure(
            lambda of: of if of is None else of[start:stop], (x, y, weight)
        )
        arguments = dict(batch_size=stop - start, verbose=0, return_dict=True)
        if weight is None:
            return model.evaluate(*part[:2], **arguments)['loss']
        # Arrays of several outputs may have no weight for each time step; a data set may.
        del arguments['batch_size']
        return model.evaluate(tf.data.Dataset.from_tensors(part), **arguments)['loss']

    whole, halves = loss(0, 2 * size), loss(0, size) + loss(size, 2 * size)
    return bool(np.isclose(whole, halves / 2, 1e-4) or np.isclose(whole, halves, 1e-4))


def _tables(model):
    """Where the tables of a model are that is trained in a strategy, in words."""
    from keras_parallax.keras3 import embedding_layer

    sharded = {variable.path: 'sharded' for variable in embedding_layer.tables_in(model)}
    reasons = model.optimizer._parallax_scope.reasons
    names = {variable.path for variable in model.variables}
    return {**{name: of for name, of in reasons.items() if name in names}, **sharded}
