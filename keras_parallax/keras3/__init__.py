# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Training of Keras 3 models, whose tables the engine keeps in a graph of its own."""
