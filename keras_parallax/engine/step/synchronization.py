# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When the workers of a training step wait for each other. Data alone."""

from typing import NamedTuple


class Synchronization(NamedTuple):
    """When the workers wait for each other.

    Attributes:
        sync: whether the gradients of all workers are applied together.
        lockstep: whether the step ends for no worker before all have begun it.
        waits: whether the workers need equally many steps.
        acts_in_fit: whether the workers tell each other something at the epochs of `fit`.
    """

    sync: bool
    lockstep: bool
    waits: bool
    acts_in_fit: bool
