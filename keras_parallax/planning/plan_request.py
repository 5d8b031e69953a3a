# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a strategy asks of the plan."""

import numbers
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Type

import numpy as np

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures, placement
from keras_parallax.planning import classify as rules
from keras_parallax.planning.search_request import SEARCH, Search
from keras_parallax.planning.variable_names import by_variable


class Timing(NamedTuple):
    """When workers wait for each other.

    Attributes:
        sync: whether a step ends when the gradients of all workers have been applied.
        max_staleness: without `sync`, how many steps a worker may be ahead of the slowest one;
            `None` for no bound.
    """

    sync: bool = True
    max_staleness: Optional[int] = None


def check_flag(argument: str, value: Any, kind: Type[Exception] = PlanError) -> bool:
    """Whether an argument is true, if it is `True` or `False`: `'no'` would be true.

    Args:
        argument: the name of the argument.
        value: what was given; a `bool` of NumPy is one, too.
        kind: the class of the error.

    Raises:
        Exception: it is neither; of that class.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise kind('%s must be True or False, but %r was given.' % (argument, value))
    return bool(value)


def check_mapping(argument: str, given: Any, values: str) -> None:
    """Refuses what is no dict from names of variables, with a `PlanError`.

    Args:
        argument: the name of the argument.
        given: what was given, or `None`.
        values: what the values of such a dict are, in words.
    """
    if given is not None and not isinstance(given, Mapping):
        raise PlanError(
            '%s must be a dict from names of variables to %s, as in {%r: ...}, but %r was given.'
            % (argument, values, 'embedding_1/embeddings', given)
        )


def check_timing(architecture: str, timing: Timing) -> None:
    """Refuses pairs of an architecture and a `Timing` that make no sense, with a `PlanError`."""
    sync, bound = timing
    if sync and bound is not None:
        raise PlanError(
            'max_staleness=%r bounds asynchronous training, but sync=True; leave it out, or use '
            'sync=False.' % (bound,)
        )
    if sync:
        return
    if architecture not in (architectures.HYBRID, architectures.PS):
        raise PlanError(
            "sync=False needs architecture='hybrid' or 'ps': with %r, gradients go through "
            'collectives, which all workers enter together.' % architecture
        )
    if bound is not None and not _is_whole(bound, least=0):
        raise PlanError('max_staleness must be a whole number from 0, but %r was given.' % (bound,))


class Request(NamedTuple):
    """What the user asks of a plan: the arguments of `make_plan` of the same names.

    Of these `partitions` may be a `search_request.Search`, too.
    """

    overrides: Optional[Mapping[str, str]] = None
    architecture: str = architectures.HYBRID
    partitions: Any = None
    density: Optional[Mapping[str, float]] = None
    local_aggregation: bool = True
    row_dtype: Any = None


def for_variables(request: Request, layers: Mapping[str, Optional[str]]) -> Request:
    """A `Request` whose options go by variables, for one whose options may go by layers.

    Args:
        request: the `Request`.
        layers: mapping from the names of the model's variables to the names of their layers.

    Example:
        ```python
        >>> asked = Request(overrides={'user': 'dense'})
        >>> for_variables(asked, {'user_1/embeddings': 'user'}).overrides
        {'user_1/embeddings': 'dense'}
        ```
    """
    partitions = request.partitions
    if isinstance(partitions, Search):
        partitions = partitions._replace(chosen=by_variable(partitions.chosen, layers))
    return request._replace(
        overrides=by_variable(request.overrides, layers),
        partitions=by_variable(partitions, layers),
        density=by_variable(request.density, layers),
        row_dtype=by_variable(request.row_dtype, layers),
    )


def check_names(argument: str, given: Iterable[str], uses: Iterable[rules.VariableUse]) -> None:
    """Refuses names of an argument that no variable has."""
    unknown = sorted(set(given) - {use.name for use in uses})
    if unknown:
        raise PlanError(
            '%s names %s, but the trainable variables of the model are %s.'
            % (argument, ', '.join(unknown), ', '.join(use.name for use in uses))
        )


def check_density(density: Mapping[str, Any], uses: Iterable[rules.VariableUse]) -> None:
    """Refuses densities that are no fractions, or of no table."""
    for use in uses:
        if use.name not in density:
            continue
        touched = density[use.name]
        is_number = isinstance(touched, numbers.Real) and not isinstance(touched, bool)
        if not is_number or not 0 <= touched <= 1:
            raise PlanError(
                'density of %s must be the fraction of its rows that a batch touches, a number '
                'from 0 to 1, but %r was given.' % (use.name, touched)
            )
        if not is_table(use):
            raise PlanError(
                'density names %s, which is dense: it is %s. Take it out.'
                % (use.name, rules.classify(use).reason)
            )


def check_partitions(
    partitions: Any,
    uses: Sequence[rules.VariableUse],
    architecture: str,
    overrides: Mapping[str, str],
) -> None:
    """Refuses numbers of shards that are none, and those of variables that cannot have them."""
    if partitions is None:
        return
    if architecture == architectures.ALLREDUCE:
        raise PlanError(
            "partitions is for tables on servers, and architecture='allreduce' has none; leave one "
            'of the two out.'
        )
    is_search = isinstance(partitions, Search)
    if is_search:
        partitions = partitions.chosen or {}
    if not isinstance(partitions, Mapping):
        _check_number('partitions', partitions)
        return
    check_names('partitions', partitions, uses)
    for use in uses:
        if use.name not in partitions:
            continue
        number = partitions[use.name]
        is_open = is_search and number == SEARCH
        if not is_open:
            _check_number('partitions of %s' % use.name, number)
        kind, reason = rules.classify(use, overrides.get(use.name))
        if architecture != architectures.PS and kind == rules.DENSE:
            raise PlanError(
                'partitions names %s, which is dense: it is %s, so every worker holds it. Take it '
                "out, or choose architecture='ps'." % (use.name, reason)
            )
        if (is_open or number > 1) and placement.in_one_piece(use):
            raise PlanError(
                'partitions asks for %s shards of %s, which must stay in one piece: its '
                "regularizer, its constraint or the optimizer's formula reaches over the whole "
                'table.' % ('the best number of' if is_open else number, use.name)
            )


#: In what servers may keep rows, and the dtype of the tables that they then are of.
NARROW, WIDE = 'float16', 'float32'


def check_row_dtype(row_dtype: Any, architecture: str, timing: Timing) -> None:
    """Refuses a dtype of rows that is none, or does not go with an architecture or a `Timing`."""
    if row_dtype is None:
        return
    by_name = row_dtype if isinstance(row_dtype, Mapping) else {None: row_dtype}
    for name, dtype in by_name.items():
        if dtype not in (None, NARROW):
            raise PlanError(
                '%s must be %r, or None for the dtype of the variable, but %r was given.'
                % ('row_dtype' if name is None else 'row_dtype of %s' % name, NARROW, dtype)
            )
    if architecture == architectures.ALLREDUCE:
        raise PlanError(
            "row_dtype is for rows on servers, and architecture='allreduce' has none; leave one of "
            'the two out.'
        )
    if not timing.sync:
        # A row is read, moved, rounded and written, with nothing to lock it meanwhile.
        raise PlanError(
            'row_dtype=%r with sync=False would lose what two workers add to a row at the same '
            'time; leave one of the two out.' % (row_dtype,)
        )


def check_narrow_tables(
    row_dtype: Any, uses: Sequence[rules.VariableUse], overrides: Mapping[str, str]
) -> None:
    """Refuses a dtype of rows of variables that cannot have it."""
    if not isinstance(row_dtype, Mapping):
        return
    check_names('row_dtype', row_dtype, uses)
    for use in uses:
        if row_dtype.get(use.name) is None:
            continue
        kind, reason = rules.classify(use, overrides.get(use.name))
        if kind == rules.DENSE:
            raise PlanError(
                'row_dtype names %s, which is dense: it is %s, so there are no rows of it on '
                'servers. Take it out.' % (use.name, reason)
            )
        if use.dtype != WIDE:
            raise PlanError(
                'row_dtype names %s, whose dtype is %s, but only rows of %s can be kept as %s. '
                'Take it out.' % (use.name, use.dtype, WIDE, NARROW)
            )


def row_dtype_of(use: rules.VariableUse, row_dtype: Any) -> Optional[str]:
    """In what servers are to keep the rows of a `VariableUse`; `None` for its own dtype.

    Example:
        ```python
        >>> use = rules.VariableUse('words', (10, 2), 'float32', lookups=1)
        >>> row_dtype_of(use, 'float16'), row_dtype_of(use, {'goods': 'float16'})
        ('float16', None)
        ```
    """
    if isinstance(row_dtype, Mapping):
        return row_dtype.get(use.name)
    return row_dtype if use.dtype == WIDE and is_table(use) else None


def _check_number(argument: str, number: Any) -> None:
    if not _is_whole(number, least=1):
        raise PlanError('%s must be a whole number from 1, but %r was given.' % (argument, number))


def _is_whole(number: Any, least: int) -> bool:
    is_int = isinstance(number, numbers.Integral) and not isinstance(number, bool)
    return is_int and number >= least


def is_table(use: rules.VariableUse) -> bool:
    """Whether a `VariableUse` is that of a table, whatever the user asks for."""
    return rules.classify(use).kind == rules.SPARSE
