# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The two towers of `examples/`: what `make demo-two-tower` runs, but on less of it."""

import re

import example_runs
import numpy as np
import pytest
from any_keras import keras
from frameworks import tf

movielens, two_tower = map(example_runs.module, ('films', 'two_tower'))
TRAIN, HELD_OUT, LENGTH, EPOCHS, BATCH, DIM, RATE, SEED = 9600, 1000, 10, 4, 32, 16, 0.3, 1
OPTIONS = {
    'max-train': TRAIN, 'max-held-out': HELD_OUT, 'length': LENGTH, 'epochs': EPOCHS,
    'batch-size': BATCH, 'dim': DIM, 'learning-rate': RATE, 'seed': SEED,
}  # fmt: skip
FILMS = movielens.make(people=1000, films=200)
COUNT = len(FILMS.titles)
SAMPLES, JUDGED = movielens.split(FILMS, LENGTH, (TRAIN, HELD_OUT))


class OfEachWorker(two_tower.InBatchSoftmax):
    """The softmax of the workers' batches, which take turns in the joined one."""

    def left_out(self, count):
        workers = tf.range(count) % example_runs.WORKERS
        return tf.not_equal(workers[:, None], workers[None])


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    return str(tmp_path_factory.mktemp('towers').joinpath('exported'))


@pytest.fixture(scope='module')
def shown(exported, tmp_path_factory):
    """What the example prints, of the likes in files of MovieLens's layout."""
    folder = tmp_path_factory.mktemp('movielens')
    example_runs.write_movielens(FILMS, folder)
    options = [word for option, value in OPTIONS.items() for word in ('--' + option, value)]
    return example_runs.output('two_tower.py', *options, '--data', folder, '--export', exported)


@pytest.fixture(scope='module')
def plain():
    """What towers of plain Keras say in the end: vectors of people, and of films."""
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    model, persons, vectors = two_tower.build_models(
        COUNT, len(FILMS.genre_names), LENGTH, DIM, softmax=OfEachWorker
    )
    shares = two_tower.log_shares(SAMPLES, COUNT)
    inputs = [*SAMPLES, shares[SAMPLES.film]]
    for _ in example_runs.train(
        model,
        tf.train.AdagradOptimizer(RATE),
        two_tower.loss_of,
        (inputs, np.zeros((TRAIN, 1))),
        EPOCHS,
        BATCH,
    ):
        pass
    return persons.predict(list(JUDGED[:2])), vectors.predict([numbers(), FILMS.genres])


def numbers():
    return np.arange(COUNT, dtype='int32')[:, np.newaxis]


def shares_of(shown, begin):
    found = re.search(begin + r': (\d+\.\d)% among the first 10, (\d+\.\d)% of 50', shown)
    return [float(each) / 100 for each in found.groups()]


def test_it_finds_more_of_what_people_like_than_the_most_popular_films_are(shown):
    popular = shares_of(shown, 'the most popular films')
    found = shares_of(shown, 'The exported towers')
    assert found[0] > popular[0] and found[1] > popular[1]


def test_two_workers_find_what_plain_keras_does_that_compares_the_same_films(shown, plain):
    ranks = two_tower.ranks_of(*plain, JUDGED)
    truth = [(ranks < 10).mean(), (ranks < 50).mean()]
    found = shares_of(shown, 'The exported towers')
    np.testing.assert_allclose(found, truth, rtol=0, atol=1.5 / HELD_OUT)


def test_exported_towers_say_in_plain_tensorflow_what_those_of_plain_keras_do(
    shown, exported, plain
):
    people = {'history': JUDGED.history, 'history_genres': JUDGED.history_genres}
    films = {'film': numbers(), 'film_genres': FILMS.genres}
    for name, inputs, truth in (('persons', people, plain[0]), ('films', films, plain[1])):
        found = two_tower.predict('%s/%s' % (exported, name), inputs)
        assert np.linalg.norm(found - truth) < 1e-4 * np.linalg.norm(truth)


def test_it_prints_one_bar_and_nothing_of_the_launcher(shown):
    assert example_runs.is_one_screen(shown)
