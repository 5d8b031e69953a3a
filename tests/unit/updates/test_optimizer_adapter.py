"""Which kind of optimizer an object is: Keras's own, TensorFlow's or a user's."""

import cases
import pytest
from frameworks import KERAS_PACKAGES, TF2

import keras_parallax as kp
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.updates.optimizer_adapter import adapter_of

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


@PACKAGES
def test_a_wrapped_optimizer_has_the_rule_of_its_class(package):
    optimizer = cases.keras_module(package).optimizers.Adam()
    rule = adapter_of(optimizer).rule
    assert rule is not None
    assert adapter_of(kp.ParallaxOptimizer(optimizer)).rule is rule


@PACKAGES
def test_every_optimizer_class_of_keras_has_a_rule(package):
    optimizers = cases.keras_module(package).optimizers
    for name in ('SGD', 'RMSprop', 'Adagrad', 'Adadelta', 'Adam', 'Adamax', 'Nadam'):
        assert adapter_of(getattr(optimizers, name)()).rule is not None


@PACKAGES
@pytest.mark.parametrize('name', ['SGD', 'Mine'])
def test_a_users_subclass_has_no_rule_whatever_its_name(package, name):
    parent = cases.keras_module(package).optimizers.SGD
    optimizer = type(name, (parent,), {})(lr=0.1)
    assert adapter_of(optimizer).rule is None
    assert adapter_of(kp.ParallaxOptimizer(optimizer)).rule is None


@PACKAGES
def test_an_optimizer_that_keeps_an_inner_one_is_not_one_of_tensorflows(package):
    keras = cases.keras_module(package)
    outer = type('Outer', (keras.optimizers.SGD,), {})(0.1)
    outer.optimizer = keras.optimizers.Adam()
    assert adapter_of(outer).inner is None
    assert adapter_of(kp.ParallaxOptimizer(outer)).name == 'Outer'
    inner = tf.train.AdamOptimizer()
    wrapped = kp.ParallaxOptimizer(inner, keras=package)
    assert adapter_of(wrapped).inner is inner
    assert adapter_of(wrapped).name == 'AdamOptimizer'


#: Optimizers of which some keep more slots than others.
KEEPERS = [
    ('SGD', {}),
    ('SGD', {'momentum': 0.9}),
    ('RMSprop', {}),
    ('Adagrad', {}),
    ('Adadelta', {}),
    ('Adam', {}),
    ('Adam', {'amsgrad': True}),
    ('Adamax', {}),
    ('Nadam', {}),
]
if TF2:
    KEEPERS += [('RMSprop', {'momentum': 0.9, 'centered': True}), ('Ftrl', {})]


@PACKAGES
@pytest.mark.parametrize('name, options', KEEPERS, ids=str)
def test_dense_variables_have_as_many_slots_as_it_says_before_it_has_any(package, name, options):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with tf.Graph().as_default():
        optimizer = keras.optimizers.get({'class_name': name, 'config': options})
        of_dense, of_table = adapter_of(optimizer).slots_of([7, 5])
        variable = keras.backend.zeros((7, 5))
        optimizer.get_updates(loss=keras.backend.sum(variable), params=[variable])
        kept = [weight for weight in optimizer.weights if tuple(weight.shape) == (7, 5)]
    assert of_dense == len(kept)
    # Without momentum, Keras 2.2.4 keeps a slot that a table does without.
    assert of_table == (0 if (name, options) == ('SGD', {}) else of_dense)


@PACKAGES
def test_how_many_slots_a_users_optimizer_keeps_is_not_known(package):
    parent = cases.keras_module(package).optimizers.SGD
    assert adapter_of(type('Mine', (parent,), {})(lr=0.1)).slots_of([7, 5]) == (None, None)


@pytest.mark.skipif(TF2, reason='Adam of TensorFlow 2 changes whole slots in a kernel')
@PACKAGES
def test_adam_of_tensorflow_lets_slots_decay_when_the_gradient_is_there(package):
    with tf.Graph().as_default() as graph:
        table = tf.get_variable('table', [3, 2])
        gradient = tf.IndexedSlices(tf.placeholder(tf.float32), tf.constant([0]), [3, 2])
        wrapped = kp.ParallaxOptimizer(tf.train.AdamOptimizer(), keras=package)
        adapter_of(wrapped).updates(None, [(table, gradient)], None)
    decays = [
        operation
        for operation in graph.get_operations()
        if operation.type == 'Assign' and 'update_table' in operation.name
    ]
    assert len(decays) == 2
    # What is assigned is computed then, too.
    for decay in decays:
        assert gradient.values.op in decay.inputs[1].op.control_inputs
