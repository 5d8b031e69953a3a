"""Training of Keras 3 models, whose tables the engine keeps in a graph of its own."""
