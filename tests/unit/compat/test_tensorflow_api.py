# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What we change of TensorFlow for a while is as it was afterwards."""

import pytest
from tensorflow.python.util import deprecation

from keras_parallax.compat import tensorflow_api


def test_deprecations_are_told_again_after_a_build_even_if_it_has_failed(monkeypatch):
    monkeypatch.setattr(deprecation, '_PRINT_DEPRECATION_WARNINGS', True)
    told = []
    with pytest.raises(ZeroDivisionError):
        with tensorflow_api.silent_deprecations():
            told.append(deprecation._PRINT_DEPRECATION_WARNINGS)
            told.append(1 / 0)
    told.append(deprecation._PRINT_DEPRECATION_WARNINGS)
    assert told == [not hasattr(deprecation, 'silence'), True]
