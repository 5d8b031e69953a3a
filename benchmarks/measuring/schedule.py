# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How many steps each link speed takes, from how long they are: pure functions."""

#: Measuring at a link speed takes no longer, but for the fewest steps. Where one of Horovod takes
#: 12 s, that is 7 with warm-up, too few to compare losses of the language model after: fp16 strays
#: in the first dozen, where losses leap. Steps over faster links, in the same job, come before.
BUDGET_SECONDS = 30
#: A link speed has no fewer measured steps than that, however long they are, so that the median is
#: over several.
FEWEST_STEPS = 5
#: After the first step at a link speed, one more warms up where steps are long.
SHORTEST_WARMUP = 2
#: The first steps of a job take longer than later ones, so at its first link speed so many warm up.
#: Clicks with rows of 64 take 2.2 s for four steps, and about 1.5 s from the twelfth.
SETTLING_STEPS = 12


def warmup(most, step_seconds):
    """How many steps come before those that are measured.

    Args:
        most: so many where steps are short.
        step_seconds: what a step takes.
    """
    return min(most, max(SHORTEST_WARMUP, int(BUDGET_SECONDS / step_seconds)))


def steps(most, step_seconds):
    """How many steps are measured; as `warmup`."""
    return min(most, max(FEWEST_STEPS, int(BUDGET_SECONDS / step_seconds)))
