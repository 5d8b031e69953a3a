# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which cases of a job the selected tests of a module need: a job runs no others."""


def cases_of(request, names, package=None):
    """The cases that selected tests name.

    Args:
        request: pytest's, of a fixture of a module.
        names: all cases that the module's job knows. A test names one as a parameter, as a constant
            in its code, or by a fixture of the same name.
        package: the Keras package of the job, if a package has a job of its own. Tests whose
            parameter `package` is another one do not count.

    Returns:
        A list of names, in their order.
    """
    named = set()
    for item in request.session.items:
        if item.module is request.module and not item.get_closest_marker('skip'):
            params = item.callspec.params if hasattr(item, 'callspec') else {}
            if package in (None, params.get('package', package)):
                named.update(item.fixturenames)
                named.update(_constants(item.function.__code__))
                named.update(map(str, params.values()))
    return [name for name in names if name in named]


def _constants(code):
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from (part for part in constant if isinstance(part, str))
        elif hasattr(constant, 'co_consts'):
            yield from _constants(constant)
