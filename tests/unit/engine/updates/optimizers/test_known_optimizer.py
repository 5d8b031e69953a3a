# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How what is known of an optimizer is put together to an update."""

from frameworks import tf

from keras_parallax.engine.updates.optimizers.known_optimizer import RowRule, RowsOfV2


def formula(of, gradient, slots):
    return of * gradient, [slot + gradient for slot in slots]


def test_a_rule_moves_rows_by_the_hyperparameters_of_the_optimizer():
    rule = RowRule(formula, lambda optimizer: optimizer['rate'], 1, lambda optimizer: 1)
    assert rule.step({'rate': 3.0}, 2.0, [5.0]) == (6.0, [7.0])


def test_of_a_rule_that_says_no_more_rows_without_a_gradient_may_move():
    rule = RowRule(formula, None, 1, lambda optimizer: 1)
    assert not rule.exact_if(None) and not rule.rests_at_zero(None) and not rule.keeps_numbers
    shape = [7, 2]
    assert rule.slot_shape(shape) == shape and rule.slot_shape(shape) is not shape
    assert rule.kernel is None


def test_a_formula_is_one_of_keras_only_with_its_coefficients():
    assert RowsOfV2(('m',)).row_formula is None
    assert RowsOfV2(('m',), formula).row_formula is None
    rows = RowsOfV2(('m',), formula, lambda of: of['lr_t']).row_formula
    assert rows.slots == ('m',)
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, slots = rows.step({'lr_t': 3.0}, tf.constant(2.0), [tf.constant(5.0)])
        assert session.run([decrease] + slots) == [6.0, 7.0]
