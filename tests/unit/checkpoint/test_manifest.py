# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints as files: whole or not there, and told from damaged ones."""

import json
import os

import pytest

from keras_parallax.checkpoint import manifest as manifest_module
from keras_parallax.errors import CheckpointError


def names(folder):
    return sorted(os.listdir(str(folder)))


def save(folder, save_id, text='rows'):
    parts = []
    for number in range(2):
        path = folder.join('%s-part-%d.h5' % (save_id, number))
        path.write('%s %d' % (text, number))
        parts.append(manifest_module.describe_part(str(path)))
    manifest = manifest_module.Manifest(
        save_id, tuple(parts), {'a/b:0': {'shape': [2]}}, parts[0].name
    )
    manifest_module.write_manifest(str(folder), manifest)
    return manifest


FIRST, SECOND = '0' * 16, '0123456789abcdef'


def test_a_manifest_reads_as_it_was_written(tmpdir):
    manifest = save(tmpdir, FIRST)
    assert manifest_module.read_manifest(str(tmpdir)) == manifest


def test_a_second_save_takes_the_place_of_the_first(tmpdir):
    tmpdir.join('notes.txt').write('of the user')
    save(tmpdir, FIRST)
    manifest = save(tmpdir, SECOND, 'others')
    assert manifest_module.read_manifest(str(tmpdir)) == manifest
    assert len(names(tmpdir)) == 4 and 'notes.txt' in names(tmpdir)


def test_parts_of_a_save_that_was_interrupted_do_no_harm(tmpdir):
    manifest = save(tmpdir, FIRST)
    tmpdir.join(SECOND + '-part-0.h5').write('half')
    assert manifest_module.read_manifest(str(tmpdir)) == manifest


def cut_short(folder):
    path = folder.join(FIRST + '-part-1.h5')
    path.write(path.read()[:-1])


def changed(folder):
    path = folder.join(FIRST + '-part-1.h5')
    path.write(path.read().replace('rows', 'cows'))


def exchanged(folder):
    other = folder.join(FIRST + '-part-0.h5')
    folder.join(FIRST + '-part-1.h5').write(other.read())


def removed(folder):
    folder.join(FIRST + '-part-1.h5').remove()


@pytest.mark.parametrize('damage', [cut_short, changed, exchanged, removed])
def test_a_damaged_part_is_refused_by_name(damage, tmpdir):
    save(tmpdir, FIRST)
    damage(tmpdir)
    with pytest.raises(CheckpointError, match=FIRST + '-part-1.h5'):
        manifest_module.read_manifest(str(tmpdir))


@pytest.mark.parametrize('text', ['', '{', '[]', '{"format": 1}', json.dumps({'format': 99})])
def test_a_damaged_or_later_manifest_is_refused_by_name(text, tmpdir):
    save(tmpdir, FIRST)
    tmpdir.join('manifest.json').write(text)
    with pytest.raises(CheckpointError, match='manifest.json'):
        manifest_module.read_manifest(str(tmpdir))


def test_a_folder_without_a_manifest_is_no_checkpoint(tmpdir):
    with pytest.raises(CheckpointError, match='no complete checkpoint'):
        manifest_module.read_manifest(str(tmpdir))


def test_saves_are_found_by_their_pattern_oldest_first(tmpdir):
    for age, name in enumerate(['b-01.h5', 'b-03.h5', 'b-02.h5', 'c-01.h5', 'b-[1].h5']):
        tmpdir.join(name).write('')
        os.utime(str(tmpdir.join(name)), (100 + age, 100 + age))
    found = manifest_module.saved_under(str(tmpdir.join('b-{epoch:02d}.h5')))
    assert [os.path.basename(path) for path in found] == [
        'b-01.h5', 'b-03.h5', 'b-02.h5', 'b-[1].h5',
    ]  # fmt: skip
    assert manifest_module.saved_under(str(tmpdir.join('b-[1].h5'))) == [
        str(tmpdir.join('b-[1].h5'))
    ]
