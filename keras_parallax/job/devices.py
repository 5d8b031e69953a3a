"""The devices of a job's tasks."""

WORKER_JOB = 'worker'


def worker_device(rank):
    """The device string of a rank's own task, for instance `'/job:worker/task:0'`."""
    return '/job:%s/task:%d' % (WORKER_JOB, rank)


def shard_device(rank):
    """The device string of the CPU of a rank's own task, where it prepares pulls and pushes."""
    return cpu_of(WORKER_JOB, rank)


def cpu_of(job, task):
    """The device string of a task's CPU, for instance `'/job:worker/task:0/device:CPU:0'`."""
    return '/job:%s/task:%d/device:CPU:0' % (job, task)
