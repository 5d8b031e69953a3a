# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What may look on while a training step runs: measurements, traces, searches for better plans."""

from typing import Any, Optional, Sequence

from keras_parallax.planning.architecture_trials import Trials


class StepObserver:
    """Looks on while a `TrainStep` runs. A method does nothing unless a subclass replaces it.

    Attributes:
        tracer: what runs the step's operations and traces them (`observing/traced_runs.py`), or
            `None`.
        is_trying: whether it tries plans, or is going to.
        trials: the `architecture_trials.Trials` of the architectures that it has tried, or `None`.
    """

    tracer: Any = None
    is_trying: bool = False
    trials: Optional[Trials] = None

    def beside_batch(self) -> Sequence[str]:
        """Names of operations to run with each batch, which are no part of the step."""
        return ()

    def beside_update(self) -> Sequence[str]:
        """The same for each exchange of the gradients of several batches."""
        return ()

    def note_batch(self, seconds: float) -> None:
        """A batch has run just now, with the exchange that followed it if there was one."""

    def note_rest(self, seconds: float) -> None:
        """The gradients of fewer batches than `accumulate_steps` have been exchanged just now."""

    def after_update(self, seconds: float, is_measured: bool) -> None:
        """Weights were updated. All workers of a step that waits are here.

        Args:
            seconds: the time of the batches since the last update.
            is_measured: whether densities of tables were measured since then.
        """

    def moved(self) -> None:
        """The step follows another plan from now on."""
