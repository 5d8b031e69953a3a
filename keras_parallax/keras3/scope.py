# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a strategy keeps for models of Keras 3: the engine's graph, its tables, the job."""

import contextlib
from typing import (
    Any,
    Callable,
    Container,
    ContextManager,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
)

import numpy as np

from keras_parallax.compat import keras3_api, keras3_cards, session_config
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.job import Job
from keras_parallax.engine.updates.optimizers import RowsOfKeras3
from keras_parallax.errors import ParallaxError, PlanError
from keras_parallax.keras3.sharded_tables import Table
from keras_parallax.keras3.start_values import StartValues
from keras_parallax.keras3.table_step import TableStep
from keras_parallax.planning.architectures import ALLREDUCE, HYBRID
from keras_parallax.planning.plan_request import Request
from keras_parallax.planning.search_request import Search

#: The graph in which the engine lives. A process has one, as it has one job.
GRAPH = tf.Graph()
# A step feeds no rows in place of those that it would pull, and a write waits for the lookups of
# these. The optimizer leaves out such lookups, which would fail (`tests/parallel/test_keras3.py`).
GRAPH.add_to_collection(session_config.OPTIMIZED, True)

#: The packages whose exceptions may hide another one, or that a worker is gone.
_FRAMEWORKS = ('tensorflow', 'jax', 'jaxlib')

_open: Optional['Keras3Scope'] = None


class Keras3Scope:
    """The scope of a strategy, for models of Keras 3.

    Args:
        strategy: the `ParallaxStrategy`.
        job: its `Job`.
        request: its `Request`.

    Attributes:
        job, request: as given.
        reasons: dict from names of tables that every worker holds to why, in words.
    """

    def __init__(self, strategy: Any, job: Job, request: Request) -> None:
        self._strategy, self.job, self.request = strategy, job, request
        self.reasons: Dict[str, str] = {}
        self._error: Optional[BaseException] = None
        self._outer: List[Optional[Keras3Scope]] = []

    def __enter__(self) -> 'Keras3Scope':
        global _open
        self._outer.append(_open)
        _open = self
        return self

    def __exit__(self, *error: Any) -> None:
        global _open
        _open = self._outer.pop()

    def check_options(self, timing: Any, servers: Any) -> None:
        """Refuses what a strategy cannot do with models of Keras 3 yet.

        Args:
            timing: its `plan_request.Timing`.
            servers: its argument of that name.

        Raises:
            PlanError: an option is not supported.
        """
        architecture, partitions = self.request.architecture, self.request.partitions
        searched = partitions.values() if isinstance(partitions, dict) else [partitions]
        refused = {
            'architecture=%r' % architecture: architecture not in (HYBRID, ALLREDUCE),
            "partitions='search'": any(isinstance(one, (str, Search)) for one in searched),
            'sync=False': not timing.sync,
            'servers=%r' % (servers,): servers is not None,
            'row_dtype=%r' % (self.request.row_dtype,): self.request.row_dtype is not None,
        }
        for option, is_given in refused.items():
            if is_given:
                raise PlanError(
                    '%s of ParallaxStrategy is not supported with Keras 3 yet; leave it out, or '
                    'train a model of Keras 2 (docs/keras3.md).' % option
                )

    def why_dense(self, layer: str, name: str) -> Optional[str]:
        """Why the strategy has every worker hold a table, in words; `None` if it does not.

        Args:
            layer: the name of the layer.
            name: the name of the table.
        """
        if self.request.architecture == ALLREDUCE:
            return "architecture='allreduce'"
        overrides = self.request.overrides or {}
        if overrides.get(name, overrides.get(layer)) == 'dense':
            return 'an override'
        return None

    def new_table(self, name: str, start: StartValues) -> Table:
        """Makes a `Table`; arguments as of the class."""
        with GRAPH.as_default(), self._strategy.engine_scope():
            return Table(GRAPH, name, start)

    def new_step(
        self,
        tables: Sequence[Table],
        rows: RowsOfKeras3,
        options: Dict[str, Any],
        looked_up_with: Sequence[int],
        dense: Container[str],
    ) -> TableStep:
        """Makes a `TableStep`. A collective call.

        Args:
            tables: as of the class.
            rows: as of the class.
            options: as of the class.
            looked_up_with: as of the class.
            dense: names of the model's other variables, and of their layers. Options of the
                strategy that name them are not for the engine.
        """
        request = self.request._replace(
            overrides=_without(self.request.overrides, dense),
            partitions=_without(self.request.partitions, dense),
            density=_without(self.request.density, dense),
        )
        new = [table for table in tables if not table.is_trained]
        # Those of rank 0 count. What every worker can make, each makes a part of.
        draws = self.job.gather([table.start.draws for table in new])[0]
        for table, of_table in zip(new, draws):
            table.start_from(of_table)
        with GRAPH.as_default(), self._strategy.engine_scope(request):
            step = TableStep(GRAPH, tables, rows, options, looked_up_with)
        # Leaving the scope adds an operation to the graph, of which the same run has to learn.
        step.write_start()
        # Workers have written the start values; none may look them up before.
        self.job.barrier()
        return step

    def noting_errors(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """A function that a step calls, and whose exception `translated` raises as it is."""

        def noting(*args: Any) -> Any:
            try:
                return act(*args)
            except BaseException as error:
                self._error = self._error or error
                raise

        return noting

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """While open, raises what ended a step, in place of what a framework makes of it."""
        self._error = None
        try:
            yield
        except ParallaxError:
            raise
        except Exception as error:
            cause, self._error = self._error, None
            if cause is not None:
                raise cause from error
            if isinstance(error, keras3_api.ENDS_OF_DATA):
                raise
            if self.job.size > 1 and type(error).__module__.split('.')[0] in _FRAMEWORKS:
                self.job.watch.await_problem()
                if self.job.problem is not None:
                    raise self.job.problem from error
            raise

    def step(self) -> ContextManager[None]:
        """While open, a training step runs, of which the other workers hear."""
        if self.job.size == 1 or keras3_api.backend_module().IS_ASYNCHRONOUS:
            # The others hear of its pushes, and of the collectives that it calls from Python.
            return contextlib.nullcontext()
        return self.job.activity.step(lockstep=True, ends_of_data=keras3_api.ENDS_OF_DATA)

    def collective_of(self, name: str) -> Callable[..., Any]:
        """The collectives of a step that calls them from Python, as `Job.collective` runs them.

        Args:
            name: what the user knows them by.
        """

        def collective(act: Callable[..., Any]) -> Any:
            with self.job.call(name):
                return self.job.collective(act)

        return collective

    def resume(self, model: Any, path: Optional[str]) -> int:
        """As `strategy.resume`, for models of Keras 3."""
        # Only now: it needs optimizers, which need this module.
        from keras_parallax.keras3 import checkpoints

        return checkpoints.go_on(model, path, self)

    def broadcast(self, values: List[np.ndarray]) -> List[np.ndarray]:
        """The arrays of rank 0, of the same shapes and dtypes everywhere. A collective call."""
        if self.job.size == 1 or not values:
            return values
        flat = np.concatenate([value.ravel().astype(np.float64) for value in values])
        self.job.gather(flat.size)
        total = self.job.sum(flat if self.job.rank == 0 else np.zeros_like(flat))
        parts = np.split(total, np.cumsum([value.size for value in values])[:-1])
        return [part.reshape(of.shape).astype(of.dtype) for part, of in zip(parts, values)]


def _without(option: Any, names: Container[str]) -> Any:
    """An option, which may be a dict by names, without some of the names."""
    if not isinstance(option, dict):
        return option
    return {name: value for name, value in option.items() if name not in names}


def use_cards(job: Job) -> None:
    """Has Keras's backend compute on the cards of this worker, and the engine on none."""
    keras3_cards.use_cards(keras3_api.BACKEND, job.config, job.rank, job.size)


def open_scope() -> Optional[Keras3Scope]:
    """The `Keras3Scope` that is open, or `None`."""
    return _open


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """While open, no scope is, so that what is built is plain Keras's."""
    global _open
    former, _open = _open, None
    try:
        yield
    finally:
        _open = former
