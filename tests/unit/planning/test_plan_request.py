# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What cannot be asked of a plan is refused, with the reason."""

import numpy as np
import pytest
from uses import dense, table

from keras_parallax import ParallaxStrategy
from keras_parallax.errors import PlanError
from keras_parallax.planning import plan_request
from keras_parallax.planning.classify import DENSE, WHOLE_TABLE
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.plan_request import Timing, check_row_dtype, check_timing
from keras_parallax.planning.search_request import Search


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(PlanError) as caught:
        make_plan([table(), dense()], 2, {'tabel/embeddings': DENSE, 'out/kernel': DENSE})
    message = str(caught.value)
    assert message.startswith('overrides names tabel/embeddings, but ')
    assert 'table/embeddings, out/kernel.' in message


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
        (
            Search({'whole': 'search'}),
            'asks for the best number of shards of whole, which must',
        ),
        (Search({'out/kernel': 'search'}), 'partitions names out/kernel, which is dense'),
        (Search({'tabel': 'search'}), 'partitions names tabel, but the trainable variables'),
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


@pytest.mark.parametrize('density', [-0.1, 1.1, float('nan'), 'half', True, None])
def test_a_density_that_is_no_fraction_is_refused(density):
    with pytest.raises(PlanError, match='a number from 0 to 1, but '):
        make_plan([table()], 2, density={'table/embeddings': density})


def test_a_density_of_no_table_is_refused():
    with pytest.raises(PlanError, match='density names tabel, but'):
        make_plan([table()], 2, density={'tabel': 0.1})
    with pytest.raises(PlanError, match='density names out/kernel, which is dense'):
        make_plan([table(), dense()], 2, density={'out/kernel': 0.1})


# --- rows of 16 bits -----------------------------------------------------------


@pytest.mark.parametrize(
    'row_dtype, architecture, timing, message',
    [
        ('float32', 'hybrid', Timing(), "row_dtype must be 'float16', or None for the dtype of"),
        ({'words': 16}, 'ps', Timing(), "row_dtype of words must be 'float16', or None"),
        ('float16', 'allreduce', Timing(), "architecture='allreduce' has none; leave one of"),
        ('float16', 'hybrid', Timing(False), "row_dtype='float16' with sync=False would lose"),
    ],
)
def test_a_dtype_of_rows_that_cannot_be_is_refused(row_dtype, architecture, timing, message):
    with pytest.raises(PlanError) as caught:
        check_row_dtype(row_dtype, architecture, timing)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    'row_dtype, message',
    [
        ({'tabel': 'float16'}, 'row_dtype names tabel, but the trainable variables of the model'),
        ({'out/kernel': 'float16'}, 'row_dtype names out/kernel, which is dense: it is read whole'),
        ({'doubles': 'float16'}, 'row_dtype names doubles, whose dtype is float64, but only rows'),
    ],
)
def test_a_dtype_of_rows_of_what_has_none_of_float32_is_refused(row_dtype, message):
    uses = [table(), table('doubles')._replace(dtype='float64'), dense()]
    with pytest.raises(PlanError) as caught:
        make_plan(uses, 2, row_dtype=row_dtype)
    assert message in str(caught.value)
    # Of those that have none, nothing is asked.
    make_plan(uses, 2, row_dtype=dict.fromkeys(['table/embeddings', 'out/kernel']))


# --- when workers wait for each other ------------------------------------------


@pytest.mark.parametrize(
    'architecture, timing, message',
    [
        ('hybrid', Timing(True, 2), 'max_staleness=2 bounds asynchronous training, but sync=True'),
        ('allreduce', Timing(False), "sync=False needs architecture='hybrid' or 'ps'"),
        ('auto', Timing(False), "sync=False needs architecture='hybrid' or 'ps'"),
        ('ps', Timing(False, -1), 'max_staleness must be a whole number from 0, but -1 was'),
        ('ps', Timing(False, True), 'max_staleness must be a whole number from 0, but True was'),
        ('ps', Timing(False, 0.5), 'max_staleness must be a whole number from 0, but 0.5 was'),
    ],
)
def test_a_timing_that_makes_no_sense_is_refused(architecture, timing, message):
    with pytest.raises(PlanError) as caught:
        check_timing(architecture, timing)
    assert message in str(caught.value)


@pytest.mark.parametrize('architecture', ['hybrid', 'ps'])
@pytest.mark.parametrize('timing', [Timing(), Timing(False), Timing(False, 0), Timing(False, 3)])
def test_workers_need_not_wait_where_rows_are_on_servers(architecture, timing):
    check_timing(architecture, timing)


@pytest.mark.parametrize(
    'arguments, told',
    [
        ({'sync': 'no'}, "sync must be True or False, but 'no' was given"),
        ({'local_aggregation': 2}, 'local_aggregation must be True or False, but 2'),
        ({'density': 5}, 'density must be a dict from names of variables to fractions .* but 5'),
        ({'overrides': 'dense'}, "overrides must be a dict .* but 'dense'"),
        ({'step_timeout': '5'}, "step_timeout must be a number of seconds, .* but '5'"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_the_strategy(arguments, told):
    with pytest.raises(PlanError, match=told):
        ParallaxStrategy(**arguments)


def test_a_flag_of_numpy_is_one():
    assert plan_request.check_flag('sync', np.bool_(True)) is True
