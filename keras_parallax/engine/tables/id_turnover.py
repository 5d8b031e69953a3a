# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which ids get rows and lose them when a training step ends: where the rows lie, by their owner.

All that workers have met is there then, and no worker meets anything before the owner is done. So
what is decided does not depend on who was first.
"""

import functools
from typing import Any, List, Optional, Sequence, Tuple

from keras_parallax.compat import index_storage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import id_hashes, id_part
from keras_parallax.engine.tables.id_index import IdIndex
from keras_parallax.engine.tables.id_part import (
    ASKED,
    CANDIDATES,
    CLOCK,
    EVICTED,
    FULL,
    IDS,
    LAST_STEPS,
    LEFT_OUT,
    NO_ID,
    STEPS_USED,
    WITHOUT_ROW,
    IndexPart,
)
from keras_parallax.engine.tables.id_policies import LFU, Admission, Eviction
from keras_parallax.framework_types import Operation, Tensor, Variable

_LARGEST = 2**63 - 1
#: Of so many rows one at least is to be free.
_LEAST_SHARE = 128
#: Ids that have lost their rows stay in a hash table, which TensorFlow 1.11 takes nothing out of.
#: It is made anew when it has so many more than there are rows.
_FORGOTTEN_TOO_MANY = 1024


def turned_over(
    index: IdIndex, part: IndexPart, slots: Sequence[Tuple[Variable, float]], after: Sequence[Any]
) -> Operation:
    """Ends a step for one shard.

    Args:
        index: the `IdIndex`.
        part: its `IndexPart`, which this process owns.
        slots: pairs of an optimizer's slot, a variable of as many rows, and the number that all of
            it begins with.
        after: what must have run before, a list.

    Returns:
        An operation.
    """
    with tf.device(part.device):
        with index_storage.locked(part.mutex, after=after) as lock:
            with tf.control_dependencies(_count_uses(part)):
                met = part.met.all()[0]
                admitted = _admitted(index.admission, part, met)
                coming = tf.size(met if index.admission is None else admitted, out_type=tf.int64)
                lost, made_room = _make_room(index, part, coming, slots)
            with tf.control_dependencies([admitted, *made_room]):
                short, given = _give_rows(index, part, admitted)
            with tf.control_dependencies([coming, *made_room, *given]):
                left_out = coming if index.admission is None else short
                lock.hold_until(_end(index, part, left_out))
    if index.eviction is None:
        return lock.released
    # After a resume with another number of shards, others may have known them.
    forgotten = [
        tf.cond(
            tf.size(ids) > 0,
            functools.partial(_forgotten, other, ids, lock.released),
            lambda: tf.constant(False),
        )
        for other, ids in zip(index.parts, id_part.split(lost, index.parts, lost)[0])
    ]
    return tf.group(lock.released, *forgotten)


def _count_uses(part: IndexPart) -> List[Operation]:
    if STEPS_USED not in part.storages:
        return []
    used = tf.where(tf.equal(part.storages[LAST_STEPS].read(), part.number_of(CLOCK)))[:, 0]
    return [part.storages[STEPS_USED].add(used, tf.ones_like(used))]


def _admitted(admission: Optional[Admission], part: IndexPart, met: Tensor) -> Tensor:
    """Of ids that were met, those that this step admits, in an order that follows from them."""
    if admission is None:
        return tf.zeros([0], tf.int64)
    if admission.min_count > 1:
        met = _often_met(part, met, admission.min_count)
    if admission.probability < 1:
        chances = id_hashes.chances(met, part.number_of(CLOCK))
        met = tf.boolean_mask(met, chances < admission.probability)
    return tf.nn.top_k(met, tf.size(met)).values


def _places_of(part: IndexPart, ids: Tensor) -> Tensor:
    """Where ids are counted: their own homes, as numbers of the shard's rows."""
    return tf.floordiv(id_hashes.homes_of(ids, part.whole), part.count)


def _often_met(part: IndexPart, met: Tensor, min_count: int) -> Tensor:
    """Counts ids; returns those that were met often enough.

    A place has one id. One step after another, that is counted up if it is met, and down if only
    others are, until one of these takes the place: the smallest.
    """
    places = _places_of(part, met)
    unique, of_places = tf.unique(places)
    number = tf.size(unique)
    held = part.storages[CANDIDATES].rows(unique)
    same = tf.equal(tf.gather(held[:, 0], of_places), met)
    is_met = tf.unsorted_segment_max(tf.to_int32(same), of_places, number) > 0
    largest = tf.fill(tf.shape(met), tf.constant(_LARGEST, tf.int64))
    newcomers = tf.unsorted_segment_min(tf.where(same, largest, met), of_places, number)
    one = tf.ones([number], tf.int64)
    counts = held[:, 1] + tf.where(is_met, one, -one)
    taken = tf.logical_and(tf.logical_not(is_met), counts <= 0)
    ids, counts = tf.where(taken, newcomers, held[:, 0]), tf.where(taken, one, counts)
    enough = tf.logical_and(tf.logical_or(taken, is_met), counts >= min_count)
    kept = tf.stack([ids, counts], 1)
    written = part.storages[CANDIDATES].write(unique, kept)
    with tf.control_dependencies([written]):
        return tf.boolean_mask(ids, enough)


def _make_room(
    index: IdIndex, part: IndexPart, coming: Tensor, slots: Sequence[Tuple[Variable, float]]
) -> Tuple[Tensor, List[Operation]]:
    """Takes rows away; `coming` is how many ids have been given none in this step, and need one.

    Returns:
        The ids that have lost their rows, and operations.
    """
    if index.eviction is None:
        return tf.zeros([0], tf.int64), []
    given, free = part.taken()
    room = part.rows - given + free
    least = tf.constant(-(-part.rows // _LEAST_SHARE), tf.int64)
    new = tf.maximum(least, coming + part.number_of(ASKED))
    # They get theirs at once, if they were admitted.
    needed = new if index.admission is None else new + coming
    wanted = tf.where(room < needed, needed + new - room, tf.zeros_like(new))
    places = _least_wanted(index.eviction, part, wanted)
    ids = part.storages[IDS].rows(places)
    with tf.control_dependencies([ids]):
        nobody = tf.fill([tf.size(places)], tf.constant(NO_ID, tf.int64))
        written = [part.storages[IDS].write(places, nobody)]
    for slot, value in slots:
        shape = tf.stack([tf.size(places)] + slot.shape.as_list()[1:])
        values = tf.fill(shape, tf.constant(value, slot.dtype.base_dtype))
        written.append(tf.scatter_update(slot, places, values))
    with tf.control_dependencies(written):
        written = [part.give_back(places)]
    with tf.control_dependencies(written):
        evicted = part.number_of(EVICTED) + tf.size(places, out_type=tf.int64)
        return ids, [part.set_numbers({ASKED: 0, EVICTED: evicted})]


def _least_wanted(eviction: Eviction, part: IndexPart, wanted: Tensor) -> Tensor:
    """The numbers of rows that are taken away, `[n]` int64."""
    clock = part.number_of(CLOCK)
    last = part.storages[LAST_STEPS]

    def chosen(too_old: Optional[Tensor]) -> Tensor:
        """So many rows as are wanted, and those that are too old."""
        ids, last_steps = part.storages[IDS].read(), last.read()
        # Of those that are alike, so that it does not matter which row an id has got.
        chances = tf.to_int64(id_hashes.chances(ids, tf.constant(0, tf.int64)) * 2.0**12)
        scores = tf.minimum(last_steps, 2**32 - 1) * 2**12 + chances
        if eviction.policy == LFU:
            scores += tf.minimum(part.storages[STEPS_USED].read(), 2**17) * 2**44
        number = wanted
        if too_old is not None:
            scores = tf.where(too_old, scores - 2**62, scores)
            number = tf.maximum(wanted, tf.count_nonzero(too_old))
        may_go = tf.logical_and(tf.not_equal(ids, NO_ID), last_steps < clock)
        scores = tf.where(
            may_go, scores, tf.fill(tf.shape(scores), tf.constant(_LARGEST, tf.int64))
        )
        number = tf.minimum(number, tf.count_nonzero(may_go))
        return tf.to_int64(tf.nn.top_k(-scores, tf.to_int32(number)).indices)

    if eviction.max_age_steps is None:
        return tf.cond(wanted > 0, lambda: chosen(None), lambda: tf.zeros([0], tf.int64))
    has_id = tf.not_equal(part.storages[IDS].read(), NO_ID)
    too_old = tf.logical_and(has_id, last.read() < clock - eviction.max_age_steps + 1)
    return tf.cond(
        tf.logical_or(wanted > 0, tf.reduce_any(too_old)),
        lambda: chosen(too_old),
        lambda: tf.zeros([0], tf.int64),
    )


def _give_rows(index: IdIndex, part: IndexPart, admitted: Tensor) -> Tuple[Tensor, List[Operation]]:
    """Gives the admitted ids rows.

    Returns:
        For how many there was none, and operations.
    """
    if index.admission is None:
        return tf.constant(0, tf.int64), []
    given, free = part.taken()
    wanted = tf.size(admitted, out_type=tf.int64)
    number = tf.minimum(wanted, part.rows - given + free)
    # What has been counted of this step did not know them.
    done = [part.give(admitted, number, index.initial, steps_used=1)]
    if index.admission.min_count > 1:
        places = _places_of(part, admitted[:number])
        nothing = tf.zeros([tf.size(places), 2], tf.int64)
        done.append(part.storages[CANDIDATES].write(places, nothing))
    return wanted - number, done


def _end(index: IdIndex, part: IndexPart, left_out: Tensor) -> List[Operation]:
    """Operations that end the step, in which so many ids were left without a row."""
    clock, nothing = part.number_of(CLOCK), tf.zeros([0], tf.int64)
    numbers = {CLOCK: clock + 1, LEFT_OUT: part.number_of(LEFT_OUT) + left_out}
    if index.eviction is None:
        numbers[FULL] = left_out > 0
    ended = [part.met.replace(nothing, nothing), part.set_numbers(numbers)]
    if LAST_STEPS in part.storages and part.shared is not None:
        # So that the weights say which step it is, if no other row was used in it.
        ended.append(part.storages[LAST_STEPS].write([part.shared], [clock]))
    return ended


def _forgotten(part: IndexPart, ids: Tensor, after: Operation) -> Tensor:
    """Has a part know nothing more of ids, after an operation; returns a tensor."""
    with tf.device(part.device):
        with index_storage.locked(part.mutex, after=[after]) as lock:
            nothing = tf.fill([tf.size(ids)], tf.constant(WITHOUT_ROW, tf.int64))
            with tf.control_dependencies([part.table.insert(ids, nothing)]):
                size = part.table.size()
            made_anew = tf.cond(
                size > 2 * part.rows + _FORGOTTEN_TOO_MANY,
                lambda: _without_forgotten(part),
                lambda: tf.constant(False),
            )
            lock.hold_until([made_anew])
        with tf.control_dependencies([lock.released]):
            return tf.constant(True)


def _without_forgotten(part: IndexPart) -> Tensor:
    ids, rows = part.table.all()
    known = tf.logical_or(rows >= 0, tf.equal(ids, NO_ID))
    made = part.table.replace(tf.boolean_mask(ids, known), tf.boolean_mask(rows, known))
    with tf.control_dependencies([made]):
        return tf.constant(True)
