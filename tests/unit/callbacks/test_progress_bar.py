# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One bar for the job. `tests/parallel/test_example.py` has it on several workers."""

import contextlib
import re

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)
SAMPLES, BATCH = 10, 4


def model_of(package, in_scope=True):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy() if in_scope else contextlib.ExitStack():
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile('sgd', 'mse')
    return model


def fit(model, bar, epochs=3, **options):
    x, y = np.ones([SAMPLES, 2]), np.ones([SAMPLES, 1])
    model.fit(x, y, batch_size=BATCH, epochs=epochs, callbacks=[bar], **options)


def shown(capsys):
    """What stays on the screen: of what is drawn again and again, the last."""
    lines = capsys.readouterr().out.split('\n')
    return [line.rstrip('\r').rpartition('\r')[2].rstrip() for line in lines]


@PACKAGES
@pytest.mark.parametrize('in_scope', [True, False], ids=['strategy', 'plain'])
def test_there_is_a_line_for_each_epoch_and_one_bar_that_ends_full(package, in_scope, capsys):
    options = {} if in_scope else {'verbose': 0}
    fit(model_of(package, in_scope), kp.callbacks.ProgressBar(interval=0), **options)
    lines = [line for line in shown(capsys) if line]
    epochs = [
        re.match(r'epoch (\d): [\d,]+ samples/s, loss [\d.e+-]+$', line) for line in lines[:-1]
    ]
    assert [found and found.group(1) for found in epochs] == ['1', '2', '3']
    assert re.match(r'100%\|#+\| 30.0/30.0 ', lines[-1])


@PACKAGES
def test_units_and_words_are_the_users(package, capsys):
    bar = kp.callbacks.ProgressBar('words', 20, lambda logs: '%d metric' % len(logs), interval=0)
    fit(model_of(package), bar, epochs=1)
    lines = [line for line in shown(capsys) if line]
    assert re.match(r'epoch 1: [\d,]+ words/s, 1 metric$', lines[0])
    assert '| 200/200 ' in lines[-1] and ' words/s' in lines[-1]


@PACKAGES
def test_where_training_goes_on_the_bar_does(package, capsys):
    fit(model_of(package), kp.callbacks.ProgressBar(interval=0), epochs=4, initial_epoch=3)
    drawn = re.findall(r'(\d+)%\|', capsys.readouterr().out)
    # Three of four epochs are over when it is drawn for the first time.
    assert drawn[-1] == '100' and drawn[0] == '75'


@PACKAGES
def test_of_a_generator_the_bar_counts_batches_of_the_size_of_the_first(package, capsys):
    def batches():
        while True:
            yield np.ones([BATCH, 2]), np.ones([BATCH, 1])

    bar = kp.callbacks.ProgressBar(interval=0)
    model = model_of(package)
    train = model.fit if TF2 else model.fit_generator
    train(batches(), steps_per_epoch=3, epochs=2, callbacks=[bar])
    lines = [line for line in shown(capsys) if line]
    assert len(lines) == 3 and '100%' in lines[-1] and '| 24.0/24.0 ' in lines[-1]


@PACKAGES
def test_kerass_own_bar_is_shown_too_if_it_is_asked_for(package, capsys):
    fit(model_of(package), kp.callbacks.ProgressBar(interval=0), epochs=1, verbose=2)
    assert ' - loss: ' in capsys.readouterr().out


@PACKAGES
def test_it_may_be_used_again(package, capsys):
    model, bar = model_of(package), kp.callbacks.ProgressBar(interval=0)
    fit(model, bar, epochs=1)
    fit(model, bar, epochs=2)
    bars = [line for line in shown(capsys) if '%|' in line]
    assert [re.search(r'\| (\S+) ', line).group(1) for line in bars] == ['10.0/10.0', '20.0/20.0']
