# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan of a job, once it is known. `tests/parallel/test_example.py` has measured densities."""

import json

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def model_of(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        layers = [
            keras.layers.Embedding(30, 4, input_length=2, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile('adagrad', 'mse')
    return strategy, model


def fit(model, report):
    model.fit(np.ones([4, 2]), np.ones([4, 1]), epochs=2, verbose=0, callbacks=[report])


@PACKAGES
def test_it_prints_what_the_summary_says_once(package, capsys):
    strategy, model = model_of(package)
    fit(model, kp.callbacks.PlanReport())
    printed, expected = capsys.readouterr().out, []
    strategy.summary(model, expected.append)
    assert printed.strip() == expected[0]


@PACKAGES
def test_the_users_function_says_it_instead_and_another_takes_it(package, capsys):
    told = []
    report = kp.callbacks.PlanReport(
        describe=lambda plan: plan['words/embeddings'].kind, print_fn=told.append
    )
    fit(model_of(package)[1], report)
    assert told == ['sparse'] and capsys.readouterr().out == ''


@PACKAGES
def test_the_plan_is_written_as_data_or_as_a_page(package, tmpdir):
    strategy, model = model_of(package)
    for name in ('folder/plan.json', 'plan.html'):
        report = kp.callbacks.PlanReport(str(tmpdir.join(name)), print_fn=lambda text: None)
        fit(model, report)
    plan = strategy.plan(model)
    assert json.loads(tmpdir.join('folder', 'plan.json').read()) == plan.as_data()
    assert tmpdir.join('plan.html').read_text('utf-8') == plan.to_html()


@PACKAGES
def test_what_cannot_be_written_is_warned_of_and_training_goes_on(package, tmpdir):
    file = tmpdir.join('file')
    file.write('no folder')
    _, model = model_of(package)
    before = model.get_weights()[0]
    with pytest.warns(UserWarning, match='could not write the plan to .*plan.json'):
        path = str(file.join('plan.json'))
        fit(model, kp.callbacks.PlanReport(path, print_fn=lambda text: None))
    assert not np.array_equal(model.get_weights()[0], before)


@PACKAGES
def test_a_model_without_a_strategy_has_no_plan(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile('sgd', 'mse')
    with pytest.raises(kp.ScopeError, match='compiled inside `with strategy:`'):
        fit(model, kp.callbacks.PlanReport())


@PACKAGES
def test_what_is_no_bandwidth_is_refused(package):
    with pytest.raises(kp.PlanError, match='bandwidth must be'):
        fit(model_of(package)[1], kp.callbacks.PlanReport(bandwidth='10'))
