# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The gradients that a worker computes of its own batch, before any are exchanged."""

from typing import (
    AbstractSet,
    Any,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from keras_parallax.compat import loss_scaling
from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step import backward, indexed_slices, whole_reads
from keras_parallax.engine.step.indexed_slices import RowMask
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Gradient, Operation, Slices, Tensor, Variable

#: What has a gradient of rows: a table, or a dense variable that is looked up.
Key = Union[Table, Variable]


class OwnGradients(NamedTuple):
    """The gradients of a worker's batch.

    Attributes:
        of_dense: those of the dense variables: tensors, and `IndexedSlices` if they stay.
        of_outputs: dict from lookups, and whole values of tables, to theirs.
        wholes: the whole values of tables with shards that the loss reads, by table.
        rows: dict from tables and dense variables to the values of rows, before those that repeat
            are summed, a list of tensors.
        looked_up: the dense variables, and the tables that are exchanged whole, whose gradients are
            `IndexedSlices`.
        masks: dict from these to their `RowMask`s, if the optimizer needs the touched rows.
        finite: a scalar that is not finite if a gradient is not; `None` if that does not matter.
    """

    of_dense: List[Gradient]
    of_outputs: Dict[Tensor, Gradient]
    wholes: Dict[Exchanged, List[Tensor]]
    rows: Dict[Key, List[Tensor]]
    looked_up: FrozenSet[Key]
    masks: Dict[Key, RowMask]
    finite: Optional[Tensor]


class Treatment(NamedTuple):
    """What an optimizer asks of gradients before they are exchanged.

    Attributes:
        as_they_come: whether `IndexedSlices` of dense variables stay as they come.
        bounds: the bounds of an optimizer that clips rows before repeats are summed, or `None`.
        loss_scale: the `LossScale` of the optimizer, or `None`.
        needs_touched_rows: as of the `OptimizerAdapter`.
    """

    as_they_come: bool = False
    bounds: Optional[Bounds] = None
    loss_scale: Optional[LossScale] = None
    needs_touched_rows: bool = False

    @property
    def clips(self) -> bool:
        """Whether rows are clipped as they come."""
        return self.bounds is not None and self.bounds.clips


def own_gradients(
    loss: Tensor,
    dense: List[Variable],
    tables: List[Table],
    members: AbstractSet[Operation],
    treatment: Treatment,
    size: int,
    joined: int,
    steps: int,
    sync: bool,
) -> OwnGradients:
    """Builds the gradients of this worker's batch.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every worker holds.
        tables: the tables.
        members: the set of operations that the loss depends on.
        treatment: what the optimizer asks for.
        size: number of workers.
        joined: how many times the gradients of the joined batch those of a worker's batch are.
        steps: how many batches of a worker there are between two exchanges.
        sync: whether the gradients of all workers are applied together.

    Raises:
        PlanError: the optimizer clips what each of several workers would count.
    """
    parts = (size if sync else 1) * steps
    gradients, of_outputs, of_rows = backward.gradients_of(
        loss, dense, tables, members, treatment.loss_scale, parts
    )
    finite = None
    if treatment.loss_scale is not None and treatment.loss_scale.is_dynamic:
        finite = loss_scaling.not_finite_if_any(gradients + list(of_outputs.values()))
    wholes = whole_reads.whole_reads(tables, members)
    if treatment.clips:
        whole_reads.require_no_bounds(wholes, of_outputs, size)
    bounds = treatment.bounds
    if bounds is not None and bounds.clipvalue is not None:
        bound = bounds.clipvalue * joined * steps
        gradients = _bounded(gradients, of_outputs, of_rows, bound)
    rows: Dict[Key, List[Tensor]] = {
        table: [indexed_slices.values_of(of_outputs[output]) for output in outputs]
        for table, outputs in of_rows.items()
    }
    whole = [table for table in tables if not table.by_row]
    of_whole = [of_outputs[table.variable.value()] for table in whole]
    looked_up = indexed_slices.looked_up(dense + whole, gradients + of_whole)
    if treatment.clips and size > 1:
        _require_rows_alone(looked_up)
    rows.update((key, [gradient.values]) for key, gradient in looked_up.items())
    masks = {}
    if not treatment.as_they_come:
        if treatment.needs_touched_rows:
            masks = {
                key: indexed_slices.row_mask_of(gradient, rows_in(key))
                for key, gradient in looked_up.items()
            }
        gradients = list(map(tf.convert_to_tensor, gradients))
    return OwnGradients(gradients, of_outputs, wholes, rows, frozenset(looked_up), masks, finite)


def _bounded(
    gradients: List[Gradient],
    of_outputs: Dict[Tensor, Gradient],
    of_rows: Mapping[Table, Sequence[Tensor]],
    bound: float,
) -> List[Gradient]:
    """Gradients within a bound; those `of_outputs` are replaced there."""
    gradients = [indexed_slices.bounded(gradient, bound) for gradient in gradients]
    for output, gradient in of_outputs.items():
        of_outputs[output] = indexed_slices.bounded(gradient, bound)
    for outputs in of_rows.values():
        of_outputs.update(
            (output, tf.clip_by_value(of_outputs[output], -bound, bound))
            for output in outputs
            if not isinstance(of_outputs[output], tf.IndexedSlices)
        )
    return gradients


def _require_rows_alone(looked_up: Mapping[Any, Slices]) -> None:
    """Raises `PlanError` if each worker would count rows of a gradient that is clipped."""
    for variable, gradient in looked_up.items():
        if indexed_slices.may_have_whole_table(gradient):
            raise PlanError(
                'The optimizer clips the rows of gradients as they come, and in that of %s '
                'there is one of the whole table, as of a regularizer, which each worker would '
                'count. Have the table sharded (architecture="hybrid"), or take the bound or '
                'the regularizer away, or train with one worker.' % loss_analysis.name_of(variable)
            )


def rows_in(key: Key) -> int:
    """The number of rows of a variable, or of a table."""
    variable: Any = getattr(key, 'variable', key)
    rows: int = variable.shape.as_list()[0]
    return rows
