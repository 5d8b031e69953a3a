# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Takes measurements and writes the report: what `make bench` starts.

python benchmarks/run.py                                  # everything: hours
python benchmarks/run.py --missing                        # what has no result as yet
python benchmarks/run.py --quick                          # what a small machine does
python benchmarks/run.py --suite lm --hosts 2,8 --systems hybrid,hvd-allgather
"""

import json
import os
import subprocess
import sys
import time

import click
from measuring import measure, suites
from report import compare, page, results, scripts, stack_page
from systems.catalog import SYSTEMS, is_here
from works import stack

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_OUT = os.path.join(HERE, '..', 'docs', 'benchmarks')
#: What another stack than the first measures and writes: a folder of its own, with one page.
IS_FIRST = stack.NAME == stack.FIRST
if not IS_FIRST:
    DEFAULT_OUT = os.path.join(DEFAULT_OUT, stack.NAME)
PUBLISHED = suites.PUBLISHED if IS_FIRST else suites.PUBLISHED_ELSEWHERE
write = page.write if IS_FIRST else stack_page.write
#: Benchmarks that are scripts of their own, to what makes them quick.
SCRIPTS = dict(
    {name: ['--rounds', '1'] for name in scripts.SCRIPTS},
    convergence=['--hosts', '2', '--steps', '20'],
)
CHOICES = tuple(SCRIPTS) + tuple(suites.SUITES)
QUICK = {'hosts': (1, 2, 8), 'bandwidths': (200,), 'steps': 10, 'rounds': 1}


def numbers(text, kind=int):
    """`'1,2,8'` as a tuple of numbers."""
    return tuple(kind(part) for part in text.split(','))


@click.command()
@click.option('--suite', 'chosen', type=click.Choice(sorted(CHOICES)), multiple=True)
@click.option('--hosts', help='Numbers of hosts, for instance 2,8.')
@click.option('--workers-per-host', type=int, help="Workers of a host, instead of the suite's.")
@click.option('--bandwidth', help='Mbit/s, for instance 200,1000; 0 for no limit.')
@click.option(
    '--cores-per-host',
    type=float,
    help="What a host has of the processor, instead of the suite's; 0 for no limit.",
)
@click.option('--systems', help='Of %s.' % ', '.join(SYSTEMS))
@click.option('--options', help="JSON of the work's options, instead of the suite's variants.")
@click.option('--steps', type=int, help='Steps that are measured, where they are short.')
@click.option('--rounds', type=int, help='How often all is measured, with a part of the steps.')
@click.option('--quick', is_flag=True, help='Fewer hosts, speeds and steps.')
@click.option('--missing', is_flag=True, help='Only what was not measured with these sources.')
@click.option('--out', default=DEFAULT_OUT, help='Folder for results and report.')
@click.option('--report-only', is_flag=True, help='Write the report of what is there.')
def main(
    chosen, hosts, workers_per_host, bandwidth, cores_per_host, systems, options, steps,
    rounds, quick, missing, out, report_only,
):  # fmt: skip
    """Measures our training and its peers on an emulated cluster."""
    os.makedirs(out, exist_ok=True)
    kept = results.Results(out)
    arguments = {
        'hosts': numbers(hosts) if hosts else QUICK['hosts'] if quick else (1, 2, 4, 8),
        'workers_per_host': workers_per_host,
        'systems': systems.split(',') if systems else None,
        'steps': steps or (QUICK['steps'] if quick else None),
        'variants': [json.loads(options)] if options else None,
        'bandwidths': QUICK['bandwidths'] if quick else None,
        'rounds': rounds,
    }
    if bandwidth:
        arguments['bandwidths'] = [speed or None for speed in numbers(bandwidth, float)]
    here = list(filter(is_here, SYSTEMS))
    unknown = set(arguments['systems'] or ()) - set(here)
    if unknown:
        raise click.ClickException(
            'No such system: %s. There are %s.' % (', '.join(unknown), ', '.join(here))
        )
    published = (tuple(SCRIPTS) if IS_FIRST else stack_page.SCRIPTS) + PUBLISHED
    for name in [] if report_only else chosen or published:
        if name in SCRIPTS:
            if not (missing and results.is_current(out, name)):
                command = [sys.executable, os.path.join(HERE, name + '.py'), '--out', out]
                command += SCRIPTS[name] if quick else []
                subprocess.check_call(command)
            continue
        cores = suites.cores_of(name) if cores_per_host is None else cores_per_host
        cases = [
            case
            for case in suites.cases(name, cores_per_host=cores or None, **arguments)
            if is_here(case['system']) and not (missing and kept.has(case))
        ]
        if cases:
            take(name, cases, rounds or suites.rounds_of(name), kept)
            write(kept.records, out)
    write(kept.records, out)


def take(suite, cases, rounds, kept):
    """Takes the measurements of a suite so often, in turns, and keeps each as it comes."""
    taken, run = [], time.time()
    with click.progressbar(length=rounds * len(cases), label=suite, file=sys.stderr) as bar:

        def done(record):
            taken.append(record)
            of_case = [other for other in taken if results.same_case(other, record)]
            kept.add(dict(compare.middle(of_case), run=run))
            click.echo('\n' + page.line(record))
            bar.update(1)

        try:
            for _ in range(rounds):
                measure.measure_all(cases, done)
        except measure.BenchmarkError as error:
            raise click.ClickException(str(error)) from error


if __name__ == '__main__':
    main()
