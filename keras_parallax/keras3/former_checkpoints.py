# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checkpoints of Keras 2, and HDF5 files in its form, which models of Keras 3 go on from.

Layers are paired by their order, as Keras does it, and slots by the order of the variables. The
formulas of `SAME_FORMULA` move a variable by its slots as those of Keras 2 do.
"""

import json
import os
import warnings
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import h5py
import numpy as np

from keras_parallax.checkpoint import keras3_state, keras_file_read, other_keras, resume
from keras_parallax.checkpoint.keras_file_write import OF_TABLES, SLOTS
from keras_parallax.checkpoint.manifest import is_sharded, read_manifest
from keras_parallax.checkpoint.save import read_state
from keras_parallax.checkpoint.tensorflow_slots import GROUP
from keras_parallax.compat import keras3_api, keras3_files
from keras_parallax.compat.keras3_variable import EngineVariable, RowsInParts
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import HdfGroup
from keras_parallax.keras3 import optimizer_parts

#: The optimizers that mean the same by their slots in Keras 2 and in Keras 3.
SAME_FORMULA = ('SGD', 'Adagrad', 'Adam', 'Adamax', 'Adadelta')

#: Of these, the formula that adds epsilon within the root, and Keras 2 outside.
_EPSILON_IN_ROOT = 'Adagrad'

#: What Keras 2 computes otherwise than Keras 3, although both call it so.
_HARD_SIGMOID = 'hard_sigmoid'

#: An epsilon that hardly changes the root of a sum of squares.
_SMALL = 1e-13

_WEIGHTS_ALONE = 'To load the weights alone, call model.load_weights with a file of save_weights.'


class _Pair(NamedTuple):
    """A variable of the model, and where its value lies."""

    variable: Any
    source: Any


def is_former(path: str) -> bool:
    """Whether a path is that of a checkpoint or a file in the form of Keras 2.

    Args:
        path: path of a file, or of the folder of a checkpoint of several parts.
    """
    if is_sharded(path):
        return not read_manifest(path, checked=False).model.endswith(keras3_state.WEIGHTS)
    if zipfile.is_zipfile(path) or not os.path.isfile(path):
        return False
    with keras_file_read.opened(path) as file:
        return bool(keras3_files.names_in(keras_file_read.weights_group(file), 'layer_names'))


def read(model: Any, path: str, share: Optional[Tuple[int, int]]) -> Dict[str, Any]:
    """Gives a model of Keras 3 the weights and slots of a checkpoint of Keras 2.

    Args:
        model: the model, compiled in a strategy's scope, whose optimizer is built.
        path: as of `is_former`.
        share: `(number, of)`, which rows of a checkpoint of several parts this worker reads; `None`
            for one file, which one worker reads.

    Returns:
        The state of the job, with the number of epochs that are over; `{}` if it is not known.

    Raises:
        CheckpointError: it is of another model or optimizer, or training would go on with other
            numbers.
    """
    with resume.opened(path, checked=False) as opened:
        return _Reader(model, path, share, opened).read()


class _Reader:
    """Reads one checkpoint; arguments as of `read`, and what `resume.opened` gives."""

    def __init__(
        self, model: Any, path: str, share: Optional[Tuple[int, int]], opened: resume.Opened
    ) -> None:
        self._model, self._path, self._share = model, path, share
        self._file, self._sources = opened.file, opened.sources
        self._name = optimizer_parts.own_class(type(model.optimizer)).__name__
        # `model.save('model.h5')` of Keras 3 has the form of Keras 2, too.
        self._of_keras_3 = keras_file_read.version_of(opened.file).startswith('3.')

    def read(self) -> Dict[str, Any]:
        """Checks all that can be checked, and then writes."""
        state = read_state(self._file)
        configs = keras_file_read.read_configs(self._file)
        if not self._of_keras_3:
            self._check_functions(configs.model)
            self._check_position(state)
        pairs = self._weights()
        slots = self._slots(pairs, configs, state)
        for variable, source in pairs + slots:
            self._write(variable, source)
        if slots:
            self._set_numbers(state)
        return {'epoch': state.get('epoch', 0)}

    def _refused(self, why: str) -> CheckpointError:
        generation = 3 if self._of_keras_3 else 2
        return CheckpointError(
            '%s was saved from a model of Keras %d, and %s' % (self._path, generation, why)
        )

    def _check_functions(self, saved: Any) -> None:
        other_keras.check_gates(self._path, saved, json.loads(self._model.to_json()))
        if _HARD_SIGMOID in json.dumps(saved):
            raise self._refused(
                'has the activation hard_sigmoid: of Keras 2 it is clip(0.2 x + 0.5, 0, 1), and of '
                'Keras 3 clip(x / 6 + 0.5, 0, 1), so that the model would compute other numbers. '
                'Give the layers of the Keras 3 model a function that computes the former, and '
                'load the weights alone with model.load_weights.'
            )

    def _check_position(self, state: Dict[str, Any]) -> None:
        batch = state.get('fit', {}).get('batch')
        if batch:
            raise self._refused(
                'within an epoch, after batch %d. A model of Keras 3 goes on from the end of an '
                'epoch: give strategy.resume a checkpoint that was saved there.' % batch
            )

    def _weights(self) -> List[_Pair]:
        group = keras_file_read.weights_group(self._file)
        names = keras3_files.names_in(group, 'layer_names')
        saved = [(name, self._datasets(group[name], 'weight_names')) for name in names]
        saved = [(name, datasets) for name, datasets in saved if datasets]
        own = [(layer, keras3_files.ordered_weights(layer)) for layer in self._model.layers]
        own = [(layer, weights) for layer, weights in own if weights]
        if len(saved) != len(own):
            raise self._refused(
                'has %d layers with weights, but the model has %d.' % (len(saved), len(own))
            )
        pairs: List[_Pair] = []
        for (name, datasets), (layer, weights) in zip(saved, own):
            shapes = [tuple(weight.shape) for weight in weights]
            of_file = [tuple(dataset.shape) for dataset in datasets]
            if shapes != of_file:
                raise self._refused(
                    'its layer %s has weights of shapes %s, but the layer %s of the model has %s.'
                    % (name, of_file, layer.name, shapes)
                )
            pairs += map(_Pair, weights, datasets)
        return pairs

    def _slots(
        self, pairs: Sequence[_Pair], configs: keras_file_read.Configs, state: Dict[str, Any]
    ) -> List[_Pair]:
        """The variables of the optimizer, and where their values lie."""
        if SLOTS not in self._file and GROUP not in self._file:
            return []
        datasets = self._datasets(self._file[SLOTS], 'weight_names') if SLOTS in self._file else []
        own = self._model.optimizer.variables
        saved = (configs.training or {}).get('optimizer_config') or {}
        self._check_optimizer(saved.get('class_name') or state.get('optimizer'))
        if self._of_keras_3:
            return self._in_order(own, datasets)
        values = state.get('hyperparameters') or saved.get('config') or {}
        self._check_formula(values.get('decay'))
        counters = other_keras.counters([tuple(dataset.shape) for dataset in datasets])
        if counters > 1:
            raise self._refused(
                'has the state of an optimizer of Keras 2.11 or later, which lists its slots in '
                'another order. ' + _WEIGHTS_ALONE
            )
        trained = {id(variable) for variable in self._model.trainable_variables}
        variables = [pair.variable for pair in pairs if id(pair.variable) in trained]
        by_name = {slot.name: slot for slot in own}
        wanted = [
            by_name[keras3_api.name_of_slot(variable, name)]
            for name in self._slot_names()
            for variable in variables
        ]
        steps = list(zip([self._model.optimizer.iterations], datasets[:counters]))
        return [_Pair(*pair) for pair in steps] + self._in_order(wanted, datasets[counters:])

    def _slot_names(self) -> List[str]:
        rows = optimizer_parts.rows_of(self._model.optimizer)
        assert rows is not None  # Those of `SAME_FORMULA` have a known formula.
        return [name for name, _ in rows.slots]

    def _in_order(self, variables: Sequence[Any], datasets: Sequence[Any]) -> List[_Pair]:
        own = [tuple(variable.shape) for variable in variables]
        given = [tuple(dataset.shape) for dataset in datasets]
        # Keras 2.2.4 lists slots that a formula has no use for after the others.
        if own != given[: len(own)]:
            raise self._refused(
                'has slots of the optimizer of shapes %s, but those of the model are of shapes %s. '
                'Compile the model with the options of the optimizer that it was saved with.'
                % (given, own)
            )
        return [_Pair(*pair) for pair in zip(variables, datasets)]

    def _check_optimizer(self, saved: Any) -> None:
        of_tables = json.loads(self._file.attrs.get(OF_TABLES, '{}'))
        if of_tables:
            raise self._refused(
                'has optimizers of its own for tables (%s), which Keras 3 has not. %s'
                % (', '.join(sorted(of_tables)), _WEIGHTS_ALONE)
            )
        if str(saved).lower() != self._name.lower():
            raise self._refused(
                'with the optimizer %s, but the model is compiled with %s; compile it with %s. %s'
                % (saved, self._name, saved, _WEIGHTS_ALONE)
            )

    def _check_formula(self, decay: Optional[float]) -> None:
        if self._name not in SAME_FORMULA:
            raise self._refused(
                'the slots of %s mean something else there; those of %s go on. %s'
                % (self._name, ', '.join(SAME_FORMULA), _WEIGHTS_ALONE)
            )
        if self._name == _EPSILON_IN_ROOT and self._model.optimizer.epsilon > _SMALL:
            warnings.warn(
                '%s goes on with the sums of Keras 2, but Keras 3 divides by sqrt(sum + epsilon), '
                'and Keras 2 by sqrt(sum) + epsilon: rows whose sums are near epsilon move less. '
                'keras.optimizers.Adagrad(rate, epsilon=1e-14) comes nearest.' % self._name,
                stacklevel=2,
            )
        if decay and not keras3_api.has_schedule(self._model.optimizer):
            raise self._refused(
                'its learning rate decays (decay=%g); compile the model with a learning rate of '
                'keras.optimizers.schedules.InverseTimeDecay(rate, 1, %g).' % (decay, decay)
            )

    def _set_numbers(self, state: Dict[str, Any]) -> None:
        """Goes on with the number of steps, and with the rate that a callback may have set."""
        values = state.get('hyperparameters', {})
        if 'iterations' in values:
            self._model.optimizer.iterations.assign(values['iterations'])
        rate = values.get('learning_rate', values.get('lr'))
        if rate is not None and not keras3_api.has_schedule(self._model.optimizer):
            keras3_api.set_learning_rate(self._model.optimizer, rate)

    def _datasets(self, group: HdfGroup, attribute: str) -> List[Any]:
        found = [group[name] for name in keras3_files.names_in(group, attribute)]
        return [self._sources.get(dataset.name, dataset) for dataset in found]

    def _write(self, variable: Any, source: Any) -> None:
        if isinstance(variable, EngineVariable) and not isinstance(source, h5py.Dataset):
            variable.assign(RowsInParts(source, self._share or (0, 1)))
        elif isinstance(variable, EngineVariable) and source.dtype == np.float32:
            variable.assign(source)  # Block by block.
        else:
            variable.assign(source[: source.shape[0]] if source.shape else source[()])
