"""Which measurements are taken: pure functions from a choice to a list of cases."""

#: Systems that bring whole tables into motion; a few steps of them are enough to wait for.
SLOW = ('keras', 'hvd-keras', 'hvd-dense')
ALONE = ('keras', 'tf')
HOROVOD = ('hvd-keras', 'hvd-allgather', 'hvd-dense')
PEERS = HOROVOD + ('tf-ps',)
OURS = ('hybrid', 'hybrid-fp16', 'allreduce', 'ps')
#: Lengths of Parallax's sentences, from α = 1 down.
ALPHA_LENGTHS = (120, 60, 30, 15, 8, 4, 1)

#: Name of a suite to what it trains, and on what.
SUITES = {
    'lm': dict(work='lm', variants=[{}], systems=ALONE + PEERS + OURS),
    'lm-corpus': dict(
        work='lm', variants=[{'words': 'corpus'}], systems=('hvd-allgather', 'tf-ps', 'hybrid')
    ),
    'ctr': dict(
        work='ctr',
        variants=[
            {'kind': kind, 'width': width}
            for kind in ('deepfm', 'wide_deep')
            for width in (9, 64)
        ],
        systems=ALONE + PEERS + OURS,
    ),
    'dense': dict(work='dense', variants=[{}], systems=('hvd-keras', 'hvd-allgather', 'hybrid')),
    # For `smoke.py`: small, and rows wide enough for headers not to matter.
    'smoke': dict(
        work='lm',
        variants=[
            dict(vocabulary=20000, width=128, state=32, batch=64, length=10, noise=128),
        ],
        systems=('hvd-allgather', 'tf-ps', 'hybrid', 'allreduce'),
        hosts=(2,),
    ),
    'alpha': dict(
        work='alpha',
        variants=[{'length': length} for length in ALPHA_LENGTHS],
        systems=('hvd-allgather', 'hybrid'),
        hosts=(8,),
    ),
}  # fmt: skip

#: What `make bench` measures when it is not told otherwise.
PUBLISHED = ('lm', 'lm-corpus', 'ctr', 'dense', 'alpha')


def cases(suite, hosts=(1, 2, 4, 8), systems=None, workers_per_host=1, steps=20, variants=None):
    """The measurements of a suite.

    Args:
        suite: a name in `SUITES`.
        hosts: numbers of hosts.
        systems: names of systems; by default the suite's.
        workers_per_host: number of workers on each host.
        steps: number of steps that are measured.
        variants: a list of options of the work; by default the suite's.

    Returns:
        A list of dicts, as `measure.measure` takes them. A system for one process comes with one
        host only, and systems that need others do not come with one, except `hybrid`.
    """
    chosen = SUITES[suite]
    found = []
    for options in variants if variants is not None else chosen['variants']:
        for count in [n for n in hosts if n in chosen.get('hosts', hosts)]:
            for system in systems or chosen['systems']:
                alone = count * workers_per_host == 1
                if alone != (system in ALONE) and not (alone and system == 'hybrid'):
                    continue
                slow = system in SLOW
                found.append(
                    dict(
                        suite=suite,
                        work=chosen['work'],
                        options=options,
                        system=system,
                        hosts=count,
                        workers_per_host=workers_per_host,
                        warmup=2 if slow else 5,
                        steps=min(steps, 5) if slow else steps,
                        threads=1,
                    )
                )
    return found
