"""The metrics of a compiled model: their names, their states, and what was asked for."""

from keras_parallax.compat.stack import generation


def metrics_by_name(model):
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


def metric_states(model):
    """The variables of a model's metrics that keep a state over an epoch, a list.

    Those of Keras 2.2.4 are layers that have them in attributes.
    """
    return [
        value
        for metric in metrics_by_name(model).values()
        for value in list(metric.weights) or list(vars(metric).values())
        if hasattr(value, 'assign') and hasattr(value, 'initializer')
    ]


def note_result(metric, result):
    """Has Keras 2.15 take a tensor for the value of a metric that it has called."""
    metric._call_result = result


def remember_metrics(model, argument, metrics):
    """Has a model know an argument of `compile`, which it writes to files, as it was given.

    Args:
        model: the compiled model.
        argument: `'metrics'` or `'weighted_metrics'`.
        metrics: the value.
    """
    setattr(model, generation.COMPILED_WITH % argument, metrics)
