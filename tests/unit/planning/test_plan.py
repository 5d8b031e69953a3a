"""The plan: classes, shards and their servers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.errors import PlanError
from keras_parallax.planning import costs
from keras_parallax.planning.classify import BY_ROW, DENSE, SPARSE, WHOLE_TABLE, VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.placement import Shard, rows_of_shard
from keras_parallax.planning.plan import make_plan

REACHES = st.sampled_from([None, None, BY_ROW, WHOLE_TABLE])
SERVERS = st.integers(1, 9)


def table(name='table/embeddings', rows=23, width=4, **fields):
    fields.setdefault('lookups', 1)
    return VariableUse(name, (rows, width), 'float32', **fields)


def dense(name='out/kernel', shape=(20, 1)):
    return VariableUse(name, shape, 'float32', whole_reads=('MatMul',))


TABLES = st.lists(
    st.builds(
        table,
        rows=st.integers(1, 200),
        width=st.integers(1, 9),
        regularizer=REACHES,
        constraint=REACHES,
    ),
    min_size=1,
    max_size=8,
).map(lambda uses: [use._replace(name=f'table_{n}') for n, use in enumerate(uses)])


def in_one_piece(use):
    return WHOLE_TABLE in (use.regularizer, use.constraint)


def load_of_servers(plan):
    load = [0] * plan.servers
    for variable in plan.variables:
        row = variable.bytes // variable.shape[0]
        for shard in variable.shards:
            load[shard.server] += shard.rows * row
    return load


# --- shards ------------------------------------------------------------------


@given(rows=st.integers(1, 300), servers=SERVERS)
def test_shards_hold_every_row_exactly_once(rows, servers):
    shards = make_plan([table(rows=rows)], servers).variables[0].shards
    held = [
        number + len(shards) * local
        for number, shard in enumerate(shards)
        for local in range(shard.rows)
    ]
    assert sorted(held) == list(range(rows))


@given(rows=st.integers(1, 300), servers=SERVERS)
def test_row_r_is_row_r_div_n_of_shard_r_mod_n(rows, servers):
    shards = make_plan([table(rows=rows)], servers).variables[0].shards
    n = len(shards)
    for r in range(rows):
        assert r // n < shards[r % n].rows


@given(rows=st.integers(0, 10**12), shards=st.integers(1, 100), data=st.data())
def test_a_shard_has_as_many_rows_as_leave_its_number_over(rows, shards, data):
    shard = data.draw(st.integers(0, shards - 1))
    assert rows_of_shard(rows, shards, shard) == len(range(shard, rows, shards))


@given(rows=st.integers(1, 300), servers=SERVERS)
def test_sizes_of_shards_differ_by_at_most_one(rows, servers):
    sizes = [shard.rows for shard in make_plan([table(rows=rows)], servers).variables[0].shards]
    assert max(sizes) - min(sizes) <= 1


@given(TABLES, SERVERS)
def test_no_shard_is_empty_and_no_server_has_two_of_one_table(uses, servers):
    for variable in make_plan(uses, servers).variables:
        holders = [shard.server for shard in variable.shards]
        assert len(set(holders)) == len(holders)
        assert set(holders) <= set(range(servers))
        assert all(shard.rows > 0 for shard in variable.shards)


@given(TABLES, SERVERS)
def test_a_table_is_split_over_all_servers_unless_it_has_fewer_rows(uses, servers):
    for use, variable in zip(uses, make_plan(uses, servers).variables):
        if not in_one_piece(use):
            assert len(variable.shards) == min(servers, use.shape[0])


@pytest.mark.parametrize('what', ['regularizer', 'constraint'])
def test_a_table_stays_in_one_piece_for_what_reaches_over_the_whole(what):
    whole = make_plan([table(**{what: WHOLE_TABLE})], 4).variables[0]
    assert [shard.rows for shard in whole.shards] == [23]
    split = make_plan([table(**{what: BY_ROW})], 4).variables[0]
    assert len(split.shards) == 4


def test_tables_in_one_piece_go_to_different_servers():
    uses = [table(f'table_{number}', regularizer=WHOLE_TABLE) for number in range(4)]
    servers = [variable.shards[0].server for variable in make_plan(uses, 4).variables]
    assert sorted(servers) == [0, 1, 2, 3]


def test_single_rows_left_over_go_to_the_servers_with_less():
    uses = [table(f'table_{number}', rows=5) for number in range(4)]
    assert load_of_servers(make_plan(uses, 4)) == [5 * 4 * 4] * 4


@given(TABLES, SERVERS)
def test_loads_differ_by_no_more_than_the_largest_piece_that_cannot_be_split(uses, servers):
    plan = make_plan(uses, servers)
    load = load_of_servers(plan)
    assert sum(load) == sum(variable.bytes for variable in plan.variables)
    # A table that is split adds a row more to some servers than to others.
    pieces = [
        variable.bytes if in_one_piece(use) else variable.bytes // variable.shape[0]
        for use, variable in zip(uses, plan.variables)
    ]
    assert max(load) - min(load) <= max(pieces)


def test_without_servers_nothing_has_shards():
    plan = make_plan([table(), dense()], servers=0)
    assert [variable.shards for variable in plan.variables] == [(), ()]
    assert [variable.kind for variable in plan.variables] == [SPARSE, DENSE]


def test_a_dense_variable_has_no_shards():
    assert make_plan([dense()], servers=3).variables[0].shards == ()


def test_a_table_made_dense_has_no_shards_and_no_load():
    uses = [table('made_dense', rows=1000), table('one', regularizer=WHOLE_TABLE)]
    plan = make_plan(uses, 2, {'made_dense': DENSE})
    assert plan['made_dense'].shards == ()
    assert plan['one'].shards[0].server == 0


# --- overrides ---------------------------------------------------------------


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(PlanError) as caught:
        make_plan([table(), dense()], 2, {'tabel/embeddings': DENSE, 'out/kernel': DENSE})
    message = str(caught.value)
    assert message.startswith('overrides names tabel/embeddings, but ')
    assert 'table/embeddings, out/kernel.' in message


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


# --- the plan as data --------------------------------------------------------


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
    with pytest.raises(KeyError):
        plan['out/bias']


def test_a_plan_is_a_tuple_of_its_fields():
    plan = make_plan([table()], 2)
    variables, servers, requested, _, _ = plan
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
        'place': '2 shards on servers 0, 1',
        'road': 'servers',
        'alpha': None,
        'measured': False,
    }


# --- architectures -----------------------------------------------------------


FAST = Cluster(hosts=8, message_seconds=0.0)


def test_ps_gives_shards_to_dense_variables_too():
    uses = [table(), dense('out/kernel', (200, 3)), dense('scale', ()), dense('row', (1, 9))]
    plan = make_plan(uses, 3, architecture='ps', cluster=Cluster(3, message_seconds=0.0))
    assert [[shard.rows for shard in variable.shards] for variable in plan.variables] == [
        [8, 8, 7],
        [67, 67, 66],
        [1],
        [1],
    ]
    assert [variable.kind for variable in plan.variables] == [SPARSE, DENSE, DENSE, DENSE]
    assert {variable.road for variable in plan.variables} == {'servers'}
    assert plan.architecture == 'ps'


def test_ps_keeps_small_dense_variables_in_one_shard_each_and_spreads_them():
    uses = [dense('bias_%d' % number, (64,)) for number in range(6)]
    plan = make_plan(uses, 3, architecture='ps')
    assert [len(variable.shards) for variable in plan.variables] == [1] * 6
    assert sorted(load_of_servers(plan)) == [512, 512, 512]


def test_ps_keeps_a_dense_variable_with_a_constraint_of_its_columns_in_one_piece():
    kernel = dense('out/kernel', (200, 3))._replace(constraint=WHOLE_TABLE)
    plan = make_plan([kernel], 3, architecture='ps', cluster=FAST)
    assert [shard.rows for shard in plan.variables[0].shards] == [200]


def test_ps_pulls_a_table_made_dense_as_a_whole_whatever_its_density():
    uses = [table('hot', rows=60000, width=64), table('cold', rows=60000, width=64)]
    density = {'hot': 1e-4, 'cold': 1e-4}
    plan = make_plan(uses, 8, {'hot': DENSE}, 'ps', density=density)
    assert plan['hot'].kind == DENSE
    assert len(plan['hot'].shards) > len(plan['cold'].shards)


def test_tables_that_are_looked_up_with_the_same_ids_lie_on_the_same_servers_in_the_same_order():
    uses = []
    for column, rows in enumerate((1009, 3, 70, 501)):
        uses.append(table('deep_%d' % column, rows, 16, asked_by=column))
    for column, rows in enumerate((1009, 3, 70, 501)):
        uses.append(table('wide_%d' % column, rows, 1, asked_by=column))
    for partitions in (None, 4, 8):
        for density in ({}, {use.name: 0.1 for use in uses}):
            planned = make_plan(uses, 4, partitions=partitions, density=density).variables
            for deep, wide in zip(planned[:4], planned[4:]):
                assert deep.shards == wide.shards


@pytest.mark.parametrize('differs', [dict(asked_by=1), dict(asked_by=None), dict(rows=7)])
def test_tables_that_are_looked_up_otherwise_lie_where_there_is_most_room(differs):
    # Of ten rows the first two servers have three each.
    other = dict(dict(name='other', rows=10, asked_by=0), **differs)
    one, other = make_plan([table('one', 10, 4, asked_by=0), table(**other)], 4).variables
    assert [shard.server for shard in one.shards] == [0, 1, 2, 3]
    assert [shard.server for shard in other.shards] == [2, 3, 0, 1]


@pytest.mark.parametrize('asked', [dict(partitions=1), dict(constraint=WHOLE_TABLE)])
def test_tables_in_one_piece_are_spread_over_servers_also_if_looked_up_with_the_same_ids(asked):
    asked = dict(dict(partitions=None, constraint=None), **asked)
    uses = [table(name, 24, 4, asked_by=0, constraint=asked['constraint']) for name in 'ab']
    one, other = make_plan(uses, 2, partitions=asked['partitions']).variables
    assert one.shards[0].server != other.shards[0].server


def test_allreduce_has_no_servers():
    plan = make_plan([table(), dense()], 3, architecture='allreduce')
    assert plan.servers == 0 and plan.architecture == 'allreduce'
    assert [variable.shards for variable in plan.variables] == [(), ()]
    assert [variable.road for variable in plan.variables] == ['allgather', 'allreduce']


@given(
    alpha=st.floats(0, 1),
    hosts=st.integers(1, 64),
    workers=st.integers(1, 8),
    rows=st.integers(1, 10**6),
    width=st.integers(1, 600),
)
def test_allreduce_takes_the_cheaper_of_allgather_and_dense(alpha, hosts, workers, rows, width):
    cluster = Cluster(hosts, workers)
    use = table(rows=rows, width=width)
    found = make_plan(
        [use], architecture='allreduce', density={use.name: alpha}, cluster=cluster
    ).variables[0]
    view = cluster.for_decisions()
    ids = np.dtype(costs.id_dtype(rows)).itemsize
    gathered = costs.allgather(rows, width * 4, alpha, view, ids).sent
    reduced = costs.allreduce(rows * width * 4, view).sent
    if cluster.workers == 1:
        assert found.road == 'allgather'
    elif abs(gathered - reduced) > 1e-6 * reduced:
        assert found.road == ('allgather' if gathered < reduced else 'allreduce')


def test_allreduce_gathers_a_table_of_unknown_density():
    plan = make_plan([table()], architecture='allreduce', cluster=Cluster(8))
    assert plan.variables[0].road == 'allgather'


def test_auto_makes_a_table_dense_that_is_touched_almost_whole():
    use = table(rows=10**6, width=64)
    for alpha, kind in ((0.99, DENSE), (0.5, SPARSE), (0.001, SPARSE)):
        plan = make_plan([use], 8, architecture='auto', density={use.name: alpha})
        assert plan.variables[0].kind == kind
        assert plan.variables[0].alpha == alpha
    reason = make_plan([use], 8, architecture='auto', density={use.name: 0.99}).variables[0].reason
    assert 'alpha 0.99' in reason and 'looked up by rows' in reason


def test_auto_makes_a_tiny_table_dense_without_measuring():
    plan = make_plan([table(rows=10), table('big', rows=10**6)], 8, architecture='auto')
    assert [variable.kind for variable in plan.variables] == [DENSE, SPARSE]
    assert 'so small' in plan.variables[0].reason


def test_auto_compares_the_workers_of_one_host_as_if_each_were_a_host():
    use = table(rows=10**6, width=64)
    for alpha, kind in ((0.99, DENSE), (0.01, SPARSE)):
        plan = make_plan(
            [use], 4, architecture='auto', density={use.name: alpha}, cluster=Cluster(1, 4)
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


# --- partitions ----------------------------------------------------------------


@given(rows=st.integers(1, 300), servers=SERVERS, number=st.integers(1, 400))
def test_a_table_has_the_shards_asked_for_but_no_more_than_rows(rows, servers, number):
    (variable,) = make_plan([table(rows=rows)], servers, partitions=number).variables
    assert len(variable.shards) == min(rows, number)
    assert sum(shard.rows for shard in variable.shards) == rows
    held = [shard.server for shard in variable.shards]
    counts = [held.count(server) for server in range(servers)]
    assert max(counts) - min(counts) <= 1


def test_partitions_by_name_leave_the_others_alone():
    uses = [table('one'), table('other')]
    plan = make_plan(uses, 2, partitions={'one': 5})
    assert [len(variable.shards) for variable in plan.variables] == [5, 2]


def test_a_number_of_partitions_is_for_tables_and_a_name_for_any_variable_on_servers():
    uses = [table(), dense(shape=(20, 3))]
    by_number = make_plan(uses, 2, architecture='ps', partitions=4)
    assert [len(variable.shards) for variable in by_number.variables] == [4, 1]
    by_name = make_plan(uses, 2, architecture='ps', partitions={'out/kernel': 4})
    assert [len(variable.shards) for variable in by_name.variables] == [2, 4]


def test_a_table_that_must_stay_whole_stays_whole_under_a_number():
    uses = [table('whole', regularizer=WHOLE_TABLE), table()]
    plan = make_plan(uses, 2, partitions=3)
    assert [len(variable.shards) for variable in plan.variables] == [1, 3]


@pytest.mark.parametrize(
    'partitions, message',
    [
        (0, 'partitions must be a whole number from 1, but 0 was given'),
        (2.5, 'partitions must be a whole number from 1, but 2.5 was given'),
        (True, 'partitions must be a whole number from 1, but True was given'),
        ('many', "partitions must be a whole number from 1, but 'many' was given"),
        ({'table/embeddings': -1}, 'partitions of table/embeddings must be a whole number'),
        ({'tabel': 2}, 'partitions names tabel, but the trainable variables of the model are'),
        ({'out/kernel': 2}, 'partitions names out/kernel, which is dense: it is read whole by'),
        ({'whole': 2}, 'partitions asks for 2 shards of whole, which must stay in one piece'),
    ],
)
def test_partitions_that_cannot_be_are_refused_with_the_reason(partitions, message):
    uses = [table(), table('whole', constraint=WHOLE_TABLE), dense()]
    with pytest.raises(PlanError) as caught:
        make_plan(uses, 2, partitions=partitions)
    assert message in str(caught.value)


def test_partitions_of_a_table_that_the_user_made_dense_are_refused():
    with pytest.raises(PlanError, match='which is dense: it is made dense by the user'):
        make_plan([table()], 2, {'table/embeddings': DENSE}, partitions={'table/embeddings': 2})


def test_partitions_without_servers_are_refused():
    with pytest.raises(PlanError, match="architecture='allreduce' has none"):
        make_plan([table()], 2, architecture='allreduce', partitions=2)


# --- density --------------------------------------------------------------------


@pytest.mark.parametrize('alpha', [-0.1, 1.1, float('nan'), 'half', True, None])
def test_a_density_that_is_no_fraction_is_refused(alpha):
    with pytest.raises(PlanError, match='a number from 0 to 1, but '):
        make_plan([table()], 2, density={'table/embeddings': alpha})


def test_a_density_of_no_table_is_refused():
    with pytest.raises(PlanError, match='density names tabel, but'):
        make_plan([table()], 2, density={'tabel': 0.1})
    with pytest.raises(PlanError, match='density names out/kernel, which is dense'):
        make_plan([table(), dense()], 2, density={'out/kernel': 0.1})


def test_a_large_hot_table_is_split_and_many_small_ones_are_spread():
    words = table('words', rows=800000, width=512)
    plan = make_plan([words], 8, density={'words': 0.003})
    assert len(plan.variables[0].shards) == 8
    columns = [table('column_%d' % number, rows=5000, width=16) for number in range(26)]
    plan = make_plan(columns, 8, density={use.name: 0.1 for use in columns})
    assert [len(variable.shards) for variable in plan.variables] == [1] * 26
    held = [variable.shards[0].server for variable in plan.variables]
    assert {held.count(server) for server in range(8)} == {3, 4}


def test_shards_of_a_hot_table_go_to_all_hosts_before_a_second_server_of_one():
    words = table('words', rows=800000, width=512)
    cluster = Cluster(4, 3, message_seconds=1e-3)
    plan = make_plan([words], 12, density={'words': 0.003}, cluster=cluster, partitions=6)
    hosts = [shard.server // 3 for shard in plan.variables[0].shards]
    assert sorted(hosts) == [0, 0, 1, 1, 2, 3]
    # The link belongs to the host: shards on more than one of its servers do not relieve it.
    plan = make_plan([words], 12, density={'words': 0.003}, cluster=cluster)
    assert sorted(shard.server // 3 for shard in plan.variables[0].shards) == [0, 1, 2, 3]


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
    hosts=st.integers(1, 9),
    workers=st.integers(1, 3),
    data=st.data(),
)
def test_no_host_carries_more_than_twice_an_even_share_and_the_largest_pieces(
    sizes, hosts, workers, data
):
    uses = [table('table_%d' % number, rows=rows) for number, rows in enumerate(sizes)]
    density = {use.name: data.draw(st.floats(0.01, 1)) for use in uses}
    cluster = Cluster(hosts, workers).for_decisions()
    plan = make_plan(uses, hosts * workers, density=density, cluster=cluster)
    loads = [0.0] * cluster.hosts
    for load in plan.predict().server_loads if hosts * workers > 1 else ():
        loads[load.machine] += load.traffic_share
    traffic = {use.name: density[use.name] * use.shape[0] for use in uses}
    heaviest = max(
        traffic[variable.name] * max(shard.rows for shard in variable.shards) / variable.rows
        for variable in plan.variables
    )
    # Bytes are balanced too, so that traffic alone may come out less even than it could.
    bytes_too = max(shard.rows for variable in plan.variables for shard in variable.shards)
    slack = heaviest / sum(traffic.values()) + bytes_too / sum(sizes)
    assert max(loads) <= 2 / cluster.hosts + 2 * slack


def test_a_cold_table_too_large_for_a_machine_is_split_for_memory():
    cold = table('cold', rows=10**7, width=64)
    plan = make_plan([cold], 8, density={'cold': 1e-7})
    assert len(plan.variables[0].shards) == 8


def test_no_server_carries_two_hot_tables_while_another_carries_two_cold_ones():
    uses = [table('table_%d' % number, rows=1000) for number in range(4)]
    # By bytes alone, in this order, the hot ones 0 and 2 would share server 0.
    density = {'table_0': 0.9, 'table_1': 0.01, 'table_2': 0.9, 'table_3': 0.01}
    plan = make_plan(uses, 2, density=density)
    hot = {plan[name].shards[0].server for name in ('table_0', 'table_2')}
    assert [len(variable.shards) for variable in plan.variables] == [1] * 4
    assert hot == {0, 1}


@given(TABLES, SERVERS, st.data())
def test_known_density_keeps_every_promise_of_the_default(uses, servers, data):
    density = {use.name: data.draw(st.floats(0, 1)) for use in uses}
    for use, variable in zip(uses, make_plan(uses, servers, density=density).variables):
        rows = use.shape[0]
        assert [shard.rows for shard in variable.shards] == [
            rows_of_shard(rows, len(variable.shards), number)
            for number in range(len(variable.shards))
        ]
        assert 1 <= len(variable.shards) <= min(servers, rows)
        assert len({shard.server for shard in variable.shards}) == len(variable.shards)


@pytest.mark.parametrize('asked, available', [(True, True), (True, False), (False, True)])
def test_local_aggregation_is_predicted_if_it_is_asked_for_and_can_be(asked, available):
    cluster = Cluster(2, 4, local_aggregation=available)
    use = table()
    plan = make_plan([use], 8, density={use.name: 0.1}, cluster=cluster, local_aggregation=asked)
    effective = cluster._replace(local_aggregation=asked and available)
    assert plan.cluster == effective
    assert (
        plan.predict() == make_plan([use], 8, density={use.name: 0.1}, cluster=effective).predict()
    )
