# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The draws of a seed: the same ones each time."""

from typing import Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings
from random_models import vocabulary
from random_models.draws import Draw

#: The examples that Hypothesis tries first are simple, and many of the later ones change an example
#: before them. So each draw is the last one of a short run with a seed of its own.
_EXAMPLES = 12


def drawn(words: vocabulary.Vocabulary, number: int, examples: int) -> Iterator[Draw]:
    """Some draws of a seed.

    Args:
        words: the vocabulary.
        number: the seed.
        examples: how many draws.
    """
    for place in range(examples):
        yield _one(words, 1000 * number + place)


def _one(words: vocabulary.Vocabulary, number: int) -> Draw:
    examples = []

    @seed(number)
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(vocabulary.draws(words))
    def collect(draw: Draw) -> None:
        examples.append(draw)

    collect()
    return examples[-1]
