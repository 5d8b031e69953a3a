# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The area under the ROC curve, in one process."""

import cases
import numpy as np
import pytest
import true_metrics
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp

both = pytest.mark.parametrize('package', KERAS_PACKAGES)
RANDOM = np.random.RandomState(0)
LABELS = (RANDOM.rand(500) < 0.3).astype('float32')
#: Predictions that a model of one identity layer hands on; some are equal, and some the limits.
PREDICTIONS = np.round(np.clip(0.25 * LABELS + RANDOM.rand(500), 0, 1), 3).astype('float32')
WEIGHTS = RANDOM.randint(0, 4, 500).astype('float32')


def handing_on(package, metrics=None, width=1, **arguments):
    """A model whose predictions are its inputs."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        layer = keras.layers.Dense(
            width, use_bias=False, kernel_initializer='identity', input_shape=(width,)
        )
        model = keras.models.Sequential([layer])
        model.compile(keras.optimizers.SGD(lr=0.0), 'mse', metrics=metrics, **arguments)
    return model


def evaluated(model, labels=LABELS, predictions=PREDICTIONS, **arguments):
    """What a model's metrics are, without the loss."""
    return model.evaluate(predictions[:, None], labels, verbose=0, batch_size=64, **arguments)[1:]


@both
@pytest.mark.parametrize('intervals', [2, 10, 10000])
def test_it_is_as_close_to_the_exact_area_as_its_bound_says(package, intervals):
    (value,) = evaluated(handing_on(package, [kp.metrics.AUC(intervals)]))
    bound = true_metrics.auc_bound(LABELS, PREDICTIONS, intervals)
    assert abs(value - true_metrics.auc(LABELS, PREDICTIONS)) <= bound + 1e-6


def test_enough_thresholds_give_the_exact_area():
    (value,) = evaluated(handing_on(KERAS_PACKAGES[0], [kp.metrics.AUC(10000)]))
    assert value == pytest.approx(true_metrics.auc(LABELS, PREDICTIONS), abs=1e-6)


@both
def test_training_and_validation_have_sums_of_their_own_and_every_epoch_begins_anew(package):
    model = handing_on(package, [kp.metrics.AUC(), 'mae'])
    data = PREDICTIONS[:, None], LABELS
    validation = PREDICTIONS[:100, None], LABELS[:100]
    logs = model.fit(*data, validation_data=validation, epochs=2, verbose=0).history
    assert logs['auc'] == pytest.approx([true_metrics.auc(LABELS, PREDICTIONS)] * 2, abs=1e-6)
    expected = true_metrics.auc(LABELS[:100], PREDICTIONS[:100])
    assert logs['val_auc'] == pytest.approx([expected] * 2, abs=1e-6)


@both
def test_batches_of_a_scripts_own_add_up(package):
    model = handing_on(package, [kp.metrics.AUC()])
    # As it does without being asked in TensorFlow 1.11.
    goes_on = {'reset_metrics': False} if TF2 else {}
    for part in (slice(0, 100), slice(100, 300)):
        value = model.test_on_batch(PREDICTIONS[part, None], LABELS[part], **goes_on)[1]
    expected = true_metrics.auc(LABELS[:300], PREDICTIONS[:300])
    assert value == pytest.approx(expected, abs=1e-6)


@both
def test_it_is_no_weight_and_ranks_do_not_hold_it_in_common(package):
    model = handing_on(package, [kp.metrics.AUC()])
    model.train_on_batch(PREDICTIONS[:, None], LABELS)
    assert len(model.get_weights()) == 1
    step = model.optimizer._parallax_step
    assert not [name for name in step.operations._synced if 'sums' in name]


@both
def test_samples_weigh_what_tf_keras_says_and_keras_refuses_to(package):
    def make():
        return handing_on(package, weighted_metrics=[kp.metrics.AUC()])

    if package == 'keras':
        with pytest.raises(kp.PlanError, match='in metrics, or use tf.keras'):
            make()
        return
    (value,) = evaluated(make(), sample_weight=WEIGHTS)
    expected = true_metrics.auc(LABELS, PREDICTIONS, WEIGHTS)
    assert value == pytest.approx(expected, abs=1e-6)
    # As other metrics do, it takes no notice of weights in `metrics`.
    (value,) = evaluated(handing_on(package, [kp.metrics.AUC()]), sample_weight=WEIGHTS)
    assert value == pytest.approx(true_metrics.auc(LABELS, PREDICTIONS), abs=1e-6)


@both
def test_samples_of_one_kind_have_none(package):
    assert np.isnan(evaluated(handing_on(package, [kp.metrics.AUC()]), labels=0 * LABELS))


@both
@pytest.mark.parametrize(
    'labels, predictions, says',
    [
        (LABELS + 1, PREDICTIONS, 'metric auc takes labels that are 0 or 1'),
        (LABELS, PREDICTIONS + np.nan, 'metric auc takes predictions from 0 to 1'),
        (LABELS, PREDICTIONS - 0.1, 'metric auc takes predictions from 0 to 1'),
    ],
)
def test_bad_values_are_refused_with_a_sentence(package, labels, predictions, says):
    model = handing_on(package, [kp.metrics.AUC()])
    with pytest.raises(kp.DataError, match='Rank 0: The ' + says):
        evaluated(model, labels, predictions)


@both
def test_what_cannot_be_is_refused_before_training(package):
    with pytest.raises(kp.PlanError, match='at least 2 thresholds, but got 1'):
        kp.metrics.AUC(1)
    with pytest.raises(kp.PlanError, match=r'one prediction for each sample.*\(\?, 2\)'):
        handing_on(package, [kp.metrics.AUC()], width=2)


@both
def test_a_file_of_a_model_has_its_name(package, tmpdir):
    model = handing_on(package, [kp.metrics.AUC()])
    model.train_on_batch(PREDICTIONS[:, None], LABELS)
    model.save(str(tmpdir.join('model.h5')))
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = kp.load_model(
            str(tmpdir.join('model.h5')), custom_objects={'auc': kp.metrics.AUC()}
        )
    assert evaluated(model) == pytest.approx([true_metrics.auc(LABELS, PREDICTIONS)], abs=1e-6)


def test_a_model_that_is_built_by_its_first_batch_has_it_too():
    # `keras` 2.2.4 builds it at once.
    keras = cases.keras_module('tf.keras')
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        model = keras.models.Sequential(
            [keras.layers.Dense(1, use_bias=False, kernel_initializer='identity')]
        )
        model.compile(keras.optimizers.SGD(lr=0.0), 'mse', metrics=[kp.metrics.AUC()])
    logs = model.fit(PREDICTIONS[:, None], LABELS, verbose=0).history
    assert logs['auc'] == pytest.approx([true_metrics.auc(LABELS, PREDICTIONS)], abs=1e-6)


@both
def test_an_epoch_that_a_checkpoint_was_saved_within_goes_on_with_its_sums(package, tmpdir):
    path, data = str(tmpdir.join('model.h5')), (PREDICTIONS[:480, None], LABELS[:480])

    class Broken(Exception):
        pass

    def breaks(batch, logs):
        if batch == 3:
            raise Broken

    def trained(callbacks=(), resumed=False):
        model = handing_on(package, [kp.metrics.AUC()])
        keras = cases.keras_module(package)
        if resumed:
            assert kp.ParallaxStrategy().resume(model, path) == 0
        callbacks = [kp.callbacks.ModelCheckpoint(path, save_steps=2)] + [
            keras.callbacks.LambdaCallback(on_batch_end=callback) for callback in callbacks
        ]
        arguments = {'batch_size': 80, 'shuffle': False, 'verbose': 0, 'callbacks': callbacks}
        return model.fit(*data, **arguments).history['auc']

    expected = trained()
    tmpdir.join('model.h5').remove()
    with pytest.raises(Broken):
        trained([breaks])
    seen = []
    assert trained([lambda batch, logs: seen.append(batch)], resumed=True) == expected
    assert seen == [4, 5]
