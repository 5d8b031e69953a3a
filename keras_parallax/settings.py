"""The arguments of `ParallaxOptimizer` besides the optimizer."""

from typing import NamedTuple

from keras_parallax.compat import hvd
from keras_parallax.costs import Halved


class Settings(NamedTuple):
    """The arguments, checked; `ParallaxOptimizer` says what they mean."""

    name: str
    compression: type
    pull_compression: type
    sparse_update: str
    sparse_reduction: str

    @property
    def halved(self):
        """What travels in half precision, `costs.Halved`."""
        ways = self.compression, self.pull_compression
        return Halved(*[way is hvd.Compression.fp16 for way in ways])
