# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What callbacks write and print that another worker does for this one."""

import os

import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, keras_module

import keras_parallax as kp
from keras_parallax.callbacks.fit_output import left_to, output_of, outputs

PACKAGES = [keras_module(name).callbacks for name in KERAS_PACKAGES]
both = pytest.mark.parametrize('callbacks', PACKAGES, ids=KERAS_PACKAGES)


@both
def test_what_writes_to_the_same_place_is_left_to_the_other_rank(callbacks):
    events, lines = callbacks.TensorBoard('logs'), callbacks.CSVLogger('log.csv')
    same = callbacks.TensorBoard(os.path.abspath('logs')), callbacks.CSVLogger('./log.csv')
    history = callbacks.History()
    assert left_to(outputs([events, lines]), [history, *same]) == (list(same), [])
    remote = callbacks.RemoteMonitor()
    assert left_to(outputs([callbacks.RemoteMonitor()]), [remote]) == ([remote], [])


@both
def test_what_the_other_rank_does_not_write_is_written_here(callbacks):
    events, lines = callbacks.TensorBoard('logs'), callbacks.CSVLogger('log.csv')
    others = outputs([callbacks.TensorBoard('logs-0'), callbacks.CSVLogger('logs')])
    assert left_to(others, [events, lines]) == ([], [])
    assert left_to([], [events, lines]) == ([], [])


@both
def test_ranks_in_folders_of_their_own_write_to_their_own_files(callbacks, tmpdir):
    others = outputs([callbacks.CSVLogger('log.csv')])
    with tmpdir.as_cwd():
        assert left_to(others, [callbacks.CSVLogger('log.csv')]) == ([], [])


@both
def test_a_class_of_the_users_is_left_out_only_if_it_does_nothing_else(callbacks):
    class Rates(callbacks.TensorBoard):
        def on_epoch_end(self, epoch, logs=None):
            logs = dict(logs, lr=keras.backend.eval(self.model.optimizer.lr))
            super().on_epoch_end(epoch, logs)

    class Restarts(callbacks.TensorBoard):
        def on_epoch_end(self, epoch, logs=None):
            keras.backend.set_value(self.model.optimizer.lr, 0.1)

    assert output_of(Rates('logs')) == output_of(callbacks.TensorBoard('logs'))
    assert output_of(Restarts('logs')) is None


@both
def test_only_what_prints_the_same_is_mute(callbacks):
    loud = [
        callbacks.ModelCheckpoint('model.h5', verbose=1),
        callbacks.EarlyStopping('loss', verbose=1),
        callbacks.ReduceLROnPlateau('loss', verbose=1),
        callbacks.LearningRateScheduler(lambda epoch: 0.1, verbose=1),
        kp.callbacks.ModelCheckpoint('ours.h5', verbose=1),
    ]
    assert left_to(outputs(loud), loud) == ([], loud)
    quiet = [callbacks.ModelCheckpoint('model.h5'), callbacks.EarlyStopping('loss')]
    assert left_to(outputs(quiet), loud) == ([], [])
    others = [callbacks.ModelCheckpoint('0.h5', verbose=1), callbacks.EarlyStopping(verbose=1)]
    assert left_to(outputs(others), loud) == ([], [])
