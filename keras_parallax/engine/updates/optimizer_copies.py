# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Copies of an optimizer and of all that it holds, for a graph of their own."""

import types
from types import FunctionType
from typing import Any, Dict, Tuple

from keras_parallax.compat import graph_queries, keras_api, patches, tensorflow_api
from keras_parallax.compat.tensorflow_api import VARIABLES, tf
from keras_parallax.framework_types import Optimizer, Tensor, Variable

#: A variable of more numbers is none of an optimizer's settings.
_MOST_NUMBERS = 10000


def named(variable: Variable, name: str) -> Variable:
    """Gives a variable another `name` than its storage has, in place, and returns it."""
    cls = type(variable)
    members = {'name': property(lambda self: name), **tensorflow_api.key_of(variable)}
    with_name = type(cls.__name__, (cls,), members)
    return patches.change_class('tf.Variable.name', variable, with_name)


class Copies:
    """Copies things into the default graph: optimizers, and variables and tensors that they hold.

    Args:
        package: the optimizer's `KerasPackage`.
    """

    _copies: Dict[int, Tuple[Any, Any]]

    def __init__(self, package: Any) -> None:
        self._package, self._copies = package, {}

    def of(self, original: Any) -> Any:
        """The copy of an object, or the object itself where it holds nothing of another graph."""
        key = self._key(original)
        if key not in self._copies:
            # The original is kept, so that no other object gets its id.
            self._copies[key] = (self._copy(original), original)
        return self._copies[key][0]

    def _key(self, original: Any) -> int:
        # A wrapper shares its attributes with the optimizer that it wraps; the two are one.
        is_optimizer = isinstance(original, self._package.module.optimizers.Optimizer)
        return id(vars(original)) if is_optimizer else id(original)

    def _copy(self, original: Any) -> Any:
        if isinstance(original, VARIABLES):
            return self._copy_variable(original)
        if isinstance(original, tf.Tensor):
            return _copy_tensor(original)
        if isinstance(original, self._package.module.optimizers.Optimizer):
            return self._copy_optimizer(original)
        if isinstance(original, dict):
            return type(original)((self.of(key), self.of(value)) for key, value in original.items())
        if type(original) in (list, tuple, set):
            return type(original)(map(self.of, original))
        if isinstance(original, types.MethodType):
            return types.MethodType(original.__func__, self.of(original.__self__))
        if isinstance(original, types.FunctionType) and original.__closure__:
            return self._copy_function(original)
        return original

    def _copy_variable(self, variable: Variable) -> Variable:
        numbers = variable.shape.num_elements()
        if numbers is None or numbers > _MOST_NUMBERS:
            raise ValueError('it holds the variable %s of the model' % variable.name)
        return self._package.backend.variable(
            keras_api.number_in(variable), variable.dtype.base_dtype.name, variable.op.name
        )

    def _copy_optimizer(self, optimizer: Optimizer) -> Optimizer:
        own = next(c for c in type(optimizer).__mro__ if not hasattr(c, '_parallax_wrapper'))
        copy: Optimizer = object.__new__(own)
        self._copies[self._key(optimizer)] = (copy, optimizer)
        for name, value in vars(optimizer).items():
            # What the last step was made of.
            copy.__dict__[name] = [] if name in ('updates', 'weights') else self.of(value)
        return copy

    def _copy_function(self, function: FunctionType) -> FunctionType:
        """A function whose closure holds copies, such as one that knows its optimizer."""
        cells = [_cell(self.of(cell.cell_contents)) for cell in function.__closure__ or ()]
        copy = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            tuple(cells),
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy


def _cell(content: Any) -> Any:
    return (lambda: content).__closure__[0]  # type: ignore[index]  # The lambda reads `content`.


def _copy_tensor(tensor: Tensor) -> Tensor:
    definition = tf.GraphDef()
    definition.versions.CopyFrom(tensor.graph.graph_def_versions)
    for operation in graph_queries.ancestors([tensor]):
        node = definition.node.add()
        node.CopyFrom(operation.node_def)
        node.device = ''
        node.attr.pop('_class', None)
    (copy,) = tf.import_graph_def(definition, return_elements=[tensor.name], name='held')
    return copy
