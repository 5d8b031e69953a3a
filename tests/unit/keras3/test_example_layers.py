"""Layers of `examples/keras3/`: their losses are those that they stand for."""

import os
import sys

import frameworks
import numpy as np
import pytest
