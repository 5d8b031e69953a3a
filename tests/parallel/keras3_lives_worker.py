# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: random lives of Keras 3 models, in a strategy and in plain Keras.

Usage: keras3_lives_worker.py BACKEND FOLDER SEED... Each rank writes FOLDER/RANK.json: for each
seed its acts, the largest difference from plain Keras after each, and the error that ended it, of
ours or of Keras.
"""

import contextlib
import functools
import json
import os
import random
import sys

BACKEND = sys.argv[1]
os.environ['KERAS_BACKEND'] = BACKEND

import keras  # noqa: E402
import keras3_cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import keras_parallax as kp  # noqa: E402

BATCH, STEPS, ACTS, RATE = 4, 3, 7, 0.1

OPTIMIZERS = {
    'sgd': functools.partial(keras.optimizers.SGD, RATE),
    'momentum': functools.partial(keras.optimizers.SGD, RATE, momentum=0.5),
    'adagrad': functools.partial(keras.optimizers.Adagrad, RATE),
    'adam': functools.partial(keras.optimizers.Adam, RATE, epsilon=1e-3),
    'rmsprop': functools.partial(keras.optimizers.RMSprop, RATE, epsilon=1e-3),
    'clipped': functools.partial(keras.optimizers.SGD, RATE, global_clipnorm=0.1),
}

MODELS = {
    'two_tables': cases.two_tables,
    'regularized': functools.partial(cases.two_tables, embeddings_regularizer='l2'),
    'shared': cases.shared,
    'same_ids': cases.same_ids,
    'alike_rows': cases.alike_rows,
}


def summing(optimizer):
    """As of `keras3_cases`; in a file it is Keras's own."""
    made = cases.summing(optimizer)
    type(made).__module__ = type(optimizer).__module__
    return made


class Life:
    """A model, and what happens to it.

    Args:
        strategy: the strategy, or `None` for plain Keras, which has the workers' joined batches.
        rank: the worker's rank; 0 for plain Keras.
        ranks: how many workers a batch is for; each takes its part of it.
        folder: a folder for files of this life.
    """

    def __init__(self, strategy, rank, ranks, folder):
        self._strategy, self._rank, self._ranks, self._folder = strategy, rank, ranks, folder
        self._data, self._files = cases.CASES['sgd'].data(STEPS * ranks * BATCH), 0
        self._weights = np.random.RandomState(1).randint(0, 3, len(self._data[1])) / 2

    def _scope(self):
        return self._strategy or contextlib.nullcontext()

    def _compile(self, model, optimizer):
        with self._scope():
            # With TensorFlow, plain Keras is to compute as a strategy does, without XLA.
            model.compile(optimizer, 'mse', metrics=['mae'], jit_compile=BACKEND == 'jax')
        model.optimizer.build(model.trainable_variables)

    def _new_optimizer(self):
        made = OPTIMIZERS[self._optimizer]()
        return made if self._strategy else summing(made)

    def begin(self, model, optimizer):
        """Builds and compiles."""
        with self._scope():
            self.model = MODELS[model]()
        self._optimizer = optimizer
        self._compile(self.model, self._new_optimizer())

    def _part(self, weighted):
        shape = STEPS, self._ranks, BATCH
        places = np.arange(np.prod(shape)).reshape(shape)
        places = places[:, self._rank] if self._strategy else places
        x, y, _ = self._data
        of_x = [part[places.ravel()] for part in x]
        weights = self._weights[places.ravel()] if weighted else None
        return of_x, y[places.ravel()], weights, BATCH * (1 if self._strategy else self._ranks)

    def fit(self, weighted=False, model=None):
        """Trains on all batches."""
        x, y, weights, size = self._part(weighted)
        (model or self.model).fit(
            x, y, batch_size=size, sample_weight=weights, shuffle=False, verbose=0
        )

    def fit_weighted(self):
        """Trains with sample weights."""
        self.fit(weighted=True)

    def train_on_batch(self):
        """Trains on one batch."""
        x, y, _, size = self._part(False)
        self.model.train_on_batch([part[:size] for part in x], y[:size])

    def compile_same(self):
        """Compiles again with the optimizer that the model has."""
        self._compile(self.model, self.model.optimizer)

    def compile_new(self):
        """Compiles again with a new optimizer."""
        self._compile(self.model, self._new_optimizer())

    def freeze_table(self):
        """Freezes the first table, or has it trained again."""
        table = next(of for of in self.model.layers if isinstance(of, keras.layers.Embedding))
        table.trainable = not table.trainable
        self.compile_new()

    def freeze_dense(self):
        """Freezes the last layer, or has it trained again; the optimizer goes on."""
        self.model.layers[-1].trainable = not self.model.layers[-1].trainable
        self.compile_same()

    def lora_table(self):
        """Has small factors trained in place of the first table."""
        table = next(of for of in self.model.layers if isinstance(of, keras.layers.Embedding))
        table.enable_lora(2)
        self.compile_new()

    def lora_dense(self):
        """Has small factors trained in place of the last layer."""
        self.model.layers[-1].enable_lora(1)
        self.compile_new()

    def rate(self):
        """Sets the learning rate."""
        self.model.optimizer.learning_rate = 0.5 * float(self.model.optimizer.learning_rate)

    def set_weights(self):
        """Sets all weights."""
        weights = [0.5 * weight for weight in self.model.get_weights()]
        # Another worker may still read what this one would write.
        self._barrier()
        self.model.set_weights(weights)

    def _path(self, ending):
        self._files += 1
        return os.path.join(self._folder, '%d%s' % (self._files, ending))

    def _barrier(self):
        if self._strategy:
            self._strategy._job.barrier()

    def save_and_load(self):
        """Goes on with the model of a file."""
        path = self._path('.keras')
        self.model.save(path)
        objects = {'Next': cases.Next, 'Offset': cases.Offset}
        with self._scope():
            self.model = keras.saving.load_model(path, custom_objects=objects)
        if not self._strategy:
            optimizer = summing(self.model.optimizer)
            state = [of.numpy() for of in self.model.optimizer.variables]
            self._compile(self.model, optimizer)
            for variable, value in zip(self.model.optimizer.variables, state):
                variable.assign(value)

    def save_and_load_weights(self):
        """Goes on from a file of weights, after a batch that is undone."""
        path = self._path('.weights.h5')
        self.model.save_weights(path)
        self.train_on_batch()
        self.model.load_weights(path)

    def clone(self):
        """Goes on with a copy of the model."""
        weights = self.model.get_weights()
        with self._scope():
            self.model = keras.models.clone_model(self.model)
        self.model.set_weights(weights)
        self._compile(self.model, self._new_optimizer())

    def second_model(self):
        """Trains another model that shares all layers but the last."""
        with self._scope():
            head = cases.dense(1, 5)(self.model.layers[-1].input)
            other = keras.Model(self.model.inputs, head)
        self._compile(other, self._new_optimizer())
        self.fit(model=other)

    def clear_session(self):
        """Has Keras forget what is global."""
        keras.utils.clear_session()

    def evaluate(self):
        """Judges; the numbers are compared, too."""
        x, y, _ = self._data
        return self.model.evaluate(x, y, batch_size=16, verbose=0)

    def predict(self):
        """Predicts; the numbers are compared, too."""
        return self.model.predict(self._data[0], verbose=0)

    def quantize(self, mode='int8'):
        """Quantizes, and predicts; ends a life."""
        # Weights that differ by rounding alone must not be rounded to different integers.
        weights = [np.round(weight * 64) / 64 for weight in self.model.get_weights()]
        self._barrier()
        self.model.set_weights(weights)
        self.model.quantize(mode)
        return self.predict()


NAMES = [name for name in vars(Life) if name[0] != '_' and name != 'begin']


def drawn(seed):
    """The model, the optimizer and the acts of a life."""
    chance = random.Random(seed)
    acts = [name for _ in range(ACTS) for name in (chance.choice(NAMES), 'fit')]
    if 'quantize' in acts:
        acts = acts[: acts.index('quantize') + 1]
    return chance.choice(sorted(MODELS)), chance.choice(sorted(OPTIMIZERS)), acts


def lived(strategy, seed, folder):
    """How a life went in the strategy."""
    model, optimizer, acts = drawn(seed)
    found = {'model': model, 'optimizer': optimizer, 'acts': [], 'differences': []}
    folders = [os.path.join(folder, '%s-%d' % (name, seed)) for name in ('ours', 'plain')]
    # Each worker has a plain one of its own.
    folders[1] += '-%d' % strategy.rank
    for path in folders:
        os.makedirs(path, exist_ok=True)
    lives = [
        Life(strategy, strategy.rank, strategy.size, folders[0]),
        Life(None, 0, strategy.size, folders[1]),
    ]
    try:
        for number, act in enumerate(['begin', *acts]):
            arguments = (model, optimizer) if act == 'begin' else ()
            keras.utils.set_random_seed(number)
            try:
                expected = getattr(lives[1], act)(*arguments)
            except ValueError as error:
                # With JAX, an optimizer takes the variables only that it was built with.
                found['refused'] = 'plain Keras: %s' % error
                break
            found['acts'].append(act)
            keras.utils.set_random_seed(number)
            result = getattr(lives[0], act)(*arguments)
            pairs = list(zip(lives[0].model.get_weights(), lives[1].model.get_weights()))
            if expected is not None:
                pairs.append((np.asarray(result), np.asarray(expected)))
            found['differences'].append(max(float(np.abs(a - b).max()) for a, b in pairs))
            strategy._job.barrier()
    except kp.ParallaxError as error:
        found['refused'] = '%s: %s' % (type(error).__name__, error)
    return found


def main(folder, seeds):
    strategy = kp.ParallaxStrategy()
    found = {seed: lived(strategy, int(seed), folder) for seed in seeds}
    with open(os.path.join(folder, '%d.json' % strategy.rank), 'w') as file:
        json.dump(found, file)


if __name__ == '__main__':
    main(sys.argv[2], sys.argv[3:])
