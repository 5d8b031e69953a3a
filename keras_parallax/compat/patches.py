"""What is changed of Keras and TensorFlow."""

import functools


def replace(owner, name, make):
    """Puts another method in the place of one of a framework's class.

    Args:
        owner: the class.
        name: the method's name.
        make: a function from the original method to the one that takes its place.
    """
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))
