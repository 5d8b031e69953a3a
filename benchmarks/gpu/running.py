# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs one part of the GPU check: a process or a job, with a time limit, and reads its checks."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gpu.findings import FAILED, PASSED, Finding
from gpu.parts import Part

#: The environment variable with the file to which a part appends its checks, a line of JSON each.
REPORT = 'GPU_CHECK_REPORT'
#: A line that names an exception, after what horovodrun puts before a rank's lines.
_ERROR = re.compile(r'(\[\d+\]<std\w+>:)?\s*[\w.]*(Error|Exception|Exit|Interrupt)\b(: |$)')
#: Milliseconds between two looks at the card.
SAMPLE_MS = 200


class Outcome(NamedTuple):
    """How a part ended.

    Attributes:
        code: its exit code; `None` if it was ended because its time was over.
        seconds: how long it ran.
        output: what it printed.
        reported: the checks that it reported, in order.
    """

    code: Optional[int]
    seconds: float
    output: str
    reported: List[Dict[str, Any]]


def run(command: List[str], environ: Dict[str, str], limit: float) -> Outcome:
    """Runs a command in a session of its own, and ends that session when its time is over."""
    with tempfile.TemporaryDirectory() as folder:
        report, log = os.path.join(folder, 'report'), os.path.join(folder, 'log')
        began = time.monotonic()
        with open(log, 'w') as output:
            process = subprocess.Popen(
                command,
                env=dict(environ, **{REPORT: report}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: Optional[int] = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_with_descendants(process)
        seconds = time.monotonic() - began
        with open(log, errors='replace') as file:
            text = file.read()
        return Outcome(code, seconds, text, _lines_of(report))


def findings(part: Part, outcome: Outcome, limit: float) -> List[Finding]:
    """The findings of a part: those that it reported, and a failure for each that is missing."""
    found = [
        Finding(
            part.stage,
            part.name,
            one['check'],
            PASSED if one['passed'] else FAILED,
            one['reason'],
            one['numbers'],
        )
        for one in outcome.reported
    ]
    missing = [name for name in part.checks if name not in [one.check for one in found]]
    ended = outcome.code is None
    why = last_words(outcome)
    if ended:
        why = 'the part did not end within %d s; %s' % (limit, why)
    for name in missing:
        found.append(Finding(part.stage, part.name, name, FAILED, 'not reported: ' + why))
    if not missing and outcome.code != 0:
        found.append(Finding(part.stage, part.name, 'ends well', FAILED, why))
    return found


def last_words(outcome: Outcome) -> str:
    """Why a part failed, in a line: its last error, or else its exit code."""
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    # What stopped the job comes before what the launcher and the other ranks say of its end.
    said = errors[0] if errors else ' / '.join(lines[-2:])
    return 'exit code %s, %s' % (outcome.code, said[-400:])


class CardUse:
    """Reads a card's use and memory from nvidia-smi while it is open.

    Attributes:
        samples: triples of the time, the use in percent and the memory in MiB.
    """

    def __init__(self, card: str) -> None:
        self.samples: List[Tuple[float, float, float]] = []
        self._command = [
            'nvidia-smi',
            '--id=' + card,
            '--query-gpu=utilization.gpu,memory.used',
            '--format=csv,noheader,nounits',
            '--loop-ms=%d' % SAMPLE_MS,
        ]

    def __enter__(self) -> 'CardUse':
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            sample = sample_of(line)
            if sample:
                self.samples.append((time.time(),) + sample)


def sample_of(line: str) -> Optional[Tuple[float, float]]:
    """The use and the memory in a line of nvidia-smi; `None` if it has no two numbers."""
    try:
        use, memory = [float(word) for word in line.split(',')]
    except ValueError:
        return None
    return use, memory


def use_between(
    samples: List[Tuple[float, float, float]], begin: float, end: float
) -> Dict[str, Any]:
    """The mean use and the largest memory between two times; empty if there is no sample."""
    chosen = [sample for sample in samples if begin <= sample[0] <= end]
    if not chosen:
        return {}
    mean = sum(use for _, use, _ in chosen) / len(chosen)
    return {'card_use_percent': mean, 'card_memory_mib': max(memory for _, _, memory in chosen)}


def _lines_of(path: str) -> List[Dict[str, Any]]:
    if not os.path.exists(path):
        return []
    found = []
    with open(path) as file:
        for line in file:
            # A part that was ended while it wrote leaves a line without an end.
            if line.endswith('\n'):
                found.append(json.loads(line))
    return found


def _end_with_descendants(process: 'subprocess.Popen[bytes]') -> None:
    """Ends a process and all that it has started, and waits until they are gone.

    Ranks that `horovodrun` starts have sessions of their own, so they are found by their parents. A
    process whose parent has ended is found by its session.
    """
    known = {process.pid}
    while True:
        alive, size = _processes(), 0
        while size < len(known):
            size = len(known)
            known |= {pid for pid, of in alive.items() if of[1] in known or of[2] in known}
        left = [pid for pid in known if pid in alive and alive[pid][0] != 'Z']
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # It has ended by now.
        time.sleep(0.05)
    process.wait()


def _processes() -> Dict[int, Tuple[str, int, int]]:
    """The state, the parent and the session of each process of this machine, by `/proc`."""
    found = {}
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/stat' % name) as file:
                fields = file.read().rpartition(')')[2].split()
        except OSError:
            continue  # It has ended by now.
        # After the name: state, parent, group, session.
        found[int(name)] = fields[0], int(fields[1]), int(fields[3])
    return found
