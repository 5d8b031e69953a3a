# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Breaks a copy of the package in twenty-four places, one at a time, and shows which test notices.

Usage, from the project's folder: `.venv/bin/python tests/mutations.py [NUMBER...]`. All together
they take about a quarter of an hour, and write `tests/MUTATIONS.md`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import exhaustive

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, 'tests', 'MUTATIONS.md')
HEADER = """# Mutations

Each of these changes was made to the code, alone, and the test beside it failed; without it
the test passes. `.venv/bin/python tests/mutations.py` does so again, and writes this page.

| | file | from | to | test that notices | `make test` runs it |
|---|---|---|---|---|---|
"""


class Mutation(NamedTuple):
    """A change of the code.

    Attributes:
        file: the file, in `keras_parallax/`.
        old, new: what stands there, once, and what is put in its place.
        test: the test that must fail, as pytest takes it.
    """

    file: str
    old: str
    new: str
    test: str


EQUALITY = (
    'tests/parallel/test_equality.py::test_workers_equal_plain_keras_on_the_joined_batch[2-%s]'
)
MUTATIONS = [
    Mutation(
        'planning/costs.py',
        'passed = 2.0 * gradient_size',
        'passed = 1.0 * gradient_size',
        'tests/unit/planning/test_costs.py::'
        'test_a_dense_variable_costs_4_w_times_n_minus_1_over_n_either_way',
    ),
    Mutation(
        'planning/classify.py',
        '    if use.whole_reads:\n',
        '    if len(use.whole_reads) > 1:\n',
        'tests/unit/planning/test_classify.py::'
        'test_sparse_is_what_is_looked_up_and_never_read_whole',
    ),
    Mutation(
        'planning/placement.py',
        'most = max(1, min(servers, weight.rows))',
        'most = max(1, servers)',
        'tests/unit/planning/test_placement.py::test_no_shard_is_empty_and_no_server_has_two_of_one_table',
    ),
    Mutation(
        'engine/tables/pull.py',
        'with tf.control_dependencies([check_of_ids(unique, table.rows, table.name)]):',
        'with tf.control_dependencies([]):',
        'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why[bad_id]',
    ),
    Mutation(
        'engine/tables/half_precision.py',
        'of_table * _power_of_two(-exponent)',
        'of_table * _power_of_two(1 - exponent)',
        'tests/unit/engine/tables/test_half_precision.py::test_rows_of_any_shape_come_back',
    ),
    Mutation(
        'engine/tables/initial_values.py',
        'block[(number - first) % count :: count]',
        'block[(number - first + 1) % count :: count]',
        'tests/parallel/test_start_values.py',
    ),
    Mutation(
        'engine/step/exchange.py',
        'values=gradients.values / self.size',
        'values=gradients.values',
        EQUALITY % 'tf.keras-sgd',
    ),
    Mutation(
        'engine/step/exchange.py',
        'return self.compression.decompress(self.allreduce(small, name), context) / self.size',
        'return self.compression.decompress(self.allreduce(small, name), context)',
        'tests/parallel/test_behaviour.py::'
        'test_without_a_strategy_rows_are_gathered_and_numbers_stay_those_of_keras'
        '[keras-no_strategy:adam]',
    ),
    Mutation(
        'engine/step/barrier.py',
        'with tf.control_dependencies(updates), tf.device(device):',
        'with tf.device(device):',
        'tests/parallel/test_barrier.py::'
        'test_no_rank_pulls_rows_that_their_owner_has_yet_to_update[tensorflow]',
    ),
    Mutation(
        'engine/step/agreement.py',
        'if adapter.inner is None:',
        'if adapter.inner is not None:',
        'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why[other_rate]',
    ),
    Mutation(
        'engine/step/density.py',
        'sum(of_rank[name] for of_rank in of_ranks) / len(of_ranks)',
        'densities[name]',
        'tests/unit/engine/step/test_density.py',
    ),
    Mutation(
        'engine/step/local_aggregation.py',
        'items = [queue.dequeue() for queue in queues.values()]',
        'items = [queue.dequeue() for queue in queues.values()][:0]',
        'tests/cluster/test_local_aggregation.py::'
        'test_two_workers_on_each_of_two_hosts_equal_plain_keras',
    ),
    Mutation(
        'engine/updates/clipping.py',
        'norm = tf.sqrt(tf.add_n(dense_squares + list(squares.values())))',
        'norm = tf.sqrt(tf.add_n(dense_squares))',
        'tests/unit/engine/updates/test_clipping.py',
    ),
    Mutation(
        'engine/updates/optimizers/adam.py',
        'tf.sqrt(1.0 - tf.pow(beta_2, number)) / (1.0 - tf.pow(beta_1, number))',
        'tf.sqrt(1.0 - tf.pow(beta_2, number)) / (1.0 - beta_1)',
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_lazy_equals_keras_where_every_row_is_touched[adam-tf.keras]',
    ),
    Mutation(
        'engine/updates/table_updates.py',
        '            gradient += penalty\n',
        '            gradient += 0 * penalty\n',
        EQUALITY % 'tf.keras-regularized_adam',
    ),
    Mutation(
        'checkpoint/manifest.py',
        'if checked and describe_part(path).sha256 != part.sha256:',
        'if checked and describe_part(path).bytes != part.bytes:',
        'tests/unit/checkpoint/test_manifest.py::test_a_damaged_part_is_refused_by_name',
    ),
    Mutation(
        'checkpoint/resume.py',
        '    _set_hyperparameters(model.optimizer, state',
        '    _set_hyperparameters(model.optimizer, {} and state',
        'tests/parallel/test_saving.py::'
        'test_a_job_of_another_size_goes_on_as_if_it_had_not_been_broken_off[keras-3-adam-single.h5]',
    ),
    Mutation(
        'atomic_files.py',
        'os.O_WRONLY, 0o666',
        'os.O_WRONLY, 0o600',
        'tests/unit/test_atomic_files.py::test_a_saved_file_has_the_rights_of_any_new_file',
    ),
    Mutation(
        'callbacks/epoch_reports.py',
        'weights = [count for count in counts if count] if all(counts) else []',
        'weights = []',
        'tests/unit/callbacks/test_epoch_reports.py::'
        'test_metrics_are_those_of_all_samples_together',
    ),
    Mutation(
        'engine/failures/diagnosis.py',
        "fewest = min(ended, key=lambda rank: states[rank]['steps'])",
        'fewest = ended[0]',
        'tests/unit/engine/failures/test_diagnosis.py::test_the_rank_that_ended_first_is_told',
    ),
    Mutation(
        'commands/run.py',
        'if restart == self._max_restarts:',
        'if restart + 1 >= self._max_restarts:',
        'tests/unit/commands/test_run.py',
    ),
    Mutation(
        'engine/job/shard_servers.py',
        'if other != of_ranks[0]:',
        'if len(other) != len(of_ranks[0]):',
        'tests/parallel/test_servers.py::test_ranks_that_are_given_other_servers_are_told',
    ),
    Mutation(
        'engine/session/session.py',
        'options.target.extend(noting.targets + beside)',
        'options.target.extend(beside)',
        'tests/unit/checkpoint/test_increments.py::test_whatever_writes_a_row_has_it_saved',
    ),
    Mutation(
        'engine/session/written_rows.py',
        'whole.add(key)',
        'whole.discard(key)',
        'tests/unit/checkpoint/test_increments.py::test_whatever_writes_a_row_has_it_saved',
    ),
]


def mutated(mutation, folder):
    """Makes a copy of the package with a change, or without one if that is `None`, in a folder."""
    shutil.copytree(os.path.join(ROOT, 'keras_parallax'), os.path.join(folder, 'keras_parallax'))
    if mutation:
        path = os.path.join(folder, 'keras_parallax', mutation.file)
        with open(path) as file:
            text = file.read()
        assert text.count(mutation.old) == 1, '%s: %r' % (mutation.file, mutation.old)
        with open(path, 'w') as file:
            file.write(text.replace(mutation.old, mutation.new))


def passes(mutation, tests):
    """Whether tests pass with a change; raises an error if they cannot be run."""
    pytest = os.path.join(os.path.dirname(sys.executable), 'pytest')
    with tempfile.TemporaryDirectory() as folder:
        mutated(mutation, folder)
        ended = subprocess.run(
            [pytest, '-q', '-x', '-p', 'no:cacheprovider', *tests],
            cwd=ROOT,
            env=dict(os.environ, PYTHONPATH=folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
    assert ended.returncode in (0, 1), ended.stdout
    return ended.returncode == 0


def is_in_make_test(test):
    """Whether `make test` runs a test."""
    file, _, name = test.partition('::')
    return not exhaustive.is_exhaustive(file, name)


def row(number, mutation):
    """A line of the page."""
    cells = [
        str(number),
        '`%s`' % mutation.file,
        *('`%s`' % ' '.join(text.split()) for text in (mutation.old, mutation.new)),
        '`%s`' % mutation.test.replace('tests/', ''),
        'yes' if is_in_make_test(mutation.test) else 'no',
    ]
    return '| %s |\n' % ' | '.join(cells)


def main(numbers):
    """Tries mutations, all if no numbers are given, and writes the page if all are noticed."""
    chosen = [pair for pair in enumerate(MUTATIONS, 1) if not numbers or pair[0] in numbers]
    tests = sorted({mutation.test for _, mutation in chosen})
    assert passes(None, tests), 'a test fails without a change'
    unnoticed = []
    for number, mutation in chosen:
        noticed = not passes(mutation, [mutation.test])
        print(number, mutation.file, 'noticed' if noticed else 'NOT NOTICED', flush=True)
        unnoticed += [] if noticed else [number]
    if not unnoticed and not numbers:
        with open(PAGE, 'w') as file:
            file.write(HEADER + ''.join(map(row, range(1, 99), MUTATIONS)))
    return 1 if unnoticed else 0


if __name__ == '__main__':
    sys.exit(main(list(map(int, sys.argv[1:]))))
