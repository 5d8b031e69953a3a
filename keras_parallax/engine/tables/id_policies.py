# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which ids of a `DynamicEmbedding` get a row of their own, and which lose theirs."""

from typing import Any, Dict, Optional, Type, TypeVar

from keras_parallax.errors import PlanError

_Policy = TypeVar('_Policy')


class Admission:
    """Says when an id gets a row of its own; until then it trains on one that all such ids share.

    It is decided when a training step ends, where the row would lie, so it does not depend on the
    number of workers.

    Args:
        min_count: how many training batches must have an id. The batches of all workers in a step
            count as one. Counts are kept in as many places as the table has rows. Of two ids with
            the same place, the one that is met more often is counted, so some are admitted later,
            but none earlier.
        probability: how likely it is, from 0 to 1, that an id that has been met often enough is
            admitted after a step that has it. It follows from the id and the number of the step.

    Raises:
        PlanError: an argument is out of range, or none is given.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> kp.Admission(min_count=3).get_config()
        {'min_count': 3, 'probability': 1.0}
        ```
    """

    def __init__(self, min_count: int = 1, probability: float = 1.0) -> None:
        _require_count('min_count', min_count, 1)
        if not 0 < probability <= 1:
            raise PlanError(
                'probability must be greater than 0 and at most 1, but got %r.' % (probability,)
            )
        if min_count == 1 and probability == 1:
            raise PlanError(
                'Admission needs min_count or probability; without it every id gets a row.'
            )
        self.min_count, self.probability = int(min_count), float(probability)

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, a dict."""
        return {'min_count': self.min_count, 'probability': self.probability}


class Eviction:
    """Says which ids lose their rows, so that there are some for new ones.

    It is decided when a training step ends, and rows that the step has used stay. Rows are taken
    away when fewer are free than the step's new ids have needed, or fewer than one in 128; then as
    many that twice as many are free. A new id that meets no free row all the same is looked up as
    it begins, and is not trained in this step.

    Args:
        policy: `'lru'`, those that were not used for longest, or `'lfu'`, those that were used in
            the fewest steps, and of these the same.
        max_age_steps: after how many steps without use an id loses its row in any case. It has
            every step look through all rows of a shard.

    Raises:
        PlanError: an argument is none of these.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> kp.Eviction('lfu').get_config()
        {'policy': 'lfu', 'max_age_steps': None}
        ```
    """

    def __init__(self, policy: str = 'lru', max_age_steps: Optional[int] = None) -> None:
        if policy not in (LRU, LFU):
            raise PlanError('policy must be %r or %r, but got %r.' % (LRU, LFU, policy))
        if max_age_steps is not None:
            _require_count('max_age_steps', max_age_steps, 1)
        self.policy, self.max_age_steps = policy, max_age_steps

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, a dict."""
        return {'policy': self.policy, 'max_age_steps': self.max_age_steps}


LRU, LFU = 'lru', 'lfu'


def as_policy(kind: Type[_Policy], name: str, given: Any) -> Optional[_Policy]:
    """A policy, or `None`, of one, of what its `get_config` has returned, or of `None`.

    Args:
        kind: the class.
        name: name of the argument.
        given: what was given.

    Raises:
        PlanError: it is none of these.
    """
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, dict):
        return kind(**given)
    raise PlanError('%s must be a kp.%s, but got %r.' % (name, kind.__name__, given))


def _require_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or int(value) != value or value < least:
        raise PlanError('%s must be an integer from %d, but got %r.' % (name, least, value))
