# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which files the path of a callback can have named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.checkpoint import path_patterns
from keras_parallax.checkpoint.path_patterns import can_name, changing_part

#: Patterns with whatever `str.format` offers for the number of an epoch and for metrics.
PATTERNS = [
    'model.h5',
    '{epoch}.h5',
    'model-{epoch:02d}.h5',
    'm-{epoch:d}',
    'm{epoch:>5}-{epoch:<4d}|',
    'm-{epoch:x>5d}-{val_loss:+.3f}.h5',
    'runs/{epoch}/m-{epoch:04d}-{val_loss}.h5',
    '{epoch:03}-{val_loss:.2f}.h5',
    '{epoch:.0f}-{val_loss:.2e}.h5',
    '{epoch}-{val_loss:10.3f}.h5',
    '{epoch}-{val_loss:,.1f}-{val_loss:.1%}.h5',
    '{epoch!r:>3}-{val_loss:.4}.h5',
    '{{epoch}}-{epoch}.h5',
    '{epoch:{width}d}-{val_loss:.{digits}f}.h5',
    './a//b-{epoch:02d}[1]*?.h5',
]
EPOCHS = st.integers(1, 12345)
LOSSES = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize('pattern', PATTERNS)
def test_a_pattern_that_can_be_filled_is_taken(pattern):
    path_patterns.check(pattern, ['epoch'])
    assert path_patterns.missing('{epoch}-{logs[loss]}-{acc}', {'epoch': 1, 'logs': {}}) == ['acc']


@pytest.mark.parametrize(
    'pattern, told',
    [
        ('{epohc}.h5', 'the field epohc; write {epoch}'),
        ('{epochs:02d}.h5', 'the field epochs; write {epoch}'),
        ('{epoch.h5', 'brace'),
        ('{}.h5', 'without a name'),
        ('{0}.h5', 'without a name'),
    ],
)
def test_a_field_that_nobody_fills_is_refused(pattern, told):
    with pytest.raises(ValueError, match=told):
        path_patterns.check(pattern, ['epoch'])


@pytest.mark.parametrize('pattern', PATTERNS)
@given(epoch=EPOCHS, loss=LOSSES)
def test_whatever_a_pattern_gives_it_can_have_given(pattern, epoch, loss):
    path = pattern.format(epoch=epoch, val_loss=loss, width=4, digits=2)
    assert can_name(pattern, path)


@pytest.mark.parametrize(
    'pattern, path',
    [
        ('model-{epoch:02d}.h5', 'model-best.h5'),
        ('model-{epoch:02d}.h5', 'model-.h5'),
        ('model-{epoch:02d}.h5', 'model-7.h5'),
        ('model-{epoch:02d}.h5', 'model-007.h5'),
        ('model-{epoch:02d}.h5', 'model-07-copy.h5'),
        ('model-{epoch:02d}.h5', 'model-07.h5.bak'),
        ('model-{epoch:02d}.h5', 'model-07xh5'),
        ('model-{epoch:02d}.h5', 'old-model-07.h5'),
        ('model-{epoch}.h5', 'model-07.h5'),
        ('model-{epoch}.h5', 'model-best.h5'),
        ('model-{epoch}-{val_loss:.2f}.h5', 'model-3-best.h5'),
        ('model-{epoch}-{val_loss:.2f}.h5', 'model-3-0.125.h5'),
        ('model-{val_loss}.h5', 'model-best.h5'),
        ('{epoch}/model-{epoch:02d}.h5', '3/model-04.h5'),
        ('runs/{epoch}.h5', 'runs/3/3.h5'),
        ('model.h5', 'model-1.h5'),
    ],
)
def test_other_names_it_cannot_have_given(pattern, path):
    assert not can_name(pattern, path)


@given(EPOCHS, EPOCHS)
def test_each_epoch_has_its_own_changing_part(one, other):
    pattern = '/a/{epoch}/b-{epoch:02d}.h5'
    parts = [changing_part(pattern, pattern.format(epoch=epoch)) for epoch in (one, other)]
    assert (parts[0] == parts[1]) == (one == other)
    assert changing_part('/z/' + pattern, '/z/' + pattern.format(epoch=one)) == parts[0]
