"""Takes measurements and writes the report: what `make bench` starts.

python benchmarks/run.py                                  # everything: hours
python benchmarks/run.py --quick                          # what a small machine does
python benchmarks/run.py --suite lm --hosts 2,8 --systems hybrid,hvd-allgather
"""

import json
import os
import sys

import click
import measure
import report
import suites
from systems import SYSTEMS

DEFAULT_OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'docs', 'benchmarks')
#: Link speeds that are published, Mbit/s; `None` leaves the links as fast as the machine is.
BANDWIDTHS = (None, 1000, 200)
QUICK = {'hosts': (1, 2, 8), 'bandwidths': (200,), 'steps': 10}


def numbers(text):
    """`'1,2,8'` as a tuple of numbers."""
    return tuple(int(part) for part in text.split(','))


def same_case(one, other):
    """Whether two records are of the same measurement, so that the later one counts."""
    keys = ('suite', 'options', 'system', 'hosts', 'workers_per_host', 'bandwidth_mbit')
    return all(one.get(key) == other.get(key) for key in keys)


class Results:
    """The records of a folder, kept in `results.json` as they come."""

    def __init__(self, folder):
        self.path = os.path.join(folder, 'results.json')
        self.records = []
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.records = json.load(file)['records']

    def add(self, record):
        """Adds a record; one of the same case before it goes."""
        self.records = [old for old in self.records if not same_case(old, record)] + [record]
        with open(self.path + '.new', 'w') as file:
            json.dump({'machine': report.machine(), 'records': self.records}, file, indent=1)
            file.write('\n')
        os.replace(self.path + '.new', self.path)


@click.command()
@click.option('--suite', 'chosen', type=click.Choice(sorted(suites.SUITES)), multiple=True)
@click.option('--hosts', help='Numbers of hosts, for instance 2,8.')
@click.option('--workers-per-host', default=1, show_default=True)
@click.option('--bandwidth', help='Mbit/s, for instance 200,1000; 0 for no limit.')
@click.option('--systems', help='Of %s.' % ', '.join(SYSTEMS))
@click.option('--options', help="JSON of the work's options, instead of the suite's variants.")
@click.option('--steps', type=int, help='Steps that are measured.')
@click.option('--quick', is_flag=True, help='Fewer hosts, speeds and steps.')
@click.option('--out', default=DEFAULT_OUT, help='Folder for results and report.')
@click.option('--report-only', is_flag=True, help='Write the report of what is there.')
def main(
    chosen, hosts, workers_per_host, bandwidth, systems, options, steps, quick, out, report_only
):
    """Measures our training and its peers on an emulated cluster."""
    os.makedirs(out, exist_ok=True)
    results = Results(out)
    speeds = QUICK['bandwidths'] if quick else BANDWIDTHS
    if bandwidth:
        speeds = [speed or None for speed in numbers(bandwidth)]
    arguments = {
        'hosts': numbers(hosts) if hosts else QUICK['hosts'] if quick else (1, 2, 4, 8),
        'workers_per_host': workers_per_host,
        'systems': systems.split(',') if systems else None,
        'steps': steps or (QUICK['steps'] if quick else 30),
        'variants': [json.loads(options)] if options else None,
    }
    unknown = set(arguments['systems'] or ()) - set(SYSTEMS)
    if unknown:
        raise click.ClickException(
            'No such system: %s. There are %s.' % (', '.join(unknown), ', '.join(SYSTEMS))
        )
    for suite in [] if report_only else chosen or suites.PUBLISHED:
        cases = suites.cases(suite, **arguments)
        for speed in speeds:
            if not cases:
                continue
            with click.progressbar(
                length=len(cases), label='%s, %s Mbit/s' % (suite, speed or 'any'), file=sys.stderr
            ) as bar:

                def done(record, bar=bar):
                    results.add(record)
                    click.echo('\n' + report.line(record))
                    bar.update(1)

                try:
                    measure.measure_all(cases, speed, done)
                except measure.BenchmarkError as error:
                    raise click.ClickException(str(error)) from error
    report.write(results.records, out)


if __name__ == '__main__':
    main()
