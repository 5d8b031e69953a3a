# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.layers.DynamicEmbedding` in one process, against plain Keras on ids that a dict numbers."""

import contextlib
import os

import bags
import cases
import dynamic
import numpy as np
import pytest
import reference
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp

every_package = pytest.mark.parametrize('package', KERAS_PACKAGES)
IDS = np.array([[7, -5, 2**62], [7, 7, -(2**63) + 1]])
TARGETS = np.ones([2, 1])


#: Functions that make an optimizer, by the initializer that is tried with it: one that moves the
#: rows of a batch, and one that moves all.
OPTIMIZERS = {
    'RandomUniform': lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01),
    'RandomNormal': lambda keras: keras.optimizers.Adam(lr=0.02, epsilon=0.01),
}


def small_model(package, capacity=9, strategy=None, optimizer='sgd', **arguments):
    """A compiled model of one field, of a cleared graph."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with strategy or contextlib.ExitStack():
        ids = keras.layers.Input((3,), dtype='int64')
        table = kp.layers.DynamicEmbedding(2, capacity, keras=package, name='table', **arguments)
        out = keras.layers.Dense(1)(keras.layers.Flatten()(table(ids)))
        model = keras.models.Model(ids, out)
        model.compile(optimizer, 'mse')
    return model


def known_ids(model):
    return sorted(dynamic.rows_by_id(model.get_layer('table')))


@every_package
@pytest.mark.parametrize('kind', dynamic.INITIALIZERS)
@pytest.mark.parametrize('has_strategy', [False, True])
def test_it_trains_as_plain_keras_on_ids_that_a_dict_numbers(package, kind, has_strategy):
    keras = cases.keras_module(package)
    losses, rows, predicted = dynamic.plain(keras, kind, OPTIMIZERS[kind])
    keras.backend.clear_session()
    strategy = kp.ParallaxStrategy() if has_strategy else contextlib.ExitStack()
    with strategy:
        table = kp.layers.DynamicEmbedding(
            dynamic.WIDTH,
            dynamic.CAPACITY,
            initializer=dynamic.initializer(keras, kind),
            keras=package,
            name='table',
        )
        model = dynamic.model_of(keras, table)
        wrap = kp.ParallaxOptimizer if has_strategy else reference.gated
        model.compile(wrap(OPTIMIZERS[kind](keras)), 'mse')
    ids = dynamic.raw_ids()
    ours = [model.train_on_batch(*dynamic.batch(step, ids)) for step in range(dynamic.STEPS)]
    np.testing.assert_allclose(ours, losses, rtol=1e-5)
    np.testing.assert_allclose(model.predict(dynamic.asked_inputs(ids)), predicted, atol=1e-5)
    of_ids = dynamic.rows_by_id(table)
    assert set(of_ids) == dynamic.trained_ids()
    for number, id_ in enumerate(ids.tolist()):
        if id_ in of_ids:
            np.testing.assert_allclose(of_ids[id_], rows[number], rtol=0, atol=1e-5)


#: Raw ids for the numbers in the bags of tests, and what they are padded with.
RAW = dict(enumerate(dynamic.raw_ids()[: bags.ROWS].tolist()))
NONE = 2**40


@pytest.mark.parametrize('combiner', ['sum', 'mean', 'sqrtn'])
@pytest.mark.parametrize('form', bags.FORMS)
@pytest.mark.parametrize('weighted', [False, True])
def test_bags_of_ids_are_tensorflows_lookup_of_sparse_ids(combiner, form, weighted):
    package, kind = KERAS_PACKAGES[0], 'RandomNormal'
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    table = kp.layers.DynamicEmbedding(
        dynamic.WIDTH,
        99,
        combiner=combiner,
        padding_id=NONE,
        initializer=dynamic.initializer(keras, kind),
        keras=package,
    )
    raw = [[RAW[number] for number in bag] for bag in bags.BAGS]
    weights = bags.WEIGHTS if weighted else None
    output = table(bags.inputs_of(form, raw, weights, NONE, np.int64))
    assert output.shape.is_compatible_with([len(raw), dynamic.WIDTH])
    assert output.shape[1].value == dynamic.WIDTH
    factors = bags.factors_of(len(raw), dynamic.WIDTH)
    gradient = tf.gradients(tf.reduce_sum(output * factors), [table.embeddings])[0]
    session, phase = keras.backend.get_session(), keras.backend.learning_phase()
    # Some ids have rows, the others are looked up as they begin.
    session.run(output, {phase: 1})
    rows = dynamic.first_rows(list(RAW.values()), dynamic.WIDTH, kind, **dynamic.INITIALIZERS[kind])
    found, gradient = session.run([output, tf.convert_to_tensor(gradient)], {phase: 1})
    truth, of_rows = bags.expected(combiner, bags.BAGS, weights, rows)[:2]
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)
    ids = table.get_weights()[1].tolist()
    asked = {number for bag in bags.BAGS for number in bag}
    assert set(ids) - {dynamic.NO_ID} == {RAW[number] for number in asked}
    for number in asked:
        place = ids.index(RAW[number])
        np.testing.assert_allclose(gradient[place], of_rows[number], rtol=1e-4, atol=1e-5)


@every_package
def test_bags_train_as_rows_that_keras_averages(package):
    keras = cases.keras_module(package)
    kind = 'RandomUniform'
    plain = dynamic.plain(keras, kind, OPTIMIZERS[kind], combine=dynamic.mean_of(keras))
    losses, _, predicted = plain
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        table = kp.layers.DynamicEmbedding(
            dynamic.WIDTH,
            dynamic.CAPACITY,
            initializer=dynamic.initializer(keras, kind),
            combiner='mean',
            keras=package,
            name='table',
        )
        model = dynamic.model_of(keras, table)
        model.compile(OPTIMIZERS[kind](keras), 'mse')
    ids = dynamic.raw_ids()
    ours = [model.train_on_batch(*dynamic.batch(step, ids)) for step in range(dynamic.STEPS)]
    np.testing.assert_allclose(ours, losses, rtol=1e-5)
    np.testing.assert_allclose(model.predict(dynamic.asked_inputs(ids)), predicted, atol=1e-5)
    assert set(dynamic.rows_by_id(table)) == dynamic.trained_ids()


@every_package
def test_bags_of_words_are_saved_loaded_and_exported(package, tmpdir):
    keras = cases.keras_module(package)
    words = np.array([['north', 'south', 'north'], ['west', '', '']], object)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        text = keras.layers.Input((3,), dtype='string')
        table = kp.layers.DynamicEmbedding(
            2, 9, combiner='sum', padding_id='', keras=package, name='table'
        )
        model = keras.models.Model(text, table(text))
        model.compile('sgd', 'mse')
    model.train_on_batch(words, np.ones([2, 2]))
    assert len(known_ids(model)) == 3
    sums = model.predict(words)
    apart = model.predict(np.array([['south', '', ''], ['north', '', 'north']], object))
    np.testing.assert_allclose(sums[0], apart.sum(0), rtol=1e-6)
    path = os.path.join(str(tmpdir), 'model.h5')
    model.save(path)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        loaded = kp.load_model(path)
    np.testing.assert_array_equal(loaded.predict(words), sums)
    # It compares what is exported with the model.
    kp.export_saved_model(loaded, os.path.join(str(tmpdir), 'export'), inputs=words)


def test_a_batch_of_bags_without_any_id_gives_zeros_and_no_rows():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        ids = keras.layers.Input((3,), dtype='int64')
        table = kp.layers.DynamicEmbedding(2, 9, combiner='mean', padding_id=-1, name='table')
        model = keras.models.Model(ids, table(ids))
        model.compile('sgd', 'mse')
    nothing = np.full([4, 3], -1)
    model.train_on_batch(nothing, np.ones([4, 2]))
    assert model.predict(nothing).tolist() == [[0.0, 0.0]] * 4
    assert known_ids(model) == []


@every_package
@pytest.mark.parametrize('given, value', [('zeros', 0), ('ones', 1), ('constant', 0.25)])
def test_rows_begin_as_the_initializer_says(package, given, value):
    keras = cases.keras_module(package)
    if given == 'constant':
        given = keras.initializers.Constant(value)
    model = small_model(package, initializer=given)
    table = model.get_layer('table')
    rows = keras.backend.function([model.inputs[0]], [table.output])([IDS])[0]
    assert (rows == value).all()


@every_package
def test_without_a_seed_first_values_follow_from_the_layers_name(package):
    predicted = []
    for name in ('a', 'a', 'b'):
        keras = cases.keras_module(package)
        keras.backend.clear_session()
        ids = keras.layers.Input((3,), dtype='int64')
        table = kp.layers.DynamicEmbedding(2, 9, keras=package, name=name)
        predicted.append(keras.models.Model(ids, table(ids)).predict(IDS))
    assert (predicted[0] == predicted[1]).all()
    assert (predicted[0] != predicted[2]).any()


@every_package
def test_predict_and_evaluate_give_no_rows(package):
    model = small_model(package)
    before = model.predict(IDS)
    model.evaluate(IDS, TARGETS, verbose=0)
    assert known_ids(model) == []
    model.fit(IDS, TARGETS, verbose=0, validation_data=(IDS + 1, TARGETS))
    assert known_ids(model) == sorted(set(IDS.ravel().tolist()))
    assert (model.predict(IDS) != before).any()


@pytest.mark.parametrize('has_strategy', [False, True])
def test_a_batch_that_a_full_table_has_no_rows_for_changes_nothing(has_strategy):
    strategy = kp.ParallaxStrategy() if has_strategy else None
    model = small_model(KERAS_PACKAGES[0], capacity=5, strategy=strategy)
    model.train_on_batch(IDS, TARGETS)
    before, predicted = model.get_weights(), model.predict(IDS)
    new = np.array([[1, 2, 3]])
    error = kp.TableFullError if has_strategy else tf.errors.InvalidArgumentError
    with pytest.raises(error, match='the layer table has no row left .*: its capacity is 5'):
        model.train_on_batch(new, TARGETS[:1])
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)
    np.testing.assert_array_equal(model.predict(IDS), predicted)
    # It has room for one more.
    model.train_on_batch(new[:, [1, 1, 1]], TARGETS[:1])
    assert known_ids(model) == sorted([2] + known_ids_of(before))


def known_ids_of(weights):
    ids = next(value for value in weights if value.dtype == np.int64)
    return ids[ids != dynamic.NO_ID].tolist()


@every_package
def test_weights_that_are_set_bring_their_ids(package, tmpdir):
    model = small_model(package, optimizer='adagrad')
    model.train_on_batch(IDS, TARGETS)
    weights, predicted = model.get_weights(), model.predict(IDS)
    path = os.path.join(str(tmpdir), 'weights.h5')
    model.save_weights(path)
    for set_weights in (lambda other: other.set_weights(weights), lambda o: o.load_weights(path)):
        other = small_model(package, optimizer='adagrad')
        other.train_on_batch(IDS + 1, TARGETS)
        set_weights(other)
        np.testing.assert_array_equal(other.predict(IDS), predicted)
        other.train_on_batch(IDS + 2, TARGETS)
        assert known_ids(other) == sorted(set(np.ravel([IDS, IDS + 2]).tolist()))


@every_package
def test_a_saved_model_keeps_what_unknown_ids_begin_with(package, tmpdir):
    strategy = kp.ParallaxStrategy()
    model = small_model(package, strategy=strategy)
    model.train_on_batch(IDS, TARGETS)
    predicted = model.predict(IDS + 1)
    path = os.path.join(str(tmpdir), 'model.h5')
    model.save(path)
    cases.keras_module(package).backend.clear_session()
    with kp.ParallaxStrategy():
        loaded = kp.load_model(path)
    np.testing.assert_array_equal(loaded.predict(IDS + 1), predicted)


@pytest.mark.parametrize(
    'arguments, said',
    [
        ({'output_dim': 0}, 'output_dim must be a positive integer, but got 0'),
        ({'capacity': 1.5}, 'capacity must be a positive integer, but got 1.5'),
        ({'initializer': 'glorot_uniform'}, "but not as 'glorot_uniform'"),
        ({'mask_zero': True}, 'no argument mask_zero'),
        ({'combiner': 'max'}, "combiner must be one of 'sum', 'mean', 'sqrtn', but 'max'"),
        ({'padding_id': 0}, 'padding_id is for bags: give a combiner'),
        (
            {'combiner': 'sum', 'padding_id': 0.5},
            'padding_id must be an integer, a string or None, but got 0.5',
        ),
        ({'embeddings_regularizer': 'l2'}, 'no argument embeddings_regularizer'),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments, said):
    with pytest.raises(kp.PlanError, match=said):
        kp.layers.DynamicEmbedding(**dict({'output_dim': 2, 'capacity': 9}, **arguments))


def test_ids_that_are_neither_integers_nor_text_are_refused():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    ids = keras.layers.Input((3,), dtype='float32')
    with pytest.raises(kp.PlanError, match='takes one tensor of integers or strings.*float32'):
        kp.layers.DynamicEmbedding(2, 9, name='table')(ids)


@pytest.mark.parametrize(
    'arguments, make, said',
    [
        ({}, lambda: tf.zeros([2, 3]), 'takes ids of integers or strings.*but got one of float32'),
        ({}, lambda: tf.zeros([2, 3, 4], tf.int64), r'takes inputs \[batch, length\]'),
        ({'padding_id': ''}, lambda: tf.zeros([2, 3], tf.int64), "padding_id='', but its ids are"),
        ({'padding_id': 0}, lambda: tf.constant([['']]), 'padding_id=0, but its ids are of string'),
    ],
)
def test_inputs_that_are_no_bags_are_refused(arguments, make, said):
    cases.keras_module(KERAS_PACKAGES[0]).backend.clear_session()
    table = kp.layers.DynamicEmbedding(2, 9, combiner='sum', keras=KERAS_PACKAGES[0], **arguments)
    with pytest.raises(kp.PlanError, match=said):
        table(make())


@every_package
def test_text_is_looked_up_by_its_fingerprint(package, tmpdir):
    keras = cases.keras_module(package)
    words = np.array([['north', 'south', 'north'], ['', 'Größe', 'west']], object)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        text = keras.layers.Input((3,), dtype='string')
        table = kp.layers.DynamicEmbedding(2, 9, keras=package, name='table')
        out = keras.layers.Dense(1)(keras.layers.Flatten()(table(text)))
        model = keras.models.Model(text, out)
        model.compile('sgd', 'mse')
    model.fit(words, TARGETS, verbose=0)
    encoded = [word.encode() for word in words.ravel()]
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(tf.string_to_hash_bucket_fast(encoded, 2**63 - 1))
    assert known_ids(model) == sorted(set(expected.tolist()))
    path = os.path.join(str(tmpdir), 'export')
    kp.export_saved_model(model, path, inputs=words)
    assert model.predict(words).shape == (2, 1)


def test_a_sequential_model_may_begin_with_it():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    table = kp.layers.DynamicEmbedding(2, 9, input_length=3)
    model = keras.models.Sequential([table, keras.layers.Flatten(), keras.layers.Dense(1)])
    assert model.output_shape == (None, 1)
    assert model.predict(IDS).shape == (2, 1)


def test_the_id_that_stands_for_none_is_refused():
    model = small_model(KERAS_PACKAGES[0], strategy=kp.ParallaxStrategy())
    with pytest.raises(kp.DataError, match='layer table takes any ids but -9223372036854775808'):
        model.predict(np.full([1, 3], dynamic.NO_ID))


@every_package
def test_an_export_finds_rows_by_ids_in_plain_tensorflow(package, tmpdir):
    model = small_model(package, strategy=kp.ParallaxStrategy(), optimizer='adagrad')
    model.train_on_batch(IDS, TARGETS)
    path = os.path.join(str(tmpdir), 'export')
    kp.export_saved_model(model, path)
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.loader.load(session, ['serve'], path).signature_def
        (given,), (out,) = [
            [info.name for info in part.values()]
            for part in (signature['serving_default'].inputs, signature['serving_default'].outputs)
        ]
        types = {operation.type for operation in session.graph.get_operations()}
        served = [session.run(out, {given: ids}) for ids in (IDS, IDS + 1)]
    assert not any('Parallax' in name for name in types)
    np.testing.assert_allclose(served[0], model.predict(IDS), rtol=1e-6)
    # These have no rows.
    np.testing.assert_allclose(served[1], model.predict(IDS + 1), rtol=1e-6)


@every_package
def test_a_phase_that_is_set_for_good_is_refused(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    keras.backend.set_learning_phase(0)
    try:
        with pytest.raises(kp.PlanError, match='K.set_learning_phase has said'):
            ids = keras.layers.Input((3,), dtype='int64')
            kp.layers.DynamicEmbedding(2, 9, keras=package)(ids)
    finally:
        keras.backend.clear_session()


def policies(**arguments):
    """A compiled model of one field in a strategy, whose ids are admitted or evicted."""
    strategy = kp.ParallaxStrategy()
    return strategy, small_model(
        KERAS_PACKAGES[0], strategy=strategy, optimizer='adagrad', **arguments
    )


def test_an_id_trains_on_the_shared_row_until_it_is_admitted():
    _, model = policies(admission=kp.Admission(min_count=3))
    first, other = np.full([1, 3], 11), np.full([1, 3], 12)
    for _ in range(3):
        assert known_ids(model) == []
        np.testing.assert_array_equal(model.predict(first), model.predict(other))
        model.train_on_batch(first, TARGETS[:1])
    assert known_ids(model) == [11]
    shared = model.get_layer('table').get_weights()[0][-1]
    assert (shared != 0).all()
    model.train_on_batch(first, TARGETS[:1])
    np.testing.assert_array_equal(model.get_layer('table').get_weights()[0][-1], shared)
    assert (model.predict(first) != model.predict(other)).all()


def test_ids_that_are_not_used_for_longest_make_room_for_new_ones():
    strategy, model = policies(capacity=4, eviction=kp.Eviction())
    for id_ in range(8):
        model.train_on_batch(np.full([1, 3], id_), TARGETS[:1])
        assert id_ in known_ids(model)
    # Two are free for what comes next.
    assert known_ids(model) == [6, 7]
    counts = model.get_layer('table').row_counts()
    assert counts == {'rows_used': 2, 'rows_given': 8, 'rows_evicted': 6, 'ids_left_out': 0}
    assert strategy.plan(model)['table/embeddings'].fill == (4, 2, 8, 6, 0)
    said = []
    strategy.summary(model, said.append)
    assert 'Rows of table/embeddings: 2 of 4 rows have an id; 8 were given, 6 taken' in said[0]


def test_step_metrics_log_what_has_become_of_rows():
    _, model = policies(capacity=4, eviction=kp.Eviction())
    history = model.fit(
        np.arange(8)[:, None] + np.zeros([1, 3], int),
        np.ones([8, 1]),
        batch_size=1,
        epochs=1,
        shuffle=False,
        verbose=0,
        callbacks=[kp.callbacks.StepMetrics()],
    ).history
    for name, value in (('rows/used', 2), ('rows/given', 8), ('rows/evicted', 6)):
        assert history[name + '/table/embeddings'] == [value]


def test_more_different_ids_in_a_batch_than_a_table_can_have_are_refused():
    _, model = policies(capacity=3, eviction=kp.Eviction())
    with pytest.raises(kp.TableFullError, match='more different ids in a batch than its capacity'):
        model.train_on_batch(IDS, TARGETS)
    assert known_ids(model) == []


def test_an_admitted_id_that_finds_no_row_ends_training_and_moves_no_row():
    _, model = policies(capacity=2, admission=kp.Admission(min_count=2))
    for _ in range(2):
        model.train_on_batch(IDS, TARGETS)
    before = model.get_weights()
    with pytest.raises(kp.TableFullError, match='its capacity is 2. 2 of its 2 rows have an id'):
        model.train_on_batch(IDS, TARGETS)
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)


def test_a_saved_model_keeps_its_policies(tmpdir):
    _, model = policies(
        admission=kp.Admission(2, 0.5), eviction=kp.Eviction('lfu', max_age_steps=9)
    )
    model.train_on_batch(IDS, TARGETS)
    path, predicted = os.path.join(str(tmpdir), 'model.h5'), model.predict(IDS)
    model.save(path)
    cases.keras_module(KERAS_PACKAGES[0]).backend.clear_session()
    with kp.ParallaxStrategy():
        table = kp.load_model(path).get_layer('table')
    assert table.admission.get_config() == {'min_count': 2, 'probability': 0.5}
    assert table.eviction.get_config() == {'policy': 'lfu', 'max_age_steps': 9}
    assert [weight.shape for weight in table.get_weights()] == [
        (10, 2), (10,), (10,), (10,), (10, 2),
    ]  # fmt: skip
    assert predicted.shape == (2, 1)


def test_policies_outside_of_a_strategy_are_refused():
    keras = cases.keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()
    table = kp.layers.DynamicEmbedding(2, 9, eviction=kp.Eviction())
    with pytest.raises(kp.PlanError, match='call it inside `with strategy:`'):
        table(keras.layers.Input((3,), dtype='int64'))


@pytest.mark.skipif(TF2, reason='an optimizer is written otherwise for TensorFlow 2')
def test_an_optimizer_whose_slots_cannot_begin_anew_is_refused():
    keras = cases.keras_module(KERAS_PACKAGES[0])

    class Remembering(keras.optimizers.SGD):
        """Draws a weight to places of its own."""

        def get_updates(self, loss, params):
            gradients = map(tf.convert_to_tensor, self.get_gradients(loss, params))
            places = [np.random.uniform(size=param.shape.as_list()) for param in params]
            places = list(map(keras.backend.variable, places))
            self.weights = [self.iterations] + places
            return [
                keras.backend.update(param, param - 0.1 * gradient + 0.01 * (place - param))
                for param, gradient, place in zip(params, gradients, places)
            ]

    strategy = kp.ParallaxStrategy()
    model = small_model(
        KERAS_PACKAGES[0], strategy=strategy, optimizer=Remembering(), eviction=kp.Eviction()
    )
    with pytest.raises(kp.PlanError, match='eviction gives rows to other ids'):
        model.train_on_batch(IDS, TARGETS)


@pytest.mark.parametrize(
    'make, said',
    [
        (lambda: kp.Admission(), 'Admission needs min_count or probability'),
        (lambda: kp.Admission(min_count=0), 'min_count must be an integer from 1, but got 0'),
        (lambda: kp.Admission(probability=1.5), 'at most 1, but got 1.5'),
        (lambda: kp.Eviction('fifo'), "policy must be 'lru' or 'lfu', but got 'fifo'"),
        (lambda: kp.Eviction(max_age_steps=0.5), 'max_age_steps must be an integer from 1'),
        (
            lambda: kp.layers.DynamicEmbedding(2, 9, admission=3),
            'admission must be a kp.Admission, but got 3',
        ),
    ],
)
def test_policies_that_mean_nothing_are_refused(make, said):
    with pytest.raises(kp.PlanError, match=said):
        make()
