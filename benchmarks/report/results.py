# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The records of all measurements, kept in a file as they come."""

import json
import os
import platform
import time

from report import sources

#: What makes two records be of the same measurement.
CASE = (
    'suite', 'options', 'system', 'hosts', 'workers_per_host', 'bandwidth_mbit', 'cores_per_host',
)  # fmt: skip


def same_case(one, other):
    """Whether two records are of the same measurement, so that the later one counts."""
    return all(one.get(key) == other.get(key) for key in CASE)


def machine():
    """What the measurements ran on."""
    # Not above: `startup.py` measures what our package, which imports it, takes to import.
    import psutil

    model = platform.processor()
    with open('/proc/cpuinfo') as file:
        for line in file:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return {
        'processor': model,
        'cores': os.cpu_count(),
        'memory_gib': round(psutil.virtual_memory().total / 2**30),
        'system': '%s %s' % (platform.system(), platform.release().split('-')[0]),
        'python': platform.python_version(),
    }


def recorded_machine(folder):
    """What the measurements of a folder ran on; this machine, where it has none."""
    path = os.path.join(folder, 'results.json')
    if not os.path.exists(path):
        return machine()
    with open(path) as file:
        return json.load(file)['machine']


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
        write(self.path, {'machine': machine(), 'records': self.records})


def write(path, content):
    """Writes a file of JSON, whole or not at all, in a folder that is made if there is none."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + '.new', 'w') as file:
        json.dump(content, file, indent=1)
        file.write('\n')
    os.replace(path + '.new', path)


def publish(folder, name, found):
    """Keeps what a benchmark in `scripts.SCRIPTS` has measured, with machine and day."""
    write(os.path.join(folder, name + '.json'), _content(name, found))


def publish_part(folder, name, found, told_by):
    """As `publish`, of a benchmark that can measure a part; the rest of what was kept stays.

    Args:
        folder: what keeps it.
        name: the benchmark's, one of `scripts.SCRIPTS`.
        found: a list of dicts.
        told_by: names of their entries that tell what was measured.
    """
    former = published(folder, name) or {'results': []}
    measured = {_key(one, told_by): one for one in found}
    placed = {_key(one, told_by): one for one in former['results']}
    content = _content(name, list({**placed, **measured}.values()))
    if placed.keys() - measured.keys():
        days = {former['date'].split(' to ')[0], content['date']}
        content['date'] = ' to '.join(sorted(days))
        if former['sources'] != content['sources']:
            content['sources'] = None  # Of several sources, and so not current.
    write(os.path.join(folder, name + '.json'), content)


def _content(name, found):
    return {
        'machine': machine(),
        'date': time.strftime('%Y-%m-%d'),
        'sources': sources.fingerprint([name]),
        'results': found,
    }


def _key(result, told_by):
    """The named entries of a result, a tuple."""
    return tuple(result[name] for name in told_by)


def published(folder, name):
    """What a benchmark in `scripts.SCRIPTS` has left in a folder, or `None`."""
    path = os.path.join(folder, name + '.json')
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def is_current(folder, name):
    """Whether a benchmark in `scripts.SCRIPTS` was run with the sources as they are now."""
    content = published(folder, name)
    return content is not None and content['sources'] == sources.fingerprint([name])
