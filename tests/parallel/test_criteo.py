# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The models of clicks of `examples/`: what `make demo-criteo` runs, but on less of it."""

import re

import example_runs
import numpy as np
import pytest
import true_metrics
from any_keras import keras
from frameworks import tf

clicks, criteo = map(example_runs.module, ('clicks', 'criteo'))
TRAIN, HELD_OUT, VALUES, EPOCHS, BATCH, DIM, RATE, SEED = 10000, 1000, 500, 2, 64, 8, 0.1, 1
OPTIONS = {
    'max-train': TRAIN, 'max-held-out': HELD_OUT, 'max-values': VALUES, 'epochs': EPOCHS,
    'batch-size': BATCH, 'dim': DIM, 'learning-rate': RATE, 'seed': SEED,
}  # fmt: skip
DAYS = clicks.make_days(7, 2, (TRAIN, HELD_OUT))
ROWS = clicks.table_rows(VALUES)
#: The held-out lines of each day.
HALVES = slice(HELD_OUT // 2), slice(HELD_OUT // 2, None)


@pytest.fixture(params=['deepfm', 'dlrm', 'deepfm-dynamic'])
def name(request):
    """A model, and whether its tables find rows by ids that nobody has numbered."""
    return request.param


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('criteo')


@pytest.fixture
def exported(name, folder):
    return str(folder.joinpath(name))


@pytest.fixture
def shown(once, name, exported, folder):
    """What the example prints, of lines that are made, or of the same ones in files."""
    return once(run_example, name, exported, folder)


def run_example(name, exported, folder):
    options = [word for option, value in OPTIONS.items() for word in ('--' + option, value)]
    model, _, kind = name.partition('-')
    options += ['--model', model, '--' + (kind or 'static')]
    if model == 'deepfm':
        return example_runs.output('criteo.py', *options, '--export', exported)
    folder = folder.joinpath('days')
    folder.mkdir()
    for number, day in enumerate(DAYS[0] + DAYS[1]):
        folder.joinpath('day_%d' % number).write_text('\n'.join(day.lines) + '\n')
    return example_runs.output('criteo.py', *options, '--data', folder)


#: TensorFlow draws other first weights where a graph has other operations: no plain Keras begins
#: with those of a dynamic table, which `test_dynamic.py` compares.
static = pytest.mark.parametrize('name', ['deepfm', 'dlrm'], indirect=True)


@pytest.fixture
def plain(once, name):
    """Of plain Keras: the model, and what it predicts of held-out lines after each epoch."""
    return once(train_plainly, name)


def train_plainly(name):
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    trained, judged = [list(clicks.encode(days, ROWS)) for days in DAYS]
    model = criteo.build_model(name, criteo.static_table(sum(ROWS)), DIM)
    epochs = example_runs.train(
        model,
        tf.train.AdagradOptimizer(RATE),
        'binary_crossentropy',
        (trained[:2], trained[2]),
        EPOCHS,
        BATCH,
    )
    return model, [model.predict(judged[:2])[:, 0] for _ in epochs]


def of(predictions, lines):
    """The metrics of predictions of some held-out lines."""
    labels = clicks.encode(DAYS[1], ROWS)[2][:, 0]
    both = labels[lines], predictions[lines]
    return true_metrics.auc(*both), true_metrics.normalized_entropy(*both)


def numbers_of(shown, begin):
    found = re.findall(begin + r'AUC (\d\.\d+), normalized entropy (\d\.\d+)', shown)
    return [tuple(map(float, each)) for each in found]


def scores(shown):
    """How likely clicks of the first lines are."""
    return [float(each) / 100 for each in re.findall(r'(\d+\.\d+)% likely', shown)]


def of_days(shown):
    return numbers_of(shown, r'(?:day 6|day 7|day_5|day_6): ')


# A rounding error that moves one input of a hidden layer across 0 grows from then on: on TensorFlow
# 2.21, numbers of the second epoch differ by 3e-3.
LATER = 5e-3


@static
def test_after_an_epoch_two_workers_are_where_plain_keras_is_on_joined_batches(shown, plain):
    epochs = numbers_of(shown, 'held-out ')
    truth = [of(predictions, slice(None)) for predictions in plain[1]]
    np.testing.assert_allclose(epochs[0], truth[0], rtol=0, atol=2e-4)
    np.testing.assert_allclose(epochs, truth, rtol=0, atol=LATER)


def test_it_learns_what_is_clicked(shown):
    area, entropy = numbers_of(shown, 'held-out ')[-1]
    assert area > 0.55 and entropy < 0.996


@static
def test_each_held_out_day_is_judged_as_a_whole(shown, plain):
    truth = [of(plain[1][-1], lines) for lines in HALVES]
    np.testing.assert_allclose(of_days(shown), truth, rtol=0, atol=LATER)


@static
def test_plain_tensorflow_says_of_the_exported_model_what_plain_keras_predicts(shown, plain):
    np.testing.assert_allclose(scores(shown), plain[1][-1][:3], rtol=0, atol=2 * LATER)


@pytest.mark.parametrize('name', ['deepfm', 'deepfm-dynamic'], indirect=True)
def test_the_exported_model_is_the_one_whose_metrics_are_shown(shown, name, exported):
    numbers, categories, _ = clicks.encode(DAYS[1], None if name.endswith('dynamic') else ROWS)
    found = criteo.score(exported, numbers, categories)
    days = [of(found, lines) for lines in HALVES]
    np.testing.assert_allclose(days, of_days(shown), rtol=0, atol=1e-4)
    np.testing.assert_allclose(scores(shown), found[:3], rtol=0, atol=1e-4)


@pytest.mark.parametrize('name', ['deepfm-dynamic'], indirect=True)
def test_each_value_that_was_met_has_a_row(shown):
    met = len(np.unique(clicks.encode(DAYS[0])[1]))
    assert '%s ids have rows, 0 have lost theirs.' % format(met, ',') in shown


def test_it_prints_one_bar_and_nothing_of_the_launcher(shown):
    assert example_runs.is_one_screen(shown)
