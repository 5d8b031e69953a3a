# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What tables ask of the `session.graph_scope.GraphScope` of their graph, which is above them."""

from typing import Any, Dict, List, Mapping, Optional

from typing_extensions import Protocol

from keras_parallax.engine.job.job_interface import JobInterface
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Session, Tensor, Variable
from keras_parallax.planning.costs import Cluster


class RecordInterface(Protocol):
    """A `WeightRecord`, which says what each part is."""

    @property
    def layer_name(self) -> str:
        """The layer's name."""

    @property
    def penalties(self) -> List[Tensor]:
        """The scalar tensors that the regularizer returned and that depend on the weight."""

    @property
    def regularizer(self) -> Optional[Any]:
        """The regularizer, or `None`."""


class TablesScope(Protocol):
    """A `GraphScope`, which says what each part is."""

    @property
    def job(self) -> JobInterface:
        """The job."""

    @property
    def servers(self) -> Optional[Servers]:
        """The servers that hold shards."""

    @property
    def cluster(self) -> Cluster:
        """The job's hosts."""

    @property
    def session(self) -> Session:
        """The session that Keras uses for the graph."""

    @property
    def records(self) -> Mapping[Variable, RecordInterface]:
        """What layers said when they made weights."""

    @property
    def tables_by_name(self) -> Dict[str, Table]:
        """The tables of every model built on the graph."""
