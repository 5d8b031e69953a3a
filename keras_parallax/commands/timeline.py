# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax timeline`: traces of a job as a picture, a page, and in words."""

import json
import os
from typing import Any, List, Optional, Sequence, Tuple

import click

from keras_parallax.compat import remedies
from keras_parallax.errors import ParallaxError, ProfileError
from keras_parallax.observing import critical_path, trace_page
from keras_parallax.observing import trace as traces

#: Inches of a picture: across, and for each row.
_ACROSS, _ROW = 11, 0.2


@click.command()
@click.argument('paths', metavar='TRACE...', nargs=-1, required=True, type=click.Path())
@click.option('--png', type=click.Path(dir_okay=False), help='The picture of one step.')
@click.option('--html', type=click.Path(dir_okay=False), help='A page that needs no network.')
@click.option('--step', type=int, help='The step of the picture; the one of median length if none.')
def command(
    paths: Tuple[str, ...], png: Optional[str], html: Optional[str], step: Optional[int]
) -> None:
    """Show what the steps in TRACEs of kp.callbacks.Profile waited for.

    TRACE is a file, or the directory that Profile was given. Several of one job are put together.
    Without --png and --html, only sentences are printed.
    """
    try:
        trace = read(paths)
        found = critical_path.paths_of(trace)
        chosen = _chosen(found, step)
        if html is not None:
            _write(html, trace_page.to_html(trace).encode('utf-8'))
        if png is not None:
            draw(trace, chosen, png)
    except ParallaxError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException('It cannot be written: %s.' % error) from error
    for line in critical_path.in_words(trace, found):
        click.echo(line)


def read(paths: Sequence[str]) -> traces.Trace:
    """The `trace.Trace` of files and directories, all of one job."""
    files = [file for path in paths for file in _files(path)]
    return traces.merged([traces.from_chrome(_data(file), file) for file in files], files)


def _files(path: str) -> List[str]:
    if not os.path.isdir(path):
        return [path]
    names = sorted(os.listdir(path))
    files = [name for name in names if name.startswith('trace-') and name.endswith('.json')]
    if not files:
        raise ProfileError('%s has no trace of kp.callbacks.Profile (trace-*.json).' % path)
    return [os.path.join(path, name) for name in files]


def _data(path: str) -> Any:
    try:
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    except OSError as error:
        raise ProfileError('%s cannot be read: %s.' % (path, error)) from error
    except ValueError as error:
        raise ProfileError('%s is no JSON: %s.' % (path, error)) from error


def _chosen(found: Sequence[Any], step: Optional[int]) -> Any:
    if step is None:
        return sorted(found, key=lambda path: path.end - path.begin)[len(found) // 2]
    for path in found:
        if path.step == step:
            return path
    numbers = ', '.join(str(path.step) for path in found)
    raise ProfileError('There is no step %d in the traces, which have %s.' % (step, numbers))


def _write(path: str, content: bytes) -> None:
    with open(path, 'wb') as file:
        file.write(content)


def draw(trace: traces.Trace, path: Any, file: str) -> None:
    """Draws a step into a PNG: a row for each worker and phase, and the longest chain."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ProfileError('A picture needs matplotlib: %s' % remedies.MATPLOTLIB) from error
    rows = trace_page.rows_of(trace, path)
    figure = Figure(figsize=(_ACROSS, 1 + _ROW * len(rows)))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(1, 1, 1)
    least = (path.end - path.begin) / 1e3 / trace_page.WIDTH
    for place, row in enumerate(rows):
        for bar in row.bars:
            length = max(least, (bar.end - bar.begin) / 1e3)
            axes.broken_barh(
                [(bar.begin / 1e3, length)],
                (place - 0.4, 0.8),
                facecolors=trace_page.COLOURS[bar.phase],
            )
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels(['rank %d, %s' % (row.rank, row.name) for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel('milliseconds since step %d began' % path.step)
    axes.grid(axis='x', alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=120, format='png')
