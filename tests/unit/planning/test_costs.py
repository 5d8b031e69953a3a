# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step costs, against the formulas of Parallax and against counting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.planning import costs
from keras_parallax.planning.costs import Cluster, Traffic

HOSTS = st.integers(1, 3000)
WORKERS = st.integers(1, 16)
DENSITIES = st.floats(0, 1, allow_nan=False)
SIZES = st.integers(1, 10**9)


def total(traffic):
    return traffic.sent + traffic.received


# --- the formulas of Parallax, one worker a host ----------------------------------------


@given(rows=st.integers(1, 10**6), row=st.integers(1, 4096), density=DENSITIES, hosts=HOSTS)
def test_servers_cost_4_density_w_times_n_minus_1_over_n(rows, row, density, hosts):
    found = costs.servers(rows, row, row, density, Cluster(hosts))
    assert total(found) == pytest.approx(4 * density * rows * row * (hosts - 1) / hosts, rel=1e-6)
    assert found.sent == pytest.approx(found.received)


@given(rows=st.integers(1, 10**6), row=st.integers(1, 4096), density=DENSITIES, hosts=HOSTS)
def test_allgather_costs_2_density_w_times_n_minus_1(rows, row, density, hosts):
    found = costs.allgather(rows, row, density, Cluster(hosts))
    assert total(found) == pytest.approx(2 * density * rows * row * (hosts - 1), rel=1e-6)


@given(size=SIZES, hosts=HOSTS)
def test_a_dense_variable_costs_4_w_times_n_minus_1_over_n_either_way(size, hosts):
    expected = pytest.approx(4 * size * (hosts - 1) / hosts, rel=1e-6)
    assert total(costs.allreduce(size, Cluster(hosts))) == expected
    assert total(costs.dense_servers(size, size, Cluster(hosts))) == expected


# --- counted by hand ----------------------------------------------------------------------


def test_servers_of_two_hosts_by_hand():
    # 100 rows of 8 bytes, half of them touched: 25 rows lie on the other host. They are asked for
    # by number and come; their gradients go with their numbers. The other host does the same.
    found = costs.servers(100, 8, 8, 0.5, Cluster(2), id_bytes=4)
    as_client, as_server = 25 * (4 + 8 + 4), 25 * 8
    assert found == Traffic(as_client + as_server, as_client + as_server)


def test_a_host_that_holds_more_sends_more_rows_and_receives_more_gradients():
    cluster = Cluster(3)
    found = costs.servers(100, 8, 4, 0.3, cluster, id_bytes=1, share=0.5)
    # 30 rows: 15 are elsewhere; of the two others, 15 each are here.
    assert found.sent == pytest.approx(15 * (1 + 1 + 4) + 30 * 8)
    assert found.received == pytest.approx(15 * 8 + 30 * (1 + 1 + 4))


def test_a_dedicated_server_only_serves():
    found = costs.servers(100, 8, 8, 0.5, Cluster(4), share=0.5, works=False)
    assert found == Traffic(4 * 25 * 8, 4 * 25 * 8)


@given(
    shares=st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any),
    dedicated=st.integers(0, 3),
    density=DENSITIES,
    ids=st.integers(0, 8),
)
def test_what_all_hosts_send_is_what_all_hosts_receive(shares, dedicated, density, ids):
    workers = max(1, len(shares) - dedicated)
    found = [
        costs.servers(
            50, 16, 8, density, Cluster(workers), ids, share / sum(shares), number < workers
        )
        for number, share in enumerate(shares)
    ]
    sent = sum(each.sent for each in found)
    assert sent == pytest.approx(sum(each.received for each in found))


def test_allgather_passes_on_every_worker_but_the_next_host_s_first():
    found = costs.allgather(100, 8, 0.1, Cluster(2, 3), id_bytes=4)
    assert found == Traffic(5 * 10 * 12, 5 * 10 * 12)


def test_allreduce_goes_once_around_the_ring_of_all_workers_for_the_sum_and_once_for_the_result():
    assert costs.allreduce(600, Cluster(2, 3)).sent == pytest.approx(2 * 600 * 5 / 6)


@given(workers=WORKERS, density=DENSITIES)
def test_one_host_sends_nothing(workers, density):
    cluster = Cluster(1, workers)
    assert costs.allgather(9, 4, density, cluster) == Traffic()
    assert costs.allreduce(9, cluster) == Traffic()
    assert costs.servers(9, 4, 4, density, cluster, id_bytes=4) == Traffic()
    assert costs.dense_servers(9, 9, cluster) == Traffic()
    assert costs.floor(9, [(9, 4, 4, density)], cluster) == Traffic()


# --- several workers on a host ------------------------------------------------------------


@given(density=DENSITIES, workers=WORKERS)
def test_what_workers_touch_together_lies_between_the_largest_and_the_sum(density, workers):
    together = costs.union_density(density, workers)
    assert density - 1e-12 <= together <= min(1.0, density * workers) + 1e-12


@given(
    chances=st.lists(DENSITIES, min_size=1, max_size=20),
    workers=WORKERS,
)
def test_the_union_is_an_upper_bound_where_rows_differ_in_frequency(chances, workers):
    density = sum(chances) / len(chances)
    real = sum(1 - (1 - chance) ** workers for chance in chances) / len(chances)
    assert real <= costs.union_density(density, workers) + 1e-9


def test_without_local_aggregation_each_worker_of_a_host_pulls_for_itself():
    together = Cluster(4, 2)
    apart = together._replace(local_aggregation=False)
    assert costs.host_density(0.5, together) == 0.75
    assert costs.host_density(0.5, apart) == 1.0
    assert costs.dense_servers(80, 80, apart).sent == 2 * costs.dense_servers(80, 80, together).sent


# --- the floor ------------------------------------------------------------------------------


@given(
    hosts=HOSTS,
    workers=WORKERS,
    dense=st.integers(0, 10**6),
    rows=st.integers(1, 10**5),
    row=st.integers(1, 1000),
    density=DENSITIES,
)
def test_no_plan_is_below_the_floor(hosts, workers, dense, rows, row, density):
    cluster = Cluster(hosts, workers)
    least = costs.floor(dense, [(rows, row, row, density)], cluster).sent
    found = costs.allreduce(dense, cluster) + costs.servers(rows, row, row, density, cluster, 4)
    assert found.sent >= least * (1 - 1e-9)


def test_the_floor_of_design_md_s_example():
    # 8 hosts, 2048 rows of 128 floats touched: each of the 7/8 elsewhere comes and goes once.
    density = 2048 / 100000
    assert costs.floor(0, [(100000, 512, 512, density)], Cluster(8)).sent == pytest.approx(
        2048 * 7 / 8 * 1024
    )


def test_the_floor_of_dedicated_servers_is_every_touched_row_once_each_way():
    cluster = Cluster(4, dedicated_servers=True)
    assert costs.floor(0, [(100, 8, 8, 0.5)], cluster) == Traffic(50 * 8, 50 * 8)


# --- types and time -------------------------------------------------------------------------


@pytest.mark.parametrize(
    'rows, dtype',
    [
        (0, 'uint8'),
        (1, 'uint8'),
        (256, 'uint8'),
        (257, 'uint16'),
        (65536, 'uint16'),
        (65537, 'int32'),
        (2**31, 'int32'),
        (2**31 + 1, 'int64'),
    ],
)
def test_row_numbers_travel_in_the_smallest_type_that_holds_the_last_row(rows, dtype):
    assert costs.id_dtype(rows) == dtype


@pytest.mark.parametrize(
    'dtype, expected', [('float32', 32), ('float64', 16), ('float16', 64), ('int32', 64)]
)
def test_half_precision_makes_floats_two_bytes_each(dtype, expected):
    assert costs.wire_bytes(64, dtype, fp16=True) == expected
    assert costs.wire_bytes(64, dtype) == 64


@pytest.mark.parametrize(
    'width, dtype, expected',
    [
        (256, 'float32', 514),
        (1, 'float32', 4),
        (1, 'float64', 4),
        (9, 'float16', 18),
        (9, 'int32', 36),
    ],
)
def test_a_row_in_half_precision_has_an_exponent_and_is_never_larger(width, dtype, expected):
    assert costs.row_bytes(width, dtype, fp16=True) == expected
    assert costs.row_bytes(width, dtype) == width * np.dtype(dtype).itemsize


def test_a_step_takes_the_busier_way_of_the_link():
    assert costs.step_seconds(Traffic(300, 500), bandwidth=100) == 5


def test_workers_of_one_host_are_compared_as_hosts():
    assert Cluster(1, 4).for_decisions()[:2] == (4, 1)
    assert Cluster(2, 4).for_decisions()[:2] == (2, 4)


# --- gradients of several batches at once -------------------------------------------------


@given(density=DENSITIES, hosts=HOSTS, workers=WORKERS, steps=st.integers(2, 16))
def test_gradients_of_several_batches_cost_no_more_than_one_by_one(density, hosts, workers, steps):
    alone = Cluster(hosts, workers)
    together = alone._replace(accumulate_steps=steps)
    for cost, arguments in (
        (costs.allgather, (1000, 4, density)),
        (costs.servers, (1000, 8, 4, density)),
        (costs.dense_servers, (800, 400)),
    ):
        one_by_one, at_once = [total(cost(*arguments, cluster)) for cluster in (alone, together)]
        assert at_once <= one_by_one * (1 + 1e-9)
    found = [total(costs.allreduce(800, cluster)) for cluster in (alone, together)]
    assert found[1] == pytest.approx(found[0] / steps)


def test_rows_are_pulled_with_each_batch_and_pushed_once_for_several_by_hand():
    # 100 rows, of which a batch touches 20 and two batches 36, half of them on the other host.
    found = costs.servers(100, 8, 4, 0.2, Cluster(2, accumulate_steps=2), id_bytes=1)
    as_client, as_server = 10 * 1 + 18 / 2 * (1 + 4), 10 * 8
    assert found.sent == found.received == pytest.approx(as_client + as_server)
    whole = costs.update_bytes(1000, 1, 0.2, Cluster(2, accumulate_steps=2), whole=True)
    assert whole == costs.update_bytes(1000, 1, 0.2, Cluster(2), whole=True) / 2
