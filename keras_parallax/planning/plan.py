# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan: for every trainable variable its class, its shards and their servers. Pure data."""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, cast

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures, costs, memory, placement, predict, verdict
from keras_parallax.planning import classify as rules
from keras_parallax.planning.architecture_trials import Trials
from keras_parallax.planning.memory import HostMemory
from keras_parallax.planning.plan_request import (
    check_density,
    check_names,
    check_narrow_tables,
    check_partitions,
    is_table,
    row_dtype_of,
)
from keras_parallax.planning.planned_variables import PlannedVariable as PlannedVariable
from keras_parallax.planning.planned_variables import Shard
from keras_parallax.planning.planned_variables import Update as Update
from keras_parallax.planning.predict import Prediction
from keras_parallax.planning.search_request import Search


class Basis(NamedTuple):
    """What a plan was made from, beside what it says itself: arguments of `make_plan`."""

    uses: Tuple[rules.VariableUse, ...]
    servers: int
    overrides: Mapping[str, str]
    partitions: Any
    reach: rules.Reach
    row_dtype: Any = None


class _NoSuchVariableError(PlanError, KeyError):
    """A plan was asked for a variable that it has not, which is a `KeyError`, too."""

    # That of a `KeyError` puts the sentence between quotes.
    __str__ = Exception.__str__


class Plan(NamedTuple):
    """The plan of one model: a `PlannedVariable` for each trainable variable, in Keras's order.

    Attributes:
        variables: the `PlannedVariable`s.
        servers: number of servers.
        requested: the architecture that was asked for.
        cluster: the `costs.Cluster` that it is for; `None` if every worker works for itself.
        fp16: `costs.Fp16`: what travels in half precision.
        basis: the `Basis` from which it was made.
        trials: the `architecture_trials.Trials` of a job that tries architectures, or has.
        model: the name of the model, `None` if it is not known.
    """

    variables: Tuple[PlannedVariable, ...]
    servers: int
    requested: str = architectures.HYBRID
    cluster: Optional[costs.Cluster] = None
    fp16: costs.Fp16 = costs.NO_FP16
    basis: Optional[Basis] = None
    trials: Optional[Trials] = None
    model: Optional[str] = None

    def __repr__(self) -> str:
        kinds = [variable.kind for variable in self.variables]
        numbers = len(kinds), kinds.count(rules.SPARSE), self.servers
        return '<Plan: %s, variables: %d, sparse: %d, servers: %d>' % (self.architecture, *numbers)

    @property
    def architecture(self) -> str:
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

    def predict(self, bandwidth: Optional[float] = None) -> Optional[Prediction]:
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

    def verdict(self, bandwidth: Optional[float] = None) -> Optional[str]:
        """Says in one sentence which architecture is fastest from how many hosts on.

        Args:
            bandwidth: as in `predict`.

        Returns:
            The sentence, at most 120 characters, or `None` if one worker holds everything.
        """
        return verdict.verdict(self, bandwidth)

    def memory(self) -> List[HostMemory]:
        """Predicts the memory of each host: a list of `memory.HostMemory`s, in bytes."""
        return memory.of_hosts(self)

    def to_html(
        self, bandwidth: Optional[float] = None, host_memory: Optional[float] = None
    ) -> str:
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
        from keras_parallax.planning import plan_page

        return plan_page.to_html(self, bandwidth, host_memory)

    def _repr_html_(self) -> str:
        """What a notebook shows: the page in a frame, whose styles are not the notebook's."""
        from keras_parallax.planning import plan_page

        return plan_page.in_frame(self.to_html())

    def with_updates(self, updates: Mapping[str, Optional[Update]]) -> 'Plan':
        """The plan with `Update`s of its variables, a dict by name."""
        variables = [
            planned._replace(update=updates.get(planned.name, planned.update))
            for planned in self.variables
        ]
        return self._replace(variables=tuple(variables))

    def for_cluster(self, cluster: costs.Cluster, architecture: Optional[str] = None) -> 'Plan':
        """The plan of the same model on another cluster.

        Args:
            cluster: a `costs.Cluster`. As many servers as on a host of this one's are on each of
                its hosts; dedicated ones are as many.
            architecture: as of `make_plan`; what was asked for if `None`.

        Raises:
            PlanError: what was asked for cannot be, for instance with this architecture.
        """
        architecture = architecture or self.requested
        basis = cast(Basis, self.basis)  # `make_plan` sets it.
        uses, servers, overrides, partitions, reach, row_dtype = basis
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
                planned.name: planned.density
                for planned in self.variables
                if planned.name in tables and planned.density is not None
            },
            cluster.local_aggregation,
            cluster,
            self.fp16,
            reach,
            row_dtype,
        )
        return plan.with_updates({planned.name: planned.update for planned in self.variables})

    def as_followed(
        self,
        shards: Mapping[str, Tuple[Shard, ...]],
        density: Mapping[str, float],
        trials: Optional[Trials] = None,
    ) -> 'Plan':
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
                planned = planned._replace(density=density[planned.name], measured=True)
            variables.append(planned)
        requested = architectures.AUTO if trials else self.requested
        return self._replace(variables=tuple(variables), requested=requested, trials=trials)

    def __getitem__(self, name: Any) -> Any:
        """The `PlannedVariable` called `name`; of a number, the field at that index."""
        if isinstance(name, str):
            for variable in self.variables:
                if variable.name == name:
                    return variable
            raise _NoSuchVariableError(
                'The plan has no variable %s; it has %s.'
                % (name, ', '.join(variable.name for variable in self.variables) or 'none')
            )
        return tuple.__getitem__(self, name)

    def as_data(self, bandwidth: Optional[float] = None) -> Dict[str, Any]:
        """The plan and its prediction as plain dicts, lists and numbers, for `json.dumps`.

        Args:
            bandwidth: as in `predict`.
        """
        return {
            'model': self.model,
            'verdict': self.verdict(bandwidth),
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


def plain(value: Any) -> Any:
    """A value with its NamedTuples as dicts, for `json.dumps`.

    The density of a variable is called `alpha` there, as in the files that people have.
    """
    former = {'density': 'alpha'} if isinstance(value, PlannedVariable) else {}
    if hasattr(value, '_asdict'):
        value = value._asdict()
    if isinstance(value, dict):
        return {former.get(name, name): plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def make_plan(
    uses: Sequence[rules.VariableUse],
    servers: int = 0,
    overrides: Optional[Mapping[str, str]] = None,
    architecture: str = architectures.HYBRID,
    partitions: Any = None,
    density: Optional[Mapping[str, float]] = None,
    local_aggregation: bool = True,
    cluster: Optional[costs.Cluster] = None,
    fp16: costs.Fp16 = costs.NO_FP16,
    reach: rules.Reach = rules.ANY_ROWS,
    row_dtype: Any = None,
) -> Plan:
    """Decides the class and the place of every variable of a model.

    A table whose regularizer or constraint reaches over the whole table stays in one piece, so
    that its owner can compute it with no traffic. Every other table is split evenly, by default
    with a shard on each server; where its density is known, the cost model chooses the number
    (`placement.shard_count`) and shards are placed by bytes and by traffic. Split tables of as
    many rows that are looked up with the same ids get the same servers in the same order, so that
    their rows travel together.

    Args:
        uses: a list of `VariableUse`s.
        servers: number of servers; 0 when every worker holds everything.
        overrides: dict from variable names to `'dense'` or `'sparse'`, or `None`.
        architecture: `'hybrid'`; `'allreduce'`: no servers, so every table is gathered or reduced,
            whichever is cheaper; `'ps'`: dense variables on servers too; `'auto'`: tables that are
            cheaper as dense variables become dense.
        partitions: number of shards of every table, or a dict from variable names to numbers, or
            `None` to choose, or a `search_request.Search` of which nothing is found yet. No
            variable gets more shards than it has rows.
        density: dict from names of tables to the fraction of rows that a worker's batch touches,
            or `None`.
        local_aggregation: whether a row that several workers of a host touch crosses the network
            once for all of them, if `cluster` says so too.
        cluster: the `costs.Cluster`, or `None`: a host for each server.
        fp16: `costs.Fp16`: what travels in half precision.
        reach: the `classify.Reach` of the optimizer's formula. What it updates as a whole stays in
            one piece, and if it mixes variables every worker holds them all.
        row_dtype: `'float16'` to have servers keep the rows of all float32 tables so, or a dict
            from names of tables, or `None`. What every worker holds has its own dtype in any case.

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
        touched = density.get(use.name) if is_table(use) and not use.whole_reads else 1.0
        if kind == rules.SPARSE:
            reason += _why_not_split(use, reach)
        own = use.name, use.shape, use.dtype, kind, reason, (), touched
        narrow = narrow if kind == rules.SPARSE else None
        planned.append(PlannedVariable(*own, row_dtype=narrow, row_mask=use.row_mask))
    if servers and cluster:
        view = cluster.for_decisions()
        planned = placement.with_shards(
            uses, planned, servers, architecture, partitions, view, fp16
        )
    return Plan(tuple(planned), servers, architecture, cluster, fp16, basis)


def _check_together(architecture: str, partitions: Any, reach: rules.Reach) -> None:
    is_open = isinstance(partitions, Search) and partitions.chosen is None
    if architecture == architectures.PS or not (partitions is None or is_open):
        asked = "architecture='ps'" if architecture == architectures.PS else 'partitions'
        raise PlanError(
            '%s puts variables on servers, but every worker must hold them all: %s. Leave it out, '
            'or use another optimizer.' % (asked, reach.together)
        )


def _why_not_split(use: rules.VariableUse, reach: rules.Reach) -> str:
    if reach.together:
        return '; held by every worker, for %s' % reach.together
    return '; in one piece, for %s' % reach.reason if use.name in reach.whole else ''


def _class_of(
    use: rules.VariableUse,
    overrides: Mapping[str, str],
    architecture: str,
    density: Mapping[str, float],
    cluster: Optional[costs.Cluster],
    fp16: costs.Fp16,
    narrow: Optional[str],
) -> rules.Class:
    natural = rules.classify(use, overrides.get(use.name))
    if natural.kind == rules.DENSE or use.name in overrides or use.on_shards:
        return natural
    touched = density.get(use.name)
    return architectures.choose(use, natural, architecture, touched, cluster, fp16, narrow)
