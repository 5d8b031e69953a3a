# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The job that this process is a worker of: who its workers are, and how they meet."""

import atexit
import os
import secrets
import socket
from typing import Any, Callable, ContextManager, List, Optional, Sequence, TypeVar

from keras_parallax.compat import session_config
from keras_parallax.compat.horovod_api import connects_by_host_name, hvd
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.jemalloc import free_pages
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.failures.diagnosis import different_calls
from keras_parallax.engine.job import devices, launchers, rendezvous_server
from keras_parallax.engine.job.activity import Activity
from keras_parallax.engine.job.allowed_hosts import HostFacts, networks_of
from keras_parallax.engine.job.collectives import Gatherer, run_beside
from keras_parallax.engine.job.hosts import aggregation_helps, hosts_of
from keras_parallax.engine.job.job_privacy import JobPrivacy, host_facts
from keras_parallax.engine.job.process_end import ProcessEnd
from keras_parallax.engine.job.rank_watch import RankWatch
from keras_parallax.engine.job.shard_servers import ShardServers
from keras_parallax.engine.job.write_order import WriteOrder
from keras_parallax.errors import PlanError, ScopeError, WorkerFailedError
from keras_parallax.framework_types import Array, Config
from keras_parallax.planning import costs

#: How long a training step may take, if the script does not say.
STEP_TIMEOUT_SECONDS = 600


_Result = TypeVar('_Result')


class Job:
    """This process's place among the workers of the job.

    Attributes:
        rank, size, local_rank: as Horovod counts them.
        token: tells this job from any other, the same on every worker; `None` for one worker.
        host_names: the name of each worker's host, a sequence.
        hosts: the ranks of each host, in order of local rank, as `hosts.hosts_of` finds them.
        cluster: the `costs.Cluster` of its hosts, the same on every worker.
        config: the `tf.ConfigProto` for sessions.
        given_config: the part of it that a strategy was given, a `tf.ConfigProto`.
        step_timeout: seconds that a step, or another wait for all workers, may last; 0 for any
            time.
        activity: the `Activity` of which the other workers hear.
        write_order: the `WriteOrder` of what the script itself writes to sharded tables.
        process_end: the `ProcessEnd` of this process.
        watch: the `RankWatch` over the other workers.
        servers: the `ShardServers`.
        privacy: the `JobPrivacy`.
    """

    token: Optional[str]
    privacy: JobPrivacy
    host_names: Sequence[str]
    _gatherer: Gatherer

    def __init__(
        self,
        step_timeout: float,
        config: Optional[Config] = None,
        earlier: Sequence[Config] = (),
        allowed_networks: Sequence[str] = (),
    ) -> None:
        self.step_timeout, self.allowed_networks = step_timeout, tuple(allowed_networks)
        self.given_config = config or tf.ConfigProto()
        given = list(earlier) + [self.given_config]
        # The first session of the process, which is one of ours, settles it.
        session_config.settle_threads(given)
        self.activity, self.write_order = Activity(), WriteOrder(self)
        self.process_end = ProcessEnd()
        self.watch = RankWatch(step_timeout, self.activity, self.write_order, self.process_end)
        self.servers = ShardServers(self)
        rendezvous_server.join(os.environ)
        launchers.check_controller(launchers.started(os.environ), hvd.mpi_built())
        if connects_by_host_name(os.environ):
            launchers.check_host_name(socket.gethostname(), os.environ)
        self.watch.meet(os.environ)
        with self.watch.starting():
            networks = sorted({*allowed_networks, *networks_of(os.environ)})
            hvd.init()
            self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
            card = devices.card_of(self.rank, self.size, self.local_rank, os.environ)
            self.config = session_config.of_worker(card, given)
        self.token, self.cluster = None, costs.Cluster()
        self.host_names, self.hosts = (socket.gethostname(),), [[self.rank]]
        if self.size > 1:
            self._gatherer = Gatherer('main')
        # Runs before Horovod's own exit handler, which was registered by `hvd.init()`.
        atexit.register(self.watch.finish)
        facts = host_facts(networks)
        if self.size == 1:
            self.privacy = JobPrivacy(self, [facts])
            self._check_card()
        else:
            self.watch.start(self.rank)
            with self.call('the start of the job'):
                self._meet(facts)
                self._check_card()
                self.privacy.close_meeting_points(self.watch.listener)

    def _meet(self, facts: HostFacts) -> None:
        own = [*self.host_names, self.local_rank, self.watch.hub, secrets.token_hex(8), facts]
        self.host_names, local_ranks, hubs, tokens, of_hosts = zip(*self.gather(own))
        self.token = tokens[0]
        self.privacy = JobPrivacy(self, [HostFacts(*one) for one in of_hosts])
        self.watch.join(hubs[0])
        # Rank 0 closes the hub to strangers when all are connected to it.
        self.barrier()
        self.hosts = hosts_of(list(zip(self.host_names, local_ranks)))
        # Hosts may have unequal numbers of workers, but every worker must plan alike.
        workers = -(-self.size // len(self.hosts))
        helps = aggregation_helps(self.hosts)
        self.cluster = costs.Cluster(len(self.hosts), workers, local_aggregation=helps)

    def _check_card(self) -> None:
        """Refuses a job in which a worker is to use a card that its host does not have."""
        cards, host = generation.visible_cards(), socket.gethostname()
        problem = devices.card_problem(self.config, cards, self.rank, host)
        problems = list(filter(None, self.gather(problem)))
        if problems:
            raise PlanError(problems[0])

    @property
    def problem(self) -> Optional[BaseException]:
        """The exception that says why the job cannot go on, or `None`."""
        return self.process_end.problem

    def gather(self, value: Any) -> List[Any]:
        """A list with each worker's value, of what `json.dumps` takes. A collective call.

        Raises `ParallaxError` if the job cannot go on.
        """
        # Workers wait for each other here while one of them moves rows from and to the others.
        free_pages().give_back()
        if self.size == 1:
            return [value]
        of_ranks = self.collective(lambda call: self._gatherer([call, value]))
        problem = different_calls([call for call, _ in of_ranks])
        if problem:
            raise problem
        return [value for _, value in of_ranks]

    def sum(self, vector: Array) -> Array:
        """The sum of each worker's vector of float64, of one length. A collective call.

        It comes after a `gather` of the same call, which tells whether all workers make it.
        """
        return (
            vector if self.size == 1 else self.collective(lambda call: self._gatherer.sum(vector))
        )

    def join(self, rows: Array) -> Array:
        """The rows of each worker's array, of one dtype, in order of rank. A collective call.

        It comes after a `gather` of the same call, as `sum` does, and some worker has a row.
        """
        return rows if self.size == 1 else self.collective(lambda call: self._gatherer.join(rows))

    def call(self, name: str) -> ContextManager[None]:
        """While open, collectives belong to a call of all workers, named as the user knows it."""
        return self.activity.call(name)

    def collective(self, act: Callable[[Optional[str]], _Result]) -> _Result:
        """Runs a collective, and waits for the other workers no longer than the job can go on.

        Function `act` takes the name of the call that it belongs to; what it returns is returned.
        Raises `ParallaxError` if the job cannot go on.
        """
        if self.size == 1:
            return act(None)
        with self.activity.gathering() as call:
            try:
                return run_beside(lambda: act(call), lambda: self.problem)
            except tf.errors.OpError as error:
                # Horovod has shut down.
                self.watch.await_problem()
                raise self.problem or WorkerFailedError('Horovod has shut down.') from error

    def barrier(self) -> None:
        """Waits until every worker has come here. A collective call."""
        self.gather(None)


_job: Optional[Job] = None


def start(
    step_timeout: Optional[float] = None,
    config: Optional[Config] = None,
    earlier: Sequence[Config] = (),
    allowed_networks: Optional[Sequence[str]] = None,
) -> Job:
    """The `Job` of this process; the first call starts it. A collective call.

    A step may last so many seconds, 0 for any time; by default what the job has, or
    `STEP_TIMEOUT_SECONDS`. The user's `tf.ConfigProto` for sessions and servers may be `None`;
    `earlier` are those of sessions that the user has opened before. Hosts of `allowed_networks`
    may connect to the job's processes besides its own.

    Raises `ScopeError` if the job has been started with another `step_timeout`, `config` or
    `allowed_networks`.
    """
    global _job
    if _job is None:
        seconds = STEP_TIMEOUT_SECONDS if step_timeout is None else step_timeout
        _job = Job(seconds, config, earlier, allowed_networks or ())
    if step_timeout not in (None, _job.step_timeout):
        raise ScopeError(
            'A job has one step_timeout: %g s was given first, now %g s.'
            % (_job.step_timeout, step_timeout)
        )
    if config is not None and config != _job.given_config:
        raise ScopeError(
            'A job has one config, for its servers have: first {%s} was given, now {%s}. Give all '
            'strategies the same one, or only the first.'
            % tuple(str(given).strip().replace('\n', ', ') for given in (_job.given_config, config))
        )
    if allowed_networks is not None and tuple(allowed_networks) != _job.allowed_networks:
        raise ScopeError(
            'All strategies of a job must use the same allowed_networks: got %s, but the first '
            'strategy used %s.' % (list(allowed_networks), list(_job.allowed_networks))
        )
    return _job


def current() -> Optional[Job]:
    """The `Job` of this process, or `None` if it has not been started."""
    return _job
