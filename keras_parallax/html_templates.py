# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Templates of the pages that are one file of HTML each."""

import os
from typing import Any, Callable, Type

from keras_parallax.compat import remedies


def template_beside(module: str, error: Type[Exception], **filters: Callable[..., Any]) -> Any:
    """The template of a page, a module's name with `.html`, with filters of its own.

    Args:
        module: the path of the module's file.
        error: the exception to raise, a class of ours, if what makes pages is missing.
        **filters: functions by the names that the template calls them.

    Returns:
        A `jinja2.Template`, which refuses to show what it is not given.
    """
    try:
        # Only now: a job does not draw.
        import jinja2
    except ImportError as reason:
        raise error('A page of HTML needs jinja2: %s' % remedies.JINJA2) from reason
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(module))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment.get_template(os.path.basename(os.path.splitext(module)[0]) + '.html')
