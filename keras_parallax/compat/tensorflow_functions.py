# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What TensorFlow 1.15 and 2 trace functions with; the generations before them have none."""

import tensorflow
from tensorflow.python.framework import auto_control_deps
from tensorflow.python.util import tf_should_use  # noqa: F401 - for all

#: The class of what `tf.function` makes.
FUNCTION = type(tensorflow.function(lambda: None))

#: While open, operations of a graph are made to run in the order in which their effects have to be.
ControlDependencies = auto_control_deps.AutomaticControlDependencies

is_stateful = auto_control_deps.op_is_stateful
