# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The area under the ROC curve within groups, in one process."""

import cases
import numpy as np
import pytest
import true_metrics
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.metrics import group_samples
from keras_parallax.metrics.group_samples import SAMPLE, GroupSamples

both = pytest.mark.parametrize('package', KERAS_PACKAGES)
RANDOM = np.random.RandomState(0)
#: Some groups are large, some have one label only, and samples of one are not together.
GROUPS = np.minimum(RANDOM.geometric(0.05, 500), 90) * 1000003
LABELS = (RANDOM.rand(500) < 0.3).astype('float32')
#: Scores that a model of one identity layer hands on, of which some are equal.
SCORES = RANDOM.randint(-9, 9, 500).astype('float32') + 4 * LABELS
WEIGHTS = RANDOM.randint(0, 4, 500).astype(float)
EXACT = true_metrics.group_auc(LABELS, SCORES, GROUPS)


def handing_on(
    package, metrics, dtype='int64', group_shape=(1,), strategy=True, looks_up=False, **arguments
):
    """A model that hands on one of its inputs; what it looks up by the other is 0."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()

    def make():
        layers = keras.layers
        user, score = layers.Input(group_shape, dtype=dtype, name='user'), layers.Input((1,))
        layer = layers.Dense(1, use_bias=False, kernel_initializer='identity')
        out = layer(score)
        if looks_up:
            bias = layers.Embedding(100, 1, embeddings_initializer='zeros')(user)
            out = layers.add([out, layers.Flatten()(bias)])
        model = keras.models.Model([user, score], out)
        model.compile(keras.optimizers.SGD(0.0), 'mse', metrics=metrics, **arguments)
        return model

    if not strategy:
        kp.ParallaxStrategy()
        return make()
    with kp.ParallaxStrategy():
        return make()


def evaluated(model, groups=GROUPS, labels=LABELS, scores=SCORES, **arguments):
    inputs = [groups, scores[:, None]]
    return model.evaluate(inputs, labels, verbose=0, batch_size=64, **arguments)[1]


def samples_of(groups, labels, scores, weights=None):
    samples = np.zeros(len(groups), SAMPLE)
    samples['group'], samples['label'], samples['prediction'] = groups, labels, scores
    samples['weight'] = 1 if weights is None else weights
    return samples


# --- pure functions ----------------------------------------------------------


@pytest.mark.parametrize('weights', [None, WEIGHTS], ids=['alike', 'weighted'])
def test_sums_of_groups_are_those_of_each_group_alone(weights):
    found = group_samples.sums_of_groups(samples_of(GROUPS, LABELS, SCORES, weights))
    truth = true_metrics.group_auc(LABELS, SCORES, GROUPS, weights)
    assert found[0] / found[1] == pytest.approx(truth, rel=1e-12)


def test_groups_of_one_label_and_no_samples_at_all_add_nothing():
    assert group_samples.sums_of_groups(np.empty(0, SAMPLE)).tolist() == [0, 0]
    one_label = samples_of([1, 1, 2], [0, 0, 1], [0.5, 0.1, 0.3])
    assert group_samples.sums_of_groups(one_label).tolist() == [0, 0]


def test_too_many_samples_leave_whole_groups_by_the_same_hashes_in_any_order():
    whole = samples_of(GROUPS, LABELS, SCORES)
    kept = []
    for order in (np.arange(500), RANDOM.permutation(500)):
        few = GroupSamples(100)
        for part in np.split(order, 10):
            few.add(*(whole[part][name] for name in SAMPLE.names))
            assert few.count <= 100
        kept.append(np.sort(few.samples()))
        assert few.level and few.count == len(kept[-1])
    np.testing.assert_array_equal(kept[0], kept[1])
    groups = np.unique(kept[0]['group'])
    of_those = np.sort(whole[np.isin(whole['group'], groups)])
    np.testing.assert_array_equal(kept[0], of_those)


def test_a_level_keeps_about_half_of_the_groups_of_the_one_before():
    numbers = samples_of(np.arange(-5000, 5000), 0, 0.0)
    for level in range(1, 5):
        assert len(group_samples.of_level(numbers, level)) == pytest.approx(1e4 / 2**level, rel=0.1)


# --- the metric --------------------------------------------------------------


@both
@pytest.mark.parametrize('dtype', ['int64', 'string'])
def test_it_is_of_groups_that_an_input_names(package, dtype):
    groups = GROUPS if dtype == 'int64' else np.array(['user %d' % each for each in GROUPS])
    model = handing_on(package, [kp.metrics.GroupAUC('user')], dtype)
    # Keras 2.15 takes no one-dimensional strings.
    assert evaluated(model, groups[:, None]) == pytest.approx(EXACT, abs=1e-6)


@both
def test_training_and_validation_have_samples_of_their_own_and_every_epoch_begins_anew(package):
    model = handing_on(package, [kp.metrics.GroupAUC('user'), 'mae'])
    part = slice(0, 150)
    seen = []
    logs = model.fit(
        [GROUPS, SCORES], LABELS, epochs=2, verbose=0,
        validation_data=([GROUPS[part], SCORES[part]], LABELS[part]),
        callbacks=[cases.keras_module(package).callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(logs['group_auc']))],
    ).history  # fmt: skip
    assert logs['group_auc'] == pytest.approx([EXACT] * 2, abs=1e-12) and seen == logs['group_auc']
    truth = true_metrics.group_auc(LABELS[part], SCORES[part], GROUPS[part])
    assert logs['val_group_auc'] == pytest.approx([truth] * 2, abs=1e-12)


@both
def test_at_the_end_of_a_batch_it_is_of_half_of_the_samples_at_least(package):
    model = handing_on(package, [kp.metrics.GroupAUC('user')])
    seen = []
    model.fit(
        [GROUPS, SCORES], LABELS, batch_size=20, shuffle=False, verbose=0,
        callbacks=[cases.keras_module(package).callbacks.LambdaCallback(
            on_batch_end=lambda batch, logs: seen.append(float(logs['group_auc'])))],
    )  # fmt: skip
    so_far = [
        true_metrics.group_auc(LABELS[:count], SCORES[:count], GROUPS[:count])
        for count in range(20, 520, 20)
    ]
    for number, value in enumerate(seen):
        at_least = (number + 1) // 2 - 1 if number else 0
        of_those = so_far[at_least : number + 1]
        assert np.isclose(value, of_those, rtol=0, atol=1e-6, equal_nan=True).any()
    assert len(set(np.round(seen, 6))) > 3


@both
def test_what_a_callback_evaluates_within_an_epoch_is_exact(package):
    model = handing_on(package, [kp.metrics.GroupAUC('user')])
    seen = []
    keras = cases.keras_module(package)
    look = keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: seen.append(evaluated(model))
    )
    model.fit([GROUPS, SCORES], LABELS, batch_size=250, shuffle=False, verbose=0, callbacks=[look])
    assert seen == pytest.approx([EXACT] * 2, abs=1e-12)


def test_samples_weigh_what_tf_keras_says():
    weighted = handing_on('tf.keras', None, weighted_metrics=[kp.metrics.GroupAUC('user')])
    truth = true_metrics.group_auc(LABELS, SCORES, GROUPS, WEIGHTS)
    assert evaluated(weighted, sample_weight=WEIGHTS) == pytest.approx(truth, abs=1e-12)


@both
def test_more_samples_than_it_keeps_give_the_value_of_some_groups(package):
    model = handing_on(package, [kp.metrics.GroupAUC('user', max_samples=150)])
    few = GroupSamples(150)
    few.add(GROUPS, SCORES, np.ones(500), LABELS)
    kept = few.samples()
    truth = true_metrics.group_auc(kept['label'], kept['prediction'], kept['group'])
    assert evaluated(model) == pytest.approx(truth, abs=1e-12) and len(kept) < 500


def test_groups_of_one_label_have_none():
    model = handing_on(KERAS_PACKAGES[0], [kp.metrics.GroupAUC('user')])
    assert np.isnan(evaluated(model, labels=0 * LABELS))


@both
def test_a_file_of_a_model_has_its_name(package, tmpdir):
    metric = kp.metrics.GroupAUC('user')
    path, model = str(tmpdir.join('model.h5')), handing_on(package, [metric], looks_up=True)
    groups = GROUPS // 1000003
    model.train_on_batch([groups, SCORES], LABELS)
    model.save(path)
    cases.keras_module(package).backend.clear_session()
    with kp.ParallaxStrategy():
        model = kp.load_model(path, custom_objects={'group_auc': metric})
    assert evaluated(model, groups) == pytest.approx(EXACT, abs=1e-12)


@both
@pytest.mark.parametrize(
    'change, says',
    [
        ({'labels': LABELS + 1}, 'metric group_auc takes labels that are 0 or 1'),
        ({'scores': SCORES + np.nan}, 'metric group_auc takes no prediction that is NaN'),
        ({'groups': GROUPS + 0.5}, 'metric group_auc takes groups that are whole numbers'),
        ({'groups': GROUPS * 0 + 2.0**24}, 'whole numbers below 16777216 in size as float32'),
    ],
)
def test_bad_values_are_refused_with_a_sentence(package, change, says):
    model = handing_on(package, [kp.metrics.GroupAUC('user')], 'float32')
    with pytest.raises(kp.DataError, match='Rank 0: .*' + says):
        evaluated(model, **{'groups': GROUPS % 1000, **change})


@both
def test_what_cannot_be_is_refused_before_training(package):
    with pytest.raises(kp.PlanError, match='at least 1 sample, but got max_samples=0'):
        kp.metrics.GroupAUC('user', 0)
    with pytest.raises(kp.PlanError, match="input named 'item', but the model has .* 'user'"):
        handing_on(package, [kp.metrics.GroupAUC('item')])
    with pytest.raises(kp.PlanError, match=r'one group for each sample, but .* shape \(\?, 2\)'):
        handing_on(package, [kp.metrics.GroupAUC('user')], group_shape=(2,))
    with pytest.raises(kp.PlanError, match='compiled in the scope of a strategy'):
        handing_on(package, [kp.metrics.GroupAUC('user')], strategy=False)
