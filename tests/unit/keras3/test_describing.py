# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax plan` describes models of Keras 3 as their training would, without values."""

import importlib.util
import json
import subprocess
import sys

import frameworks
import pytest

pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: Of float32, in the model `huge`.
HUGE_BYTES = 10**9 * 16 * 4

MODELS = """
import keras
from keras_parallax.errors import PlanError


def compiled(optimizer='adagrad', rows=50):
    inputs = keras.Input((4,), dtype='int32')
    words = keras.layers.Embedding(rows, 16, name='words')(inputs)
    tags = keras.layers.Embedding(
        9, 16, name='tags', embeddings_regularizer=keras.regularizers.l2(0.1))(inputs)
    out = keras.layers.Dense(1, name='out')(keras.layers.Flatten()(words + tags))
    model = keras.Model(inputs, out)
    model.compile(optimizer, 'mse')
    return model


def plain():
    model = keras.Sequential([keras.Input((4,), dtype='int32'), keras.layers.Embedding(50, 16)])
    assert getattr(model, 'optimizer', None) is None
    return model


def moves_all():
    return compiled('adam')


def unknown():
    return compiled('adamw')


def huge():
    return compiled(rows=10**9)


def unbuilt():
    return keras.Sequential([keras.layers.Dense(1)])


def of_keras_2():
    import tf_keras
    layers = [tf_keras.layers.Embedding(50, 16, input_length=4, name='old')]
    return tf_keras.Sequential(layers)
"""

# In a process of its own, for in graph mode, which other tests need, Keras 3 makes no variables.
CODE = """
import json
import resource
import sys
import keras
import keras_parallax as kp
from keras_parallax.commands.describe_model import describe
from keras_parallax.errors import PlanError
sys.path.insert(0, '')
import models

models.compiled().save('model.keras')
found = {}
with kp.ParallaxStrategy() as strategy:
    trained = models.compiled()
plan = strategy.plan(trained)
found['the plan of a strategy'] = {one.name: one.update for one in plan.variables}
for source in sys.argv[1:]:
    try:
        uses, updates, reasons = describe(source)
        found[source] = [use._asdict() for use in uses], updates, dict(reasons)
    except PlanError as error:
        found[source] = str(error)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({'found': found, 'peak': peak}))
"""

SOURCES = [
    *('models:' + name for name in ('compiled', 'plain', 'moves_all', 'unknown', 'huge')),
    *('model.keras', 'models:unbuilt', 'missing.keras', 'models:of_keras_2'),
]


@pytest.fixture(scope='module')
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp('describing')
    (folder / 'models.py').write_text(MODELS)
    command = [sys.executable, '-c', CODE, *SOURCES]
    output = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, cwd=str(folder)
    ).stdout
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope='module')
def found(printed):
    return printed['found']


def lookups_of(uses):
    return {use['name']: use['lookups'] for use in uses}


@pytest.mark.parametrize('source', ['models:compiled', 'model.keras'])
def test_a_model_and_its_file_have_tables_that_are_looked_up_and_some_that_cannot_be(found, source):
    uses, updates, reasons = found[source]
    assert lookups_of(uses) == {
        'words/embeddings': 1,
        'tags/embeddings': 0,
        'out/kernel': 0,
        'out/bias': 0,
    }
    assert [use['shape'] for use in uses] == [[50, 16], [9, 16], [64, 1], [1]]
    assert reasons['tags/embeddings'] == 'it has a regularizer'
    _, whole, slots = updates['words/embeddings']
    assert (whole, slots) == (False, 1)


def test_the_plan_of_a_strategy_tells_the_same_updates(found):
    assert found['the plan of a strategy'] == found['models:compiled'][1]


def test_a_model_that_is_not_compiled_has_no_updates(found):
    uses, updates, _ = found['models:plain']
    assert list(lookups_of(uses).values()) == [1]
    assert updates == {}


def test_an_optimizer_that_moves_all_rows_is_told(found):
    _, whole, slots = found['models:moves_all'][1]['words/embeddings']
    assert (whole, slots) == (True, 2)


def test_with_an_optimizer_of_an_unknown_formula_no_table_is_sharded(found):
    uses, updates, reasons = found['models:unknown']
    assert set(lookups_of(uses).values()) == {0}
    assert 'AdamW' in reasons['words/embeddings']
    assert updates == {}


def test_a_table_takes_no_memory(printed):
    assert lookups_of(printed['found']['models:huge'][0])['words/embeddings'] == 1
    assert printed['peak'] < HUGE_BYTES / 10


def test_what_cannot_be_described_is_refused(found):
    assert 'models:unbuilt' in found['models:unbuilt']
    assert 'missing.keras' in found['missing.keras']


def test_a_function_may_make_a_model_of_keras_2(found):
    if importlib.util.find_spec('tf_keras') is None:
        pytest.skip('no Keras 2 beside Keras 3')
    assert lookups_of(found['models:of_keras_2'][0]) == {'old/embeddings': 1}
