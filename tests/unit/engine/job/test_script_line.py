# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which line of the script is named."""

import os

from keras_parallax.engine.job.script_line import script_line


def test_the_line_of_the_script_that_led_here_is_named_with_its_text():
    told = script_line()
    assert told.startswith(os.path.basename(__file__)) and '`told = script_line()`' in told


def test_lines_of_frameworks_are_passed_over():
    names = {'__name__': 'keras.models', 'script_line': script_line}
    exec(compile('def save():\n    return script_line()', 'models.py', 'exec'), names)
    told = names['save']()
    assert "`told = names['save']()`" in told and 'models.py' not in told
