# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan: classes, names, and the plan as data."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uses import TABLES, dense, table

from keras_parallax.errors import PlanError
from keras_parallax.planning import costs
from keras_parallax.planning.classify import DENSE, SPARSE, WHOLE_TABLE, VariableUse
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import Update, make_plan


def test_impossible_sparse_is_refused_with_the_reason_and_the_way_out():
    with pytest.raises(PlanError) as caught:
        make_plan([table(), dense()], 2, {'out/kernel': SPARSE})
    message = str(caught.value)
    assert message.startswith('out/kernel cannot be made sparse: it is read whole by MatMul.')
    assert 'Take it out of `overrides`' in message


def test_a_class_that_is_none_is_refused():
    with pytest.raises(PlanError, match="'dense' or 'sparse', but 'ps' was given"):
        make_plan([table()], 2, {'table/embeddings': 'ps'})


def test_overrides_given_are_not_changed():
    overrides = {'table/embeddings': DENSE}
    make_plan([table()], 2, overrides)
    assert overrides == {'table/embeddings': DENSE}


@pytest.mark.parametrize(
    'uses, architecture',
    [
        ([table(), dense()], 'hybrid'),
        ([dense()], 'allreduce'),
        ([table()], 'ps'),
        ([], 'allreduce'),
    ],
)
def test_architecture_names_what_the_model_holds(uses, architecture):
    assert make_plan(uses, 2).architecture == architecture


@pytest.mark.parametrize(
    'use, servers, place',
    [
        (dense(), 3, 'on every rank'),
        (table(), 0, 'on every rank'),
        (table(), 1, '1 shard on server 0'),
        (table(), 2, '2 shards on servers 0, 1'),
        (table(), 5, '5 shards on servers 0-4'),
        (table(rows=1), 5, '1 shard on server 0'),
        (table(constraint=WHOLE_TABLE), 5, '1 shard on server 0'),
    ],
)
def test_place_names_the_servers(use, servers, place):
    assert make_plan([use], servers).variables[0].place == place


@pytest.mark.parametrize(
    'servers, place',
    [
        ([0, 1, 2, 5, 7, 8], '6 shards on servers 0-2, 5, 7, 8'),
        ([3, 3, 1, 1], '4 shards on servers 1, 3'),
        (list(range(0, 100, 2)), '50 shards on 50 servers'),
    ],
)
def test_place_tells_runs_of_servers_as_ranges_and_many_as_a_number(servers, place):
    shards = tuple(Shard(server, 2) for server in servers)
    variable = make_plan([table()]).variables[0]._replace(shards=shards)
    assert variable.place == place


@pytest.mark.parametrize(
    'shape, dtype, size',
    [
        ((3, 5), 'float32', 60),
        ((3, 5), 'float64', 120),
        ((3, 5), 'float16', 30),
        ((), 'float32', 4),
        ((10**6, 10**4), 'float32', 4 * 10**10),
    ],
)
def test_bytes_are_those_of_the_entries(shape, dtype, size):
    use = VariableUse('v', shape, dtype, whole_reads=('Mul',))
    assert make_plan([use]).variables[0].bytes == size


def test_a_variable_is_found_by_name():
    plan = make_plan([table(), dense()], 2)
    assert plan['out/kernel'] is plan.variables[1]
    with pytest.raises(KeyError, match='^The plan has no variable .*; it has '):
        plan['out/bias']


def test_a_plan_is_a_tuple_of_its_fields():
    plan = make_plan([table()], 2)
    variables, servers, requested = plan[:3]
    assert (variables, servers) == (plan[0], plan[1]) == (plan.variables, 2)
    assert requested == 'hybrid'


@given(TABLES, st.integers(0, 9))
def test_plan_as_data_survives_json(uses, servers):
    data = make_plan(uses + [dense(), dense('scale', ())], servers).as_data()
    assert json.loads(json.dumps(data)) == data


def test_plan_as_data_says_what_the_plan_says():
    plan = make_plan([table(), dense()], 2)
    data = plan.as_data()
    assert data['architecture'] == 'hybrid' and data['servers'] == 2
    assert [entry['name'] for entry in data['variables']] == ['table/embeddings', 'out/kernel']
    assert data['variables'][0] == {
        'name': 'table/embeddings',
        'shape': [23, 4],
        'dtype': 'float32',
        'kind': 'sparse',
        'reason': 'looked up by rows in 1 place',
        'shards': [{'server': 0, 'rows': 12}, {'server': 1, 'rows': 11}],
        'bytes': 23 * 4 * np.dtype('float32').itemsize,
        'stored_bytes': 23 * 4 * np.dtype('float32').itemsize,
        'row_dtype': None,
        'place': '2 shards on servers 0, 1',
        'exchange': 'servers',
        'alpha': None,
        'update': None,
        'measured': False,
        'count_reason': plan.variables[0].count_reason,
        'fill': None,
        'row_mask': False,
    }


@pytest.mark.parametrize('asked, available', [(True, True), (True, False), (False, True)])
def test_local_aggregation_is_predicted_if_it_is_asked_for_and_can_be(asked, available):
    cluster = costs.Cluster(2, 4, local_aggregation=available)
    use = table()
    plan = make_plan([use], 8, density={use.name: 0.1}, cluster=cluster, local_aggregation=asked)
    effective = cluster._replace(local_aggregation=asked and available)
    assert plan.cluster == effective
    assert (
        plan.predict() == make_plan([use], 8, density={use.name: 0.1}, cluster=effective).predict()
    )


# --- rows of 16 bits -----------------------------------------------------------


def test_rows_of_all_tables_or_of_some_are_kept_in_16_bits_on_servers_alone():
    uses = [table('one'), table('two'), table('doubles')._replace(dtype='float64'), dense()]
    kept = [planned.stored_dtype for planned in make_plan(uses, 2, row_dtype='float16').variables]
    assert kept == ['float16', 'float16', 'float64', 'float32']
    some = make_plan(uses, 2, architecture='ps', row_dtype={'two': 'float16', 'one': None})
    kept = [planned.stored_dtype for planned in some.variables]
    assert kept == ['float32', 'float16', 'float64', 'float32']
    # Every worker holds them.
    for servers, override in ((0, {}), (2, {'one': DENSE, 'two': DENSE})):
        wide = make_plan(uses, servers, override, row_dtype='float16')
        assert {planned.stored_dtype for planned in wide.variables} == {'float32', 'float64'}


def test_rows_of_16_bits_take_half_of_the_memory_and_of_a_pull_and_pushes_stay():
    uses = [table('words', 10**6, 16), dense()]
    plans = [
        make_plan(uses, 4, density={'words': 0.01}, cluster=costs.Cluster(4), row_dtype=row_dtype)
        for row_dtype in (None, 'float16')
    ]
    wide, narrow = [plan['words'] for plan in plans]
    assert wide.shards == narrow.shards and wide.bytes == narrow.bytes == narrow.stored_bytes * 2
    assert narrow.place == wide.place + ', rows of 16 bits'
    update = {'words': Update('touched rows', slots=1)}
    of_wide, of_narrow = [plan.with_updates(update).memory()[0] for plan in plans]
    assert of_narrow.tables == of_wide.tables / 2 and of_narrow[2:] == of_wide[2:]
    # A row is pulled as 64 bytes or 32, and pushed as 64, with its number of 4 either way.
    sent = [plan.predict().variables['words'] for plan in plans]
    assert sent[1].plan / sent[0].plan == pytest.approx((2 * 4 + 32 + 64) / (2 * 4 + 64 + 64))
    assert sent[1][1:] == sent[0][1:]
    loads = [plan.predict().server_loads for plan in plans]
    assert [load.bytes for load in loads[1]] == [load.bytes / 2 for load in loads[0]]


def test_tables_of_one_lookup_are_placed_together_if_their_rows_are_kept_alike():
    uses = [table('one', ids_key=0), table('two', ids_key=0)]
    alike = make_plan(uses, 3, row_dtype='float16').variables
    assert alike[0].shards == alike[1].shards
    unlike = make_plan(uses, 3, row_dtype={'two': 'float16'}).variables
    assert unlike[0].shards != unlike[1].shards


def test_rows_of_16_bits_count_where_servers_are_compared_with_a_dense_exchange():
    def kind(row_dtype, density):
        plan = make_plan(
            [table(rows=10**6, width=16)], 8, None, 'auto', None, {'table/embeddings': density},
            row_dtype=row_dtype,
        )  # fmt: skip
        return plan.variables[0].kind

    first_dense = [
        next(density for density in np.linspace(0.5, 1, 101) if kind(row_dtype, density) == DENSE)
        if kind(row_dtype, 1.0) == DENSE
        else 1.01
        for row_dtype in (None, 'float16')
    ]
    assert first_dense[0] < first_dense[1]


# --- on another cluster --------------------------------------------------------


def test_on_its_own_cluster_a_plan_is_made_the_same():
    uses = [table(), dense(), table('other/embeddings', (50, 4))]
    made = make_plan(
        uses,
        4,
        {'other/embeddings': 'dense'},
        partitions={'table/embeddings': 3},
        density={'table/embeddings': 0.25},
        cluster=costs.Cluster(2, 2),
        row_dtype={'table/embeddings': 'float16'},
    ).with_updates({'table/embeddings': Update('touched rows', slots=1)})
    assert made.for_cluster(made.cluster) == made


@pytest.mark.parametrize(
    'cluster, servers, others',
    [
        (costs.Cluster(4, 2), 8, 16),
        (costs.Cluster(4, 2), 4, 8),
        (costs.Cluster(4, 2, dedicated_servers=True), 3, 3),
        (None, 0, 16),
    ],
)
def test_servers_grow_with_hosts_unless_they_are_dedicated(cluster, servers, others):
    made = make_plan([table()], servers, cluster=cluster)
    larger = (cluster or costs.Cluster(1, 2))._replace(hosts=8)
    assert made.for_cluster(larger).servers == others


def test_a_density_that_was_measured_holds_on_another_cluster():
    made = make_plan([table()], 2).as_followed({}, {'table/embeddings': 0.5})
    assert made.for_cluster(costs.Cluster(8))['table/embeddings'].density == 0.5


def test_the_former_name_of_a_density_works_and_warns():
    variable = make_plan([table()], 2, density={'table/embeddings': 0.5}).variables[0]
    with pytest.warns(DeprecationWarning, match='density'):
        assert variable.alpha == variable.density == 0.5


def test_by_another_architecture_what_it_has_no_use_for_is_left_out():
    made = make_plan([table(), dense()], 2, partitions=2)
    gathered = made.for_cluster(costs.Cluster(4), 'allreduce')
    assert gathered.requested == 'allreduce' and not gathered.variables[0].shards
    assert all(planned.shards for planned in made.for_cluster(costs.Cluster(4), 'ps').variables)
