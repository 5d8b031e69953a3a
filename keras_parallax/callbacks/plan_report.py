# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan of a job, once it is known."""

import json
import os
import sys
import warnings
from typing import Any, Callable, Optional

import tqdm

from keras_parallax.atomic_files import written_aside
from keras_parallax.compat import keras_api
from keras_parallax.engine.session.graph_scope import scope_of
from keras_parallax.engine.step.density import measures_density
from keras_parallax.engine.step.train_step import TrainStep, step_of
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Logs
from keras_parallax.planning.plan import Plan


class PlanReport(keras_api.callbacks.Callback):
    """Prints the plan of a model when the density of its tables is measured, on rank 0.

    That is after the first ten batches, or when training begins if nothing is to be measured; with
    `architecture='auto'`, when the fastest is chosen. If training ends before, it prints what is
    known by then. Give it to every worker or to rank 0.

    Args:
        path: where to write the plan, too: as JSON, or if it ends with `.html` as a page to look
            at. What cannot be written is warned of, and training goes on.
        describe: function of the `Plan` that returns what to print; if `None`, that is the text of
            `strategy.summary`.
        print_fn: function that takes the text; if `None`, it is written to the standard output,
            above a progress bar.
        bandwidth: of a host's link, such as `'10Gbit'`, as for `strategy.summary`.

    Raises:
        ScopeError: when training begins, if the model was not compiled in a strategy's scope.
        PlanError: then too, if `bandwidth` is no bandwidth.

    Example:
        ```python
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy():
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        ...     model.compile('sgd', 'mse')
        >>> report = kp.callbacks.PlanReport(
        ...     describe=lambda plan: plan.architecture, print_fn=print
        ... )
        >>> _ = model.fit([[0.0]], [[0.0]], verbose=0, callbacks=[report])
        allreduce
        ```
    """

    def __init__(
        self,
        path: Optional[str] = None,
        describe: Optional[Callable[[Plan], str]] = None,
        print_fn: Optional[Callable[[str], Any]] = None,
        bandwidth: Optional[str] = None,
    ) -> None:
        super().__init__()
        self.path, self.describe, self.print_fn = path, describe, print_fn
        self.bandwidth = bandwidth
        self._pending: Optional[_Pending] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Reports at once where nothing is to be measured."""
        loss = getattr(self.model, 'total_loss', None)
        scope = None if loss is None else scope_of(loss.graph)
        strategy = scope and scope.strategy_of(loss)
        if strategy is None:
            raise ScopeError(
                'PlanReport is for a model that is compiled inside `with strategy:`; others have '
                'no plan.'
            )
        step = step_of(self.model)
        if step.job.rank == 0:
            # In an object of its own, which no checkpoint brings back.
            self._pending = _Pending(self, strategy, step)
            self._pending.report_if_measured()

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Reports as soon as all is measured."""
        if self._pending is not None:
            self._pending.report_if_measured()

    def on_train_end(self, logs: Logs = None) -> None:
        """Reports what is known if training has been so short."""
        if self._pending is not None:
            self._pending.report()


class _Pending:
    """The report of one `fit`, which is made once."""

    def __init__(self, callback: PlanReport, strategy: Any, step: TrainStep) -> None:
        self._callback, self._strategy, self._step = callback, strategy, step
        self._is_made = False

    def report_if_measured(self) -> None:
        step = self._step
        is_trying = any(observer.is_trying for observer in step.observers)
        if not (measures_density(step) or is_trying):
            self.report()

    def report(self) -> None:
        if self._is_made:
            return
        self._is_made = True
        callback, strategy = self._callback, self._strategy
        plan, print_fn = strategy.plan(callback.model), callback.print_fn or _print
        if callback.describe is None:
            strategy.summary(callback.model, print_fn, callback.bandwidth)
        else:
            print_fn(callback.describe(plan))
        if callback.path is not None:
            _write(plan, callback.path)


def _print(text: str) -> None:
    tqdm.tqdm.write(text + '\n', file=sys.stdout)


def _write(plan: Plan, path: str) -> None:
    """Writes a plan to a file, or warns that it cannot be written."""
    is_page = os.path.splitext(path)[1].lower() in ('.html', '.htm')
    text = plan.to_html() if is_page else json.dumps(plan.as_data(), indent=2) + '\n'
    try:
        with written_aside(path) as aside, open(aside, 'w', encoding='utf-8') as file:
            file.write(text)
    except OSError as error:
        warnings.warn(
            'PlanReport could not write the plan to %s: %s. Training goes on without it.'
            % (path, error),
            stacklevel=2,
        )
