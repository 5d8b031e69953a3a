# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The choices that `partitions='search'` keeps: for the next job, and no reason to end this one."""

import multiprocessing
import os

import pytest

from keras_parallax.tuning import partition_search
from keras_parallax.tuning.partition_search import remember, remembered

KEY = 'a' * 64


@pytest.fixture(autouse=True)
def folder(tmpdir, monkeypatch):
    monkeypatch.setenv(partition_search.FOLDER_VARIABLE, str(tmpdir.join('cache')))
    return tmpdir.join('cache', 'partitions')


def test_a_choice_is_remembered(folder, recwarn):
    assert remembered(KEY, 10) is None
    remember(KEY, 7)
    remember('b' * 64, 3)
    assert remembered(KEY, 10) == 7
    assert len(folder.listdir()) == 2 and not recwarn


@pytest.mark.parametrize(
    'text', ['', '{"sha', '[]', '7', 'null', '{}', '{"shards": null}', '{"shards": "7"}',
             '{"shards": 0}', '{"shards": -1}', '{"shards": 11}', '{"shards": true}',
             '{"shards": 2.5}', b'\xff\xfe\x00']
)  # fmt: skip
def test_a_damaged_choice_is_measured_again_with_a_warning(folder, text):
    remember(KEY, 7)
    folder.join(KEY + '.json').write(text, 'wb' if isinstance(text, bytes) else 'w')
    with pytest.warns(UserWarning, match=KEY + '.json is not used'):
        assert remembered(KEY, 10) is None
    remember(KEY, 5)
    assert remembered(KEY, 10) == 5


def test_a_folder_that_cannot_be_written_is_a_warning(tmpdir, folder):
    tmpdir.join('cache').write('in the way')
    with pytest.warns(UserWarning, match='is not kept.*%s' % partition_search.FOLDER_VARIABLE):
        remember(KEY, 7)
    with pytest.warns(UserWarning, match='is not used'):
        assert remembered(KEY, 10) is None


def test_a_full_disk_is_a_warning(folder, monkeypatch):
    remember(KEY, 7)
    path = str(folder.join(KEY + '.json'))
    monkeypatch.setattr(
        os, 'fsync', lambda handle: os.write(os.open('/dev/full', os.O_WRONLY), b'x')
    )
    with pytest.warns(UserWarning, match='is not kept.*No space left'):
        remember(KEY, 5)
    assert remembered(KEY, 10) == 7 and os.listdir(os.path.dirname(path)) == [KEY + '.json']


def test_a_user_without_a_home_gets_a_warning(monkeypatch):
    """As in a container whose user has no entry in the system's list."""
    monkeypatch.delenv(partition_search.FOLDER_VARIABLE)
    monkeypatch.delenv('HOME')
    uid = os.getuid()
    monkeypatch.setattr(os, 'getuid', lambda: uid + 7654321)
    with pytest.warns(UserWarning, match='is not kept'):
        remember(KEY, 7)
    with pytest.warns(UserWarning, match='is not used'):
        assert remembered(KEY, 10) is None


def _remember_often(shards):
    for _ in range(50):
        remember(KEY, shards)


def test_writers_at_the_same_time_leave_a_whole_choice(folder, recwarn):
    processes = [multiprocessing.Process(target=_remember_often, args=[n]) for n in (3, 4)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        assert remembered(KEY, 10) in (None, 3, 4)
    assert [process.exitcode for process in processes] == [0, 0] and not recwarn
    assert remembered(KEY, 10) in (3, 4) and len(folder.listdir()) == 1


def searched(seconds_of, ranks=1):
    """The numbers that a search has changed to, and its report, for a duration by number."""
    counts, reports = [4], []
    search = partition_search.PartitionSearch(
        counts.append, start=4, limits=(1, 100), gather=lambda value: [value] * ranks, key=KEY,
        tell=reports.append,
    )  # fmt: skip
    while search.after_step(seconds_of(counts[-1])):
        assert len(counts) < 20
    return counts, reports


def test_a_search_ends_at_the_fastest_number_and_remembers_it():
    counts, (report,) = searched(lambda count: abs(count - 16) + 10)
    assert counts[0] == 4 and counts[1] != 4 and 8 <= counts[-1] <= 32
    assert 'Chosen: %d shard' % counts[-1] in report
    assert remembered(KEY, 100) == counts[-1]


def test_the_first_steps_after_a_change_do_not_count():
    slow_steps = iter([1000.0] * partition_search.SKIPPED_STEPS)
    steady = searched(lambda count: 1.0 + count)[0]
    assert searched(lambda count: next(slow_steps, 1.0 + count))[0] == steady
