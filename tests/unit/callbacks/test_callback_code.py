# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which callbacks may end an epoch early, and which change a rate or the model."""

import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, keras_module

import keras_parallax as kp
from keras_parallax.callbacks.callback_code import acts_on_training, may_end_an_epoch, mentions

PACKAGES = [keras_module(name).callbacks for name in KERAS_PACKAGES]
both = pytest.mark.parametrize('callbacks', PACKAGES, ids=KERAS_PACKAGES)


def of_class(callbacks, **methods):
    return type('Own', (callbacks.Callback,), methods)()


def stop(self, batch, logs=None):
    self.model.stop_training = True


def set_attribute(self, batch, logs=None):
    setattr(self.model, 'stop_training', True)  # noqa: B010


def call_stop(self, batch, logs=None):
    self.give_up(batch)


def nothing(self, batch, logs=None):
    pass


@both
@pytest.mark.parametrize(
    'methods, may',
    [
        ({'on_batch_end': stop}, True),
        ({'on_batch_begin': stop}, True),
        ({'on_batch_end': set_attribute}, True),
        ({'on_batch_end': call_stop, 'give_up': stop}, True),
        ({'on_epoch_end': stop}, False),
        ({'on_epoch_end': stop, 'on_batch_end': nothing}, False),
        ({'on_batch_end': nothing}, False),
    ],
)
def test_who_may_end_an_epoch_is_read_from_the_code(callbacks, methods, may):
    assert may_end_an_epoch(of_class(callbacks, **methods)) == may


@both
def test_keras_own_callbacks_are_told_apart(callbacks):
    assert may_end_an_epoch(callbacks.TerminateOnNaN())
    for callback in (
        callbacks.EarlyStopping(),
        callbacks.ReduceLROnPlateau(),
        callbacks.ProgbarLogger(),
        callbacks.History(),
        callbacks.CSVLogger('x'),
        callbacks.LambdaCallback(on_batch_end=lambda batch, logs: None),
    ):
        assert not may_end_an_epoch(callback)
        assert mentions(callback, 'lr') == isinstance(callback, callbacks.ReduceLROnPlateau)
    assert mentions(callbacks.LearningRateScheduler(lambda epoch: 1.0), 'lr')


@both
def test_functions_given_to_a_lambda_callback_count_where_they_are_called(callbacks):
    model = keras.models.Sequential()

    def give_up(*_):
        model.stop_training = True

    assert may_end_an_epoch(callbacks.LambdaCallback(on_batch_end=give_up))
    assert not may_end_an_epoch(callbacks.LambdaCallback(on_epoch_end=give_up))
    assert mentions(callbacks.LambdaCallback(on_epoch_end=give_up), 'stop_training')


def test_rates_by_horovods_callbacks_are_theirs():
    warmup = kp.callbacks.LearningRateWarmupCallback(initial_lr=0.1)
    assert mentions(warmup, 'lr') and mentions(warmup, 'momentum')
    assert not may_end_an_epoch(warmup)


@both
def test_what_keras_itself_does_in_a_callback_is_no_act_of_the_users(callbacks):
    assert not acts_on_training(callbacks.TensorBoard())
    assert not acts_on_training(type('Own', (callbacks.TensorBoard,), {'on_batch_end': nothing})())


@both
def test_a_class_of_the_users_that_waits_or_changes_the_model_acts_on_training(callbacks):
    def average(self, epoch, logs=None):
        self.horovod.allreduce(logs['loss'])

    for method in (stop, average):
        own = type('Own', (callbacks.TensorBoard,), {'on_epoch_end': method})()
        assert acts_on_training(own)
