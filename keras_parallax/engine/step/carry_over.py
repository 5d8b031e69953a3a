# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Copies weights to those that take their place, as after a move of tables."""

from typing import Any, Iterable, Sequence, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.step_spec import job_of_strategy, scope_of_strategy
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables import row_transfer
from keras_parallax.engine.tables.row_transfer import Rows, ShardedRows
from keras_parallax.engine.updates.keras_slots import EqualSlots, UnusedRows
from keras_parallax.framework_types import Session, Weight

#: Weights of more bytes are not copied whole: they move in blocks, all of them side by side.
_SMALL_BYTES = 2**16


def carry_over(
    pairs: Iterable[Tuple[Any, Any]],
    session: Session,
    rank: int,
    size: int,
    replicated: Sequence[Any] = (),
) -> None:
    """Copies weights to those that take their place.

    All workers call it, and each does a share of what is in shards.

    Args:
        pairs: of `Rows` or variables of equal shape, of an old and a new one.
        session: the session.
        rank: this process's rank.
        size: the number of workers.
        replicated: `ReplicatedTable`s, whose rows every worker copies.
    """
    in_shards, small = [], [one.number for one in replicated if one.number]
    own = [one.pair for one in replicated if one.pair]
    emptied = [one.emptied for one in replicated if one.pair]
    for old, new in pairs:
        if old is new or isinstance(new, UnusedRows) or _are_stored_alike(old, new):
            continue
        if isinstance(new, Rows):
            in_shards.append((rows_of(old), new))
        elif row_transfer.bytes_of(new) > _SMALL_BYTES and not isinstance(old, EqualSlots):
            own.append((rows_of(old), rows_of(new)))
            emptied += row_transfer.emptied([new])
        else:
            value = tf.placeholder(new.dtype.base_dtype, new.shape)
            small.append((old, value, new.assign(value)))
            if isinstance(old, Rows):
                old.make_reader()
    # All operations are made before the first run, at which a session learns of them.
    row_transfer.make_for_moves(in_shards + own)
    if small:
        olds, placeholders, assignments = zip(*small)
        values = row_transfer.read_together(list(olds), session)
        session.run(list(assignments), dict(zip(placeholders, values)))
    row_transfer.move(in_shards, session, share=(rank, size))
    if own:
        session.run(emptied)
        row_transfer.move(own, session)


def take_over(step: TrainStep) -> None:
    """Has new slots of shards begin with what the optimizer kept of the whole variables.

    Keras has loaded those slots, or another model of the same variables has left them. All workers
    hold the same values of them, and call this.
    """
    made = [of_table for of_table in step.operations.made if of_table.taken]
    if made:
        pairs = [pair for of_table in made for pair in of_table.taken]
        carry_over(pairs, scope_of_strategy(step.spec).session, step.job.rank, step.job.size)
        job_of_strategy(step.spec).barrier()
        step.spec.forget_slots([of_table.table.variable for of_table in made])


def _are_stored_alike(some: Any, others: Any) -> bool:
    """Whether two weights are slots of a table that has the shards that it had."""
    stored, alike = getattr(some, 'shards', []), getattr(others, 'shards', [])
    return bool(stored) and stored == alike


def rows_of(weight: Weight) -> Rows:
    """`Rows`, or a variable as one shard of all of its rows."""
    return weight if isinstance(weight, Rows) else ShardedRows(weight.name, [weight], weight.shape)
