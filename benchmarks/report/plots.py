# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The report's plots."""

import os

import matplotlib
import numpy as np

from report import compare, convergence

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: E402
from systems.catalog import SYSTEMS  # noqa: E402

from keras_parallax.tuning import partition_fit  # noqa: E402

LINK_SPEED, ALPHA = 'plot-link-speed.png', 'plot-alpha.png'
#: Parallax's speed-ups, by α (Kim et al., EuroSys 2019).
PAPER = ((1.0, 2.04), (0.52, 2.33), (0.28, 2.43), (0.16, 2.89), (0.10, 3.02), (0.07, 3.03), (0.04, 3.42))  # noqa: E501  # fmt: skip
#: System to color and marker: those of Okabe and Ito, and three of Tol's, for the color-blind too.
LOOKS = {
    'hybrid': ('#D55E00', 'o'),
    'hybrid-fp16': ('#CC79A7', 'D'),
    'allreduce': ('#E69F00', 's'),
    'allreduce-fp16': ('#999933', 'X'),
    'ps': ('#882255', '^'),
    'ps-fp16': ('#332288', 'p'),
    'hvd-allgather': ('#0072B2', 'o'),
    'hvd-keras': ('#56B4E9', 's'),
    'hvd-dense': ('#56B4E9', '^'),
    'tf-ps': ('#009E73', 'v'),
    'tf-ps-strategy': ('#117733', '<'),
    'tf': ('#000000', '*'),
    'keras': ('#777777', 'P'),
}
#: What is not drawn beside others as a rule looks like this.
_OTHER_LOOK = '#44AA99', 'h'
#: For lines that are works: color and marker by their order.
WORKS = [LOOKS[name] for name in ('hybrid', 'hvd-allgather', 'tf-ps', 'hybrid-fp16', 'keras')]


def draw(variants, alpha, folder):
    """Draws all plots.

    Args:
        variants: as `compare.variants` returns them.
        alpha: dict from peers to what `compare.alpha_points` returns.
        folder: where to.

    Returns:
        The set of the names of the files that were written.
    """
    drawn = set()
    for variant in variants:
        if len([hosts for hosts in variant.hosts if variant.at(hosts)]) > 1:
            _variant(variant, os.path.join(folder, variant.plot))
            drawn.add(variant.plot)
    lines = link_speed_lines(variants)
    if lines:
        _link_speed(lines, os.path.join(folder, LINK_SPEED))
        drawn.add(LINK_SPEED)
    if alpha:
        _alpha(alpha, os.path.join(folder, ALPHA))
        drawn.add(ALPHA)
    return drawn


def link_speed_lines(variants):
    """Our fastest over the best of Horovod, at 8 hosts: a dict from work to `(speed, speed-up)`.

    Only works with two link speeds or more; `None` is the speed of links that are not limited.
    """
    lines = {}
    for variant in variants:
        by_system = variant.at(8)
        value = compare.speed_up(compare.our_fastest(by_system), compare.best_horovod(by_system))
        if value:
            cores = ', %g cores a host' % variant.cores if variant.cores else ''
            lines.setdefault(variant.work + cores, []).append((variant.speed, value))
    return {work: points for work, points in lines.items() if len(points) > 1}


def _variant(variant, path):
    figure, (speed, sent) = plt.subplots(1, 2, figsize=(12, 4.6))
    hosts = [count for count in variant.hosts if variant.at(count)]
    # What a line is drawn over is below: ours last.
    for system in reversed(list(SYSTEMS)):
        mine = [(n, variant.at(n)[system]) for n in hosts if system in variant.at(n)]
        if not mine:
            continue
        ours = SYSTEMS[system].title.startswith('keras-parallax')
        color, marker = LOOKS.get(system, _OTHER_LOOK)
        look = dict(
            color=color,
            marker=marker,
            markersize=7 if ours else 5,
            linewidth=3.2 if 'hybrid' in system else 1.6,
            linestyle='-' if ours else '--',
            zorder=4 if 'hybrid' in system else 3,
            label=SYSTEMS[system].title,
        )
        speed.plot([n for n, _ in mine], [one['units_per_second'] for _, one in mine], **look)
        far = [(n, one['sent_bytes'] / 1e6) for n, one in mine if n > 1]
        if far:
            sent.plot(*zip(*far), **look)
    floors = sorted(
        {(n, one['floor_bytes'] / 1e6) for n in hosts if n > 1 for one in variant.at(n).values()}
    )
    if floors:
        sent.plot(*zip(*floors), color='k', linestyle=':', linewidth=1.6, label='floor', zorder=5)
    unit = next(iter(variant.at(hosts[0]).values()))['unit']
    speed.set_title('Throughput of all hosts together', fontsize=10)
    speed.set_ylabel('%s a second' % unit)
    sent.set_title('What a host sends in a step', fontsize=10)
    sent.set_ylabel('MB (logarithmic)')
    for axes, counts in (speed, hosts), (sent, [n for n in hosts if n > 1]):
        axes.set_xlabel('number of hosts')
        axes.set_xscale('log', base=2)
        axes.set_xticks(counts)
        axes.set_xticklabels(counts)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    # Whole tables are a hundred times the rows of a batch.
    sent.set_yscale('log')
    sent.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    sent.yaxis.set_major_formatter(FuncFormatter(lambda value, _: '%g' % value))
    sent.yaxis.set_minor_locator(NullLocator())
    speed.set_ylim(bottom=0)
    handles, labels = speed.get_legend_handles_labels()
    handles += sent.get_legend_handles_labels()[0][-1:] if floors else []
    labels += ['floor: the least there is to send'] if floors else []
    figure.legend(handles[::-1], labels[::-1], loc='center right', fontsize=9, frameon=False)
    _save(figure, variant.title, path, right=0.76)


def _link_speed(lines, path):
    figure, axes = plt.subplots(figsize=(9, 4.4))
    speeds = sorted({speed for points in lines.values() for speed, _ in points}, key=_place)
    highest = max(value for points in lines.values() for _, value in points)
    labels = []
    for (work, points), (color, marker) in zip(sorted(lines.items()), WORKS):
        points = sorted(points, key=lambda point: _place(point[0]))
        places = [speeds.index(speed) for speed, _ in points]
        values = [value for _, value in points]
        axes.plot(places, values, color=color, marker=marker, linewidth=2.6, label=work)
        for place, value in zip(places, values):
            # One number for values so near each other that two would lie upon each other.
            if any(place == other and abs(value - near) < highest / 16 for other, near in labels):
                continue
            labels.append((place, value))
            # Where another line passes just above, the number stands below its own.
            beneath = any(
                speeds.index(speed) == place and 0 < other - value < highest / 12
                for others in lines.values()
                for speed, other in others
            )
            axes.annotate(
                '%.1f' % value, (place, value), (0, -15 if beneath else 7),
                textcoords='offset points', ha='center', fontsize=8, color=color,
            )  # fmt: skip
    axes.axhline(1, color='k', linewidth=1, linestyle=':')
    axes.set_xticks(range(len(speeds)))
    axes.set_xticklabels(['%g' % speed if speed else 'not limited' for speed in speeds])
    axes.set_xlabel('link speed of a host, Mbit/s (not to scale)')
    axes.set_ylabel("speed / Horovod's fastest")
    axes.set_ylim(0, 1.1 * highest)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    _save(figure, 'keras-parallax against Horovod on 8 hosts (dotted line: as fast)', path)


def _place(speed):
    return speed or float('inf')


def _alpha(points, path):
    figure, axes = plt.subplots(figsize=(7, 4.2))
    color, _ = LOOKS['keras']
    axes.plot(*zip(*PAPER), marker='s', linestyle='--', color=color, label='Parallax, 48 cards')
    for peer, found in points.items():
        color, marker = LOOKS[peer]
        label = 'keras-parallax / %s' % SYSTEMS[peer].title
        axes.plot(*zip(*found), marker=marker, color=color, linewidth=3.2, label=label)
    axes.set_xscale('log')
    axes.set_xticks([alpha for alpha, _ in PAPER])
    axes.set_xticklabels(['%g' % alpha for alpha, _ in PAPER])
    axes.minorticks_off()
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel('α: share of the rows of a table that a batch touches (logarithmic)')
    axes.set_ylabel('speed / peer on 8 hosts')
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, 'Speed-up by the density of tables, α', path)


def draw_convergence(works, path):
    """Draws what `convergence.py` has found: a dict from works to curves by system."""
    figure, axes = plt.subplots(1, len(works), figsize=(6 * len(works), 4.2), squeeze=False)
    for place, (name, curves) in zip(axes[0], works.items()):
        word, less_is_better = convergence.JUDGED[name]
        for system, curve in curves.items():
            color, marker = LOOKS.get(system, _OTHER_LOOK)
            title = SYSTEMS[system].title
            place.plot(*zip(*curve), color=color, marker=marker, linewidth=2.4, label=title)
        if less_is_better:
            place.set_yscale('log')
        place.set_title('%s: %s' % (compare.TITLES[name], word), fontsize=10)
        place.set_xlabel('seconds of training')
        place.set_ylabel(word)
        place.set_xlim(left=0)
        place.grid(alpha=0.3, which='both')
    axes[0][0].legend(fontsize=9)
    _save(figure, 'What is learned over time', path)


def draw_shards(points, path):
    """Draws the time of a step over the number of shards, and the curve that is fitted to it.

    Args:
        points: pairs of a number of shards and seconds.
        path: where to.
    """
    fitted = partition_fit.choose(points).fit
    figure, axes = plt.subplots(figsize=(7, 4.2))
    counts = [shards for shards, _ in points]
    between = np.geomspace(min(counts), max(counts), 100)
    color, marker = LOOKS['hybrid']
    axes.plot(*zip(*points), color=color, marker=marker, linestyle='', label='measured')
    if fitted:
        curve = [fitted.seconds(shards) for shards in between]
        axes.plot(between, curve, color='k', label='fitted')
    axes.set_xscale('log', base=2)
    axes.set_xticks(counts)
    axes.set_xticklabels(counts)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel('shards of a table')
    axes.set_ylabel('seconds of a step')
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, 'Time of a step by the number of shards of a table', path)


def _save(figure, title, path, right=1.0):
    figure.suptitle(title, fontsize=11, y=0.99)
    figure.tight_layout(rect=(0, 0, right, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
