# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks keras-parallax on a machine with a GPU in one go, within ten minutes.

    python3 benchmarks/gpu/check.py --wheels wheels --out results
    python3 benchmarks/gpu/check.py --env .venv-tf2.21/bin/python --out results

Writes `results`, as JSON and as a page of Markdown, into the folder of `--out` after every part, so
that a run that is cut short still tells. The exit code is 1 if any check failed. Without a GPU
sizes are small, and checks that need one are skipped. `README.md` beside this file has the stages.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Dict, List, Optional, Tuple

HERE = os.path.dirname(os.path.abspath(__file__))
BENCHMARKS = os.path.dirname(HERE)
CHECKOUT = os.path.dirname(BENCHMARKS)
if not __package__:  # Started as a script.
    sys.path[0] = BENCHMARKS

from gpu import install, running  # noqa: E402
from gpu.findings import FAILED, PASSED, SKIPPED, Budget, Finding, Findings  # noqa: E402
from gpu.parts import Part, parts  # noqa: E402
from gpu.reporting import SIZES  # noqa: E402

#: A part that has less time than this is not started.
LEAST_SECONDS = 15
#: How many times its limit a part may take on a machine without a card, which may have few cores.
SLOWER = 2
#: What part of the card's memory ranks may take that let it grow as it is needed.
MOST_OF_CARD = 0.5
_HAS = """
import importlib.util as util, json
names = 'tensorflow', 'tf_keras', 'jax', 'keras'
found = {name: util.find_spec(name) is not None for name in names}
if found['keras']:
    import importlib.metadata as metadata
    found['keras'] = int(metadata.version('keras').split('.')[0]) >= 3
print(json.dumps(found))
"""


def first_card() -> Optional[Tuple[str, str, float]]:
    """The number, the name and the memory in MiB of the card that is checked, or `None`."""
    asked = ['nvidia-smi', '--query-gpu=index,name,memory.total', '--format=csv,noheader,nounits']
    try:
        lines = subprocess.check_output(asked, universal_newlines=True).splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    for line in lines:
        number, name, memory = [word.strip() for word in line.split(',')]
        if visible is None or number == visible.split(',')[0]:
            return number, name, float(memory)
    return None


def lacking(part: Part, has: Dict[str, bool], card: bool, smoke: bool) -> str:
    """Why a part is skipped; empty if it is not."""
    if part.needs == 'card' and not card:
        return 'no GPU: nvidia-smi lists none'
    if part.needs in ('keras 3', 'jax') and not has['keras']:
        return 'Keras 3 is not installed'
    if part.needs == 'jax' and not has['jax']:
        return 'JAX is not installed'
    if smoke and not part.in_smoke:
        return '--smoke leaves it out'
    return ''


def command_of(part: Part, python: str) -> List[str]:
    """The command that runs a part."""
    own = [python, '-m', 'gpu.' + part.script, *part.arguments]
    if not part.ranks:
        return own
    # Not the script `horovodrun`: an environment that was moved names another Python there.
    launcher = 'from horovod.runner.launch import run_commandline as run; run()'
    ranks = str(part.ranks)
    return [python, '-c', launcher, '-np', ranks, '-H', 'localhost:' + ranks, *own]


def environ_of(part: Part, python: str, card: Optional[str]) -> Dict[str, str]:
    """The environment variables of a part, all of whose ranks share one card."""
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='1', PYTHONUNBUFFERED='1')
    environ['PYTHONPATH'] = os.pathsep.join([BENCHMARKS, CHECKOUT])
    environ['PATH'] = os.path.dirname(python) + os.pathsep + environ['PATH']
    environ[SIZES] = 'small' if card is None else 'card'
    environ['CUDA_VISIBLE_DEVICES'] = '' if card is None else card
    if part.ranks > 1:
        environ['KERAS_PARALLAX_GPUS'] = ','.join('0' * part.ranks)
        # NCCL refuses two ranks on one card without.
        environ['NCCL_MULTI_RANK_GPU_ENABLE'] = '1'
    # What was installed without compiled files would be compiled by every process anew.
    environ.pop('PYTHONDONTWRITEBYTECODE', None)
    environ.update(part.environ)
    return environ


def with_card_use(
    found: List[Finding], samples: List[Tuple[float, float, float]], card_mib: float
) -> List[Finding]:
    """The findings of a part, with the card's use while it ran.

    Args:
        found: the findings. `begin` and `end` among their numbers are replaced.
        samples: those of a `running.CardUse`.
        card_mib: the card's memory.
    """
    whole = running.use_between(samples, 0, float('inf'))
    changed = []
    for finding in found:
        numbers = dict(finding.numbers)
        begin, end = numbers.pop('begin', None), numbers.pop('end', None)
        if begin is not None:
            numbers.update(running.use_between(samples, begin, end))
        changed.append(finding._replace(numbers=numbers))
    if found and found[0].stage == 'three lines' and whole:
        used = whole['card_memory_mib'] / card_mib
        passed = used < MOST_OF_CARD
        reason = '' if passed else 'the memory of the card does not grow as needed: it is taken'
        numbers = {'card_memory_mib': whole['card_memory_mib'], 'part_of_card': used}
        verdict = PASSED if passed else FAILED
        changed.append(
            Finding('three lines', found[0].part, 'memory growth', verdict, reason, numbers)
        )
    return changed


def run_part(part: Part, python: str, card: Optional[Tuple[str, str, float]], limit: float,
             out: str) -> List[Finding]:  # fmt: skip
    """Runs a part; returns its findings. The output of a part that failed is kept."""
    command = command_of(part, python)
    environ = environ_of(part, python, card[0] if card else None)
    samples: List[Tuple[float, float, float]] = []
    if card:
        with running.CardUse(card[0]) as use:
            outcome = running.run(command, environ, limit)
        samples = use.samples
    else:
        outcome = running.run(command, environ, limit)
    found = with_card_use(running.findings(part, outcome, limit), samples, card[2] if card else 0)
    if any(one.verdict == FAILED for one in found):
        name = '%s, %s.log' % (part.stage, part.name)
        with open(os.path.join(out, name.replace(' ', '_')), 'w') as file:
            file.write(outcome.output)
    print('%-12s %-40s %5.1f s' % (part.stage, part.name, outcome.seconds))
    for one in found:
        print('    %-26s %s %s' % (one.check, one.verdict, one.reason), flush=True)
    return found


def skipped(part: Part, why: str) -> List[Finding]:
    """The findings of a part that is not run."""
    return [Finding(part.stage, part.name, check, SKIPPED, why) for check in part.checks]


def check(python: str, about: Dict[str, str], out: str, smoke: bool, budget: Budget) -> Findings:
    """Runs all parts that can be run; returns the findings."""
    card = first_card()
    text = subprocess.check_output([python, '-c', _HAS], universal_newlines=True)
    has = json.loads(text.splitlines()[-1])
    about['GPU'] = '%s, %g MiB' % card[1:] if card else 'none, so sizes are small'
    findings = Findings(out, about)
    with tempfile.TemporaryDirectory() as folder:
        for part in parts(folder, smoke):
            why, limit = lacking(part, has, bool(card), smoke), 0.0
            if not why:
                limit = budget.limit(part.limit * (1 if card else SLOWER), LEAST_SECONDS)
                why = '' if limit else 'the time of --budget is over'
            found = skipped(part, why) if why else run_part(part, python, card, limit, out)
            findings.add(found)
    return findings


def main() -> int:
    """Reads the options, installs if asked to, and checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--wheels', help='folder that wheels.py has made: installs from it')
    source.add_argument('--env', help='the Python of an environment that has everything')
    parser.add_argument('--out', default='gpu-results', help='folder for the results')
    parser.add_argument('--budget', type=float, default=600, help='seconds for everything')
    parser.add_argument('--smoke', action='store_true', help='a few parts only, for CI')
    given = parser.parse_args()
    # So that the part that runs is ended, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    budget = Budget(given.budget)
    about = {'date': datetime.date.today().isoformat(), 'cores': str(os.cpu_count())}
    if given.wheels:
        folder = os.path.join(tempfile.mkdtemp(prefix='gpu-check-'), 'env')
        python = install.install(given.wheels, folder, budget.left())
        about['wheels'] = install.described(given.wheels)
        print('installed after %.0f s: %s' % (given.budget - budget.left(), python), flush=True)
    else:
        python = os.path.abspath(given.env)
    findings = check(python, about, given.out, given.smoke, budget)
    verdicts = [finding.verdict for finding in findings.all]
    counts = ', '.join('%d %s' % (verdicts.count(one), one) for one in (PASSED, FAILED, SKIPPED))
    print('%s; %s' % (counts, os.path.join(given.out, 'results')))
    return findings.exit_code()


if __name__ == '__main__':
    sys.exit(main())
