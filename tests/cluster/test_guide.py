# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What docs/guide.md tells its reader to do, done with real workers of Keras 3 or of Keras 2.

The output of each command has to be the one on the page, but for times and numbers with a decimal
point. `make docs-outputs` does the same, and writes the page.
"""

import os
import re

import docs_outputs
import frameworks
import pytest

#: The page has Keras 2.2.4 with TensorFlow 1.11, and Keras 3 with TensorFlow 2.21.
if not frameworks.tf.__version__.startswith(('1.11', '2.21')):
    pytest.skip('the guide is for other stacks', allow_module_level=True)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')

(PAGE,) = [page for page in docs_outputs.PAGES if page.path == 'docs/guide.md']
STEPS = ['1', '2', '3', '4', '5', '6', '7', '8']
#: Steps whose job is that of a later step, whose script has the changes of both.
WITH_A_LATER_STEP = ['2', '3', '6']


@pytest.fixture(scope='module')
def course(request):
    """The blocks of the stack's Keras.

    Keras 3 takes three times as long to start a job. So a worker is killed with `--every` alone
    there; the next job goes on from the same checkpoint.
    """
    blocks = docs_outputs.course_of(PAGE, docs_outputs.read(PAGE), docs_outputs.KERAS)
    if docs_outputs.KERAS == 3 and not request.config.getoption('every'):
        (kill,) = [number for number, block in enumerate(blocks) if 'kill' in block.remark]
        del blocks[kill : kill + 2]
    return blocks


@pytest.fixture(scope='module')
def shown(course, tmp_path_factory):
    """The lines that commands print now, by steps."""
    with docs_outputs.Reader(str(tmp_path_factory.mktemp('guide'))) as reader:
        done = list(docs_outputs.follow(reader, course, WITH_A_LATER_STEP))
    return {
        step: '\n'.join(line for block, now in done if block.step[0] == step for line in now)
        for step in STEPS
    }


def losses(lines, form=r'val_loss: (\S+)'):
    """The losses of validation in lines, in order."""
    return [float(found) for found in re.findall(form, lines)]


def test_every_step_of_the_guide_prints_what_the_page_shows(shown, course):
    assert all(shown[step] for step in STEPS)
    assert [step for step in STEPS if step in ''.join(block.step[0] for block in course)] == STEPS


def test_the_table_of_the_guide_is_sharded_and_less_is_sent_than_by_dense_allreduce(shown):
    for step in ('2', '4'):
        assert re.search(r'^words/embeddings .* 2 shards on servers 0, 1 ', shown[step], re.M)
    plan, dense = re.search(r'Saved: (.+) against .*, (.+) against', shown['2']).groups()
    assert dense.endswith('MiB') and float(dense.split()[0]) > 11


def test_a_job_of_the_guide_goes_on_where_it_was_saved(shown):
    before, after = losses(shown['3']), losses(shown['6'], r'(?m)^\d,\S+,(\S+)$')
    assert before[1] < before[0] and after[1] < after[0] < before[1]


def test_the_exported_model_of_the_guide_knows_odd_ids(shown):
    assert float(shown['7'].strip('[]')) > 0.55
