# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The page of a stack that is not the first."""

import re

from records import language_records, record
from report import compare, page, results, stack_page


def records():
    strategy = record(
        'tf-ps-strategy', losses=(3.0, 9.0), suite='lm', hosts=8, seconds=5.0, speed=40
    )
    return [dict(one, stack='tf9.9') for one in language_records() + [strategy]]


def test_one_page_tells_of_the_stack_of_targets_and_of_the_peer_that_only_it_has(tmp_path):
    results.write(str(tmp_path / 'results.json'), {'machine': results.machine(), 'records': []})
    stack_page.write(records(), str(tmp_path))
    (written,) = tmp_path.glob('*.md')
    text = written.read_text(encoding='utf-8')
    assert text.startswith('# Benchmarks on tf9.9\n')
    assert re.search(r"at the paper's ratio: speed / best Horovod +\| ≥ 6.02x +\| 6.00x", text)
    assert re.search(r'\| 8 +\| keras-parallax, hybrid +\| 2.00x ', text)
    assert 'not measured' not in text
    for picture in re.findall(r'!\[[^]]*\]\(([^)]+)\)', text):
        assert (tmp_path / picture).exists()


def test_losses_of_an_asynchronous_peer_are_not_judged():
    (variant,) = compare.variants(records())
    (line,) = re.findall('.*TensorFlow, ParameterServerStrategy .*', page.table(variant))
    assert '9.0000 (asynchronous)' in line
