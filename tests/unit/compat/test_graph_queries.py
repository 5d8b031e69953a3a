# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Questions to a TensorFlow graph, and the order of reads and writes."""

import os
import subprocess
import sys

import cases
import pytest
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp
from keras_parallax.compat import graph_queries, keras_api, session_config, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf

KINDS = pytest.mark.parametrize('resource', [False, True], ids=['reference', 'resource'])
PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@pytest.fixture(autouse=True)
def fresh_graph():
    """An empty default graph for every test, and no Keras session that knows an older one."""
    for package in keras_api.loaded_keras_packages():
        package.backend.clear_session()
    tf.reset_default_graph()


def table(resource, shape=(7, 3), name='table'):
    return tf.get_variable(name, shape, use_resource=resource)


def reads_of(variable, *outputs):
    """Who reads a variable for some outputs, as the library asks."""
    return graph_queries.reads(variable, graph_queries.ancestors(outputs))


def types(operations):
    return [operation.type for operation in operations]


def test_only_what_unique_has_made_or_is_marked_is_known_to_have_no_repeats():
    numbers = tf.constant([3, 1, 3])
    unique, places = tf.unique(numbers)
    for tensor in (unique, tf.identity(unique), tf.reshape(unique, [-1, 1])):
        assert graph_queries.has_no_repeats(tensor)
    for tensor in (numbers, places, tf.gather(unique, places), unique // 2):
        assert not graph_queries.has_no_repeats(tensor)
    made = tf.range(3)
    graph_queries.mark_no_repeats(made)
    assert graph_queries.has_no_repeats(tf.reshape(made, [-1, 1]))


# --- ancestors and descendants -----------------------------------------------


def test_ancestors_are_all_that_must_run():
    a, b = tf.placeholder(tf.float32, name='a'), tf.placeholder(tf.float32, name='b')
    both = tf.add(a, b, name='both')
    tf.multiply(both, 2.0, name='unrelated')
    with tf.control_dependencies([tf.no_op('before')]):
        end = tf.negative(both, name='end')
    assert {op.name for op in graph_queries.ancestors([end])} == {'a', 'b', 'both', 'before', 'end'}


def test_ancestors_stop_at_leaves_and_leave_them_out():
    a = tf.placeholder(tf.float32, name='a')
    middle = tf.negative(a, name='middle')
    end = tf.negative(middle, name='end')
    assert {op.name for op in graph_queries.ancestors([end], leaves=[middle.op])} == {'end'}


def test_an_ancestor_that_has_another_way_round_a_leaf_is_found():
    a = tf.placeholder(tf.float32, name='a')
    leaf = tf.negative(a, name='leaf')
    end = tf.add(leaf, a, name='end')
    assert {op.name for op in graph_queries.ancestors([end], leaves=[leaf.op])} == {'end', 'a'}


def test_ancestors_take_operations_as_well_as_tensors():
    a = tf.placeholder(tf.float32)
    end = tf.negative(a)
    assert graph_queries.ancestors([end.op]) == graph_queries.ancestors([end])


def test_ancestors_of_a_loop_end():
    end = tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])
    assert 'NextIteration' in types(graph_queries.ancestors([end]))


def test_descendants_are_all_that_must_wait():
    a = tf.placeholder(tf.float32, name='a')
    b = tf.negative(a, name='b')
    tf.placeholder(tf.float32, name='unrelated')
    with tf.control_dependencies([b]):
        tf.no_op('after')
    assert {op.name for op in graph_queries.descendants(a.op)} == {'a', 'b', 'after'}


@pytest.mark.parametrize(
    'build, names',
    [
        (lambda a, b: tf.add(a, b), {'a', 'b'}),
        (lambda a, b: tf.negative(a), {'a'}),
        (lambda a, b: tf.constant(1.0), set()),
        (lambda a, b: a, {'a'}),
    ],
)
def test_placeholders_are_those_that_a_tensor_is_computed_from(build, names):
    a, b = tf.placeholder(tf.float32, name='a'), tf.placeholder(tf.float32, name='b')
    found = graph_queries.placeholders(build(a, b))
    assert isinstance(found, frozenset) and {op.name for op in found} == names


# --- who reads a variable ----------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    'look_up',
    [
        tf.gather,
        tf.nn.embedding_lookup,
        lambda variable, ids: tf.gather(tf.identity(variable), ids),
        lambda variable, ids: tf.gather(variable.read_value(), ids),
        lambda variable, ids: tf.gather(variable, tf.cast(ids, tf.int64)),
        lambda variable, ids: tf.nn.embedding_lookup([variable], ids),
    ],
    ids=['gather', 'embedding_lookup', 'identity', 'read_value', 'int64', 'list'],
)
def test_a_gather_of_rows_is_a_lookup(resource, look_up):
    variable = table(resource)
    ids = tf.placeholder(tf.int32, [None])
    found = reads_of(variable, look_up(variable, ids))
    assert len(found.lookups) == 1 and found.whole == []
    assert found.lookups[0].type in ('GatherV2', 'Gather', 'ResourceGather')


@KINDS
def test_the_ids_of_a_lookup_are_its_second_input(resource):
    variable = table(resource)
    ids = tf.placeholder(tf.int32, [None])
    (lookup,) = reads_of(variable, tf.gather(variable, ids)).lookups
    assert lookup.inputs[1] is ids


@KINDS
def test_two_lookups_are_told_in_the_order_they_were_made(resource):
    variable = table(resource)
    first, second = (tf.placeholder(tf.int32, [None]) for _ in range(2))
    outputs = [tf.nn.embedding_lookup(variable, ids) for ids in (first, second)]
    found = reads_of(variable, *outputs)
    assert [lookup.inputs[1] for lookup in found.lookups] == [first, second]
    assert found.whole == []


@KINDS
def test_a_matrix_product_reads_whole(resource):
    variable = table(resource)
    found = reads_of(variable, tf.matmul(tf.ones([2, 7]), variable))
    assert (found.lookups, types(found.whole)) == ([], ['MatMul'])


@KINDS
def test_a_tied_table_is_looked_up_and_read_whole(resource):
    variable = table(resource)
    rows = tf.gather(variable, tf.placeholder(tf.int32, [None]))
    found = reads_of(variable, tf.matmul(rows, variable, transpose_b=True))
    assert len(found.lookups) == 1 and types(found.whole) == ['MatMul']


@KINDS
def test_a_gather_along_another_axis_reads_whole(resource):
    variable = table(resource)
    found = reads_of(variable, tf.gather(variable, [0, 1], axis=1))
    assert found.lookups == [] and types(found.whole) == ['GatherV2']


def test_a_gather_along_an_axis_not_known_yet_reads_whole():
    variable = table(False)
    found = reads_of(variable, tf.gather(variable, [0], axis=tf.placeholder(tf.int32, [])))
    assert found.lookups == [] and types(found.whole) == ['GatherV2']


@KINDS
def test_a_gather_of_something_made_of_the_table_reads_whole(resource):
    variable = table(resource)
    found = reads_of(variable, tf.gather(variable * 2.0, [0, 1]))
    assert found.lookups == [] and types(found.whole) == ['Mul']


def test_a_table_that_serves_as_ids_is_read_whole():
    variable = tf.get_variable('ids', [4], tf.int32, tf.zeros_initializer())
    gathered = tf.gather(tf.ones([3, 2]), variable)
    found = reads_of(variable, gathered)
    assert found.lookups == [] and found.whole == [gathered.op]


@KINDS
@pytest.mark.parametrize('look_up', [tf.gather, tf.nn.embedding_lookup])
def test_a_gather_inside_a_branch_reads_whole(resource, look_up):
    variable = table(resource)
    ids = tf.placeholder(tf.int32, [None])
    rows = tf.cond(
        tf.placeholder(tf.bool, []), lambda: look_up(variable, ids), lambda: tf.zeros([1, 3])
    )
    found = reads_of(variable, rows)
    assert found.lookups == []
    assert types(found.whole) and set(types(found.whole)) <= {'Switch', 'RefSwitch'}


@KINDS
@pytest.mark.parametrize('look_up', [tf.gather, tf.nn.embedding_lookup])
def test_a_gather_inside_a_loop_reads_whole(resource, look_up):
    variable = table(resource)
    _, total = tf.while_loop(
        lambda i, total: i < 3,
        lambda i, total: (i + 1, total + look_up(variable, i)),
        [tf.constant(0), tf.zeros([3])],
    )
    found = reads_of(variable, total)
    assert found.lookups == []
    assert types(found.whole) and set(types(found.whole)) <= {'Enter', 'RefEnter'}


@KINDS
def test_reads_outside_the_given_operations_do_not_count(resource):
    variable = table(resource)
    rows = tf.gather(variable, [0])
    tf.matmul(tf.ones([2, 7]), variable)
    tf.gather(variable, [1])
    found = reads_of(variable, rows)
    assert len(found.lookups) == 1 and found.whole == []


@KINDS
def test_without_limits_everybody_counts(resource):
    variable = table(resource)
    tf.gather(variable, [0])
    tf.matmul(tf.ones([2, 7]), variable)
    found = graph_queries.reads(variable)
    assert len(found.lookups) == 1 and 'MatMul' in types(found.whole)


@KINDS
def test_a_variable_that_nobody_reads_has_no_reads(resource):
    variable = table(resource)
    assert reads_of(variable, tf.constant(1.0)) == graph_queries.Reads([], [])


# --- updates as operations ---------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    'write',
    [
        lambda variable: tf.assign(variable, tf.ones([7, 3])),
        lambda variable: tf.scatter_update(variable, [1], tf.ones([1, 3])),
        lambda variable: tf.train.AdagradOptimizer(1.0).apply_gradients(
            [(tf.IndexedSlices(tf.ones([1, 3]), tf.constant([1])), variable)]
        ),
    ],
    ids=['whole', 'rows', 'kernel'],
)
def test_what_comes_after_a_write_is_found(resource, write):
    variable = table(resource)
    with tf.control_dependencies([write(variable)]):
        counter = tf.no_op()
    assert counter in graph_queries.after_writes([variable])


@KINDS
def test_what_comes_after_a_read_is_not_taken_for_a_write(resource):
    variable = table(resource)
    reads = [tf.gather(variable, [1]), tf.reduce_sum(variable), tf.shape(variable)]
    with tf.control_dependencies(reads):
        counter = tf.no_op()
    assert counter not in graph_queries.after_writes([variable])


def test_all_of_keras_forms_of_updates_become_operations():
    variable = table(False)
    forms = [
        tf.assign(variable, tf.ones([7, 3])),
        tf.assign(variable, tf.ones([7, 3])).op,
        (variable, tf.ones([7, 3])),
        tf.no_op(),
    ]
    operations = graph_queries.as_operations(forms)
    assert all(isinstance(operation, tf.Operation) for operation in operations)
    assert types(operations) == ['Assign', 'Assign', 'Assign', 'NoOp']


def test_what_is_held_back_is_there_after_the_operations():
    variable = table(False)
    filled = tf.assign(variable, tf.ones([7, 3])).op
    rows, values = tf.constant([1, 2]), tf.constant([[0.5], [0.25]])
    pair, alone = graph_queries.held_back([(rows, values), [values]], [filled])
    assert pair[0] is rows
    for held in pair[1], alone[0]:
        with tf.Session() as session:
            session.run(variable.initializer)
            session.run(tf.assign(variable, tf.zeros([7, 3])))
            assert session.run(held).tolist() == [[0.5], [0.25]]
            assert session.run(variable).min() == 1


# --- writes after reads ------------------------------------------------------


def counter(resource):
    """A step number, with a read that is as old as the variable, as Keras makes it."""
    return tf.get_variable(
        'counter', [], tf.int64, tf.zeros_initializer(), trainable=False, use_resource=resource
    )


def slow(ids):
    """Work that a reader of the step number has to wait for."""
    work = tf.random_normal([200, 200], seed=3)
    for _ in range(20):
        work = tf.tanh(tf.matmul(work, work))
    with tf.control_dependencies([work]):
        return tf.identity(ids)


def step_with_readers(variable, readers=8):
    """A step that reads a number, some reads after much other work, and increments it."""
    gate = tensorflow_api.operation_id(tf.no_op())
    write = tf.assign_add(variable, 1)
    outputs = []
    for number in range(readers):
        with tf.control_dependencies([slow(tf.constant(number))]):
            outputs.append(tf.add(variable, 100, name=f'reader_{number}'))
    return gate, write.op, outputs


@KINDS
def test_assignments_wait_for_the_reads_of_the_old_value(resource):
    variable = counter(resource)
    gate, write, outputs = step_with_readers(variable)
    # What TensorFlow and Keras leave open, and so what the function is for.
    readers = {output.op for output in outputs}
    assert not readers & graph_queries.ancestors([write])
    graph_queries.write_after_reads([write] + [output.op for output in outputs], since=gate)
    # A reader of a resource is the operation that copies the value.
    for output in outputs:
        earlier = graph_queries.ancestors([write])
        copies = {tensor.op for tensor in output.op.inputs if tensor.op.type == 'ReadVariableOp'}
        assert output.op in earlier or copies and copies <= earlier


@pytest.mark.parametrize(
    'view',
    [
        lambda number: tf.reshape(number, [1]),
        lambda number: tf.squeeze(tf.expand_dims(tf.stop_gradient(number), 0)),
        lambda number: tf.reshape(number, [1])[0:1],
        lambda number: tf.bitcast(number, tf.float32),
    ],
    ids=['reshape', 'dims', 'slice', 'bitcast'],
)
def test_assignments_wait_for_who_reads_a_view_of_the_variables_memory(view):
    variable = counter(resource=False)
    gate = tensorflow_api.operation_id(tf.no_op())
    reader = tf.add(view(variable), 1)
    write = tf.assign_add(variable, 1).op
    graph_queries.write_after_reads([write, reader.op], since=gate)
    assert reader.op in graph_queries.ancestors([write])


@KINDS
def test_every_reader_sees_the_old_value_in_every_run(resource):
    variable = counter(resource)
    gate, write, outputs = step_with_readers(variable)
    graph_queries.write_after_reads([write] + [output.op for output in outputs], since=gate)
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as session:
        session.run(variable.initializer)
        for expected in range(10):
            seen, _ = session.run([outputs, write])
            assert seen == [100 + expected] * len(outputs)


@KINDS
def test_a_read_of_the_new_value_stays_one(resource):
    variable = counter(resource)
    gate = tensorflow_api.operation_id(tf.no_op())
    write = tf.assign_add(variable, 1).op
    with tf.control_dependencies([write]):
        after = tf.add(variable.read_value(), 100)
    graph_queries.write_after_reads([write, after.op], since=gate)
    assert after.op not in graph_queries.ancestors([write])
    with tf.Session() as session:
        session.run(variable.initializer)
        assert session.run(after) == 101


@KINDS
def test_a_value_computed_from_the_old_one_can_be_written(resource):
    variable = counter(resource)
    gate = tensorflow_api.operation_id(tf.no_op())
    doubled = variable * 2 + 1
    write = tf.assign(variable, doubled).op
    graph_queries.write_after_reads([write], since=gate)
    with tf.Session() as session:
        session.run(variable.initializer)
        for expected in (1, 3, 7):
            session.run(write)
            assert session.run(variable) == expected


@KINDS
def test_two_variables_written_from_each_other_swap(resource):
    one, other = (
        tf.get_variable(name, [], initializer=tf.constant_initializer(value), use_resource=resource)
        for name, value in (('one', 1.0), ('other', 2.0))
    )
    gate = tensorflow_api.operation_id(tf.no_op())
    new_one, new_other = other * 1.0, one * 1.0
    writes = [tf.assign(one, new_one).op, tf.assign(other, new_other).op]
    graph_queries.write_after_reads(writes, since=gate)
    with tf.Session(config=session_config.of_worker(0)) as session:
        session.run(tf.global_variables_initializer())
        for expected in ([2.0, 1.0], [1.0, 2.0]) * 5:
            session.run(writes)
            assert session.run([one, other]) == expected


@KINDS
def test_readers_older_than_the_step_are_left_alone(resource):
    variable = counter(resource)
    before = tf.add(variable, 5)
    gate = tensorflow_api.operation_id(tf.no_op())
    write = tf.assign_add(variable, 1).op
    graph_queries.write_after_reads([write, before.op], since=gate)
    assert before.op not in graph_queries.ancestors([write])


@KINDS
def test_writers_older_than_the_step_are_left_alone(resource):
    variable = counter(resource)
    write = tf.assign_add(variable, 1).op
    gate = tensorflow_api.operation_id(tf.no_op())
    reader = tf.add(variable, 5)
    graph_queries.write_after_reads([write, reader.op], since=gate)
    assert reader.op not in graph_queries.ancestors([write])


#: What Keras calls the product that Nadam keeps.
NADAM_SCHEDULE = '_m_cache' if TF2 else 'm_schedule'


@PACKAGES
@pytest.mark.parametrize('sparse_update', ['exact', 'lazy'])
@pytest.mark.parametrize(
    'name, counters', [('Adam', ['iterations']), ('Nadam', ['iterations', NADAM_SCHEDULE])]
)
def test_a_compiled_step_reads_the_old_step_number(package, sparse_update, name, counters):
    keras = cases.keras_module(package)
    with kp.ParallaxStrategy():
        model = cases.embed_and_sum()(keras)
        given = getattr(keras.optimizers, name)()
        optimizer = kp.ParallaxOptimizer(given, sparse_update=sparse_update)
        model.compile(optimizer, 'mse')
        before = tensorflow_api.operation_id(tf.no_op())
        model._make_train_function()
    step = graph_queries.ancestors(model.train_function.updates_op.control_inputs)
    for counter_name in counters:
        storage = tensorflow_api.storage(getattr(optimizer, counter_name))
        writes = [op for op in step if op.type.startswith('Assign') and op.inputs[0] is storage]
        assert len(writes) == 1
        earlier = graph_queries.ancestors(writes)
        readers = [
            op
            for op in step
            if tensorflow_api.operation_id(op) > before
            and any(_stands_for(tensor, storage) for tensor in op.inputs)
            and op not in writes
            # Nadam of TensorFlow 2 also reads the new product, by what waits for the write.
            and not set(writes) & set(op.control_inputs)
        ]
        assert readers and set(readers) <= earlier


def _stands_for(tensor, storage):
    """Whether a tensor is a variable's memory, or another name of it."""
    return tensor is storage or tensor.op.type == 'Identity' and tensor.op.inputs[0] is storage


@pytest.mark.skipif(TF2, reason='TensorFlow 2 has no contrib')
def test_reading_a_graph_does_not_import_contrib():
    # In a process of its own: other tests may have imported it. Importing all of `tf.contrib` costs
    # each worker seconds and memory.
    script = (
        'import sys, tensorflow as tf\n'
        'from keras_parallax.compat import graph_queries as graph\n'
        'table = tf.Variable(tf.zeros([4, 2]))\n'
        'tf.gather(table, [1])\n'
        'assert len(graph.reads(table).lookups) == 1\n'
        'sys.exit("tensorflow.contrib" in sys.modules)\n'
    )
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), TF_CPP_MIN_LOG_LEVEL='2')
    assert subprocess.call([sys.executable, '-c', script], env=environ) == 0


# --- constants ---------------------------------------------------------------
@pytest.mark.parametrize(
    'make, number',
    [
        (lambda: tf.zeros([2000, 3]), 0.0),
        (lambda: tf.fill([2, 3], 0.5), 0.5),
        (lambda: tf.constant([0.1, 0.1]), 0.1),
        (lambda: tf.identity(tensorflow_api.zeros([2, 3], tf.float32)), 0.0),
        (lambda: tf.constant([0.1, 0.2]), None),
        (lambda: tf.random_uniform([2]), None),
    ],
)
def test_the_number_that_all_entries_have_is_known_from_the_graph(make, number):
    found = graph_queries.constant_of(make())
    assert found == (number if number is None else pytest.approx(number))


# --- sums ---------------------------------------------------------------------
def test_a_sum_of_scalars_is_taken_apart_and_constant_factors_are_left_out():
    x = tf.placeholder(tf.float32, [None])
    mean, total, root = tf.reduce_mean(x), tf.reduce_sum(x), tf.sqrt(tf.reduce_sum(x))
    weight = tf.Variable(0.0)
    loss = 0.5 * mean + tf.reduce_mean(weight * total) - root / 3.0
    assert set(graph_queries.summands(loss)) == {mean, total, root}
    assert graph_queries.summands(mean * total) != [mean, total]
    assert set(graph_queries.summands(mean + total, [mean])) == {mean, total}


def test_loops_are_found_and_functions_that_may_have_some():
    with tf.Graph().as_default() as graph:
        assert not graph_queries.has_loops(graph.get_operations())
        tf.while_loop(lambda number: number < 3, lambda number: number + 1, [tf.constant(0)])
        assert graph_queries.has_loops(graph.get_operations())
