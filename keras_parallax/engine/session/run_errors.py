# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a run has failed with, in our words: which worker is gone, which ids are out of range."""

import contextlib
import re
from typing import Any, Callable, Optional, cast

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.session import full_tables
from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.tables.pull import ID_MARK, REFUSAL_MARK
from keras_parallax.errors import (
    DataError,
    IdOutOfRangeError,
    ParallaxError,
    ScopeError,
    TableFullError,
)

_ASSERTED = re.compile(re.escape(ID_MARK) + r'\] \[(?P<name>[^\]]*)\] \[(?P<ids>[^\]]*)\]')


#: What an operation says first that a batch fails, and then why, in a sentence.
BATCH_MARK = 'keras-parallax cannot use a batch'


_UNUSABLE = re.compile(re.escape(BATCH_MARK) + r'\] \[([^\]]*)\]')


#: What an operation says first where a table has no row for a new id, and then which.
FULL_MARK = 'keras-parallax: full table'


_FULL = re.compile(re.escape(FULL_MARK) + r'\] \[([^\]]*)\]')


_REFUSED = re.compile(re.escape(REFUSAL_MARK) + r'\] \[([^\]]*)\] \[([^\]]*)\]')


#: The absolute values of what TensorFlow makes of NaN if it is to be an int32 or an int64.
_SMALLEST = (2**31, 2**63)


#: What TensorFlow 1.11's own gathers on the CPU say.
_GATHERED = re.compile(r'= (?P<ids>-?\d+) is not in \[0, \d+\)')


#: How they name the operation, TensorFlow 1.6 in the second way; the error itself does not know it
#: when a `Function` was called.
_NODE = re.compile(r'(?:\{\{node |\[\[Node: )(?P<node>[^} ]+)')


#: What TensorFlow says of a server that is gone, that does not know a graph any more because it was
#: started anew, or whose devices are not those of this job.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InvalidArgumentError)


#: What TensorFlow and, as an `UnknownError`, Horovod say when another worker is gone: sometimes
#: before the watch knows which one (`tests/parallel/test_failures.py`).
_BROKEN_OFF = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.UnknownError,
)


#: The operations in which a function of the user's own, in Python, may raise an error.
_USERS_OWN = ('PyFunc', 'EagerPyFunc', 'PyFuncStateless')


def translated(
    scope: ScopeInterface, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a function that runs something; what TensorFlow raises, we raise in our words.

    Args:
        scope: the `GraphScope` whose graph it runs.
        function: the function.
        *args: what it is called with.
        **kwargs: what it is called with.

    Returns:
        What it returns.
    """
    job = scope.job
    if job.problem is not None:
        raise job.problem
    try:
        return function(*args, **kwargs)
    except tf.errors.OpError as error:
        if job.problem is not None:
            raise job.problem from error
        problem = (
            _id_problem(scope, error)
            or _batch_problem(scope, error)
            or _full_problem(scope, error)
            or _written_problem(scope, error)
            or _iterator_problem(scope, error)
        )
        if problem is None and isinstance(error, _LOST):
            problem = job.servers.problem()
        is_broken_off = isinstance(error, _BROKEN_OFF) and not _is_users_own(scope, error)
        if problem is None and is_broken_off:
            job.watch.await_problem()
            problem = job.problem
        if problem is None:
            raise
        raise problem from error
    except RuntimeError as error:
        # A session that the watch has closed says so with a RuntimeError.
        if job.problem is not None:
            raise job.problem from error
        raise


def _is_users_own(scope: ScopeInterface, error: Any) -> bool:
    """Whether an error is one that a function of the user's own has raised."""
    message = error.message or ''
    node = _NODE.search(message)
    if not node:
        return False
    if any('}} = %s' % kind in message for kind in _USERS_OWN):
        return True
    # TensorFlow 2 says the operation's name alone.
    with contextlib.suppress(KeyError):
        return scope.graph.get_operation_by_name(node.group('node')).type in _USERS_OWN
    return False


def _batch_problem(scope: ScopeInterface, error: Any) -> Optional[ParallaxError]:
    unusable = _UNUSABLE.search(error.message or '')
    if unusable is None:
        return None
    return DataError('Rank %d: %s. Check the batch.' % (scope.job.rank, unusable.group(1)))


def _full_problem(scope: ScopeInterface, error: Any) -> Optional[ParallaxError]:
    full = _FULL.search(error.message or '')
    if full is None:
        return None
    return TableFullError(
        'Rank %d: %s.%s The step has moved no row. Give the layer a larger capacity.'
        % (scope.job.rank, full.group(1), full_tables.described(scope, full.group(1)))
    )


def _written_problem(scope: ScopeInterface, error: Any) -> Optional[ParallaxError]:
    refused = _REFUSED.search(error.message or '')
    if refused is None:
        return None
    operation, table = refused.groups()
    servers = cast(Servers, scope.servers)  # A sharded table has servers.
    return ParallaxError(
        'The operation %s would write to %s, whose rows lie in shards on %d servers, in a way '
        'that cannot be done there. Assign the whole table (K.set_value, tf.assign), add to it '
        "(tf.assign_add) or write rows (tf.scatter_update), or use architecture='allreduce'."
        % (operation, table, servers.count)
    )


def _iterator_problem(scope: ScopeInterface, error: Any) -> Optional[ParallaxError]:
    message = error.message or ''
    node = _NODE.search(message)
    if not isinstance(error, tf.errors.FailedPreconditionError) or not node:
        return None
    iterator = scope.sessions.lost_iterator(node.group('node'))
    if iterator is None:
        return None
    return ScopeError(
        'Rank %d: iterator %s was initialized before `with strategy:`, in another session, and '
        'TensorFlow cannot copy its place in the data. Run its initializer inside the scope, '
        'or after it.' % (scope.job.rank, iterator.name)
    )


def _id_problem(scope: ScopeInterface, error: Any) -> Optional[ParallaxError]:
    message = error.message or ''
    asserted = _ASSERTED.search(message)
    gathered, node = _GATHERED.search(message), _NODE.search(message)
    if asserted:
        ids, variable = asserted.group('ids'), scope.weight_named(asserted.group('name'))
    elif gathered and node:
        # A table without shards is looked up by Keras's own operations.
        ids, variable = gathered.group('ids'), scope.weight_read_by(node.group('node'))
    else:
        variable = None
    if variable is None:
        return None
    rows, record = variable.shape.as_list()[0], scope.records.get(variable)
    advice = 'Check the ids of this batch, or make input_dim larger.'
    if any(abs(int(told)) in _SMALLEST for told in re.findall(r'-\d+', ids)):
        advice = (
            'NaN, and a float that no integer holds, becomes such an id: look for NaN among the '
            'ids of this batch, where values are missing for instance.'
        )
    # Of a weight that its layer has made without `add_weight` no layer is known.
    who = 'layer %s looked up id %s, but its' if record else 'id %s was looked up, but the'
    known = ([record.layer_name] if record else []) + [', '.join(ids.split())]
    return IdOutOfRangeError(
        'Rank %d: %s table %s has %d rows, so ids must be in [0, %d). %s'
        % (
            scope.job.rank,
            who % tuple(known),
            variable.name.split(':')[0],
            rows,
            rows,
            advice,
        )
    )
