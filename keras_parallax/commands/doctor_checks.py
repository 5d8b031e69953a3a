# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `keras-parallax doctor` makes of the facts that it finds: pure functions, one a check.

Facts are the dicts of `host_facts.collect`, by the name of the host as the user gave it.
"""

import ipaddress
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from keras_parallax.compat import remedies
from keras_parallax.compat.supported_versions import (
    python_problem,
    stack_name,
    supported_on,
    version_problem,
)
from keras_parallax.planning.units import counted

OK, WARNING, FAILURE = 'ok', 'warning', 'failure'

#: Less room than this for checkpoints deserves a warning, bytes.
LITTLE_ROOM = 1 << 30

#: Clocks that differ by more make logs and the ages of files hard to compare, seconds.
MOST_SKEW = 1.0

#: Packages of which two hosts may not have different versions.
_CORE = (
    'h5py', 'horovod', 'keras', 'numpy', 'protobuf', 'tensorflow', 'tensorflow-cpu',
    'tensorflow-gpu', 'tensorflow_cpu', 'tf_keras',
)  # fmt: skip

#: A host that is cut off should be noticed by `ssh` as soon as by the job, seconds.
_LONGEST_SILENCE = 30

_SERVERS_PAGE = 'docs/servers.md'
_STACKS_PAGE = 'docs/install.md'


#: What `host_facts.collect` has found on a host.
Facts = Dict[str, Any]


class Finding(NamedTuple):
    """One line of the doctor's report.

    Attributes:
        verdict: `'ok'`, `'warning'` or `'failure'`.
        check: what was looked at, a word or two.
        host: the host that it is about, or `None` if it is about all.
        message: what was found.
        remedy: what to do; empty if `verdict` is `'ok'`.
    """

    verdict: str
    check: str
    host: Optional[str]
    message: str
    remedy: str = ''


def check_versions(host: str, facts: Facts) -> List[Finding]:
    """Whether Python, TensorFlow, Keras and Horovod are there and fit together."""
    check, findings, supported = 'versions', [], supported_on(facts['python'])
    if python_problem(facts['python']):
        message = 'Python %s at %s.' % (facts['python'], facts['executable'])
        remedy = 'Use a CPython of the table in %s.' % _STACKS_PAGE
        findings.append(Finding(FAILURE, check, host, message, remedy))
    for package in ('TensorFlow', 'Keras', 'Horovod'):
        version, remedy = facts[package.lower()], supported[package][1]
        if version is None:
            message = '%s cannot be imported (%s).' % (package, facts['problems'][package.lower()])
            # Scripts with tf.keras do without.
            verdict = WARNING if package == 'Keras' else FAILURE
            findings.append(Finding(verdict, check, host, message, remedy))
        elif version_problem(package, version, supported):
            message = '%s %s is not supported.' % (package, version)
            findings.append(Finding(FAILURE, check, host, message, remedy))
    # Keras decodes the attributes of files itself until TensorFlow 2; h5py 3 hands it text.
    is_old = (facts['tensorflow'] or '1.').startswith('1.')
    if facts['h5py'] is None or (is_old and int(facts['h5py'].partition('.')[0]) >= 3):
        message = 'h5py %s: Keras cannot load its own files.' % (facts['h5py'] or 'is missing')
        remedy = remedies.H5PY_2 if is_old else remedies.H5PY
        findings.append(Finding(WARNING, check, host, message, remedy))
    keras = ' and '.join(filter(None, [facts['keras'], facts.get('keras_3')]))
    message = 'Python %s, TensorFlow %s, Keras %s, Horovod %s.' % (
        facts['python'],
        facts['tensorflow'],
        keras,
        facts['horovod'],
    )
    return findings or [Finding(OK, check, host, message)]


def check_controllers(host: str, facts: Facts) -> List[Finding]:
    """Whether Horovod can connect workers by what this package was tested with."""
    built, check = facts['horovod_built'], 'controllers'
    if built is None:
        message = (
            "Horovod's TensorFlow part cannot be loaded (%s)."
            % (facts['problems']['horovod_built'])
        )
        return [Finding(FAILURE, check, host, message, remedies.HOROVOD)]
    if not built['gloo']:
        verdict = WARNING if built['mpi'] else FAILURE
        message = 'Horovod was built without Gloo, with which most of this package is tested.'
        return [Finding(verdict, check, host, message, remedies.HOROVOD)]
    if not built['mpi']:
        return [Finding(OK, check, host, 'Horovod has Gloo.')]
    if facts['mpirun'] is None:
        message = 'Horovod has Gloo and MPI, which horovodrun takes, but there is no mpirun.'
        remedy = 'Start with horovodrun --gloo, or install Open MPI: %s' % remedies.OPEN_MPI
        return [Finding(WARNING, check, host, message, remedy)]
    message = 'Horovod has Gloo and MPI (%s); horovodrun takes MPI unless it is told --gloo.'
    return [Finding(OK, check, host, message % facts['mpirun'])]


def check_gpu(host: str, facts: Facts, slots: int) -> List[Finding]:
    """Whether graphics cards, libraries and the number of workers go together."""
    check, cuda, cards = 'GPU', facts['cuda'], facts['cards']
    if cuda is None:
        # That TensorFlow cannot be imported is said elsewhere.
        return []
    if not cuda['built']:
        if cards:
            message = '%d graphics cards, but a TensorFlow for CPUs.' % cards
            remedy = 'To use them: %s' % remedies.TENSORFLOW_GPU[stack_name(facts['python'])]
            return [Finding(WARNING, check, host, message, remedy)]
        return [Finding(OK, check, host, 'None, and a TensorFlow for CPUs.')]
    # TensorFlow 2 is one package for cards and for processors.
    is_old = facts['tensorflow'].startswith('1.')
    if not cards and not is_old:
        return [Finding(OK, check, host, 'None.')]
    if cuda['missing']:
        message = 'Libraries cannot be loaded: %s.' % ', '.join(cuda['missing'])
        how = remedies.TENSORFLOW_GPU[stack_name(facts['python'])]
        remedy = 'Look at the driver with nvidia-smi. To install the libraries: %s' % how
        if is_old:
            remedy = (
                'Install CUDA 9.0, cuDNN 7 and the driver; name their folders in LD_LIBRARY_PATH.'
            )
        return [Finding(FAILURE, check, host, message, remedy)]
    if not cards:
        message = 'A TensorFlow for graphics cards, but no card.'
        return [Finding(WARNING, check, host, message, 'Look at the driver with nvidia-smi.')]
    if slots > cards:
        message = '%s, but %s: TensorFlow refuses a card that is not there.' % (
            counted(slots, 'worker'),
            counted(cards, 'graphics card'),
        )
        remedy = (
            'Start at most one worker for each card, or share cards: keras-parallax run '
            '--resources FILE, with the line %s: %s'
            % (host, ', '.join(str(worker % cards) for worker in range(slots)))
        )
        return [Finding(WARNING, check, host, message, remedy)]
    if not (facts['horovod_built'] or {}).get('nccl'):
        message = 'Horovod was built without NCCL: dense gradients are reduced in host memory.'
        return [Finding(WARNING, check, host, message, remedies.HOROVOD_WITH_NCCL)]
    return [Finding(OK, check, host, '%d graphics cards, NCCL.' % cards)]


def check_disk(host: str, facts: Facts) -> List[Finding]:
    """Whether there is room for checkpoints."""
    check, disk = 'disk', facts['disk']
    if not disk['writable']:
        message = 'Checkpoints cannot be written to %s.' % disk['folder']
        return [Finding(FAILURE, check, host, message, 'Name another folder: --checkpoint-dir.')]
    message = '%.1f GiB free for checkpoints at %s.' % (disk['free'] / (1 << 30), disk['folder'])
    if disk['free'] >= LITTLE_ROOM:
        return [Finding(OK, check, host, message)]
    remedy = 'Make room, or name another folder: --checkpoint-dir.'
    # A checkpoint is written aside before it replaces the last one, so a full disk saves nothing.
    return [Finding(WARNING if disk['free'] else FAILURE, check, host, message, remedy)]


def check_launcher(problem: Optional[Tuple[str, str]]) -> List[Finding]:
    """Whether a shell here would start the `horovodrun` of this environment.

    Args:
        problem: what `launcher_path.problem` says.
    """
    if problem is None:
        return [Finding(OK, 'launcher', None, 'horovodrun is on PATH.')]
    # A job may also be started by mpirun, by srun or by the full path.
    return [Finding(WARNING, 'launcher', None, *problem)]


def check_servers(host: str, facts: Facts, slots: int, hosts: int) -> List[Finding]:
    """Whether hosts outside a job could connect to its servers.

    Args:
        host: the name of the host.
        facts: what was found on it.
        slots: the number of workers of the job.
        hosts: the number of its hosts.
    """
    check = 'servers'
    if slots == 1:
        return [Finding(OK, check, host, 'A job of one worker opens no port.')]
    if facts['filtered']:
        message = "Only the job's hosts can connect to them: the packet filter is loaded."
        return [Finding(OK, check, host, message)]
    if facts['closing'] is None:
        # That the package, or what it needs, cannot be imported is said elsewhere.
        return []
    problem = facts['closing']['several hosts' if hosts > 1 else 'one host']
    if problem is None:
        whose = "Only the job's hosts" if hosts > 1 else 'Only this host'
        return [Finding(OK, check, host, whose + ' can connect to them; the kernel was tried.')]
    message = 'Hosts outside the job can connect to them (ports %s): %s.' % (
        '-'.join(facts['ports']) or 'unknown',
        problem,
    )
    public = [
        '%s (%s)' % (address, name)
        for name, addresses in sorted((facts['interfaces'] or {}).items())
        for address in addresses
        if ipaddress.ip_address(address).is_global
    ]
    if public:
        message += ' Public is %s.' % ', '.join(public)
    remedy = (
        'Run the job as root or with CAP_NET_ADMIN (docker run --cap-add NET_ADMIN), or load the '
        'packet filter of %s.' % _SERVERS_PAGE
    )
    return [Finding(WARNING, check, host, message, remedy)]


def check_host(host: str, facts: Facts, slots: int, hosts: int) -> List[Finding]:
    """All checks of one host by itself; the arguments of `check_servers`."""
    return (
        check_versions(host, facts)
        + check_controllers(host, facts)
        + check_gpu(host, facts, slots)
        + check_servers(host, facts, slots, hosts)
        + check_disk(host, facts)
    )


def check_same_code(facts: Dict[str, Facts]) -> List[Finding]:
    """Whether all hosts, two or more, would run the same."""
    (first, reference), *others = facts.items()
    findings = []
    for host, facts_there in others:
        differences: List[Tuple[str, str]] = []
        for name in ('python', 'tensorflow', 'keras', 'horovod', 'h5py', 'numpy'):
            _compare(differences, name, reference[name], facts_there[name])
        imported = {difference[0] for difference in differences}
        installed, other = reference['distributions'] or {}, facts_there['distributions'] or {}
        for name in sorted(set(installed) | set(other)):
            if name not in imported:
                _compare(differences, name, installed.get(name), other.get(name))
        serious = [name in _CORE or name == 'python' for name, _ in differences]
        if differences:
            message = 'Not as on %s: %s.' % (first, '; '.join(text for _, text in differences))
            verdict = FAILURE if any(serious) else WARNING
            remedy = 'Install the same versions on both, at %s.' % reference['executable']
            findings.append(Finding(verdict, 'same packages', host, message, remedy))
        findings.extend(_check_sources(first, reference, host, facts_there))
    return findings or [
        Finding(OK, 'same code', None, 'The same code and packages on all %d hosts.' % len(facts))
    ]


def _compare(
    differences: List[Tuple[str, str]], name: str, expected: Optional[str], version: Optional[str]
) -> None:
    if expected != version:
        text = '%s %s instead of %s' % (name, version or 'missing', expected or 'none')
        differences.append((name, text))


def _check_sources(first: str, reference: Facts, host: str, facts: Facts) -> Iterator[Finding]:
    if reference['code'] != facts['code']:
        message = 'keras_parallax is not the same code as on %s.' % first
        yield Finding(FAILURE, 'same code', host, message, 'Install the same release on both.')
    if reference['folder'] != facts['folder']:
        # horovodrun changes to the launcher's folder where it can, and goes on where it cannot.
        message = 'There is no folder %s; a job would run in %s.' % (
            reference['folder'],
            facts['folder'],
        )
        remedy = 'Share the folder between the hosts, or copy it.'
        yield Finding(WARNING, 'same code', host, message, remedy)
    for name, digest in reference['files'].items():
        if facts['files'][name] is None:
            message = '%s is missing.' % name
        elif facts['files'][name] != digest:
            message = '%s is not the same as on %s.' % (name, first)
        else:
            continue
        yield Finding(FAILURE, 'same code', host, message, 'Copy it from %s.' % first)


def check_clock(host: str, facts: Facts, sent_at: float, answered: float) -> List[Finding]:
    """Whether a host's clock agrees with this one's, which was read before and after asking."""
    # The host began after it was asked and had ended before it answered.
    latest, earliest = facts['began'] - sent_at, facts['ended'] - answered
    if latest < -MOST_SKEW or earliest > MOST_SKEW:
        skew = latest if latest < 0 else earliest
        message = 'The clock is at least %.1f s %s.' % (
            abs(skew),
            'behind' if skew < 0 else 'ahead',
        )
        remedy = 'Have chrony or ntpd set the clocks; logs cannot be compared as it is.'
        return [Finding(WARNING, 'clock', host, message, remedy)]
    return [Finding(OK, 'clock', host, 'Agrees with the clock here.')]


#: What `ssh` says where a password is not what is wrong, in small letters, and what to do.
_SSH_REMEDIES: Tuple[Tuple[Union[str, Tuple[str, ...]], str], ...] = (
    (
        'could not resolve hostname',
        'No address is known by the name %s: correct it in --hosts, or write it into /etc/hosts or '
        '~/.ssh/config here.',
    ),
    (
        'connection refused',
        'Have sshd run on %s, or name its port: keras-parallax doctor --ssh-port.',
    ),
    (
        ('timed out', 'no route to host', 'network is unreachable'),
        'Look whether %s is up, and whether its network lets ssh through.',
    ),
    (
        'host key verification failed',
        'The key of %s is not the one in ~/.ssh/known_hosts here: if the host was installed anew, '
        'remove the old key with ssh-keygen -R.',
    ),
)


def remedy_of_ssh(host: str, said: str) -> str:
    """What to do where `ssh` fails to log in to a host.

    Args:
        host: the name of the host.
        said: the last line that `ssh` printed.
    """
    for words, remedy in _SSH_REMEDIES:
        words = (words,) if isinstance(words, str) else words
        if any(word in said.lower() for word in words):
            return remedy % host
    return 'horovodrun needs ssh without a password: ssh-copy-id %s' % host


def check_cut_off(host: str, options: str) -> List[Finding]:
    """Whether `ssh`, and `horovodrun` with it, ends when the host is cut off.

    The options are what `ssh -G` prints for the host: a name and a value in each line.
    """
    values = dict(line.split(' ', 1) for line in options.splitlines() if ' ' in line)
    interval, count = (
        int(values.get(name, '0')) for name in ('serveraliveinterval', 'serveralivecountmax')
    )
    if 0 < interval * count <= _LONGEST_SILENCE:
        message = 'ssh gives up on a host that is cut off after %d s.' % (interval * count)
        return [Finding(OK, 'cut off', host, message)]
    message = 'If the host is cut off, ssh waits for it %s, and horovodrun with it.' % (
        'for %d s' % (interval * count) if interval and count else 'for ever'
    )
    remedy = 'Have ServerAliveInterval 5 and ServerAliveCountMax 3 in ~/.ssh/config here.'
    return [Finding(WARNING, 'cut off', host, message, remedy)]


def interfaces_in_common(facts: Dict[str, Facts]) -> List[str]:
    """Names of the interfaces, without loopback, that have an IPv4 address on every host."""
    names = [
        {name for name in of_host['interfaces'] or {} if ipv4_address(of_host, name)}
        for of_host in facts.values()
    ]
    return sorted(set.intersection(*names))


def ipv4_address(facts: Facts, interface: str) -> Optional[str]:
    """An interface's first IPv4 address that is no loopback's, or `None`."""
    for text in (facts['interfaces'] or {}).get(interface, ()):
        address = ipaddress.ip_address(text)
        if address.version == 4 and not address.is_loopback:
            return text
    return None


def check_interface(facts: Dict[str, Facts], chosen: Optional[str]) -> List[Finding]:
    """Over which interface two hosts or more would talk; `chosen` may be `None`."""
    check, common = 'interface', interfaces_in_common(facts)
    interfaces = '; '.join(
        '%s has %s' % (host, ', '.join(sorted(of_host['interfaces'] or {})) or 'none')
        for host, of_host in facts.items()
    )
    if chosen is not None and chosen not in common:
        message = '%s has no IPv4 address on every host: %s.' % (chosen, interfaces)
        remedy = 'Give another to --network-interface.'
        return [Finding(FAILURE, check, None, message, remedy)]
    if not common:
        message = (
            'No interface has the same name and an IPv4 address on every host: %s.' % interfaces
        )
        remedy = 'Horovod needs one: give the interfaces the same name.'
        return [Finding(FAILURE, check, None, message, remedy)]
    if chosen is None and len(common) > 1:
        message = 'horovodrun may take any of %s.' % ', '.join(common)
        remedy = 'Say which: horovodrun --network-interface %s' % common[0]
        return [Finding(WARNING, check, None, message, remedy)]
    return [Finding(OK, check, None, 'Workers talk over %s.' % (chosen or common[0]))]


def check_host_names(facts: Dict[str, Facts]) -> List[Finding]:
    """Whether the name of each host leads the others to it; no finding if Horovod does not ask."""
    by_name = {host: of for host, of in facts.items() if (of['horovod_built'] or {}).get('by_name')}
    findings, check = [], 'host name'
    for host, of_host in by_name.items():
        address = of_host['name_address']
        if address and not ipaddress.ip_address(address.partition('%')[0]).is_loopback:
            continue
        message = 'Its name, %s, has %s; Horovod %s connects workers by it.' % (
            of_host['host'],
            'the address %s, where no other host finds it' % address if address else 'no address',
            of_host['horovod'],
        )
        remedy = 'Write into its /etc/hosts: the address by which others reach it, and the name.'
        findings.append(Finding(FAILURE, check, host, message, remedy))
    if by_name and not findings:
        findings = [Finding(OK, check, None, 'The name of each host leads the others to it.')]
    return findings


def check_reach(
    places: Dict[str, str], reached: Dict[str, Dict[str, Optional[str]]]
) -> List[Finding]:
    """Whether hosts can connect to each other's ports.

    In `places` each host has its `'address:port'`; in `reached`, a dict from the places of others
    to what went wrong, `None` where nothing did.
    """
    findings = []
    hosts = {place: host for host, place in places.items()}
    for host, outcome in reached.items():
        for place, problem in outcome.items():
            if problem is not None:
                message = 'Cannot connect to %s at %s (%s).' % (hosts[place], place, problem)
                remedy = 'Let the hosts of the job connect to each other on TCP ports 1024-65535.'
                findings.append(Finding(FAILURE, 'ports', host, message, remedy))
    return findings or [
        Finding(OK, 'ports', None, 'Every host connects to every other, tried on %d.' % len(places))
    ]


def exit_code(findings: Iterable[Finding]) -> int:
    """The doctor's exit code: 1 if anything is a failure, otherwise 0."""
    return int(any(finding.verdict == FAILURE for finding in findings))
