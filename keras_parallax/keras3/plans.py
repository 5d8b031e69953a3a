# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan of a Keras 3 model: its tables as the engine has them, all else on every worker."""

from typing import Any, Dict, List, Optional

from keras_parallax.compat.keras3_variable import TableVariable
from keras_parallax.errors import ScopeError
from keras_parallax.keras3 import joint_lookups, optimizer
from keras_parallax.keras3.describing import update_of
from keras_parallax.keras3.optimizer_parts import part_for, parts_of
from keras_parallax.keras3.scope import Keras3Scope
from keras_parallax.planning.classify import DENSE, VariableUse
from keras_parallax.planning.plan import Basis, Plan, PlannedVariable

#: Ends the reason of a table whose rows no call pulls together with those of others.
_ALONE = '; a layer computes its ids, so each lookup costs a call of its own'


def plan_of(model: Any, scope: Keras3Scope) -> Plan:
    """The `Plan` of a model that is compiled in a scope.

    Args:
        model: the model; its weights must be built.
        scope: the scope of its strategy.

    Raises:
        ScopeError: the model is not built, or not compiled in the scope; with several workers, its
            optimizer has not been built yet.
    """
    own: Any = getattr(model, 'optimizer', None)
    if not optimizer.is_wrapped(own) or own._parallax_scope is not scope or not model.built:
        raise ScopeError(
            'Compile the model inside `with strategy:`, and build its weights (keras.Input, or a '
            'first batch), before asking for its plan.'
        )
    if not own.built and scope.job.size > 1:
        # Building is a collective call, and one worker alone may ask for the plan.
        raise ScopeError(
            'With Keras 3 and several workers, a model has a plan once its optimizer is built. Ask '
            'after the first training step, or call '
            'model.optimizer.build(model.trainable_variables) on all workers before.'
        )
    own.build(model.trainable_variables)
    parts = [part for part in parts_of(own) if part._parallax_step is not None]
    plans = [part._parallax_step.step.plan for part in parts]
    plan = _joined(plans) if plans else Plan((), 1)
    tables = [variable for part in parts for variable in part._parallax_tables]
    of_tables = dict(zip((one.table for one in tables), plan.variables))
    way = own._parallax_settings.sparse_update
    updates = {}
    alone = {id(layer) for layer in joint_lookups.looked_up_alone(model)}
    variables = []
    for variable in model.trainable_variables:
        is_table = isinstance(variable, TableVariable)
        name = variable.table.name if is_table else variable.path
        update = update_of(part_for(own, variable), way, is_table)
        if update is not None:
            updates[name] = update
        if is_table:
            planned = of_tables[variable.table]._replace(name=name)
            if id(variable.layer()) in alone:
                planned = planned._replace(reason=planned.reason + _ALONE)
            variables.append(planned)
        else:
            variables.append(
                PlannedVariable(
                    name,
                    tuple(variable.shape),
                    str(variable.dtype),
                    DENSE,
                    scope.reasons.get(name, 'not looked up'),
                    density=1.0,
                )
            )
    plan = plan._replace(
        variables=tuple(variables),
        requested=scope.request.architecture,
        basis=_basis(
            plan, variables, {planned.name: table.name for table, planned in of_tables.items()}
        ),
    )
    return plan.with_updates(updates)


def _joined(plans: List[Plan]) -> Plan:
    """The plan of tables that several optimizers update, each by a step of its own."""
    bases = [plan.basis for plan in plans if plan.basis is not None]
    basis = bases[0] if bases else None
    if basis is not None:
        overrides = {name: kind for one in bases for name, kind in one.overrides.items()}
        uses = tuple(use for one in bases for use in one.uses)
        basis = basis._replace(uses=uses, overrides=overrides)
    variables = tuple(variable for plan in plans for variable in plan.variables)
    return plans[0]._replace(variables=variables, basis=basis)


def _basis(plan: Plan, variables: List[PlannedVariable], names: Dict[str, str]) -> Optional[Basis]:
    """The basis of the engine's plan, with all variables of the model by their own names.

    Args:
        plan: the engine's plan, of tables.
        variables: those of the model.
        names: from names in that plan to names of tables in the model.
    """
    if plan.basis is None:
        return None
    uses = {names.get(use.name, use.name): use for use in plan.basis.uses}
    return plan.basis._replace(
        uses=tuple(
            uses[planned.name]._replace(name=planned.name)
            if planned.name in uses
            else VariableUse(planned.name, planned.shape, planned.dtype, whole_reads=('loss',))
            for planned in variables
        ),
        overrides={names.get(name, name): kind for name, kind in plan.basis.overrides.items()},
    )
