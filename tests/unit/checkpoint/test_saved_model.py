# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`export_saved_model`: TensorFlow alone predicts from it what the model does, or there is none."""

import os

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp

ROWS = 23


@pytest.fixture(params=KERAS_PACKAGES)
def keras(request):
    package = cases.keras_module(request.param)
    package.backend.clear_session()
    yield package
    package.backend.clear_session()


def served(path, values):
    """What TensorFlow predicts with an export, by the names of its outputs."""
    with tf.Graph().as_default(), tf.Session() as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        signature = tf.saved_model.loader.load(session, tags, path).signature_def['serving_default']
        feeds = {signature.inputs[name].name: value for name, value in values.items()}
        names = {name: info.name for name, info in signature.outputs.items()}
        return session.run(names, feeds)


def frozen_part(keras):
    """A nested model that is frozen before a layer that is not: its weights come last."""
    layers, models = keras.layers, keras.models
    inner = models.Sequential([layers.Dense(3, input_shape=(3,)), layers.Dense(3)], name='inner')
    inner.trainable = False
    ids = layers.Input((4,), name='ids')
    hidden = layers.TimeDistributed(inner)(layers.Embedding(ROWS, 3)(ids))
    return models.Model(ids, layers.Dense(3, name='out')(layers.Flatten()(hidden)))


def frozen_nested(keras):
    layers, models = keras.layers, keras.models
    inner = models.Sequential([layers.Dense(3, input_shape=(3,)), layers.Dense(3)], name='inner')
    inner.trainable = False
    x = layers.Input((3,), name='x')
    return models.Model(x, layers.Dense(3, name='out')(inner(layers.Dense(3)(x))))


def frozen_layers(keras):
    layers, models = keras.layers, keras.models
    made = [
        layers.Dense(3, input_shape=(3,), trainable=False),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        layers.Dense(3),
        layers.BatchNormalization(trainable=False),
        layers.Dense(3, trainable=False, name='out'),
    ]
    model = models.Sequential(made)
    # Not in the configuration of the time when it was built.
    made[3].trainable = False
    return model


def wrapped(keras):
    layers, models = keras.layers, keras.models
    x = layers.Input((5,), name='x')
    hidden = layers.Embedding(ROWS, 3, mask_zero=True)(x)
    frozen = layers.Bidirectional(layers.GRU(3, return_sequences=True))
    hidden = frozen(hidden)
    frozen.trainable = False
    hidden = layers.RNN([layers.LSTMCell(3), layers.GRUCell(3)])(hidden)
    return models.Model(x, layers.Dense(3, name='out')(hidden))


def shared_by_models(keras):
    """A layer in two nested models; made again, it is two layers."""
    layers, models = keras.layers, keras.models
    shared = layers.Dense(3, name='shared')

    def tower(name):
        x = layers.Input((3,))
        return models.Model(x, layers.Dense(3)(shared(x)), name=name)

    x, y = layers.Input((3,), name='x'), layers.Input((3,), name='y')
    left, right = tower('left'), tower('right')
    left.trainable = False
    out = layers.concatenate([left(x), right(y), shared(y)])
    return models.Model([x, y], layers.Dense(1, name='out')(out))


def used_twice(keras):
    """One layer with two outputs of the model, whose names would be equal."""
    layers, models = keras.layers, keras.models
    x, y = layers.Input((3,), name='x'), layers.Input((3,), name='y')
    table, out = layers.Embedding(ROWS, 3), layers.Dense(2, name='out')
    return models.Model([x, y], [out(layers.Flatten()(table(ids))) for ids in (x, y)])


def custom_class(keras):
    class Custom(keras.layers.Layer):
        """Has a layer in it, weights that are frozen and such that are not, in a mixed order."""

        def __init__(self, scale=1.0, **kwargs):
            super().__init__(**kwargs)
            self.scale, self.inner = scale, keras.layers.Dense(3)

        def build(self, shape):
            self.fixed = self.add_weight('fixed', (3,), initializer='uniform', trainable=False)
            self.free = self.add_weight('free', (3,), initializer='uniform', trainable=True)
            self.late = self.add_weight('late', (3,), initializer='uniform', trainable=False)
            self.inner.build(shape)
            self.extra = keras.backend.variable(np.arange(3.0))
            super().build(shape)

        def call(self, x):
            return self.scale * self.inner(x * self.free + self.fixed) * self.late + self.extra

        def compute_output_shape(self, shape):
            return shape

        def get_config(self):
            # Keras 2.15 asks for one, and `scale` is in none.
            return super().get_config()

    return Custom


def custom(keras):
    layers, models = keras.layers, keras.models
    made = [layers.Dense(3, input_shape=(3,)), custom_class(keras)(name='custom')]
    model = models.Sequential(made + [layers.Dense(2, name='out')])
    made[1].trainable = False
    return model


def drawn(keras):
    """As in an autoencoder whose code is drawn at random."""
    layers, models = keras.layers, keras.models
    x = layers.Input((3,), name='x')
    mean, spread = layers.Dense(3)(x), layers.Dense(3)(x)
    code = layers.Lambda(
        lambda parts: parts[0] + parts[1] * tf.random_normal(tf.shape(parts[0])),
        output_shape=(3,),
    )([mean, spread])
    return models.Model(x, layers.Dense(2, name='out')(code))


def stateful(keras):
    return keras.models.Sequential(
        [
            keras.layers.LSTM(3, stateful=True, batch_input_shape=(4, 5, 2), name='memory'),
            keras.layers.Dense(2, name='out'),
        ]
    )


def any_size(keras):
    layers, models = keras.layers, keras.models
    x = layers.Input((None, None, 1), name='x')
    hidden = layers.Conv2D(2, 9)(layers.MaxPooling2D()(layers.BatchNormalization()(x)))
    return models.Model(x, layers.Dense(2, name='out')(layers.GlobalMaxPooling2D()(hidden)))


def small_table(keras):
    """A small table beside a large one, of which one is looked up by integers."""
    layers, models = keras.layers, keras.models
    user, kind = layers.Input((1,), name='user', dtype='int32'), layers.Input((2,), name='kind')
    parts = [layers.Embedding(1000, 3)(user), layers.Embedding(3, 3)(kind)]
    hidden = layers.concatenate([layers.Flatten()(part) for part in parts])
    price = layers.Input((1,), name='price')
    return models.Model(
        [user, kind, price], layers.Dense(2, name='out')(layers.concatenate([hidden, price]))
    )


def input_layer(keras):
    """A `Sequential` whose `InputLayer` says the type of the ids."""
    layers = keras.layers
    return keras.models.Sequential(
        [
            layers.InputLayer((4,), dtype='int32'),
            layers.Embedding(ROWS, 3, name='words'),
            layers.Flatten(),
            layers.Dense(2, name='out'),
        ]
    )


def own_class(keras):
    """A class of the user's with a constructor of its own."""

    class Net(keras.models.Model):
        def __init__(self, width):
            x = keras.layers.Input((3,), name='x')
            out = keras.layers.Dense(2, name='out')(keras.layers.Dense(width)(x))
            super().__init__(x, out)

    return Net(4)


def values_of(model, random):
    """Inputs by name, that each of the models takes."""
    values = {}
    for name, tensor in zip(model.input_names, model.inputs):
        shape = [4] + [size or 30 for size in tensor.shape.as_list()[1:]]
        if len(shape) == 2:
            values[name] = random.randint(0, 3, shape)
        else:
            values[name] = random.normal(size=shape)
    return values


BUILDS = [
    frozen_part, frozen_nested, frozen_layers, wrapped, shared_by_models, used_twice, custom,
    stateful, any_size, small_table, own_class, input_layer,
]  # fmt: skip


def trained(keras, build):
    """A model that has trained or predicted, whose weights are all different, and inputs."""
    random = np.random.RandomState(0)
    with kp.ParallaxStrategy():
        model = build(keras)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(0.01)), 'mse')
    model.set_weights([random.uniform(0.1, 1, value.shape) for value in model.get_weights()])
    values = values_of(model, random)
    inputs = [values[name] for name in model.input_names]
    if build in (frozen_nested, small_table):
        model.train_on_batch(inputs, np.zeros([4] + model.outputs[0].shape.as_list()[1:]))
    else:
        model.predict(inputs, batch_size=4)
    return model, values_of(model, random)


@pytest.mark.parametrize('build', BUILDS)
def test_an_export_predicts_what_the_model_does(keras, build, tmpdir):
    model, values = trained(keras, build)
    weights = model.get_weights()
    # As the documentation has it, where neither folder is there.
    path = str(tmpdir.join('serving', '1'))
    state = np.random.get_state()[1].copy()
    kp.export_saved_model(model, path)
    assert np.array_equal(state, np.random.get_state()[1])
    model.reset_states()
    expected = model.predict([values[name] for name in model.input_names], batch_size=4)
    found = served(path, values)
    names = ['out', 'out_1'] if build is used_twice else ['out']
    assert sorted(found) == names
    for name, array in zip(names, expected if build is used_twice else [expected]):
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
        assert len(np.unique(array)) > 2
    assert all(map(np.array_equal, weights, model.get_weights()))
    assert os.listdir(str(tmpdir)) == ['serving'] and os.listdir(str(tmpdir.join('serving'))) == [
        '1'
    ]


def test_what_a_stateful_layer_remembers_is_left_as_it_is(keras, tmpdir):
    model, values = trained(keras, stateful)
    backend, layer = keras.backend, model.get_layer('memory')
    before = backend.batch_get_value(layer.states)
    assert np.abs(before[0]).max() > 0
    kp.export_saved_model(model, str(tmpdir.join('export')))
    assert all(map(np.array_equal, before, backend.batch_get_value(layer.states)))


def test_a_model_that_draws_its_code_at_random_is_exported(keras, tmpdir):
    model, values = trained(keras, drawn)
    kp.export_saved_model(model, str(tmpdir.join('export')))
    served_twice = [served(str(tmpdir.join('export')), values)['out'] for _ in range(2)]
    assert served_twice[0].shape == (4, 2) and not np.array_equal(*served_twice)


def refused(model, folder, told):
    path = str(folder.join('serving', '1'))
    with pytest.raises(kp.CheckpointError, match=told):
        kp.export_saved_model(model, path)
    assert os.listdir(str(folder)) == []


def test_an_export_that_would_predict_other_numbers_is_refused(keras, tmpdir):
    """`scale` is in no configuration, and so is not made again."""

    def build(keras):
        return keras.models.Sequential(
            [keras.layers.Dense(3, input_shape=(3,)), custom_class(keras)(2.0, name='out')]
        )

    model, _ = trained(keras, build)
    refused(model, tmpdir, 'does not predict what the model does: output out')


def test_a_model_that_cannot_be_made_again_is_refused(keras, tmpdir):
    class Wide(keras.layers.Dense):
        """Has a constructor that its configuration does not serve."""

        def __init__(self, width, **arguments):
            super().__init__(width, **arguments)

    model, _ = trained(
        keras, lambda keras: keras.models.Sequential([Wide(2, input_shape=(3,), name='out')])
    )
    refused(model, tmpdir, 'cannot be made again .*TypeError.*Give classes .* as custom_objects')


def test_a_prediction_that_is_always_another_cannot_be_checked(keras, tmpdir):
    def build(keras):
        x = keras.layers.Input((3,), name='x')
        out = keras.layers.Lambda(
            lambda x: x + tf.stop_gradient(tf.random_shuffle(x)), output_shape=(3,)
        )
        return keras.models.Model(x, out(keras.layers.Dense(3)(x)))

    model, _ = trained(keras, build)
    refused(model, tmpdir, 'cannot be checked, .* other numbers each time')


def test_inputs_that_cannot_be_made_are_to_be_given(keras, tmpdir):
    """Only ids from 5 on are valid."""

    def build(keras):
        x = keras.layers.Input((3,), name='x')
        hidden = keras.layers.Lambda(lambda x: x - 20, output_shape=(3,))(x)
        hidden = keras.layers.Flatten()(keras.layers.Embedding(ROWS, 3)(hidden))
        return keras.models.Model(x, keras.layers.Dense(3, name='out')(hidden))

    with kp.ParallaxStrategy():
        model = build(keras)
        model.compile(kp.ParallaxOptimizer(keras.optimizers.SGD(0.01)), 'mse')
    refused(model, tmpdir, r'cannot be checked, .*\[\[None, 3\]\].* Give some .* as `inputs`')
    path, x = str(tmpdir.join('export')), np.full([2, 3], 22)
    kp.export_saved_model(model, path, inputs=x)
    np.testing.assert_allclose(served(path, {'x': x})['out'], model.predict(x), rtol=1e-5)


def test_what_is_there_already_stays(keras, tmpdir):
    model, _ = trained(keras, frozen_nested)
    path = tmpdir.join('export')
    path.write('of the user')
    with pytest.raises(kp.CheckpointError, match='exists already'):
        kp.export_saved_model(model, str(path))
    with pytest.raises(kp.CheckpointError, match='File exists|Not a directory'):
        kp.export_saved_model(model, str(path.join('1')))
    assert path.read() == 'of the user' and os.listdir(str(tmpdir)) == ['export']
