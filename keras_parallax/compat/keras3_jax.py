# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lookups, exchange and pushes within the steps that Keras 3 builds for its JAX backend."""

import collections
import math
from typing import Any, Callable, DefaultDict, Dict, List, Sequence, Tuple

import jax
import keras
import numpy as np
import tensorflow as tf
from jax import numpy as jnp
from jax.extend import random as jax_random
from keras.src.random.seed_generator import draw_seed

from keras_parallax.compat import jax_calls
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.errors import PlanError

#: XLA calls Python.
CAN_COMPILE = True

#: The call that runs a step returns before the step is over.
IS_ASYNCHRONOUS = True

#: As of the TensorFlow backend.
PullRows = Callable[[Sequence[np.ndarray]], List[np.ndarray]]

#: Sums of so many different powers of two are exact in float32.
_TICKETS = 24

#: What a backward pass has computed for the rows of a lookup: ids and gradients.
_Note = Tuple[np.ndarray, np.ndarray]


class _Notes:
    """The notes of the lookups of one table that no step has pushed yet.

    Each has a ticket, a power of two. The backward pass gives it as the gradient by the variable
    that stands for the table, so that the sum of some lookups' gradients tells their notes. Those
    of a gradient that a script computes and does not apply are dropped when their tickets are
    needed.
    """

    def __init__(self) -> None:
        self._by_place: Dict[int, _Note] = {}

    def add(self, ids: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Adds a note; returns its ticket."""
        if len(self._by_place) == _TICKETS:
            del self._by_place[next(iter(self._by_place))]
        place = next(n for n in range(_TICKETS) if n not in self._by_place)
        self._by_place[place] = ids, by
        return np.float32(2.0**place)

    def take(self, tickets: float) -> List[_Note]:
        """Removes and returns the notes of a sum of tickets.

        Raises:
            ValueError: it is no such sum.
        """
        whole = int(tickets) if np.isfinite(tickets) else -1
        places = [place for place in range(_TICKETS) if whole >= 0 and whole >> place & 1]
        if whole != tickets or whole >> _TICKETS or not set(places) <= set(self._by_place):
            raise ValueError('%r is no sum of tickets.' % tickets)
        return [self._by_place.pop(place) for place in places]


_notes: DefaultDict[Any, _Notes] = collections.defaultdict(_Notes)


class _TableShape(tuple):
    """The shape of a table, which a scalar fits, too.

    A stateless step of JAX hands in a value for every variable, and compares its shape.
    """

    def __eq__(self, other: Any) -> bool:
        return tuple(other) in ((), tuple(self))

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))


def shape_of_table(shape: Tuple[int, int]) -> Tuple[int, ...]:
    """The shape of a table, as a variable of Keras has it."""
    return _TableShape(shape)


def sharing(array: np.ndarray) -> jax.Array:
    """As of the TensorFlow backend."""
    return jax.dlpack.from_dlpack(array)


def outside_steps() -> Any:
    """A context manager in which everything is computed at once, also while JAX traces a step."""
    return jax.ensure_compile_time_eval()


def seed_of_draws(initializer: Any) -> Any:
    """The seed with which a random initializer of Keras draws next: two numbers.

    Returns:
        An array; `None` if JAX draws in another way than usual, by which no rows can be made alone.
    """
    usual = jax.config.jax_threefry_partitionable
    usual = usual and jax.config.jax_default_prng_impl == 'threefry2x32'
    if not usual or isinstance(initializer.seed, jax.Array):
        return None
    return draw_seed(initializer.seed)


def seed_of_numbers(numbers: Sequence[int]) -> Any:
    """A seed as `seed_of_draws` returns it, made of its two numbers."""
    return np.array(numbers, np.uint32)


def drawn_rows(
    kind: str, low: float, high: float, *, seed: Any, first: int, shape: Tuple[int, int]
) -> np.ndarray:
    """Some rows of what Keras would draw for a whole table; as of the TensorFlow backend."""
    begin = np.uint64(first * shape[1])
    place = [begin >> np.uint64(32), begin & np.uint64(2**32 - 1)]
    numbers = np.concatenate([np.asarray(seed, np.uint32), np.array(place, np.uint32)])
    key = jax.random.wrap_key_data(numbers, impl=_LATER_DRAWS)
    draw = getattr(keras.random, kind)
    return np.asarray(draw(shape, low, high, dtype='float32', seed=key))


def _later_bits(key: Any, bit_width: int, shape: Tuple[int, ...]) -> Any:
    """The bits of the elements of an array, without the first ones, which the key counts."""
    if bit_width != 32:
        raise NotImplementedError('Draws of %d bits.' % bit_width)
    size = math.prod(shape)
    count = jax.lax.iota(jnp.uint32, size)
    low = count + key[3]
    high = key[2] + (low < count).astype(jnp.uint32)
    bits = jax_random.threefry_2x32(key[:2], jnp.concatenate([high, low]))
    return (bits[:size] ^ bits[size:]).reshape(shape)


def _refused(*args: Any) -> Any:
    raise NotImplementedError('Such a key is for draws alone.')


#: A kind of key: it draws what an ordinary key would, without the first elements of the array.
_LATER_DRAWS = jax_random.define_prng_impl(
    key_shape=(4,),
    seed=_refused,
    split=_refused,
    random_bits=_later_bits,
    fold_in=_refused,
    name='later_draws',
    tag='later',
)


def may_differentiate() -> bool:
    """Whether what is computed outside of stateless scopes may be differentiated later."""
    return False


def wait_for(variable: Any) -> None:
    """Waits for what a variable is set to, which the step computes that sets it."""
    if variable._value is not None:
        jax.block_until_ready(variable._value)


def sync_state(model: Any) -> None:
    """Has the variables of a model that is in `fit` have their values."""
    model.jax_state_sync()


def passed_over(model: Any, arguments: Any, metrics: Any) -> Any:
    """What the function that trains a step returns for a step that is passed over.

    Args:
        model: the model.
        arguments: those of the function.
        metrics: what the states of metrics are to be then, arrays; `None` leaves them.
    """
    *others, of_metrics = arguments[0]
    if metrics is not None:
        of_metrics = [jnp.asarray(value, of.dtype) for value, of in zip(metrics, of_metrics)]
    return {}, (*others, of_metrics)


def is_plain(ids: Any) -> bool:
    """Whether ids are an array, not a sparse one."""
    return isinstance(ids, jax.Array)


def lookup(pull: PullRows, variable: Any, ids: Any, width: int) -> Any:
    """The rows of ids, of shape `ids.shape + [width]`; arguments as of the TensorFlow backend."""
    return lookups(pull, [variable], [keras.ops.convert_to_tensor(ids, sparse=False)], [width])[0]


def lookups(
    pull: PullRows, variables: Sequence[Any], ids: Sequence[Any], widths: Sequence[int]
) -> List[Any]:
    """The rows of several lookups, pulled by one call; arguments as of the TensorFlow backend.

    The backward pass notes ids and gradients for `push`. The gradient by a variable that stands
    for a table is the ticket of the note.
    """
    distinct = list({id(of_one): of_one for of_one in ids}.values())
    places = [next(n for n, one in enumerate(distinct) if one is of_one) for of_one in ids]

    def pulled(*arrays: np.ndarray) -> List[np.ndarray]:
        # After the zeros that stand for the tables, which the push before has returned.
        flat = [array.reshape(-1) for array in arrays[len(variables) :]]
        rows = pull([flat[place] for place in places])
        return [
            np.reshape(of_one, (*arrays[len(variables) + place].shape, width))
            for of_one, place, width in zip(rows, places, widths)
        ]

    def noted(*arrays: np.ndarray) -> List[np.ndarray]:
        # Copies: JAX uses the memory of an argument again when the call is over.
        flat = [array.flatten() for array in arrays[: len(distinct)]]
        return [
            _notes[variable.table].add(flat[place], np.array(of_one, np.float32).reshape(-1, width))
            for variable, place, of_one, width in zip(
                variables, places, arrays[len(distinct) :], widths
            )
        ]

    @jax.custom_vjp
    def rows_of(stand_ins: Any, arrays: Any) -> Any:
        shapes = [(*arrays[place].shape, width) for place, width in zip(places, widths)]
        forms = [(shape, np.float32) for shape in shapes]
        return jax_calls.call(pulled, [*stand_ins, *arrays], forms)

    def forward(stand_ins: Any, arrays: Any) -> Any:
        return rows_of(stand_ins, arrays), arrays

    def backward(arrays: Any, by: Any) -> Any:
        tickets = jax_calls.call(noted, [*arrays, *by], [((), np.float32) for _ in variables])
        return tickets, [np.zeros(array.shape, jax.dtypes.float0) for array in arrays]

    rows_of.defvjp(forward, backward)
    return rows_of([jnp.asarray(variable.value) for variable in variables], distinct)


def _taken(table: Any, tickets: float) -> List[_Note]:
    try:
        return _notes[table].take(tickets)
    except ValueError as error:
        raise PlanError(
            'The gradient of table %s was changed before it was applied. With the JAX backend it '
            'is no number to compute with: give the optimizer the gradients as JAX computes them, '
            'or their sums over several batches.' % table.name
        ) from error


def has_gradient(gradient: Any) -> bool:
    """Whether the loss depends on what was looked up; without, JAX has a zero, too."""
    return gradient is not None


def as_tensors(gradients: Sequence[Any], keep_rows: bool) -> List[Any]:
    """Gradients as arrays, which they are."""
    del keep_rows
    return list(gradients)


def mean_over_workers(
    gradients: Sequence[Any], name: str, compression: Any, collective: Any, check: Any
) -> List[Any]:
    """The mean over the workers of each of some arrays; arguments as of the TensorFlow backend."""

    def means(flat: np.ndarray) -> List[np.ndarray]:
        found = _reduced(flat, name, compression, hvd.Average, collective)
        if check is not None:
            size = gradients[0].size
            check(flat[:size], found[:size])
        return [found]

    flat = jnp.concatenate([of.ravel().astype(np.float32) for of in gradients])
    (joined,) = jax_calls.call(means, [flat], [(flat.shape, flat.dtype)])
    parts = jnp.split(joined, np.cumsum([of.size for of in gradients])[:-1])
    return [part.reshape(of.shape).astype(of.dtype) for part, of in zip(parts, gradients)]


def sum_over_workers(tensor: Any, name: str, collective: Any) -> Any:
    """The sum over the workers of an array, through which no gradient goes."""

    def total(array: np.ndarray) -> List[np.ndarray]:
        found = _reduced(array.reshape(-1), name, hvd.Compression.none, hvd.Sum, collective)
        return [found.reshape(array.shape)]

    tensor = jax.lax.stop_gradient(tensor)
    return jax_calls.call(total, [tensor], [(tensor.shape, tensor.dtype)])[0]


def _reduced(flat: np.ndarray, name: str, compression: Any, op: Any, collective: Any) -> np.ndarray:
    def reduce(_: Any) -> np.ndarray:
        small, kept = compression.compress(tf.constant(flat))
        found: np.ndarray = compression.decompress(
            hvd.allreduce(small, op=op, name=name), kept
        ).numpy()
        return found

    found: np.ndarray = collective(reduce)
    return found


def push(
    act: Callable[..., None],
    number_and_rate: Sequence[Any],
    gradients: Sequence[Any],
    variables: Sequence[Any],
) -> List[Any]:
    """As of the TensorFlow backend; the gradients are sums of tickets of `lookup`.

    Args:
        act: as of the TensorFlow backend.
        number_and_rate: as of the TensorFlow backend.
        gradients: a zero for each table.
        variables: as of the TensorFlow backend.

    Returns:
        A zero for each variable that stands for a table, which is there when the push is over: the
        next step looks up no row before.
    """

    def acted(number: np.ndarray, rate: np.ndarray, *sums: np.ndarray) -> List[np.ndarray]:
        parts: List[np.ndarray] = []
        for variable, tickets in zip(variables, sums):
            parts += _together(_taken(variable.table, float(tickets)), variable.table.shape[1])
        act(number, rate, *parts)
        return [np.zeros((), np.float32)]

    done = jax_calls.call(acted, [*number_and_rate, *gradients], [((), np.float32)])
    return [done[0] for _ in variables]


def _together(notes: Sequence[_Note], width: int) -> _Note:
    """The ids and gradients of some notes as those of one."""
    if len(notes) == 1:
        return notes[0]
    ids = [of_note for of_note, _ in notes] or [np.zeros(0, np.int32)]
    gradients = [of_note for _, of_note in notes] or [np.zeros((0, width), np.float32)]
    return np.concatenate(ids), np.concatenate(gradients)
