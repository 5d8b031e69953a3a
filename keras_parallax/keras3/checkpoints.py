# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of Keras 3 models: files of Keras, with what there is to know of the job."""

import contextlib
import os
import tempfile
import warnings
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np

from keras_parallax.atomic_files import sync
from keras_parallax.checkpoint import resume
from keras_parallax.checkpoint.keras3_state import WEIGHTS, read_state, write_state
from keras_parallax.compat import keras3_api
from keras_parallax.errors import CheckpointError
from keras_parallax.keras3 import former_checkpoints, optimizer, optimizer_parts, saves_in_parts
from keras_parallax.keras3.scope import Keras3Scope


class Position(NamedTuple):
    """Where in an epoch a job was when it saved.

    Attributes:
        epoch: number of epochs that are over.
        batch: number of batches that are over in the next one.
        metrics: the sums over the workers of the states of metrics, lists.
    """

    epoch: int
    batch: int
    metrics: List[Any]


#: From models to the `Position`s that they go on from in their next `fit`.
positions: Any = weakref.WeakKeyDictionary()

#: Models that have gone on from a checkpoint.
resumed: Any = weakref.WeakSet()


def save(model: Any, path: str, state: Dict[str, Any]) -> None:
    """Saves a model and what there is to know of its job; the file appears when it is complete.

    Args:
        model: the model, of rank 0.
        path: path of a `.keras` or a `.weights.h5` file.
        state: plain data.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with aside(path) as inner:
        write = model.save_weights if path.endswith(WEIGHTS) else model.save
        write(inner)
        write_state(inner, state)


@contextlib.contextmanager
def aside(path: str) -> Iterator[str]:
    """While open, a file is to be written to the path that it gives; then it is at its own."""
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory('.part', '.%s.' % name, folder) as beside:
        inner = os.path.join(beside, name)
        yield inner
        sync(inner)
        os.replace(inner, path)
        sync(folder)


def go_on(model: Any, path: Optional[str], scope: Keras3Scope) -> int:
    """Gives a model the state that a job has saved. A collective call.

    Args:
        model: the model, compiled in the scope.
        path: a file that Keras 3 loads, which rank 0 alone reads; or the folder of a checkpoint of
            several parts, of which each worker reads its own rows; or `None`. That of rank 0
            counts.
        scope: the scope.

    Returns:
        The number of epochs that are over; 0 if it is not known.

    Raises:
        CheckpointError: on every worker, if the file is damaged, or of another model or optimizer.
    """
    job = scope.job
    path = job.gather(path and os.fspath(path))[0]
    if path is None:
        return 0
    model.optimizer.build(model.trainable_variables)
    in_parts = resume.is_in_parts(job, path)

    def read() -> Optional[Dict[str, Any]]:
        if not in_parts and job.rank:
            return None
        if former_checkpoints.is_former(path):
            return former_checkpoints.read(model, path, (job.rank, job.size) if in_parts else None)
        if not in_parts:
            return _read(model, path, path)
        with saves_in_parts.opened(path, (job.rank, job.size)) as file:
            return _read(model, path, file)

    found = resume.on_every_worker(job, path, read)
    state = found[0]
    optimizer.broadcast_all(scope, model)
    resumed.add(model)
    positions.pop(model, None)
    if state.get('batch'):
        positions[model] = Position(state['epoch'], state['batch'], state['metrics'])
    epochs: int = state.get('epoch', 0)
    return epochs


def _read(model: Any, path: str, file: str) -> Dict[str, Any]:
    """Loads Keras's file of a checkpoint, and returns the state of the job."""
    state, own = read_state(path), optimizer_parts.own_class(type(model.optimizer)).__name__
    if state.get('optimizer', own) != own:
        raise CheckpointError(
            '%s was saved with the optimizer %s, but the model is compiled with %s; compile it '
            'with %s.' % (path, state['optimizer'], own, state['optimizer'])
        )
    with warnings.catch_warnings():
        # Keras would go on with the state that the optimizer has.
        warnings.filterwarnings('error', message='Skipping variable loading')
        model.load_weights(file)
    return state


class PassedOver:
    """The batches at the beginning of a `fit` that were trained before.

    Args:
        position: where they end.
        rank: the rank of this worker.
    """

    def __init__(self, position: Position, rank: int) -> None:
        self._position, self._rank, self._left = position, rank, position.batch

    def __call__(self, model: Any, arguments: Any) -> Any:
        """Takes a step's batches, and returns what the step would; `None` if none is left.

        Args:
            model: the model.
            arguments: those of the function that trains a step; the last gives batches.

        Raises:
            CheckpointError: an epoch has fewer batches.
        """
        if self._left <= 0:
            return None
        try:
            for _ in range(model.steps_per_execution):
                next(arguments[-1])
        except keras3_api.ENDS_OF_DATA as error:
            raise CheckpointError(
                'The checkpoint was saved after batch %d of epoch %d, but the data that fit is '
                'given has fewer. Give it the data of the job that saved.'
                % (self._position.batch, self._position.epoch + 1)
            ) from error
        self._left -= model.steps_per_execution
        metrics = None
        if self._left <= 0:
            # They are added up over the workers.
            metrics = [np.array(of) * (self._rank == 0) for of in self._position.metrics]
        return keras3_api.backend_module().passed_over(model, arguments, metrics)


#: From models to the `PassedOver` of the `fit` that they are in.
passing: Any = weakref.WeakKeyDictionary()


def begin_fit(model: Any, initial_epoch: int, scope: Keras3Scope, data: Any, shuffle: bool) -> None:
    """Has a `fit` pass over what was trained before, if a checkpoint says that there is something.

    Args:
        model: the model.
        initial_epoch: the epoch in which it begins.
        scope: the scope.
        data: what it is given to train on.
        shuffle: whether it shuffles arrays.
    """
    passing.pop(model, None)
    position = positions.pop(model, None)
    if position is not None and position.epoch == initial_epoch:
        passing[model] = PassedOver(position, scope.job.rank)
        if shuffle and keras3_api.are_arrays(data):
            warnings.warn(
                'fit goes on after batch %d of epoch %d, and shuffles its arrays in an order that '
                'no checkpoint keeps: some samples are trained twice in this epoch, and others '
                'not at all. Use shuffle=False, or save after epochs.'
                % (position.batch, position.epoch + 1),
                stacklevel=3,
            )


def passed_over(model: Any, arguments: Any) -> Any:
    """What a training step returns that is passed over; `None` if it is to be trained."""
    found = passing.get(model)
    result = None if found is None else found(model, arguments)
    if result is None:
        passing.pop(model, None)
    return result
