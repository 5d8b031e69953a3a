# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Names for objects of TensorFlow, Keras and NumPy in type hints.

TensorFlow and Keras have no types that hold for all the versions that the package runs on, so a
type checker sees `Any`. The names tell a reader what passes.
"""

from typing import Any

#: A NumPy array; its docstring says of which shape and dtype.
Array = Any
#: A callback of Keras, of any Keras package.
Callback = Any
#: A `tf.ConfigProto`.
Config = Any
#: A `tf.DType`, or what TensorFlow or NumPy takes for one.
DType = Any
#: A gradient: a `tf.Tensor` or `tf.IndexedSlices`.
Gradient = Any
#: A `tf.Graph`.
Graph = Any
#: A `tf.GraphDef`.
GraphDef = Any
#: An open HDF5 file of h5py, or a group in one.
HdfGroup = Any
#: A Keras layer, of any Keras package.
Layer = Any
#: What Keras hands to a callback: a dict from names to numbers, or `None`.
Logs = Any
#: The base of a class that stands before one of Keras's or TensorFlow's: there `super()` leads.
Mixin: Any = object
#: A Keras model, of any Keras package.
Model = Any
#: A `tf.Operation`.
Operation = Any
#: An optimizer of Keras or of `tf.train`.
Optimizer = Any
#: A `tf.FIFOQueue`.
Queue = Any
#: A `tf.train.Server`.
Server = Any
#: A `tf.Session`.
Session = Any
#: A shape: a `tf.TensorShape`, a tuple or a list.
Shape = Any
#: `tf.IndexedSlices`.
Slices = Any
#: A `tf.Tensor`.
Tensor = Any
#: A variable of TensorFlow or Keras.
Variable = Any
#: A variable, or what Keras's backend takes for one, such as `Rows`.
Weight = Any
