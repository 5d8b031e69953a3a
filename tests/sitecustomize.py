# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Read by every Python that tests start, before all else: TensorFlow and Keras are loaded faster.

A job of two workers loads them twice, and most tests' jobs do little besides.
"""

import sys
import traceback

# While it is loaded, TensorFlow 1.11 notes 500 times where it is called from, and Python looks up
# each line of code for that: a fifth of what loading takes, in each worker and in `horovodrun`
# itself. Here lines are looked up when somebody prints them.


def extract_stack(f=None, limit=None):
    frames = traceback.walk_stack(f if f is not None else sys._getframe(1))
    stack = traceback.StackSummary.extract(frames, limit=limit, lookup_lines=False)
    stack.reverse()
    return stack


traceback.extract_stack = extract_stack

#: From packages to the modules that load them if they are installed: to convert models for phones,
#: to draw pictures, and for what another backend than TensorFlow has loaded before. In TensorFlow
#: 2.21 and Keras 3.15 that is a quarter of what loading takes.
UNUSED = {
    'jax': ('tensorflow.lite.python.util', 'keras.src.callbacks.orbax_checkpoint'),
    'matplotlib': (
        'keras.src.visualization.plot_image_gallery',
        'keras.src.visualization.plot_bounding_box_gallery',
    ),
}


class WithoutUnused:
    """Hides packages from the modules that load them for nothing; all others find them."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        frame = sys._getframe(1) if name in UNUSED else None
        while frame is not None:
            importer = frame.f_globals.get('__name__', '')
            if importer in UNUSED[name]:
                raise ModuleNotFoundError(name)
            frame = frame.f_back if 'importlib' in importer else None
        return None


if sys.version_info >= (3, 10):  # Older Pythons have no Keras 3.
    sys.meta_path.insert(0, WithoutUnused)
