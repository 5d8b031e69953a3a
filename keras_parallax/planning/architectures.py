"""How a table is exchanged where the architecture leaves the choice. Pure functions.

A table for which allreduce is cheaper is of class dense: every worker holds it, and its whole
gradient goes through allreduce, so that everything else treats it as any dense variable.
"""

import numpy as np

from keras_parallax.errors import PlanError
from keras_parallax.planning import costs
from keras_parallax.planning.classify import DENSE, Class

HYBRID, ALLREDUCE, PS, AUTO = 'hybrid', 'allreduce', 'ps', 'auto'
ARCHITECTURES = (HYBRID, ALLREDUCE, PS, AUTO)


def check(architecture):
    """Refuses what is no architecture, with a `PlanError`."""
    if architecture not in ARCHITECTURES:
        raise PlanError(
            'architecture must be one of %s, but %r was given.'
            % (', '.join(map(repr, ARCHITECTURES)), architecture)
        )


def choose(use, natural, architecture, alpha, cluster, fp16=costs.NOTHING_HALVED, row_dtype=None):
    """Chooses the class of a table that could be sparse, and is so in `natural`.

    `'allreduce'` compares the allgather of the touched rows with the allreduce of the whole
    gradient, `'auto'` the servers with it; other architectures leave nothing to choose. Where
    `alpha`, the fraction of rows that a worker touches in a step, is not known, the table stays
    sparse, unless it is so small that even untouched it would be cheaper dense. It also does where
    the cluster is not known. Servers would keep its rows as `row_dtype`, or else as it has them.
    """
    if architecture in (HYBRID, PS) or cluster is None or cluster.workers == 1:
        return natural
    cluster = cluster.for_decisions()
    rows = use.shape[0]
    size = np.prod(use.shape, dtype=np.int64) * np.dtype(use.dtype).itemsize
    width = np.prod(use.shape[1:], dtype=np.int64)
    pulled, pushed = fp16.row_bytes(width, use.dtype, row_dtype)
    id_bytes = costs.id_bytes_of(rows)

    def seconds(traffic, messages):
        return costs.step_seconds(traffic, cluster.bandwidth) + messages * cluster.message_seconds

    # Horovod fuses small allreduces and has one round of messages a step anyway.
    as_dense = seconds(
        costs.allreduce(costs.wire_bytes(size, use.dtype, fp16.gradients), cluster), 0
    )
    touched = alpha or 0.0
    if architecture == ALLREDUCE:
        if alpha is None:
            return natural
        exchange = 'allgather of its rows'
        as_sparse = seconds(costs.allgather(rows, pushed, touched, cluster, id_bytes), messages=0)
    else:
        exchange = 'servers'
        as_sparse = seconds(
            costs.servers(rows, pulled, pushed, touched, cluster, id_bytes), messages=1
        )
    if as_sparse <= as_dense:
        return natural
    known = 'so small' if alpha is None else 'alpha %.3g' % alpha
    return Class(
        DENSE,
        '%s: dense allreduce is cheaper than %s (%s)' % (known, exchange, natural.reason),
    )
