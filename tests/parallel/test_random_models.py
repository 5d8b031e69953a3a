# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Random models, optimizers and life cycles: two workers against plain Keras."""

import collections

import pytest
from frameworks import KERAS_PACKAGES, TF2
from random_models import checks, found, reducing, scripts, seeds, vocabulary
from random_models.draws import expression

#: Draws of a part: they take two minutes of processor, and those of one package half as many.
EXAMPLES = 16 // len(KERAS_PACKAGES)


@pytest.fixture(scope='module')
def checkers():
    """Gives the `Checker` of a Keras package; processes are started once."""
    made = {}

    def of(package):
        if package not in made:
            made[package] = checks.Checker(package)
        return made[package]

    yield of
    for checker in made.values():
        checker.close()


def explanation(checker, package, draw, verdict):
    """What a failure says: the simplest draw that fails so, its script, and what is wrong."""
    simplest = reducing.reduced(draw, checker.fails_as(verdict.kind))
    parts = [expression(simplest), scripts.script(simplest, package), checker.check(simplest).text]
    return '\n\n'.join(parts)


@pytest.mark.parametrize(
    'package, part',
    [
        pytest.param(package, part, marks=[pytest.mark.exhaustive] * (part > 0))
        for package in KERAS_PACKAGES
        for part in range(2)
    ],
)
def test_random_models_equal_plain_keras(checkers, package, part):
    checker, counts, refusals = checkers(package), collections.Counter(), []

    for draw in seeds.drawn(vocabulary.Vocabulary(package, TF2), part, EXAMPLES):
        verdict = checker.check(draw)
        counts[verdict.kind] += 1
        if verdict.kind == checks.REFUSED:
            refusals.append(verdict.text)
        assert not verdict.fails, explanation(checker, package, draw, verdict)
    print(dict(counts), *refusals, sep='\n')
    # What refuses all that is drawn, or draws what plain Keras refuses, would find nothing.
    assert counts[checks.EQUAL] >= 0.6 * sum(counts.values())


@pytest.mark.parametrize('package', KERAS_PACKAGES)
@pytest.mark.parametrize('name', found.FOUND)
def test_what_was_wrong_once_equals_plain_keras(checkers, package, name):
    checker, draw = checkers(package), found.FOUND[name]
    verdict = checker.check(draw)
    if verdict.kind == checks.INVALID:
        pytest.skip('plain Keras refuses it: ' + verdict.text)
    assert verdict.kind == checks.EQUAL, '%s\n%s' % (scripts.script(draw, package), verdict.text)
