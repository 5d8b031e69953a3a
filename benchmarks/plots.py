"""The report's plots."""

import os

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402
from systems import SYSTEMS  # noqa: E402

#: Parallax's speed-ups over Horovod's, by α (Kim et al., EuroSys 2019).
PAPER = ((1.0, 2.04), (0.52, 2.33), (0.28, 2.43), (0.16, 2.89), (0.10, 3.02), (0.07, 3.03), (0.04, 3.42))  # noqa: E501  # fmt: skip


def name_of(number):
    """File name of the plot of the variant with a number."""
    return 'variant_%d.png' % number


def draw(variants, alpha_rows, folder):
    """Draws all plots.

    Args:
        variants: as `report.variants` returns them.
        alpha_rows: as `report.alpha_rows` returns them.
        folder: where to.
    """
    for number, (title, records) in enumerate(variants):
        if len({record['hosts'] for record in records}) > 1:
            _variant(title, records, os.path.join(folder, name_of(number)))
    if alpha_rows:
        _alpha(alpha_rows, os.path.join(folder, 'alpha.png'))


def _variant(title, records, path):
    figure, (speed, sent) = plt.subplots(1, 2, figsize=(11, 4.2))
    good = [record for record in records if 'error' not in record]
    for system in SYSTEMS:
        mine = sorted(
            (record for record in good if record['system'] == system),
            key=lambda record: record['hosts'],
        )
        if not mine:
            continue
        ours = SYSTEMS[system].title.startswith('keras-parallax')
        style = dict(marker='o', linewidth=2.4 if ours else 1.2, label=SYSTEMS[system].title)
        hosts = [record['hosts'] for record in mine]
        speed.plot(hosts, [record['units_per_second'] for record in mine], **style)
        sent.plot(hosts, [record['sent_bytes'] / 1e6 for record in mine], **style)
    floors = sorted({(record['hosts'], record['floor_bytes'] / 1e6) for record in good})
    sent.plot(*zip(*floors), 'k--', label='floor')
    speed.set_ylabel(good[0]['unit'] + '/s' if good else '')
    sent.set_ylabel('MB sent by a host in a step')
    for axes in (speed, sent):
        axes.set_xlabel('hosts')
        axes.set_xticks(sorted({record['hosts'] for record in good}))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    sent.legend(fontsize=8)
    _save(figure, title, path)


def _alpha(rows, path):
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(*zip(*PAPER), 's--', color='gray', label='Parallax, 48 cards')
    axes.plot(*zip(*rows), 'o-', linewidth=2.4, label='keras-parallax, 8 hosts')
    axes.set_xscale('log')
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    axes.set_xlabel('α: share of the rows that a batch touches')
    axes.set_ylabel("speed-up over Horovod's allgather")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, 'Speed-up over α', path)


def _save(figure, title, path):
    figure.suptitle(title, fontsize=10)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(path, dpi=110)
    plt.close(figure)
