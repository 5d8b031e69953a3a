# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Experiments on a running job: how many shards, which architecture, where rows are."""
