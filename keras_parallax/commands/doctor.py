# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax doctor`: looks whether a job would run, on this machine or over ssh on many.

It asks the hosts (`host_facts`), has the answers judged (`doctor_checks`) and prints the
verdicts. It goes to a host the way `horovodrun` does, and runs the same Python in the same folder
there.
"""

import inspect
import json
import os
import select
import shlex
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import (
    IO,
    Any,
    Callable,
    Container,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    cast,
)

import click

from keras_parallax.commands import doctor_checks, host_facts, launcher_path
from keras_parallax.commands.doctor_checks import FAILURE, OK, WARNING, Facts, Finding
from keras_parallax.planning.units import counted

#: A host that has not answered by then is taken for dead.
_LIMIT_SECONDS = 120

#: How many hosts are asked at a time.
_AT_A_TIME = 32

#: What decides which code a Python finds; `horovodrun` passes these on with all others.
_PASSED_ON = ('PATH', 'PYTHONPATH', 'LD_LIBRARY_PATH')

_COLORS = {OK: 'green', WARNING: 'yellow', FAILURE: 'red'}


class HostSpec(NamedTuple):
    """A host of the job: its name, its number of workers, and whether it is this machine."""

    name: str
    slots: int
    is_here: bool


class HostError(Exception):
    """A host that cannot be asked; holds the `Finding`."""


def parse_hosts(
    text: str, local_addresses: Container[str], resolve: Callable[[str], str]
) -> List[HostSpec]:
    """Reads hosts in `horovodrun`'s way, as in `'first:2,second:2'`: a list of `HostSpec`s.

    Function `resolve` gives the IPv4 address of a host's name, or raises `OSError`. A text that
    does not read so is a `ValueError`, with a sentence.
    """
    hosts = []
    for part in text.split(','):
        name, colon, slots = part.strip().partition(':')
        if not (name and colon and slots.isdigit() and int(slots)):
            raise ValueError(
                "Hosts are given as NAME:WORKERS,NAME:WORKERS, as in 'first:2,second:2'; %r is "
                'not NAME:WORKERS.' % part
            )
        try:
            is_here = resolve(name) in local_addresses
        except OSError:
            is_here = False
        hosts.append(HostSpec(name, int(slots), is_here))
    if len({host.name for host in hosts}) < len(hosts):
        raise ValueError('A host is named twice in %r.' % text)
    return hosts


def command_on(
    host: HostSpec, words: Sequence[str], port: Optional[int], environ: Mapping[str, str]
) -> List[str]:
    """The words of the command that has a host run `host_facts` in this Python's place."""
    command = [sys.executable, '-c', inspect.getsource(host_facts)] + list(words)
    if host.is_here:
        return command
    passed = ['%s=%s' % (name, environ[name]) for name in _PASSED_ON if name in environ]
    line = 'cd %s > /dev/null 2>&1 ; %s' % (
        shlex.quote(os.getcwd()),
        ' '.join(map(shlex.quote, ['env'] + passed + command)),
    )
    # BatchMode: a question for a password would wait for ever in a job.
    options = ['-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=no', '-o', 'ConnectTimeout=10']
    return ['ssh'] + options + (['-p', str(port)] if port else []) + [host.name, line]


class Doctor:
    """Asks hosts, `HostSpec`s, through the port of their sshd; `None` for ssh's own choice."""

    def __init__(self, hosts: List[HostSpec], port: Optional[int] = None) -> None:
        self._hosts = hosts
        self._port = port

    def ask(self, host: HostSpec, *words: str) -> Any:
        """The answer of a host that runs `host_facts`; raises `HostError` if there is none."""
        try:
            process = subprocess.run(
                command_on(host, words, self._port, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=_LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise HostError(late(host)) from None
        if process.returncode == 0:
            return json.loads(process.stdout.splitlines()[-1])
        last_line = (process.stderr.strip().splitlines() or ['nothing was said'])[-1]
        raise HostError(unanswered(host, process.returncode, last_line))

    def _ssh_options(self, host: HostSpec) -> str:
        """The options that `ssh` would use for a host, as it prints them."""
        command = ['ssh', '-G'] + (['-p', str(self._port)] if self._port else []) + [host.name]
        return subprocess.check_output(
            command, universal_newlines=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_SECONDS
        )

    def facts(self, disk: str, files: List[str]) -> Tuple[Dict[str, Facts], List[Finding]]:
        """A dict from each host that answers to its facts, and a list of findings about all."""
        request = json.dumps({'disk': disk, 'files': files})

        def ask(host: HostSpec) -> Tuple[Optional[Facts], List[Finding]]:
            sent_at = time.time()
            try:
                answer = self.ask(host, 'facts', request)
            except HostError as error:
                return None, [error.args[0]]
            if host.is_here:
                return answer, []
            return answer, [
                Finding(OK, 'ssh', host.name, 'Logs in without a password.'),
                *doctor_checks.check_cut_off(host.name, self._ssh_options(host)),
                *doctor_checks.check_clock(host.name, answer, sent_at, time.time()),
            ]

        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            answers = list(pool.map(ask, self._hosts))
        facts = {host.name: answer for host, (answer, _) in zip(self._hosts, answers) if answer}
        return facts, [finding for _, findings in answers for finding in findings]

    def reach(self, addresses: Dict[str, str]) -> List[Finding]:
        """Findings of whether hosts connect to each other at `addresses`, a dict by host."""
        hosts = [host for host in self._hosts if host.name in addresses]
        listeners, places = [], {}
        try:
            for host in hosts:
                command = command_on(host, ['listen', addresses[host.name]], self._port, os.environ)
                listeners.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        universal_newlines=True,
                    )
                )
            for host, listener in zip(hosts, listeners):
                output, errors = cast(IO[str], listener.stdout), cast(IO[str], listener.stderr)
                ready, _, _ = select.select([output], [], [], _LIMIT_SECONDS)
                if not ready:
                    return [late(host)]
                line = output.readline()
                if not line:
                    last_line = (errors.read().strip().splitlines() or [''])[-1]
                    return [unanswered(host, listener.wait(), last_line)]
                places[host.name] = '%s:%d' % (addresses[host.name], json.loads(line))

            def connect(host: HostSpec) -> Dict[str, Optional[str]]:
                others = [place for name, place in places.items() if name != host.name]
                return self.ask(host, 'connect', *others)

            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                reached = dict(zip(places, pool.map(connect, hosts)))
            return doctor_checks.check_reach(places, reached)
        except HostError as error:
            return [error.args[0]]
        finally:
            for listener in listeners:
                listener.terminate()
                listener.communicate()


def late(host: HostSpec) -> Finding:
    """The `Finding` about a host that takes too long."""
    remedy = 'Log in and see whether the host is overloaded or its file system hangs.'
    return Finding(FAILURE, 'ssh', host.name, 'No answer in %d s.' % _LIMIT_SECONDS, remedy)


def unanswered(host: HostSpec, code: int, last_line: str) -> Finding:
    """The `Finding` about a host that did not run `host_facts`, but ended with a code."""
    if code == 255 and not host.is_here:
        remedy = doctor_checks.remedy_of_ssh(host.name, last_line)
        return Finding(FAILURE, 'ssh', host.name, 'ssh fails: %s' % last_line, remedy)
    if code in (126, 127) and not host.is_here:
        message = 'There is no Python at %s: %s' % (sys.executable, last_line)
        remedy = 'Have the same Python environment in the same place on every host.'
        return Finding(FAILURE, 'same code', host.name, message, remedy)
    message = 'Python ends with code %d when it imports the packages: %s' % (code, last_line)
    # A processor without AVX gives code -4 (132 from a shell): TensorFlow's wheels use it.
    remedy = 'Try there: %s -c "import horovod.tensorflow"' % sys.executable
    return Finding(FAILURE, 'versions', host.name, message, remedy)


def examine(
    hosts: List[HostSpec],
    port: Optional[int],
    interface: Optional[str],
    disk: str,
    files: List[str],
) -> List[Finding]:
    """All `Finding`s about a job; arguments as the command's."""
    doctor = Doctor(hosts, port)
    facts, findings = doctor.facts(disk, files)
    slots = sum(host.slots for host in hosts)
    problem = launcher_path.problem(launcher_path.found(), launcher_path.beside())
    findings += doctor_checks.check_launcher(problem)
    for name, of_host in facts.items():
        findings += doctor_checks.check_host(name, of_host, slots, len(hosts))
    if len(facts) < 2:
        return findings
    findings += doctor_checks.check_same_code(facts)
    findings += doctor_checks.check_interface(facts, interface)
    findings += doctor_checks.check_host_names(facts)
    common = doctor_checks.interfaces_in_common(facts)
    if interface in common or (interface is None and common):
        used = interface or common[0]
        findings += doctor.reach(
            {
                name: cast(str, doctor_checks.ipv4_address(of_host, used))  # All hosts have one.
                for name, of_host in facts.items()
            }
        )
    return findings


def as_text(findings: Sequence[Finding]) -> str:
    """The report for people, a string of several lines."""
    lines = []
    for finding in findings:
        verdict = click.style('%-8s' % finding.verdict, fg=_COLORS[finding.verdict])
        host = finding.host + ': ' if finding.host else ''
        lines.append('%s %-13s %s%s' % (verdict, finding.check, host, finding.message))
        if finding.remedy:
            lines.append('%s-> %s' % (' ' * 23, finding.remedy))
    verdicts = [finding.verdict for finding in findings]
    counts = [(verdict, verdicts.count(verdict)) for verdict in (FAILURE, WARNING)]
    words = [counted(number, verdict) for verdict, number in counts if number]
    return '\n'.join(lines + [' and '.join(words) + '.' if words else 'All is well.'])


def as_json(findings: Sequence[Finding]) -> str:
    """The report for programs, a string."""
    return json.dumps(
        {
            'ok': not doctor_checks.exit_code(findings),
            'findings': [dict(finding._asdict()) for finding in findings],
        },
        indent=2,
    )


@click.command()
@click.option(
    '-H', '--hosts', metavar='NAME:WORKERS,...', default='localhost:2', show_default=True,
    help='The hosts, as horovodrun takes them.',
)  # fmt: skip
@click.option('-p', '--ssh-port', type=int, help='Port of sshd on the hosts.')
@click.option('--network-interface', metavar='NAME', help='As given to horovodrun.')
@click.option(
    '--checkpoint-dir', metavar='FOLDER', default='.', show_default=True,
    help='Where the job writes its checkpoints.',
)  # fmt: skip
@click.option('--json', 'wants_json', is_flag=True, help='Print JSON.')
@click.argument('files', nargs=-1, type=click.Path(exists=True, dir_okay=False))
def command(
    hosts: str,
    ssh_port: Optional[int],
    network_interface: Optional[str],
    checkpoint_dir: str,
    wants_json: bool,
    files: Tuple[str, ...],
) -> None:
    """Look whether a job would run: versions, hosts, network, disk.

    FILES are files of yours, your script for instance, that have to be the same on every host.

    Prints ok, warning or failure for each check, and what to do. Exits with 1 after a failure.
    """
    try:
        parsed = parse_hosts(hosts, _local_addresses(), socket.gethostbyname)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint='--hosts') from None
    findings = examine(parsed, ssh_port, network_interface, checkpoint_dir, list(files))
    click.echo(as_json(findings) if wants_json else as_text(findings))
    sys.exit(doctor_checks.exit_code(findings))


def _local_addresses() -> Set[str]:
    import psutil

    return {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    }
