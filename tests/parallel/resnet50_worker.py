# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs `examples/resnet50.py`, which also has the network of `small_network.py` here."""

from small_network import resnet50

if __name__ == '__main__':
    resnet50.main()
