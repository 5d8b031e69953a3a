# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What an optimizer's own formula gets when it asks for gradients: those of the whole job.

A user's optimizer may transform the gradients (`get_gradients`, `compute_gradients`) or ask the
backend for them itself. By then they are exchanged, and tables have shards that the loss does not
read. So whoever asks for the gradients of a step's loss while the step is built gets the exchanged
ones, and whoever asks for something else gets what it asks for.
"""

import contextlib
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from keras_parallax.compat import graph_queries, keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import ParallaxError
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Tensor, Variable

#: Operations that bring in what belongs to this worker's batch.
_OF_BATCH = ('Placeholder', 'PlaceholderWithDefault', 'PlaceholderV2', 'IteratorGetNext')


class ExchangedGradients:
    """The gradients of a step, for the optimizer's own formula.

    Args:
        loss: the model's total loss.
        pairs: a list of pairs of a variable and its gradient, exchanged, but not clipped.
        clip: function from a Keras optimizer to the same gradients as it clips them, a list; or
            `None`: it does so itself.
        alone: whether this process trains alone and holds every variable, so that any other
            gradient is right as it is.
    """

    def __init__(
        self,
        loss: Tensor,
        pairs: Sequence[Tuple[Variable, Gradient]],
        clip: Optional[Callable[[Optimizer], List[Any]]],
        alone: bool,
    ) -> None:
        self._loss, self._clip, self._alone = loss, clip, alone
        self._variables = [tensorflow_api.storage(variable) for variable, _ in pairs]
        self._gradients = [gradient for _, gradient in pairs]
        #: All gradients that were handed out, in order of the pairs, time and again.
        self.handed = list(self._gradients)

    @contextlib.contextmanager
    def handed_out(self) -> Iterator[None]:
        """While open, the gradients of the loss are those given.

        `K.gradients` of both packages, `tf.gradients` and `tf.train.Optimizer.compute_gradients`
        end in one function of TensorFlow, and `get_gradients` of Keras's base class clips what it
        gets (TF 1.11, Keras 2.2.4; proven by
        `tests/unit/engine/updates/test_requested_gradients.py`).
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(keras_api.gradients_by(self._gradients_of))
            for package in keras_api.loaded_keras_packages():
                stack.enter_context(keras_api.get_gradients_by(package, self._get_gradients))
            yield

    def _gradients_of(
        self, compute: Callable[..., List[Any]], ys: Any, xs: Any, *args: Any, **kwargs: Any
    ) -> List[Any]:
        """Stands for `tf.gradients`, which is `compute`."""
        requested = [_storage(x) for x in (xs if isinstance(xs, (list, tuple)) else [xs])]
        if not any(storage in self._variables for storage in requested):
            return compute(ys, xs, *args, **kwargs)
        of_loss = ys is self._loss or (
            isinstance(ys, (list, tuple)) and len(ys) == 1 and ys[0] is self._loss
        )
        if of_loss and self._knows(requested) and not _changes(*args, **kwargs):
            return self._pick(self._gradients, requested)
        if self._alone:
            return compute(ys, xs, *args, **kwargs)
        raise ParallaxError(
            'The optimizer asks for the gradients of %s with respect to variables of the model. '
            'With several workers it can have those of the loss that it is given, for all or some '
            'of the variables that it is given; others would be those of one worker alone.' % (ys,)
        )

    def _get_gradients(
        self,
        compute: Callable[..., List[Any]],
        optimizer: Optimizer,
        loss: Tensor,
        params: Sequence[Variable],
    ) -> List[Any]:
        """Stands for `Optimizer.get_gradients` of Keras's base class, which is `compute`."""
        requested = [_storage(variable) for variable in params]
        if loss is not self._loss or not self._knows(requested):
            return compute(optimizer, loss, params)
        if self._clip is None:
            by_variable = dict(zip(self._variables, self._gradients))
            by_variable.update(zip(requested, compute(optimizer, loss, params)))
            clipped = [by_variable[storage] for storage in self._variables]
        else:
            clipped = self._clip(optimizer)
        self.handed += clipped
        return self._pick(clipped, requested)

    def _knows(self, requested: Iterable[Tensor]) -> bool:
        return all(storage in self._variables for storage in requested)

    def _pick(self, gradients: Iterable[Any], requested: Iterable[Tensor]) -> List[Any]:
        by_variable = dict(zip(self._variables, gradients))
        return [by_variable[storage] for storage in requested]

    def check(
        self, operations: Sequence[Operation], name: str, others: Iterable[Tensor] = ()
    ) -> None:
        """Refuses updates that depend on this worker's batch in another way than by gradients.

        Args:
            operations: the update operations of the optimizer itself.
            name: that of its class.
            others: tensors that are exchanged, too.

        Raises:
            ParallaxError: they do, and there are other workers, which would update otherwise.
        """
        if self._alone:
            return
        parts = [
            part
            for gradient in self.handed
            for part in (getattr(gradient, 'values', gradient), getattr(gradient, 'indices', None))
            if part is not None
        ]
        leaves = [part.op for part in [*parts, *others]]
        for operation in graph_queries.ancestors(operations, leaves, by_data=True):
            if is_of_batch(operation):
                raise ParallaxError(
                    'The updates of %s depend on the batch of a worker (%s) in another way than by '
                    'the gradients, for instance by the value of the loss. Each worker has a '
                    'batch of its own, so their variables would drift apart; use an optimizer '
                    'that takes gradients only, or train with one worker.' % (name, operation.name)
                )


def is_of_batch(operation: Operation) -> bool:
    """Whether an operation brings in what belongs to a batch."""
    return operation.type in _OF_BATCH and operation.name != 'keras_learning_phase'


def _storage(x: Any) -> Optional[Tensor]:
    return (
        x if isinstance(x, tf.Tensor) else tensorflow_api.storage(x) if hasattr(x, 'op') else None
    )


def _changes(
    grad_ys: Any = None, name: Any = None, *_: Any, stop_gradients: Any = None, **__: Any
) -> bool:
    """Whether arguments of `tf.gradients` ask for other gradients than the plain ones."""
    return grad_ys is not None or bool(stop_gradients)
