# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which variables an optimizer's updates compute from which, as their graph has it."""

import collections
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Sequence, Set

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.framework_types import Gradient, Operation, Tensor, Variable

#: What TensorFlow makes a tensor of `IndexedSlices` with (TF 1.11).
_MAKES_WHOLE = {'UnsortedSegmentSum', 'StridedSlice', 'Placeholder', 'Identity'}


def dependencies(
    operations: Sequence[Operation],
    updated: List[Variable],
    kept: List[Variable],
    gradients: Sequence[Gradient],
) -> Dict[Variable, Set[int]]:
    """What the update operations of an optimizer compute each variable's new value from.

    Args:
        operations: the update operations.
        updated: the variables of the model that they update.
        kept: other variables that they may write or read.
        gradients: a list of tensors or `IndexedSlices`, at which to stop: those of `updated`, in
            order, maybe time and again.

    Returns:
        A dict from variables that are written to sets: of the variables (by their position in
        `updated + kept`) and of the gradients (by `-1 - position`) that are read for it.
    """
    variables = updated + kept
    all_of_step = graph_queries.ancestors(operations)
    leaves: Dict[Operation, Set[int]] = {}
    for place, gradient in enumerate(gradients):
        for tensor in _parts(gradient):
            leaves.setdefault(tensor.op, set()).add(-1 - place % len(updated))
    places = {
        tensorflow_api.storage(variable).op: place for place, variable in enumerate(variables)
    }
    dependencies_of: Dict[Variable, Set[int]] = {}
    for variable in variables:
        storage = tensorflow_api.storage(variable)
        for write in _writes(storage, all_of_step):
            given = [tensor for tensor in write.inputs if tensor is not storage]
            reads = dependencies_of.setdefault(variable, set())
            for tensor in given:
                reads |= leaves.get(tensor.op, set())
            inputs = [tensor.op for tensor in given if tensor.op not in leaves]
            for operation in graph_queries.ancestors(inputs, leaves, by_data=True):
                if operation in places:
                    reads.add(places[operation])
                for tensor in operation.inputs:
                    reads |= leaves.get(tensor.op, set())
    return dependencies_of


def _parts(gradient: Gradient) -> List[Tensor]:
    return [getattr(gradient, 'values', gradient)] + (
        [gradient.indices] if hasattr(gradient, 'indices') else []
    )


def writes_in(variable: Variable, operations: Sequence[Operation]) -> List[Operation]:
    """The operations that write to a variable in some updates, in the order they were built in."""
    writes = _writes(tensorflow_api.storage(variable), graph_queries.ancestors(operations))
    return sorted(writes, key=tensorflow_api.operation_id)


def draws(operations: Sequence[Operation], since: int) -> List[Operation]:
    """The operations that draw random numbers for updates, in the order in which they were built.

    Args:
        operations: the update operations.
        since: only operations with a greater id (`tensorflow_api.operation_id`) belong to the
            answer.
    """
    random = [
        operation
        for operation in graph_queries.ancestors(operations, by_data=True)
        if tensorflow_api.operation_id(operation) > since
        and tensorflow_api.op_def(operation).is_stateful
        and 'seed2' in operation.node_def.attr
    ]
    return sorted(random, key=tensorflow_api.operation_id)


def in_branches(operations: Sequence[Operation], variables: Iterable[Variable]) -> bool:
    """Whether the storage of a variable, rather than its value, goes into a branch or a loop."""
    among = graph_queries.ancestors(operations)
    return any(
        operation in among and operation.type in graph_queries.ENTRANCES
        for variable in variables
        for operation in tensorflow_api.consumers(tensorflow_api.storage(variable))
    )


def looks_into(slices: Iterable[Any], operations: Sequence[Operation]) -> bool:
    """Whether updates take parts of `IndexedSlices` for anything but the tensor that they make.

    Args:
        slices: a list of `IndexedSlices`, the gradients.
        operations: the update operations.
    """
    among = graph_queries.ancestors(operations)
    for gradient in slices:
        pending, same = [gradient.values, gradient.indices], set()
        users = set()
        while pending:
            tensor = pending.pop()
            same.add(tensor)
            for user in tensorflow_api.consumers(tensor):
                # As `tf.tuple` has them wait for others.
                if user.type == 'Identity':
                    pending += user.outputs
                elif user in among:
                    users.add(user)
        for user in users:
            if user.type != 'UnsortedSegmentSum' or not same.issuperset(user.inputs[:2]):
                return True
    return False


def signature(operations: Sequence[Operation]) -> Dict[Any, int]:
    """How many operations of each type updates consist of, and how many of each constant.

    What makes a tensor of `IndexedSlices` is left out: two formulas are the same but for that if
    their signatures are.
    """
    counts: Dict[Any, int] = collections.Counter()
    for operation in graph_queries.ancestors(operations, by_data=True):
        if operation.type != 'Const':
            if operation.type not in _MAKES_WHOLE:
                counts[operation.type] += 1
        elif operation.outputs[0].dtype.is_floating:
            counts[tensorflow_api.constant_value(operation.outputs[0]).tobytes()] += 1
    return counts


def _writes(storage: Tensor, among: AbstractSet[Operation]) -> List[Operation]:
    return [
        operation
        for operation in tensorflow_api.consumers(storage)
        if operation in among and tensorflow_api.writes_to(operation, storage)
    ]


def slots_by_variable(
    updates: Mapping[Variable, AbstractSet[int]],
    updated: Sequence[Variable],
    kept: Sequence[Variable],
) -> List[Any]:
    """Assigns the variables that an optimizer keeps to the variables that it updates.

    Args:
        updates: what `dependencies` says of `updated + kept`: variables that are written, and the
            variables and gradients that are read for each.
        updated: the variables that the optimizer updates.
        kept: other variables that it reads or writes, in its own order.

    Returns:
        For each of `kept` the position of the one variable of `updated` that it belongs to, `None`
        if it belongs to several, and `()` if it is connected with none.
    """
    total = len(updated)
    place_of = {variable: place for place, variable in enumerate([*updated, *kept])}
    owners: Dict[int, Set[int]] = {place: set() for place in range(total, total + len(kept))}
    neighbours: Dict[int, Set[int]] = {place: set() for place in owners}
    for variable, reads in updates.items():
        written = place_of[variable]
        for read in {-1 - read if read < 0 else read for read in reads}:
            if written < total <= read:
                owners[read].add(written)
            elif read < total <= written:
                owners[written].add(read)
            elif total <= min(read, written) and read != written:
                neighbours[read].add(written)
                neighbours[written].add(read)
    # A slot of a slot is the same variable's. Through what belongs to several nothing is passed on.
    changed = True
    while changed:
        changed = False
        for place in [place for place in owners if not owners[place]]:
            for other in neighbours[place]:
                if len(owners[other]) == 1:
                    owners[place], changed = owners[place] | owners[other], True
    return [
        next(iter(of_place)) if len(of_place) == 1 else None if of_place else ()
        for _, of_place in sorted(owners.items())
    ]
