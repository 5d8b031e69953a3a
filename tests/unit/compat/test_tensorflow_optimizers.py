"""What a `tf.train.Optimizer` keeps is found by its slots, and how it takes rows by its class."""

from frameworks import tf

from keras_parallax.compat import tensorflow_optimizers


class Own(tf.train.AdamOptimizer):
    """A user's that sums rows itself."""

    def _apply_sparse_duplicate_indices(self, grad, var):
        return super()._apply_sparse_duplicate_indices(grad, var)


def test_a_users_class_that_sums_rows_itself_is_told_from_those_of_tensorflow():
    assert tensorflow_optimizers.sums_own_rows(Own())
    assert not tensorflow_optimizers.sums_own_rows(tf.train.AdamOptimizer())


def test_what_an_optimizer_keeps_is_found_and_can_be_made_anew():
    with tf.Graph().as_default() as graph:
        variable = tf.Variable([1.0, 2.0])
        optimizer = tf.train.AdamOptimizer()
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
        others, slots = tensorflow_optimizers.kept_by(optimizer, graph, [variable])
        assert set(others) == {'beta1_power', 'beta2_power'} and set(slots) == {'m', 'v'}
        tensorflow_optimizers.forget_slots(optimizer, [variable])
        assert tensorflow_optimizers.kept_by(optimizer, graph, [variable]) is None
