"""What a job learns from its first steps, and does about it: densities, places, architecture."""

from keras_parallax.logs import logger
from keras_parallax.planning import architectures, predict
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.search import Search
from keras_parallax.step import partition_search
from keras_parallax.step.agreement import model_report
from keras_parallax.step.architecture_search import ArchitectureSearch
from keras_parallax.step.resharding import may_move

#: Shards move if this fraction of the busiest server's share of the row traffic is taken off it.
#: To move them, training stops for about a second, in which the step is built anew and rows are
#: copied. Ten batches tell a density within some per cent, so what looks like less may be nothing.
WORTH_MOVING = 0.2


class Tuning:
    """Has a training step follow better plans. Collective calls, in a job of several ranks.

    The `TrainStep` is that of a model in a strategy's scope, before its first run.
    """

    def __init__(self, step):
        self._step, self._search, self._architectures = step, None, None
        # One that has no shards from the start has nothing on servers to compare with.
        step.tries = (
            step.spec.asked.architecture == architectures.AUTO and step.has_shards and step.size > 1
        )
        if isinstance(step.spec.asked.partitions, Search):
            with step.call('the first training call of a model'):
                self._search = self._begin_search()

    def _request(self, **changes):
        """What the step follows, with the densities that it has measured and with changes."""
        request = self._step.request
        density = dict(request.density or {}, **self._step.density)
        return request._replace(density=density, **changes)

    def _replan(self, count):
        asked = self._step.spec.asked.partitions
        self._step.replan(self._request(partitions=asked.with_count(count)))

    def _begin_search(self):
        """The search for the number of shards, or `None`: maybe an earlier job has chosen it."""
        step = self._step
        spec, asked = step.spec, step.spec.asked.partitions
        # A table that every rank holds has none, whatever their number.
        tables = [
            planned
            for planned in step.plan.variables
            if planned.kind == SPARSE and planned.shards and asked.is_for(planned.name)
        ]
        if not tables:
            return None
        most = max(planned.rows for planned in tables)
        report = model_report(step.plan, spec.optimizer, spec.settings, [step.request, spec.timing])
        key = partition_search.cache_key(report, spec.job.cluster)
        # What rank 0 remembers counts.
        known = partition_search.remembered(key, most) if step.rank == 0 else None
        known = step.gather(known)[0]
        start = max(len(planned.shards) for planned in tables)
        if known is not None:
            if known != start and may_move(step):
                self._replan(known)
            return None
        return partition_search.PartitionSearch(
            self._replan,
            start=start,
            limits=(asked.least, most),
            gather=step.gather,
            key=key,
            tell=_tell if step.rank == 0 else None,
        )

    def after_run(self, seconds, measured):
        """Takes note of a step, and of whether densities were measured since the last one."""
        if measured and self._architectures is None and self._use_density():
            return
        if self._search is not None and not may_move(self._step):
            if self._step.rank == 0:
                logger.info('no search for partitions: another model trains a table too.')
            self._search = None
        if self._search is not None:
            if not self._search.after_step(seconds):
                self._search = None
        elif self._step.tries and not self._step.measures_density:
            self._step.tries = self._try_architectures(seconds)

    def _try_architectures(self, seconds):
        """Takes note of a step, where architectures are tried; returns whether that goes on."""
        step, tell = self._step, _tell_architectures if self._step.rank == 0 else None
        if not may_move(step, step.spec.variables):
            if tell is not None:
                logger.info(
                    'architectures are not tried%s: %s.',
                    ' any more' if step.trials else '',
                    "the optimizer's slots cannot move"
                    if step.state is None
                    else 'another model trains a variable too',
                )
            if step.trials is not None:
                step.trials = step.trials._replace(is_over=True)
            return False
        if self._architectures is None:
            self._architectures = ArchitectureSearch(step, self._request(), tell)
            return not step.trials.is_over
        return self._architectures.after_step(seconds)

    def _use_density(self):
        """Whether the step follows another plan from now on."""
        step = self._step
        if step.request.architecture == architectures.AUTO and may_move(step):
            step.replan(self._request())
            return True
        # A search places by traffic whatever it tries. Another model's step that trains a table
        # too would go on with the old shards.
        if self._search is not None or not (step.sync and may_move(step)):
            return False
        plan = step.plan
        counts = {planned.name: len(planned.shards) for planned in plan.variables if planned.shards}
        request = self._request(partitions=counts)
        shares = [busiest_share(plan), busiest_share(step.spec.plan_for(request))]
        if shares[1] > (1 - WORTH_MOVING) * shares[0]:
            return False
        if step.rank == 0:
            logger.info(
                'shards move, so that the busiest server has %.0f %% of the row traffic instead of '
                '%.0f %%.',
                100 * shares[1],
                100 * shares[0],
            )
        step.replan(request)
        return True


def _tell_architectures(report):
    logger.info('architectures were tried.\n%s', report)


def _tell(report):
    logger.info('numbers of shards were tried.\n%s', report)


def busiest_share(plan):
    """The share of the row traffic that the busiest server of a `Plan` has, from 0 to 1."""
    loads = predict.server_loads(plan, plan.cluster)
    return max([load.traffic_share or 0.0 for load in loads] + [0.0])
