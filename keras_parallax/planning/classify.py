# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The rule that makes a variable dense or sparse: pure functions, no TensorFlow.

A gradient is `IndexedSlices` exactly when every path from the loss to the variable goes through a
row lookup, so the rule asks how the loss reads the variable. That also sees through the cases in
which the gradient's type misleads: a regularizer turns the sum of gradients dense although the
table could stay sparse, and weight tying makes it dense for good.
"""

from typing import FrozenSet, Iterable, NamedTuple, Optional, Tuple

import numpy as np

from keras_parallax.errors import PlanError
from keras_parallax.planning.units import counted

DENSE = 'dense'
SPARSE = 'sparse'

#: How a regularizer or a constraint reaches over a table.
BY_ROW = 'by row'

WHOLE_TABLE = 'whole table'


class VariableUse(NamedTuple):
    """How one trainable variable is used by the loss.

    Attributes:
        name: the variable's name without `:0`, for instance `'embedding_1/embeddings'`.
        shape: its shape.
        dtype: its dtype's name, for instance `'float32'`.
        lookups: number of row lookups (gathers along axis 0) through which the loss reads it.
        whole_reads: types of the operations that read it whole, for instance `('MatMul',)`.
        regularizer: `None`, `BY_ROW` (a sum over rows, so it can be computed shard by shard) or
            `WHOLE_TABLE`.
        constraint: `None`, `BY_ROW` (each row is projected by itself) or `WHOLE_TABLE`.
        ids_key: a number for the ids that it is looked up with, the same for variables that are
            looked up with the same ids; `None` if it is not looked up.
        formula: `None`, or `WHOLE_TABLE` if the optimizer's formula looks at more than a row.
        row_mask: whether a gradient that is exchanged whole comes with a number for each row,
            because the optimizer must know which rows were looked up.
        in_loops: whether plain Keras has a tensor as its gradient although the loss looks it up,
            as a function of TensorFlow 2 does in a loop.
        on_shards: whether it is a table on shards already, for another loss, and stays there.
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    lookups: int = 0
    whole_reads: Tuple[str, ...] = ()
    regularizer: Optional[str] = None
    constraint: Optional[str] = None
    ids_key: Optional[int] = None
    formula: Optional[str] = None
    row_mask: bool = False
    in_loops: bool = False
    on_shards: bool = False

    @property
    def whole_gradient(self) -> int:
        """How many numbers are sent to exchange its gradient whole."""
        return numbers_in(self.shape, self.row_mask)


def numbers_in(shape: Tuple[int, ...], row_mask: bool) -> int:
    """How many numbers a variable of a shape has, and one more for each row with a mask.

    Example:
        ```python
        >>> numbers_in((10, 2), row_mask=True)
        30
        ```
    """
    size = int(np.prod(shape, dtype=np.int64))
    return size + shape[0] if row_mask else size


class Described(NamedTuple):
    """A variable of a model.

    Attributes:
        name: its name without `:0`.
        shape: its shape.
        dtype: its dtype's name.
        rows: whether rows of it are looked up, so that its gradient is `IndexedSlices`.
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    rows: bool = False


class Reach(NamedTuple):
    """How far the formula of an optimizer reaches.

    Attributes:
        together: why every worker must hold all variables, in words, or `None`.
        whole: the names of the variables that it updates as a whole only.
        reason: why it does, in words.
    """

    together: Optional[str] = None
    whole: FrozenSet[str] = frozenset()
    reason: str = ''


#: Of formulas that move rows by themselves.
ANY_ROWS = Reach()


class Class(NamedTuple):
    """A variable's class and the reason for it, in words."""

    kind: str
    reason: str


def classify(use: VariableUse, override: Optional[str] = None) -> Class:
    """Tells whether a variable is dense or sparse, and why.

    Args:
        use: a `VariableUse`.
        override: `None`, `'dense'` or `'sparse'`: what the user asked for. A table on shards stays
            sparse.

    Returns:
        A `Class`.

    Raises:
        PlanError: `override` is `'sparse'` for a variable that the loss reads whole or never
            looks up by rows, or is no class at all.

    Example:
        ```python
        >>> classify(VariableUse('e/embeddings', (10, 2), 'float32', lookups=1)).kind
        'sparse'
        ```
    """
    if override not in (None, DENSE, SPARSE):
        raise PlanError(
            "The class of %s must be 'dense' or 'sparse', but %r was given." % (use.name, override)
        )
    natural = _natural_class(use)
    if override is None or override == natural.kind:
        return natural
    if override == DENSE and use.on_shards:
        return Class(natural.kind, '%s; on shards already, so not made dense' % natural.reason)
    if override == DENSE:
        return Class(DENSE, 'made dense by the user (it is %s)' % natural.reason)
    raise PlanError(
        '%s cannot be made sparse: it is %s. Take it out of `overrides`.'
        % (use.name, natural.reason)
    )


def _natural_class(use: VariableUse) -> Class:
    if use.on_shards and use.whole_reads:
        looked_up = 'looked up by rows and also ' if use.lookups else ''
        return Class(
            SPARSE,
            '%sread whole by %s; on shards already, so all of its rows are pushed in each step'
            % (looked_up, _listed(use.whole_reads)),
        )
    if not use.lookups:
        return Class(DENSE, 'read whole by %s' % _listed(use.whole_reads))
    if use.whole_reads:
        return Class(
            DENSE,
            'looked up by rows and also read whole by %s, as tied weights are'
            % _listed(use.whole_reads),
        )
    reason = 'looked up by rows in %s' % counted(use.lookups, 'place')
    extras = [
        '%s %s' % (what, 'by the owner' if reach == BY_ROW else 'by the owner of the whole table')
        for what, reach in (('regularized', use.regularizer), ('constrained', use.constraint))
        if reach
    ]
    return Class(SPARSE, '; '.join([reason] + extras))


#: What TensorFlow calls the way into a loop and into a branch, those of TensorFlow 2, and calls.
_IN_WORDS = {
    **dict.fromkeys(['Enter', 'RefEnter', 'While', 'StatelessWhile'], 'a loop'),
    **dict.fromkeys(['Switch', 'RefSwitch', 'If', 'StatelessIf'], 'a branch'),
    **dict.fromkeys(['PartitionedCall', 'StatefulPartitionedCall'], 'a function'),
}


def _listed(operations: Iterable[str]) -> str:
    names = sorted({_IN_WORDS.get(operation, operation) for operation in operations})
    return ', '.join(names) if names else 'no operation of the loss'
