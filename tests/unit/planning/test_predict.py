# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a plan costs: bytes of its variables, hosts and servers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.planning import costs
from keras_parallax.planning.classify import WHOLE_TABLE, VariableUse
from keras_parallax.planning.costs import Cluster, Fp16
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.predict import predict

WORDS = VariableUse('words', (800000, 512), 'float32', lookups=1)
ITEMS = VariableUse('items', (1000, 16), 'float32', lookups=1)
KERNEL = VariableUse('out/kernel', (512, 300), 'float32', whole_reads=('MatMul',))
DENSITY = {'words': 0.003, 'items': 0.2}


def planned(uses=(WORDS, ITEMS, KERNEL), hosts=8, servers=None, density=DENSITY, **options):
    options.setdefault('cluster', Cluster(hosts))
    names = {use.name for use in uses}
    density = {name: density for name, density in density.items() if name in names}
    servers = options['cluster'].workers if servers is None else servers
    return make_plan(list(uses), servers, density=density, **options)


def test_an_even_plan_costs_what_the_formulas_say():
    cluster = Cluster(8)
    found = planned([WORDS, KERNEL]).predict()
    rows = costs.servers(800000, 2048, 2048, 0.003, cluster, id_bytes=4).sent
    kernel = costs.allreduce(512 * 300 * 4, cluster).sent
    assert found.variables['words'].plan == pytest.approx(rows)
    assert found.variables['out/kernel'].plan == pytest.approx(kernel)
    assert found.totals['plan'].sent == pytest.approx(rows + kernel)
    assert found.totals['plan'].busiest.sent == pytest.approx(rows + kernel)
    assert found.totals['plan'].seconds == pytest.approx((rows + kernel) / cluster.bandwidth)


def test_the_other_kinds_of_exchange_are_told_beside_it():
    cluster = Cluster(8)
    cost = planned([WORDS]).predict().variables['words']
    assert cost.allgather == pytest.approx(
        costs.allgather(800000, 2048, 0.003, cluster, id_bytes=4).sent
    )
    assert cost.allreduce == pytest.approx(costs.allreduce(WORDS.shape[0] * 2048, cluster).sent)


@pytest.mark.parametrize('fp16', [False, True])
@pytest.mark.parametrize('architecture', ['hybrid', 'ps'])
def test_a_mask_is_sent_with_a_gradient_that_is_exchanged_whole(architecture, fp16):
    options = dict(overrides={'items': 'dense'}, architecture=architecture, fp16=Fp16(fp16))
    costs_of = [
        planned([ITEMS._replace(row_mask=row_mask)], density={}, **options)
        .predict()
        .variables['items']
        for row_mask in (False, True)
    ]
    plain, masked = (cost.allreduce for cost in costs_of)
    assert masked / plain == pytest.approx(17 / 16)
    pulled = 1.0 if architecture == 'ps' else 0.0
    pushed = 0.5 if fp16 else 1.0
    plain, masked = (cost.plan for cost in costs_of)
    grown = (pulled + 17 / 16 * pushed) / (pulled + pushed)
    assert masked / plain == pytest.approx(grown)


def test_a_table_in_one_piece_loads_the_link_of_its_server():
    whole = ITEMS._replace(regularizer=WHOLE_TABLE)
    found = planned([whole], hosts=4).predict()
    # Server 0 sends its rows to three others, which push as much to it.
    assert found.totals['plan'].busiest.sent == pytest.approx(3 * 200 * 64)
    assert found.totals['plan'].busiest.received == pytest.approx(3 * 200 * (64 + 2 + 2))
    split = planned([ITEMS], hosts=4, partitions=4).predict()
    assert split.totals['plan'].seconds < found.totals['plan'].seconds
    assert split.totals['plan'].sent == pytest.approx(found.totals['plan'].sent, rel=0.05)


def test_dedicated_servers_carry_the_rows_and_workers_nothing_but_their_own():
    cluster = Cluster(4, dedicated_servers=True)
    found = planned([WORDS], servers=2, partitions=2, cluster=cluster).predict()
    assert [load.machine for load in found.server_loads] == [4, 5]
    # All rows of four workers, half of them on each server.
    assert found.totals['plan'].busiest.sent == pytest.approx(4 * 2400 * 2048 / 2)
    # A worker's host sends gradients, and row numbers for them and for the pull.
    assert found.totals['plan'].sent == pytest.approx(2400 * (2048 + 4 + 4))


def test_half_precision_halves_gradients_and_rows_that_are_pulled_each_if_asked():
    full = planned([WORDS, KERNEL]).predict().variables
    half = planned([WORDS, KERNEL], fp16=Fp16(gradients=True)).predict().variables
    assert half['out/kernel'].plan == full['out/kernel'].plan / 2
    assert half['words'].allreduce == full['words'].allreduce / 2
    # 2048 bytes down, 2048 up and 8 of row numbers; and half of those up with an exponent.
    assert half['words'].plan / full['words'].plan == pytest.approx((2048 + 1026 + 8) / 4104)
    both = planned([WORDS, KERNEL], fp16=Fp16(gradients=True, pulls=True)).predict().variables
    assert both['out/kernel'].plan == half['out/kernel'].plan
    assert both['words'].plan / full['words'].plan == pytest.approx((1026 + 1026 + 8) / 4104)


def test_ps_pulls_and_pushes_dense_variables():
    found = planned([KERNEL], architecture='ps', partitions={'out/kernel': 8}).predict()
    assert found.variables['out/kernel'].plan == pytest.approx(2 * KERNEL.shape[0] * 1200 * 7 / 8)


def test_server_loads_add_up_and_name_the_hot_one():
    uses = [ITEMS._replace(name='hot'), ITEMS._replace(name='cold')]
    plan = planned(uses, hosts=2, density={'hot': 0.6, 'cold': 0.2})
    assert [len(variable.shards) for variable in plan.variables] == [1, 1]
    loads = plan.predict().server_loads
    assert [load.bytes for load in loads] == [64000, 64000]
    hot = plan['hot'].shards[0].server
    assert loads[hot].traffic_share == pytest.approx(0.75)
    assert sum(load.traffic_share for load in loads) == pytest.approx(1)


def test_tables_of_unknown_density_are_named_and_left_out():
    found = planned(density={'items': 0.2}).predict()
    assert found.unknown == ['words']
    assert found.variables['words'].plan is None and found.variables['words'].allgather is None
    assert found.variables['words'].allreduce > 0
    assert found.totals['plan'].sent == pytest.approx(
        found.variables['items'].plan + found.variables['out/kernel'].plan
    )


def test_workers_of_one_host_are_counted_as_hosts():
    one_host = planned(cluster=Cluster(1, 8)).predict()
    assert one_host == planned(cluster=Cluster(8, 1)).predict()


def test_one_worker_has_no_prediction():
    assert make_plan([WORDS], 0).predict() is None
    assert make_plan([WORDS], 0, cluster=Cluster(1)).predict() is None


def test_the_time_is_that_of_the_bandwidth_asked_for():
    plan = planned()
    fast, slow = (plan.predict(rate).totals['plan'].seconds for rate in (1e10, 1e9))
    assert slow == pytest.approx(10 * fast)


@given(
    hosts=st.integers(1, 12),
    workers=st.integers(1, 6),
    density=st.floats(0, 1),
    architecture=st.sampled_from(['hybrid', 'allreduce', 'ps', 'auto']),
    partitions=st.sampled_from([None, 1, 3, 5000]),
    fp16=st.builds(Fp16, st.booleans(), st.booleans()),
)
def test_no_plan_is_below_the_floor_and_all_of_it_is_json(
    hosts, workers, density, architecture, partitions, fp16
):
    if architecture == 'allreduce':
        partitions = None
    plan = planned(
        [ITEMS, KERNEL],
        density={'items': density},
        cluster=Cluster(hosts, workers),
        architecture=architecture,
        partitions=partitions,
        fp16=fp16,
    )
    data = plan.as_data()
    assert json.loads(json.dumps(data)) == data
    if hosts * workers > 1:
        totals = plan.predict().totals
        # The floor is that of servers: between two hosts, an allgather of touched rows in half
        # precision may undercut it, and so may a dense allreduce of a table touched whole.
        if plan['items'].exchange == 'servers':
            assert totals['plan'].sent >= totals['floor'].sent * (1 - 1e-9)
        assert data['prediction']['totals']['plan']['sent'] == totals['plan'].sent


def test_thousands_of_hosts_are_predicted_by_the_same_formulas():
    cluster = Cluster(3000, 8)
    found = predict(planned([WORDS], cluster=cluster), cluster)
    assert len(found.server_loads) == 24000
    assert found.variables['words'].plan == pytest.approx(
        costs.servers(800000, 2048, 2048, 0.003, cluster, id_bytes=2).sent
    )
