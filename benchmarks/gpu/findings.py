# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The results of the GPU check: a file of JSON and a page of Markdown, written after every part."""

import json
import os
import time
from typing import Any, Dict, List, NamedTuple

PASSED, FAILED, SKIPPED = 'passed', 'failed', 'skipped'
#: Pairs of systems whose step times are compared, the faster one first if all is well.
RATIOS = (
    ('ours, one process', 'plain Keras'),
    ('ours, hybrid', "Horovod's allgather"),
    ('ours, allreduce', "Horovod's allgather"),
)


class Finding(NamedTuple):
    """The outcome of one check.

    Attributes:
        stage: name of the stage, for instance `'equality'`.
        part: name of the part, a process or a job that makes some checks.
        check: name of the check.
        verdict: `PASSED`, `FAILED` or `SKIPPED`.
        reason: why it failed or was skipped; otherwise empty.
        numbers: what was measured, plain data.
    """

    stage: str
    part: str
    check: str
    verdict: str
    reason: str = ''
    numbers: Dict[str, Any] = {}


class Budget:
    """The seconds that are left of the time for the whole check.

    Args:
        seconds: how many there are.
        clock: function that returns the time in seconds.
    """

    def __init__(self, seconds: float, clock: Any = time.monotonic) -> None:
        self._clock, self._end = clock, clock() + seconds

    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._end - self._clock())

    def limit(self, wanted: float, least: float) -> float:
        """How long a part may run: `wanted` or what is left; 0 if that is below `least`."""
        limit = min(wanted, self.left())
        return limit if limit >= least else 0.0


class Findings:
    """All findings so far, kept in a folder.

    Args:
        folder: where `results`, with the endings `json` and `md`, are written.
        about: what was checked, for the head of both files.
    """

    def __init__(self, folder: str, about: Dict[str, Any]) -> None:
        self.all: List[Finding] = []
        self.about, self._path = about, os.path.join(folder, 'results')
        os.makedirs(folder, exist_ok=True)

    def add(self, found: List[Finding]) -> None:
        """Adds the findings of a part and writes both files."""
        self.all += found
        content = dict(self.about, findings=[finding._asdict() for finding in self.all])
        content['ratios'] = ratios(self.all)
        _write(self._path + '.json', json.dumps(content, indent=1) + '\n')
        _write(self._path + '.md', page(self.about, self.all))

    def exit_code(self) -> int:
        """1 if a check failed or none passed, else 0."""
        verdicts = [finding.verdict for finding in self.all]
        return int(FAILED in verdicts or PASSED not in verdicts)


def ratios(findings: List[Finding]) -> List[Dict[str, Any]]:
    """The step times of `RATIOS`, for each work for which both were measured.

    A system that had several turns counts with its fastest one: other processes can only slow
    a turn down.
    """
    best: Dict[Any, float] = {}
    for finding in findings:
        if finding.stage == 'speed' and finding.verdict == PASSED and 'work' in finding.numbers:
            key = finding.numbers['work'], finding.numbers['system']
            best[key] = min(best.get(key, float('inf')), finding.numbers['step_ms'])
    return [
        {'work': work, 'system': one, 'over': other, 'ratio': best[work, one] / best[work, other]}
        for work in sorted({work for work, _ in best})
        for one, other in RATIOS
        if (work, one) in best and (work, other) in best
    ]


def page(about: Dict[str, Any], findings: List[Finding]) -> str:
    """The page of Markdown."""
    lines = ['# GPU check', '']
    lines += ['- %s: %s' % (name, value) for name, value in about.items()]
    lines += ['', '| stage | part | check | verdict | reason, numbers |', '|---|---|---|---|---|']
    for finding in findings:
        said = [finding.reason] if finding.reason else []
        said += ['%s %s' % (name, _text(value)) for name, value in finding.numbers.items()]
        cells = finding.stage, finding.part, finding.check, finding.verdict, '; '.join(said)
        lines.append('| %s |' % ' | '.join(_cell(cell) for cell in cells))
    compared = ratios(findings)
    if compared:
        lines += ['', '| work | system | over | step time, ratio |', '|---|---|---|---|']
        lines += ['| %(work)s | %(system)s | %(over)s | %(ratio).2f |' % one for one in compared]
    return '\n'.join(lines) + '\n'


def _text(value: Any) -> str:
    return '%.4g' % value if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return ' '.join(text.replace('|', '\\|').split())


def _write(path: str, text: str) -> None:
    with open(path + '.new', 'w') as file:
        file.write(text)
    os.replace(path + '.new', path)
