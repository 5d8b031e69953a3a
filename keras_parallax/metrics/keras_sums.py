# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keras's own metrics over an epoch, of the samples of all workers.

Such a metric keeps sums over the batches, for instance of values and of weights, and its value
follows from them. The mean of the workers' values is not that of all samples where the workers have
unequal sums of weights, so the workers add up the sums. Keras 2.2.4 and `tf.keras` of TensorFlow
1.11 have no such metrics.
"""

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from keras_parallax.compat import keras_api, keras_metrics
from keras_parallax.metrics.layers import SumLayer

#: The sums of each metric by its name in the logs, arrays.
Sums = Dict[str, List[np.ndarray]]


class KerasSums:
    """The sums of the metrics of a model in an epoch of `fit`, on this worker.

    Args:
        model: the compiled model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._trained: Optional[Sums] = None

    @property
    def _metrics(self) -> Dict[str, Any]:
        """The metrics whose sums add up over the workers: a user's own may keep something else."""
        return {
            name: metric
            for name, metric in keras_metrics.metrics_by_name(self._model).items()
            if not isinstance(metric, SumLayer) and keras_metrics.has_result_of_keras(metric)
        }

    @property
    def _backend(self) -> Any:
        return keras_api.package_of(self._model).backend

    def begin_epoch(self) -> None:
        """Forgets the sums of an epoch that is over."""
        self._trained = None

    def end_training(self) -> None:
        """Keeps the sums of what was trained, before Keras validates with the same metrics."""
        if self._trained is None:
            self._trained = self._read()

    def end_epoch(self, names: Sequence[str]) -> Sums:
        """The sums of an epoch by name in its logs, which has some names."""
        metrics = self._metrics
        if not metrics:
            return {}
        last = self._read()
        sums = {name: of for name, of in (self._trained or last).items() if name in names}
        sums.update(('val_' + name, of) for name, of in last.items() if 'val_' + name in names)
        # Without validation the last batches were trained; where validation was not announced,
        # nothing is known of what was trained.
        validated = any('val_' + name in names for name in metrics)
        if validated and self._trained is None:
            sums = {name: of for name, of in sums.items() if name.startswith('val_')}
        return sums

    def report(self, sums: Sums) -> List[Any]:
        """What a worker tells the others before they add up their sums, for `values_of_all`."""
        sizes = {
            name: [int(np.prod(state.shape.as_list())) for state in keras_metrics.states_of(metric)]
            for name, metric in self._metrics.items()
        }
        return [sorted(sizes.items()), sorted(sums)]

    def values_of_all(self, job: Any, sums: Sums, reports: Sequence[Any]) -> Dict[str, float]:
        """The values of all samples, by name in the logs. A collective call if there are any.

        Args:
            job: the `Job`.
            sums: this worker's sums; a worker may lack some, where it has no samples.
            reports: the `report` of each worker. If their models have other metrics, there are no
                values.
        """
        metrics, names = self._metrics, sorted(set().union(*(of_rank for _, of_rank in reports)))
        if not names or any(sizes != reports[0][0] for sizes, _ in reports):
            return {}
        own = {name: name if name in metrics else name[len('val_') :] for name in names}
        kept = self._read()
        parts = [
            part for name in names for part in sums.get(name) or map(np.zeros_like, kept[own[name]])
        ]
        total = job.sum(np.concatenate([np.ravel(part).astype(np.float64) for part in parts]))
        ends = np.cumsum([np.size(part) for part in parts])[:-1]
        pieces = zip(np.split(total, ends), parts)
        joined = iter([piece.reshape(np.shape(part)) for piece, part in pieces])
        values = {
            name: self._value(metrics[own[name]], [next(joined) for _ in kept[own[name]]])
            for name in names
        }
        for name, metric in metrics.items():
            self._write(metric, kept[name])
        return {name: float(value) for name, value in values.items() if np.ndim(value) == 0}

    def _read(self) -> Sums:
        states = {name: keras_metrics.states_of(metric) for name, metric in self._metrics.items()}
        arrays = iter(self._backend.batch_get_value([one for of in states.values() for one in of]))
        return {name: [next(arrays) for _ in of] for name, of in states.items()}

    def _write(self, metric: Any, arrays: Sequence[np.ndarray]) -> None:
        states = keras_metrics.states_of(metric)
        self._backend.batch_set_value(
            [
                (state, array.astype(state.dtype.base_dtype.as_numpy_dtype))
                for state, array in zip(states, arrays)
            ]
        )

    def _value(self, metric: Any, arrays: Sequence[np.ndarray]) -> Any:
        """The value of a metric that has some sums."""
        self._write(metric, arrays)
        return self._backend.get_session().run(keras_metrics.result_of(metric))
