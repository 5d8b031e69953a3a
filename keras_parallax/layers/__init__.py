"""Layers of ours, for both Keras packages."""

from keras_parallax.layers.embedding_bag import EmbeddingBag
from keras_parallax.layers.late_package import class_of

__all__ = ['EmbeddingBag']


def classes_of(package):
    """What a `KerasPackage` has to know to read models with layers of ours: classes by name."""
    return {name: class_of(globals()[name], package) for name in __all__}
