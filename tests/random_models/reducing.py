# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Makes a draw that fails as simple as it still fails.

Hypothesis would do so, too, but it knows nothing of what a draw is made of and tries ten times as
many, and each try takes seconds.
"""

from typing import Any, Callable, Iterator

from random_models.draws import Draw, expression
from random_models.vocabulary import possible


def reduced(draw: Draw, fails: Callable[[Draw], bool], tries: int = 80) -> Draw:
    """The simplest draw found that still fails.

    Args:
        draw: a draw that fails.
        fails: whether a draw fails.
        tries: how many draws to try at most.
    """
    tried = {draw}
    progress = True
    while progress:
        progress = False
        candidates = {possible(candidate) for candidate in simpler(draw)} - tried
        # Those first that leave out the most.
        for candidate in sorted(
            candidates, key=lambda found: (len(expression(found)), expression(found))
        ):
            if len(tried) > tries:
                break
            tried.add(candidate)
            if fails(candidate):
                draw, progress = candidate, True
                break
    return draw


def simpler(value: Any, default: Any = None) -> Iterator[Any]:
    """Values that are simpler than one.

    Args:
        value: a draw, or a part of one.
        default: the simplest value of its kind.
    """
    if hasattr(value, '_fields'):
        simplest = type(value)()
        if value != simplest:
            yield simplest
        for name, simple in zip(value._fields, simplest):
            for part in simpler(getattr(value, name), simple):
                yield value._replace(**{name: part})
    elif isinstance(value, tuple):
        for number in range(len(value)):
            if len(value) > len(default or ()) or len(value) > 1:
                yield value[:number] + value[number + 1 :]
        for number, element in enumerate(value):
            if hasattr(element, '_fields'):
                for part in simpler(element):
                    yield value[:number] + (part,) + value[number + 1 :]
    elif value != default:
        yield default
