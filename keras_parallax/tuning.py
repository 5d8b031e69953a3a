"""What a job learns from its first steps, and does about it: densities, numbers of shards."""

from keras_parallax import density, partition_search, roads
from keras_parallax.classify import SPARSE


class Tuning:
    """Measures the steps of a `TrainStep` and has it follow a better plan.

    Args:
        step: the `TrainStep`.
    """

    def __init__(self, step):
        self._step = step
        self._meter = self._search = None

    @property
    def counters(self):
        """The variables of the measurement that is under way, to be initialized."""
        return [self._meter.variable] if self._meter is not None else []

    def measure(self, request, tables, touched):
        """Has the density of the tables measured, if the plan is to depend on it.

        Args:
            request: the `plan.Request` that the step follows.
            tables: the `Table`s.
            touched: dict from names of tables to the numbers of different rows in a batch.

        Returns:
            A list of operations for every step.
        """
        rows = {table.name: table.rows for table in tables if table.by_row}
        if request.architecture != roads.AUTO or request.density is not None or not rows:
            return []
        self._meter = density.DensityMeter(touched, rows, self._step.rank)
        return [self._meter.operation]

    def search_partitions(self, plan, report, cluster):
        """Begins the search for the number of shards, or takes the choice of an earlier job.

        Args:
            plan: the `Plan` that the step follows.
            report: its `fingerprint.model_report`.
            cluster: the `costs.Cluster`.
        """
        tables = [planned for planned in plan.variables if planned.kind == SPARSE]
        if not tables:
            return
        step, key = self._step, partition_search.cache_key(report, cluster)
        known = step.gather(partition_search.remembered(key))[0]
        start = max(len(planned.shards) for planned in tables)
        if known is not None:
            if known != start:
                step.replan(step.request._replace(partitions=known))
            return
        self._search = partition_search.PartitionSearch(
            step,
            start=start,
            most=max(planned.rows for planned in tables),
            gather=step.gather,
            key=key,
            tell=print if step.rank == 0 else None,
        )

    def after_run(self, session, seconds):
        """Takes note of a training step. A collective call when there is something to be done.

        Args:
            session: the session that ran it.
            seconds: how long it took.
        """
        if self._meter is not None and self._meter.after_step():
            found = self._meter.density(session, self._step.gather)
            self._meter = None
            self._step.replan(self._step.request._replace(density=found))
        elif self._search is not None and not self._search.after_step(seconds):
            self._search = None
