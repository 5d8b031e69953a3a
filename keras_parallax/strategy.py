# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`ParallaxStrategy`: the scope in which a model is built and compiled."""

import contextlib
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Union, cast

import psutil

from keras_parallax.checkpoint import resume
from keras_parallax.compat import keras_api, loaded_keras3, session_config, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import job
from keras_parallax.engine.job.allowed_hosts import checked_networks
from keras_parallax.engine.job.server_layout import checked
from keras_parallax.engine.session import graph_scope as graph_scope_module
from keras_parallax.engine.step import dynamic_tables
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.updates import table_updates
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.errors import PlanError, ScopeError
from keras_parallax.framework_types import Model
from keras_parallax.keras2 import models
from keras_parallax.planning import architectures, plan_summary, row_fill, units
from keras_parallax.planning.architectures import ALLREDUCE, HYBRID, PS
from keras_parallax.planning.costs import NO_FP16
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import (
    Request,
    Timing,
    check_flag,
    check_mapping,
    check_row_dtype,
    check_timing,
    for_variables,
)
from keras_parallax.planning.search_request import check_search, requested_partitions

_open_strategy = None


class ParallaxStrategy:
    """Data-parallel training in which each variable is exchanged the cheaper way.

    Build and compile a model inside the scope; everything else is plain Keras. There `compile`
    wraps the optimizer as `ParallaxOptimizer(optimizer)`, unless it is wrapped already. Under
    `horovodrun` with several workers each starts a TensorFlow server, on which its shards of
    the sparse variables live. With one worker there is no server and no open port.

    Args:
        overrides: dict from names of layers (`'user'`) or of variables (`'user/embeddings'`) to
            `'dense'` or `'sparse'`, for variables whose automatic classification you want to
            override. A name of a layer holds for every model of the process that has the layer.
        architecture: `'hybrid'` puts sparse variables on servers and sends dense gradients through
            allreduce. `'allreduce'` has no servers: every worker holds everything, and gradients of
            tables are gathered row by row, or reduced as dense ones where `density` tells that it
            is cheaper. `'ps'` puts dense variables on servers too. `'auto'` begins as `'hybrid'`;
            once the density of ten batches is measured, it makes tables dense where an allreduce
            is cheaper. Then it measures some steps by each of the others, without losing any, and
            keeps the fastest.
        partitions: number of shards of every table, or a dict from names of layers or of variables
            to numbers; by default a shard on each server, or what the cost model says if `density`
            is given. `'search'` measures the first steps with several numbers, without losing any,
            and takes the best; the choice is kept for the next job of the same model on as many
            hosts. In a dict it is for those tables, which all get the number that is found.
        min_partitions: the least number of shards that a search tries and begins with: so many
            that the shards of a large table fit in the servers' memory.
        density: dict from names of layers or of tables to the fraction of the table's rows that a
            worker's batch touches, from 0 to 1.
        sync: whether the workers' gradients of a step are applied together. `False` applies each
            worker's gradients of what is on servers as they come: of everything with `'ps'`, of
            tables with `'hybrid'`, whose dense side stays synchronous. Faster where workers are
            unequal, but the numbers are no longer those of one process.
        max_staleness: with `sync=False`, how many steps a worker may be ahead of the slowest.
        step_timeout: seconds that a training step, or a wait for all workers, may last before the
            job is given up, with an error that names the worker that did not answer; 0 or `None`
            for any time, for debugging.
            Horovod itself gives up when a process has not answered for 30 seconds
            (`horovodrun --gloo-timeout-seconds`).
        local_aggregation: whether the workers of a host pull and push together in a training step,
            so that a row crosses the network once for all of them. It has an effect only where
            there are several workers on a host, several hosts, and `sync`.
        servers: where shards live; the same on every worker. `None`: on a server in each worker's
            process; `'host'`: only on those of the first worker of each host; a list of addresses
            `'host:port'`: on dedicated servers, each started by `keras-parallax server`.
        config: a `tf.ConfigProto` for this worker's sessions and its server: threads, memory of its
            card, graph options. What it leaves open is as the session's that Keras has by then
            (`keras.backend.set_session`), and then as Keras's default: soft placement; the card is
            that of the local rank, whose memory is taken as it is needed. A job has one: that of
            the first strategy.
        row_dtype: `'float16'` has servers keep the rows of all float32 tables in 16 bits, which
            halves their memory and what a pull sends; a step's sums are rounded up or down by
            chance, so that they are right in the mean. A dict from names of tables does so for some
            of them. The model, files and the optimizer's slots have float32 as ever, and so have
            tables that every worker holds. It needs an optimizer that moves single rows.
        allowed_networks: networks such as `'10.1.0.0/16'`, or addresses, that may connect to this
            job's servers besides the hosts of the job, for instance to debug with
            `tf.Session('grpc://...')`. `'0.0.0.0/0'` lets everybody connect. Those in the
            environment variable `KERAS_PARALLAX_ALLOWED_NETWORKS`, separated by commas, are added.
        require_private_servers: whether to raise `PublicServerError` where the operating system
            does not let this job close its servers to hosts outside the job. By default, a warning
            says so. Whoever connects to a TensorFlow server can run any graph there.

    Attributes:
        request: what was asked of the plan, a `plan_request.Request`.
        timing: `sync` and `max_staleness`, an `plan_request.Timing`.

    Raises:
        PlanError: the arguments do not go together, or are none of the above.
        ScopeError: a strategy's scope is entered inside another's or under eager execution, or the
            job has another `step_timeout` or `config` already; a model is compiled in the scope
            but on another graph, or after it and trained: with several workers or dedicated
            servers.
        ParallaxError: the job's servers cannot be started, or a host cannot reach another's.
        PublicServerError: `require_private_servers` is set, and a server cannot be closed.
        ServerLostError: a dedicated server is not there, or serves another job.

    Example:
        ```python
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([
        ...         keras.layers.InputLayer((1,), dtype='int32'),
        ...         keras.layers.Embedding(100, 4, name='words')])
        ...     model.compile('adagrad', 'mse')
        >>> strategy.plan(model)['words/embeddings'].kind
        'sparse'
        ```
    """

    def __init__(
        self,
        overrides: Optional[Dict[str, str]] = None,
        architecture: str = HYBRID,
        partitions: Union[None, int, str, Dict[str, Union[int, str]]] = None,
        min_partitions: Optional[int] = None,
        density: Optional[Dict[str, float]] = None,
        sync: bool = True,
        max_staleness: Optional[int] = None,
        step_timeout: Optional[float] = job.STEP_TIMEOUT_SECONDS,
        local_aggregation: bool = True,
        servers: Union[None, str, Sequence[str]] = None,
        config: Any = None,
        row_dtype: Union[None, str, Dict[str, str]] = None,
        allowed_networks: Union[None, str, Sequence[str]] = None,
        require_private_servers: bool = False,
    ) -> None:
        sync = check_flag('sync', sync)
        self.timing = Timing(sync, max_staleness)
        # Workers that do not wait for each other have nothing to push together.
        together = check_flag('local_aggregation', local_aggregation) and sync
        networks = None if allowed_networks is None else checked_networks(allowed_networks)
        is_required = check_flag('require_private_servers', require_private_servers)
        check_mapping('overrides', overrides, "'dense' or 'sparse'")
        check_mapping('density', density, 'fractions from 0 to 1')
        partitions = requested_partitions(partitions, min_partitions)
        self.request = Request(
            dict(overrides or {}), architecture, partitions, density, together, row_dtype
        )
        architectures.check(architecture)
        check_timing(architecture, self.timing)
        check_row_dtype(row_dtype, architecture, self.timing)
        check_search(partitions, architecture, self.timing.sync)
        if architecture == ALLREDUCE and checked(servers) is not None:
            raise PlanError(
                "servers is for shards, and architecture='allreduce' has none; leave one of the "
                'two out.'
            )
        is_time = isinstance(step_timeout, (int, float)) and step_timeout >= 0
        if step_timeout is not None and not is_time:
            raise PlanError(
                'step_timeout must be a number of seconds, 0 or more, or None, but %r was given.'
                % (step_timeout,)
            )
        if config is not None and not isinstance(config, tf.ConfigProto):
            raise PlanError('config is a tf.ConfigProto, not %r.' % (config,))
        unfit = session_config.unfit(config or tf.ConfigProto())
        if unfit:
            raise PlanError(
                "A strategy's sessions span the servers of all workers, so its config cannot set "
                '%s; leave that out.' % ' and '.join(unfit)
            )
        # Models of Keras 3 build no graph: the engine has one of its own.
        keras3 = _keras3_scope_module() if loaded_keras3.is_in_use() else None
        with keras3.GRAPH.as_default() if keras3 else contextlib.ExitStack():
            sessions = keras_api.open_sessions(tf.get_default_graph())
            configs = list(map(tensorflow_api.config_of, sessions))
            # What Keras uses counts most.
            earlier = [config for config in reversed(configs) if config is not None]
            self._job = job.start(step_timeout or 0, config, earlier, networks)
            if keras3:
                keras3.use_cards(self._job)
            models.install()
            self._server = self._servers = None
            if architecture != ALLREDUCE:
                self._server, self._servers = self._job.servers.serve(servers)
            self._job.privacy.report(is_required)
        self._stack: Optional[contextlib.ExitStack] = None
        self._graph_scope: Optional[graph_scope_module.GraphScope] = None
        self._keras3: Any = None
        if keras3:
            self._keras3 = keras3.Keras3Scope(self, self._job, self.request)
            self._keras3.check_options(self.timing, servers)

    def __repr__(self) -> str:
        return '<ParallaxStrategy: %s, rank %d of %d>' % (
            self.request.architecture,
            self.rank,
            self.size,
        )

    @property
    def rank(self) -> int:
        """This worker's number in the job, from 0."""
        return self._job.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._job.size

    @property
    def local_rank(self) -> int:
        """This worker's number on its host, from 0."""
        return self._job.local_rank

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, the one that prints and saves."""
        return self.rank == 0

    def scope(self) -> 'ParallaxStrategy':
        """The scope as a context manager: `with strategy.scope():` is `with strategy:`."""
        return self

    def __enter__(self) -> 'ParallaxStrategy':
        global _open_strategy
        if _open_strategy is not None:
            raise ScopeError(
                'A ParallaxStrategy is open already; leave its scope before entering another, or '
                'build both models in one scope.'
            )
        if self._keras3 is not None:
            _open_strategy = self
            self._keras3.__enter__()
            return self
        self._enter_graph()
        _open_strategy = self
        return self

    def _enter_graph(self) -> None:
        graph_scope_module.require_graph()
        graph = tf.get_default_graph()
        graph_scope = graph_scope_module.attach(graph, self._job, self._server, self._servers)
        graph_scope.sessions.hand_to_keras()
        if graph_scope.server and self.request.architecture == PS:
            graph_scope.sessions.use_server()
        stack = contextlib.ExitStack()
        stack.enter_context(graph_scope.opened_by(self))
        self._stack, self._graph_scope = stack, graph_scope

    def __exit__(self, *error: Any) -> None:
        global _open_strategy
        _open_strategy = None
        if self._keras3 is not None:
            self._keras3.__exit__(*error)
            return
        self._leave_graph(*error)

    def _leave_graph(self, *error: Any) -> None:
        graph_scope = self._graph_scope
        is_same = graph_scope is not None and tf.get_default_graph() is graph_scope.graph
        if graph_scope is not None and is_same and not any(error):
            graph_scope.expect_tables()
        if self._stack is not None:
            self._stack.close()
        self._stack = self._graph_scope = None

    @contextlib.contextmanager
    def engine_scope(self, request: Optional[Request] = None) -> Iterator[None]:
        """While open, what is built on the engine's graph is of this strategy; for Keras 3.

        Args:
            request: what is asked of the plan of what is built, if it is not `self.request`.
        """
        former, self.request = self.request, request or self.request
        self._enter_graph()
        try:
            yield
        except BaseException as error:
            self._leave_graph(error)
            raise
        else:
            self._leave_graph()
        finally:
            self.request = former

    def resume(
        self, model: Model, path: Optional[str], show_progress: Optional[bool] = None
    ) -> int:
        """Gives a model the state that a job has saved. A collective call.

        The job that saved may have had another number of workers or shards.

        Args:
            model: the model, compiled in this strategy's scope as it was when it was saved.
            path: a checkpoint of `kp.callbacks.ModelCheckpoint`, or a file that `model.save`
                wrote, with keras-parallax or with plain Keras; `None`, as `kp.latest_checkpoint`
                returns it, changes nothing. That of rank 0 counts.
            show_progress: whether to show a progress bar; if `None`, for large tables on a
                terminal.

        Returns:
            The number of epochs that are over, for `model.fit(initial_epoch=...)`. If the
            checkpoint was saved within an epoch, that `fit` goes on within it.

        Raises:
            CheckpointError: the checkpoint is incomplete, damaged or of another model.

        Example:
            ```python
            >>> import os, tempfile, keras, keras_parallax as kp
            >>> path = os.path.join(tempfile.mkdtemp(), 'model.h5')
            >>> with kp.ParallaxStrategy() as strategy:
            ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
            ...     model.compile(kp.ParallaxOptimizer('adam'), 'mse')
            >>> loss = model.train_on_batch([[1, 2]], [[3]])
            >>> model.save(path)
            >>> strategy.resume(model, path)
            0
            ```
        """
        _require_built(model)
        with self._job.call('strategy.resume'):
            if self._keras3 is not None:
                return cast(int, self._keras3.resume(model, path))
            return resume.resume(model, path, show_progress=show_progress)

    def plan(self, model: Model) -> Plan:
        """The plan of a compiled model.

        Args:
            model: a Keras model, compiled in this strategy's scope.

        Returns:
            A `Plan`: a `PlannedVariable` for each trainable variable; `as_data()` gives plain data,
            `to_html()` a page to look at, which is also what a notebook shows.
            It is computed on this worker alone. Once the model has trained, it is the plan that is
            followed, with the densities that were measured in the first steps, and how full the
            tables of each `DynamicEmbedding` are.

        Raises:
            ScopeError: the model is not compiled, was compiled outside the scope, or gets its
                weights with its first batch and has had none.
            PlanError: an override cannot be followed, or the optimizer cannot do `'lazy'` updates,
                or not those of rows of 16 bits.
        """
        if self._keras3 is not None:
            from keras_parallax.keras3 import plans

            return plans.plan_of(model, self._keras3)._replace(model=model.name)
        _require_built(model)
        loss = getattr(model, 'total_loss', None)
        graph_scope = graph_scope_module.scope_of(loss.graph) if loss is not None else None
        if graph_scope is None or graph_scope.strategy_of(loss) is not self:
            raise ScopeError(
                'Compile the model inside `with strategy:` before asking for its plan.'
            )
        variables = keras_api.trained_weights(model)
        layers = loss_analysis.layers_of(variables, graph_scope.records)
        step = getattr(model.optimizer, '_parallax_step', None)
        settings = getattr(model.optimizer, '_parallax_settings', None)
        if step is not None and step.spec.loss is loss:
            plan = row_fill.with_fills(step.plan, dynamic_tables.fills_of(step))
        else:
            plan = loss_analysis.plan_model(
                loss,
                variables,
                graph_scope,
                for_variables(self.request, layers),
                settings.fp16 if settings else NO_FP16,
                adapter_of(model.optimizer).reach if settings else None,
                settings.accumulate_steps if settings else 1,
                adapter_of(model.optimizer) if settings else None,
            )
        plan = plan._replace(model=model.name)
        if settings is None:
            return plan
        names = [planned.name for planned in plan.variables]
        way = settings.sparse_update, settings.tables._replace(layers=layers)
        records = graph_scope.records
        table_updates.require_row_rules(plan, model.optimizer, way, variables, records)
        return plan.with_updates(
            table_updates.updates_of(
                model.optimizer,
                way,
                dict(zip(names, variables)),
                {planned.name for planned in plan.variables if planned.kind == 'sparse'},
                records,
                {planned.name for planned in plan.variables if planned.row_mask},
            )
        )

    def summary(
        self,
        model: Model,
        print_fn: Optional[Callable[[str], Any]] = None,
        bandwidth: Optional[str] = None,
        host_memory: Optional[str] = None,
    ) -> None:
        """Prints the plan of a compiled model: where each variable goes, why, and what it costs.

        Args:
            model: a Keras model, compiled in this strategy's scope.
            print_fn: function that takes the text; `print` if `None`.
            bandwidth: of a host's link, for the predicted time of a step: a string such as
                `'10Gbit'`, which is the default.
            host_memory: of each host, such as `'64GiB'`; as much as this one has if `None`. The
                text says which hosts would need more.

        Raises:
            ScopeError, PlanError: as `plan`; or `bandwidth` is no bandwidth, `host_memory` no size.
        """
        rate = None if bandwidth is None else units.parse_bandwidth(bandwidth)
        size = units.parse_size(host_memory) if host_memory else psutil.virtual_memory().total
        text = plan_summary.format_summary(self.plan(model), rate, size)
        (print_fn or print)(text)


def _keras3_scope_module() -> Any:
    """The module of the scopes for Keras 3, whose methods are replaced."""
    # Only now: they import Keras 3, and its backend.
    from keras_parallax.keras3 import models as keras3_models
    from keras_parallax.keras3 import scope

    keras3_models.install()
    return scope


def _require_built(model: Model) -> None:
    if getattr(model, 'optimizer', None) is not None and not model.built:
        raise ScopeError(
            'The model gets its weights with its first batch; give its first layer an input_shape, '
            'or train it on a batch first.'
        )
