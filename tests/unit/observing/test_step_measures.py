# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What steps come to: against the cost model, and counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.observing import step_measures as sm
from keras_parallax.planning import costs

RANKS, SHARD, ID, PULLED, PUSHED = 4, 20, 2, 64, 34


def route(machines=range(RANKS)):
    return sm.Route({'t': 16}, tuple(machines), (ID,) * len(machines), PULLED, PUSHED)


def counts(pulled, pushed):
    return np.array(list(pulled) + list(pushed), np.float64)


def test_rows_touched_evenly_cost_what_the_cost_model_predicts():
    rows = [counts([SHARD] * RANKS, [SHARD] * RANKS)] * RANKS
    found = sm.row_traffic(route(), rows, range(RANKS), RANKS)
    cluster = costs.Cluster(RANKS)
    table, density = 1000, RANKS * SHARD / 1000.0
    expected = costs.servers(table, PULLED, PUSHED, density, cluster, ID)
    np.testing.assert_allclose(found.sent, expected.sent)
    np.testing.assert_allclose(found.received, expected.received)


def test_dedicated_servers_send_what_hosts_receive():
    rows = [counts([SHARD, SHARD], [SHARD, SHARD])] * 2
    found = sm.row_traffic(route([2, 3]), rows, [0, 1], 4)
    for works, machine in ((True, 0), (False, 2)):
        share = 0.0 if works else 0.5
        expected = costs.servers(
            1000, PULLED, PUSHED, 0.04, costs.Cluster(2), ID, share=share, works=works
        )
        assert found.sent[machine] == pytest.approx(expected.sent)
        assert found.received[machine] == pytest.approx(expected.received)


def test_rows_of_shards_at_home_do_not_travel():
    rows = [counts([7], [7]), counts([0], [0])]
    found = sm.row_traffic(route([0]), rows, [0, 1], 2)
    assert list(found.sent) == list(found.received) == [0, 0]


def test_a_worker_that_leaves_all_to_its_hosts_leader_adds_nothing():
    alone = sm.row_traffic(route([1]), [counts([9], [9]), counts([0], [0])], [0, 1], 2)
    led = [counts([9], [9]), counts([0], [0]), counts([0], [0])]
    with_another = sm.row_traffic(route([1]), led, [0, 0, 1], 2)
    np.testing.assert_array_equal(alone, with_another)
    assert list(alone.sent) == [9 * (ID + ID + PUSHED), 9 * PULLED]


@given(rows=st.lists(st.integers(0, 10**6), min_size=2, max_size=9))
def test_rows_that_all_gather_go_round_the_ring_past_all_but_one(rows):
    gathered = sm.Route({'t': 16}, (), (ID,), PULLED, PUSHED)
    of_ranks = [np.array([float(number)]) for number in rows]
    found = sm.row_traffic(gathered, of_ranks, range(len(rows)), len(rows))
    mean, cluster = np.mean(rows), costs.Cluster(len(rows))
    expected = costs.allgather(1, PUSHED, mean, cluster, ID)
    np.testing.assert_allclose(found.sent, expected.sent)
    assert not sm.row_traffic(gathered, of_ranks, [0] * len(rows), 1).sent.any()


def measured(steps=2.0, marks=(0.2, 0.8, 1.0, 1.4), touched=(10.0,), rows=6, seconds=2.4):
    of_route = counts([rows] * 2, [rows] * 2)
    return sm.Measured(
        steps, 0.0, 2.0, np.array(marks), np.array(touched), [of_route], 64.0, seconds
    )


def setting(routes):
    return sm.Setting(routes, ['t'], [0, 1], 2, costs.Traffic(5.0, 5.0))


def test_metrics_are_those_of_one_step():
    route_of_2 = route([0, 1])
    logs = sm.metrics(setting([route_of_2]), [measured(), measured(marks=(0.2, 1.6, 1.8, 1.9))])
    assert logs['rows/touched'] == 5
    # Three rows a step lie on the other machine.
    assert logs['bytes/rows_sent'] == logs['bytes/rows_received'] == 3 * (PULLED + PUSHED + 2 * ID)
    assert logs['bytes/dense_sent'] == 5
    assert logs['seconds/step'] == pytest.approx(1.0)
    assert logs['seconds/pull'] == pytest.approx(0.1)
    assert logs['seconds/compute'] == pytest.approx((0.3 + 0.7) / 2)
    assert logs['seconds/push'] == pytest.approx(0.1)
    assert logs['seconds/allreduce'] == pytest.approx((0.3 + 0.15) / 2)
    assert logs['seconds/barrier'] == pytest.approx((0.3 + 0.05) / 2)
    assert logs['seconds/between'] == pytest.approx(0.2)
    assert logs['job/examples_per_second'] == pytest.approx(128 / 2.4)
    assert logs['job/slowest_rank'] == 1 and logs['seconds/slowest_rank_behind'] == pytest.approx(
        0.4
    )


def test_tables_that_travel_together_share_their_bytes_by_rows_and_width():
    joined = route([0, 1])._replace(tables={'t': 12, 'u': 4})
    of_rank = measured(touched=(10.0, 30.0))
    logs = sm.metrics(
        setting([joined])._replace(tables=['t', 'u']), [of_rank, of_rank], per_table=True
    )
    assert logs['rows/touched/t'] == 5 and logs['rows/touched/u'] == 15
    assert logs['bytes/rows_sent/t'] == pytest.approx(logs['bytes/rows_sent'] / 2)
    assert logs['bytes/rows_sent/u'] == pytest.approx(logs['bytes/rows_sent'] / 2)


def test_of_no_steps_nothing_is_known():
    assert sm.metrics(setting([]), [measured(steps=0.0)]) == {}


def test_a_vector_is_read_as_it_was_put_together():
    routes = [route([0, 1]), sm.Route({'u': 1}, (), (1,), 4, 4)]
    numbers = [3, 1, 2, 10, 11, 12, 13, 20, 21, 30, 31, 32, 33, 40, 99, 7]
    found = sm.measured(numbers, routes, 2)
    assert (found.steps, found.begun, found.ended) == (3, 1, 2)
    assert list(found.marks) == [10, 11, 12, 13] and list(found.touched) == [20, 21]
    assert [list(rows) for rows in found.rows] == [[30, 31, 32, 33], [40]]
    assert (found.examples, found.seconds) == (99, 7)


@given(cost=st.floats(0, 10), step=st.floats(1e-3, 10), share=st.floats(1e-3, 1))
def test_looks_take_no_more_than_their_share(cost, step, share):
    steps = sm.steps_until_look(cost, step, share)
    assert steps >= 1 and cost <= steps * share * step * (1 + 1e-5)


def test_one_rank_is_not_slower_than_others():
    assert sm.slowest_of([3.0]) == (0, 0.0)
