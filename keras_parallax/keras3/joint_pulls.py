# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pulls of the rows of several tables at once, for models of Keras 3."""

import collections
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from typing_extensions import Protocol

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.joint_pulls import joint_pulls
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables.pull_data import Pull
from keras_parallax.framework_types import DType, Tensor
from keras_parallax.keras3.stored_rows import engine_backend


class PulledTable(Protocol):
    """What a pull asks of a `Table`, which says what each attribute is."""

    variable: Any
    lookup: Optional[Tuple[Tensor, Tensor]]

    @property
    def id_dtype(self) -> DType:
        """The dtype of its ids."""

    @property
    def step(self) -> TrainStep:
        """The engine's `TrainStep` that has taken it last."""

    @property
    def engine_table(self) -> Any:
        """The engine's `Table`."""

    @property
    def is_trained(self) -> bool:
        """Whether a training step has taken the table."""

    def pull(self, ids: np.ndarray) -> np.ndarray:
        """The rows of ids."""

    def check(self, ids: np.ndarray) -> None:
        """Checks that ids can be looked up."""


class JointPull:
    """Pulls rows of several lookups at once.

    Args:
        tables: the `Table` of each lookup.
    """

    def __init__(self, tables: Sequence[PulledTable]) -> None:
        self.tables = list(tables)
        #: Placeholders of ids, and the rows of each lookup, by which lookups have the same ids.
        self._lookups: Dict[Tuple[int, ...], Tuple[List[Tensor], List[Tensor]]] = {}
        self._functions: Dict[Tuple[int, ...], Any] = {}
        self._operations: List[Any] = []

    def __call__(self, ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The rows of each lookup, float32 of shape `[n, width]`.

        Args:
            ids: those of each lookup, integers of shape `[n]`; the same array if they are the same.

        Raises:
            IdOutOfRangeError: there is no such row.
        """
        if not all(table.is_trained for table in self.tables):
            return [table.pull(of_one) for table, of_one in zip(self.tables, ids)]
        for table, of_one in zip(self.tables, ids):
            table.check(of_one)
        return self.pull(ids)

    def pull(self, ids: Sequence[np.ndarray]) -> List[np.ndarray]:
        """The rows, as a call returns them; the tables are trained, and the ids are checked."""
        distinct = {id(of_one): of_one for of_one in ids}
        places = tuple(list(distinct).index(id(of_one)) for of_one in ids)
        with self.tables[0].variable.graph.as_default():
            rows: List[np.ndarray] = self._function(places)(list(distinct.values()))
        return rows

    def build(self, places: Tuple[int, ...]) -> None:
        """Builds what a call runs, before the first call.

        Args:
            places: for each lookup the place of its ids among the different ones.
        """
        self._function(places)

    def _function(self, places: Tuple[int, ...]) -> Any:
        self._forget_moved()
        if places not in self._functions:
            self._functions[places] = self._built(places)
        return self._functions[places]

    def _forget_moved(self) -> None:
        """Forgets functions of shards that are there no more."""
        operations = [table.step.operations for table in self.tables]
        if any(now is not former for now, former in zip(operations, self._operations)):
            self._functions = {}
        self._operations = operations

    def _built(self, places: Tuple[int, ...]) -> Any:
        with tf.device(None):
            if places not in self._lookups:
                self._lookups[places] = self._of_steps(places) or self._new_lookups(places)
            ids, outputs = self._lookups[places]
            pulls: Dict[Any, List[Pull]] = collections.OrderedDict()
            of_lookups: Dict[Any, Pull] = {}
            for table, place in zip(self.tables, places):
                of_engine = table.engine_table
                if of_engine.shards and (table, place) not in of_lookups:
                    of_lookups[table, place] = pull_of(of_engine, ids[place])
                    pulls.setdefault(of_engine, []).append(of_lookups[table, place])
            joint = {one.replaced.name: one.replacement for one in joint_pulls(pulls)}
            rows = []
            for table, place, output in zip(self.tables, places, outputs):
                pull = of_lookups.get((table, place))
                if pull is not None and pull.rows.name in joint:
                    output = tf.gather(joint[pull.rows.name], pull.inverses[0])
                rows.append(output)
        return engine_backend().function(ids, rows)

    def _of_steps(self, places: Tuple[int, ...]) -> Optional[Tuple[List[Tensor], List[Tensor]]]:
        """The lookups that training steps have anyway, if the same of them have the same ids."""
        ids: Dict[int, Tensor] = {}
        rows = []
        for table, place in zip(self.tables, places):
            if (
                table.lookup is None
                or ids.setdefault(place, table.lookup[0]) is not table.lookup[0]
            ):
                return None
            rows.append(table.lookup[1])
        if len(set(map(id, ids.values()))) < len(ids):
            return None
        return [ids[place] for place in range(len(ids))], rows

    def _new_lookups(self, places: Tuple[int, ...]) -> Tuple[List[Tensor], List[Tensor]]:
        ids = [
            tf.placeholder(self.tables[places.index(place)].id_dtype, [None])
            for place in range(len(set(places)))
        ]
        made: Dict[Any, Tensor] = {}
        for table, place in zip(self.tables, places):
            if (table, place) not in made:
                made[table, place] = tf.gather(table.variable, ids[place])
        return ids, [made[lookup] for lookup in zip(self.tables, places)]


def pull_of(table: Any, ids: Tensor) -> Pull:
    """The `Pull` of an engine's table with shards that was built for the ids, and no others."""
    return next(pull for pull in table.pulls if [one.name for one in pull.ids] == [ids.name])
