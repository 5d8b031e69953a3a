# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What calls raise, for workers that report it to the tests."""


def error_of(function, *arguments):
    """What a call raised, as text."""
    try:
        function(*arguments)
    except Exception as error:
        return '%s: %s' % (type(error).__name__, error)
    return 'nothing was raised'
