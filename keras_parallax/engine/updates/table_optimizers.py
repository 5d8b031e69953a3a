# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers of tables that are others than the model's own."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from keras_parallax.compat import keras_api, keras_optimizers
from keras_parallax.engine.updates.clipping import Bounds, bounds_of
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Optimizer
from keras_parallax.planning.architectures import AUTO
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request
from keras_parallax.planning.variable_names import names_of


class TableOptimizers(NamedTuple):
    """Which optimizers move the rows of tables in the place of the model's own.

    Attributes:
        others: the optimizer of all tables that are not named, or `None` for the model's own.
        named: dict from names of layers, or of variables, to optimizers.
        layers: mapping from the names of the model's variables to the names of their layers.
    """

    others: Optional[Any] = None
    named: Dict[str, Any] = {}
    layers: Mapping[str, Optional[str]] = {}

    def all(self) -> Dict[str, Any]:
        """A dict from names to all optimizers; that of the others has the name `''`."""
        return dict(self.named, **({'': self.others} if self.others else {}))

    def of(self, table: str) -> Optional[Any]:
        """The optimizer of a table of a name, such as `'user/embeddings'`, or `None`."""
        given = [self.named[name] for name in self._names_of(table) if name in self.named]
        return given[0] if given else self.others

    def _names_of(self, variable: str) -> Tuple[str, ...]:
        return names_of(variable, self.layers.get(variable))

    def require_tables(self, plan: Plan, request: Request) -> None:
        """Raises `PlanError` if a name is that of no table, or tables may become dense later.

        Args:
            plan: the `Plan`.
            request: the `plan_request.Request`.
        """
        if self.all() and request.architecture == AUTO:
            raise PlanError(
                "architecture='auto' may have tables updated as dense variables, by the optimizer "
                'of those; with tables or per_table use another architecture.'
            )
        tables = {variable.name for variable in plan.variables if variable.kind == SPARSE}
        for name in self.named:
            if any(name in self._names_of(table) for table in tables):
                continue
            reasons = [
                '%s is %s' % (variable.name, variable.reason)
                for variable in plan.variables
                if name in self._names_of(variable.name)
            ]
            raise PlanError(
                'per_table has an optimizer for %s, but %s; tables are %s.'
                % (name, '; '.join(reasons) or 'there is none', ', '.join(sorted(tables)) or 'none')
            )

    def described(self) -> Dict[str, str]:
        """Their classes by name, as plain data, for a file."""
        return {name: adapter_of(one).name for name, one in self.all().items()}


def table_optimizers(
    optimizer: Optimizer, tables: Any, per_table: Optional[Mapping[str, Any]]
) -> TableOptimizers:
    """The `TableOptimizers` of arguments of `ParallaxOptimizer`, which count the model's own steps.

    Args:
        optimizer: the model's own, a Keras optimizer.
        tables: an optimizer, its name, or `None`.
        per_table: a dict from names to optimizers or their names, or `None`.

    Raises:
        PlanError: an optimizer cannot be for a table.
    """
    if tables is None and not per_table:
        return TableOptimizers()
    package = keras_api.package_of(optimizer)
    if adapter_of(optimizer).inner is not None:
        raise PlanError(
            'tables and per_table go with an optimizer of Keras, but %s is one of TensorFlow.'
            % adapter_of(optimizer).name
        )

    def made(given: Any) -> Optimizer:
        one = package.module.optimizers.get(keras_api.for_graphs(given))
        adapter = adapter_of(one)
        by_rows = adapter.rows_alone and adapter.loss_scale is None
        if not by_rows or adapter.keeps_numbers:
            raise PlanError(
                'tables and per_table take optimizers whose formula for single rows is known: '
                'those of Keras but for Nadam, and of kp.optimizers; but %s was given.'
                % adapter.name
            )
        if keras_api.package_of(one) != package:
            raise PlanError(
                'The optimizers of tables must be of %s, as the one of the model, but %s is not.'
                % (package.name, adapter.name)
            )
        if bounds_of(one).clips:
            raise PlanError(
                'An optimizer of a table has no %s of its own: the gradients of all variables are '
                'clipped by %s.' % (' or '.join(Bounds._fields), adapter_of(optimizer).name)
            )
        return one

    given = dict(per_table or {}, **({'': tables} if tables is not None else {}))
    made_once = {id(one): made(one) for one in given.values()}
    for one in made_once.values():
        # All of them take part in the same steps.
        keras_optimizers.share_steps(one, optimizer)
    named = {name: made_once[id(one)] for name, one in given.items()}
    return TableOptimizers(named.pop('', None), named)
