"""What `make test` leaves to `make test-all`: more of what another parameter shows already."""

import re

_OTHER_PACKAGE = 'both packages train with one engine; each file is run with one of them'

#: From files to triples: a regular expression of tests, one of the parameters with which
#: `make test` runs them (`None` if it does not run them at all), and why the others may wait.
SAMPLED = {
    'tests/parallel/test_async.py': [('.*', r'tf\.keras-.*', _OTHER_PACKAGE)],
    'tests/parallel/test_barrier.py': [('.*', 'tensorflow', 'all three wait by one queue')],
    'tests/parallel/test_behaviour.py': [('.*', 'keras-.*|keras', _OTHER_PACKAGE)],
    'tests/parallel/test_compiling.py': [('.*', 'keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_equality.py': [
        ('.*', '2-.*', 'on two ranks every case is compared, in one of the packages'),
    ],
    'tests/parallel/test_example.py': [
        ('.*', '(?!async).*', 'test_async.py trains without waiting, on less'),
    ],
    'tests/parallel/test_failures.py': [
        (
            'test_a_failed_job_ends_and_says_why',
            'bad_id|caught|early_success|exception|killed|other_rate|saves_alone|unequal_fit',
            'a way of each kind is tried',
        ),
        ('test_a_job_ends_well', 'ends_well', 'a way of each kind is tried'),
        ('test_a_job_ends_with_its_launcher', '.*SIGTERM.*TRAINS', 'a signal of three is sent'),
    ],
    'tests/parallel/test_former_files.py': [('.*', '2-.*', 'three ranks read the same parts')],
    'tests/parallel/test_restart.py': [
        ('test_a_worker_killed.*', None, 'tests/unit/test_atomic_files.py kills one process so'),
    ],
    'tests/parallel/test_resuming.py': [
        ('.*', None, 'test_saving.py goes on from each form with other numbers of ranks'),
    ],
    'tests/parallel/test_saving.py': [('.*', '.*(?<!tf.)keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_saving_by_all.py': [('.*', r'tf\.keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_search.py': [
        ('.*', None, 'test_equality.py searches while it trains, on fewer steps'),
    ],
    'tests/parallel/test_sessions.py': [('.*', r'tf\.keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_tables.py': [('.*', 'keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_threads.py': [('.*', 'sparse', 'one kind of session is asked')],
    'tests/parallel/test_training.py': [('.*', r'tf\.keras.*', _OTHER_PACKAGE)],
}


def is_exhaustive(file, name):
    """Whether only `make test-all` runs a test.

    Args:
        file: its file, from the project's folder.
        name: its name, with its parameters in brackets.
    """
    test, _, parameters = name.partition('[')
    return file.startswith('tests/outside/') or any(
        kept is None or (parameters and not re.fullmatch(kept, parameters[:-1]))
        for pattern, kept, _ in SAMPLED.get(file, ())
        if re.fullmatch(pattern, test)
    )
