# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The metrics of a compiled model: their names, their states, and what was asked for."""

import weakref
from typing import Any, Dict, List

from keras_parallax.compat import keras_api
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.framework_types import Model, Tensor, Variable


def metrics_by_name(model: Model) -> Dict[str, Any]:
    """The metrics of a model that keep a state over an epoch: a dict from names in the logs.

    It is empty if the model is not compiled, or `fit` has yet to build it.
    """
    functions = getattr(model, 'stateful_metric_functions', None)
    if functions is None:
        # Keras 2.15. A model without weights yet has those that `compile` was given, by names too
        # (`tests/parallel/test_training.py`, the models that `fit` builds).
        metrics = getattr(model, 'metrics', ()) if model.built else ()
        return {metric.name: metric for metric in metrics}
    return dict(zip(model.stateful_metric_names, functions))


def metric_states(model: Model) -> List[Variable]:
    """The variables of a model's metrics that keep a state over an epoch, a list.

    Those of Keras 2.2.4 are layers that have them in attributes.
    """
    return [state for metric in metrics_by_name(model).values() for state in states_of(metric)]


def states_of(metric: Any) -> List[Variable]:
    """The variables of a metric that keeps a state over an epoch, a list."""
    return [
        value
        for value in list(metric.weights) or list(vars(metric).values())
        if hasattr(value, 'assign') and hasattr(value, 'initializer')
    ]


def has_result_of_keras(metric: Any) -> bool:
    """Whether the value of a metric follows from its state by a formula of Keras's own.

    Then the state consists of sums over samples.
    """
    result = getattr(type(metric), 'result', None)
    return result is not None and keras_api.is_of_keras(result) and bool(states_of(metric))


#: By metrics, the tensors of their values that follow from their states.
_results: Any = weakref.WeakKeyDictionary()


def result_of(metric: Any) -> Tensor:
    """A tensor of a metric's value that follows from its state, made once.

    Keras 2.15 takes the last result that it was asked for itself for what its steps return.
    """
    if metric not in _results:
        _results[metric] = type(metric).result(metric)
    return _results[metric]


def note_result(metric: Any, result: Tensor) -> None:
    """Has Keras 2.15 take a tensor for the value of a metric that it has called."""
    metric._call_result = result


def remember_metrics(model: Model, argument: str, metrics: Any) -> None:
    """Has a model know an argument of `compile`, which it writes to files, as it was given.

    Args:
        model: the compiled model.
        argument: `'metrics'` or `'weighted_metrics'`.
        metrics: the value.
    """
    setattr(model, generation.COMPILED_WITH % argument, metrics)


def has_other_names(model: Model) -> bool:
    """Whether Keras may log metrics of a model by other names than in its default mode."""
    return bool(_other_names(model))


def names_by_default(model: Model) -> Dict[str, str]:
    """Other names of a built model's metrics: from those in the logs to those of the default mode.

    Names that are those of another metric are left out.
    """
    names: Dict[str, str] = {}
    outputs = model.output_names
    for name, other in _other_names(model).items():
        pairs = [(name, other)]
        if len(outputs) > 1:
            pairs = [('%s_%s' % (output, name), '%s_%s' % (output, other)) for output in outputs]
        names.update(pairs)
    logged = model.metrics_names
    return {name: other for name, other in names.items() if name in logged and other not in logged}


def _other_names(model: Model) -> Dict[str, str]:
    """From the names in the logs to the strings that `compile` was given for metrics.

    Without the name of an output; of two metrics with one such string the one without weights.
    """
    names: Dict[str, str] = {}
    for argument in ('weighted_metrics', 'metrics'):
        given = getattr(model, generation.COMPILED_WITH % argument, None)
        for metric in _strings(given):
            name = generation.name_in_graphs(metric, argument == 'weighted_metrics')
            if name != metric:
                names = {known: other for known, other in names.items() if other != metric}
                names[name] = metric
    return names


def _strings(given: Any) -> List[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, (list, tuple)):
        return [string for part in given for string in _strings(part)]
    return []
