# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks manifests, workflows, the citation and the Dockerfile. Runs in .venv-tools, no network.

Manifests are compared with the schemas that the package `kubernetes-validate` brings along, and a
number or a name that stands in several places of one must be the same everywhere.
"""

import glob
import os
import subprocess
import sys

import kubernetes_validate
import yaml

#: The newest version whose schemas the package has.
VERSION = kubernetes_validate.latest_version()
#: Schemas that the package `check-jsonschema` brings along, to the files that they hold for.
BY_SCHEMA = {
    'github-workflows': sorted(glob.glob('.github/workflows/*.yml')),
    'citation-file-format': ['CITATION.cff'],
}


def documents(path):
    """The documents of a file of YAML."""
    with open(path, encoding='utf-8') as file:
        return list(yaml.safe_load_all(file))


def problems_of(path):
    """What is wrong with a file of manifests, a list of sentences."""
    found = []
    for document in documents(path):
        try:
            kubernetes_validate.validate(document, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            name = '%s %s' % (document.get('kind'), document.get('metadata', {}).get('name'))
            found.append('%s: %s: %s' % (path, name, error.message))
    return found


def disagreements(job):
    """What the parts of an indexed Job say differently, a list of sentences."""
    spec, pod = job['spec'], job['spec']['template']['spec']
    environ = {entry['name']: entry['value'] for entry in pod['containers'][0]['env']}
    first = '%s-0.%s' % (job['metadata']['name'], pod['subdomain'])
    pairs = [
        ('parallelism', spec['parallelism'], spec['completions']),
        ('HOROVOD_SIZE', environ['HOROVOD_SIZE'], str(spec['completions'])),
        ('HOROVOD_GLOO_RENDEZVOUS_ADDR', environ['HOROVOD_GLOO_RENDEZVOUS_ADDR'], first),
    ]
    return [
        '%s is %s instead of %s' % (name, value, expected)
        for name, value, expected in pairs
        if value != expected
    ]


def wrong_by_schema():
    """Says what is wrong with workflows and the citation; the number of kinds that are wrong."""
    program = os.path.join(os.path.dirname(sys.executable), 'check-jsonschema')
    if not os.path.exists(program):
        print('workflows, citation: not checked, for check-jsonschema needs Python 3.10')
        return 0
    return sum(
        subprocess.call([program, '--quiet', '--builtin-schema', 'vendor.' + schema, *paths]) != 0
        for schema, paths in BY_SCHEMA.items()
    )


def main():
    """Prints what is wrong; returns the exit code."""
    paths = sorted(glob.glob('examples/kubernetes/*.yaml'))
    problems = [problem for path in paths for problem in problems_of(path)]
    jobs = [each for path in paths for each in documents(path) if each['kind'] == 'Job']
    if not problems:
        problems = [problem for job in jobs for problem in disagreements(job)]
    print(
        '\n'.join(problems) or '%d manifests are valid for Kubernetes %s.' % (len(paths), VERSION)
    )
    hadolint = os.path.join(os.path.dirname(sys.executable), 'hadolint')
    return bool(problems) or wrong_by_schema() or subprocess.call([hadolint, 'Dockerfile'])


if __name__ == '__main__':
    sys.exit(main())
