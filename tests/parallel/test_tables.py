"""Scripts that read and write tables in their own ways see plain Keras's values on every rank."""

import os

import launch
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

RANKS = 2
#: Names of values that are the same as plain Keras's, by the script that has them.
COMPARED = ('reads', 'savers', 'writes', 'word2vec')
OTHERS = ('refused', 'threads', 'own_variable', 'set_weights', 'own_writes', 'noise', 'alone')
#: A script in which tables move, by the package with which it is run: each takes long.
MOVED = {'keras': 'moved:auto_400_adam', 'tf.keras': 'moved:search_adam'}


@pytest.fixture(scope='module', params=KERAS_PACKAGES)
def job(request, tmp_path_factory):
    """A function from the name of a script to the results of both ranks; all run in one job."""
    folder = str(tmp_path_factory.mktemp('tables'))
    outcome = launch.run(
        RANKS,
        'parallel/tables_worker.py',
        request.param,
        folder,
        *COMPARED,
        *OTHERS,
        MOVED[request.param],
        'ended',
        environ={'KERAS_PARALLAX_CACHE': folder},
    )

    def results(script):
        paths = [os.path.join(folder, '%s.%d.npz' % (script, rank)) for rank in range(RANKS)]
        assert all(map(os.path.exists, paths)), outcome.output[-8000:]
        return [np.load(path) for path in paths]

    results.moved = MOVED[request.param]
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


def test_what_was_made_of_a_table_follows_it_to_other_shards_and_back(job):
    results = job(job.moved)
    assert len(compare(results)) >= 12
    if job.moved == MOVED['keras']:
        # On every rank once its density is measured, and back on shards when hybrid is tried.
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


def test_an_id_outside_a_table_that_was_made_without_add_weight_is_told(job):
    results = job('own_variable')
    assert compare(results, ['end']) == ['end', 'end']
    for number, rank in enumerate(results):
        told = str(rank['ours.bad'])
        assert told.startswith('IdOutOfRangeError: Rank %d: id 23 was looked up, but the' % number)
        assert 'own_table has 23 rows' in told
