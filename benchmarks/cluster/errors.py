# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The error of everything that makes an emulated cluster."""


class ClusterError(Exception):
    """The cluster cannot be made as asked for."""
