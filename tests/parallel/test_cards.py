# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where the parts of a step lie with graphics cards, and what a step copies from and to a card.

TensorFlow's own placer says so of cards that are not there; `pretended_cards.py` has how it is
asked. Nothing here runs on a card.
"""

import json

import launch
import pytest
from frameworks import tf

pytestmark = pytest.mark.skipif(
    not tf.test.is_built_with_cuda(), reason='this TensorFlow has no kernels for graphics cards'
)

#: The width of the rows that go alone, and of those of the two tables that are grouped.
WIDE, NARROW = 512, 64
CPU, CARD = ['CPU'], ['GPU']
#: What each architecture has where, in a job of two workers.
PLACES = {
    'hybrid': {
        'variable of a table': CPU,
        'slot of a table': CPU,
        'update of a table': CPU,
        'lookup': CPU,
        'queue': CPU,
        'variable of a dense layer': CARD,
        'slot of a dense layer': CARD,
        'update of a dense layer': CARD,
        'layer': CARD,
    },
    'ps': {
        'variable of a table': CPU,
        'slot of a table': CPU,
        'update of a table': CPU,
        'lookup': CPU,
        'queue': CPU,
        'variable of a dense layer': CPU,
        'slot of a dense layer': CPU,
        'update of a dense layer': CPU,
        'layer': CARD,
    },
    'allreduce': {
        'variable of a table': CARD,
        'slot of a table': CARD,
        'update of a table': CARD,
        'lookup': CARD,
        'variable of a dense layer': CARD,
        'slot of a dense layer': CARD,
        'update of a dense layer': CARD,
        'layer': CARD,
    },
}


def trained(folder, ranks, *architectures):
    """What each worker of a job says of its steps: a list of dicts by architecture."""
    outcome = launch.run(ranks, 'parallel/cards_worker.py', folder, *architectures)
    assert outcome.code == 0, outcome.output[-5000:]
    return [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(max(1, ranks))]


@pytest.fixture(scope='module')
def two_workers(tmp_path_factory):
    return trained(tmp_path_factory.mktemp('two'), 2, *PLACES)


@pytest.fixture(scope='module')
def one_process(tmp_path_factory):
    return trained(tmp_path_factory.mktemp('one'), 0, 'hybrid')


def rows_copied(step, width, *between):
    """The bytes of rows of a width that a step copies between two types of devices."""
    return sum(
        size
        for _, _, source, target, shape, size in step['copies']
        if shape[-1:] == [width] and (source, target) == between
    )


@pytest.mark.parametrize('architecture', PLACES)
def test_parts_of_a_step_lie_where_the_docs_say(two_workers, architecture):
    for of_rank in two_workers:
        kinds = of_rank[architecture]['step']['kinds']
        assert {what: kinds.get(what) for what in PLACES[architecture]} == PLACES[architecture]


def test_all_of_one_process_lies_on_its_card(one_process):
    ((found),) = [of_rank['hybrid']['step']['kinds'] for of_rank in one_process]
    assert {tuple(devices) for devices in found.values()} == {tuple(CARD)}


@pytest.mark.parametrize('architecture', ['hybrid', 'ps'])
def test_each_row_of_a_batch_is_copied_once_to_the_card_and_once_back(two_workers, architecture):
    for of_rank in two_workers:
        found = of_rank[architecture]
        wide, *narrow = found['distinct']
        for width, rows in ((WIDE, wide), (NARROW, sum(narrow))):
            expected = rows * width * 4
            assert rows_copied(found['step'], width, 'CPU', 'GPU') == expected
            assert rows_copied(found['step'], width, 'GPU', 'CPU') == expected
            assert rows_copied(found['prediction'], width, 'CPU', 'GPU') == expected


def test_gradients_of_copies_of_a_table_leave_the_card_once_for_each_row(two_workers):
    for of_rank in two_workers:
        found = of_rank['allreduce']
        wide, *narrow = found['distinct']
        assert rows_copied(found['step'], WIDE, 'GPU', 'CPU') == wide * WIDE * 4
        assert rows_copied(found['step'], NARROW, 'GPU', 'CPU') == sum(narrow) * NARROW * 4


@pytest.mark.parametrize('architecture', PLACES)
def test_the_sum_over_workers_of_a_row_is_computed_on_the_cpu(two_workers, architecture):
    """There it is computed in one order; copies of a table must not differ."""
    for of_rank in two_workers:
        sums = of_rank[architecture]['step']['sums over workers']
        assert sums and set(sums) == {'CPU'}


@pytest.mark.parametrize('architecture', PLACES)
def test_the_sizes_of_all_copies_are_known(two_workers, architecture):
    for of_rank in two_workers:
        assert of_rank[architecture]['step']['unknown'] == []


def test_a_worker_without_a_card_copies_nothing(two_workers):
    for of_rank in two_workers:
        for found in of_rank.values():
            assert found['without']['copies'] == []
            assert {tuple(devices) for devices in found['without']['kinds'].values()} == {('CPU',)}


def test_ids_of_copies_of_a_table_are_checked_on_the_cpu(two_workers, one_process):
    for found in [two_workers[0]['allreduce'], one_process[0]['hybrid']]:
        checks = found['step']['checks']
        assert len(checks) == 3 and set(checks) == {'CPU'}


def test_two_workers_of_one_card_are_refused_with_how_to_share_it(tmp_path):
    environ = {'CARDS_OF_A_HOST': '1'}
    outcome = launch.run(2, 'parallel/cards_worker.py', tmp_path, 'hybrid', environ=environ)
    assert outcome.code != 0
    refusal = [line for line in outcome.output.splitlines() if 'PlanError: Rank 1' in line]
    assert refusal, outcome.output[-5000:]
    assert all('graphics card 1' in line and '--resources' in line for line in refusal)


def test_two_workers_share_a_card_that_is_named_for_both(tmp_path):
    environ = {'CARDS_OF_A_HOST': '1', 'KERAS_PARALLAX_GPUS': '0,0'}
    outcome = launch.run(2, 'parallel/cards_worker.py', tmp_path, environ=environ)
    assert outcome.code == 0, outcome.output[-5000:]
