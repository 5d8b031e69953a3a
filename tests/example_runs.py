# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs the scripts of `examples/` on two workers, and what they build in plain Keras."""

import importlib
import os
import re
import sys
import tempfile

import launch
import numpy as np
import reference

from keras_parallax.data.sample_order import Order

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, 'examples')
sys.path.insert(0, EXAMPLES)  # The examples are not a package.
WORKERS = 2


def module(name):
    """A module of the examples."""
    return importlib.import_module(name)


def output(script, *arguments, environ=None):
    """What an example prints on two workers, as `make` shows it."""
    outcome = launch.run(
        WORKERS, os.path.join(EXAMPLES, script), *arguments,
        prefix=launch.one_screen(tempfile.mkdtemp()), environ=environ,
    )  # fmt: skip
    assert outcome.code == 0, outcome.output
    return outcome.output


def perplexities(shown):
    """The perplexities on held-out text that an example shows, one of each epoch."""
    return [float(each) for each in re.findall(r'perplexity (\d+\.\d)', shown)]


def is_one_screen(shown):
    """Whether there is one bar, and nothing of the launcher."""
    bars = [line for line in shown.splitlines() if '%|' in line]
    one_bar = len(bars) == 1 and bars[0].startswith('100%')
    return one_bar and '[0]<std' not in shown and 'Using TensorFlow' not in shown


def train(model, optimizer, loss, arrays, epochs, batch_size):
    """Trains a model of plain Keras on batches that join those of the workers.

    Args:
        model: the model.
        optimizer, loss: as `compile` takes them.
        arrays: the inputs and the targets, each an array or a list of arrays.
        epochs: number of epochs.
        batch_size: samples of a batch on each worker.

    Yields:
        After each epoch, its number.
    """
    model.compile(reference.gated(optimizer), loss)
    model._make_train_function()
    reference.gate_updates(model)
    x, y = [part if isinstance(part, list) else [part] for part in arrays]
    for epoch in range(epochs):
        order = Order(len(y[0]), WORKERS, seed=0).of_all(epoch)
        for start in range(0, len(order), WORKERS * batch_size):
            rows = order[start : start + WORKERS * batch_size]
            model.train_on_batch([array[rows] for array in x], [array[rows] for array in y])
        yield epoch


def perplexity(exact_model, inputs, words):
    """The perplexity of a model whose output is the exact loss of each word."""
    return np.exp(exact_model.predict(inputs).sum(dtype='float64') / words)


def write_movielens(films, folder, ending='.csv'):
    """Writes `films.Films` in one of MovieLens's layouts, with two dislikes that do not count.

    Args:
        films: what to write; the number of a film is its place, times 10.
        folder: a `pathlib.Path`.
        ending: `'.csv'` or `'.dat'`.
    """
    of_csv = ending == '.csv'
    kinds = [
        '|'.join(films.genre_names[number] for number in row if number) for row in films.genres
    ]
    movies = [
        (number * 10, '"%s, The"' % title if of_csv else title + ', The', kind)
        for number, (title, kind) in enumerate(zip(films.titles, kinds))
    ]
    ratings = [
        (person + 1, film * 10, 5.0, 978300000 + time)
        for person, liked in enumerate(films.likes)
        for time, film in enumerate(liked)
    ]
    ratings += [(1, 10, 3.5, 978300000), (2, 20, 1.0, 978300000)]
    # Ratings are not in the order of time.
    ratings.sort(key=lambda rating: (rating[0], rating[1]))
    for name, head, rows in (
        ('movies', 'movieId,title,genres', movies[1:]),
        ('ratings', 'userId,movieId,rating,timestamp', ratings),
    ):
        separator = ',' if of_csv else '::'
        lines = [head] * of_csv + [separator.join(map(str, row)) for row in rows]
        folder.joinpath(name + ending).write_text('\n'.join(lines) + '\n')
