# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What every worker must agree on before the first step, and who differs if they do not."""

import itertools
import re
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from keras_parallax.engine.step.canonical_text import canonical, configuration
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import ModelMismatchError
from keras_parallax.framework_types import Optimizer
from keras_parallax.planning.plan import Plan


def model_report(
    plan: Plan, optimizer: Optimizer, settings: OptimizerSettings, requests: Iterable[Any] = ()
) -> List[Tuple[str, str]]:
    """What a worker says of its model: a list of pairs of strings, a subject and a description.

    What its `ParallaxStrategy` was asked for are named tuples.
    """
    report = [
        (variable.name, '%s %s, %s' % (list(variable.shape), variable.dtype, variable.kind))
        for variable in plan.variables
    ]
    adapter = adapter_of(optimizer)
    report.append(('optimizer', adapter.name))
    if adapter.inner is None:
        report.append(('optimizer config', configuration(optimizer)))
    given = dict(
        settings._asdict(),
        compression=settings.compression.__name__,
        pull_compression=settings.pull_compression.__name__,
    )
    report.append(('settings of ParallaxOptimizer', canonical(given)))
    for options in requests:
        report.append(('%s of ParallaxStrategy' % type(options).__name__, canonical(options)))
    return report


def check_agreement(reports: Sequence[Sequence[Sequence[str]]]) -> None:
    """Compares what the workers say of their models, a `model_report` of each.

    A worker that differs from rank 0 is a `ModelMismatchError`, which names it, the subject, and
    what both say.

    Example:
        ```python
        >>> check_agreement([[('dense/kernel', '[2, 3] float32')]] * 2)
        ```
    """
    for rank, report in enumerate(reports):
        for here, there in itertools.zip_longest(map(tuple, reports[0]), map(tuple, report)):
            if here != there:
                advice = _OF_NUMBERS if _differ_in_numbers(here, there) else _OF_MODELS
                raise ModelMismatchError(
                    'The workers built different models: rank %d has %s where rank 0 has %s. %s'
                    % (rank, _in_words(there), _in_words(here), advice)
                )


_OF_MODELS = 'Build the same model, with the same optimizer and settings, on every worker.'

_OF_NUMBERS = (
    'Keras numbers layers without a name in the order in which a process makes them. Give the '
    'layers names (name=...), or build the same models in the same order on every worker.'
)


def _differ_in_numbers(here: Optional[Sequence[str]], there: Optional[Sequence[str]]) -> bool:
    """Whether two variables have the same name but for the numbers that Keras gives to layers."""
    if here is None or there is None or here[0] == there[0]:
        return False
    return _without_numbers(here[0]) == _without_numbers(there[0])


def _without_numbers(name: str) -> str:
    return re.sub(r'_\d+(?=/|$)', '', name)


def _in_words(entry: Optional[Tuple[str, ...]]) -> str:
    return 'nothing more' if entry is None else '%s: %s' % entry
