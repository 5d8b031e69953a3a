# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether the updates of a variable are computed row by row, as their graph tells."""

from types import SimpleNamespace

import pytest

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.row_independence import NotByRow, Rows, check_same


def built(rows, formula):
    """The updates that a formula builds of a variable with so many rows, and of one slot."""
    with tf.Graph().as_default():
        variable = tf.Variable(tf.zeros([rows, 2]), trainable=False)
        slot = tf.Variable(tf.zeros([rows, 2]), trainable=False)
        gradient = tf.placeholder(tf.float32, [rows, 2])
        made = formula(variable, gradient, slot)
        kept = [one for one in tf.global_variables() if one is not variable]
        operations = [getattr(update, 'op', update) for update in made]
        return SimpleNamespace(
            variables=[variable], gradients=[gradient], kept=kept, operations=operations
        )


def check(formula):
    """Raises `NotByRow` unless a formula moves 5 rows as it does 8, and each by itself."""
    piece, whole = built(5, formula), built(8, formula)
    same = check_same(
        (piece, piece.variables[0], piece.gradients[0]),
        (whole, whole.variables[0], whole.gradients[0]),
    )
    Rows(piece, 0, same).check()


def momentum(variable, gradient, slot):
    velocity = tf.assign(slot, 0.9 * slot - 0.1 * gradient)
    return [tf.assign_add(variable, velocity)]


def norm_of_rows(variable, gradient, slot):
    norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), 1, keepdims=True))
    return [tf.assign_sub(variable, gradient / tf.maximum(norm, 1e-6))]


def rate_that_is_counted(variable, gradient, slot):
    steps = tf.Variable(0.0)
    rate = 1.0 / tf.assign_add(steps, 1.0)
    return [tf.assign_sub(variable, rate * gradient)]


def filled(variable, gradient, slot):
    return [tf.assign_sub(variable, tf.fill([variable.shape.as_list()[0], 2], 0.5) * gradient)]


@pytest.mark.parametrize('formula', [momentum, norm_of_rows, rate_that_is_counted, filled])
def test_formulas_of_entries_and_of_rows_are_by_row(formula):
    check(formula)


def norm_of_all(variable, gradient, slot):
    return [tf.assign_sub(variable, gradient / tf.norm(gradient))]


def mean_over_rows(variable, gradient, slot):
    return [tf.assign_sub(variable, gradient - tf.reduce_mean(gradient, 0, keepdims=True))]


def product(variable, gradient, slot):
    return [tf.assign_sub(variable, tf.matmul(gradient, tf.ones([2, 2])))]


def number_of_rows(variable, gradient, slot):
    return [tf.assign_sub(variable, gradient / float(variable.shape.as_list()[0]))]


def other_rates_for_other_rows(variable, gradient, slot):
    rates = [[float(row)] for row in range(variable.shape.as_list()[0])]
    return [tf.assign_sub(variable, tf.constant(rates) * gradient)]


def noise(variable, gradient, slot):
    return [tf.assign_sub(variable, gradient + tf.random_normal([2]))]


def largest_of_all(variable, gradient, slot):
    largest = tf.Variable(0.0)
    kept = tf.assign(largest, tf.reduce_max(tf.abs(gradient), [0, 1]))
    return [tf.assign_sub(variable, gradient / kept)]


def few_rows_otherwise(variable, gradient, slot):
    if variable.shape.as_list()[0] < 6:
        return [tf.assign_sub(variable, 2.0 * gradient)]
    return momentum(variable, gradient, slot)


def rows_along_another_axis(variable, gradient, slot):
    return [tf.assign_sub(variable, tf.transpose(tf.transpose(gradient)))]


@pytest.mark.parametrize(
    'formula, said',
    [
        (norm_of_all, 'computes with whole variables'),
        (mean_over_rows, r'computes with whole variables \(Mean over all rows\)'),
        (product, r'computes with whole variables \(MatMul\)'),
        (number_of_rows, 'computes with the number of rows'),
        (other_rates_for_other_rows, 'with the number of rows|other constants for other rows'),
        (noise, 'draws numbers or runs code of its own'),
        (largest_of_all, r'computes with whole variables \(Max over all rows\)'),
        (few_rows_otherwise, 'treats variables of few rows in another way'),
        (rows_along_another_axis, r'computes with whole variables \((Transpose|Rank)\)'),
    ],
)
def test_of_any_other_formula_it_is_said_why_it_is_not_by_row(formula, said):
    with pytest.raises(NotByRow, match=said):
        check(formula)
