# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Variables as a loss may use them, for the tests of planning."""

from hypothesis import strategies as st

from keras_parallax.planning.classify import BY_ROW, WHOLE_TABLE, VariableUse

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
