# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics of steps in one process. `tests/parallel/test_behaviour.py` has them on two workers."""

import glob
import os
import re
import time

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.observing.step_measures import GROUPS

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def model_of(package, strategy=True):
    keras = cases.keras_module(package)
    keras.backend.clear_session()

    def make():
        layers = [
            keras.layers.Embedding(30, 4, input_length=2, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile('adagrad', 'mse', metrics=['mae'])
        return model

    if not strategy:
        return make()
    with kp.ParallaxStrategy():
        return make()


def fit(model, callbacks, **arguments):
    arguments = dict({'verbose': 0, 'epochs': 2, 'shuffle': False}, **arguments)
    x = np.arange(24).reshape(12, 2) % 30
    return model.fit(x, np.ones([12, 1]), batch_size=4, callbacks=callbacks, **arguments).history


@PACKAGES
def test_a_process_alone_touches_rows_and_sends_nothing(package):
    history = fit(model_of(package), [kp.callbacks.StepMetrics(per_table=True)])
    assert history['rows/touched'] == history['rows/touched/words/embeddings'] == [8, 8]
    for way in ('bytes/rows_sent', 'bytes/rows_received', 'bytes/dense_sent'):
        assert history[way] == [0, 0]
    assert min(history['job/examples_per_second']) > 0 and min(history['seconds/compute']) >= 0
    assert history['job/slowest_rank'] == [0, 0]


@PACKAGES
def test_the_weights_are_those_of_training_that_is_not_measured(package):
    found = []
    for callbacks in ([], [kp.callbacks.StepMetrics()]):
        model = model_of(package)
        model.set_weights(cases.start_weights(model))
        fit(model, callbacks)
        found.append(model.get_weights())
    for measured, plain in zip(*found):
        np.testing.assert_array_equal(measured, plain)


@PACKAGES
def test_keras_progress_bar_shows_the_numbers_as_they_are(package, capsys):
    values = []
    keras = cases.keras_module(package)
    note = keras.callbacks.LambdaCallback(
        # The bar is drawn every 50 ms at most.
        on_batch_begin=lambda batch, logs: time.sleep(0.06),
        on_batch_end=lambda batch, logs: values.append(logs['job/examples_per_second']),
    )
    history = fit(model_of(package), [kp.callbacks.StepMetrics(every=1), note], verbose=1, epochs=1)
    shown = capsys.readouterr().out
    drawn = re.findall(r'job/examples_per_second: ([\d.]+)', shown)
    # Of two batches, and then of the epoch: no mean of what was there before.
    expected = values[:2] + history['job/examples_per_second']
    assert drawn[:2] + drawn[-1:] == ['%.4f' % value for value in expected]


@PACKAGES
def test_keras_progress_bar_has_a_short_line(package, capsys):
    metrics = kp.callbacks.StepMetrics(per_table=True)
    history = fit(model_of(package), [metrics], verbose=1)
    shown = capsys.readouterr().out.replace('\x08', '').replace('\r', '\n').splitlines()
    drawn = [line for line in shown if 'loss: ' in line]
    assert drawn and max(map(len, drawn)) <= 200, drawn
    names = {name for line in drawn for name in re.findall(r' - ([\w/]+): [\d.]', line)}
    expected = {'seconds/step', 'job/examples_per_second'}
    assert {name for name in names if '/' in name} == expected and expected <= set(history)


@PACKAGES
def test_the_line_of_an_epoch_of_our_bar_is_short(package, capsys):
    fit(model_of(package), [kp.callbacks.StepMetrics(per_table=True), kp.callbacks.ProgressBar()])
    (line, _) = [line for line in capsys.readouterr().out.splitlines() if 'epoch ' in line]
    assert 'seconds/step' in line and 'rows/touched' not in line and len(line) <= 150


@PACKAGES
def test_each_metric_is_of_a_group_whose_name_is_its_unit(package):
    history = fit(model_of(package), [kp.callbacks.StepMetrics(per_table=True)])
    names = {name for name in history if '/' in name}
    assert {name.split('/')[0] for name in names} == {'rows', 'bytes', 'seconds', 'job'}
    assert all(name.split('/')[1] in GROUPS[name.split('/')[0]] for name in names)


@PACKAGES
@pytest.mark.parametrize('first', [True, False])
def test_keras_tensorboard_writes_them(package, first, tmp_path):
    model, folder = model_of(package), str(tmp_path)
    board = cases.keras_module(package).callbacks.TensorBoard(folder)
    fit(model, [kp.callbacks.StepMetrics(), board][:: 1 if first else -1])
    written = [
        value.tag
        for file in glob.glob(os.path.join(folder, '**', 'events*'), recursive=True)
        for event in tf.train.summary_iterator(file)
        for value in event.summary.value
    ]
    assert sum(tag.endswith('rows/touched') for tag in written) >= 2


@PACKAGES
def test_it_measures_again_in_the_next_fit_and_not_between(package):
    model, callback = model_of(package), kp.callbacks.StepMetrics()
    fit(model, [callback])
    step = model.optimizer._parallax_step
    assert [type(one).__name__ for one in step.observers] == ["Tuning"]
    fit(model, [])
    assert fit(model, [callback])['rows/touched'] == [8, 8]


@PACKAGES
def test_a_fit_that_failed_leaves_nothing_that_measures_beside_the_next(package):
    model, callback = model_of(package), kp.callbacks.StepMetrics()

    class Fails(cases.keras_module(package).callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            raise RuntimeError('in a batch')

    with pytest.raises(RuntimeError, match='in a batch'):
        fit(model, [callback, Fails()])
    assert fit(model, [kp.callbacks.StepMetrics()])['rows/touched'] == [8, 8]
    step = model.optimizer._parallax_step
    assert [type(one).__name__ for one in step.observers] == ['Tuning']


@PACKAGES
def test_an_epoch_after_whose_last_step_tables_move_has_what_was_known(package):
    model = model_of(package)

    class Moves(cases.keras_module(package).callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            if batch == 2:
                for observer in self.model.optimizer._parallax_step.observers:
                    observer.moved()

    history = fit(model, [Moves(), kp.callbacks.StepMetrics(every=1)])
    assert history['rows/touched'] == [8, 8] and len(history['seconds/step']) == 2


@PACKAGES
def test_a_model_without_a_strategy_is_refused(package):
    with pytest.raises(kp.ParallaxError, match='compile'):
        fit(model_of(package, strategy=False), [kp.callbacks.StepMetrics()])


@pytest.mark.parametrize('every', [0, -1, 1.5, 'often'])
def test_what_is_no_number_of_steps_is_refused(every):
    with pytest.raises(ValueError, match='every must be a number of steps'):
        kp.callbacks.StepMetrics(every=every)
