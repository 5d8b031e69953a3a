# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which terms of a model's loss are sums over the batch.

Gradients are averaged over the workers. That gives the gradient of the joined batch for a term that
is a mean over the samples, and for one that does not depend on them, such as the penalty of a
weight. A term that is a sum over the samples counts as many times as there are workers.

Keras's own losses and penalties are known. Others are tried with the first batch (`loss_trial.py`).
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set

from keras_parallax.compat import graph_queries, keras_api, output_losses
from keras_parallax.compat.output_losses import OutputLoss
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.loss_terms import LossTerm
from keras_parallax.engine.updates.requested_gradients import is_of_batch
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Model, Session
from keras_parallax.planning.loss_kinds import SUM


class Untried(NamedTuple):
    """A term of which nothing but its values tells whether it is a sum over the batch.

    Attributes:
        value: the tensor.
        loss: the `OutputLoss` that the term is, or `None` of a term that a layer or the model adds.
        factor: the variable that has the factor of its `LossTerm`.
    """

    value: tf.Tensor
    loss: Optional[OutputLoss]
    factor: tf.Variable

    @property
    def described(self) -> str:
        """The term in a message."""
        if self.loss is not None:
            return self.loss.described
        return 'The loss %s, which a layer or the model adds,' % self.value.op.name


class Sums:
    """The terms of a loss that are not means over the samples, or may not be.

    Args:
        terms: the `LossTerm`s.
        untried: the `Untried` ones among them.
        losses: the `OutputLoss`es of the model.
        factor: how many batches are averaged, which is the factor of a term that is a sum.
        sources: the operations of the model's inputs and targets.

    Attributes:
        terms, untried, losses, factor, sources: as given.
        are_there: whether a term is known to be a sum.
    """

    def __init__(
        self,
        terms: Sequence[LossTerm] = (),
        untried: Sequence[Untried] = (),
        losses: Sequence[OutputLoss] = (),
        factor: int = 1,
        sources: Iterable[tf.Operation] = (),
    ) -> None:
        self.terms, self.untried, self.losses = list(terms), list(untried), list(losses)
        self.sources = frozenset(sources)
        self.factor, self.are_there = factor, len(self.terms) > len(self.untried)

    def settle(self, kinds: Sequence[str], session: Session) -> None:
        """Takes the kinds of the untried terms, each `MEAN` or `SUM`, in order."""
        factors = [self.factor if kind == SUM else 1 for kind in kinds]
        self.are_there = self.are_there or SUM in kinds
        with self.terms[0].value.graph.as_default():
            session.run(
                [
                    tf.assign(term.factor, float(factor)).op
                    for term, factor in zip(self.untried, factors)
                ]
            )

    def require_batches(self, batches: int, steps: int) -> None:
        """Raises `PlanError` if gradients of fewer batches than `accumulate_steps` are applied.

        A sum counts as many times as there are batches, which a worker must know beforehand.
        """
        if self.are_there and batches % steps:
            raise PlanError(
                'A term of the loss is a sum over the samples of a batch, and accumulate_steps=%d, '
                'but an epoch leaves the gradients of %d batches, which would count %g times. '
                'Train a multiple of %d batches in an epoch.'
                % (steps, batches % steps, steps / (batches % steps), steps)
            )


def sums_in(
    loss: tf.Tensor,
    model: Model,
    factor: int,
    reduction: Optional[str],
) -> Sums:
    """The sums in a model's total loss.

    Args:
        loss: the total loss.
        model: the compiled model.
        factor: how many times a sum counts.
        reduction: `'mean'` or `'sum'`, which all terms are that are not known, or `None`.
    """
    package = keras_api.package_of(model)
    losses = output_losses.output_losses(model, package)
    layers = keras_api.layers_in(package, model)
    known = output_losses.activity_penalties(layers, package)
    added = output_losses.added_losses(layers)
    of_layers = {part for one in added for part in graph_queries.summands(one, known)}
    sources = {tensor.op for tensor in [*model.inputs, *[one.target for one in losses]]}
    terms, untried = [], []
    for value in _parts(loss, known):
        kind, of = known.get(value), None
        if kind is None and not _is_of_batch(value, sources):
            continue
        if kind is None and value not in of_layers:
            of = _loss_of(value, losses)
            kind = of.kind if of else None
        kind = kind or reduction
        if kind == SUM:
            terms.append(LossTerm(value, float(factor)))
        elif kind is None:
            variable = _factor_variable(value)
            untried.append(Untried(value, of, variable))
            terms.append(LossTerm(value, variable.value()))
    return Sums(terms, untried, losses, factor, sources)


def sums_of_script(loss: tf.Tensor, factor: int, reduction: Optional[str]) -> Sums:
    """The sums in the loss of a script's own step, whose terms are what the script says they are.

    Args:
        loss: the loss.
        factor: how many times a sum counts.
        reduction: as of `sums_in`; without one, all terms count as means.
    """
    if reduction != SUM:
        return Sums()
    parts = [value for value in _parts(loss, {}) if _is_of_batch(value, set())]
    return Sums([LossTerm(value, float(factor)) for value in parts], factor=factor)


def _parts(loss: tf.Tensor, known: Dict[tf.Tensor, str]) -> List[tf.Tensor]:
    """The terms of a total loss, in an order that all workers have in common.

    A loss that is no scalar is one term: Keras takes the gradient of the sum of its entries.
    """
    if loss.shape.ndims != 0:
        return [loss]
    parts = graph_queries.summands(loss, known)
    # Keras 2.2.4 adds up losses of layers in the order of their addresses.
    return sorted(parts, key=lambda value: value.name)


def _is_of_batch(value: tf.Tensor, sources: Set[tf.Operation]) -> bool:
    """Whether a term depends on the batch, or on anything else that is fed."""
    members = graph_queries.ancestors([value], by_data=True)
    return any(operation in sources or is_of_batch(operation) for operation in members)


def _loss_of(value: tf.Tensor, losses: List[OutputLoss]) -> Optional[OutputLoss]:
    """The loss of an output that a term is: the one whose target it depends on.

    A function that leaves the targets out is known by the output.
    """
    outputs = [one.output.op for one in losses]
    members = graph_queries.ancestors([value], leaves=outputs, by_data=True)
    for one in losses:
        if one.target.op in members:
            return one
    taken = {tensor for operation in members for tensor in operation.inputs}
    own = [one for one in losses if one.kind is None and one.output in taken]
    return own[0] if own else None


def _factor_variable(value: tf.Tensor) -> tf.Variable:
    with tf.control_dependencies(None), tf.name_scope(None), tf.device('/cpu:0'):
        return tf.Variable(
            float('nan'),  # Until it is known, there is no loss.
            trainable=False,
            # Local ones go along when the session moves to a server.
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
            name='parallax/factor_of/%s' % value.op.name,
        )
