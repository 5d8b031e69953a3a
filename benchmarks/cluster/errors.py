"""The error of everything that makes an emulated cluster."""


class ClusterError(Exception):
    """The cluster cannot be made as asked for."""
