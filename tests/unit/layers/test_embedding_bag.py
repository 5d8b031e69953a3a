# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.layers.EmbeddingBag` in one process, against TensorFlow's `embedding_lookup_sparse`."""

import itertools
import os

import cases
import numpy as np
import pytest
import reference
from bags import (
    BAGS,
    FORMS,
    PADDING,
    ROWS,
    WEIGHTS,
    WIDTH,
    expected,
    factors_of,
    inputs_of,
    splits_of,
)
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.compat import graph_queries, session_config
from keras_parallax.layers.embedding_bag import WIDE

every_package = pytest.mark.parametrize('package', KERAS_PACKAGES)


def layer_of(package, width=WIDTH, **arguments):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    return kp.layers.EmbeddingBag(ROWS, width, keras=package, name='bag', **arguments)


def evaluated(layer, inputs, table):
    """Its output, and gradients of the table and of weights, for a given table."""
    keras = cases.keras_module(layer.get_config()['keras'])
    output = layer(inputs)
    layer.set_weights([table])
    factors = factors_of(output.shape.as_list()[0] or len(BAGS), table.shape[1])
    asked = [layer.embeddings]
    if isinstance(inputs, list) and inputs[-1].dtype.is_floating:
        asked.append(getattr(inputs[-1], 'values', inputs[-1]))
    gradients = tf.gradients(tf.reduce_sum(output * factors), asked)
    session = keras.backend.get_session()
    return session.run([output] + list(map(tf.convert_to_tensor, gradients)))


def table_of(width=WIDTH):
    return np.random.RandomState(5).uniform(-1, 1, (ROWS, width)).astype(np.float32)


#: Each combiner with each form, without weights and with them, and those with rows that are summed
#: up in the other way; the packages take turns.
LOOKUPS = [
    (KERAS_PACKAGES[number % len(KERAS_PACKAGES)],) + lookup
    for number, lookup in enumerate(
        itertools.chain(
            itertools.product(('sum', 'mean', 'sqrtn'), FORMS, (False, True), [WIDTH]),
            itertools.product(['sqrtn'], FORMS, (False, True), [WIDE]),
        )
    )
]


@pytest.mark.parametrize('package, combiner, form, weighted, width', LOOKUPS)
def test_it_is_tensorflows_lookup_of_sparse_ids(package, combiner, form, weighted, width):
    weights = WEIGHTS if weighted else None
    layer = layer_of(package, width, combiner=combiner, padding_id=PADDING)
    found = evaluated(layer, inputs_of(form, BAGS, weights), table_of(width))
    truth = expected(combiner, BAGS, weights, table_of(width))
    np.testing.assert_allclose(found[0], truth[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], truth[1], rtol=1e-5, atol=1e-5)
    if weighted:
        of_weights = found[2]
        if form in ('splits', 'ragged'):
            assert of_weights[-1] == 0
            of_weights = of_weights[:-1]
        if form == 'padded':
            assert not of_weights[:, ::2].any()
            of_weights = np.concatenate(
                [row[1 : 2 * len(bag) : 2] for row, bag in zip(of_weights, BAGS)]
            )
        np.testing.assert_allclose(of_weights, truth[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    'form, combiner, width',
    [('padded', 'mean', WIDTH), ('sparse', 'sum', WIDE), ('splits', 'sqrtn', WIDTH)],
)
def test_a_batch_without_any_id_gives_zeros_and_no_gradient(form, combiner, width):
    layer = layer_of(KERAS_PACKAGES[0], width, combiner=combiner, padding_id=PADDING)
    ids = {
        'padded': lambda: tf.constant(np.full([6, 3], PADDING, np.int32)),
        'sparse': lambda: tf.SparseTensor(
            np.zeros([0, 2], np.int64), np.zeros(0, np.int64), [6, 3]
        ),
        'splits': lambda: [tf.zeros([0], tf.int64), splits_of([[]] * 6)],
    }[form]()
    output, gradient = evaluated(layer, ids, table_of(width))
    assert output.tolist() == [[0.0] * width] * 6
    assert not gradient.any()


@pytest.mark.parametrize('weighted', [False, True])
@pytest.mark.parametrize('combiner', ['sum', 'mean'])
def test_without_a_padding_id_every_id_counts(combiner, weighted):
    bags, weights = [[0, 3, 0], [3, 3, 7]], [[0.5, 2.0, -1.0], [1.0, 0.25, 3.0]]
    layer = layer_of(KERAS_PACKAGES[0], combiner=combiner)
    inputs = [tf.constant(bags), tf.constant(weights)] if weighted else tf.constant(bags)
    found = evaluated(layer, inputs, table_of())
    truth = expected(combiner, bags, weights if weighted else None, table_of())
    for one, other in zip(found, truth):
        np.testing.assert_allclose(np.ravel(one), np.ravel(other), rtol=1e-5, atol=1e-5)


def test_bags_of_no_ids_give_zeros():
    layer = layer_of(KERAS_PACKAGES[0], combiner='mean')
    output, gradient = evaluated(layer, tf.zeros([6, 0], tf.int32), table_of())
    assert output.tolist() == [[0.0] * WIDTH] * 6 and not gradient.any()


def test_weights_that_come_to_nothing_give_zeros_and_no_nan():
    layer = layer_of(KERAS_PACKAGES[0], combiner='mean')
    weights = tf.constant([[1.0, -1.0], [1.0, 1.0]])
    output, *gradients = evaluated(layer, [tf.constant([[1, 2], [3, 4]]), weights], table_of())
    assert not output[0].any()
    np.testing.assert_allclose(output[1], table_of()[[3, 4]].mean(0), rtol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_sparse_ids_may_be_in_any_order():
    layer = layer_of(KERAS_PACKAGES[0], combiner='sum')
    ids = tf.SparseTensor([(1, 0), (0, 1), (0, 0)], tf.constant([7, 1, 2], tf.int64), [3, 2])
    weights = tf.SparseTensor([(0, 0), (0, 1), (1, 0)], tf.constant([3.0, 4.0, 5.0]), [3, 2])
    output, _, _ = evaluated(layer, [ids, weights], table_of())
    rows = table_of()
    truth = [3 * rows[2] + 4 * rows[1], 5 * rows[7], 0 * rows[0]]
    np.testing.assert_allclose(output, truth, rtol=1e-6)


def test_the_gradient_of_a_table_of_wide_rows_has_each_row_once():
    layer = layer_of(KERAS_PACKAGES[0], WIDE, padding_id=PADDING)
    (gradient,) = tf.gradients(layer(inputs_of('padded', BAGS, None)), [layer.embeddings])
    assert isinstance(gradient, tf.IndexedSlices)
    keras = cases.keras_module(KERAS_PACKAGES[0])
    rows = keras.backend.get_session().run(gradient.indices)
    assert sorted(rows) == [0, 1, 2, 4, 7, 12]


# --- in models ---------------------------------------------------------------


def model_of(package, **arguments):
    """Two fields on one table, the second one weighted."""
    keras = cases.keras_module(package)
    tags, likes, strengths = (keras.layers.Input((4,)) for _ in range(3))
    bag = kp.layers.EmbeddingBag(
        ROWS, WIDTH, padding_id=PADDING, keras=package, name='bag', **arguments
    )
    both = keras.layers.concatenate([bag(tags), bag([likes, strengths])])
    out = keras.layers.Dense(1, name='out')(both)
    return keras.models.Model([tags, likes, strengths], out)


def batch_of(size=6):
    random = np.random.RandomState(3)
    tags, likes = random.randint(PADDING, ROWS, (2, size, 4))
    return [tags, likes, random.uniform(0.1, 1, (size, 4))], random.uniform(-1, 1, (size, 1))


@every_package
def test_a_model_is_saved_and_loaded_by_keras_and_by_us(package, tmp_path):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    model = model_of(package, combiner='sqrtn', embeddings_regularizer=keras.regularizers.l2(0.1))
    model.compile('sgd', 'mse')
    path, (inputs, _) = os.path.join(str(tmp_path), 'model.h5'), batch_of()
    model.save(path)
    found, config = model.predict(inputs), model.get_layer('bag').get_config()
    objects = {'EmbeddingBag': kp.layers.EmbeddingBag}
    again = keras.models.load_model(path, custom_objects=objects)
    assert again.get_layer('bag').get_config() == config
    np.testing.assert_array_equal(again.predict(inputs), found)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        ours = kp.load_model(path, compile=False)
    assert ours.get_layer('bag').get_config() == config
    np.testing.assert_array_equal(ours.predict(inputs), found)


@every_package
def test_what_a_layer_is_asked_for_is_in_its_config(package):
    layer = layer_of(package, combiner='sum', padding_id=0, input_length=4)
    config = layer.get_config()
    assert 'mask_zero' not in config
    again = kp.layers.EmbeddingBag.from_config(config)
    assert type(again) is type(layer)
    assert (again.combiner, again.padding_id, again.name) == ('sum', 0, 'bag')
    assert isinstance(again, cases.keras_module(package).layers.Embedding)
    assert isinstance(again, kp.layers.EmbeddingBag)
    assert again.get_config() == config


@every_package
def test_it_may_be_first_in_a_sequential_model(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    layer = kp.layers.EmbeddingBag(ROWS, WIDTH, input_length=4, keras=package)
    model = keras.models.Sequential([layer, keras.layers.Dense(1)])
    assert model.layers[0].output_shape == (None, WIDTH)
    assert model.predict(np.zeros([2, 4])).shape == (2, 1)


@every_package
def test_it_trains_as_an_embedding_and_a_sum_do(package):
    keras = cases.keras_module(package)
    ids, targets = np.random.RandomState(1).randint(0, ROWS, (8, 4)), np.ones([8, 1])

    def trained(*layers):
        model = keras.models.Sequential(list(layers) + [keras.layers.Dense(1)])
        model.compile(reference.gated(keras.optimizers.SGD(0.1)), 'mse')
        model.set_weights([table_of(), np.full([WIDTH, 1], 0.5), np.zeros(1)])
        return [model.train_on_batch(ids, targets) for _ in range(4)]

    keras.backend.clear_session()
    ours = trained(
        kp.layers.EmbeddingBag(ROWS, WIDTH, combiner='sum', input_length=4, keras=package)
    )
    plain = trained(
        keras.layers.Embedding(ROWS, WIDTH, input_length=4),
        keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, 1), output_shape=(WIDTH,)),
    )
    np.testing.assert_allclose(ours, plain, rtol=1e-5)


#: `tf.keras` of TensorFlow 1.11 feeds dense arrays alone.
@pytest.mark.parametrize('package', KERAS_PACKAGES[:1])
def test_a_sparse_input_of_keras_is_fed_matrices_of_scipy(package):
    matrices = pytest.importorskip('scipy.sparse')
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    ids = keras.layers.Input((9,), sparse=True, dtype='int64')
    bag = kp.layers.EmbeddingBag(ROWS, WIDTH, combiner='sum', keras=package)
    model = keras.models.Model(ids, bag(ids))
    places = [(row, place) for row, bag in enumerate(BAGS) for place in range(len(bag))]
    values = np.array(list(itertools.chain(*BAGS)))
    matrix = matrices.csr_matrix((values, np.transpose(places)), [len(BAGS), 9])
    found = model.predict_on_batch(matrix)
    truth = [model.get_weights()[0][bag].sum(0) for bag in BAGS]
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-7)


@every_package
def test_row_splits_of_an_input_pipeline_train_as_padded_ids_do(package):
    keras = cases.keras_module(package)

    def trained(form):
        keras.backend.clear_session()
        with kp.ParallaxStrategy():
            bag = kp.layers.EmbeddingBag(
                ROWS, WIDTH, padding_id=PADDING, keras=package, embeddings_initializer='ones'
            )
            tensors = inputs_of(form, BAGS, WEIGHTS)
            inputs = [keras.layers.Input(tensor=tensor) for tensor in tensors]
            out = keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, 1, True))(bag(inputs))
            model = keras.models.Model(inputs, out)
            model.compile(keras.optimizers.Adagrad(0.1), 'mse', target_tensors=[
                tf.constant(np.arange(6.0)[:, None], tf.float32)])  # fmt: skip
        history = model.fit(steps_per_epoch=3, epochs=2, verbose=0).history
        return history['loss'], model.get_weights()[0]

    (losses, rows), (truth, rows_of_truth) = trained('splits'), trained('padded')
    np.testing.assert_allclose(losses, truth, rtol=1e-5)
    np.testing.assert_allclose(rows, rows_of_truth, rtol=1e-5)
    assert losses[1] < losses[0]


@pytest.mark.skipif(not TF2, reason='TensorFlow 1.11 has no ragged tensors')
def test_a_ragged_input_of_keras_is_fed_ragged_tensors():
    keras = cases.keras_module('tf.keras')
    keras.backend.clear_session()
    ids = keras.layers.Input((None,), ragged=True, dtype='int64')
    bag = kp.layers.EmbeddingBag(ROWS, WIDTH, combiner='sum')
    model = keras.models.Model(ids, bag(ids))
    found = model.predict(tf.ragged.constant(BAGS, dtype='int64'), steps=1)
    truth = [model.get_weights()[0][bag].sum(0) for bag in BAGS]
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-7)


@every_package
def test_tables_of_one_field_are_looked_up_with_the_same_ids(package):
    # So a step pulls and pushes them as one, as it does the wide and the deep part of a model.
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    tags, likes = keras.layers.Input((4,)), keras.layers.Input((4,))
    bags = [
        kp.layers.EmbeddingBag(ROWS, width, padding_id=padding, keras=package)
        for width, padding in ((1, 0), (WIDTH, 0), (WIDTH, None))
    ]
    fields = [bag(tags) for bag in bags] + [bags[0](likes)]
    asked = []
    for bag, output in zip(bags + bags[:1], fields):
        reads = graph_queries.reads(bag.embeddings, graph_queries.ancestors([output]))
        asked += [lookup.inputs[1].name for lookup in reads.lookups]
    assert asked[0] == asked[1] and len(set(asked)) == 3


# --- bad input ---------------------------------------------------------------


@pytest.mark.parametrize(
    'arguments, sentence',
    [
        ({'combiner': 'max'}, "combiner must be one of 'sum', 'mean', 'sqrtn', but 'max'"),
        ({'padding_id': 0.5}, 'padding_id must be an integer or None, but got 0.5'),
        ({'mask_zero': True}, 'no mask_zero: give padding_id=0'),
        ({'keras': 'torch'}, "keras must be 'keras' or 'tf.keras', but 'torch'"),
    ],
)
def test_arguments_that_are_none_are_refused(arguments, sentence):
    with pytest.raises(kp.PlanError, match=sentence):
        kp.layers.EmbeddingBag(ROWS, WIDTH, **arguments)


@pytest.mark.parametrize(
    'inputs, sentence',
    [
        (lambda: tf.zeros([2, 3, 4]), r'takes inputs \[batch, length\], but got one of shape'),
        (lambda: [tf.zeros([2, 3])] * 3, 'takes ids, or a list of ids and weights, but got 3'),
        (
            lambda: tf.zeros([2]),
            r'row splits \[batch \+ 1\] beside ids \[n\].* got one of shape \(2,\)',
        ),
        (lambda: [tf.zeros([2]), tf.zeros([2, 3])], r'got one of shape \(2,\) and one of shape'),
        (lambda: [tf.zeros([2])] * 2, 'integers as row splits, but got float32'),
        (
            lambda: [tf.zeros([2]), tf.zeros([2], tf.int32), tf.zeros([3])],
            'weights of the shape of ids',
        ),
        (
            lambda: [tf.zeros([2, 3]), tf.zeros([2, 4])],
            r'weights of the shape of ids, but got ids \(2, 3\) and weights \(2, 4\)',
        ),
        (lambda: [tf.zeros([2, 3]), tf.zeros([2, 3], tf.int32)], 'floating numbers, but got int32'),
        (
            lambda: [inputs_of('sparse', BAGS, None), tf.zeros([6, 9])],
            'that are both sparse or both not, but got one each',
        ),
    ],
)
def test_inputs_that_are_none_are_refused(inputs, sentence):
    layer = layer_of(KERAS_PACKAGES[0])
    with pytest.raises(kp.PlanError, match='The layer bag takes .*|.*') as raised:
        layer(inputs())
    assert raised.match(sentence)


@pytest.mark.skipif(len(KERAS_PACKAGES) < 2, reason='there is one package')
@every_package
def test_a_tensor_of_the_other_package_is_refused(package):
    other = next(name for name in KERAS_PACKAGES if name != package)
    ids = cases.keras_module(other).layers.Input((4,))
    with pytest.raises(kp.PlanError, match='make it with keras=.%s' % other):
        layer_of(package)(ids)


@every_package
@pytest.mark.parametrize(
    'change, error, sentence',
    [
        (lambda x: x[2].__setitem__((0, 1), np.nan), kp.DataError, 'layer bag takes weights of wh'),
        (lambda x: x[0].__setitem__((1, 1), -2), kp.IdOutOfRangeError, 'layer bag looked up id -2'),
        (lambda x: x[1].__setitem__((1, 1), 99), kp.IdOutOfRangeError, 'layer bag looked up id 99'),
    ],
    ids=['nan', 'negative', 'too large'],
)
def test_a_batch_with_bad_values_trains_nothing(package, change, error, sentence):
    cases.keras_module(package).backend.clear_session()
    with kp.ParallaxStrategy():
        model = model_of(package)
        model.compile('adagrad', 'mse')
    inputs, targets = batch_of()
    model.train_on_batch(inputs, targets)
    before = model.get_weights()
    change(inputs)
    with pytest.raises(error, match=sentence):
        model.train_on_batch(inputs, targets)
    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    'splits, weights',
    [([1, 2], 2), ([0, 1], 2), ([0, 2, 1, 2], 2), ([0, -1, 2], 2), ([], 2), ([0, 2], 1)],
)
def test_row_splits_and_weights_that_do_not_fit_ids_are_refused(splits, weights):
    layer = layer_of(KERAS_PACKAGES[0])
    fed = [tf.placeholder(dtype, [None]) for dtype in (tf.int64, tf.int64, tf.float32)]
    output, session = layer(fed), cases.keras_module(KERAS_PACKAGES[0]).backend.get_session()
    says = 'row splits that begin with 0, end' if weights == 2 else 'a weight for each id'
    with pytest.raises(tf.errors.InvalidArgumentError, match='bag takes ' + says):
        session.run(output, dict(zip(fed, ([3, 4], splits, [1.0] * weights))))


@pytest.mark.parametrize('places', [[(0, 0), (1, 1)], [(0, 0)]], ids=['other', 'fewer'])
def test_sparse_weights_in_other_places_than_ids_are_refused(places):
    layer = layer_of(KERAS_PACKAGES[0])
    ids = tf.SparseTensor([(0, 0), (1, 0)], tf.constant([3, 4], tf.int64), [2, 2])
    where, values = tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.float32, [None])
    output = layer([ids, tf.SparseTensor(where, values, [2, 2])])
    with tf.Session(config=session_config.of_worker(0)) as session:
        session.run(layer.embeddings.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match='takes a weight for each id'):
            session.run(output, {where: places, values: [1.0] * len(places)})
