"""The hooks into models of Keras 2."""
