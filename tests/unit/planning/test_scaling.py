# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a step would cost on more hosts."""

import pytest

from keras_parallax.planning import costs
from keras_parallax.planning.classify import Reach, VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.scaling import curves, host_counts

TABLE = VariableUse('table', (800000, 64), 'float32', lookups=1)
KERNEL = VariableUse('kernel', (512, 300), 'float32', whole_reads=('MatMul',))
CLUSTER = Cluster(8, message_seconds=0.001)


def planned(**options):
    options = dict(dict(density={'table': 0.01}, cluster=CLUSTER), **options)
    return make_plan([TABLE, KERNEL], 8, **options)


def test_each_curve_is_what_a_plan_for_so_many_hosts_predicts():
    found = curves(planned())
    assert list(found) == ['hybrid', 'ps', 'allreduce', 'dense']
    for architecture in ('hybrid', 'ps', 'allreduce'):
        for point in found[architecture]:
            cluster = CLUSTER._replace(hosts=point.hosts)
            other = make_plan(
                [TABLE, KERNEL],
                point.hosts,
                architecture=architecture,
                density={'table': 0.01},
                cluster=cluster,
            ).predict()
            total = other.totals['plan']
            assert point[1:] == (total.sent, total.seconds, other.message_seconds)
            assert point.step == total.seconds + other.message_seconds


def test_the_dense_curve_reduces_everything():
    for point in curves(planned())['dense']:
        size = 4 * (800000 * 64 + 512 * 300)
        sent = costs.allreduce(size, CLUSTER._replace(hosts=point.hosts)).sent
        assert point.sent == pytest.approx(sent) and point.message_seconds == 0


def test_servers_stay_flat_where_the_allgather_grows():
    # Where messages cost nothing, each table has a shard on each server.
    found = curves(planned(cluster=CLUSTER._replace(message_seconds=0.0)))
    first, last = ({name: points[n].seconds for name, points in found.items()} for n in (0, -1))
    assert last['hybrid'] < 2.1 * first['hybrid']
    assert last['allreduce'] > 20 * first['allreduce']


def test_the_bandwidth_asked_for_counts():
    slow, fast = (curves(planned(), bandwidth)['hybrid'][0] for bandwidth in (1e8, 1e9))
    assert slow.seconds == pytest.approx(10 * fast.seconds) and slow.sent == fast.sent


def test_without_a_density_there_is_no_curve():
    assert curves(planned(density={})) == {}


def test_what_the_optimizer_does_not_allow_is_left_out():
    found = curves(planned(reach=Reach(together='a norm of all')))
    assert list(found) == ['hybrid', 'allreduce', 'dense']


def test_a_plan_of_one_process_has_curves_too():
    alone = make_plan([TABLE, KERNEL], 0, density={'table': 0.01}, cluster=Cluster())
    assert curves(alone)['hybrid'] == curves(planned(cluster=Cluster(8)))['hybrid']


@pytest.mark.parametrize(
    'cluster, counts',
    [
        (Cluster(1, 4), [2, 4, 8, 16, 32, 64]),
        (Cluster(40), [2, 4, 8, 16, 32, 40, 64]),
        (Cluster(64), [2, 4, 8, 16, 32, 64, 128]),
        (Cluster(3, 64), [2, 3, 4, 8, 16]),
        (Cluster(3000, 8), [2, 4, 8, 16, 32, 64, 128, 3000]),
    ],
)
def test_hosts_are_powers_of_two_and_the_plans_own_number(cluster, counts):
    assert host_counts(cluster) == counts
