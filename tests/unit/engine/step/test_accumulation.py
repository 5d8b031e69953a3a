# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gradients of several batches, in one process; `test_equality.py` has several workers."""

import json
import os

import cases
import numpy as np
import own_optimizers
import pytest
from accumulated import BATCH, PACKAGES, assert_close, batches, compiled, data, plain_fit
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.engine.step import exchange
from keras_parallax.engine.step.accumulation import Accumulated
from keras_parallax.observing import phases, trace

# --- what is kept -------------------------------------------------------------------------


def test_rows_are_merged_as_they_come_and_their_mean_is_taken_once():
    with tf.Graph().as_default(), tf.Session() as session:
        rows, values = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None, 2])
        sums = Accumulated(tf.constant(0.0), 3, 'test')
        sums.begin(tf.no_op())
        mean, split = sums.rows(exchange.RowGradients(rows, values), None, 'table', [2])
        assert split is None
        session.run([variable.initializer for variable in sums.storage])
        for of_batch in ([1, 5], [5], [5, 1]):
            given = np.full([len(of_batch), 2], len(of_batch), np.float32)
            session.run(sums.additions, {rows: of_batch, values: given})
        of_rows = [one for one in sums.storage if '/rows' in one.name]
        assert session.run(of_rows)[0].tolist() == [1, 5]
        found, _ = session.run([mean, sums.resets])
        assert found.rows.tolist() == [1, 5]
        np.testing.assert_allclose(found.values, [[4 / 3.0] * 2, [5 / 3.0] * 2], rtol=1e-6)
        assert [value.size for value in session.run(of_rows)] == [0]
        assert session.run(sums.batches) == 0


@PACKAGES
def test_nothing_moves_until_the_last_of_the_batches(package):
    model = compiled(package, 3)
    seen = [[weights.copy() for weights in model.get_weights()]]
    counts = []
    for x, y in batches(*data()) + batches(*data())[:1]:
        model.train_on_batch(x, y)
        seen.append(model.get_weights())
        counts.append(
            int(cases.keras_module(package).backend.get_value(model.optimizer.iterations))
        )
    assert counts == [0, 0, 1, 1, 1, 2]
    for number, (before, after) in enumerate(zip(seen, seen[1:])):
        same = all(map(np.array_equal, before, after))
        assert same == ((number + 1) % 3 != 0)


@PACKAGES
def test_lazy_updates_leave_rows_alone_that_none_of_the_batches_has(package):
    model = compiled(package, 2, sparse_update='lazy')
    before = model.get_weights()[0]
    x, y = data(rows=10)
    for of_batch in batches(x, y)[:4]:
        model.train_on_batch(*of_batch)
    touched = np.unique(x[: 4 * BATCH])
    moved = np.flatnonzero(np.any(model.get_weights()[0] != before, 1))
    assert set(moved) == set(touched)


def two_halves(keras):
    """Two tables and two outputs that have nothing in common but the loss."""
    inputs = [keras.layers.Input((cases.LENGTH,)) for _ in range(2)]
    looked_up = [keras.layers.Embedding(cases.ROWS, 2)(ids) for ids in inputs]
    outputs = [keras.layers.Dense(1)(keras.layers.Flatten()(rows)) for rows in looked_up]
    return keras.models.Model(inputs, outputs)


@PACKAGES
@pytest.mark.parametrize('bad', [0, 1])
def test_a_batch_that_fails_adds_nothing(package, bad):
    found = []
    for fails in (False, True):
        model = compiled(package, 2, build=two_halves)
        for number, (x, y) in enumerate(batches(*data())[:4]):
            if fails and number == 1:
                ids = [x, x]
                ids[bad] = np.full_like(x, cases.ROWS)
                with pytest.raises(Exception, match='23'):
                    model.train_on_batch(ids, [y, y])
            model.train_on_batch([x, x], [y, y])
        found.append(model.get_weights())
    assert all(map(np.array_equal, *found))


# --- what measures it ----------------------------------------------------------------------


@PACKAGES
def test_step_metrics_have_rows_of_a_batch_and_times_of_both_runs(package):
    model, (x, y) = compiled(package, 2), data()
    metrics = kp.callbacks.StepMetrics()
    history = model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[metrics]).history
    expected = np.mean([len(np.unique(of_batch)) for of_batch, _ in batches(x, y)])
    assert history['rows/touched'] == [pytest.approx(expected)]
    parts = [history['seconds/' + name][0] for name in ('compute', 'allreduce', 'barrier')]
    assert 0 < sum(parts) <= history['seconds/step'][0] * 1.01


def test_a_profile_has_the_update_with_the_batch_that_it_follows(tmp_path):
    model, (x, y) = compiled(KERAS_PACKAGES[0], 2), data()
    profile = kp.callbacks.Profile(str(tmp_path), steps=(1, 4))
    model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[profile])
    with open(str(tmp_path / 'trace-1-3.json')) as file:
        found = trace.from_chrome(json.load(file), 'the trace')
    assert sorted(found.steps) == [(0, 1), (0, 2), (0, 3)]
    for number in (1, 2, 3):
        own = {span.phase for span in found.spans if span.step == number}
        assert phases.BACKWARD in own and (phases.UPDATE in own) == (number != 2)


# --- checkpoints --------------------------------------------------------------------------


def test_a_save_within_an_epoch_waits_for_the_update(tmp_path):
    package = KERAS_PACKAGES[0]
    model, (x, y) = compiled(package, 2), data()
    path = str(tmp_path / '{epoch}-{batch}.h5')
    saver = kp.callbacks.ModelCheckpoint(path, save_steps=3)
    model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[saver])
    # Due after batches 3 and 6 and 9 of both epochs; the fifth of an epoch is applied as it ends.
    assert sorted(os.listdir(str(tmp_path))) == ['1-4.h5', '2-2.h5', '2-4.h5']
    expected = model.get_weights()
    resumed = compiled(package, 2)
    with kp.ParallaxStrategy() as strategy:
        epoch = strategy.resume(resumed, str(tmp_path / '1-4.h5'))
    resumed.fit(x, y, BATCH, epochs=2, initial_epoch=epoch, shuffle=False, verbose=0)
    assert all(map(np.array_equal, resumed.get_weights(), expected))


def test_a_save_between_two_updates_says_what_is_not_in_it_and_a_resume_drops_it(tmp_path):
    package, path = KERAS_PACKAGES[0], str(tmp_path / 'model.h5')
    model, (first, *others) = compiled(package, 2), batches(*data())
    strategy = kp.ParallaxStrategy()
    model.train_on_batch(*first)
    with pytest.warns(UserWarning, match='the last 1 of accumulate_steps=2 batches are not app'):
        model.save(path)
    strategy.resume(model, path)
    cases.train(model, others)
    found, expected = model.get_weights(), compiled(package, 2)
    cases.train(expected, others)
    assert all(map(np.array_equal, found, expected.get_weights()))


def test_a_model_that_is_compiled_anew_says_which_gradients_are_lost():
    package = KERAS_PACKAGES[0]
    model, (first, *_) = compiled(package, 2), batches(*data())
    model.train_on_batch(*first)
    with kp.ParallaxStrategy():
        model.compile(model.optimizer, 'mse')
    with pytest.warns(UserWarning, match='the last 1 of accumulate_steps=2 batches will not be'):
        model.train_on_batch(*first)


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize('value', [0, -1, 1.5, 'two', True, None])
def test_what_is_no_number_of_batches_is_refused(value):
    keras = cases.keras_module(KERAS_PACKAGES[0])
    sentence = 'accumulate_steps must be a whole number of batches from 1, but %r was' % (value,)
    with pytest.raises(ValueError, match=sentence):
        kp.ParallaxOptimizer(keras.optimizers.SGD(), accumulate_steps=value)


def test_without_a_strategy_nobody_counts_batches(monkeypatch):
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    model = cases.embed_and_sum()(keras)
    model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(), accumulate_steps=2), 'mse')
    with pytest.raises(kp.ScopeError, match='accumulate_steps=2 needs a ParallaxStrategy'):
        model.train_on_batch(*batches(*data())[0])


@pytest.mark.skipif(TF2, reason='the optimizer is written for the base class of Keras 2.2.4')
def test_an_update_that_needs_a_batch_is_refused():
    def by_loss(keras):
        class ByLoss(keras.optimizers.SGD):
            def get_updates(self, loss, params):
                with tf.control_dependencies([tf.assign(self.lr, 0.1 * loss)]):
                    return super().get_updates(loss=loss, params=params)

        return ByLoss()

    model = compiled(KERAS_PACKAGES[0], 2, by_loss)
    with pytest.raises(kp.PlanError, match='accumulate_steps=2 has ByLoss update after several'):
        model.train_on_batch(*batches(*data())[0])
    # Keras would initialize its variables, which wait for a batch, with those of the next model.
    cases.keras_module(KERAS_PACKAGES[0]).backend.clear_session()


@pytest.mark.skipif(TF2, reason='these optimizers are written for the base class of Keras 2.2.4')
@pytest.mark.parametrize('name', ['layerwise', 'clipped_together'])
def test_a_users_optimizer_gets_the_mean_of_the_batches(name):
    optimizer = own_optimizers.OWN[name]
    weights, _ = plain_fit('keras', optimizer, [2 * BATCH, 2 * BATCH, BATCH], epochs=1)
    model, (x, y) = compiled('keras', 2, optimizer), data()
    model.fit(x, y, BATCH, shuffle=False, verbose=0)
    assert_close(model.get_weights(), weights)
