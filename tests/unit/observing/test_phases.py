# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which phase an operation belongs to. `tests/parallel/test_behaviour.py` has real graphs."""

from typing import NamedTuple

import pytest

from keras_parallax.observing import phases
from keras_parallax.observing.phases import Role


class Tensor(NamedTuple):
    op: object


class Made:
    def __init__(self, name, *needed, type='Mul'):
        self.name, self.type = name, type
        self.inputs = [Tensor(one) for one in needed]


def ancestors(operations):
    found, pending = [], list(operations)
    while pending:
        operation = pending.pop()
        if operation not in found:
            found.append(operation)
            pending += [tensor.op for tensor in operation.inputs]
    return found


def queue(name):
    return Made(name, type='FIFOQueueV2')


@pytest.fixture(scope='module')
def roles():
    ids = Made('ids')
    rows = Made('rows', ids)
    loss = Made('loss', Made('hidden', rows))
    gradient = Made('gradient', loss)
    computed = Made('computed', gradient)
    total = Made('total', gradient, type='HorovodAllreduce')
    push = Made(
        'push',
        queue('parallax_P.0_words_shard_1_from_0'),
        Made('split', gradient),
        type='QueueEnqueueV2',
    )
    taken = Made('taken', queue('parallax_P.0_words_shard_0_from_1'), type='QueueDequeueV2')
    summed = Made('summed', taken)
    token = Made('token', queue('parallax_P.0_updated_1_for_0'), type='QueueDequeueV2')
    asked = Made('asked', queue('parallax_P.0_words_pull_ids_of_1'), type='QueueDequeueV2')
    rows.inputs.append(Tensor(asked))
    whole = Made('whole', push, Made('apply', summed), Made('assign', total), token)
    marks = phases.Marks(
        {'words': [rows]}, loss, computed, {'words': [push]}, {'words': [summed]}, whole
    )
    return phases.roles_of(marks, ancestors)


@pytest.mark.parametrize(
    'name, role',
    [
        ('ids', Role(phases.PULL, 'words')),
        # Through the host's leader.
        ('asked', Role(phases.PULL, 'words')),
        ('hidden', Role(phases.FORWARD)),
        ('gradient', Role(phases.BACKWARD)),
        ('split', Role(phases.PUSH, 'words')),
        ('push', Role(phases.PUSH, 'words')),
        ('taken', Role(phases.WAIT, 'words', 1)),
        ('summed', Role(phases.UPDATE, 'words')),
        ('apply', Role(phases.UPDATE)),
        ('total', Role(phases.ALLREDUCE)),
        ('token', Role(phases.BARRIER)),
    ],
)
def test_an_operation_has_the_phase_of_what_needs_it_first(roles, name, role):
    assert phases.role_of_node(roles, name, name + ' = Mul(x)') == role


def test_a_transfer_has_the_phase_of_what_it_carries(roles):
    label = '[46B] [1.9Mb/s] edge_175_gradient from /job:worker/replica:0/task:1/device:CPU:0 to x'
    assert phases.role_of_node(roles, 'RecvTensor', label) == Role(phases.BACKWARD)
    assert phases.role_of_node(roles, '_SOURCE', '_SOURCE = NoOp()') is None
