# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Measures which fraction of a table's rows the batches of a job touch."""

from typing import Container, Dict, Iterable, Mapping, Optional

from typing_extensions import Protocol

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.job.collectives import Gather
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Session, Tensor

#: Steps over which the density is measured.
MEASURED_STEPS = 10


def meter_of(
    tables: Iterable[Table], known: Container[str], touched: Mapping[str, Tensor], rank: int
) -> 'Optional[DensityMeter]':
    """A `DensityMeter` of the tables whose density is not known, or `None` if there are none.

    Of a batch, `touched` has the numbers of different rows by table's name.
    """
    rows = {table.name: table.rows for table in tables if table.by_row and table.name not in known}
    return DensityMeter({name: touched[name] for name in rows}, rows, rank) if rows else None


class DensityMeter:
    """Counts the rows of each table that this worker touches in training steps.

    Args:
        touched: dict from names of tables to scalar tensors: numbers of different rows in a batch.
        rows: dict from the same names to numbers of rows.
        rank: this process's rank.

    Attributes:
        operation: the operation of a step that counts.
        variable: the variable that holds the counts; it must be initialized.
    """

    def __init__(self, touched: Mapping[str, Tensor], rows: Mapping[str, int], rank: int) -> None:
        self._names, self._rows, self._steps = sorted(touched), rows, 0
        with tf.device(devices.shard_device(rank)), tf.name_scope(None):
            self.variable = tf.Variable(
                tf.zeros([len(self._names)], tf.int64),
                trainable=False,
                collections=[],
                name='parallax/touched_rows',
            )
            counts = tf.stack([tf.cast(touched[name], tf.int64) for name in self._names])
            self.operation = tf.assign_add(self.variable, counts).op

    def after_step(self) -> bool:
        """Notes that a step has been; returns whether all steps to be measured have been."""
        self._steps += 1
        return self._steps == MEASURED_STEPS

    def density(self, session: Session, gather: Gather) -> Dict[str, float]:
        """By name the fraction of each table's rows that steps of all workers touch. Collective."""
        counts = session.run(self.variable)
        densities = {
            name: count / float(self._steps * max(1, self._rows[name]))
            for name, count in zip(self._names, counts)
        }
        of_ranks = gather(densities)
        return {
            name: min(1.0, sum(of_rank[name] for of_rank in of_ranks) / len(of_ranks))
            for name in self._names
        }


class _Measures(Protocol):
    """The `StepOperations`."""

    @property
    def meter(self) -> Optional[DensityMeter]:
        """Counts the rows of tables whose density is not known."""


class _Runs(Protocol):
    """The `StepRuns`."""

    @property
    def density(self) -> Mapping[str, float]:
        """The densities that were measured."""


class MeasuredStep(Protocol):
    """A `TrainStep`, which is made of what is here."""

    @property
    def operations(self) -> _Measures:
        """Its operations."""

    @property
    def runs(self) -> _Runs:
        """Its runs."""


def measures_density(step: MeasuredStep) -> bool:
    """Whether the densities of a `TrainStep`'s tables are yet to be measured."""
    return step.operations.meter is not None and not step.runs.density
