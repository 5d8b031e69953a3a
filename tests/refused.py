# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a stack cannot be asked for: names of `cases`, and why; it is skipped by name there."""

from frameworks import TF1_15, TF2

_CONSTRAINT = 'Keras 2.15 refuses a constraint on a variable whose gradient is of rows'
_SHARDS = "a user's optimizer has no shards, and what asks for some is refused"
_FORMULA = "the optimizer is written for Keras 2.2.4's base class, which returns updates"
_ARGUMENT = 'an optimizer of TensorFlow 1.15 has no such argument'

#: Dict from names of cases to reasons, on the TensorFlow that is installed.
REFUSED = {}
if TF2:
    REFUSED.update(
        dict.fromkeys(['non_negative', 'row_norm', 'column_norm', 'columns'], _CONSTRAINT),
        custom=_FORMULA,
    )
if TF1_15:
    REFUSED.update(own_transforming=_ARGUMENT, own_aggregating=_ARGUMENT)


def reason(name, package=None):
    """Why a case is not compared here, or `None`; of a Keras package if that matters."""
    if TF1_15 and package == 'keras':
        return 'Keras 2.3 has no schedules' if name == 'schedule' else None
    if name in REFUSED:
        return REFUSED[name]
    if not REFUSED:
        return None
    if name.endswith('_columns') or name == 'columns_clipnorm':
        return _CONSTRAINT
    if name.startswith(('own_ps_', 'own_many_')):
        return _SHARDS
    return _FORMULA if name.endswith('_custom') else None
