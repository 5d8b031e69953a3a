# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Has TensorFlow make and start graphs faster: tests make thousands of small ones, once each.

No operation computes anything else; only what looks for a faster graph is left out, unless
`WITH_GRAPPLER` is in the environment.
"""

import gc
import importlib
import os
import sys

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.client import session
from tensorflow.python.framework import op_def_registry, ops
from tensorflow.python.util import deprecation

#: More operations than any graph of a test has.
_MANY = 10**9


def make_faster(newer):
    """Does all of it, once in a process.

    Args:
        newer: whether TensorFlow is newer than 1.11, whose own functions are as fast as can be.
    """
    # Graphs are many objects that live long: looking through them less often saves 4 % of a case.
    gc.set_threshold(200000, 20, 20)
    can_be_told = 'min_graph_nodes' in rewriter_config_pb2.RewriterConfig.DESCRIPTOR.fields_by_name
    if can_be_told and 'WITH_GRAPPLER' not in os.environ:
        _without_grappler()
    if not newer:
        _for_tensorflow_1()


def _without_grappler():
    """Has no session rewrite its graph before the first step: 0.7 s for one of 1,300 operations.

    Only what a session tells TensorFlow changes, not the configuration that it keeps.
    """
    make = session.tf_session.TF_NewSessionOptions

    def options(target=None, config=None):
        changed = config_pb2.ConfigProto()
        if config is not None:
            changed.CopyFrom(config)
        changed.graph_options.rewrite_options.min_graph_nodes = _MANY
        return make(target=target, config=changed)

    session.tf_session.TF_NewSessionOptions = options


def _for_tensorflow_1():
    # To warn of some, it looks through the arguments of each operation that is made: 5 % of a case.
    deprecation._PRINT_DEPRECATION_WARNINGS = False
    # For messages it notes of each all calls that lead to it, some 40: here those nearest.
    if hasattr(ops.Graph, '_extract_stack'):
        ops.Graph._extract_stack = lambda graph: _calls_above()  # TensorFlow 1.6.
        return
    importlib.import_module('tensorflow.python.util.tf_stack').extract_stack = _calls_above
    registered, op_def_of = op_def_registry.get_registered_ops(), ops.Graph._get_op_def
    # Of each operation it also asks for the definition anew, and parses it.
    ops.Graph._get_op_def = lambda graph, type: registered.get(type) or op_def_of(graph, type)


def _calls_above(extract_frame_info_fn=None):
    frame, calls = sys._getframe(1), []
    while frame is not None and len(calls) < 8:
        code, first = frame.f_code, frame.f_code.co_firstlineno
        calls.insert(
            0, (code.co_filename, frame.f_lineno, code.co_name, frame.f_globals, first, None)
        )
        frame = frame.f_back
    return calls
