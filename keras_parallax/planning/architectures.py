# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a table is exchanged where the architecture leaves the choice. Pure functions.

A table for which allreduce is cheaper is of class dense: every worker holds it, and its whole
gradient goes through allreduce, so that everything else treats it as any dense variable.
"""

from typing import Optional

import numpy as np

from keras_parallax.errors import PlanError
from keras_parallax.planning import costs
from keras_parallax.planning.classify import DENSE, Class, VariableUse

HYBRID, ALLREDUCE, PS, AUTO = 'hybrid', 'allreduce', 'ps', 'auto'
ARCHITECTURES = (HYBRID, ALLREDUCE, PS, AUTO)


def check(architecture: str) -> None:
    """Refuses what is no architecture, with a `PlanError`."""
    if architecture not in ARCHITECTURES:
        raise PlanError(
            'architecture must be one of %s, but %r was given.'
            % (', '.join(map(repr, ARCHITECTURES)), architecture)
        )


def choose(
    use: VariableUse,
    natural: Class,
    architecture: str,
    density: Optional[float],
    cluster: Optional[costs.Cluster],
    fp16: costs.Fp16 = costs.NO_FP16,
    row_dtype: Optional[str] = None,
) -> Class:
    """Chooses the class of a table that could be sparse, and is so in `natural`.

    `'allreduce'` compares the allgather of the touched rows with the allreduce of the whole
    gradient, `'auto'` the servers with it; other architectures leave nothing to choose. Where
    `density`, the fraction of rows that a worker touches in a step, is not known, the table stays
    sparse, unless it is so small that even untouched it would be cheaper dense. It also does where
    the cluster is not known. Servers would keep its rows as `row_dtype`, or else as it has them.
    """
    if architecture in (HYBRID, PS) or cluster is None or cluster.workers == 1:
        return natural
    cluster = cluster.for_decisions()
    rows = use.shape[0]
    size = use.whole_gradient * np.dtype(use.dtype).itemsize
    width = int(np.prod(use.shape[1:], dtype=np.int64))
    pulled, pushed = fp16.row_bytes(width, use.dtype, row_dtype)
    id_bytes = costs.id_bytes_of(rows)

    def seconds(traffic: costs.Traffic, messages: int) -> float:
        return costs.step_seconds(traffic, cluster.bandwidth) + messages * cluster.message_seconds

    # Horovod fuses small allreduces and has one round of messages a step anyway.
    as_dense = seconds(
        costs.allreduce(costs.wire_bytes(size, use.dtype, fp16.gradients), cluster), 0
    )
    touched = density or 0.0
    if architecture == ALLREDUCE:
        if density is None:
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
    known = 'so small' if density is None else 'density %.3g' % density
    return Class(
        DENSE,
        '%s: dense allreduce is cheaper than %s (%s)' % (known, exchange, natural.reason),
    )
