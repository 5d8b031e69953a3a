# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What becomes of a table where the architecture leaves the choice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uses import dense, table

from keras_parallax.errors import PlanError
from keras_parallax.planning import costs
from keras_parallax.planning.classify import DENSE, SPARSE
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import make_plan


def test_allreduce_has_no_servers():
    plan = make_plan([table(), dense()], 3, architecture='allreduce')
    assert plan.servers == 0 and plan.architecture == 'allreduce'
    assert [variable.shards for variable in plan.variables] == [(), ()]
    assert [variable.exchange for variable in plan.variables] == ['allgather', 'allreduce']


@given(
    density=st.floats(0, 1),
    hosts=st.integers(1, 64),
    workers=st.integers(1, 8),
    rows=st.integers(1, 10**6),
    width=st.integers(1, 600),
)
def test_allreduce_takes_the_cheaper_of_allgather_and_dense(density, hosts, workers, rows, width):
    cluster = Cluster(hosts, workers)
    use = table(rows=rows, width=width)
    found = make_plan(
        [use], architecture='allreduce', density={use.name: density}, cluster=cluster
    ).variables[0]
    view = cluster.for_decisions()
    ids = np.dtype(costs.id_dtype(rows)).itemsize
    gathered = costs.allgather(rows, width * 4, density, view, ids).sent
    reduced = costs.allreduce(rows * width * 4, view).sent
    if cluster.workers == 1:
        assert found.exchange == 'allgather'
    elif abs(gathered - reduced) > 1e-6 * reduced:
        assert found.exchange == ('allgather' if gathered < reduced else 'allreduce')


def test_allreduce_gathers_a_table_of_unknown_density():
    plan = make_plan([table()], architecture='allreduce', cluster=Cluster(8))
    assert plan.variables[0].exchange == 'allgather'


def test_auto_makes_a_table_dense_that_is_touched_almost_whole():
    use = table(rows=10**6, width=64)
    for density, kind in ((0.99, DENSE), (0.5, SPARSE), (0.001, SPARSE)):
        plan = make_plan([use], 8, architecture='auto', density={use.name: density})
        assert plan.variables[0].kind == kind
        assert plan.variables[0].density == density
    reason = make_plan([use], 8, architecture='auto', density={use.name: 0.99}).variables[0].reason
    assert 'density 0.99' in reason and 'looked up by rows' in reason


def test_auto_makes_a_tiny_table_dense_without_measuring():
    plan = make_plan([table(rows=10), table('big', rows=10**6)], 8, architecture='auto')
    assert [variable.kind for variable in plan.variables] == [DENSE, SPARSE]
    assert 'so small' in plan.variables[0].reason


def test_auto_compares_the_workers_of_one_host_as_if_each_were_a_host():
    use = table(rows=10**6, width=64)
    for density, kind in ((0.99, DENSE), (0.01, SPARSE)):
        plan = make_plan(
            [use], 4, architecture='auto', density={use.name: density}, cluster=Cluster(1, 4)
        )
        assert plan.variables[0].kind == kind


def test_auto_follows_the_user_s_override():
    use = table(rows=10)
    plan = make_plan([use], 8, {use.name: SPARSE}, 'auto', density={use.name: 1.0})
    assert plan.variables[0].kind == SPARSE


@pytest.mark.parametrize('architecture', ['hybrid', 'allreduce', 'ps', 'auto'])
def test_one_worker_needs_no_servers_whatever_the_architecture(architecture):
    plan = make_plan([table(), dense()], 0, architecture=architecture)
    assert [variable.shards for variable in plan.variables] == [(), ()]
    assert [variable.kind for variable in plan.variables] == [SPARSE, DENSE]


def test_an_unknown_architecture_is_refused_with_the_known_ones():
    with pytest.raises(PlanError, match="'hybrid', 'allreduce', 'ps', 'auto', but 'ring' was"):
        make_plan([table()], 2, architecture='ring')


def test_what_a_mask_costs_counts_where_a_table_might_be_dense():
    # At this density the two cost nearly the same without a mask.
    use, cluster = table(rows=1000, width=4), Cluster(4)
    kinds = [
        make_plan(
            [use._replace(row_mask=row_mask)],
            architecture='allreduce',
            density={use.name: 0.45},
            cluster=cluster,
        )
        .variables[0]
        .kind
        for row_mask in (False, True)
    ]
    assert kinds == [DENSE, SPARSE]
