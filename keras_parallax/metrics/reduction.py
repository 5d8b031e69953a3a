# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The sums of all workers, and what follows from them: once an epoch, and once an evaluation."""

from typing import Any, Container, Dict, List, Sequence

import numpy as np

from keras_parallax.engine.job.job import Job
from keras_parallax.errors import MetricMismatchError
from keras_parallax.framework_types import Model
from keras_parallax.metrics.layers import SampleLayer, layers_of


def is_needed(model: Model) -> bool:
    """Whether a model has metrics whose values are not known before they are asked for."""
    return any(isinstance(layer, SampleLayer) for layer in layers_of(model).values())


def begin_epoch(model: Model) -> None:
    """Has the sums kept of what a model trains on and validates from now on."""
    for layer in layers_of(model).values():
        layer.begin_epoch()


def end_epoch(model: Model, names: Container[str]) -> Dict[str, Any]:
    """This worker's sums of an epoch: dict from names in the logs, of which all are given."""
    sums = {}
    for name, layer in layers_of(model).items():
        if not layer.in_epoch:
            continue
        parts = layer.earlier + [layer.sums()]
        layer.in_epoch = False
        sums[name] = parts[0]
        if 'val_' + name in names:
            sums['val_' + name] = parts[-1]
    return sums


def abandon_epoch(model: Model) -> None:
    """Forgets an epoch that has not come to its end."""
    for layer in layers_of(model).values():
        layer.in_epoch = False


def report(model: Model, sums: Dict[str, Any]) -> List[Any]:
    """What a worker tells the others before they add up their sums, for `values_of_all`.

    Args:
        model: the model.
        sums: dict from names in the logs to this worker's sums.
    """
    sizes = {name: layer.metric.size for name, layer in layers_of(model).items()}
    return [[list(pair) for pair in sorted(sizes.items())], sorted(sums)]


def values_of_all(
    job: Job, model: Model, sums: Dict[str, Any], reports: Sequence[List[Any]]
) -> Dict[str, float]:
    """The values of all samples of the job, by name. A collective call if there are any.

    Args:
        job: the `Job`.
        model: the model.
        sums: as `report` takes them; a worker may lack some, where it has no samples.
        reports: the `report` of each worker.

    Raises:
        MetricMismatchError: the workers' models have different metrics.
    """
    layers = layers_of(model)
    if any(metrics != reports[0][0] for metrics, _ in reports):
        raise MetricMismatchError(
            'The workers have different metrics of kp.metrics, or with other thresholds: %s. '
            'Compile the model with the same ones on every worker.'
            % ', '.join(
                'rank %d has %s' % (rank, ' and '.join('%s (%d sums)' % tuple(one) for one in each))
                if each
                else 'rank %d has none' % rank
                for rank, (each, _) in enumerate(reports)
            )
        )
    names = sorted(set().union(*(of_rank for _, of_rank in reports)))
    of_name = {name: layers[name if name in layers else name[len('val_') :]] for name in names}
    parts = [of_name[name].share_of(job, sums.get(name)) for name in names]
    if not parts:
        return {}
    total = job.sum(np.concatenate(parts))
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return {name: of_name[name].value_of(of) for name, of in zip(names, np.split(total, ends))}


def values_of_rank(model: Model, sums: Dict[str, Any]) -> Dict[str, float]:
    """The values of this worker's samples alone that Keras does not know, by name.

    Args:
        model: the model.
        sums: as `report` takes them.
    """
    layers = layers_of(model)
    of_name = {name: layers.get(name) or layers[name[len('val_') :]] for name in sums}
    return {
        name: layer.value_of(layer.share_of(None, sums[name]))
        for name, layer in of_name.items()
        if isinstance(layer, SampleLayer)
    }


def evaluated(job: Job, model: Model, results: Any) -> Any:
    """What `model.evaluate` has returned on this worker, but of all workers' samples."""
    layers = layers_of(model)
    if not layers:
        return results
    sums = {name: layer.sums() for name, layer in layers.items()}
    if any(layer.in_epoch for layer in layers.values()):
        values = values_of_rank(model, sums)
    else:
        with job.call('model.evaluate with metrics of kp.metrics'):
            values = values_of_all(job, model, sums, job.gather(report(model, sums)))
    return [values.get(name, result) for name, result in zip(model.metrics_names, results)]
