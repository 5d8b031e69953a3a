# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What of a run has to be noted for those who watch which rows of a table are written."""

from types import SimpleNamespace

import pytest
import shards
from frameworks import tf

from keras_parallax.compat import tensorflow_api
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.session.written_rows import RowWatch, Watched, WrittenRows
from keras_parallax.engine.tables.touched_rows import RowMarks

ROWS = 9


@pytest.fixture(params=shards.KINDS)
def variable(request):
    with tf.Graph().as_default():
        yield shards.variable_of(tf.zeros([ROWS, 2]), request.param)


def watched(variable, marked=True):
    """`WrittenRows` with a watch over a variable, and the watch."""
    graph = variable.graph
    scope = SimpleNamespace(graph=graph, lock=lock_of(graph))
    marks = RowMarks('marks', '/device:CPU:0', ROWS) if marked else None
    written, watch = WrittenRows(scope), RowWatch({'key': Watched(variable, marks)})
    written.add(watch)
    return written, watch


def names(*fetches):
    return [getattr(fetch, 'op', fetch).name for fetch in fetches]


def test_rows_that_a_run_names_are_marked_in_the_same_run(variable):
    written, watch = watched(variable)
    write = tf.scatter_add(variable, tf.constant([3, 7]), tf.ones([2, 2]))
    noting = written.of_run(names(write))
    assert len(noting.targets) == 1
    with noting.noted():
        assert watch.whole == set()
    with tf.Session() as session:
        marks = watch.watched['key'].marks
        session.run([variable.initializer, marks.initializer])
        session.run(noting.targets)
        assert marks.touched(session).tolist() == [3, 7]
        # The mark has waited for the write.
        assert session.run(variable)[:, 0].nonzero()[0].tolist() == [3, 7]


def test_a_kernel_that_writes_a_table_and_its_slot_marks_the_rows_of_both_once(variable):
    written, watch = watched(variable)
    optimizer = tf.train.AdagradOptimizer(0.1)
    rows = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([3, 7]), tf.constant([ROWS, 2]))
    update = optimizer.apply_gradients([(rows, variable)])
    slot = optimizer.get_slot(variable, 'accumulator')
    watch.watched['slot'] = Watched(slot, watch.watched['key'].marks)
    noting = written.of_run(names(update))
    assert len(noting.targets) == 1
    assert [marking.by_rows for marking in noting.markings] == [{'key', 'slot'}]


def test_after_any_other_write_all_rows_count_as_written(variable):
    written, watch = watched(variable)
    for write in (
        tf.assign(variable, tf.ones([ROWS, 2])),
        tf.scatter_nd_update(variable, [[1, 0]], [5.0]),
    ):
        noting = written.of_run(names(write))
        assert noting.targets == []
        with noting.noted():
            assert watch.begin() == {'key'}


def test_a_variable_without_marks_is_written_as_a_whole(variable):
    written, watch = watched(variable, marked=False)
    write = tf.scatter_add(variable, tf.constant([3]), tf.ones([1, 2]))
    with written.of_run(names(write)).noted():
        assert watch.begin() == {'key'} and watch.whole == set()


def test_a_run_that_fails_or_is_not_marked_may_have_written_any_row(variable):
    written, watch = watched(variable)
    noting = written.of_run(names(tf.scatter_add(variable, tf.constant([3]), tf.ones([1, 2]))))
    with pytest.raises(KeyError), noting.noted():
        raise KeyError
    assert watch.begin() == {'key'}
    with noting.noted(marked=False):
        assert watch.begin() == {'key'}


def test_nothing_is_noted_of_what_only_reads_nor_when_nobody_watches(variable):
    written, watch = watched(variable)
    write = tf.assign(variable, tf.ones([ROWS, 2]))
    assert written.of_run(names(variable * 2.0)).markings == []
    before = written.version
    written.remove(watch)
    assert written.version != before
    assert written.of_run(names(write)).markings == []


def test_what_is_built_after_a_run_is_looked_at_too(variable):
    written, _ = watched(variable)
    group = tf.no_op('group')
    assert written.of_run(['group']).markings == []
    other = tf.assign(variable, tf.ones([ROWS, 2])).op
    tensorflow_api.add_control_inputs(group, [other])
    assert [one.whole for one in written.of_run(['group']).markings] == [{'key'}]
