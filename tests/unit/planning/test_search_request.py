# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What may be asked of a search for the number of shards, and the shards that tables begin with."""

import pytest
from uses import dense, table

from keras_parallax.errors import PlanError
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.search_request import (
    SEARCH,
    Search,
    check_search,
    requested_partitions,
)


@pytest.mark.parametrize('partitions', [None, 3, {'table': 2}])
def test_without_a_search_partitions_stay_as_they_are(partitions):
    assert requested_partitions(partitions) == partitions
    check_search(partitions, 'allreduce', False)


@pytest.mark.parametrize(
    'partitions, least, message',
    [
        ('find', None, "'search', but 'find' was given"),
        (SEARCH, 0, 'min_partitions must be a whole number from 1, but 0 was given'),
        (SEARCH, True, 'from 1, but True was given'),
        ({'table': SEARCH}, 2.5, 'from 1, but 2.5 was given'),
        (8, 4, "min_partitions=4 is the least .* partitions=8 searches for none; give 'search'"),
        ({'table': 8}, 4, "partitions={'table': 8} searches for none"),
        (None, 4, 'partitions=None searches for none'),
    ],
)
def test_what_is_no_search_is_refused_with_the_reason(partitions, least, message):
    with pytest.raises(PlanError, match=message):
        requested_partitions(partitions, least)


@pytest.mark.parametrize('partitions', [SEARCH, {'table': SEARCH, 'other': 2}])
@pytest.mark.parametrize(
    'architecture, sync, message',
    [
        ('hybrid', False, 'but sync=False was given'),
        ('allreduce', True, "but architecture='allreduce' was given"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(partitions, architecture, sync, message):
    search = requested_partitions(partitions)
    with pytest.raises(PlanError, match=message):
        check_search(search, architecture, sync)
    check_search(search, 'hybrid', True)


def shards(partitions, servers=2):
    """The number of shards of each variable of a model, by name."""
    uses = [table(), table('other'), table('tiny', 3), dense()]
    plan = make_plan(uses, servers, partitions=partitions)
    return {planned.name: len(planned.shards) for planned in plan.variables}


def test_a_search_begins_with_a_shard_on_each_server_or_with_its_minimum():
    assert shards(Search()) == shards(None)
    assert shards(Search(least=8)) == shards(8)
    # As many as there are rows.
    assert shards(Search(least=8))['tiny'] == 3
    # Less than a shard on each server is no reason to begin with less.
    assert shards(Search(least=2), servers=4) == shards(4, servers=4)


def test_a_search_for_some_tables_leaves_the_others_as_they_are():
    search = Search({'table/embeddings': SEARCH, 'other': 3}, least=8)
    expected = {'table/embeddings': 8, 'other': 3, 'tiny': 2, 'out/kernel': 0}
    assert shards(search) == expected
    assert shards(search.with_count(20)) == dict(expected, **{'table/embeddings': 20})
    assert [name for name in expected if search.is_for(name)] == ['table/embeddings']


def test_a_search_for_all_tables_is_for_each():
    assert Search().is_for('table/embeddings') and Search().with_count(5) == 5
