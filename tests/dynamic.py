# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `kp.layers.DynamicEmbedding` must equal: plain Keras on the same ids, numbered by a dict."""

import numpy as np
import reference

WIDTH, LENGTH, CAPACITY, NO_ID = 4, 3, 300, -(2**63)
#: How many different ids there are, and how many of these no training batch has.
IDS, UNTRAINED = 60, 5
SAMPLES, STEPS = 12, 8
#: Of Keras's initializers, what they are made with.
INITIALIZERS = {
    'RandomUniform': {'minval': -0.3, 'maxval': 0.1, 'seed': 5},
    'RandomNormal': {'mean': 0.5, 'stddev': 0.2, 'seed': 2**31 - 1},
}


def _mixed(bits):
    with np.errstate(over='ignore'):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def first_rows(ids, width, kind, seed, **config):
    """The rows `[n, width]` that ids begin with, by an initializer of `INITIALIZERS`."""
    ids = np.asarray(ids, np.int64).view(np.uint64)
    begin = _mixed(ids ^ _mixed(np.array([seed], np.uint64)))
    with np.errstate(over='ignore'):
        steps = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = _mixed(begin[:, None] + steps)
    if kind == 'RandomUniform':
        drawn = ((bits >> np.uint64(40)).astype(np.float64) + 0.5) / 2.0**24
        rows = config['minval'] + (config['maxval'] - config['minval']) * drawn
    else:
        radius = ((bits >> np.uint64(32)).astype(np.float64) + 0.5) / 2.0**32
        turn = (bits & np.uint64(2**32 - 1)).astype(np.float64) / 2.0**32
        drawn = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * turn)
        rows = config['mean'] + config['stddev'] * drawn
    return rows.astype(np.float32)


def raw_ids():
    """The ids, of the whole range of int64."""
    random = np.random.RandomState(3)
    ids = random.randint(-(2**63), 2**63 - 1, IDS - 4, dtype=np.int64)
    return np.concatenate([[0, -1, -(2**63) + 1, 2**63 - 1], ids])


def numbers(step):
    """The numbers of the ids in a batch of two inputs: later batches have ids that are new."""
    random = np.random.RandomState(step)
    known = IDS - UNTRAINED - (STEPS - 1 - step) * 3
    return [random.zipf(1.3, [SAMPLES, LENGTH]) % known for _ in range(2)]


def batch(step, ids):
    """A joined batch of a step, whose inputs are of `ids`, and of ids of a table of Keras's."""
    first, second = numbers(step)
    random = np.random.RandomState(100 + step)
    targets = random.uniform(-1, 1, [SAMPLES, 1])
    return [ids[first], ids[second], random.randint(0, 9, [SAMPLES, LENGTH])], targets


def asked():
    """Numbers of ids `[samples, LENGTH]` among which each id is."""
    return np.arange(IDS).reshape([-1, LENGTH])


def asked_inputs(ids):
    """What a model is asked about, with each id in each of its inputs."""
    places = asked()
    return [ids[places], ids[places[::-1]], np.zeros_like(places)]


def model_of(keras, table, combine=lambda field: field):
    """A model, not compiled, of two fields on one table, and of a table of Keras's.

    Args:
        keras: the package.
        table: a layer that looks ids up.
        combine: what becomes of the rows that it has looked up.
    """
    inputs = [keras.layers.Input((LENGTH,), dtype='int64') for _ in range(2)]
    inputs.append(keras.layers.Input((LENGTH,)))
    # As wide as the other, so that both are pulled as one.
    static = keras.layers.Embedding(9, WIDTH, name='static')
    fields = [combine(table(inputs[0])), combine(table(inputs[1])), static(inputs[2])]
    flat = [
        field if len(keras.backend.int_shape(field)) == 2 else keras.layers.Flatten()(field)
        for field in fields
    ]
    joined = keras.layers.concatenate(flat)
    hidden = keras.layers.Dense(3, activation='tanh', name='hidden')(joined)
    model = keras.models.Model(inputs, keras.layers.Dense(1, name='out')(hidden))
    random = np.random.RandomState(11)
    for name in ('static', 'hidden', 'out'):
        layer = model.get_layer(name)
        values = [random.uniform(-0.5, 0.5, value.shape) for value in layer.get_weights()]
        layer.set_weights(values)
    return model


def initializer(keras, kind):
    return getattr(keras.initializers, kind)(**INITIALIZERS[kind])


def plain(keras, kind, make_optimizer, steps=STEPS, combine=lambda field: field):
    """Trains plain Keras; returns losses, the rows of all ids, and what it predicts of them."""
    keras.backend.clear_session()
    model = model_of(keras, keras.layers.Embedding(IDS, WIDTH, name='table'), combine)
    rows = first_rows(raw_ids(), WIDTH, kind, **INITIALIZERS[kind])
    model.get_layer('table').set_weights([rows])
    model.compile(reference.gated(make_optimizer(keras)), 'mse')
    batches = [batch(step, np.arange(IDS)) for step in range(STEPS)]
    losses = [model.train_on_batch(*batches[step % STEPS]) for step in range(steps)]
    rows = model.get_layer('table').get_weights()[0]
    return losses, rows, model.predict(asked_inputs(np.arange(IDS)))


def mean_of(keras):
    """A layer of Keras that makes of the rows of a sample their mean."""
    return keras.layers.Lambda(lambda rows: keras.backend.mean(rows, 1), output_shape=(WIDTH,))


def trained_ids():
    """The ids of all training batches, as a set."""
    places = np.concatenate([np.ravel(numbers(step)) for step in range(STEPS)])
    return set(raw_ids()[places].tolist())


def rows_by_id(table):
    """The rows of a `DynamicEmbedding`, a dict by id."""
    rows, ids = table.get_weights()[:2]
    return {id_: row for id_, row in zip(ids.tolist(), rows) if id_ != NO_ID}


def assert_as_plain(ranks, tolerance=1e-5):
    """What each worker has seen of a run, dicts of arrays, is what plain Keras gives."""
    for ours in ranks:
        np.testing.assert_allclose(ours['ours.losses'], ranks[0]['plain.losses'], rtol=tolerance)
        predicted = ranks[0]['plain.predicted']
        np.testing.assert_allclose(ours['ours.predicted'], predicted, rtol=0, atol=tolerance)
        ids = ours['ours.ids']
        row_of = dict(zip(ids.tolist(), ours['ours.rows']))
        assert set(row_of) - {NO_ID} == trained_ids()
        assert np.sum(ids != NO_ID) == len(trained_ids())
        for id_, row in zip(raw_ids().tolist(), ranks[0]['plain.rows']):
            if id_ in row_of:
                np.testing.assert_allclose(row_of[id_], row, rtol=0, atol=tolerance)
