# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The benchmarks on two small hosts, in a few minutes: judges bytes and losses, never time."""

import sys
import tempfile

from measuring import measure, suites
from report import compare, page, stack_page
from systems import catalog

#: What hybrid may send over the floor. Rows are narrower than in the real benchmarks, so headers
#: and row numbers count for more than there.
MOST_OVER_FLOOR = 1.15


def problems(records):
    """What is wrong with the records of the smoke test, a list of sentences."""
    found = [
        '%s failed: %s' % (record['system'], record['error'])
        for record in records
        if 'error' in record
    ]
    if found:
        return found
    by_speed = {}
    for record in records:
        by_speed.setdefault(record['bandwidth_mbit'], {})[record['system']] = record
    return [
        'At %g Mbit/s, %s' % (speed, problem)
        for speed, by_system in by_speed.items()
        for problem in _problems(by_system)
    ]


def _problems(by_system):
    """As `problems`, of the records of one link speed by system."""
    found, hybrid, allgather = [], by_system['hybrid'], by_system['hvd-allgather']
    for system in ('hybrid', 'allreduce'):
        if not compare.learns_alike(by_system[system], allgather):
            found.append(
                "%s learns differently: its last loss is %r, and Horovod's is %r."
                % (system, by_system[system]['losses'][-1], allgather['losses'][-1])
            )
    if not allgather['losses'][-1] < allgather['losses'][0]:
        found.append('the model does not learn: the losses are %r.' % allgather['losses'])
    over = hybrid['sent_bytes'] / hybrid['floor_bytes']
    # Below the floor, something other than training was counted.
    if not 1 <= over <= MOST_OVER_FLOOR:
        found.append('hybrid sends %.3f times the floor, not 1 to %.2f.' % (over, MOST_OVER_FLOOR))
    if not hybrid['sent_bytes'] < allgather['sent_bytes']:
        found.append(
            "hybrid sends %d bytes a step, no fewer than Horovod's %d."
            % (hybrid['sent_bytes'], allgather['sent_bytes'])
        )
    return found


def main():
    cases = [one for one in suites.cases('smoke', steps=10) if catalog.is_here(one['system'])]
    records = measure.measure_all(cases, lambda record: print(page.line(record), flush=True))
    with tempfile.TemporaryDirectory() as folder:
        page.write(records, folder)
        stack_page.write(records, folder)
    wrong = problems(records)
    for problem in wrong:
        print('smoke: ' + problem, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == '__main__':
    main()
