# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Chains of a base and deltas as files: when a base is written, and what a kill leaves."""

import json
import os

import pytest

from keras_parallax.checkpoint import delta_chain as chain_module
from keras_parallax.checkpoint import manifest as manifest_module
from keras_parallax.checkpoint.delta_chain import Chain, Limits
from keras_parallax.checkpoint.manifest import Manifest
from keras_parallax.errors import CheckpointError

#: Names of saves: a base, two deltas, another base.
BASE, FIRST, SECOND, OTHER = (16 * digit for digit in '0123')
CHAIN = Chain('folder', BASE, 1000, (300, 300))


@pytest.mark.parametrize(
    'next_bytes, limits, expected',
    [
        (399, Limits(), True),
        (400, Limits(), False),
        (1, Limits(deltas=2), False),
        (1, Limits(deltas=3), True),
        (100, Limits(bytes=700), False),
        (999, Limits(bytes=10000), True),
        (1000, Limits(bytes=10000), False),
    ],
)
def test_a_base_comes_after_so_many_deltas_or_bytes(next_bytes, limits, expected):
    assert CHAIN.takes(next_bytes, limits) is expected


def write_parts(folder, save_id):
    """A part with rows and one with the rest, as a save leaves them before its manifest."""
    parts = []
    for name in ('model', 'rank-00000-of-00001'):
        path = folder.join('%s-%s.h5' % (save_id, name))
        path.write('%s of %s' % (name, save_id))
        parts.append(manifest_module.describe_part(str(path)))
    return parts


def base(folder, save_id):
    model, rows = write_parts(folder, save_id)
    tables = {'/table': {'shape': [4, 2], 'shards': [[rows.name, '/table/0']]}}
    return Manifest(save_id, (model, rows), tables, model.name)


def delta(folder, manifest, save_id):
    model, rows = write_parts(folder, save_id)
    changed = {'/table': [[0, rows.name, '/table/0', '/rows/0']]}
    return chain_module.with_delta(manifest, save_id, (model, rows), changed, model.name)


def save_chain(folder):
    """A folder with a base and two deltas, saved one after the other; the last manifest."""
    manifest = base(folder, BASE)
    manifest_module.write_manifest(str(folder), manifest)
    for save_id in (FIRST, SECOND):
        manifest = delta(folder, manifest, save_id)
        manifest_module.write_manifest(str(folder), manifest)
    return manifest


def read(folder):
    return manifest_module.read_manifest(str(folder))


def names(folder):
    return sorted(path.basename for path in folder.listdir() if path.basename[0] in '0123')


def test_a_delta_keeps_what_has_rows_and_has_the_rest_itself(tmpdir):
    manifest = save_chain(tmpdir)
    assert read(tmpdir) == manifest
    assert manifest.saves == [BASE, FIRST, SECOND]
    rows = [save_id + '-rank-00000-of-00001.h5' for save_id in (BASE, FIRST, SECOND)]
    assert names(tmpdir) == sorted(rows + [SECOND + '-model.h5'])
    assert [part.name for part in manifest.newest_parts] == [SECOND + '-model.h5', rows[-1]]


def test_a_kill_before_the_manifest_of_a_delta_leaves_the_save_before_it(tmpdir):
    manifest = base(tmpdir, BASE)
    manifest_module.write_manifest(str(tmpdir), manifest)
    delta(tmpdir, manifest, FIRST)
    assert read(tmpdir) == manifest
    # The next save, of a process that knows nothing of it, takes what was left away.
    after = delta(tmpdir, manifest, SECOND)
    manifest_module.write_manifest(str(tmpdir), after)
    assert read(tmpdir) == after and not [name for name in names(tmpdir) if FIRST in name]


@pytest.mark.parametrize('is_complete', [False, True])
def test_a_kill_within_a_new_base_leaves_the_chain_or_the_base(is_complete, tmpdir):
    chain = save_chain(tmpdir)
    old = {name: tmpdir.join(name).read() for name in names(tmpdir)}
    manifest = base(tmpdir, OTHER)
    if is_complete:
        manifest_module.write_manifest(str(tmpdir), manifest)
        for name, text in old.items():
            tmpdir.join(name).write(text)  # As before they are removed.
    assert read(tmpdir) == (manifest if is_complete else chain)
    manifest_module.write_manifest(str(tmpdir), manifest)
    assert len(names(tmpdir)) == 2


def test_a_folder_of_another_name_has_all_of_the_chain_and_needs_no_other(tmpdir):
    before, after = tmpdir.mkdir('1'), tmpdir.mkdir('2')
    manifest = base(before, BASE)
    manifest_module.write_manifest(str(before), manifest)
    # Left by a save to that folder that was broken off.
    after.join(BASE + '-rank-00000-of-00001.h5').write('half')
    for _ in range(2):
        manifest_module.link_parts(chain_module.kept_parts(manifest), str(before), str(after))
    manifest_module.write_manifest(str(after), delta(after, manifest, FIRST))
    part = after.join(BASE + '-rank-00000-of-00001.h5')
    assert part.samefile(str(before.join(part.basename)))
    manifest_module.remove_sharded(str(before))
    assert not before.exists() and read(after).saves == [BASE, FIRST]


@pytest.mark.parametrize(
    'save_id, role', [(BASE, 'the base on which 2 deltas build'), (FIRST, 'delta 1 of 2')]
)
def test_a_part_of_the_chain_that_is_gone_or_changed_is_named(save_id, role, tmpdir):
    save_chain(tmpdir)
    part = tmpdir.join(save_id + '-rank-00000-of-00001.h5')
    part.write(part.read().replace('rank', 'bank'))
    with pytest.raises(CheckpointError, match=part.basename + '.*' + role + '.*checksum'):
        read(tmpdir)
    part.remove()
    with pytest.raises(CheckpointError, match=part.basename + '.*' + role + '.*is missing'):
        read(tmpdir)


def of_another_chain(data):
    data['deltas'][0]['after'] = OTHER


def without_the_first_delta(data):
    del data['deltas'][0]


def with_a_part_of_another_save(data):
    data['parts'][0]['name'] = OTHER + '-model.h5'


@pytest.mark.parametrize(
    'change', [of_another_chain, without_the_first_delta, with_a_part_of_another_save]
)
def test_files_of_different_chains_are_not_taken_for_one(change, tmpdir):
    save_chain(tmpdir)
    path = os.path.join(str(tmpdir), manifest_module.MANIFEST)
    with open(path) as file:
        data = json.load(file)
    change(data)
    with open(path, 'w') as file:
        json.dump(data, file)
    with pytest.raises(CheckpointError, match='manifest.json puts together.*earlier checkpoint'):
        read(tmpdir)
