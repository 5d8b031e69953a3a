# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Draws random models as long as one likes: `make fuzz SEEDS=1-20 STACK=tf2.21`.

Each draw that fails is made simpler, and written as a script into a folder.
"""

import argparse
import collections
import os
import sys

_TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, _TESTS)
# Where processes that are started find what makes TensorFlow faster.
os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [_TESTS, os.environ.get('PYTHONPATH')]))
from frameworks import KERAS_PACKAGES, TF2  # noqa: E402
from random_models import checks, reducing, scripts, seeds, vocabulary  # noqa: E402
from random_models.draws import expression  # noqa: E402


def numbers_of(text):
    """Numbers from a text such as `1-3,7`, a list."""
    found = []
    for part in text.split(','):
        first, _, last = part.partition('-')
        found += range(int(first), int(last or first) + 1)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=numbers_of, default=[1], help='such as 1-20')
    parser.add_argument('--examples', type=int, default=25, help='draws of each seed')
    parser.add_argument('--package', choices=KERAS_PACKAGES, default=KERAS_PACKAGES[0])
    parser.add_argument('--without', default='', help='of ' + ', '.join(vocabulary.PARTS))
    parser.add_argument('--servers', type=int, default=0, help='dedicated servers for all shards')
    parser.add_argument('--tries', type=int, default=80, help='to make a draw simpler')
    parser.add_argument('--folder', default='fuzz', help='for the scripts of draws that fail')
    given = parser.parse_args()
    without = frozenset(filter(None, given.without.split(',')))
    words = vocabulary.Vocabulary(given.package, TF2, without)
    checker, counts = checks.Checker(given.package, given.servers), collections.Counter()
    os.makedirs(given.folder, exist_ok=True)
    try:
        for number in given.seeds:
            for place, draw in enumerate(seeds.drawn(words, number, given.examples)):
                before = checker.seconds
                verdict = checker.check(draw)
                counts[verdict.kind] += 1
                lines = verdict.text.splitlines() or ['']
                shown = '%d/%d %s, %.1f s of processor' % (
                    number,
                    place,
                    verdict.kind,
                    checker.seconds - before,
                )
                print(shown, (lines[-1] if verdict.kind == checks.ERROR else lines[0])[:200])
                sys.stdout.flush()
                if verdict.fails:
                    _report(checker, draw, verdict, given, '%d-%d' % (number, place))
    finally:
        checker.close()
    print(dict(counts))
    sys.exit(any(counts[kind] for kind in (checks.NUMBERS, checks.ERROR)))


def _report(checker, draw, verdict, given, name):
    print('  ' + expression(draw), flush=True)
    simplest = reducing.reduced(draw, checker.fails_as(verdict.kind), given.tries)
    path = os.path.join(given.folder, '%s-%s.py' % (given.package, name))
    words = checker.check(simplest).text
    with open(path, 'w') as file:
        file.write('# %s\n' % expression(simplest))
        file.writelines('# %s\n' % line for line in words.splitlines())
        file.write(scripts.script(simplest, given.package, checker.addresses))
    print('  %s: %s\n  %s' % (path, expression(simplest), words.replace('\n', '\n  ')[-1500:]))
    sys.stdout.flush()


if __name__ == '__main__':
    main()
