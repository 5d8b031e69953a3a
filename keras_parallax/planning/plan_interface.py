# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What those who describe a plan ask of it: summary, page and curves."""

from typing import List, Optional

from typing_extensions import Protocol

from keras_parallax.planning import costs
from keras_parallax.planning.architecture_trials import Trials
from keras_parallax.planning.memory import HostMemory
from keras_parallax.planning.planned_variables import PlannedModel, PlannedVariable
from keras_parallax.planning.predict import Prediction


class PlanInterface(PlannedModel, Protocol):
    """A `plan.Plan`, which says what each part is."""

    @property
    def model(self) -> Optional[str]:
        """The name of the model, `None` if it is not known."""

    @property
    def requested(self) -> str:
        """The architecture that was asked for."""

    @property
    def trials(self) -> Optional[Trials]:
        """The trials of a job that tries architectures, or has."""

    @property
    def architecture(self) -> str:
        """What the plan comes to."""

    def predict(self, bandwidth: Optional[float] = None) -> Optional[Prediction]:
        """Predicts what a step costs."""

    def verdict(self, bandwidth: Optional[float] = None) -> Optional[str]:
        """Says which architecture is fastest from how many hosts on."""

    def memory(self) -> List[HostMemory]:
        """Predicts the memory of each host."""

    def for_cluster(
        self, cluster: costs.Cluster, architecture: Optional[str] = None
    ) -> 'PlanInterface':
        """The plan of the same model on another cluster."""

    def __getitem__(self, name: str) -> PlannedVariable:
        """The `PlannedVariable` called `name`."""
