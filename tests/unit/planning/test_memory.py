# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How much memory a plan asks of each host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.planning import costs, memory
from keras_parallax.planning.classify import WHOLE_TABLE, VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import Update, make_plan

TABLE = VariableUse('table', (1000, 16), 'float32', lookups=1)
KERNEL = VariableUse('kernel', (100, 40), 'float32', whole_reads=('MatMul',))
UPDATES = {'table': Update('touched rows', slots=1), 'kernel': Update('all', True, slots=2)}


def hosts_of(
    uses=(TABLE, KERNEL), cluster=None, servers=None, density=0.01, updates=UPDATES, **asked
):
    cluster = cluster or Cluster(4)
    servers = cluster.workers if servers is None else servers
    density = {} if density is None else {use.name: density for use in uses if use.lookups}
    plan = make_plan(list(uses), servers, density=density, cluster=cluster, **asked)
    return plan.with_updates(updates).memory()


def test_shards_and_their_slots_lie_where_the_plan_has_them():
    one_piece = TABLE._replace(regularizer=WHOLE_TABLE)
    hosts = hosts_of([one_piece])
    assert [host.tables for host in hosts] == [64000, 0, 0, 0]
    assert [host.slots for host in hosts] == [64000, 0, 0, 0]
    even = hosts_of([TABLE], partitions=4)
    assert [host.tables for host in even] == [16000] * 4


def test_each_worker_of_a_host_has_what_is_dense_with_slots_and_gradients():
    hosts = hosts_of([KERNEL], Cluster(2, 3))
    assert [host.replicas for host in hosts] == [3 * 16000 * 3] * 2
    # Three copies of each, and three more of the largest.
    assert [host.gradients for host in hosts] == [3 * 16000 * 6] * 2
    smaller = KERNEL._replace(name='smaller', shape=(10, 40))
    (more, _) = hosts_of([KERNEL, smaller], Cluster(2, 3))
    assert more.gradients == hosts[0].gradients + 3 * 1600 * 3


def test_shards_that_are_rewritten_whole_have_gradients_of_their_size():
    whole = dict.fromkeys(('table', 'smaller'), Update('every row', True, slots=2))
    smaller = TABLE._replace(name='smaller', shape=(100, 16))
    assert hosts_of([TABLE], partitions=4)[0].gradients == 0
    assert hosts_of([TABLE], partitions=4, updates=whole)[0].gradients == 16000 * 5
    both = hosts_of([TABLE, smaller], partitions=4, updates=whole)[0]
    assert both.gradients == 16000 * 5 + 1600


def test_rows_count_at_workers_and_at_owners():
    # 10 rows a worker and their gradient; at the owner of a quarter, what 4 push, and its sum.
    (rows,) = {host.rows for host in hosts_of([TABLE], partitions=4)}
    union = 1000 * costs.union_density(0.01, 4)
    assert rows == pytest.approx(64 * (2 * 10 + (4 * 10 + union) / 4))


def test_workers_that_pull_together_have_the_rows_of_their_host_besides():
    apart = hosts_of([TABLE], Cluster(2, 4), partitions=2, local_aggregation=False)[0].rows
    together = hosts_of([TABLE], Cluster(2, 4), partitions=2)[0].rows
    of_host, of_all = (1000 * costs.union_density(0.01, workers) for workers in (4, 8))
    assert apart == pytest.approx(64 * (2 * 40 + (80 + of_all) / 2))
    assert together == pytest.approx(64 * (2 * 40 + 2 * of_host + (2 * of_host + of_all) / 2))


def test_rows_that_are_gathered_come_from_all_workers_to_each():
    host = hosts_of([TABLE], Cluster(2, 2), architecture='allreduce')[0]
    union = 1000 * costs.union_density(0.01, 4)
    assert host.rows == pytest.approx(2 * 64 * (10 + 40 + union))
    assert host.replicas == 2 * 64000 * 2 and host.tables == 0


def test_dedicated_servers_hold_shards_and_no_replica_and_workers_no_shard():
    hosts = hosts_of(cluster=Cluster(2, dedicated_servers=True), servers=3, partitions=3)
    assert [host.machine for host in hosts] == [0, 1, 2, 3, 4]
    assert all(host.tables == 0 < host.replicas for host in hosts[:2])
    assert all(host.replicas == 0 < host.tables for host in hosts[2:])


def test_one_process_holds_everything():
    (host,) = make_plan([TABLE, KERNEL]).with_updates(UPDATES).memory()
    assert host.replicas == 2 * 64000 + 3 * 16000 and host.tables == 0


def test_what_is_not_known_is_not_counted_and_named():
    plan = make_plan([TABLE, KERNEL], 2)
    assert all(host.slots == host.rows == 0 for host in plan.memory())
    sentence = '; '.join(memory.uncounted(plan))
    assert 'rows of table, whose density is not known' in sentence and 'slots' in sentence
    known = make_plan([TABLE], 2, density={'table': 0.1}).with_updates(UPDATES)
    assert memory.uncounted(known) == ['TensorFlow itself, activations and data are not counted']


def test_hosts_are_too_large_for_less_than_they_need_and_the_sentence_says_by_what():
    hosts = hosts_of([TABLE._replace(regularizer=WHOLE_TABLE)])
    most = max(host.total for host in hosts)
    assert memory.too_large(hosts, most) == memory.too_large(hosts, None) == []
    unfit = memory.too_large(hosts, most - 1)
    assert [host.machine for host in unfit] == [0]
    assert memory.unfit_in_words(unfit, 4, 1024) == (
        'It does not fit: host 0 would need 131.2 KiB of memory, and a host has 1.0 KiB.'
    )


def test_hosts_that_need_the_same_are_told_together_the_largest_first():
    hosts = hosts_of(cluster=Cluster(2, dedicated_servers=True), servers=3, partitions=3)
    large = hosts_of([TABLE._replace(regularizer=WHOLE_TABLE)])
    words = [[group.words(2) for group in memory.alike(found)] for found in (hosts, large)]
    assert words[0] == ['hosts 0, 1', 'server machine 0', 'server machines 1, 2']
    assert [group.words(4) for group in memory.alike(large)] == ['host 0', 'hosts 1-3']


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.floats(0, 1),
    st.sampled_from(['hybrid', 'allreduce', 'ps', 'auto']),
)
def test_no_part_is_negative_and_shards_add_up(hosts, workers, density, architecture):
    cluster = Cluster(hosts, workers)
    found = hosts_of(cluster=cluster, density=density, architecture=architecture)
    assert len(found) == hosts and all(min(host) >= 0 for host in found)
    held = sum(host.tables for host in found)
    assert held + sum(host.replicas for host in found) > 0
    if architecture == 'ps' and cluster.workers > 1:
        assert held == pytest.approx(64000 + 16000)
