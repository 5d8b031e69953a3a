# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a job saves: Keras's own files, from which plain Keras and jobs of any size go on."""

import json
import os
import shutil

import cases
import h5py
import launch
import numpy as np
import pytest
import saved
from frameworks import KERAS_PACKAGES

from keras_parallax.checkpoint import optimizer_options

PACKAGES = KERAS_PACKAGES
TOLERANCE = 1e-5
#: What tests without a case of their own look at: cases, and ways to go on.
OF_ALL = ('adagrad', 'adam', (3, 'adam', 'parts'), (3, 'adam', 'single.h5'))


class Jobs:
    """The folder in which jobs and plain processes have saved and gone on, as tests ask for it."""

    def __init__(self, package, folder, asked):
        self.folder = folder
        names = [name for name in saved.CASES if name in OF_ALL or name in asked]
        self.outcomes = [
            launch.run(saved.RANKS, 'parallel/saving_worker.py', folder, package, 'save', *names),
            launch.run(0, 'parallel/plain_saving_worker.py', folder, package, *names),
        ]
        damage(folder)
        for size, pairs in saved.RESUMED.items():
            pairs = [pair for pair in pairs if (size, *pair) in asked or (size, *pair) in OF_ALL]
            script = 'parallel/saving_worker.py'
            self.outcomes.append(
                launch.run(size, script, folder, package, 'resume', *map(':'.join, pairs))
            )

    def path(self, name):
        return os.path.join(self.folder, name)

    def results(self, name, rank=0):
        path = os.path.join(self.folder, 'results', name, '%d.npz' % rank)
        assert os.path.exists(path), '\n'.join(outcome.output[-3000:] for outcome in self.outcomes)
        return np.load(path)


def damage(folder):
    """Makes checkpoints that are cut short, mixed up or empty."""
    if not os.path.exists(os.path.join(folder, 'adam.parts')):
        return
    with open(os.path.join(folder, 'adam.h5'), 'rb') as file:
        whole = file.read()
    with open(os.path.join(folder, 'cut.h5'), 'wb') as file:
        file.write(whole[: len(whole) // 2])
    for name in ('cut', 'mixed'):
        shutil.copytree(os.path.join(folder, 'adam.parts'), os.path.join(folder, name + '.parts'))
    with open(part_of(os.path.join(folder, 'cut.parts')), 'r+b') as file:
        file.truncate(1000)
    shutil.copy(
        part_of(os.path.join(folder, 'adagrad.parts')), part_of(os.path.join(folder, 'mixed.parts'))
    )
    os.makedirs(os.path.join(folder, 'empty.parts'))


def part_of(folder):
    """The part of rank 1."""
    (name,) = [name for name in os.listdir(folder) if 'rank-00001' in name]
    return os.path.join(folder, name)


@pytest.fixture(scope='module', params=PACKAGES)
def jobs(request, tmpdir_factory):
    asked = set()
    for item in request.session.items:
        params = item.callspec.params if hasattr(item, 'callspec') else {}
        if item.module is request.module and params.get('jobs') == request.param:
            asked.update([params.get('name'), tuple(map(params.get, ('size', 'name', 'form')))])
    return Jobs(request.param, str(tmpdir_factory.mktemp('saving')), asked)


def arrays(results, prefix='arr_'):
    return [results['%s%d' % (prefix, n)] for n in range(99) if '%s%d' % (prefix, n) in results]


def assert_close(found, expected):
    assert len(found) == len(expected) > 2
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        # Slots of Adam are small: the second one holds squares of gradients.
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * np.abs(other).max())


def layout(path):
    """Everything in a file but the numbers, and the numbers."""
    found, numbers = {}, {}

    def visit(name, node):
        found[name] = {key: np.asarray(value).tolist() for key, value in node.attrs.items()}
        if isinstance(node, h5py.Dataset):
            found[name]['dataset'] = node.shape, node.dtype, node.chunks
            numbers[name] = node[()]

    with h5py.File(path, 'r') as file:
        visit('/', file)
        file.visititems(visit)
    return found, numbers


@pytest.mark.parametrize('name', saved.OF_KERAS)
def test_a_job_writes_the_file_that_plain_keras_writes(jobs, name):
    ours, our_numbers = layout(jobs.path(name + '.h5'))
    plain, plain_numbers = layout(jobs.path(name + '.plain.h5'))
    # Besides, it has the options that are not the defaults.
    options = ours['/'].pop(optimizer_options.OPTIONS, '{}')
    assert ours == plain and json.loads(options) == saved.CASES[name]
    names = sorted(plain_numbers)
    if name in saved.EXACT:
        assert_close([our_numbers[one] for one in names], [plain_numbers[one] for one in names])


@pytest.mark.parametrize('name', saved.CASES)
def test_the_configuration_of_a_model_is_that_of_plain_keras(jobs, name):
    found = []
    for ending in ('json', 'plain.json'):
        with open(jobs.path('%s.%s' % (name, ending))) as file:
            found.append(json.load(file))
    assert found[0] == found[1] and found[0]['config']


def test_one_rank_alone_loads_weights_by_name(jobs):
    _, expected = layout(jobs.path('adam.weights.h5'))
    table = next(value for name, value in expected.items() if 'embeddings' in name)
    found = arrays(jobs.results('refused', 2), 'loaded.')
    # The table is the whole job's; what is dense, rank 0 has for itself until it is broadcast.
    np.testing.assert_array_equal(found[0], table)
    by_shape = {value.shape: value for value in expected.values()}
    for one in arrays(jobs.results('refused'), 'loaded.'):
        np.testing.assert_array_equal(one, by_shape[one.shape])


@pytest.mark.parametrize('name', saved.CASES)
def test_every_way_to_save_writes_the_same_file(jobs, name):
    layouts, numbers = layout(jobs.path(name + '.h5'))
    for form in ('callback', 'single', 'alone'):
        other, other_numbers = layout(jobs.path('%s.%s.h5' % (name, form)))
        for extra in ('keras_parallax', 'keras_parallax/state', 'keras_parallax/order'):
            assert (other.pop(extra, None) is None) == (form == 'callback')
            other_numbers.pop(extra, None)
        assert other == layouts
        for one, value in other_numbers.items():
            np.testing.assert_array_equal(value, numbers[one])


def test_weights_alone_are_those_of_the_model(jobs):
    layouts, numbers = layout(jobs.path('adam.h5'))
    _, weights = layout(jobs.path('adam.weights.h5'))
    assert len(weights) == len([name for name in numbers if name.startswith('model_weights/')])
    for name, value in weights.items():
        np.testing.assert_array_equal(value, numbers['model_weights/' + name])


@pytest.mark.parametrize('name', saved.EXACT)
def test_plain_keras_trains_on_from_a_file_of_a_job(jobs, name):
    half, end = (arrays(jobs.results('plain/%s/%s' % (when, name))) for when in ('half', 'end'))
    assert_close(arrays(jobs.results('loaded/half/' + name)), half)
    # Keras 2.2.4 does not save Nadam's schedule.
    if name != 'nadam':
        assert_close(arrays(jobs.results('loaded/end/' + name)), end)
    assert not np.array_equal(half[0], end[0])


@pytest.mark.parametrize(
    'size, name, form', [(size, *pair) for size, pairs in saved.RESUMED.items() for pair in pairs]
)
def test_a_job_of_another_size_goes_on_as_if_it_had_not_been_broken_off(jobs, size, name, form):
    unbroken = arrays(jobs.results('unbroken/' + name))
    for rank in range(size):
        found = jobs.results('resumed/%d/%s.%s' % (size, name, form), rank)
        assert_close(arrays(found), unbroken)
        assert found['epoch'] == 1
    if name in saved.EXACT:
        assert_close(unbroken, arrays(jobs.results('plain/end/' + name)))
    assert not np.array_equal(arrays(found, 'loaded.')[0], unbroken[0])


def test_the_random_state_goes_on_where_it_was(jobs):
    for rank in range(saved.RANKS):
        expected = jobs.results('unbroken/adam', rank)['next_random']
        found = jobs.results('resumed/3/adam.parts', rank)['next_random']
        np.testing.assert_array_equal(found, expected)
    # Of a single file, that of rank 0.
    expected = jobs.results('unbroken/adam')['next_random']
    found = jobs.results('resumed/3/adam.single.h5')['next_random']
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    'name, told',
    [
        ('cut.h5', ['cut.h5', 'cut short']),
        ('cut.parts', ['cut.parts', 'rank-00001', 'cut short']),
        ('mixed.parts', ['mixed.parts', 'rank-00001', 'another save']),
        ('empty.parts', ['empty.parts', 'no complete checkpoint']),
        ('missing.h5', ['missing.h5']),
        ('optimizer', ['adagrad.h5', 'Adagrad', 'compiled with Adam']),
        ('no model', ['adam.weights.h5', 'only weights']),
    ],
)
def test_what_cannot_be_loaded_is_refused_on_every_rank_by_name(jobs, name, told):
    for rank in range(3):
        error = str(jobs.results('refused', rank)[name])
        assert error.startswith('CheckpointError: '), error
        for words in told:
            assert words in error


def test_a_refused_checkpoint_changes_nothing_and_training_goes_on(jobs):
    for rank in range(3):
        found = jobs.results('refused', rank)
        assert found['same']
        assert str(found['weights']).startswith('ScopeError: ')
        assert str(found['shape']).startswith('ValueError: '), str(found['shape'])
        assert_close(arrays(found), arrays(jobs.results('plain/end/adam')))


def test_every_job_ends_well(jobs):
    for outcome in jobs.outcomes:
        assert outcome.code == 0, outcome.output[-5000:]


def test_tables_larger_than_a_block_take_less_than_a_block_of_memory(tmpdir):
    table, block = 96, 24  # MiB; the table has a slot of its size, too.
    outcome = launch.run(2, 'parallel/memory_worker.py', tmpdir, PACKAGES[0], table, block)
    assert outcome.code == 0, outcome.output[-5000:]
    for rank, names in enumerate([('save', 'load weights'), ()]):
        found = json.loads(tmpdir.join('%d.json' % rank).read())
        for name in names + ('save parts', 'load', 'load parts'):
            assert found[name]['bytes'] < block * 2**20, name
            assert found[name].get('right', True), name
    assert json.loads(tmpdir.join('0.json').read())['file'] > 2 * table * 2**20
    for bar in ('saving: 100%', 'loading table/embeddings:0: 100%'):
        assert bar in outcome.output


assert set(saved.CASES) <= set(cases.CASES)
