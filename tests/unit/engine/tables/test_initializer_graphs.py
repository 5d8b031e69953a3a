# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Other graphs make the values that an initializer makes, as a whole and in blocks."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

from keras_parallax.engine.tables import initializer_graphs

ROWS, WIDTH = 300, 8
BY_ELEMENT = [
    'zeros',
    'ones',
    'uniform',
    'normal',
    'truncated_normal',
    'glorot_uniform',
    'lecun_normal',
    'he_normal',
]
#: One of each kind that has to be made as a whole. What an identity is made of is an array.
AS_A_WHOLE = ['orthogonal']

with_each_keras = pytest.mark.parametrize('package', KERAS_PACKAGES)


def variable_of(package, initializer):
    """The weights of an `Embedding` in a new graph, which is left the default one."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    np.random.seed(1)
    tf.set_random_seed(1)
    layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=initializer)
    layer(keras.layers.Input((2,)))
    (variable,) = layer.weights
    return variable


def values_of(variable):
    with tf.Session(graph=variable.graph) as session:
        session.run(variable.initializer)
        return session.run(variable)


def made(graph, rows, blocks=1):
    """What an initializer makes in a graph of its own, in a new session: a list of blocks."""
    with tf.Graph().as_default(), tf.Session() as session:
        values = initializer_graphs.make(graph, tf.constant([rows, WIDTH]))
        return [session.run(values) for _ in range(blocks)]


@pytest.mark.parametrize('initializer', BY_ELEMENT + AS_A_WHOLE)
@with_each_keras
def test_an_initializer_graph_makes_the_values_that_keras_makes(package, initializer):
    variable = variable_of(package, initializer)
    graph = initializer_graphs.initializer_graph_of(variable)
    assert np.array_equal(made(graph, ROWS)[0], values_of(variable))


def test_several_initializer_graphs_are_one_import_and_make_what_each_makes_alone():
    kinds = ['uniform', 'zeros', 'orthogonal']
    graphs = [
        initializer_graphs.initializer_graph_of(variable_of(KERAS_PACKAGES[0], kind))
        for kind in kinds
    ]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        shapes = [[ROWS, WIDTH], tf.constant([ROWS, WIDTH]), [ROWS, WIDTH]]
        together = session.run(initializer_graphs.make_all(list(zip(graphs, shapes))))
        roots = {operation.name.split('/')[0] for operation in graph.get_operations()}
        assert roots == {'initializer', 'Const'}
    for values, alone in zip(together, graphs):
        assert np.array_equal(values, made(alone, ROWS)[0])
    assert initializer_graphs.make_all([]) == []


@pytest.mark.parametrize('initializer', BY_ELEMENT)
@with_each_keras
def test_blocks_of_an_initializer_graph_follow_the_initializers_distribution_and_repeat_by_its_seed(
    package, initializer
):
    variable = variable_of(package, initializer)
    graph = initializer_graphs.initializer_graph_of(variable, block_bytes=1)
    blocks = made(graph, 100, 3)
    assert np.array_equal(blocks, made(graph, 100, 3))
    whole = values_of(variable)
    # The scale of one made for the shape of a block would be off by more than half.
    assert np.std(blocks) == pytest.approx(np.std(whole), rel=0.1)
    assert np.mean(blocks) == pytest.approx(np.mean(whole), abs=0.1 * float(np.std(whole)))
    if np.std(whole):
        assert not np.array_equal(blocks[0], blocks[1])


def test_what_cannot_be_made_in_blocks_has_a_graph_only_while_it_is_small():
    variable = variable_of('tf.keras', 'orthogonal')
    assert not initializer_graphs.initializer_graph_of(variable).in_blocks
    assert (
        initializer_graphs.initializer_graph_of(variable, block_bytes=ROWS * WIDTH * 4 - 1) is None
    )


def test_values_that_depend_on_another_variable_have_no_graph():
    with tf.Graph().as_default():
        other = tf.Variable(tf.zeros([3]))
        assert (
            initializer_graphs.initializer_graph_of(tf.Variable(other.initialized_value() + 1))
            is None
        )


def test_a_shape_that_is_computed_has_a_graph_in_blocks():
    with tf.Graph().as_default():
        rows = tf.constant(ROWS - 1) + 1
        variable = tf.Variable(tf.random_normal(tf.stack([rows, WIDTH]), seed=1))
    graph = initializer_graphs.initializer_graph_of(variable, block_bytes=1)
    assert graph.in_blocks
    assert np.array_equal(made(graph, ROWS)[0], values_of(variable))


def test_a_large_array_has_no_graph():
    with tf.Graph().as_default():
        assert (
            initializer_graphs.initializer_graph_of(tf.Variable(np.random.normal(size=[1000, 200])))
            is None
        )
        assert (
            initializer_graphs.initializer_graph_of(tf.Variable(np.random.normal(size=[10, 2])))
            is not None
        )


def test_an_initializer_without_a_seed_draws_one_for_all_who_make_it():
    with tf.Graph().as_default():
        variable = tf.Variable(tf.random_normal([ROWS, WIDTH]))
    first, second = (
        initializer_graphs.initializer_graph_of(variable),
        initializer_graphs.initializer_graph_of(variable),
    )
    assert np.array_equal(made(first, ROWS), made(first, ROWS))
    assert not np.array_equal(made(first, ROWS), made(second, ROWS))
