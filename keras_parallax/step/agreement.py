"""What every rank must agree on before the first step, and who differs if they do not."""

from keras_parallax.errors import ModelMismatchError
from keras_parallax.step.canonical import canonical, configuration
from keras_parallax.updates.optimizer_adapter import adapter_of


def model_report(plan, optimizer, settings, asked=()):
    """What a rank says of its model.

    Args:
        plan: its `Plan`.
        optimizer: its Keras optimizer.
        settings: the `Settings` of its `ParallaxOptimizer`.
        asked: what its `ParallaxStrategy` was asked for, a list of named tuples.

    Returns:
        A list of pairs of a subject and a description, both strings.
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
    """Compares what the ranks say of their models.

    Args:
        reports: a list with a report for each rank: a list of pairs of a subject (a variable's
            name, `'optimizer'`, ...) and what the rank says of it, a string.

    Raises:
        ModelMismatchError: a rank differs from rank 0; the message names it, the subject, and
            what both say.

    Example:
        ```python
        >>> check_agreement([[('dense/kernel', '[2, 3] float32')]] * 2)
        ```
    """
    expected = reports[0]
    for rank, report in enumerate(reports):
        for number in range(max(len(expected), len(report))):
            here = _entry(expected, number)
            there = _entry(report, number)
            if here != there:
                raise ModelMismatchError(
                    'The ranks built different models: rank %d has %s where rank 0 has %s. Build '
                    'the same model, with the same optimizer and settings, on every rank.'
                    % (rank, _in_words(there), _in_words(here))
                )


def _entry(report, number):
    return tuple(report[number]) if number < len(report) else None


def _in_words(entry):
    return 'nothing more' if entry is None else '%s: %s' % entry
