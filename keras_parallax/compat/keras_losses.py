# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Keras divides a batch's loss or metric by: means of masks, shares and sums of weights.

No tensor of Keras leads there, so the functions that build losses take notes (`install`). What each
version divides by:

- `keras` 2.2.4: the mean of the mask, and the share of sample weights that are not zero;
- `tf.keras` of TensorFlow 1.11: the sum of the products of mask and sample weights;
- Keras 2.15 and 2.21: the mean of the mask;
- Keras 2.3 and `tf.keras` of TensorFlow 1.15: nothing, their losses are means over all entries.

With Keras 2.3, 2.15 and 2.21, a loss that is a single number for a batch is multiplied by the mean
of the sample weights.
"""

import contextlib
import functools
import importlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries, patches
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Tensor

#: The attribute of a graph that has its notes.
_NOTES = '_parallax_losses'


class Divided(NamedTuple):
    """A loss or a metric of one output that is a quotient.

    Its value for the joined batch has means over the ranks in place of each of these parts.

    Attributes:
        value: the tensor that Keras has computed.
        numerator: a scalar tensor.
        factors: scalar tensors by which the numerator is multiplied.
        divisors: scalar tensors by which it is divided, one after the other.
        divide: function of two tensors that divides as Keras does.
        is_masked: whether a mask takes part.
        is_weighted: whether sample weights take part for certain, and not only if a script gives
            some.
        weights: the tensor of sample weights that a script may give, or `None`.
        problem: why the parts are not known, or `None` if they are.
    """

    value: tf.Tensor
    numerator: Optional[tf.Tensor] = None
    factors: Tuple[tf.Tensor, ...] = ()
    divisors: Tuple[tf.Tensor, ...] = ()
    divide: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = tf.truediv
    is_masked: bool = False
    is_weighted: bool = False
    weights: Optional[tf.Tensor] = None
    problem: Optional[str] = None


class _Note(NamedTuple):
    """A loss or metric that Keras has built, whose parts are yet to be.

    Attributes:
        value: as of `Divided`.
        build: function of `_Once` that returns the `Divided`.
    """

    value: tf.Tensor
    build: Callable[..., Divided]


class _Once:
    """Makes tensors, each once: several losses and metrics have one mask, or the same weights."""

    def __init__(self) -> None:
        self._made: Dict[Any, tf.Tensor] = {}

    def __call__(self, kind: str, of: tf.Tensor, make: Callable[[], tf.Tensor]) -> tf.Tensor:
        if (kind, of) not in self._made:
            self._made[kind, of] = make()
        return self._made[kind, of]


def divided_in(tensors: Sequence[tf.Tensor]) -> List[Divided]:
    """The quotients that tensors, such as a total loss, depend on, in the order of their making."""
    notes = getattr(tensors[0].graph, _NOTES, [])
    if not notes:
        return []
    members, once = graph_queries.ancestors(tensors, by_data=True), _Once()
    return [note.build(once) for note in notes if note.value.op in members]


def install(package: Any) -> None:
    """Has a `KerasPackage` take notes of the losses that it builds from now on."""
    inside = generation.KERAS_PACKAGES[package.name]
    if divides_by_weights(package):
        module, noting = {
            'keras': ('.engine.training', _noting_means),
            'tf.keras': ('.engine.training_utils', _noting_sums),
        }[package.name]
        patches.replace_method(
            'training.weighted_masked_objective',
            importlib.import_module(inside + module),
            functools.partial(noting, package),
        )
    else:
        losses = importlib.import_module(inside + '.utils.losses_utils')
        patches.replace_method(
            'Model._prepare_total_loss',
            package.patched['Model'],
            functools.partial(_noting_reduced, losses),
        )


def divides_by_weights(package: Any) -> bool:
    """Whether a `KerasPackage` divides losses by numbers of each batch's sample weights."""
    return package.name in generation.DIVIDED_BY_WEIGHTS


def _take(note: _Note) -> None:
    graph = note.value.graph
    if not hasattr(graph, _NOTES):
        setattr(graph, _NOTES, [])
    getattr(graph, _NOTES).append(note)


# --- keras 2.2.4 --------------------------------------------------------------------------


def _noting_means(package: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """A `weighted_masked_objective` of `keras` 2.2.4 that takes notes."""

    def weighted_masked_objective(fn: Optional[Callable[..., Any]]) -> Any:
        if fn is None:
            return original(fn)
        made: List[Any] = []
        objective = original(_noting_results(fn, made))

        def weighted(y_true: Tensor, y_pred: Tensor, weights: Any, mask: Any = None) -> Tensor:
            value = objective(y_true, y_pred, weights, mask)
            scores = made.pop()
            # A mask cancels out of a loss that is a single number already.
            is_quotient = weights is not None or (mask is not None and scores.shape.ndims != 0)
            if is_quotient and isinstance(scores, tf.Tensor):
                parts = package.backend, value, scores, weights, mask
                _take(_Note(value, functools.partial(_by_means, *parts)))
            return value

        return weighted

    return weighted_masked_objective


def _noting_results(fn: Callable[..., Any], made: List[Any]) -> Callable[..., Any]:
    """A function of a user's or of Keras's that notes what it has returned."""

    # `stateful` metrics are asked for more than their result.
    def noting(y_true: Tensor, y_pred: Tensor) -> Any:
        made.append(fn(y_true, y_pred))
        return made[-1]

    return noting


def _by_means(
    backend: Any, value: Tensor, scores: Any, weights: Any, mask: Any, once: _Once
) -> Divided:
    """The parts of a value of `weighted_masked_objective`."""
    divisors = []
    if mask is not None:
        cast = once('mask', mask, lambda: backend.cast(mask, backend.floatx()))
        divisors.append(once('mean of mask', mask, lambda: backend.mean(cast)))
    if weights is not None:
        divisors.append(once('share', weights, lambda: _share(backend, weights)))

    def numerator_of(result: Tensor) -> Tensor:
        if mask is not None:
            result = result * cast
        if weights is not None:
            axes = list(range(backend.ndim(weights), backend.ndim(result)))
            result = backend.mean(result, axis=axes) * weights
        return backend.mean(result)

    parts = _scalar_apart(scores, numerator_of)
    return Divided(value, *parts, tuple(divisors), is_masked=mask is not None, weights=weights)


def _share(backend: Any, weights: Any) -> Tensor:
    return backend.mean(backend.cast(backend.not_equal(weights, 0), backend.floatx()))


def _scalar_apart(
    scores: Any, numerator_of: Callable[[Tensor], Tensor]
) -> Tuple[Tensor, Tuple[Tensor, ...]]:
    """The numerator, and the factors, given a function that makes a numerator of scores.

    If a loss is a single number already, the mask and the weights of all workers make its factor.
    """
    if scores.shape.ndims == 0:
        return scores, (numerator_of(tf.ones([], scores.dtype)),)
    return numerator_of(scores), ()


# --- tf.keras of TensorFlow 1.11 ----------------------------------------------------------


def _noting_sums(package: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """A `weighted_masked_objective` of `tf.keras` 1.11 that takes notes."""
    metrics = importlib.import_module(generation.KERAS_PACKAGES[package.name] + '.metrics')

    def weighted_masked_objective(fn: Optional[Callable[..., Any]]) -> Any:
        if fn is None:
            return original(fn)
        made: List[Any] = []
        objective = original(_noting_results(fn, made))

        def weighted(y_true: Tensor, y_pred: Tensor, weights: Any, mask: Any = None) -> Tensor:
            if tf.executing_eagerly():
                return objective(y_true, y_pred, weights, mask)
            divisions: List[Tuple[Tensor, Tensor, Tensor]] = []
            divide = metrics.safe_div

            def noting(numerator: Tensor, denominator: Tensor) -> Tensor:
                divisions.append((divide(numerator, denominator), numerator, denominator))
                return divisions[-1][0]

            with patches.replaced('metrics.safe_div', [metrics], noting):
                value = objective(y_true, y_pred, weights, mask)
            scores = made.pop()
            if divisions and isinstance(scores, tf.Tensor):
                # `value` is the mean of this one number; `loss_sums` finds the number itself.
                quotient, above, below = divisions[-1]
                found = _by_sums(quotient, scores, above, below, divide, weights, mask)
                if scores.shape.ndims == 0:
                    # A loss that is a single number already is multiplied and divided by the same
                    # sum of weights. That sum may be 0 on one worker and not in the joined batch.
                    found = found._replace(numerator=scores, factors=found.divisors)
                _take(_Note(found.value, lambda once: found))
            return value

        return weighted

    return weighted_masked_objective


def _by_sums(
    value: Tensor,
    scores: Any,
    numerator: Tensor,
    denominator: Tensor,
    divide: Callable[[Tensor, Tensor], Tensor],
    weights: Any,
    mask: Any,
) -> Divided:
    """The parts of a value of `weighted_masked_objective`, given those of its last division."""
    between = graph_queries.ancestors(
        [numerator], leaves=graph_queries.ancestors([scores]), by_data=True
    )
    problem = None
    if any(operation.type == 'RealDiv' for operation in between):
        problem = (
            'the shape of the mask of %s does not fit that of its sample weights, and then '
            'tf.keras of TensorFlow 1.11 divides twice' % value.name
        )
    is_masked = mask is not None
    return Divided(
        value, numerator, (), (denominator,), divide, is_masked, weights=weights, problem=problem
    )


# --- Keras 2.3, TensorFlow 1.15, and later ------------------------------------------------


class _Reduced(NamedTuple):
    """A loss that Keras is about to reduce to a number.

    Attributes:
        scores: what the loss function has returned.
        weights: the sample weights, with a mask in them if there is one, or `None`.
        mask: the mask by whose mean Keras divides, or `None`.
        own_weights: the sample weights without that mask.
        reduction: how it is reduced.
    """

    scores: tf.Tensor
    weights: Any
    mask: Optional[tf.Tensor]
    own_weights: Any
    reduction: str


class _Reductions:
    """How a version of Keras weighs and reduces losses.

    Args:
        losses: its module that does so, with its functions as they are now.

    Attributes:
        apply: the function that puts a mask into sample weights, or `None`.
        compute, reduce: the functions that weigh and that reduce.
        kinds: its kinds of reductions.
        means: those of them that are means.
    """

    def __init__(self, losses: Any) -> None:
        self.apply: Any = getattr(losses, 'apply_valid_mask', None)
        self.compute, self.reduce = losses.compute_weighted_loss, losses.reduce_weighted_loss
        self.kinds = kinds = getattr(losses, 'ReductionV2', None) or losses.Reduction
        self.means = {kinds.SUM_OVER_BATCH_SIZE, getattr(kinds, 'AUTO', kinds.SUM_OVER_BATCH_SIZE)}

    def reduced(self, scores: tf.Tensor, weights: Any, reduction: str) -> tf.Tensor:
        """Weighs scores and reduces them to a number."""
        by = self.compute(scores, sample_weight=weights, reduction=self.kinds.NONE)
        return self.reduce(by, reduction=reduction)

    def by_valid(self, value: tf.Tensor, one: _Reduced, once: _Once) -> Divided:
        """The parts of a loss that is divided by the mean of a mask."""

        def numerator_of(result: tf.Tensor) -> tf.Tensor:
            # Without the division by what is valid.
            by = self.apply(result, one.own_weights, one.mask, self.kinds.NONE)
            return self.reduced(result, by, self.kinds.SUM_OVER_BATCH_SIZE)

        parts, dtype = _scalar_apart(one.scores, numerator_of), one.scores.dtype
        mean = once('mean of mask', one.mask, lambda: tf.reduce_mean(tf.cast(one.mask, dtype)))
        return Divided(value, *parts, (mean,), is_masked=True)

    def by_factor(self, value: tf.Tensor, one: _Reduced, once: _Once) -> Divided:
        """The parts of a loss that is one number times the mean, or the sum, of weights."""
        factor = self.reduced(tf.ones([], one.scores.dtype), one.weights, one.reduction)
        return Divided(value, one.scores, (factor,), is_weighted=True)


class _Noting:
    """Takes notes while Keras builds the total loss of a model.

    Args:
        reductions: the `_Reductions`.
    """

    def __init__(self, reductions: _Reductions) -> None:
        self._by = reductions
        self._valid: List[Tuple[Any, Any]] = []
        self._pending: List[_Reduced] = []

    def functions(self) -> Dict[str, Callable[..., Any]]:
        """What takes the places of the functions, by their names."""
        functions = {
            'compute_weighted_loss': self._compute_weighted_loss,
            'reduce_weighted_loss': self._reduce_weighted_loss,
        }  # type: Dict[str, Callable[..., Any]]
        if self._by.apply is not None:
            functions['apply_valid_mask'] = self._apply_valid_mask
        return functions

    def _apply_valid_mask(self, scores: Any, weights: Any, mask: Any, reduction: str) -> Any:
        self._valid = [(mask, weights)] if reduction in self._by.means else []
        return self._by.apply(scores, weights, mask, reduction)

    def _compute_weighted_loss(
        self,
        scores: Any,
        sample_weight: Any = None,
        reduction: str = 'sum_over_batch_size',
        **named: Any,
    ) -> Any:
        mask, own_weights = self._valid.pop() if self._valid else (None, None)
        self._pending = [_Reduced(scores, sample_weight, mask, own_weights, reduction)]
        return self._by.compute(scores, sample_weight=sample_weight, reduction=reduction, **named)

    def _reduce_weighted_loss(
        self, weighted_losses: Any, reduction: str = 'sum_over_batch_size'
    ) -> Any:
        value = self._by.reduce(weighted_losses, reduction=reduction)
        if self._pending and reduction != self._by.kinds.NONE:
            one = self._pending.pop()._replace(reduction=reduction)
            if one.mask is not None:
                _take(_Note(value, functools.partial(self._by.by_valid, value, one)))
            elif _is_number(one.scores) and one.weights is not None:
                _take(_Note(value, functools.partial(self._by.by_factor, value, one)))
        return value


def _noting_reduced(losses: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """A `Model._prepare_total_loss` of models that are graphs that takes notes.

    Args:
        losses: the module that reduces losses.
        original: the method.
    """
    reductions = _Reductions(losses)

    def prepare_total_loss(model: Any, masks: Sequence[Any]) -> Any:
        noting = _Noting(reductions)
        with contextlib.ExitStack() as stack:
            for name, function in noting.functions().items():
                stack.enter_context(patches.replaced('losses_utils.' + name, [losses], function))
            total = original(model, masks)
        # Before there were valid entries of masks, no loss was divided by them.
        endpoints = model._training_endpoints if reductions.apply is not None else []
        for endpoint, mask in zip(endpoints, masks):
            if mask is not None and not (
                endpoint.should_skip_target() or hasattr(endpoint.loss_fn, 'reduction')
            ):
                problem = 'the loss of %s takes a mask itself' % endpoint.output_name
                unknown = Divided(total, is_masked=True, problem=problem)
                _take(_Note(total, lambda once, unknown=unknown: unknown))
        return total

    return prepare_total_loss


def _is_number(scores: Any) -> bool:
    return isinstance(scores, tf.Tensor) and scores.shape.ndims == 0
