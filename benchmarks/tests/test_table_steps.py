# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Steps with tables for recommenders: what ids there are, and what is made of what workers saw."""

import numpy as np
import pytest
import table_steps
from report import page, results, scripts, targets
from works import table_pairs


def test_raw_ids_are_all_over_the_range_and_each_number_has_its_own():
    ids = table_pairs.raw_ids(np.arange(100000))
    assert ids.dtype == np.int64 and len(set(ids.tolist())) == 100000
    assert ids.min() < -(2**62) and ids.max() > 2**62


def test_each_new_id_comes_in_two_batches_of_one_rank_one_after_the_other():
    met = {}
    for step in range(5):
        for rank in range(3):
            for number in table_pairs.new_numbers(4, rank, 3, step).tolist():
                met.setdefault(number, []).append((rank, step))
    steps = sorted(met.values(), key=len)
    # Those of the first step and of the last one come once.
    assert [len(places) for places in steps] == [1] * 12 + [2] * 24
    for (rank, step), (other, after) in steps[12:]:
        assert rank == other and after == step + 1
    assert sorted(met) == list(range(36))


@pytest.mark.parametrize('size', [1, 3])
def test_ranks_meet_all_ids_beforehand_in_as_many_batches_each(size):
    shares = [table_pairs.shares(1000, 64, rank, size) for rank in range(size)]
    assert {share.shape for share in shares} == {shares[0].shape}
    assert set(np.concatenate(shares).ravel().tolist()) == set(range(1000))


def test_known_ids_and_new_ones_find_rows_on_every_shard():
    for name, case in table_pairs.CASES.items():
        for hosts in case.hosts:
            known = table_pairs.known_count(case, 10**6, hosts)
            assert known + 4 * np.sqrt(10**6 * hosts) <= 10**6 or not case.raw, name
    case = table_pairs.CASES['dynamic-new']
    # Two phases of 9 rounds of 5 steps, and what warms up.
    steps = 2 * 9 * 5 + 12 + 2
    new = table_pairs.new_numbers(
        int(table_pairs.NEW * table_pairs.BATCH * case.length), 3, 4, steps
    )
    known = table_pairs.known_count(case, 10**6, 4)
    assert known + new.max() + 4 * np.sqrt(4 * 10**6) < 10**6


def seen(*rounds):
    """What a worker saw: rounds of a step's milliseconds with the usual table and with ours."""
    return {'evenly': [[list(usual), list(ours)] for usual, ours in rounds]}


def test_a_step_is_as_long_as_the_slowest_rank_and_ratios_are_those_of_a_round():
    case = table_pairs.CASES['dynamic-new']
    # The machine is half as fast in the second round.
    ranks = [
        seen(([0.1, 0.1, 0.4], [0.1, 0.1, 0.1]), ([0.2, 0.2, 0.2], [0.3, 0.1, 0.3])),
        seen(([0.1, 0.2, 0.1], [0.3, 0.2, 0.1]), ([0.2, 0.1, 0.4], [0.1, 0.3, 0.1])),
    ]
    (one,) = table_steps.kept(case, 2, 200, ranks)
    assert one['rounds'] == [[0.2, 0.2], [0.2, 0.3]]
    assert scripts.over(one['rounds']) == pytest.approx([1.0, 1.5])
    line = scripts.table_steps_table([one]).splitlines()[-1]
    assert [cell.strip() for cell in line.strip('|').split('|')] == [
        '`DynamicEmbedding`, ids arrive, width 16', '2 hosts, 200 Mbit/s', 'evenly', '200.0',
        '250.0', '1 .. 1.25 .. 1.5', '',
    ]  # fmt: skip


def step_of(title, bound, ratio, **changes):
    found = dict(
        title=title, bound=bound, ids='evenly', hosts=1, bandwidth_mbit=None,
        rounds=[[1.0, ratio]] * 3,
    )  # fmt: skip
    return dict(found, **changes)


def test_the_targets_are_judged_where_a_step_takes_most_and_memory_on_both_sides():
    steps = [
        step_of('`DynamicEmbedding`', 1.5, 1.2),
        step_of('`DynamicEmbedding`', 1.5, 1.6, hosts=4),
        step_of('`DynamicEmbedding`, ids arrive', None, 3.0),
        step_of('`EmbeddingBag`', 1.0, 0.9),
    ]
    rows = targets.step_rows(steps)
    assert [row[2:] for row in rows] == [
        ['1.60x (DynamicEmbedding, 4 hosts, links not limited, ids evenly)', 'no'],
        ['0.90x (EmbeddingBag, one process, ids evenly)', 'yes'],
    ]
    assert [row[3] for row in targets.step_rows(None)] == ['not measured'] * 2

    def judged(ratio):
        return targets.slot_rows([{'rows': 9, 'width': 16, 'rounds': [[1.0, ratio]]}])[0][2:]

    assert judged(0.55) == ['3.53 % (width 16)', 'yes']
    assert judged(0.45)[1] == judged(0.6)[1] == 'no'


def test_the_page_shows_what_was_measured(tmp_path):
    folder = str(tmp_path)
    results.publish(folder, 'table_steps', [step_of('`EmbeddingBag`', 1.0, 0.9)])
    memory = [{'rows': 10**6, 'width': 16, 'rounds': [[2.0**27, 2.0**26]]}]
    results.publish(folder, 'slot_memory', memory)
    page.write([], folder)
    text = (tmp_path / 'tables.md').read_text(encoding='utf-8')
    assert '0.9 .. 0.9 .. 0.9' in text
    assert '| 1,000,000 x 16 | 128.0          | 64.0                  | 0.5 .. 0.5 .. 0.5' in text
    assert '0.531' in text
    assert 'A step with EmbeddingBag' in (tmp_path / 'summary.md').read_text(encoding='utf-8')
