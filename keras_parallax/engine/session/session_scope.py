# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a session asks of the scope of its graph."""

from typing_extensions import Protocol

from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.session.session_runs import SessionRuns
from keras_parallax.engine.session.table_initializers import TableInitializers
from keras_parallax.engine.session.variable_changes import Changes
from keras_parallax.engine.session.written_rows import WrittenRows


class SessionScope(ScopeInterface, Protocol):
    """What a `ParallaxSession` asks of a `GraphScope`, which says what each attribute is."""

    @property
    def runs(self) -> SessionRuns:
        """The runs of the graph's sessions."""

    @property
    def written_rows(self) -> WrittenRows:
        """Which rows of tables they write."""

    @property
    def table_initializers(self) -> TableInitializers:
        """The initializers of the graph's lookup tables."""

    @property
    def changes(self) -> Changes:
        """Counts what changes variables, besides training steps."""
