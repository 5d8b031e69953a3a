# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of the optimizers of Keras 2.4 and later."""

import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, TF1_15, TF2, tf

import keras_parallax as kp
from keras_parallax.engine.updates.clipping import Bounds
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.optimizer_v2_adapters import OptimizerV2Adapter
from keras_parallax.planning.classify import ANY_ROWS, Described

pytestmark = pytest.mark.skipif(not TF2, reason='Keras 2.2.4 has other optimizers')

TABLE = Described('table', (7, 4), 'float32', True)
DENSE = Described('dense', (3,), 'float32', False)


def users(optimizer):
    """One of a user's subclass of an optimizer's class."""
    return type('Mine', (type(optimizer),), {'__module__': 'a_script'}).from_config(
        optimizer.get_config()
    )


def of(name, **arguments):
    return getattr(keras.optimizers, name)(**arguments)


@pytest.mark.parametrize(
    'name, arguments, slots, moves_all_rows, needs_touched_rows',
    [
        ('SGD', {}, 0, False, False),
        ('SGD', {'momentum': 0.9}, 1, False, True),
        ('Adam', {}, 2, True, False),
        ('Adam', {'amsgrad': True}, 3, True, False),
        ('Adagrad', {}, 1, False, False),
        ('Adamax', {}, 2, False, True),
        ('RMSprop', {}, 1, True, False),
        ('RMSprop', {'momentum': 0.9, 'centered': True}, 3, False, True),
        ('Ftrl', {}, 2, False, True),
    ],
)
def test_kerass_own_are_known_by_their_options(
    name, arguments, slots, moves_all_rows, needs_touched_rows
):
    adapter = adapter_of(of(name, **arguments))
    assert isinstance(adapter, OptimizerV2Adapter) and adapter.takes_rows and adapter.rows_alone
    assert adapter.slots_of([7, 4]) == (slots, slots)
    assert adapter.moves_all_rows == moves_all_rows
    assert adapter.needs_touched_rows == needs_touched_rows
    # Of Ftrl there is a kernel and no formula.
    assert adapter.rounds_rows == (name != 'Ftrl')
    assert adapter.reach((TABLE,), frozenset(['table'])) is ANY_ROWS
    assert not adapter.takes_slices((TABLE,))


def test_of_a_users_subclass_nothing_is_taken_for_granted():
    adapter = adapter_of(users(of('Adam', clipnorm=1.0)))
    assert adapter.takes_rows and not adapter.rows_alone and not adapter.shares_slots
    assert adapter.slots_of([7, 4]) == (None, None) and not adapter.rounds_rows
    assert adapter.needs_touched_rows and not adapter.moves_all_rows
    assert adapter.bounds == Bounds() and not adapter.clips  # It clips by itself.
    reach = adapter.reach((TABLE,), frozenset(['table']))
    assert reach is not ANY_ROWS and 'Mine may compute' in reach[0]
    assert adapter.reach((TABLE,), frozenset()) is ANY_ROWS
    assert adapter.takes_slices((DENSE, TABLE)) and not adapter.takes_slices((DENSE,))


def test_bounds_of_kerass_own_are_ours_to_keep():
    assert adapter_of(of('SGD', clipnorm=2.0)).bounds == Bounds(clipnorm=2.0)
    assert adapter_of(of('SGD', clipnorm=2.0)).clips and not adapter_of(of('SGD')).clips


def test_nadam_keeps_numbers_besides_slots():
    assert adapter_of(of('Nadam')).keeps_numbers and not adapter_of(of('Adam')).keeps_numbers


def test_a_slot_of_ours_may_have_a_number_for_each_row():
    adapter = adapter_of(kp.optimizers.RowwiseAdagrad(keras=KERAS_PACKAGES[0]))
    assert adapter.slot_shape([7, 4]) == [7] and adapter.slots_of([7, 4]) == (0.25, 0.25)
    assert adapter_of(of('Adagrad')).slot_shape([7, 4]) == [7, 4]


def test_where_there_is_nothing_to_update_a_step_is_counted_all_the_same():
    with tf.Graph().as_default(), tf.Session() as session:
        optimizer = of('SGD')
        (counted,) = adapter_of(optimizer).updates(tf.constant(1.0), [], optimizer.get_updates)
        session.run(optimizer.iterations.initializer)
        session.run(counted)
        assert session.run(optimizer.iterations) == 1


@pytest.mark.skipif(TF1_15, reason='mixed precision is for TensorFlow 2')
def test_one_that_scales_the_loss_is_known_as_the_one_that_it_is_for():
    inner = of('Adam', amsgrad=True)
    adapter = adapter_of(keras.mixed_precision.LossScaleOptimizer(inner))
    assert adapter.loss_scale is not None and adapter.name == 'LossScaleOptimizer'
    assert adapter.slots_of([7, 4]) == (3, 3) and adapter.keeper is inner
    assert adapter_of(inner).loss_scale is None
