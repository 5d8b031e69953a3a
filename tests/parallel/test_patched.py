# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What training in a scope changes in TensorFlow, Keras and Horovod is listed, on objects too."""

import json

import launch
from frameworks import KERAS_PACKAGES, TF1_15, TF2

from keras_parallax.compat import patches

#: What `PATCHES` calls modules and classes that have other names, or several.
NAMES = {
    'tensorflow.python.client.session.BaseSession': ('tf.Session',),
    'tensorflow.python.training.optimizer.Optimizer': ('tf.train.Optimizer',),
    'Model': ('Model', 'Network'),
    'OptimizerV2': ('Optimizer',),
    'training_utils': ('training',),
    'TensorFlowTrainer': ('Trainer', 'backend Trainer'),
}
#: A function of Keras's keeps the callable that the session has made for it.
KEPT_BY_KERAS = {'_callable_fn'}


def targets_of(owner, name):
    """What `PATCHES` may call an attribute of a module or a class."""
    short = owner.rpartition('.')[2]
    owners = NAMES.get(owner) or NAMES.get(short) or (short,)
    return {'%s.%s' % (of, name) for of in owners}


def listed(*kinds):
    return {patch.target for patch in patches.PATCHES if patch.kind in kinds}


def test_what_training_in_a_scope_replaces_is_listed_on_classes_modules_and_objects(tmp_path):
    outcome = launch.run(2, 'parallel/patched_worker.py', tmp_path, *KERAS_PACKAGES)
    assert outcome.code == 0, outcome.output
    changes = json.loads((tmp_path / 'changes.json').read_text())

    methods, seen = listed(patches.METHOD, patches.OF_KERAS_3), set()
    for owner, name in changes['replaced']:
        found = targets_of(owner, name) & methods
        assert found, (owner, name)
        seen |= found
    assert {'Model.fit', 'Layer.add_weight', 'tf.Session.run'} <= seen

    own = listed(patches.ATTRIBUTE)
    theirs = {target.split('.')[1] for target in listed(patches.INSTANCE)}
    names = {name for _, name in changes['attributes']}
    assert names - own - theirs == KEPT_BY_KERAS
    # A graph of TensorFlow 2 shows nobody its attributes.
    assert '_parallax_scope' in names or (TF2 and not TF1_15)
