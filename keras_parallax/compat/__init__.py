"""Every difference between versions of TensorFlow, Keras and Horovod."""
