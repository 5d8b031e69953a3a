"""Templates of the pages that are one file of HTML each."""

import os


def template_beside(module, error, **filters):
    """The template of a page that stands beside a module, with filters of its own.

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
        raise error('A page of HTML needs jinja2: pip install jinja2.') from reason
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(module))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment.get_template('page.html')
