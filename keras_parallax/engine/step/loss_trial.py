# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tries with the first batch which terms of a loss are sums over the samples.

Nothing but its values tells how a user's own loss grows with its batch. So a worker computes it for
its first batch, for a second one of as many of the same samples, and for the two joined
(`planning/loss_kinds.py`), before any step has run. Dropout is off, sample weights are ones, and
random numbers of the two batches are those of the joined one.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.compat import graph_queries, output_losses, tensorflow_api
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.output_losses import OutputLoss
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.loss_structure import kind_by_structure
from keras_parallax.engine.step.loss_sums import Sums, Untried
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.errors import PlanError
from keras_parallax.planning.loss_kinds import (
    MEAN,
    NEITHER,
    UNKNOWN,
    Trial,
    joint_kind,
    kind_of,
    telling,
    trial_of,
)

#: How the types of operations begin or end whose values are random.
_RANDOM = (
    'Random', 'TruncatedNormal', 'ParameterizedTruncatedNormal', 'Multinomial', 'StatelessRandom',
    'StatelessTruncatedNormal', 'StatelessMultinomial', 'StatefulUniform', 'StatefulStandardNormal',
)  # fmt: skip
_SAMPLERS = 'CandidateSampler'

#: Samples of batches that are made up.
_MADE_UP = 4


class _Finding(NamedTuple):
    """What a worker has found out about a term.

    Attributes:
        kind: how the term grows, a constant of `loss_kinds`.
        trial: the `Trial` that shows it, or `None`.
        problem: why the term could not be tried, or `None`.
    """

    kind: str
    trial: Optional[Trial] = None
    problem: Optional[str] = None


def settle(step: TrainStep, inputs: Sequence[Any], values: Sequence[Any]) -> None:
    """Gives the terms of a loss that are not known their factors. A collective call.

    Args:
        step: the `TrainStep`, which has not run yet.
        inputs: the tensors that it is fed.
        values: the values of the first batch, in order.

    Raises:
        PlanError: a term is neither a mean nor a sum over the samples, or it cannot be tried.
    """
    sums, graph = step.spec.sums, step.spec.loss.graph
    with step.job.call('the first training batch of a loss of your own'), lock_of(graph).held():
        with graph.as_default():
            found = _found(sums, step.spec.package, inputs, values)
        own = [list(finding) for finding in found]
        reports = step.job.gather(own) if step.synchronization.sync else [own]
        kinds = [
            _agreed(term, [_Finding(*report[number]) for report in reports], sums.factor)
            for number, term in enumerate(sums.untried)
        ]
        sums.settle(kinds, step.spec.package.backend.get_session())


def _agreed(term: Untried, findings: List[_Finding], batches: int) -> str:
    """The kind of a term that all workers have found; a `PlanError` if there is none."""
    kind = joint_kind([finding.kind for finding in findings])
    if kind not in (NEITHER, UNKNOWN):
        return kind
    problem = next((finding.problem for finding in findings if finding.problem), None)
    trial = next((finding.trial for finding in findings if finding.kind == NEITHER), None)
    if trial is not None:
        reason = (
            'it is neither a mean nor a sum over the samples of a batch. It is %g for one batch, '
            '%g for another, and %g for the two joined' % tuple(trial)
        )
    elif kind == NEITHER:
        reason = 'some workers have found a mean over the samples of a batch, and others a sum'
    else:
        reason = (
            'nothing shows whether it is a mean or a sum over the samples of a batch, because '
            + (problem or 'it is 0 for the first batch')
        )
    raise PlanError(
        '%s cannot be trained as in one process: %s. The gradients of %d batches are averaged. '
        'Have the loss return a number for each sample, or their mean, or their sum. Or give '
        "loss_reduction to kp.ParallaxOptimizer: with 'mean' the gradients of the batches are "
        "averaged, with 'sum' they are added." % (term.described, reason, batches)
    )


def _found(
    sums: Sums, package: KerasPackage, inputs: Sequence[Any], values: Sequence[Any]
) -> List[_Finding]:
    """What this worker finds out about the untried terms."""
    problem = _hindrance(inputs, values)
    found = [_Finding(UNKNOWN, None, problem)] * len(sums.untried)
    for phase in (0, 1) if problem is None else ():
        missing = [number for number, one in enumerate(found) if one.kind == UNKNOWN]
        batches = _Batches(sums, package, inputs, values, phase)
        if missing and (phase == 0 or batches.has_phase):
            tried = batches.tried([sums.untried[number] for number in missing])
            found = [
                tried[missing.index(number)] if number in missing else finding
                for number, finding in enumerate(found)
            ]
    for number, term in enumerate(sums.untried):
        if found[number].kind == UNKNOWN and term.loss is not None:
            if tf.gradients(term.value, term.loss.output) == [None]:
                # Such a loss stands beside one that a layer adds.
                found[number] = _Finding(MEAN)
                continue
            alone = _alone(term.loss, package, inputs, values)
            if alone.kind != UNKNOWN or found[number].problem is None:
                found[number] = alone
        if found[number].kind == UNKNOWN:
            kind = kind_by_structure(term.value, sums.sources)
            found[number] = found[number] if kind is None else _Finding(kind)
    return found


def _hindrance(inputs: Sequence[Any], values: Sequence[Any]) -> Optional[str]:
    """Why a batch cannot be joined with another, or `None`."""
    if any(isinstance(value, tf.Tensor) for value in values) or not any(map(np.ndim, values)):
        return 'its batches come from the graph, and not from arrays'
    if any(tensor.shape.ndims and tensor.shape.as_list()[0] is not None for tensor in inputs):
        return 'its batches have a fixed size'
    return None


class _Second(NamedTuple):
    """A second batch.

    Attributes:
        rows: the numbers of its samples in the first batch.
        outputs: outputs of the model that are made other ones than those of the samples.
    """

    rows: List[int]
    outputs: Sequence[tf.Tensor] = ()


class _Batches:
    """Batches of the samples of a first one, and what the terms of a loss are for them.

    A batch is a list of numbers of samples.

    Args:
        sums: the `Sums` of the loss.
        package: the `KerasPackage`.
        inputs, values: as of `settle`.
        phase: Keras's learning phase.
    """

    def __init__(
        self,
        sums: Sums,
        package: KerasPackage,
        inputs: Sequence[Any],
        values: Sequence[Any],
        phase: int,
    ) -> None:
        self._package, self._inputs = package, list(inputs)
        self._functions: Dict[Any, Any] = {}
        self._copies: Dict[tf.Tensor, tf.Tensor] = {}
        weights = [loss.weights for loss in sums.losses if loss.weights is not None]
        self.has_phase = any(map(_is_phase, inputs))
        self._values: List[Any] = [
            phase
            if _is_phase(tensor)
            else np.ones_like(value)
            if value is not None and any(tensor is one for one in weights)
            else value
            for tensor, value in zip(inputs, values)
        ]
        self._size = next(value.shape[0] for value in self._values if np.ndim(value))

    def tried(self, terms: Sequence[Untried]) -> List[_Finding]:
        """What is found out about terms, in order."""
        first = list(range(self._size))
        found: Dict[Untried, _Finding] = {}
        repeated = [_Second([row] * self._size) for row in (self._size - 1, 0)]
        added = [term for term in terms if term.loss is None]
        # Keras divides by the mean of a mask, so that the two batches have the same samples.
        masked = [term for term in terms if term.loss is not None and term.loss.is_masked]
        plain = [term for term in terms if term not in added and term not in masked]
        for group, others in ((added, repeated), (plain, repeated), (masked, [])):
            outputs = [term.loss.output for term in group if term.loss is not None]
            if outputs:
                # Errors of a model that has not been trained may be the same for all samples.
                others = [*others, _Second(first, outputs)]
            found.update(zip(group, self._found(group, others)))
        return [found[term] for term in terms]

    def _found(self, terms: Sequence[Untried], others: Sequence[_Second]) -> List[_Finding]:
        """What the first batch and some second ones tell of terms."""
        if not terms:
            return []
        try:
            return self._tried([term.value for term in terms], others)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            if len(terms) == 1:
                return [_Finding(UNKNOWN, None, _in_words(error))]
            return [self._found([term], others)[0] for term in terms]

    def _tried(self, tensors: List[tf.Tensor], others: Sequence[_Second]) -> List[_Finding]:
        trials = list(zip(*[self._trials(tensors, other) for other in others]))
        if any(_kind_of_all(of) == UNKNOWN for of in trials):
            doubled = self._trials(tensors, _Second(list(range(self._size))))
            trials = [(*of, one) for of, one in zip(trials, doubled)]
        kinds = list(map(_kind_of_all, trials))
        random = self._are_random(tensors) if NEITHER in kinds else [False] * len(kinds)
        return [
            _Finding(UNKNOWN, None, 'it is random')
            if kind == NEITHER and is_random
            else _Finding(kind, telling([trial for trial, _ in of], kind, of[0][1]))
            for kind, is_random, of in zip(kinds, random, trials)
        ]

    def _are_random(self, tensors: List[tf.Tensor]) -> List[bool]:
        """Whether two runs compute other values of tensors for the same batch."""
        feeds, copies, runs = self._feeds(list(range(self._size))), self._copies_of(tensors), []
        for _ in range(2):
            drawn = self._run(list(copies.values()), feeds) if copies else []
            fixed = {draw: (value,) for draw, value in zip(copies, drawn)}
            runs.append(self._run(tensors, feeds, fixed))
        return [not np.allclose(one, other, rtol=1e-4, atol=0) for one, other in zip(*runs)]

    def _trials(self, tensors: List[tf.Tensor], second: _Second) -> List[Tuple[Trial, int]]:
        """What tensors are for the first batch, a second one, and the two joined."""
        first = list(range(self._size))
        joined = first + second.rows
        fixed = self._draws([*tensors, *second.outputs], first, joined)
        if second.outputs:
            of_outputs = self._run(list(second.outputs), self._feeds(first), fixed)
            for output, value in zip(second.outputs, of_outputs):
                other = (0.25 * value + 0.1).astype(value.dtype)
                fixed[output] = (value, other, np.concatenate([value, other]))
        values = [
            self._run(tensors, self._feeds(rows), fixed, part)
            for part, rows in enumerate((first, second.rows, joined))
        ]
        return [trial_of(*of) for of in zip(*values)]

    def _feeds(self, rows: List[int]) -> List[Any]:
        return [value[rows] if np.ndim(value) else value for value in self._values]

    def _run(
        self,
        tensors: List[tf.Tensor],
        feeds: List[Any],
        fixed: Dict[tf.Tensor, Any] = {},  # noqa: B006 - it is not changed
        part: int = 0,
    ) -> List[np.ndarray]:
        key = (*tensors, None, *fixed)
        if key not in self._functions:
            inputs = self._inputs + list(fixed)
            self._functions[key] = self._package.backend.function(inputs, tensors)
        return self._functions[key](feeds + [of_parts[part] for of_parts in fixed.values()])

    def _draws(
        self, tensors: List[tf.Tensor], first: List[int], joined: List[int]
    ) -> Dict[tf.Tensor, Tuple[Any, Any, Any]]:
        """Random numbers on which tensors depend: those of two batches, and of the two joined."""
        copies = self._copies_of(tensors)
        if not copies:
            return {}
        drawn = list(copies.values())
        shapes = [value.shape for value in self._run(drawn, self._feeds(first))]
        values = self._run(drawn, self._feeds(joined))
        return {draw: _in_two(of, shape) for draw, of, shape in zip(copies, values, shapes)}

    def _copies_of(self, tensors: Sequence[tf.Tensor]) -> Dict[tf.Tensor, tf.Tensor]:
        """Copies of the random numbers on which tensors depend: dict from tensors to copies.

        Each run of a seeded operation gives other numbers. The trial runs copies, so that training
        starts with the same numbers as in plain Keras.
        """
        draws = [
            operation
            for operation in graph_queries.ancestors(tensors, by_data=True)
            if (operation.type.startswith(_RANDOM) or operation.type.endswith(_SAMPLERS))
            and not tensorflow_api.is_in_control_flow(operation.outputs[0])
        ]
        for operation in sorted(draws, key=tensorflow_api.operation_id):
            if operation.outputs[0] not in self._copies:
                inputs = [self._copies.get(tensor, tensor) for tensor in operation.inputs]
                copy = tensorflow_api.copy_operation(operation, inputs, operation.control_inputs)
                self._copies.update(zip(operation.outputs, copy.outputs))
        return {tensor: self._copies[tensor] for one in draws for tensor in one.outputs}


def _kind_of_all(trials: Sequence[Tuple[Trial, int]]) -> str:
    return joint_kind([kind_of(*trial) for trial in trials])


def _is_phase(tensor: tf.Tensor) -> bool:
    return tensor.op.name == 'keras_learning_phase'


def _in_two(value: np.ndarray, shape: Tuple[int, ...]) -> Tuple[Any, Any, Any]:
    """The parts of a value that belong to two batches joined, and the value.

    Args:
        value: the value.
        shape: its shape for the first batch alone.
    """
    longer = [axis for axis, size in enumerate(shape) if value.shape[axis] != size]
    if not longer:
        return value, value, value
    if len(longer) > 1 or value.shape[longer[0]] != 2 * shape[longer[0]]:
        raise ValueError('it draws random numbers for pairs of samples')
    first, second = np.split(value, 2, longer[0])
    return first, second, value


def _alone(
    loss: OutputLoss, package: KerasPackage, inputs: Sequence[Any], values: Sequence[Any]
) -> _Finding:
    """What is found out about the loss of an output from outputs that are made up."""
    random = np.random.RandomState(0)
    targets = next((value for one, value in zip(inputs, values) if one is loss.target), None)
    if targets is None or isinstance(targets, tf.Tensor):
        shape = _filled(targets if targets is not None else loss.target, loss.output)
        targets = random.uniform(size=shape)
    size = targets.shape[0]
    outputs = random.uniform(size=_filled(loss.output, loss.output, size))
    shapes = [[None] + list(array.shape[1:]) for array in (targets, outputs)]
    try:
        places = [
            tf.placeholder(tensor.dtype, shape)
            for tensor, shape in zip((loss.target, loss.output), shapes)
        ]
        value = output_losses.computed(loss, places[0], places[1], package)
        function = package.backend.function(places, [value])
        first, second = [targets, outputs], [targets[::-1], outputs[::-1] ** 2]
        both = [np.concatenate(pair) for pair in zip(first, second)]
        trial = trial_of(*[function(batch)[0] for batch in (first, second, both)])
    # A function of the user's may raise anything for what it was not made for.
    except Exception as error:  # noqa: BLE001
        return _Finding(UNKNOWN, None, _in_words(error))
    return _Finding(kind_of(*trial), trial[0])


def _filled(tensor: Any, like: tf.Tensor, size: int = _MADE_UP) -> List[int]:
    """The shape of a tensor, with numbers in the place of what is not known."""
    shape = tensor.shape if tensor.shape.ndims is not None else like.shape
    rest = [own or other or _MADE_UP for own, other in zip(shape.as_list(), like.shape.as_list())]
    return [size] + (rest[1:] if len(rest) == shape.ndims else shape.as_list()[1:])


def _in_words(error: Exception) -> str:
    return 'computing it for other batches fails (%s: %s)' % (
        type(error).__name__,
        str(error).splitlines()[0] if str(error) else '',
    )
