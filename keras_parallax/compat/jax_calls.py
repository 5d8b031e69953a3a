# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Calls of Python by steps that JAX has compiled: for the engine, and for other workers.

`jax.experimental.io_callback` would do, too. But whatever JAX knows to have effects it dispatches
in Python, at each step, and it copies all arguments once more: some 2 to 3 ms of processor time for
the five calls of a step. So there is an operation of ours, of which XLA knows that it has side
effects, and JAX does not. What it returns must be used: JAX may leave the call out otherwise.
"""

import inspect
from typing import Any, Callable, List, Sequence, Tuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir

#: From the arrays of a call to those that it returns.
Act = Callable[..., Sequence[np.ndarray]]

#: A shape and a dtype.
Form = Tuple[Tuple[int, ...], Any]


class _Call(Primitive):
    multiple_results = True


_call: Any = _Call('parallax_call')

#: JAX 0.9 and later can have a call return a token, by which it orders effects.
_NO_TOKEN = (
    {'returns_token': False}
    if 'returns_token' in inspect.signature(mlir.emit_python_callback).parameters
    else {}
)


def call(act: Act, arrays: Sequence[Any], forms: Sequence[Form]) -> List[Any]:
    """Calls a function with arrays whenever a step comes to it.

    The step goes on when the function returns. An exception ends the step.

    Args:
        act: the function, from arrays of NumPy to a sequence of such. Its arguments are there only
            until it returns.
        arrays: its arguments, of JAX.
        forms: the shape and dtype of each array that it returns.

    Returns:
        The arrays that it returns, of JAX.
    """
    found: List[Any] = _call.bind(*map(jnp.asarray, arrays), act=act, forms=tuple(forms))
    return found


@_call.def_impl
def _called_at_once(*arrays: Any, act: Act, forms: Sequence[Form]) -> List[Any]:
    return [jnp.asarray(found) for found in act(*map(np.asarray, arrays))]


@_call.def_abstract_eval
def _returned(*arrays: Any, act: Act, forms: Sequence[Form]) -> List[Any]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in forms]


def _lowered(context: Any, *operands: Any, act: Act, forms: Sequence[Form]) -> Any:
    results, _, _ = mlir.emit_python_callback(
        context,
        act,
        None,
        list(operands),
        context.avals_in,
        context.avals_out,
        has_side_effect=True,
        **_NO_TOKEN,
    )
    return results


mlir.register_lowering(_call, _lowered)
