# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How many shards variables get, and where they lie."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uses import SERVERS, TABLES, dense, in_one_piece, load_of_servers, table

from keras_parallax.planning.classify import BY_ROW, DENSE, SPARSE, WHOLE_TABLE
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.placement import Weight, rows_of_shard, shard_count, why_count
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.search_request import Search

FAST = Cluster(hosts=8, message_seconds=0.0)


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
    assert {variable.exchange for variable in plan.variables} == {'servers'}
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
        uses.append(table('deep_%d' % column, rows, 16, ids_key=column))
    for column, rows in enumerate((1009, 3, 70, 501)):
        uses.append(table('wide_%d' % column, rows, 1, ids_key=column))
    for partitions in (None, 4, 8):
        for density in ({}, {use.name: 0.1 for use in uses}):
            planned = make_plan(uses, 4, partitions=partitions, density=density).variables
            for deep, wide in zip(planned[:4], planned[4:]):
                assert deep.shards == wide.shards


@pytest.mark.parametrize('differs', [dict(ids_key=1), dict(ids_key=None), dict(rows=7)])
def test_tables_that_are_looked_up_otherwise_lie_where_there_is_most_room(differs):
    # Of ten rows the first two servers have three each.
    other = dict(dict(name='other', rows=10, ids_key=0), **differs)
    one, other = make_plan([table('one', 10, 4, ids_key=0), table(**other)], 4).variables
    assert [shard.server for shard in one.shards] == [0, 1, 2, 3]
    assert [shard.server for shard in other.shards] == [2, 3, 0, 1]


@pytest.mark.parametrize('asked', [dict(partitions=1), dict(constraint=WHOLE_TABLE)])
def test_tables_in_one_piece_are_spread_over_servers_also_if_looked_up_with_the_same_ids(asked):
    asked = dict(dict(partitions=None, constraint=None), **asked)
    uses = [table(name, 24, 4, ids_key=0, constraint=asked['constraint']) for name in 'ab']
    one, other = make_plan(uses, 2, partitions=asked['partitions']).variables
    assert one.shards[0].server != other.shards[0].server


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


# --- why -----------------------------------------------------------------------


def why(rows=10**6, size=4 * 10**6, traffic=None, servers=16, machines=8, others=()):
    weight = Weight(rows, size, traffic)
    given = weight, [weight, *others], servers, machines, Cluster(machines, 2)
    count = shard_count(*given)
    return count, why_count(count, *given)


def test_a_number_that_was_chosen_is_compared_with_the_least_and_the_most():
    count, words = why(traffic=6 * 10**6)
    assert 1 < count < 16
    cost, one, most = re.findall(r'[\d.]+ [mu]s', words)
    assert '; 1 shard would take %s; 16 shards would take %s' % (one, most) in words
    assert min(map(in_seconds, (one, most))) > in_seconds(cost)


def in_seconds(words):
    number, unit = words.split()
    return float(number) * {'s': 1, 'ms': 1e-3, 'us': 1e-6}[unit]


@pytest.mark.parametrize(
    'arguments, count, words',
    [
        ({}, 16, 'one for each server, until it is known which part of its rows'),
        ({'rows': 3}, 3, 'one for each row, until it is known'),
        ({'rows': 1}, 1, 'there is one row'),
        ({'servers': 1, 'machines': 1}, 1, 'there is one server'),
        ({'size': 10**10, 'traffic': 10, 'servers': 8}, 8, 'fewer than 8 would be more than an'),
        (
            {'size': 10**10, 'traffic': 10, 'others': [Weight(9, 10**10)]},
            4,
            'fewer than 4 would be more than an even share of all bytes',
        ),
    ],
)
def test_what_has_settled_a_number_is_said(arguments, count, words):
    chosen, said = why(**arguments)
    assert chosen == count and words in said


@pytest.mark.parametrize(
    'use, partitions, words',
    [
        (table(rows=9), 3, 'as asked for by partitions'),
        (table(rows=2), 3, 'as asked for by partitions, one for each row'),
        (table(rows=9, regularizer=WHOLE_TABLE), 3, 'in one piece, because of what reaches over'),
        (dense(), None, ''),
    ],
)
def test_a_number_that_was_not_chosen_is_said_to_be_asked_for_or_needed(use, partitions, words):
    (variable,) = make_plan([use], 4, partitions=partitions, cluster=Cluster(4)).variables
    assert variable.count_reason.startswith(words) and bool(variable.count_reason) == bool(words)


def test_a_number_that_a_search_has_found_is_said_to_be_the_fastest():
    plan = make_plan([table()], 4, cluster=Cluster(4))
    name, shards = plan.variables[0].name, plan.variables[0].shards
    assert plan.as_followed({name: shards}, {}).variables == plan.variables
    moved = plan.as_followed({name: shards[:2]}, {}).variables[0]
    assert moved.count_reason == 'of those that were tried, the fastest'
    found = make_plan([table()], 4, partitions=Search().with_count(3), cluster=Cluster(4))
    assert found.variables[0].count_reason == 'as found by the search'
