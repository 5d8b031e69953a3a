"""One rank of a job: trains at one link speed after another, counts, and leaves what it saw.

Started by `horovodrun` (or as it is, for one process) with the JSON of what `measure.measure` makes
of a case and the path that the names of the job's files begin with: see `phases`.
"""

import collections
import itertools
import json
import os
import sys
import time

import horovod.tensorflow as hvd
import models
import numpy as np
import phases
import psutil
import schedule
import systems

from keras_parallax.job.collectives import Gatherer


def interface():
    """The network interface that carries the job: `eth0` of an emulated host, or loopback."""
    return 'eth0' if os.path.exists('/sys/class/net/eth0/statistics') else 'lo'


def counters():
    """Bytes that this host's interface has sent and received."""
    folder = '/sys/class/net/%s/statistics/' % interface()
    found = []
    for name in ('tx_bytes', 'rx_bytes'):
        with open(folder + name) as file:
            found.append(int(file.read()))
    return found


def own_processes():
    """This process and those that it started."""
    me = psutil.Process()
    return [me] + me.children(recursive=True)


def cpu_seconds():
    """Processor time of this process and its children so far."""
    return sum(sum(process.cpu_times()[:2]) for process in own_processes())


def peak_mib():
    """The largest peak of resident memory among this process and its children."""
    peaks = []
    for process in own_processes():
        with open('/proc/%d/status' % process.pid) as file:
            line = next(line for line in file if line.startswith('VmHWM'))
        peaks.append(int(line.split()[1]) / 1024)
    return max(peaks)


def forget_peaks():
    """Lets the peaks begin anew, so that they are those of training and not of the start."""
    for process in own_processes():
        with open('/proc/%d/clear_refs' % process.pid, 'w') as file:
            file.write('5')


class Meter:
    """What the measured steps of a phase take: this host's bytes, this process's time and memory.

    Args:
        gather: function from a value to the list of all ranks' values: nobody may send while
            another counts.
    """

    def __init__(self, gather):
        self._gather = gather

    def begin(self):
        """Begins to count."""
        #: The peak of resident memory until then, MiB.
        self.peak_before = peak_mib()
        forget_peaks()
        self._gather(None)
        self._bytes, self._cpu = counters(), cpu_seconds()
        self._gather(None)

    def end(self, steps):
        """What came since, a dict; bytes and processor time for each of so many steps."""
        # Everyone has ended the last step, and nobody has sent anything since.
        self._gather(None)
        after = counters()
        self._gather(None)
        return {
            'sent': (after[0] - self._bytes[0]) / steps,
            'received': (after[1] - self._bytes[1]) / steps,
            'cpu_seconds': (cpu_seconds() - self._cpu) / steps,
            'peak_mib': peak_mib(),
        }


def measure(spec, path):
    """Runs a job through its phases; see the module."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gather = Gatherer('benchmark') if size > 1 else lambda value: [value]
    work = models.WORKS[spec['work']](**spec['options'])
    system = systems.SYSTEMS[spec['system']]
    place = systems.Place(rank, size, gather)
    step = system.build(work, place, spec['threads'])
    warmups = [schedule.SETTLING_STEPS] + [spec['warmup']] * (spec['phases'] - 1)
    count = 1 + sum(warmups) + spec['phases'] * spec['steps']
    batches, ahead = work.batches(rank, count), collections.deque()
    losses = [step(*next(batches))]
    job = {
        'rank': rank,
        'local_rank': hvd.local_rank(),
        'first_step_seconds': time.time() - spec['started'],
        'unit': work.unit,
        'units': work.units,
    }
    for phase, warmup in enumerate(warmups):
        # Made before any is measured, or it would count as the system's processor time.
        ahead.extend(itertools.islice(batches, warmup + spec['steps'] - len(ahead)))
        gather(None)
        if rank == 0:
            phases.wait_for_links(path, phase)
        gather(None)
        meter = Meter(gather)
        trained = phases.train(step, ahead.popleft, gather, warmup, spec['steps'], meter.begin)
        seen = meter.end(trained.steps)
        losses += trained.losses
        job.setdefault('start_peak_mib', meter.peak_before)
        seen.update(
            job,
            warmup=trained.warmup,
            steps=trained.steps,
            seconds=trained.seconds[trained.warmup :],
            losses=losses,
        )
        phases.write(path, phase, rank, seen)
    # Nobody may leave while another still trains with its server.
    gather(None)
    if not np.isfinite(losses).all():
        raise SystemExit('Rank %d: the loss is not finite.' % rank)


if __name__ == '__main__':
    measure(json.loads(sys.argv[1]), sys.argv[2])
