"""TODO."""

#: How long the host of a dedicated server may be silent. With the grace, less than 30 seconds.
_SILENT_SECONDS = 8


_PROBE_SECONDS = 1.0
