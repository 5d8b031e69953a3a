"""What a job learns from its first steps, and does about it: densities, places, shard numbers."""

from keras_parallax.errors import PlanError
from keras_parallax.planning import architectures, predict
from keras_parallax.planning import request as request_module
from keras_parallax.planning.classify import SPARSE
from keras_parallax.step import density, partition_search
from keras_parallax.updates.optimizer_adapter import adapter_of

#: Shards move if this fraction of the busiest server's share of the row traffic is taken off it.
#: To move them, training stops for about a second, in which the step is built anew and rows are
#: copied. Ten batches tell a density within some per cent, so what looks like less may be nothing.
WORTH_MOVING = 0.2


class Tuning:
    """Measures the steps of a `TrainStep` and has it follow a better plan.

    Args:
        step: the `TrainStep`.

    Attributes:
        density: dict from names of tables to the densities that were measured.
    """

    def __init__(self, step):
        self._step = step
        self._meter = self._search = None
        self.density = {}

    @property
    def counters(self):
        """The variables of the measurement that is under way, to be initialized."""
        return [self._meter.variable] if self._meter is not None else []

    def measure(self, tables, touched):
        """Has the density of the tables measured, but for what is known.

        Args:
            tables: the `Table`s of a step.
            touched: dict from names of tables to the numbers of different rows in a batch.

        Returns:
            A list of operations for every step.
        """
        known = dict(self._step.request.density or {}, **self.density)
        rows = {
            table.name: table.rows for table in tables if table.by_row and table.name not in known
        }
        if not rows:
            return []
        touched = {name: touched[name] for name in rows}
        self._meter = density.DensityMeter(touched, rows, self._step.rank)
        return [self._meter.operation]

    def check(self, optimizer):
        """Refuses to move tables with an optimizer whose slots cannot follow them.

        Args:
            optimizer: the wrapped Keras optimizer.

        Raises:
            PlanError: its slots are not told apart, and the strategy searches for a number of
                shards, or makes tables dense after measuring them.
        """
        step = self._step
        if step.state is not None or not step.has_shards:
            return
        if step.asked.partitions == request_module.SEARCH:
            moves, instead = "partitions='search'", '`partitions` as a number'
        elif step.asked.architecture == architectures.AUTO and self._meter is not None:
            moves, instead = "architecture='auto'", '`density` for every table'
        else:
            return
        raise PlanError(
            '%s moves tables while they train, but the slots of %s are not told apart, so they '
            "cannot move along; use an optimizer of Keras's own or of TensorFlow's, or give %s."
            % (moves, adapter_of(optimizer).name, instead)
        )

    def search_partitions(self, plan, report, cluster):
        """Begins the search for the number of shards, or takes the choice of an earlier job.

        Args:
            plan: the `Plan` that the step follows.
            report: its `agreement.model_report`.
            cluster: the `costs.Cluster`.
        """
        # A table that every rank holds has none, whatever their number.
        tables = [
            planned for planned in plan.variables if planned.kind == SPARSE and planned.shards
        ]
        if not tables:
            return
        step, key = self._step, partition_search.cache_key(report, cluster)
        most = max(planned.rows for planned in tables)
        # What rank 0 remembers counts.
        known = partition_search.remembered(key, most) if step.rank == 0 else None
        known = step.gather(known)[0]
        start = max(len(planned.shards) for planned in tables)
        if known is not None:
            if known != start and step.may_move:
                step.replan(step.request._replace(partitions=known))
            return
        self._search = partition_search.PartitionSearch(
            step,
            start=start,
            most=most,
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
        measured = self._meter is not None and self._meter.after_step()
        if measured and self._take_density(session):
            return
        if self._search is not None and not self._step.may_move:
            if self._step.rank == 0:
                print('keras-parallax: no search for partitions: another model trains a table too.')
            self._search = None
        if self._search is not None and not self._search.after_step(seconds):
            self._search = None

    def _take_density(self, session):
        """Takes what was measured, and returns whether the step follows another plan from now on.

        Workers that do not wait for each other do not gather it either: each knows its own.
        """
        step, meter, self._meter = self._step, self._meter, None
        self.density = meter.density(session, step.gather if step.sync else _alone)
        request = step.request
        request = request._replace(density=dict(request.density or {}, **self.density))
        if request.architecture == architectures.AUTO and step.may_move:
            step.replan(request)
            return True
        if self._search is not None:
            # The plans that it will follow are placed by traffic.
            step.request = request
            return False
        if not (step.sync and step.may_move):
            # Another model's step that trains a table too would go on with the old shards.
            return False
        now = step.plan
        counts = {planned.name: len(planned.shards) for planned in now.variables if planned.shards}
        request = request._replace(partitions=counts)
        shares = [busiest_share(plan) for plan in (now, step.plan_for(request))]
        if shares[1] > (1 - WORTH_MOVING) * shares[0]:
            return False
        if step.rank == 0:
            print(
                'keras-parallax: shards move, so that the busiest server has %.0f %% of the row '
                'traffic instead of %.0f %%.' % (100 * shares[1], 100 * shares[0])
            )
        step.replan(request)
        return True


def _alone(value):
    return [value]


def busiest_share(plan):
    """The share of the row traffic that the busiest server of a `Plan` has, from 0 to 1."""
    loads = predict.server_loads(plan, plan.cluster)
    return max([load.traffic_share or 0.0 for load in loads] + [0.0])
