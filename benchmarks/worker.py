"""One rank of a measurement: trains, counts, and writes what it saw as JSON.

Started by `horovodrun` (or as it is, for one process) with the JSON of a `Spec` and the path of a
file to write, to which `.rank0`, `.rank1` ... is added.
"""

import json
import os
import sys
import time

import horovod.tensorflow as hvd
import models
import numpy as np
import psutil
import schedule
import systems

from keras_parallax.collectives import Gatherer


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


def wait_for_network(path, rank):
    """Says that the first step is done, and waits until links and hosts have their speed."""
    if rank == 0:
        open(path + '.started', 'w').close()
        while not os.path.exists(path + '.shaped'):
            time.sleep(0.1)


def measure(spec, path):
    """Runs a measurement; see the module."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gather = Gatherer('benchmark') if size > 1 else lambda value: [value]
    work = models.WORKS[spec['work']](**spec['options'])
    system = systems.SYSTEMS[spec['system']]
    place = systems.Place(rank, size, gather)
    step = system.build(work, place, spec['threads'])
    warmup, steps = spec['warmup'], spec['steps']
    losses, seconds, first = [], [], None
    for number, (inputs, target) in enumerate(work.batches(rank, warmup + steps)):
        # Both numbers are settled before bytes are counted, by the rank whose step took longest.
        if number == schedule.SHORTEST_WARMUP:
            warmup = schedule.warmup(warmup, max(gather(seconds[-1])))
        if number == warmup:
            steps = schedule.steps(steps, max(gather(seconds[-1])))
            start_peak = peak_mib()
            forget_peaks()
            gather(None)
            before, cpu = counters(), cpu_seconds()
            gather(None)
        if number == warmup + steps:
            break
        start = time.perf_counter()
        losses.append(step(inputs, target))
        seconds.append(time.perf_counter() - start)
        if first is None:
            first = time.time()
            wait_for_network(path, rank)
            gather(None)
    # Everyone has ended the last step, and nobody has sent anything since.
    gather(None)
    after = counters()
    gather(None)
    seen = {
        'rank': rank,
        'local_rank': hvd.local_rank(),
        'warmup': warmup,
        'steps': steps,
        'losses': losses,
        'seconds': seconds[warmup:],
        'sent': (after[0] - before[0]) / steps,
        'received': (after[1] - before[1]) / steps,
        'cpu_seconds': (cpu_seconds() - cpu) / steps,
        'peak_mib': peak_mib(),
        'start_peak_mib': start_peak,
        'first_step_seconds': first - spec['started'],
        'unit': work.unit,
        'units': work.units,
    }
    with open('%s.rank%d' % (path, rank), 'w') as file:
        json.dump(seen, file)
    # Nobody may leave while another still trains with its server.
    gather(None)
    if not np.isfinite(losses).all():
        raise SystemExit('Rank %d: the loss is not finite.' % rank)


if __name__ == '__main__':
    measure(json.loads(sys.argv[1]), sys.argv[2])
