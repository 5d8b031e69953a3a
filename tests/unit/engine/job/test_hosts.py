# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Who shares a host, from what the workers say of their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.engine.job.hosts import aggregation_helps, hosts_of


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.randoms())
def test_each_host_has_its_ranks_in_order_of_local_rank(sizes, random):
    places = [('h%d' % host, local) for host, size in enumerate(sizes) for local in range(size)]
    random.shuffle(places)
    hosts = hosts_of(places)
    assert sorted(rank for ranks in hosts for rank in ranks) == list(range(len(places)))
    assert sorted(map(len, hosts)) == sorted(sizes)
    for ranks in hosts:
        assert len({places[rank][0] for rank in ranks}) == 1
        assert [places[rank][1] for rank in ranks] == list(range(len(ranks)))


def test_hosts_of_one_name_are_told_apart_by_the_local_ranks():
    assert hosts_of([('a', 0), ('a', 1), ('a', 0), ('a', 1)]) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    'places',
    [
        # Containers of one machine, each with a name of its own.
        [('a', 0), ('b', 1), ('c', 2)],
        [('a', 0), ('a', 2)],
        [('a', 1), ('a', 1)],
    ],
)
def test_ranks_whose_local_ranks_contradict_the_names_are_hosts_of_their_own(places):
    assert hosts_of(places) == [[rank] for rank in range(len(places))]


@pytest.mark.parametrize(
    'hosts, answer',
    [
        ([[0]], False),
        ([[0, 1, 2]], False),
        ([[0], [1]], False),
        ([[0, 1], [2, 3]], True),
        ([[0], [1, 2]], True),
    ],
)
def test_it_pays_with_several_workers_on_one_of_several_hosts(hosts, answer):
    assert aggregation_helps(hosts) == answer
