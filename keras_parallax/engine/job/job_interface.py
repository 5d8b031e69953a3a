# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the parts of a job ask of the job itself, which is made of them."""

from typing import Any, Callable, ContextManager, List, Optional, Sequence, TypeVar

from typing_extensions import Protocol

from keras_parallax.engine.job.activity import Activity
from keras_parallax.engine.job.allowed_hosts import AllowedHosts
from keras_parallax.engine.job.dedicated_servers import ServerFacts
from keras_parallax.framework_types import Config

_Result = TypeVar('_Result')


class WatchInterface(Protocol):
    """What the parts of a job ask of its `RankWatch`."""

    def tell_now(self) -> None:
        """Has the other workers hear of this one as soon as each has something to tell."""

    def lose_server(self, sentence: str) -> None:
        """Has all workers hear of a dedicated server that is gone, a sentence."""


class PrivacyInterface(Protocol):
    """What the parts of a job ask of its `JobPrivacy`."""

    def include(self, dedicated: Sequence[ServerFacts]) -> None:
        """Takes dedicated servers among the processes of the job."""

    def allowed(self, identity: Optional[str] = None) -> AllowedHosts:
        """The hosts that may connect to servers on a host of the job, by default on this one."""

    def close_server(self, addresses: Sequence[str], dedicated: Sequence[str]) -> None:
        """Closes this worker's TensorFlow server. A collective call."""


class Workers(Protocol):
    """The workers that train together: those of a `Job`, or of Horovod alone."""

    rank: int
    size: int

    def call(self, name: str) -> ContextManager[Any]:
        """While open, collectives belong to a call of all workers, named as the user knows it."""

    def gather(self, value: Any) -> List[Any]:
        """A list with each worker's value. A collective call."""

    def collective(self, act: Callable[[Optional[str]], _Result]) -> _Result:
        """Runs a collective: a function that takes the name of the call that it belongs to."""


class JobInterface(Workers, Protocol):
    """What the parts of a job ask of the `Job`; it says what each attribute is."""

    hosts: List[List[int]]
    config: Config
    activity: Activity

    @property
    def privacy(self) -> PrivacyInterface:
        """Which hosts may connect to the job's processes."""

    @property
    def watch(self) -> WatchInterface:
        """The watch over the other workers."""

    @property
    def problem(self) -> Optional[BaseException]:
        """The exception that says why the job cannot go on, or `None`."""
