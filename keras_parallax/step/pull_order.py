"""Which rows a step needs first: the others are pulled while it computes with those.

A language model computes its LSTM from the rows of its input words alone, and needs those of its
softmax only then. Pulled at the same time, the two halve the link between them, and the LSTM waits
for both.
"""

from keras_parallax.compat import graph_queries, tensorflow_api

#: What takes long enough for rows to arrive in the meantime.
_HEAVY = {'MatMul', 'BatchMatMul', 'BatchMatMulV2', 'Conv1D', 'Conv2D', 'Conv3D', 'CudnnRNN'}


def needed_first(pulls, members, small=()):
    """Finds tables with whose rows a loss is computed for a while before it needs those of others.

    Returns a dict from tables to lists of those whose rows are needed first: all heavy computation
    that needs its rows needs theirs too, and some needs theirs alone. Of `small` ones so little is
    pulled that it is not worth waiting. Tables that are looked up in a loop, which has rows for
    each round, are not in it.
    """
    heavy = {
        table: {
            user
            for pull in of_table
            for output in pull.outputs
            for user in graph_queries.descendants(output.op, members)
            if user.type in _HEAVY
        }
        for table, of_table in pulls.items()
        if not any(tensorflow_api.is_in_control_flow(pull.split.ids) for pull in of_table)
    }
    return {
        table: [other for other in heavy if heavy[other] > heavy[table] and table not in small]
        for table in heavy
    }
