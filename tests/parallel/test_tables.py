# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts that read and write tables in their own ways see plain Keras's values on every worker."""

import os

import h5py
import launch
import numpy as np
import pytest
import selected
from frameworks import KERAS_PACKAGES, keras_module

RANKS = 2
#: Names of values that are the same as plain Keras's, by the script that has them.
COMPARED = ('reads', 'savers', 'writes', 'word2vec')
OTHERS = (
    'refused', 'threads', 'own_variable', 'set_weights', 'own_writes', 'noise', 'alone',
    'narrow', 'narrow_by', 'narrow_refused',
)  # fmt: skip
#: Scripts in which tables move.
MOVED = ('moved:auto_400_adam', 'moved:search_adam')


@pytest.fixture(scope='module', params=KERAS_PACKAGES[:1])
def job(request, tmp_path_factory):
    """A function from a script's name to the results of both workers; one job runs all."""
    folder = str(tmp_path_factory.mktemp('tables'))
    outcome = launch.run(
        RANKS,
        'parallel/tables_worker.py',
        request.param,
        folder,
        *selected.cases_of(request, COMPARED + OTHERS + MOVED + ('ended',)),
        environ={'KERAS_PARALLAX_CACHE': folder},
    )

    def results(script):
        if script is None:
            return folder
        paths = [os.path.join(folder, '%s.%d.npz' % (script, rank)) for rank in range(RANKS)]
        assert all(map(os.path.exists, paths)), outcome.output[-8000:]
        return [np.load(path) for path in paths]

    return results


def compare(results, names=None):
    """Compares what a script has read with plain Keras's, and returns the names."""
    compared = []
    for ours in results:
        for key in ours.files:
            kind, _, name = key.partition('.')
            if kind != 'plain' or (names and name not in names):
                continue
            expected, value = ours[key], ours['ours.' + name]
            assert value.shape == expected.shape, name
            if expected.dtype.kind == 'S':
                assert value.tolist() == expected.tolist() or name.endswith('summary'), name
            else:
                scale = np.abs(expected).max()
                np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5 * scale, err_msg=name)
            compared.append(name)
    return compared


@pytest.mark.parametrize('script', COMPARED)
def test_every_way_to_read_or_write_a_table_gives_plain_kerass_values(job, script):
    assert len(compare(job(script))) >= 4


@pytest.mark.parametrize('script', MOVED)
def test_what_was_made_of_a_table_follows_it_to_other_shards_and_back(job, script):
    results = job(script)
    assert len(compare(results)) >= 12
    if 'auto' in script:
        # On every worker once its density is measured, and back on shards when hybrid is tried.
        for begin, kind in ((10, 'dense'), (20, 'sparse')):
            planned = str(results[0]['ours.planned.%d' % begin])
            assert "kind='%s'" % kind in planned, planned


def test_weights_that_are_set_between_two_fits_are_those_that_train_on(job):
    assert compare(job('set_weights')) == ['end', 'end']


def test_what_a_rank_reads_before_a_write_of_all_ranks_no_faster_rank_has_written(job):
    assert len(compare(job('own_writes'))) == RANKS * 5 * RANKS


def test_of_different_values_that_ranks_give_a_table_those_of_rank_0_count(job):
    assert compare(job('noise')) == ['noisy', 'noisy']


def test_one_rank_may_write_alone_while_another_waits_for_it_in_a_step_or_a_call(job):
    assert len(compare(job('alone'), ['called', 'trained'])) == 2 * RANKS
    assert compare(job('alone')[:1], ['written', 'loaded']) == ['written', 'loaded']


def test_one_rank_may_write_alone_when_the_other_has_ended(job):
    assert compare(job('ended')[:1]) == ['end']


def test_a_write_that_shards_cannot_take_is_refused_with_a_sentence(job):
    for results in job('refused'):
        row, in_step = str(results['ours.row']), str(results['ours.in the step'])
        assert row.startswith('ParallaxError: The operation '), row
        assert 'would write to table' in row and 'ScatterNdUpdate' in row
        assert in_step.startswith('ParallaxError: The training step runs '), in_step
        assert str(results['plain.row']) == 'nothing was raised'


def test_a_thread_that_reads_a_table_while_a_save_runs_gets_all_of_it(job):
    for results in job('threads'):
        assert results['ours.errors'].tolist() == []
        assert results['ours.seen'].tolist() == results['plain.seen'].tolist() == ['(23, 4)']


def test_rows_of_16_bits_train_as_plain_kerass_that_are_rounded_by_the_same_noise(job):
    for ours in job('narrow'):
        for half in ('half', 'end'):
            for table in ('table', 'limited'):
                found, expected = (
                    ours['%s.%s.%s' % (kind, half, table)] for kind in ('ours', 'plain')
                )
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found, found.astype(np.float16))
                # Gradients of two workers sum up otherwise, which may round a number the other way.
                last_bit = np.spacing(np.abs(expected).max().astype(np.float16))
                np.testing.assert_allclose(found, expected, rtol=0, atol=2 * last_bit)
                assert np.mean(found == expected) > 0.9
        np.testing.assert_allclose(ours['ours.penalty'], ours['plain.penalty'], rtol=1e-4)
        np.testing.assert_array_equal(job('narrow')[0]['ours.end.table'], ours['ours.end.table'])


def test_rows_of_16_bits_follow_whichever_optimizer_moves_them_one_by_one(job):
    for ours in job('narrow_by'):
        names = [key.partition('.end.')[2] for key in ours.files if key.startswith('ours.end.')]
        assert len(names) >= 3
        for name in names:
            found, expected = ours['ours.end.' + name], ours['plain.end.' + name]
            np.testing.assert_array_equal(found, found.astype(np.float16))
            # Each of four steps rounds to a neighbour; all together moved much further.
            last_bit = np.spacing(np.abs(expected).max().astype(np.float16))
            np.testing.assert_allclose(found, expected, rtol=0, atol=4 * last_bit, err_msg=name)
            assert np.abs(ours['plain.moved.' + name]).max() > 15 * last_bit, name


def test_whatever_reads_or_writes_rows_of_16_bits_has_them_in_32_and_servers_hold_half(job):
    for ours in job('narrow'):
        assert not ours['ours.looked up'].any() and not ours['ours.whole'].any()
        expected = ours['ours.end.table'].astype(np.float16)
        expected[[4, 7]] += np.float16(0.25)
        np.testing.assert_array_equal(ours['ours.written'], expected - np.float16(0.5))
        assert ours['ours.bytes'] == ours['ours.end.table'].nbytes / 2
        assert ours['ours.slots'].tolist() == ['float32', 'float32']
        assert str(ours['ours.summary']).endswith(', rows of 16 bits')


def test_a_file_of_rows_of_16_bits_has_32_and_loads_in_plain_keras(job):
    ours = job('narrow')[0]
    path = os.path.join(job(None), 'narrow.h5')
    with h5py.File(path, 'r') as file:
        dtypes = []
        file.visititems(lambda _, one: dtypes.append(getattr(one, 'dtype', np.float32)))
    assert set(map(np.dtype, dtypes)) <= {np.dtype('float32'), np.dtype('int64')}
    keras = keras_module(KERAS_PACKAGES[0])
    keras.backend.clear_session()  # Another test of this process may have left its session there.
    (loaded,) = keras.models.load_model(path).get_layer('table').get_weights()
    np.testing.assert_array_equal(loaded, ours['ours.end.table'])


def test_rows_of_16_bits_that_are_not_moved_one_by_one_are_refused(job):
    for ours in job('narrow_refused'):
        assert 'PlanError: row_dtype=' in str(ours['ours.rule']), ours['ours.rule']
        assert 'one of kp.optimizers' in str(ours['ours.rule'])
        assert 'is the table of a DynamicEmbedding, which does not go' in str(ours['ours.ids'])


def test_an_id_outside_a_table_that_was_made_without_add_weight_is_told(job):
    results = job('own_variable')
    assert compare(results, ['end']) == ['end', 'end']
    for number, rank in enumerate(results):
        told = str(rank['ours.bad'])
        assert told.startswith('IdOutOfRangeError: Rank %d: id 23 was looked up, but the' % number)
        assert 'own_table has 23 rows' in told
