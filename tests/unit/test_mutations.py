# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The list of changes that tests are known to notice."""

import os

import mutations
import pytest


@pytest.mark.parametrize('mutation', mutations.MUTATIONS, ids=lambda mutation: mutation.file)
def test_what_a_mutation_replaces_stands_once_in_its_file(mutation):
    with open(os.path.join(mutations.ROOT, 'keras_parallax', mutation.file)) as file:
        assert file.read().count(mutation.old) == 1


def test_the_page_has_what_the_list_has_and_make_test_notices_fifteen():
    rows = [mutations.row(*numbered) for numbered in enumerate(mutations.MUTATIONS, 1)]
    with open(mutations.PAGE) as page:
        assert page.read() == mutations.HEADER + ''.join(rows)
    assert sum(row.endswith('| yes |\n') for row in rows) >= 15
