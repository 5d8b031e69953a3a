# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which film somebody will like next, by two towers, trained by several workers with Keras 3.

Run two workers on this machine:

    keras-parallax run -np 2 examples/keras3/two_tower.py

``KERAS_BACKEND=jax keras-parallax run ...`` runs it on the JAX backend.

One tower makes a vector of what a person has liked, the other one of a film. Recommended are the
films whose vectors have the largest product with the person's. Both towers look up the same tables
of films and genres, which are sharded.

This is a plain Keras script except for the lines marked ``# kp:``.
"""

import os
import sys

import click
import keras
import numpy as np
from keras import layers, ops

import keras_parallax as kp  # kp: the plugin

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import films as movielens  # Films and likes: `examples/films.py`.


@keras.saving.register_keras_serializable('examples')
class Mean(layers.Layer):
    """The mean of the rows of some ids, [batch, dim]. The id 0 stands for none."""

    def call(self, rows, ids):
        present = ops.expand_dims(ops.cast(ids != 0, rows.dtype), -1)
        return ops.sum(rows * present, axis=1) / ops.maximum(ops.sum(present, axis=1), 1.0)

    def compute_output_shape(self, rows_shape, ids_shape):
        return rows_shape[0], rows_shape[2]


@keras.saving.register_keras_serializable('examples')
class InBatchSoftmax(layers.Layer):
    """The cross entropy of each person's film among the films of the batch, [batch, 1].

    Call it on vectors of persons and of films, [batch, dim], the films' numbers, and the
    logarithms of how often they come up, [batch, 1]. The last correct the scores: a film that
    comes up often is often among the others (Yi et al., "Sampling-bias-corrected neural modeling
    for large corpus item recommendations", 2019).
    """

    def call(self, persons, vectors, numbers, log_shares):
        scores = ops.matmul(persons, ops.transpose(vectors)) - ops.transpose(log_shares)
        own = ops.cast(ops.eye(ops.shape(scores)[0]), 'bool')
        # The same film of another person is not a wrong one.
        same = ops.equal(numbers, ops.transpose(numbers))
        scores = ops.where(ops.logical_and(same, ops.logical_not(own)), -1e9, scores)
        score = ops.sum(persons * vectors, axis=1, keepdims=True) - log_shares
        return ops.logsumexp(scores, axis=1, keepdims=True) - score

    def compute_output_shape(self, persons_shape, *_):
        return persons_shape[0], 1


def build_models(films=1001, genres=20, length=20, dim=32):
    """Builds three models of the same layers: the one that trains, and the two towers.

    Args:
        films: Number of films, plus one.
        genres: Number of genres, plus one.
        length: Number of likes of a person.
        dim: Width of the vectors.
    """
    history, history_genres, film, film_genres = (
        keras.Input((width,), dtype='int32', name=name)
        for name, width in (
            ('history', length),
            ('history_genres', length * movielens.GENRES),
            ('film', 1),
            ('film_genres', movielens.GENRES),
        )
    )
    log_share = keras.Input((1,), name='log_share')
    films = layers.Embedding(films, dim, name='films')
    genres = layers.Embedding(genres, dim, name='genres')

    def tower(name, film_ids, genre_ids):
        means = [Mean()(films(film_ids), film_ids), Mean()(genres(genre_ids), genre_ids)]
        hidden = layers.Dense(2 * dim, activation='tanh')(layers.Concatenate()(means))
        return layers.Dense(dim, name=name)(hidden)

    person, vector = tower('person', history, history_genres), tower('vector', film, film_genres)
    losses = InBatchSoftmax(name='softmax')(person, vector, film, log_share)
    return (
        keras.Model([history, history_genres, film, film_genres, log_share], losses),
        keras.Model([history, history_genres], person),
        keras.Model([film, film_genres], vector),
    )


def loss_of(_, losses):
    """Takes the model's output for the loss of each sample."""
    return losses


def describe(scores, samples):
    """Returns how often the film that was liked is among the best of those not liked before."""
    rows = np.arange(len(scores))[:, np.newaxis]
    liked = scores[rows, samples.film]
    scores[rows, samples.history] = -np.inf
    scores[:, 0] = -np.inf  # No film.
    ranks = (scores > liked).sum(axis=1)
    return f'{(ranks < 10).mean():.1%} among the first 10, {(ranks < 50).mean():.1%} of 50'


@click.command()
@click.option('--data', metavar='DIR', help="Folder with MovieLens's files. Default: made films.")
@click.option('--max-train', default=48000, help='Upper limit for the likes to train on.')
@click.option('--max-held-out', default=4000, help='Upper limit for the likes to judge by.')
@click.option('--length', default=20, help='Likes of a person that are kept.')
@click.option('--epochs', default=5, help='Passes over the likes.')
@click.option('--batch-size', default=128, help='Likes per batch on each worker.')
@click.option('--dim', default=32, help='Width of the vectors.')
@click.option('--learning-rate', default=0.3, help='Learning rate of Adagrad.')
@click.option('--seed', default=1, help='Seed of the start values.')
def main(data, max_train, max_held_out, length, epochs, batch_size, dim, learning_rate, seed):
    """Trains two towers and judges them by what people liked last."""
    films = movielens.make() if data is None else movielens.read(data)
    train, held_out = movielens.split(films, length, (max_train, max_held_out))
    count = len(films.titles)
    frequency = np.maximum(np.bincount(train.film[:, 0], minlength=count), 1) / len(train.film)
    log_shares = np.log(frequency).astype('float32')

    keras.utils.set_random_seed(seed)
    with kp.ParallaxStrategy() as strategy:  # kp: shards the tables made here.
        model, persons, vectors = build_models(count, len(films.genre_names), length, dim)
        # kp: each worker compares the films of its own batch, N workers with batches of B fewer
        # pairs than one process with batches of N x B.
        model.compile(keras.optimizers.Adagrad(learning_rate), loss_of)
    chief = strategy.is_chief  # kp: one worker prints.
    if chief:
        print(f'{len(train.film):,} likes of {count - 1:,} films by {len(films.likes):,} people.\n')

    model.fit(
        # kp: this worker's share.
        **kp.data.arrays([*train, log_shares[train.film]], np.zeros((len(train.film), 1))),
        batch_size=batch_size,
        epochs=epochs,
        verbose=2 if chief else 0,
    )

    if chief:
        print()
        strategy.summary(model)  # kp: where each variable is, why, and what a step sends.
        # kp: reads rows of the other workers, which wait at their end.
        person = persons.predict([held_out.history, held_out.history_genres], verbose=0)
        vector = vectors.predict([np.arange(count)[:, np.newaxis], films.genres], verbose=0)
        popular = describe(np.tile(log_shares, (len(person), 1)), held_out)
        print(f'\nOf what people liked last, the most popular films: {popular}.')
        print(f'The two towers: {describe(person @ vector.T, held_out)}.')


if __name__ == '__main__':
    main()
