# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Stand-ins for a user's optimizer: they share its attributes, and some of their methods differ.

So nothing has to be written into the optimizer while a step is built, or taken back afterwards.
"""

from typing import Any


def sharing(optimizer: Any, cls: type) -> Any:
    """An object of a class that has the attributes of an optimizer: not copies, the same ones.

    Args:
        optimizer: the optimizer.
        cls: a class that derives from the optimizer's class, or the other way round.
    """
    shared: Any = object.__new__(cls)
    # `setattr` of a `LossScaleOptimizer` would ask the optimizer inside.
    object.__setattr__(shared, '__dict__', optimizer.__dict__)
    return shared


def stand_in(optimizer: Any, methods: type, cls: type, **attributes: Any) -> Any:
    """A stand-in for an optimizer. What its methods set on `self`, they set on the optimizer.

    Args:
        optimizer: the optimizer.
        methods: a class with the methods that differ, whose `super()` is the optimizer's class.
        cls: the optimizer's class, maybe without our wrapper.
        **attributes: attributes that the stand-in has and the optimizer has not.
    """
    attributes.update(__module__=cls.__module__, __slots__=())
    return sharing(optimizer, type(cls.__name__, (methods, cls), attributes))
