# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which film somebody will like next, by two towers, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/two_tower.py

One tower makes a vector of what a person has liked, the other one of a film; the films
whose vectors have the largest product with the person's are found. The tables of films and
of genres are bags that both towers look up, and sparse.

This is a plain Keras script but for the lines marked ``# kp:``.
"""

import functools
import os
import tempfile

import click
import films as movielens
import numpy as np
from graphs import keras, tf

import keras_parallax as kp  # kp: the plugin


class InBatchSoftmax(keras.layers.Layer):
    """The loss of each person's film among the films of the batch, [batch, 1].

    Call it on vectors of persons and of films, [batch, dim], the films' numbers, and the
    logarithms of how often they come up, [batch, 1]. A film that comes up often is often
    among the others, for which its score is corrected (Yi et al., "Sampling-bias-corrected
    neural modeling for large corpus item recommendations", 2019).
    """

    def call(self, inputs):
        persons, vectors, numbers, log_shares = inputs
        scores = tf.matmul(persons, vectors, transpose_b=True) - tf.transpose(log_shares)
        count = tf.shape(scores)[0]
        # The same film of another person is not a wrong one.
        others = tf.equal(numbers, tf.transpose(numbers)) & ~tf.eye(count, dtype=tf.bool)
        scores = tf.where(others | self.left_out(count), tf.fill([count, count], -1e9), scores)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.range(count), logits=scores
        )
        return losses[:, None]

    def left_out(self, count):
        """Which films, [persons, films], are not compared: none."""
        return tf.zeros([count, count], tf.bool)

    def compute_output_shape(self, input_shape):
        return input_shape[0][0], 1


def build_models(films=1001, genres=20, length=20, dim=32, softmax=InBatchSoftmax):
    """Builds three models of the same layers: that of the loss, and the two towers.

    Args:
        films: Number of films, and one.
        genres: Number of genres, and one.
        length: Likes of a person.
        dim: Width of the vectors.
        softmax: The layer of the loss.
    """
    layers = keras.layers
    history, history_genres, film, film_genres = (
        layers.Input((width,), dtype='int32', name=name)
        for name, width in (
            ('history', length),
            ('history_genres', length * movielens.GENRES),
            ('film', 1),
            ('film_genres', movielens.GENRES),
        )
    )
    log_share = layers.Input((1,), name='log_share')
    # kp: several ids a field, and one table for several fields; 0 stands for no film.
    films = kp.layers.EmbeddingBag(films, dim, padding_id=0, name='films')
    genres = kp.layers.EmbeddingBag(genres, dim, padding_id=0, name='genres')

    def tower(name, bags):
        hidden = layers.Dense(2 * dim, activation='tanh', name=name + '_hidden')(
            layers.concatenate(bags)
        )
        return layers.Dense(dim, name=name)(hidden)

    person = tower('person', [films(history), genres(history_genres)])
    vector = tower('vector', [films(film), genres(film_genres)])
    losses = softmax(name='softmax')([person, vector, film, log_share])
    return (
        keras.models.Model([history, history_genres, film, film_genres, log_share], losses),
        keras.models.Model([history, history_genres], person),
        keras.models.Model([film, film_genres], vector),
    )


def loss_of(_, losses):
    """Takes what the model returns for the loss."""
    return losses


def log_shares(samples, films):
    """Returns how often each film comes next in samples, as logarithms, [films]."""
    counts = np.bincount(samples.film[:, 0], minlength=films)
    return np.log(np.maximum(counts, 1) / len(samples.film)).astype('float32')


def ranks_of(persons, vectors, samples):
    """Returns how many films are ahead of the one that was liked, of those not liked before.

    Args:
        persons: A vector for each sample.
        vectors: A vector for each film, that of none among them.
        samples: The `films.Samples`.
    """
    scores = persons @ vectors.T
    rows, films = np.arange(len(scores))[:, np.newaxis], samples.film
    liked = scores[rows, films]
    scores[rows, samples.history] = -np.inf  # And none, which fills up what is shorter.
    scores[:, 0] = -np.inf
    return (scores > liked).sum(1)


def describe(ranks):
    """Returns how well films are found, as text."""
    return f'{(ranks < 10).mean():.1%} among the first 10, {(ranks < 50).mean():.1%} of 50'


def predict(path, arrays):
    """Returns what an exported model says, by TensorFlow alone.

    Args:
        path: Folder of the SavedModel.
        arrays: Dict from names of inputs to arrays.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        signature = tf.saved_model.loader.load(session, tags, path).signature_def[
            tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        ]
        (output,) = signature.outputs.values()
        fed = {signature.inputs[name].name: array for name, array in arrays.items()}
        return session.run(output.name, fed)


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help="Folder with MovieLens's ratings and movies, .csv or .dat. "
    'Default: films that are made here.',
)
@_option('--max-train', type=_COUNT, default=48000, help='Upper limit for likes to train on.')
@_option('--max-held-out', type=_COUNT, default=4000, help='The same of those to judge by.')
@_option('--length', type=_COUNT, default=20, help='Likes of a person that are kept.')
@_option('--epochs', type=_COUNT, default=5, help='Passes over the likes.')
@_option('--batch-size', type=_COUNT, default=128, help='Likes per batch on each worker.')
@_option('--dim', type=_COUNT, default=32, help='Width of the vectors.')
@_option('--learning-rate', type=float, default=0.3, help="Adagrad's.")
@_option('--export', metavar='DIR', help='Folder to make for the towers. Default: a temporary one.')
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data, max_train, max_held_out, length, epochs, batch_size, dim, learning_rate, export, seed
):
    """Trains two towers, judges them by what people liked last, and exports them."""
    try:
        films = movielens.make() if data is None else movielens.read(data)
    except movielens.FilmsError as error:
        raise click.ClickException(str(error)) from None
    train, held_out = movielens.split(films, length, (max_train, max_held_out))
    count = len(films.titles)
    shares = log_shares(train, count)

    np.random.seed(seed)
    tf.set_random_seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: places the variables made here.
        model, persons, vectors = build_models(count, len(films.genre_names), length, dim)
        # kp: a worker compares the films of its own batch, and gradients are averaged.
        optimizer = kp.ParallaxOptimizer(
            tf.train.AdagradOptimizer(learning_rate), loss_reduction='mean'
        )
        model.compile(optimizer, loss=loss_of)
    if strategy.is_chief:  # kp: one worker speaks for all.
        print(
            f'{len(train.film):,} likes of {count - 1:,} films by {len(films.likes):,} people, ',
            end='',
        )
        print(f'and the last ones of {len(held_out.film):,}.\n')

    zeros = np.zeros((len(train.film), 1))
    model.fit(
        **kp.data.arrays([*train, shares[train.film]], zeros),  # kp: this worker's share.
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=[
            kp.callbacks.PlanReport(),  # kp: where each variable is, and what a step saves.
            kp.callbacks.ProgressBar('likes'),  # kp: one for all.
        ],
    )

    if strategy.is_chief:  # kp: reads rows of other workers, which wait at their end.
        with tempfile.TemporaryDirectory() as folder:
            folder = export or folder
            paths = [os.path.join(folder, name) for name in ('persons', 'films')]
            for tower, path in zip((persons, vectors), paths):
                kp.export_saved_model(tower, path)
            # From here on plain TensorFlow is enough, and NumPy.
            people = {'history': held_out.history, 'history_genres': held_out.history_genres}
            person = predict(paths[0], people)
            numbers = np.arange(count, dtype='int32')[:, np.newaxis]
            vector = predict(paths[1], {'film': numbers, 'film_genres': films.genres})
        ranks = ranks_of(np.ones((len(person), 1)), shares[:, np.newaxis], held_out)
        print(f'\nOf what people liked last, the most popular films: {describe(ranks)}.')
        print(f'The exported towers: {describe(ranks_of(person, vector, held_out))}.')
        for number in range(3):
            best = np.argsort(-(vector @ person[number])[1:])[:3] + 1
            print(f'  who likes {_titles(films, held_out.history[number])}: {_titles(films, best)}')


def _titles(films, numbers):
    return ', '.join(films.titles[number] for number in numbers[:3] if number)


if __name__ == '__main__':
    main()
