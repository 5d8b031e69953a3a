"""What every rank must agree on before the first step, and who differs if they do not."""

import itertools

from keras_parallax.errors import ModelMismatchError
from keras_parallax.step.canonical import canonical, configuration
from keras_parallax.updates.optimizer_adapter import adapter_of


def model_report(plan, optimizer, settings, asked=()):
    """What a rank says of its model: a list of pairs of a subject and a description, both strings.

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
    settings = settings._replace(
        compression=settings.compression.__name__,
        pull_compression=settings.pull_compression.__name__,
    )
    report.append(('settings of ParallaxOptimizer', canonical(dict(settings._asdict()))))
    for options in asked:
        report.append(('%s of ParallaxStrategy' % type(options).__name__, canonical(options)))
    return report


def check_agreement(reports):
    """Compares what the ranks say of their models, a `model_report` of each.

    A rank that differs from rank 0 is a `ModelMismatchError`, which names it, the subject, and what
    both say.

    Example:
        ```python
        >>> check_agreement([[('dense/kernel', '[2, 3] float32')]] * 2)
        ```
    """
    for rank, report in enumerate(reports):
        for here, there in itertools.zip_longest(map(tuple, reports[0]), map(tuple, report)):
            if here != there:
                raise ModelMismatchError(
                    'The ranks built different models: rank %d has %s where rank 0 has %s. Build '
                    'the same model, with the same optimizer and settings, on every rank.'
                    % (rank, _in_words(there), _in_words(here))
                )


def _in_words(entry):
    return 'nothing more' if entry is None else '%s: %s' % entry
