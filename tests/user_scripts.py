# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts as users write them, run in plain Keras and by the workers of a job alike.

Each is a function of a `Run` that returns a list of arrays: what plain Keras computes, a job must
compute on every worker.
"""

import contextlib
import os
from typing import Any, Callable, NamedTuple

import cases
import numpy as np
from frameworks import TF2, tf

WORDS, LENGTH, SAMPLES, BATCH = 40, 6, 48, 12


class Run(NamedTuple):
    """Where a script runs.

    Attributes:
        keras: the Keras package.
        scope: function that gives the context in which models are built and compiled.
        gated: function from an optimizer, or its name, to what `compile` is given.
        wrapped: function from an optimizer to one whose updates the script builds itself.
        summing: the same, of losses that are sums over a batch.
        rank, ranks: this process among those that share each batch.
        folder: where files go.
    """

    keras: Any
    scope: Callable[[], Any] = contextlib.ExitStack
    gated: Callable[[Any], Any] = lambda optimizer: optimizer
    wrapped: Callable[[Any], Any] = lambda optimizer: optimizer
    summing: Callable[[Any], Any] = lambda optimizer: optimizer
    rank: int = 0
    ranks: int = 1
    folder: str = ''

    def data(self, seed=3):
        """Samples of made words and a class for each: this worker's share of every batch."""
        random = np.random.RandomState(seed)
        words = cases.skewed_ids(random, (SAMPLES, LENGTH), WORDS)
        classes = random.randint(0, 2, (SAMPLES, 1))
        parts = [
            cases.share(
                [words[first : first + BATCH], classes[first : first + BATCH]],
                self.rank,
                self.ranks,
            )
            for first in range(0, SAMPLES, BATCH)
        ]
        return tuple(map(np.concatenate, zip(*parts)))

    def fit(self, model, epochs=2, seed=3, dtype=int):
        words, classes = self.data(seed)
        model.fit(
            words.astype(dtype),
            classes,
            batch_size=BATCH // self.ranks,
            epochs=epochs,
            shuffle=False,
            verbose=0,
        )

    def start(self, model):
        """Gives a model start values that are the same wherever it is built."""
        model.set_weights(cases.start_weights(model))

    def end(self, *models):
        """What a script returns of models that have trained."""
        return [weight for model in models for weight in model.get_weights()]


def words_and_dense(keras, **arguments):
    """A classifier of words."""
    return keras.models.Sequential(
        [
            keras.layers.Embedding(WORDS, 4, input_length=LENGTH, name='words', **arguments),
            keras.layers.Flatten(),
            keras.layers.Dense(3, activation='tanh'),
            keras.layers.Dense(1, activation='sigmoid'),
        ]
    )


# --- Optimizers that are not wrapped -----------------------------------------------------------


def text_classifier(run):
    """As Keras's example `imdb_lstm` is written, without dropout."""
    layers = run.keras.layers
    with run.scope():
        model = run.keras.models.Sequential()
        model.add(layers.Embedding(WORDS, 8))
        model.add(layers.LSTM(5))
        model.add(layers.Dense(1, activation='sigmoid'))
        optimizer = run.gated('adam')
        model.compile(loss='binary_crossentropy', optimizer=optimizer, metrics=['accuracy'])
    run.start(model)
    run.fit(model)
    own = np.array(model.evaluate(*run._replace(rank=0, ranks=1).data(), verbose=0))
    return run.end(model) + [own]


def instance(run):
    """An optimizer of which the script keeps hold, to set its rate."""
    with run.scope():
        model = words_and_dense(run.keras)
        optimizer = run.gated(run.keras.optimizers.SGD(lr=0.1, momentum=0.9, nesterov=True))
        model.compile(optimizer, 'binary_crossentropy')
    run.start(model)
    run.fit(model)
    run.keras.backend.set_value(optimizer.lr, 0.3)
    run.fit(model)
    return run.end(model)


def of_tensorflow(run):
    """An optimizer of TensorFlow's."""
    with run.scope():
        model = words_and_dense(run.keras)
        model.compile(run.gated(tf.train.AdamOptimizer(0.05)), 'binary_crossentropy')
    run.start(model)
    run.fit(model)
    return run.end(model)


def shared_instance(run):
    """One optimizer of two models, one of which is frozen in the other, as GANs are written."""
    layers, models = run.keras.layers, run.keras.models
    with run.scope():
        optimizer = run.gated(run.keras.optimizers.Adam(0.01, 0.5))
        critic = words_and_dense(run.keras)
        critic.compile(optimizer, 'binary_crossentropy', metrics=['accuracy'])
        ids = layers.Input((LENGTH,))
        rows = layers.Flatten()(layers.Embedding(WORDS, 4, name='own_words')(ids))
        critic.trainable = False
        both = layers.add([critic(ids), layers.Dense(1)(rows)])
        combined = models.Model(ids, layers.Activation('sigmoid')(both))
        combined.compile(optimizer, 'binary_crossentropy')
    run.start(combined)
    words, classes = run.data()
    for _ in range(4):
        critic.train_on_batch(words, classes)
        combined.train_on_batch(words, 1 - classes)
    return run.end(combined)


def generator_and_critic(run):
    """Two networks that train in turns, one through the other, with an optimizer for each."""
    layers, models = run.keras.layers, run.keras.models
    with run.scope():
        noise, label = layers.Input((4,)), layers.Input((1,))
        rows = layers.Flatten()(layers.Embedding(WORDS, 4, name='made')(label))
        made = layers.Dense(5, activation='tanh')(layers.multiply([noise, rows]))
        generator = models.Model([noise, label], made)
        sample, of = layers.Input((5,)), layers.Input((1,))
        rows = layers.Flatten()(layers.Embedding(WORDS, 3, name='judged')(of))
        hidden = layers.LeakyReLU(0.2)(layers.Dense(6)(layers.concatenate([sample, rows])))
        critic = models.Model([sample, of], layers.Dense(1, activation='sigmoid')(hidden))
        critic.compile(run.gated(run.keras.optimizers.Adam(0.01, 0.5)), 'binary_crossentropy')
        critic.trainable = False
        both = models.Model([noise, label], critic([generator([noise, label]), label]))
        both.compile(run.gated(run.keras.optimizers.Adam(0.02, 0.5)), 'binary_crossentropy')
    run.start(generator)
    run.start(critic)
    random = np.random.RandomState(4)
    for _ in range(6):
        batch = random.normal(size=(BATCH, 4)), random.normal(size=(BATCH, 5))
        words = random.randint(0, WORDS, (BATCH, 1))
        noise, samples, labels = cases.share([*batch, words], run.rank, run.ranks)
        yes, no = np.ones((len(labels), 1)), np.zeros((len(labels), 1))
        made = generator.predict([noise, labels])
        critic.train_on_batch([samples, labels], yes)
        critic.train_on_batch([made, labels], no)
        both.train_on_batch([noise, labels], yes)
    return run.end(generator, critic)


def compiled_again(run):
    """A model that is compiled with one optimizer after the other, and with its own anew."""
    results = []
    with run.scope():
        model = words_and_dense(run.keras)
        model.compile('sgd', 'mse')
        model.compile(run.gated({'class_name': 'Adagrad', 'config': {'lr': 0.1}}), 'mse')
    run.start(model)
    run.fit(model)
    results += run.end(model)
    with run.scope():
        model.compile(run.gated('rmsprop'), 'mse')
    run.fit(model)
    results += run.end(model)
    with run.scope():
        model.compile(model.optimizer, 'binary_crossentropy')
    run.fit(model)
    return results + run.end(model)


class _Gated:
    """What `load_model` takes for a class of optimizers, which gates those that it makes."""

    def __init__(self, run, cls):
        self._run, self._cls = run, cls

    def from_config(self, config):
        return self._run.gated(self._cls.from_config(config))


def loaded(run):
    """A model that plain Keras's own `load_model` compiles, with the slots of its optimizer."""
    keras, path = run.keras, os.path.join(run.folder, 'saved_by_%d.h5' % run.rank)
    with tf.Graph().as_default(), tf.Session():
        # Written by each worker for itself: the same numbers, for plain Keras's training may race.
        model = words_and_dense(keras)
        model.compile('adagrad', 'binary_crossentropy')
        run.start(model)
        model._make_train_function()
        model.optimizer.set_weights(
            [np.abs(weight) + 0.1 for weight in cases.start_weights(model.optimizer)]
        )
        model.save(path)
    with run.scope():
        # Keras 2.2.4 looks for `adagrad`, tf.keras for `Adagrad`.
        gated = _Gated(run, keras.optimizers.Adagrad)
        model = keras.models.load_model(path, custom_objects={'Adagrad': gated, 'adagrad': gated})
    run.fit(model)
    return run.end(model)


def cloned(run):
    """A model that Keras copies."""
    with run.scope():
        model = run.keras.models.clone_model(words_and_dense(run.keras))
        model.compile(run.gated('adagrad'), 'mse', ['accuracy'])
    run.start(model)
    run.fit(model)
    return run.end(model)


def of_scikit_learn(run):
    """A model that a wrapper for scikit-learn makes, in the scope in which it trains."""

    def build():
        model = words_and_dense(run.keras)
        model.compile(run.gated('adagrad'), 'binary_crossentropy')
        run.start(model)
        return model

    if run.keras is tf.keras:
        from tensorflow.python.keras.wrappers.scikit_learn import KerasRegressor
    else:
        from keras.wrappers.scikit_learn import KerasRegressor
    with run.scope():
        found = KerasRegressor(build, batch_size=BATCH // run.ranks, shuffle=False, verbose=0)
        found.fit(*run.data(), epochs=3)
    return run.end(found.model)


def own_step(run):
    """A step that the script makes of an optimizer's updates itself, as for a policy's gradient."""
    backend = run.keras.backend
    with run.scope():
        model = words_and_dense(run.keras)
        wanted = backend.placeholder((None, 1))
        loss = backend.mean(backend.square(wanted - model.output))
        optimizer = run.wrapped(run.keras.optimizers.Adam(0.01))
        updates = optimizer.get_updates(loss=loss, params=model.trainable_weights)
        step = backend.function([model.input, wanted], [loss], updates=updates)
    run.start(model)
    for _ in range(4):
        step(list(run.data()))
    return run.end(model)


# --- Losses that sum over the batch ------------------------------------------------------------


def a_tenth_of_sum(targets, outputs):
    return 0.1 * tf.reduce_sum(tf.square(targets - outputs))


def summed(run):
    """A summed loss, whose numbers `fit` reports, too."""
    with run.scope():
        model = words_and_dense(run.keras)
        model.compile(run.gated('sgd'), a_tenth_of_sum)
    run.start(model)
    words, classes = run.data()
    arguments = {'batch_size': BATCH // run.ranks, 'shuffle': False, 'verbose': 0}
    history = model.fit(words, classes, epochs=3, **arguments).history
    return [*run.end(model), np.array(history['loss'])]


def summed_from_generator(run):
    """A loss that is tried with the first batch of a generator, in a model built with it."""
    with run.scope():
        model = run.keras.models.Sequential(words_and_dense(run.keras).layers)
        model.compile(run.gated('sgd'), a_tenth_of_sum)
    run.start(model)
    words, classes = run.data()
    size = BATCH // run.ranks

    def batches():
        while True:
            for first in range(0, len(words), size):
                yield words[first : first + size], classes[first : first + size]

    model.fit_generator(batches(), len(words) // size, epochs=2, verbose=0)
    return run.end(model)


def summed_without_targets(run):
    """A model whose only loss is a sum that the model adds."""
    with run.scope():
        model = words_and_dense(run.keras)
        output = model.layers[-1].output
        is_tensorflows = run.keras.__name__.startswith('tensorflow') and not TF2
        inputs = {'inputs': model.inputs} if is_tensorflows else {}
        model = run.keras.models.Model(model.inputs, output)
        model.add_loss(0.1 * tf.reduce_sum(tf.square(output - 0.3)), **inputs)
        model.compile(run.gated('sgd'), None)
    run.start(model)
    words, _ = run.data()
    arguments = {'batch_size': BATCH // run.ranks, 'shuffle': False, 'verbose': 0}
    history = model.fit(words, None, epochs=3, **arguments).history
    return [*run.end(model), np.array(history['loss'])]


def summed_without_strategy(run):
    """A summed loss whose optimizer the script wraps, and no strategy."""
    model = words_and_dense(run.keras)
    model.compile(run.wrapped(run.keras.optimizers.SGD()), a_tenth_of_sum)
    run.start(model)
    run.fit(model)
    return run.end(model)


def summed_in_own_step(run):
    """A step that a script makes of a summed loss."""
    backend = run.keras.backend
    with run.scope():
        model = words_and_dense(run.keras)
        wanted = backend.placeholder((None, 1))
        loss = a_tenth_of_sum(wanted, model.output)
        optimizer = run.summing(run.keras.optimizers.SGD())
        updates = optimizer.get_updates(loss=loss, params=model.trainable_weights)
        step = backend.function([model.input, wanted], [loss], updates=updates)
    run.start(model)
    for _ in range(4):
        step(list(run.data()))
    return run.end(model)


# --- Models that are built late or early -------------------------------------------------------


def seeded(keras):
    """An initializer of values that are the same wherever a model is built."""
    return keras.initializers.RandomUniform(-0.5, 0.5, seed=9)


def sequential_without_shape(run):
    """A model that knows its shape at the first `fit`, after the scope."""
    layers, start = run.keras.layers, {'kernel_initializer': seeded(run.keras)}
    with run.scope():
        model = run.keras.models.Sequential(
            [
                layers.Dense(4, activation='tanh', kernel_regularizer='l2', **start),
                layers.Dense(1, activation='sigmoid', **start),
            ]
        )
        model.compile(run.gated('adam'), 'mse', metrics=['mae'])
    assert not model.built
    run.fit(model, dtype=np.float32)
    run.fit(model, seed=4, dtype=np.float32)
    return run.end(model)


def subclass(keras):
    start = seeded(keras)

    class Classifier(keras.models.Model):
        def __init__(self):
            super().__init__()
            self.words = keras.layers.Embedding(
                WORDS, 4, embeddings_initializer=start, embeddings_regularizer='l2'
            )
            self.recurrent = keras.layers.GRU(
                3, kernel_initializer=start, recurrent_initializer='identity'
            )
            self.out = keras.layers.Dense(1, kernel_initializer=start, activation='sigmoid')

        def call(self, inputs):
            return self.out(self.recurrent(self.words(inputs)))

    return Classifier()


def subclassed(run):
    """A model whose weights are made at its first batch, after the scope."""
    with run.scope():
        model = subclass(run.keras)
        model.compile(run.gated('adam'), 'binary_crossentropy')
    run.fit(model)
    run.fit(model, seed=4)
    return run.end(model)


def subclassed_that_predicts_first(run):
    """A model whose weights are made in `predict`, and whose loss in `train_on_batch`."""
    with run.scope():
        model = subclass(run.keras)
        model.compile(run.gated('adagrad'), 'mse')
    words, classes = run.data()
    first = model.predict(run._replace(rank=0, ranks=1).data()[0])
    for _ in range(4):
        model.train_on_batch(words, classes)
    return [first] + run.end(model)


def built_before(run):
    """A model that is built and initialized before the scope, and compiled in it."""
    model = words_and_dense(run.keras)
    run.start(model)
    with run.scope():
        model.compile(run.gated('adam'), 'mse')
    run.fit(model)
    return run.end(model)


def built_before_with_a_penalty(run):
    """The same, with a regularizer that nobody has noted."""
    model = words_and_dense(run.keras, embeddings_regularizer='l2')
    with run.scope():
        model.compile(run.gated('adam'), 'mse')
    run.start(model)
    run.fit(model)
    return run.end(model)


def built_before_twice(run):
    """The same, twice in one process: the second model starts from its own values."""
    results = []
    for value in (0.1, 0.2):
        run.keras.backend.clear_session()
        start = run.keras.initializers.Constant(value)
        model = run.keras.models.Sequential(
            [
                run.keras.layers.Embedding(
                    WORDS, 2, input_length=LENGTH, name='words', embeddings_initializer=start
                ),
                run.keras.layers.Flatten(),
                run.keras.layers.Dense(1, name='out', bias_initializer=start),
            ]
        )
        with run.scope():
            model.compile(run.gated('sgd'), 'mse')
        results += [model.get_weights()[number] for number in (0, 2)]
        run.start(model)
        run.fit(model, epochs=1)
    return results


#: Those that run in one job, by name.
SCRIPTS = {
    script.__name__: script
    for script in (
        text_classifier,
        instance,
        of_tensorflow,
        shared_instance,
        generator_and_critic,
        compiled_again,
        loaded,
        cloned,
        of_scikit_learn,
        own_step,
        summed,
        summed_from_generator,
        summed_without_targets,
        summed_without_strategy,
        summed_in_own_step,
        sequential_without_shape,
        subclassed,
        subclassed_that_predicts_first,
        built_before,
        built_before_with_a_penalty,
        built_before_twice,
    )
}
