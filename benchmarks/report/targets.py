# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the project wants to reach, and what came out: rows of tables, from records alone."""

import math
import statistics
from typing import NamedTuple

from systems.catalog import SYSTEMS

from report import compare, scripts

#: Horovod's step over a worker's compute step on the paper's 48 cards: 2.7 s over 0.175 s.
PAPER_RATIO = 15
#: How far from that a ratio may be to count as the paper's.
NEAR = 1.25
SHORT_HEADERS = [
    'work', 'hosts', 'our fastest', 'speed / best Horovod', "speed / TensorFlow's servers",
    "Horovod's step / compute step", 'hybrid: sent / floor', 'hybrid: step / at 2 hosts',
    'fp16: step / at 2 hosts',
]  # fmt: skip
HEADERS = ['what', 'target', 'measured', 'met']


class Seen(NamedTuple):
    """A value that a target is about, and where it was seen."""

    value: float
    where: str = ''


def short_rows(variants):
    """The rows of the table in short: each variant and number of hosts where ours was measured."""
    rows = []
    for variant in variants:
        for hosts in variant.hosts:
            by_system = variant.at(hosts)
            ours = compare.our_fastest(by_system)
            if ours is None or hosts == 1:
                continue
            values = [
                compare.speed_up(ours, compare.best_horovod(by_system)),
                compare.speed_up(ours, by_system.get('tf-ps')),
                compare.compute_steps(variant, hosts),
                compare.over_floor(by_system.get('hybrid')),
            ]
            values += [
                compare.growth(variant, system) if hosts == 8 else None
                for system in ('hybrid', 'hybrid-fp16')
            ]
            name = SYSTEMS[ours['system']].title
            rows.append([variant.title, hosts, name] + [_times(value) for value in values])
    return rows


def _times(value):
    return '' if value is None else '%.2fx' % value


def nearest_to_paper(variants):
    """Of variants of 8 hosts, the one whose ratio is nearest to the paper's, or `None`."""
    ratios = [(compare.compute_steps(variant, 8), variant) for variant in variants]
    found = [(abs(math.log(ratio / PAPER_RATIO)), variant) for ratio, variant in ratios if ratio]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def at_paper_ratio(variants, other):
    """Our speed-up where the ratio is nearest to the paper's: a list of one `Seen`, or of none.

    Args:
        variants: of one work.
        other: function from a dict by system to the record to compare with.
    """
    variant = nearest_to_paper(variants)
    if variant is None:
        return []
    by_system = variant.at(8)
    value = compare.speed_up(compare.our_fastest(by_system), other(by_system))
    ratio, where = compare.compute_steps(variant, 8), _speed_and_ratio(variant)
    if not PAPER_RATIO / NEAR <= ratio <= PAPER_RATIO * NEAR:
        where += ', not the paper\'s %d' % PAPER_RATIO
    return [Seen(value, where)] if value else []


def rows(variants, alone):
    """The rows of the table of targets.

    Args:
        variants: as `compare.variants` returns them.
        alone: a dict with the results of `one_process` and `startup`, where there are some.
    """

    def each(value, chosen=variants):
        """`value(variant, hosts)` of all variants and numbers of hosts that have one."""
        found = [
            (value(variant, hosts), '%s, %d hosts' % (variant.title, hosts))
            for variant in chosen
            for hosts in variant.hosts
            if hosts > 1
        ]
        return [Seen(*pair) for pair in found if pair[0] is not None]

    language = [variant for variant in variants if variant.suite == 'lm']
    clicks = [variant for variant in variants if 'width 64' in variant.work]
    dense = [variant for variant in variants if variant.suite == 'dense']
    grown = [
        Seen(value, compare.link_speed(variant.speed))
        for variant in language
        for value in [_best_growth(variant)]
        if value is not None
    ]
    found = [
        at_least(
            "Language model, 8 hosts, at the paper's ratio: speed / best Horovod", 6.02,
            at_paper_ratio(language, compare.best_horovod),
        ),
        at_least(
            "the same / TensorFlow's servers", 2.8,
            at_paper_ratio(language, lambda by_system: by_system.get('tf-ps')),
        ),
    ]  # fmt: skip
    for work in sorted({variant.work for variant in clicks}) or ['Clicks, width 64']:
        of_work = [variant for variant in clicks if variant.work == work]
        elsewhere = [
            Seen(value, _speed_and_ratio(variant))
            for variant in of_work
            for value in [_against_horovod(variant, 8)]
            if variant is not nearest_to_paper(of_work) and value is not None
        ]
        found.append(
            at_least(
                work + ", 8 hosts, at the paper's ratio: speed / best Horovod", 7.7,
                at_paper_ratio(of_work, compare.best_horovod), elsewhere=elsewhere,
            )
        )  # fmt: skip
    found += [
        at_least(
            'ResNet: speed / horovod.keras, where it is least', 0.98,
            least(each(_against_horovod_of_keras, dense)),
        ),
        at_least(
            'ResNet: speed / best Horovod, where it is least', 0.98,
            least(each(_against_horovod, dense)),
        ),
        at_most(
            'hybrid: bytes sent / floor, where it is most', 1.1,
            most(each(lambda variant, hosts: compare.over_floor(variant.at(hosts).get('hybrid')))),
        ),
        at_most('Language model: our step at 8 hosts / at 2', 1.3, grown),
    ]  # fmt: skip
    found += one_process_rows(alone.get('one_process')) + startup_rows(alone.get('startup'))
    return found + step_rows(alone.get('table_steps')) + slot_rows(alone.get('slot_memory'))


def _against_horovod(variant, hosts):
    by_system = variant.at(hosts)
    return compare.speed_up(compare.our_fastest(by_system), compare.best_horovod(by_system))


def _against_horovod_of_keras(variant, hosts):
    by_system = variant.at(hosts)
    return compare.speed_up(compare.our_fastest(by_system), by_system.get('hvd-keras'))


def _best_growth(variant):
    """Our step at 8 hosts over that at 2, of our fastest at 8 that was measured at both."""
    both = {name: one for name, one in variant.at(8).items() if name in variant.at(2)}
    ours = compare.our_fastest(both)
    return compare.growth(variant, ours['system']) if ours else None


def one_process_rows(results):
    """The rows of one process against raw TensorFlow's sparse apply."""
    found = []
    for key, what, target in ('step_ms', 'time', 1.2), ('peak_gib', 'memory', 1.1):
        seen = [
            Seen(scripts.middle_ratio(results, name, key), name)
            for name in (results or {})
            if name.startswith('keras-parallax')
        ]
        title = 'One process, 793471x512: %s / raw TensorFlow' % what
        found.append(at_most(title, target, seen))
    return found


def startup_rows(results):
    """The row of what our Python adds to start-up."""
    seen = [Seen(scripts.added(results, name), name) for name in scripts.AGAINST if results]
    return [at_most('Start-up and compile, 30 tables: seconds that ours adds', 3, seen, ' s')]


def step_rows(results):
    """The rows of steps with tables for recommenders over those with `Embedding`, of each bound."""
    found = []
    for what, bound in ('DynamicEmbedding', 1.5), ('EmbeddingBag', 1.0):
        seen = [
            Seen(
                statistics.median(scripts.over(one['rounds'])),
                '%s, %s, ids %s' % (one['title'].replace('`', ''), scripts.where(one), one['ids']),
            )
            for one in results or []
            if one['bound'] and what in one['title']
        ]
        title = 'A step with %s / with Embedding, where it is most' % what
        found.append(at_most(title, bound, most(seen)))
    return found


def slot_rows(results):
    """The row of the memory of `RowwiseAdagrad`, which is to be as its formula says."""
    seen = []
    for one in results or []:
        share = scripts.rowwise_share(one['width'])
        off = abs(statistics.median(scripts.over(one['rounds'])) / share - 1)
        seen.append(Seen(100 * off, 'width %d' % one['width']))
    what = "Memory with RowwiseAdagrad / with Adagrad: off from (width + 1) / (2 width)"
    return [at_most(what, 10, most(seen), ' %')]


def least(seen):
    """The one of `Seen`s with the smallest value, a list."""
    return [min(seen, key=lambda one: one.value)] if seen else []


def most(seen):
    """The one of `Seen`s with the largest value, a list."""
    return [max(seen, key=lambda one: one.value)] if seen else []


def at_least(what, target, seen, unit='x', elsewhere=()):
    """A row of a target that is met by `target` or more; what was seen elsewhere is not judged."""
    return _row(what, '≥ ', target, seen, unit, lambda value: value >= target, elsewhere)


def at_most(what, target, seen, unit='x'):
    """A row of a target that is met by `target` or less."""
    return _row(what, '≤ ', target, seen, unit, lambda value: value <= target)


def _row(what, sign, target, seen, unit, meets, elsewhere=()):
    def told(some):
        return '; '.join('%.2f%s (%s)' % (one.value, unit, one.where) for one in some)

    met = [meets(one.value) for one in seen]
    is_met = 'yes' if all(met) else 'in part' if any(met) else 'no'
    shown = told(seen) + (' - elsewhere ' + told(elsewhere) if elsewhere else '')
    return [what, '%s%g%s' % (sign, target, unit), shown, is_met if seen else 'not measured']


def _speed_and_ratio(variant):
    """The link speed, and the ratio of Horovod's step to a compute step, if that is known."""
    ratio = compare.compute_steps(variant, 8)
    return compare.link_speed(variant.speed) + (', ratio %.1f' % ratio if ratio else '')
