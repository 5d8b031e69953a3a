# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""From a loss to a plan: describes how it reads each variable, in the plan's plain terms."""

from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from keras_parallax.compat import (
    control_flow,
    function_calls,
    function_graphs,
    graph_queries,
    keras_api,
)
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.id_index import index_of
from keras_parallax.engine.tables.loop_lookups import move_out
from keras_parallax.engine.tables.scope_interface import RecordInterface, TablesScope
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.framework_types import Operation, Tensor, Variable
from keras_parallax.planning import classify as rules
from keras_parallax.planning.architectures import ALLREDUCE, PS
from keras_parallax.planning.costs import Fp16
from keras_parallax.planning.plan import Plan, make_plan
from keras_parallax.planning.plan_request import Request

#: How often gradients are asked for at the most, for functions to have what those need.
_GRADIENTS = 4


def name_of(variable: Variable) -> str:
    """A variable's name without `:0`."""
    return variable.name.split(':')[0]


def layers_of(variables: Iterable[Any], records: Mapping[Any, Any]) -> Dict[str, Optional[str]]:
    """Dict from the names of variables to the names of their layers, `None` where none made one."""
    return {
        name_of(variable): records[variable].layer_name if variable in records else None
        for variable in variables
    }


def members_of(loss: Tensor, records: Mapping[Variable, RecordInterface]) -> Set[Operation]:
    """The operations that a loss depends on, a set, without those of regularizers' penalties."""
    penalties = [penalty.op for record in records.values() for penalty in record.penalties]
    return graph_queries.ancestors([loss], leaves=penalties)


def describe(
    loss: Tensor, variables: Sequence[Variable], records: Mapping[Variable, RecordInterface]
) -> List[rules.VariableUse]:
    """The `VariableUse`s of a model's trainable variables, in order, given its total loss.

    Lookups in loops and branches are moved out, if they have not been.
    """
    move_lookups(loss, variables, records)
    members, uses = members_of(loss, records), []
    numbers: Dict[Tuple[Tensor, ...], int] = {}
    for variable in variables:
        use, ids = _use(variable, members, records.get(variable))
        # Numbers, for names of tensors may differ between the workers.
        ids_key = numbers.setdefault(ids, len(numbers)) if use.lookups else None
        uses.append(use._replace(ids_key=ids_key))
    return uses


def move_lookups(
    loss: Tensor, variables: Iterable[Variable], records: Mapping[Variable, RecordInterface]
) -> None:
    """Makes lookups in loops and branches before them, where that can be: `loop_lookups.move_out`.

    A session that has run them does not see the change, nor need it.
    """
    entered = [
        variable
        for variable in variables
        if not isinstance(variable, ShardedVariable) and control_flow.is_entered(variable)
    ]
    members = members_of(loss, records) if entered else set()
    for variable in entered:
        if variable.dtype.is_floating and variable.shape.as_list():
            move_out(variable, members)


def settle_functions(
    loss: Tensor, variables: Iterable[Variable], records: Mapping[Variable, RecordInterface]
) -> None:
    """Has functions of TensorFlow 2 that a loss calls give what their gradients need.

    TensorFlow adds outputs to the call of a `tf.function` when it is first asked for a gradient
    through it, and a session that knows the call already does not see them. So gradients are asked
    for before one does, and not used (TF 1.15, 2.15, 2.21; the cases `in_function` and
    `loops_in_function` of `tests/parallel/test_equality.py`).
    """
    members = members_of(loss, records)
    calls = [operation for operation in members if operation.type in function_graphs.KINDS]
    # A model whose tables have shards had its calls settled when it was compiled first.
    others = [one for one in variables if not isinstance(one, ShardedVariable)]
    if not calls or not others:
        return
    before = None
    # TensorFlow 1.15 adds some at the second time, too.
    for _ in range(_GRADIENTS):
        outputs = sum(len(call.outputs) for call in calls)
        if outputs == before:
            break
        before = outputs
        tf.gradients(loss, others)


def described(uses: Iterable[rules.VariableUse]) -> Tuple[rules.Described, ...]:
    """The `Described` of each of some `VariableUse`s, a tuple."""
    return tuple(
        rules.Described(use.name, use.shape, use.dtype, rows=use.lookups > 0) for use in uses
    )


def as_trained_by(uses: List[rules.VariableUse], adapter: Any) -> List[rules.VariableUse]:
    """Some `VariableUse`s as the `OptimizerAdapter` of an optimizer tells gradients apart.

    If the optimizer treats tensors and `IndexedSlices` differently, tables whose gradient is a
    tensor in plain Keras count as read whole, and other tables may have a mask of rows.
    """
    if adapter.needs_touched_rows or adapter.clips:
        uses = [
            use._replace(whole_reads=(*use.whole_reads, 'While')) if use.in_loops else use
            for use in uses
        ]
    return _with_row_masks(uses) if adapter.needs_touched_rows else uses


def _with_row_masks(uses: Iterable[rules.VariableUse]) -> List[rules.VariableUse]:
    """Some `VariableUse`s for an optimizer that must know which rows were looked up.

    Those that the loss only looks up then have a mask of rows, where gradients are exchanged whole.
    A regularizer gives every row a gradient.
    """
    return [
        use._replace(row_mask=bool(use.lookups and not use.whole_reads and not use.regularizer))
        for use in uses
    ]


def plan_model(
    loss: Tensor,
    variables: Sequence[Variable],
    scope: Optional[TablesScope],
    request: Request,
    fp16: Fp16,
    reach_of: Optional[Callable[..., rules.Reach]],
    accumulate_steps: int = 1,
    adapter: Any = None,
    moves: bool = False,
) -> Plan:
    """The `Plan` of a model's trainable variables that follows from a `plan_request.Request`.

    The `GraphScope` is `None` without a strategy, and `reach_of`, as `OptimizerAdapter.reach`, if
    rows move by themselves. Gradients of `accumulate_steps` batches are exchanged at once. The
    `OptimizerAdapter` is `None` if the optimizer is not known. Tables that have shards stay on
    shards, unless the job `moves` them to follow the plan.
    """
    uses = describe(loss, variables, scope.records if scope else {})
    if adapter is not None:
        uses = as_trained_by(uses, adapter)
    if moves:
        uses = [use._replace(on_shards=False) for use in uses]
    servers = scope.servers.count if scope and scope.servers else 0
    cluster, reach = scope.cluster if scope else None, rules.ANY_ROWS
    if cluster is not None:
        cluster = cluster._replace(accumulate_steps=accumulate_steps)
    on_servers = [
        use
        for use in uses
        if use.shape and (request.architecture == PS or rules.classify(use).kind == rules.SPARSE)
    ]
    if servers and reach_of and request.architecture != ALLREDUCE:
        reach = reach_of(described(uses), frozenset(use.name for use in on_servers))
    # Where rows are given to ids, that is done where the shards lie, whatever it costs.
    overrides = {
        use.name: rules.SPARSE
        for variable, use in zip(variables, uses)
        if index_of(variable) is not None and rules.classify(use).kind == rules.SPARSE
    }
    request = request._replace(overrides=dict(overrides, **(request.overrides or {})))
    return make_plan(uses, servers, cluster=cluster, fp16=fp16, reach=reach, **request._asdict())


def _use(
    variable: Variable, members: AbstractSet[Operation], record: Optional[RecordInterface]
) -> Tuple[rules.VariableUse, Tuple[Tensor, ...]]:
    """A variable's `VariableUse`, and a tuple of the tensors of ids that it is looked up with."""
    if isinstance(variable, ShardedVariable):
        ids = [
            ids
            for pull in variable.table.pulls
            for ids, output in zip(pull.ids, pull.outputs)
            if output.op in members
        ]
        whole_reads = [
            operation
            for value in variable.table.former.wholes
            for operations in graph_queries.reads_of(value, members)
            for operation in operations
        ]
        whole = tuple(operation.type for operation in whole_reads)
    else:
        reads = graph_queries.reads(variable, members)
        ids = [lookup.inputs[1] for lookup in reads.lookups]
        whole = tuple(operation.type for operation in reads.whole)
    dtype = variable.dtype.base_dtype
    shape = tuple(variable.shape.as_list())
    use = rules.VariableUse(
        name=name_of(variable),
        shape=shape,
        dtype=dtype.name,
        # A looked-up integer variable has no gradient, and a scalar no rows.
        lookups=len(ids) if dtype.is_floating and shape else 0,
        whole_reads=whole,
        regularizer=_reach_of_regularizer(record.regularizer if record else None),
        constraint=reach_of_constraint(getattr(variable, 'constraint', None), len(shape)),
        on_shards=isinstance(variable, ShardedVariable) and variable.table.by_row,
        in_loops=not isinstance(variable, ShardedVariable)
        and function_calls.has_tensor_gradient(variable),
    )
    return use, tuple(ids)


def _is_keras_own(part: Any) -> bool:
    return keras_api.is_of_keras(type(part))


def _reach_of_regularizer(regularizer: Any) -> Optional[str]:
    if regularizer is None:
        return None
    # Keras's own sum over the entries; of a user's function nothing is known.
    if _is_keras_own(regularizer) and type(regularizer).__name__ in ('L1L2', 'L1', 'L2'):
        return rules.BY_ROW
    return rules.WHOLE_TABLE


def reach_of_constraint(constraint: Any, rank: int) -> Optional[str]:
    """How far a constraint reaches over a table of `rank` dimensions; `None` if there is none."""
    if constraint is None:
        return None
    if not _is_keras_own(constraint):
        return rules.WHOLE_TABLE
    if type(constraint).__name__ == 'NonNeg':
        return rules.BY_ROW
    axis = getattr(constraint, 'axis', 0)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return rules.WHOLE_TABLE if any(axis % rank == 0 for axis in axes) else rules.BY_ROW
