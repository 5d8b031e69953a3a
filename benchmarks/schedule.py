"""How many steps a measurement takes, from how long they are: pure functions."""

#: Measuring takes no longer, but for the fewest steps. So long that losses are compared after a
#: dozen steps also where one of Horovod takes 12 s: fp16 strays in the first, where losses leap.
BUDGET_SECONDS = 150
#: A measurement has no fewer steps than that, however long they are.
FEWEST_STEPS = 3
#: After the step in which the links get their speed, one more warms up where steps are long.
SHORTEST_WARMUP = 2


def warmup(most, step_seconds):
    """How many steps come before those that are measured.

    Args:
        most: so many where steps are short.
        step_seconds: what a step takes.
    """
    return most if most * step_seconds <= BUDGET_SECONDS / 4 else min(most, SHORTEST_WARMUP)


def steps(most, step_seconds):
    """How many steps are measured; as `warmup`."""
    return min(most, max(FEWEST_STEPS, int(BUDGET_SECONDS / step_seconds)))
