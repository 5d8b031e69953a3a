# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Functions of TensorFlow 2 that look up rows are not called, and do the same."""

import contextlib

import cases
import numpy as np
import pytest
import tensorflow
from frameworks import TF1_15, TF2, keras_module, tf

import keras_parallax as kp
from keras_parallax.compat import function_calls

pytestmark = pytest.mark.skipif(not TF2, reason='there are no functions')

#: How TensorFlow is told to compile a function by XLA.
BY_XLA = {'experimental_compile' if TF1_15 else 'jit_compile': True}
CALLS = ('PartitionedCall', 'StatefulPartitionedCall')


@pytest.fixture
def keras():
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    return keras


def layer_of(keras, call):
    """A layer with a table and a counter, whose output `call(layer, ids)` is."""

    class Looked(keras.layers.Layer):
        def build(self, input_shape):
            self.table = self.add_weight(name='table', shape=(cases.ROWS, 1), dtype='float32')
            self.count = self.add_weight(
                name='count', shape=(), dtype='float32', initializer='zeros', trainable=False
            )
            self.built = True

        def call(self, ids):
            return call(self, tensorflow.cast(ids, 'int32'))

    return Looked(name='looked')


def model_of(keras, call):
    """A model that is such a layer, compiled."""
    ids = keras.layers.Input((cases.LENGTH,))
    model = keras.models.Model(ids, layer_of(keras, call)(ids))
    model.compile(keras.optimizers.Adagrad(0.1), 'mse')
    return model


def look_up(layer, ids):
    return tensorflow.function(lambda: tensorflow.gather(layer.table, ids)[:, :, 0])()


def call_it_within(layer, ids):
    return tensorflow.function(lambda: look_up(layer, ids) + 1.0)()


def go_round(layer, ids):
    """In a loop of the function's own."""

    @tensorflow.function
    def looped():
        found = tensorflow.gather(layer.table, ids)[:, :, 0]
        for _ in tensorflow.range(2):
            found = tensorflow.tanh(found)
        return found

    return looped()


def look_up_in_a_loop(layer, ids):
    @tensorflow.function
    def looped():
        found = tensorflow.zeros_like(ids, 'float32')
        for column in tensorflow.transpose(ids):
            found += tensorflow.gather(layer.table, column)
        return found

    return looped()


def look_up_in_a_branch(layer, ids):
    @tensorflow.function
    def branched():
        if tensorflow.reduce_sum(ids) > 0:
            found = tensorflow.gather(layer.table, ids)[:, :, 0]
        else:
            found = tensorflow.zeros_like(ids, 'float32')
        return found

    return branched()


def call_another(layer, ids):
    """Which does not look up rows."""
    another = tensorflow.function(lambda rows: go_on(rows[:, :, 0]))

    @tensorflow.function
    def looked():
        return another(tensorflow.gather(layer.table, ids))

    return looked()


def go_on(found):
    for _ in tensorflow.range(2):
        found = tensorflow.tanh(found)
    return found


def call_one_with_a_loop(layer, ids):
    return tensorflow.function(lambda: go_round(layer, ids) + 1.0)()


def in_a_branch(layer, ids):
    return tf.cond(
        tf.reduce_sum(ids) > 0, lambda: look_up(layer, ids), lambda: tf.cast(ids, 'float32')
    )


def with_arguments(layer, ids):
    """Of all kinds, by place and by name."""

    @tensorflow.function
    def looked(parts, scale=1.0, offset=None, negative=False):
        found = tensorflow.gather(parts['table'], parts['ids'])[:, :, 0] * scale
        for _ in tensorflow.range(2):
            found += tensorflow.cast(offset, 'float32')
        return {'found': -found if negative else found, 'nothing': None}, 2

    results, two = looked(
        {'table': layer.table, 'ids': ids}, 3, offset=np.float64(0.5), negative=True
    )
    return results['found'] * tensorflow.cast(two, 'float32')


def method_of_an_object(layer, ids):
    class Looking:
        @tensorflow.function
        def look(self, ids):
            return go_on(tensorflow.gather(layer.table, ids)[:, :, 0])

    looking = Looking()
    return looking.look(ids)


def without_autograph(layer, ids):
    def looked():
        rows = tensorflow.gather(layer.table, ids)[:, :, 0]
        return tensorflow.map_fn(tensorflow.tanh, rows)

    return tensorflow.function(looked, autograph=False)()


def with_a_signature(layer, ids):
    signature = [tensorflow.TensorSpec([None, None], 'int32')]
    looked = tensorflow.function(
        lambda ids: go_on(tensorflow.gather(layer.table, ids)[:, :, 0]), input_signature=signature
    )
    return looked(ids)


def with_a_signature_of_a_number(layer, ids):
    """Which TensorFlow makes a tensor of the type that is asked for."""
    signature = [tensorflow.TensorSpec([], 'float32')]
    looked = tensorflow.function(
        lambda scale: tensorflow.gather(layer.table, ids)[:, :, 0] * scale,
        input_signature=signature,
    )
    return looked(3)


def compile_it(layer, ids):
    return tensorflow.function(lambda: tensorflow.gather(layer.table, ids)[:, :, 0], **BY_XLA)()


def count_in_a_loop(layer, ids):
    """What a loop writes."""

    @tensorflow.function
    def counted():
        for _ in tensorflow.range(2):
            layer.count.assign_add(1.0)
        return go_on(tensorflow.gather(layer.table, ids)[:, :, 0])

    return counted()


def count_beside_a_lookup_in_a_loop(layer, ids):
    """What a loop writes, which would have to be the graph's own."""

    @tensorflow.function
    def counted():
        found = tensorflow.zeros_like(ids, 'float32')
        for column in tensorflow.transpose(ids):
            layer.count.assign_add(1.0)
            found += tensorflow.gather(layer.table, column)
        return found

    return counted()


def read_in_a_branch_of_a_loop(layer, ids):
    @tensorflow.function
    def looped():
        found = tensorflow.zeros_like(ids, 'float32')
        for column in tensorflow.transpose(ids):
            if tensorflow.reduce_sum(column) > 0:
                found += tensorflow.gather(layer.table, column)
        return found

    return looped()


def read_an_array_twice(layer, ids):
    """Which an array of a loop of TensorFlow 1 cannot be."""

    @tensorflow.function
    def looped():
        rows = tensorflow.TensorArray('float32', 1, clear_after_read=None)
        rows = rows.write(0, tensorflow.gather(layer.table, ids)[:, :, 0])
        found = tensorflow.zeros_like(ids, 'float32')
        for _ in tensorflow.range(2):
            found += rows.read(0)
        return found + rows.read(0)

    return looped()


def make_a_variable(layer, ids):
    @tensorflow.function
    def made():
        if not hasattr(layer, 'bias'):
            layer.bias = tensorflow.Variable(2.0)
        return go_on(tensorflow.gather(layer.table, ids)[:, :, 0]) + layer.bias

    return made()


#: Functions whose Python is run, and those that are called.
RUN = [
    look_up, call_it_within,
    go_round, look_up_in_a_loop, look_up_in_a_branch, call_another, call_one_with_a_loop,
    in_a_branch, with_arguments, method_of_an_object, without_autograph, with_a_signature,
    count_in_a_loop, make_a_variable,
]  # fmt: skip
CALLED = [compile_it, count_beside_a_lookup_in_a_loop]
if TF1_15:
    # Plain TensorFlow refuses a number for a signature, and where an array is read twice, it ends
    # with a segmentation fault.
    CALLED += [read_in_a_branch_of_a_loop]
else:
    CALLED += [with_a_signature_of_a_number]
    RUN += [read_in_a_branch_of_a_loop, read_an_array_twice]


def class_of(model, strategy):
    (table,) = (use for use in strategy.plan(model).variables if use.name.endswith('table'))
    return table.kind, table.reason


@pytest.mark.parametrize('call', RUN)
def test_a_lookup_within_a_function_is_sparse(keras, call):
    with kp.ParallaxStrategy() as strategy:
        model = model_of(keras, call)
    assert class_of(model, strategy) == ('sparse', 'looked up by rows in 1 place')
    if call is not call_another:
        assert not [one for one in tf.get_default_graph().get_operations() if one.type in CALLS]


@pytest.mark.parametrize('call', CALLED)
def test_what_has_to_stay_a_call_reads_the_table_as_a_whole(keras, call):
    with kp.ParallaxStrategy() as strategy:
        model = model_of(keras, call)
    kind, reason = class_of(model, strategy)
    assert kind == 'dense' and reason.startswith('read whole by a ')


def test_without_a_strategy_functions_are_called(keras):
    model_of(keras, look_up)
    assert [one for one in tf.get_default_graph().get_operations() if one.type in CALLS]


@pytest.mark.parametrize('call', (*RUN, *CALLED))
def test_a_model_whose_output_a_function_makes_predicts_and_trains_as_plain_keras(keras, call):
    ids = np.arange(2 * cases.LENGTH).reshape(2, cases.LENGTH)
    rows = np.linspace(-1, 1, cases.ROWS).reshape(-1, 1)
    found = []
    for has_strategy in (False, True):
        keras.backend.clear_session()
        if has_strategy:
            with kp.ParallaxStrategy():
                model = model_of(keras, call)
        else:
            model = model_of(keras, call)
        # Before a session sees the graph, as plain Keras needs it.
        model._make_train_function()
        model.set_weights([rows] + [np.ones(())] * (len(model.weights) - 1))
        losses = [model.train_on_batch(ids, np.ones(ids.shape)) for _ in range(3)]
        found.append([losses, model.predict(ids), model.get_weights()[0]])
    for plain, ours in zip(*found):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)


def test_a_function_has_run_as_a_whole_when_its_outputs_are_there(keras):
    """What it writes is written, and before it runs, what it waits for."""

    def count(layer, ids):
        @tensorflow.function
        def counted():
            layer.count.assign_add(1.0)
            return tensorflow.gather(layer.table, ids)[:, :, 0]

        with tf.control_dependencies([layer.count.assign(4.0)]):
            return counted()

    with kp.ParallaxStrategy():
        model = model_of(keras, count)
    ids = np.zeros((1, cases.LENGTH))
    for _ in range(2):
        model.predict(ids)
        assert keras.backend.get_value(model.layers[-1].count) == 5.0


def test_a_function_hands_no_mask_on_as_in_plain_keras(keras):
    """Neither of its arguments nor of its results, which Keras keeps as attributes of tensors."""

    class Masking(keras.layers.Layer):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.words = keras.layers.Embedding(cases.ROWS, 3, mask_zero=True, name='words')
            self.mean = keras.layers.SimpleRNN(3, return_sequences=True, name='mean')

        @tensorflow.function
        def call(self, ids, states):
            words = self.words(tensorflow.gather(ids, tensorflow.range(cases.LENGTH), axis=1))
            return words, self.mean(states)

    def model_of_it():
        ids = keras.layers.Input((cases.LENGTH,))
        states = keras.layers.Embedding(cases.ROWS, 3, mask_zero=True, name='states')(ids)
        words, means = Masking(name='masking')(ids, states=states)
        outputs = [keras.layers.SimpleRNN(1)(one) for one in (words, means)]
        return keras.models.Model(ids, keras.layers.add(outputs))

    found = []
    for has_strategy in (False, True):
        keras.backend.clear_session()
        with kp.ParallaxStrategy() if has_strategy else contextlib.ExitStack():
            model = model_of_it()
            model.compile(keras.optimizers.SGD(0.1), 'mse')
        start = [np.linspace(-1, 1, np.prod(one.shape)).reshape(one.shape) for one in model.weights]
        model.set_weights(start)
        found.append(model.predict(np.eye(cases.LENGTH)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_what_a_function_with_a_loop_writes_and_asserts_happens(keras, capfd):
    """In its order, and without a word that an assertion is never used."""

    def checked(layer, ids):
        @tensorflow.function
        def counted():
            layer.count.assign(2.0)
            layer.count.assign(layer.count * 3.0)
            tensorflow.debugging.assert_less(ids, cases.ROWS - 1)
            return go_on(tensorflow.gather(layer.table, ids)[:, :, 0])

        return counted()

    with kp.ParallaxStrategy() as strategy:
        model = model_of(keras, checked)
    assert class_of(model, strategy)[0] == 'sparse'
    ids = np.zeros((1, cases.LENGTH))
    for _ in range(2):
        model.predict(ids)
        assert keras.backend.get_value(model.layers[-1].count) == 6.0
    with pytest.raises(tf.errors.InvalidArgumentError):
        model.predict(ids + cases.ROWS - 1)
    assert 'never used' not in capfd.readouterr().err


def test_an_argument_may_be_what_a_function_returns_and_waits_for(keras):
    def passed_on(layer, ids):
        @tensorflow.function
        def looked(ids, offset):
            with tf.control_dependencies([offset]):
                rows = tensorflow.gather(layer.table, ids)[:, :, 0]
            return rows, offset

        rows, offset = looked(ids, tf.cast(ids, 'float32'))
        return rows + offset

    with kp.ParallaxStrategy() as strategy:
        model = model_of(keras, passed_on)
    assert class_of(model, strategy)[0] == 'sparse'
    model.set_weights([np.ones((cases.ROWS, 1)), np.zeros(())])
    ids = np.arange(cases.LENGTH).reshape(1, -1)
    np.testing.assert_array_equal(model.predict(ids), ids + 1.0)


def test_a_table_that_a_loop_of_a_function_looks_up_has_a_tensor_gradient_in_plain_keras(keras):
    with kp.ParallaxStrategy():
        layer = cases.loops_in_function(keras).get_layer('looked')
    found = [function_calls.has_tensor_gradient(one) for one in (layer.by_column, layer.once)]
    assert found == [True, False]


def test_notes_of_loops_keep_no_graph_alive(keras):
    with kp.ParallaxStrategy():
        cases.loops_in_function(keras)
    noted = function_calls._looked_up_in_loops[tf.get_default_graph()]
    assert noted and all(isinstance(name, str) for name in noted)
