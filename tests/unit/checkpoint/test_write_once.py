# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is written already, and what may have changed since."""

from types import SimpleNamespace

import h5py
import pytest
from frameworks import tf

from keras_parallax.checkpoint.write_once import Note, digest_of, identity, is_written
from keras_parallax.engine.failures.diagnosis import Progress
from keras_parallax.engine.session.variable_changes import Changes, changes_variables

NOTE = Note(['model', True], [0, 7, 2, 1], 0, 'aa', [1, 2, 3, 4])


def asked(note=NOTE, rank=1, own='aa', **others):
    arguments = dict({'content': note.content, 'point': note.point, 'file': note.file}, **others)
    return is_written(note, rank=rank, own=lambda: own, **arguments)


def test_what_a_lower_rank_has_written_at_this_point_is_written():
    assert asked() and asked(own='bb') and asked(rank=0)


@pytest.mark.parametrize(
    'others',
    [
        {'content': ['model', False]},
        {'content': ['weights']},
        {'point': [0, 8, 2, 1]},
        {'point': [0, 7, 3, 1]},
        {'point': [0, 7, 2, 2]},
        {'point': [1, 7, 2, 1]},
        {'point': None},
        {'file': [1, 2, 3, 5]},
        {'file': None},
    ],
)
def test_something_else_is_not(others):
    assert not asked(**others)


def test_a_rank_leaves_what_a_lower_rank_has_written_after_changes_of_its_own():
    assert asked(point=[0, 7, 2, 0])
    assert not asked(point=[0, 7, 2, 0], rank=0) and not asked(point=[0, 6, 2, 0])
    assert not asked(NOTE._replace(rank=2), point=[0, 7, 2, 0])
    assert not asked(NOTE._replace(point=None), point=[0, 7, 2, 0])


def test_what_a_higher_rank_has_written_is_written_if_both_have_the_same():
    note = NOTE._replace(rank=2)
    assert asked(note, own='aa') and not asked(note, own='bb')
    assert not asked(note._replace(own=None), own=None)
    assert not is_written(None, [], [], 0, [1], lambda: None)


@pytest.fixture
def job():
    return SimpleNamespace(activity=SimpleNamespace(progress=Progress()))


def test_changes_are_counted_from_the_last_step_on(job):
    changes = Changes(job)
    start = changes.point
    changes.note()
    changed = changes.point
    job.activity.progress = job.activity.progress._replace(steps=1)
    stepped = changes.point
    changes.note()
    changes.note()
    twice = changes.point
    job.activity.progress = job.activity.progress._replace(gathers=5)
    assert [point[1:] for point in (start, changed, stepped, twice, changes.point)] == [
        [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 2], [1, 5, 2],
    ]  # fmt: skip
    assert Changes(job).point[0] != changes.point[0]
    assert changes.since_step == 2
    changes.settle()
    assert changes.since_step == 0 and changes.point[1:] == [1, 5, 0]


@pytest.mark.parametrize('use_resource', [False, True], ids=['reference', 'resource'])
def test_only_what_writes_is_a_change(use_resource, job):
    with tf.Graph().as_default() as graph:
        table = tf.get_variable('table', [4, 2], use_resource=use_resource)
        ids = tf.placeholder(tf.int32, [None], 'ids')
        rows = tf.identity(tf.gather(table, ids), 'rows')
        gradient = tf.gradients(rows, table)[0]
        reads = [rows, [rows, {'a': ids}], 'rows:0', gradient.values, table, []]
        writes = [
            table.assign(table * 2),
            tf.scatter_update(table, ids, rows),
            tf.group(table.initializer),
            tf.train.AdamOptimizer().minimize(rows),
            tf.train.GradientDescentOptimizer(0.1).minimize(rows),
            tf.train.AdagradOptimizer(0.1).minimize(rows).name,
            [rows, tf.assign_add(table, table)],
            tf.py_func(lambda: 1.0, [], tf.float32),
            object(),
        ]
        changes = Changes(job)
        for fetches in reads * 2:
            changes.note_run(graph, fetches)
            assert changes.point[-1] == 0, fetches
        for number, fetches in enumerate(writes * 2, 1):
            changes.note_run(graph, fetches)
            assert changes.point[-1] == number, fetches
        assert changes_variables(graph, [table.initializer])


def test_a_file_is_known_until_it_is_changed_or_replaced(tmpdir):
    path = tmpdir.join('file')
    assert identity(str(path)) is None
    path.write('one')
    first = identity(str(path))
    assert identity(str(path)) == first
    path.write('two, longer')
    assert identity(str(path)) != first


def test_files_of_equal_content_have_one_digest(tmpdir):
    def digest(name, value=1.0, attribute='a', dataset='d'):
        with h5py.File(str(tmpdir.join(name)), 'w') as file:
            group = file.create_group('g')
            group.create_dataset(dataset, data=[value, 2.0])
            group.attrs['names'] = [b'x', b'y']
            file.attrs['config'] = attribute
            return digest_of(file)

    first = digest('first.h5')
    assert digest('second.h5') == first
    assert (
        len({first, digest('a', value=3.0), digest('b', attribute='b'), digest('c', dataset='e')})
        == 4
    )
