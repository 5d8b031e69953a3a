"""The plan: for every trainable variable its class, its shards and their servers. Pure data."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures, costs, memory, placement, predict
from keras_parallax.planning import classify as rules
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.request import (
    check_density,
    check_names,
    check_narrow_tables,
    check_partitions,
    is_table,
    row_dtype_of,
)
from keras_parallax.planning.row_fill import RowFill
from keras_parallax.planning.search import Search
from keras_parallax.planning.trials import Trials
from keras_parallax.planning.units import counted, numbered


class Update(NamedTuple):
    """How a variable is updated.

    Attributes:
        words: in words.
        whole: whether all of its rows are rewritten every step.
        slots: how many times the variable's size its slots have, `None` if it is not known.
    """

    words: str
    whole: bool = False
    slots: Optional[float] = None


class PlannedVariable(NamedTuple):
    """What the plan says of one variable.

    Attributes:
        name: the variable's name without `:0`.
        shape: its shape.
        dtype: its dtype's name.
        kind: `'dense'` or `'sparse'`.
        reason: why, in words.
        shards: the `Shard`s of a variable on servers; empty for a variable that every rank
            holds.
        alpha: the fraction of its rows that a worker's batch touches, `None` if it is not known;
            1 for what is read whole.
        measured: whether `alpha` was counted in batches of the job.
        update: the `Update` by which the optimizer moves it, `None` if no optimizer is known.
        count_reason: why it has as many shards, in words; empty if it has none.
        fill: the `RowFill` of a table whose rows are given to ids, once it trains; else `None`.
        row_dtype: the dtype's name in which servers are to keep its rows; `None` for its own.
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    kind: str
    reason: str
    shards: Tuple[Shard, ...] = ()
    alpha: Optional[float] = None
    measured: bool = False
    update: Optional[Update] = None
    count_reason: str = ''
    fill: Optional[RowFill] = None
    row_dtype: Optional[str] = None

    @property
    def rows(self):
        """Its number of rows; a scalar has one."""
        return self.shape[0] if self.shape else 1

    @property
    def exchange(self):
        """How it is exchanged: through `'servers'`, by `'allgather'` or by `'allreduce'`."""
        if self.shards:
            return 'servers'
        return 'allgather' if self.kind == rules.SPARSE else 'allreduce'

    @property
    def bytes(self):
        """Size of the variable in bytes, as the model sees it."""
        return self._bytes_of(self.dtype)

    @property
    def stored_dtype(self):
        """The dtype's name of what holds it: with shards, that of its rows on servers."""
        return self.row_dtype if self.shards and self.row_dtype else self.dtype

    @property
    def stored_bytes(self):
        """Size in bytes of what holds it."""
        return self._bytes_of(self.stored_dtype)

    def _bytes_of(self, dtype):
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    @property
    def place(self):
        """Where the variable lives, in words."""
        if not self.shards:
            return 'on every rank'
        servers = sorted({shard.server for shard in self.shards})
        words = '%s on %s' % (counted(len(self.shards), 'shard'), numbered('server', servers))
        if self.stored_dtype != self.dtype:
            words += ', rows of %d bits' % (8 * np.dtype(self.stored_dtype).itemsize)
        return words


class Basis(NamedTuple):
    """What a plan was made from, beside what it says itself: arguments of `make_plan`."""

    uses: Tuple[rules.VariableUse, ...]
    servers: int
    overrides: Mapping
    partitions: Any
    reach: rules.Reach
    row_dtype: Any = None


class Plan(NamedTuple):
    """The plan of one model: a `PlannedVariable` for each trainable variable, in Keras's order.

    Attributes:
        variables: the `PlannedVariable`s.
        servers: number of servers.
        requested: the architecture that was asked for.
        cluster: the `costs.Cluster` that it is for; `None` if every rank works for itself.
        fp16: `costs.Halved`: what travels in half precision.
        basis: the `Basis` from which it was made.
        trials: the `trials.Trials` of a job that tries architectures, or has.
    """

    variables: Tuple[PlannedVariable, ...]
    servers: int
    requested: str = architectures.HYBRID
    cluster: Optional[costs.Cluster] = None
    fp16: costs.Halved = costs.NOTHING_HALVED
    basis: Optional[Basis] = None
    trials: Optional[Trials] = None

    @property
    def architecture(self):
        """What the plan comes to.

        `'allreduce'` or `'ps'` if asked for, or if a job that tries architectures follows it;
        otherwise `'hybrid'`, or `'allreduce'` when nothing is sparse, or `'ps'` when nothing is
        dense.
        """
        followed = self.trials.following if self.trials else self.requested
        if followed in (architectures.ALLREDUCE, architectures.PS):
            return followed
        kinds = {variable.kind for variable in self.variables}
        if rules.SPARSE not in kinds:
            return 'allreduce'
        return 'hybrid' if rules.DENSE in kinds else 'ps'

    def predict(self, bandwidth=None):
        """Predicts what a step costs: bytes, load of the servers, time on the network.

        Args:
            bandwidth: of a host's link, in bytes per second; the cluster's if `None`.

        Returns:
            A `predict.Prediction`, or `None` if one worker holds everything. Of a job on one host,
            the workers are counted as if each were a host.
        """
        if self.cluster is None:
            return None
        if self.cluster.workers == 1 and not self.cluster.dedicated_servers:
            return None
        cluster = self.cluster.for_decisions()
        if bandwidth is not None:
            cluster = cluster._replace(bandwidth=bandwidth)
        return predict.predict(self, cluster, self.fp16)

    def memory(self):
        """Predicts the memory of each host: a list of `memory.HostMemory`s, in bytes."""
        return memory.of_hosts(self)

    def to_html(self, bandwidth=None, host_memory=None):
        """The plan as a page to look at, which needs nothing else: no network, no files.

        It has a table of the variables, largest first, with the reason for each decision, a
        picture of the shards on their servers, the predicted step against the number of hosts, by
        each architecture, and the memory of each host.

        Args:
            bandwidth: as in `predict`.
            host_memory: bytes of memory that a host has; the page says which hosts need more.

        Returns:
            A string: a whole document of HTML, in UTF-8.
        """
        # Only now: a job does not draw.
        from keras_parallax.planning import page

        return page.to_html(self, bandwidth, host_memory)

    def _repr_html_(self):
        """What a notebook shows: the page in a frame, whose styles are not the notebook's."""
        from keras_parallax.planning import page

        return page.in_frame(self.to_html())

    def with_updates(self, updates):
        """The plan with `Update`s of its variables, a dict by name."""
        variables = [
            planned._replace(update=updates.get(planned.name, planned.update))
            for planned in self.variables
        ]
        return self._replace(variables=tuple(variables))

    def for_cluster(self, cluster, architecture=None):
        """The plan of the same model on another cluster.

        Args:
            cluster: a `costs.Cluster`. As many servers as on a host of this one's are on each of
                its hosts; dedicated ones are as many.
            architecture: as of `make_plan`; what was asked for if `None`.

        Raises:
            PlanError: what was asked for cannot be, for instance with this architecture.
        """
        architecture = architecture or self.requested
        uses, servers, overrides, partitions, reach, row_dtype = self.basis
        tables = {use.name for use in uses if is_table(use)}
        if not cluster.dedicated_servers:
            hosts = self.cluster.hosts if self.cluster else 1
            servers = (servers // hosts or cluster.workers_per_host) * cluster.hosts
        if isinstance(partitions, Search) or architecture == architectures.ALLREDUCE:
            partitions = None
        plan = make_plan(
            uses,
            servers if cluster.workers > 1 or cluster.dedicated_servers else 0,
            overrides,
            architecture,
            partitions,
            {
                planned.name: planned.alpha
                for planned in self.variables
                if planned.name in tables and planned.alpha is not None
            },
            cluster.local_aggregation,
            cluster,
            self.fp16,
            reach,
            row_dtype,
        )
        return plan.with_updates({planned.name: planned.update for planned in self.variables})

    def as_followed(self, shards, density, trials=None):
        """The plan with the shards that variables have now, and the densities measured, by name.

        With `trials`, it is one of those that were tried.
        """
        variables = []
        for planned in self.variables:
            own = shards.get(planned.name, ())
            reason = planned.count_reason
            if len(own) != len(planned.shards):
                reason = 'of those that were tried, the fastest' if own else ''
            planned = planned._replace(shards=own, count_reason=reason)
            if planned.name in density:
                planned = planned._replace(alpha=density[planned.name], measured=True)
            variables.append(planned)
        requested = architectures.AUTO if trials else self.requested
        return self._replace(variables=tuple(variables), requested=requested, trials=trials)

    def __getitem__(self, name):
        """The `PlannedVariable` called `name`; of a number, the field at that index."""
        if isinstance(name, str):
            for variable in self.variables:
                if variable.name == name:
                    return variable
            raise KeyError(name)
        return tuple.__getitem__(self, name)

    def as_data(self, bandwidth=None):
        """The plan and its prediction as plain dicts, lists and numbers, for `json.dumps`.

        Args:
            bandwidth: as in `predict`.
        """
        return {
            'architecture': self.architecture,
            'requested': self.requested,
            'trials': plain(self.trials),
            'servers': self.servers,
            'cluster': plain(self.cluster),
            'fp16': plain(self.fp16),
            'prediction': plain(self.predict(bandwidth)),
            'memory': [dict(plain(host), total=host.total) for host in self.memory()],
            'variables': [
                dict(
                    plain(planned),
                    bytes=planned.bytes,
                    stored_bytes=planned.stored_bytes,
                    exchange=planned.exchange,
                    place=planned.place,
                )
                for planned in self.variables
            ],
        }


def plain(value):
    """A value with its NamedTuples as dicts, for `json.dumps`."""
    if hasattr(value, '_asdict'):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def make_plan(
    uses,
    servers=0,
    overrides=None,
    architecture=architectures.HYBRID,
    partitions=None,
    density=None,
    local_aggregation=True,
    cluster=None,
    fp16=costs.NOTHING_HALVED,
    reach=rules.ANY_ROWS,
    row_dtype=None,
):
    """Decides the class and the place of every variable of a model.

    A table whose regularizer or constraint reaches over the whole table stays in one piece, so
    that its owner can compute it with no traffic. Every other table is split evenly, by default
    with a shard on each server; where its density is known, the cost model chooses the number
    (`placement.shard_count`) and shards are placed by bytes and by traffic. Split tables of as
    many rows that are looked up with the same ids get the same servers in the same order, so that
    their rows travel together.

    Args:
        uses: a list of `VariableUse`s.
        servers: number of servers; 0 when every rank holds everything.
        overrides: dict from variable names to `'dense'` or `'sparse'`, or `None`.
        architecture: `'hybrid'`; `'allreduce'`: no servers, so every table is gathered or reduced,
            whichever is cheaper; `'ps'`: dense variables on servers too; `'auto'`: tables that are
            cheaper as dense variables become dense.
        partitions: number of shards of every table, or a dict from variable names to numbers, or
            `None` to choose, or a `search.Search` of which nothing is found yet. No variable gets
            more shards than it has rows.
        density: dict from names of tables to the fraction of rows that a worker's batch touches,
            or `None`.
        local_aggregation: whether a row that several workers of a host touch crosses the network
            once for all of them, if `cluster` says so too.
        cluster: the `costs.Cluster`, or `None`: a host for each server.
        fp16: `costs.Halved`: what travels in half precision.
        reach: the `classify.Reach` of the optimizer's formula. What it updates as a whole stays in
            one piece, and if it mixes variables every rank holds them all.
        row_dtype: `'float16'` to have servers keep the rows of all float32 tables so, or a dict
            from names of tables, or `None`. What every rank holds has its own dtype in any case.

    Returns:
        A `Plan`.

    Raises:
        PlanError: an argument names no variable, or asks for what cannot be.
    """
    overrides, density = dict(overrides or {}), dict(density or {})
    basis = Basis(tuple(uses), servers, overrides, partitions, reach, row_dtype)
    architectures.check(architecture)
    check_names('overrides', overrides, uses)
    check_names('density', density, uses)
    uses = [
        use._replace(formula=rules.WHOLE_TABLE) if use.name in reach.whole else use for use in uses
    ]
    if servers and architecture != architectures.ALLREDUCE and reach.together:
        _check_together(architecture, partitions, reach)
        servers = 0
    check_partitions(partitions, uses, architecture, overrides)
    check_density(density, uses)
    check_narrow_tables(row_dtype, uses, overrides)
    cluster = cluster or (costs.Cluster(hosts=servers) if servers else None)
    if cluster and not local_aggregation:
        cluster = cluster._replace(local_aggregation=False)
    if architecture == architectures.ALLREDUCE:
        servers = 0
    planned = []
    for use in uses:
        narrow = row_dtype_of(use, row_dtype)
        kind, reason = _class_of(use, overrides, architecture, density, cluster, fp16, narrow)
        alpha = density.get(use.name) if is_table(use) else 1.0
        if kind == rules.SPARSE:
            reason += _why_not_split(use, reach)
        own = use.name, use.shape, use.dtype, kind, reason, (), alpha
        planned.append(PlannedVariable(*own, row_dtype=narrow if kind == rules.SPARSE else None))
    if servers:
        view = cluster.for_decisions()
        planned = placement.with_shards(
            uses, planned, servers, architecture, partitions, view, fp16
        )
    return Plan(tuple(planned), servers, architecture, cluster, fp16, basis)


def _check_together(architecture, partitions, reach):
    is_open = isinstance(partitions, Search) and partitions.chosen is None
    if architecture == architectures.PS or not (partitions is None or is_open):
        asked = "architecture='ps'" if architecture == architectures.PS else 'partitions'
        raise PlanError(
            '%s puts variables on servers, but every rank must hold them all: %s. Leave it out, or '
            'use another optimizer.' % (asked, reach.together)
        )


def _why_not_split(use, reach):
    if reach.together:
        return '; held by every rank, for %s' % reach.together
    return '; in one piece, for %s' % reach.reason if use.name in reach.whole else ''


def _class_of(use, overrides, architecture, density, cluster, fp16, narrow):
    natural = rules.classify(use, overrides.get(use.name))
    if natural.kind == rules.DENSE or use.name in overrides:
        return natural
    alpha = density.get(use.name)
    return architectures.choose(use, natural, architecture, alpha, cluster, fp16, narrow)
