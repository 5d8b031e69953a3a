# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is special about TensorFlow 1.6 and `keras` beside it; `installed_frameworks` chooses it.

`keras` 2.2.4 is served there; `tf.keras`, which has other classes than later ones, is not.
"""

import time
import types
from typing import Any

import numpy as np
import tensorflow

from keras_parallax.compat import tensorflow_1
from keras_parallax.errors import StackError
from keras_parallax.framework_types import Tensor

# isort: split
from tensorflow.core.protobuf import rewriter_config_pb2 as _rewriter_config_pb2
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import gradients as _gradients
from tensorflow.python.ops import gradients_impl as _gradients_impl
from tensorflow.python.ops import script_ops as _script_ops

if _ops._USE_C_API:
    raise StackError(
        'keras-parallax changes graphs that TensorFlow %s keeps in Python, but it was told to keep '
        'them in its C library; take TF_C_API_GRAPH_CONSTRUCTION out of the environment.'
        % tensorflow.__version__
    )


def _timestamp() -> Tensor:
    """The seconds since the epoch when a step is there, a scalar; TF 1.6 has no such operation."""
    return _script_ops.py_func(lambda: np.float64(time.time()), [], tensorflow.float64)


#: TensorFlow, with names of TensorFlow 1.11 that the engine uses and 1.6 has not.
tf = types.ModuleType('tensorflow')
vars(tf).update(
    vars(tensorflow),
    executing_eagerly=_context.in_eager_mode,
    # Nothing in a graph of TF 1.6 writes so.
    scatter_max=None,
    scatter_min=None,
    timestamp=_timestamp,
)

c_api = tensorflow_1.c_api

training_ops = tensorflow_1.training_ops

SUMS_ACTIVITY_PENALTIES = tensorflow_1.SUMS_ACTIVITY_PENALTIES

DIVIDED_BY_WEIGHTS = tensorflow_1.DIVIDED_BY_WEIGHTS

COMPILED_WITH = tensorflow_1.COMPILED_WITH

INTERNALS = '1_6'

# Folding takes a variable by reference itself for its product with 1, so that who waits for that
# reads what is written meanwhile (TF 1.6; proven by `tests/unit/compat/test_graph_queries.py`, the
# variables that swap). What simplifies arithmetic forgets what an operation waits for (proven by
# `tests/unit/layers/test_embedding_bag.py`, the sparse weights in other places).
CONFIG = tf.ConfigProto()
CONFIG.graph_options.rewrite_options.constant_folding = _rewriter_config_pb2.RewriterConfig.OFF
CONFIG.graph_options.rewrite_options.arithmetic_optimization = (
    _rewriter_config_pb2.RewriterConfig.OFF
)

FOR_GRAPHS = 'leave tf.contrib.eager.enable_eager_execution() out.'

BY_RESOURCE = tensorflow_1.BY_RESOURCE

OPTIMIZER_MODULES = ('keras.optimizers',)

OPTIMIZER_V2 = tensorflow_1.OPTIMIZER_V2

LOSS_SCALE_OPTIMIZER = tensorflow_1.LOSS_SCALE_OPTIMIZER

USUAL_AGGREGATOR = tensorflow_1.USUAL_AGGREGATOR

AUTO_CAST = tensorflow_1.AUTO_CAST

ITERATORS_NEED_DATA = tensorflow_1.ITERATORS_NEED_DATA

TABLES_ARE_EAGER = tensorflow_1.TABLES_ARE_EAGER

GRADIENTS = (tf, tensorflow, _gradients_impl, _gradients), 'gradients'

DATASET = tensorflow_1.DATASET

FUNCTIONS = None

BRANCHES_IN_LOOPS_READ = False

concrete_function_of: Any = None
python_of: Any = None

USUAL_KERAS = 'keras'

KERAS_PACKAGES = {'keras': 'keras'}

REFUSED_PACKAGES = {'tf.keras': 'tensorflow.python.keras'}

REFUSED_MODELS = (tensorflow.keras.models.Model,)

IGNORED_METHODS = tensorflow_1.IGNORED_METHODS

sorts_sums = tensorflow_1.sorts_sums

visible_cards = tensorflow_1.visible_cards

group_by_window = tensorflow_1.group_by_window

keras_module = tensorflow_1.keras_module

name_in_graphs = tensorflow_1.name_in_graphs

keras_classes = tensorflow_1.keras_classes

tensor_board = tensorflow_1.tensor_board

keras_version = tensorflow_1.keras_version

keras_backend = tensorflow_1.keras_backend

track_slots = tensorflow_1.track_slots

track_variables = tensorflow_1.track_variables

tracked_variables = tensorflow_1.tracked_variables

check_policy = tensorflow_1.check_policy

for_graphs = tensorflow_1.for_graphs

keras_saving = tensorflow_1.keras_saving

keras_writer = tensorflow_1.keras_writer

arguments_of_save = tensorflow_1.arguments_of_save

model_in_file = tensorflow_1.model_in_file

keras_session = tensorflow_1.keras_session

share_session = tensorflow_1.share_session
