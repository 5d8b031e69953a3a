"""The records of all measurements, kept in a file as they come."""

import json
import os
import time

import report
import sources

#: What makes two records be of the same measurement.
CASE = (
    'suite', 'options', 'system', 'hosts', 'workers_per_host', 'bandwidth_mbit', 'cores_per_host',
)  # fmt: skip


def same_case(one, other):
    """Whether two records are of the same measurement, so that the later one counts."""
    return all(one.get(key) == other.get(key) for key in CASE)


class Results:
    """The records of a folder, kept in `results.json`."""

    def __init__(self, folder):
        self.path = os.path.join(folder, 'results.json')
        self.records = []
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.records = json.load(file)['records']
        self._sources = sources.fingerprint()

    def has(self, case):
        """Whether a case, failed ones too, was measured with the sources as they are now."""
        return any(
            same_case(record, case) and record.get('sources') == self._sources
            for record in self.records
        )

    def add(self, record):
        """Adds a record; one of the same case before it goes."""
        record = dict(record, date=time.strftime('%Y-%m-%d'), sources=self._sources)
        self.records = [old for old in self.records if not same_case(old, record)] + [record]
        write(self.path, {'machine': report.machine(), 'records': self.records})


def write(path, content):
    """Writes a file of JSON, whole or not at all."""
    with open(path + '.new', 'w') as file:
        json.dump(content, file, indent=1)
        file.write('\n')
    os.replace(path + '.new', path)


def publish(folder, name, found):
    """Keeps what a benchmark in `report.ALONE` has measured, with machine and day."""
    content = {
        'machine': report.machine(),
        'date': time.strftime('%Y-%m-%d'),
        'sources': sources.fingerprint([name]),
        'results': found,
    }
    write(os.path.join(folder, name + '.json'), content)


def published(folder, name):
    """Whether a benchmark in `report.ALONE` was run with the sources as they are now."""
    content = report.published(folder, name)
    return content is not None and content['sources'] == sources.fingerprint([name])
