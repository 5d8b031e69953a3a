"""How `keras-parallax install-horovod` builds Horovod, checks it and keeps its wheel.

These modules import neither TensorFlow nor Horovod, which may be missing or broken.
"""
