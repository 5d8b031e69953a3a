# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The page on what is learned over time."""

from systems.catalog import SYSTEMS

from report import compare
from report.scripts import markdown

PLOT = 'plot-convergence.png'
#: Name of a work to what its judge says, and whether less of that is better.
JUDGED = {'lm': ('perplexity', True), 'ctr': ('accuracy', False)}
TEXT = """
What a model has learned after so many seconds of training: `python benchmarks/convergence.py`,
{date}, on {hosts} hosts, {speed}, {cores:g} cores a host, {steps} steps. Systems begin with the
same weights and take the same batches. After as many steps they are equally good; what differs is
the time.

- Perplexity is that of the language model on text of the demo that is held out, over its whole
  vocabulary of 10,000 words.
- Accuracy is that of DeepFM on clicks that no worker trains on.

[![Perplexity and accuracy over time]({plot})]({plot})

Seconds count training steps alone. *Until equal* is when a system is as good as the one that is
worst in the end.

{table}
"""


def page(published):
    """The page's text, without its title, of what `convergence.py` has left; nothing of `None`."""
    if not published:
        return ''
    found = published['results']
    return TEXT.strip().format(
        date=published['date'],
        hosts=found['hosts'],
        speed=compare.link_speed(found['bandwidth_mbit']),
        cores=found['cores_per_host'],
        steps=found['steps'],
        plot=PLOT,
        table=table(found['works']),
    )


def table(works):
    """The Markdown table of a dict from works to curves by system."""
    rows = []
    for name, curves in works.items():
        word, less_is_better = JUDGED[name]
        worst = (max if less_is_better else min)(curve[-1][1] for curve in curves.values())
        for system, curve in curves.items():
            rows.append(
                [
                    compare.TITLES[name],
                    SYSTEMS[system].title,
                    '%.0f' % curve[-1][0],
                    '%s %.4g' % (word, curve[-1][1]),
                    '%.0f' % reached(curve, worst, less_is_better),
                ]
            )
    return markdown(rows, ['model', 'system', 'all steps, s', 'in the end', 'until equal, s'])


def reached(curve, level, less_is_better):
    """When a curve, of pairs of seconds and quality, first is at a level that it reaches."""
    return next(
        seconds
        for seconds, quality in curve
        if (quality <= level if less_is_better else quality >= level)
    )
