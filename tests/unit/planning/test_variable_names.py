# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""By which names options call variables."""

import pytest

from keras_parallax.errors import PlanError
from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.plan_request import Request, check_names, for_variables
from keras_parallax.planning.search_request import Search
from keras_parallax.planning.variable_names import by_variable, names_of

#: Names of variables of the second model of a process, with the names of their layers.
LAYERS = {'user_1/embeddings': 'user', 'item_1/embeddings': 'item', 'mean': None}


def test_a_variable_goes_by_its_own_name_first_and_by_the_name_of_its_layer_last():
    assert names_of('user_1/embeddings', 'user') == (
        'user_1/embeddings',
        'user/embeddings',
        'user',
    )
    assert names_of('user/embeddings') == ('user/embeddings', 'user')


@pytest.mark.parametrize('name', ['user_1/embeddings', 'user/embeddings', 'user'])
def test_each_name_reaches_the_variable(name):
    assert by_variable({name: 2}, LAYERS) == {'user_1/embeddings': 2}


def test_the_name_of_the_variable_overrules_the_name_of_its_layer():
    assert by_variable({'user': 1, 'user_1/embeddings': 2}, LAYERS) == {'user_1/embeddings': 2}


def test_every_variable_of_a_layer_gets_what_is_said_of_the_layer():
    layers = {'lstm_1/kernel': 'lstm', 'lstm_1/bias': 'lstm'}
    assert by_variable({'lstm': 'dense'}, layers) == dict.fromkeys(layers, 'dense')


def test_an_unknown_name_stays_and_is_refused_by_its_own_name():
    resolved = by_variable({'usr': 'dense'}, LAYERS)
    with pytest.raises(PlanError, match='usr'):
        check_names('overrides', resolved, [VariableUse('user_1/embeddings', (3, 2), 'float32')])


def test_what_is_no_mapping_stays():
    assert [by_variable(given, LAYERS) for given in (None, 3, 'float16')] == [None, 3, 'float16']


def test_every_option_of_a_request_may_go_by_layers():
    asked = Request(
        overrides={'item': 'dense'},
        partitions=Search({'user': 'search'}),
        density={'user': 0.5},
        row_dtype={'user': 'float16'},
    )
    found = for_variables(asked, LAYERS)
    assert found.overrides == {'item_1/embeddings': 'dense'}
    assert found.partitions.chosen == {'user_1/embeddings': 'search'}
    assert found.density == {'user_1/embeddings': 0.5}
    assert found.row_dtype == {'user_1/embeddings': 'float16'}
    assert for_variables(asked._replace(partitions={'user': 3}), LAYERS).partitions == {
        'user_1/embeddings': 3
    }
