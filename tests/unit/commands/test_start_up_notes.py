# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lines that the screen of a job leaves out."""

import pytest

from keras_parallax.commands.start_up_notes import StartUpNotes, are_wanted

#: What TensorFlow 1.11, 2.15 and 2.21, Keras 2.2.4 and TensorFlow 1.15's Python print.
NOTES = [
    b'2026-11-30 23:18:09.485929: I tensorflow/core/platform/cpu_feature_guard.cc:141] Your CPU',
    b'2026-11-30 23:18:10.171622: W tensorflow/c/c_api.cc:691] Operation was changed',
    b'WARNING: All log messages before absl::InitializeLog() is called are written to STDERR',
    b'I0000 00:00:1796080699.537632   32009 cpu_feature_guard.cc:227] This TensorFlow binary is',
    b'To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild',
    b'E0000 00:00:1796080709.425975   32062 cuda_platform.cc:52] failed call to cuInit: INTERNAL',
    b'Using TensorFlow backend.',
    b'WARNING:tensorflow:From /x/a.py:32: The name tf.X is deprecated. Please use tf.Y instead.',
    b'',
    b'WARNING:tensorflow:From /x/a.py:119: calling B (from b) is deprecated and will be removed.',
    b'Instructions for updating:',
    b'Call C instead.',
    b'WARNING:tensorflow:',
    b'The TensorFlow contrib module will not be included in TensorFlow 2.0.',
    b'',
    b'/venv/site-packages/tensorflow/dtypes.py:516: FutureWarning: Passing 1 is deprecated.',
    b'  _np_qint8 = np.dtype([("qint8", np.int8, 1)])',
]
ORDINARY = [
    b'Epoch 1/2',
    b'',
    b'2026-11-30 a line of mine',
    b"KeyError: 'x'",
    b'2026-11-30 23:18:10.171622: E tensorflow/core/common_runtime/executor.cc:1] out of memory',
    b'E0000 00:00:1796080709.425975   32062 gpu_allocator.cc:52] out of memory',
    b'WARNING:tensorflow:Early stopping conditioned on metric `x` which is not available.',
    b'/home/me/train.py:3: DeprecationWarning: mine',
    b'  an indented line',
]


def test_all_notes_are_recognized_and_nothing_else_is():
    notes = StartUpNotes()
    assert [line for line in NOTES if not notes.take(line)] == []
    assert [line for line in ORDINARY if StartUpNotes().take(line)] == []


@pytest.mark.parametrize('end', [7, 9, 15])
def test_the_line_after_a_deprecation_is_shown_if_it_is_no_part_of_it(end):
    notes = StartUpNotes()
    assert notes.take(NOTES[end])
    assert not notes.take(b'Epoch 1/2') and not notes.take(b'')


def test_cpp_writes_its_notes_between_the_lines_of_a_deprecation():
    notes = StartUpNotes()
    assert all(map(notes.take, [NOTES[9], NOTES[10], NOTES[3], NOTES[11]]))
    assert not notes.take(b'Epoch 1/2')


@pytest.mark.parametrize(
    'level, expected',
    [(None, False), ('INFO', True), (' debug', True), ('WARNING', False), ('loud', False)],
)
def test_the_level_asks_for_notes(level, expected):
    assert are_wanted(level) == expected
