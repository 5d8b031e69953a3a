"""The command `keras-parallax`; empty, because the doctor runs where TensorFlow is missing."""
