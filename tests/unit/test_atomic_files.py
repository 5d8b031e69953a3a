# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files that appear under their names only when they are complete, however their writer ends."""

import errno
import os
import re
import subprocess
import sys
import time

import pytest

from keras_parallax import atomic_files
from keras_parallax.checkpoint import manifest as manifest_module


def names(folder):
    return sorted(os.listdir(str(folder)))


def test_a_file_appears_under_its_name_only_when_it_is_complete(tmpdir):
    path = tmpdir.join('model.h5')
    with atomic_files.written_aside(str(path)) as aside:
        with open(aside, 'w') as file:
            file.write('new')
        assert not path.exists()
    assert path.read() == 'new' and names(tmpdir) == ['model.h5']


def test_an_error_leaves_the_file_of_before_and_nothing_else(tmpdir):
    path = tmpdir.join('model.h5')
    path.write('old')
    with pytest.raises(RuntimeError), atomic_files.written_aside(str(path)) as aside:
        with open(aside, 'w') as file:
            file.write('half')
        raise RuntimeError
    assert path.read() == 'old' and names(tmpdir) == ['model.h5']


def test_a_saved_file_has_the_rights_of_any_new_file(tmpdir):
    for mask in (0o077, 0o002):
        before = os.umask(mask)
        try:
            other, path = tmpdir.join('%o' % mask), tmpdir.join('model-%o' % mask)
            other.write('')
            with atomic_files.written_aside(str(path)):
                pass
        finally:
            os.umask(before)
        rights = {os.stat(str(file)).st_mode for file in (other, path)}
        assert len(rights) == 1


def test_a_save_does_not_touch_the_umask_which_is_that_of_all_threads(tmpdir, monkeypatch):
    def umask(mask):
        raise AssertionError('set to %o' % mask)

    monkeypatch.setattr(os, 'umask', umask)
    with atomic_files.written_aside(str(tmpdir.join('model.h5'))) as aside:
        assert os.path.exists(aside)
    assert names(tmpdir) == ['model.h5']


def test_folders_on_the_way_are_made(tmpdir):
    with atomic_files.written_aside(str(tmpdir.join('a', 'b', 'model.h5'))):
        pass
    assert names(tmpdir.join('a', 'b')) == ['model.h5']


def test_only_a_full_disk_is_told_to_be_full(tmpdir):
    path = str(tmpdir.join('no', 'such', 'model.h5'))
    full = atomic_files.why_unwritten(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert re.search(r'No space left.*; [1-9]\d* MiB are free', full), full
    other = atomic_files.why_unwritten(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))
    assert 'Permission denied' in other and 'free' not in other


def test_a_file_that_cannot_be_written_says_so_when_it_is_asked():
    # /dev/full takes nothing, as a full disk does.
    with atomic_files.ForgivingFile('/dev/full', 'w+') as file:
        assert file.write(b'rows') == 4 and file.write(b'more') == 4
        with pytest.raises(OSError, match='No space left'):
            file.check()


def test_a_file_that_can_be_written_holds_all_that_was(tmpdir):
    path = tmpdir.join('file')
    with atomic_files.ForgivingFile(str(path), 'w+') as file:
        file.write(b'rows')
        file.check()
    assert path.read() == 'rows'


CHILD = """
import sys
sys.modules['tensorflow'] = None
sys.path.insert(0, sys.argv[1])
import importlib.util, types
package = types.ModuleType('keras_parallax')
package.__path__ = [sys.argv[1] + '/keras_parallax']
sys.modules['keras_parallax'] = package
from keras_parallax import atomic_files as files
print('began', flush=True)
number = 0
while True:
    number += 1
    with files.written_aside(sys.argv[2]) as aside, open(aside, 'w') as file:
        for _ in range(50):
            file.write('%d ' % number * 1000)
            file.flush()
"""


def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_file(tmpdir):
    source = os.path.dirname(os.path.dirname(os.path.abspath(atomic_files.__file__)))
    path = tmpdir.join('file')
    for delay in (0.03, 0.1, 0.2, 0.31):
        process = subprocess.Popen(
            [sys.executable, '-c', CHILD, source, str(path)], stdout=subprocess.PIPE
        )
        process.stdout.readline()
        while not path.exists():
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        process.communicate()
        numbers = path.read().split()
        assert len(numbers) == 50 * 1000 and len(set(numbers)) == 1
    manifest_module.remove_leftovers(str(path))
    assert names(tmpdir) == ['file']
