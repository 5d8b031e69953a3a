# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a module says of a generation of TensorFlow and of the Keras packages beside it."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from typing_extensions import Protocol

from keras_parallax.framework_types import Graph, Model, Optimizer, Session, Variable

if TYPE_CHECKING:
    from keras_parallax.compat import tensorflow_1, tensorflow_1_6, tensorflow_1_15, tensorflow_2

#: A class of TensorFlow's or Keras's, or `()` where there is none: what `isinstance` takes.
ClassOrNone = Any


class Generation(Protocol):
    """A module of `compat/`: `tensorflow_1`, `tensorflow_1_6`, `tensorflow_1_15` or `tensorflow_2`.

    The module `installed_frameworks` chooses one. `name` is the name of a Keras package, `'keras'`
    or `'tf.keras'`.
    """

    @property
    def c_api(self) -> Any:
        """The module of TensorFlow's C API."""

    @property
    def tf(self) -> Any:
        """TensorFlow by the names of TensorFlow 1."""

    @property
    def training_ops(self) -> Any:
        """The module of the kernels of optimizers."""

    @property
    def SUMS_ACTIVITY_PENALTIES(self) -> bool:
        """Whether `tf.keras` sums an `activity_regularizer` over a batch."""

    @property
    def DIVIDED_BY_WEIGHTS(self) -> Tuple[str, ...]:
        """The Keras packages that divide losses by numbers of sample weights."""

    @property
    def COMPILED_WITH(self) -> str:
        """The attribute of a model that has an argument of `compile`, a format."""

    @property
    def INTERNALS(self) -> str:
        """The end of the names of our modules for its graphs and sessions."""

    @property
    def CONFIG(self) -> Any:
        """What every session of ours needs, a `tf.ConfigProto`."""

    @property
    def FOR_GRAPHS(self) -> str:
        """What a script must do so that TensorFlow builds graphs."""

    @property
    def BY_RESOURCE(self) -> bool:
        """Whether a variable is a resource by default."""

    @property
    def OPTIMIZER_MODULES(self) -> Tuple[str, ...]:
        """The modules of the Keras packages' optimizers."""

    @property
    def OPTIMIZER_V2(self) -> ClassOrNone:
        """The base class of optimizers of Keras that take rows."""

    @property
    def LOSS_SCALE_OPTIMIZER(self) -> ClassOrNone:
        """The class of optimizers that scale the loss for another one."""

    @property
    def AUTO_CAST(self) -> ClassOrNone:
        """The class of variables that a layer casts when it reads them."""

    @property
    def USUAL_AGGREGATOR(self) -> Any:
        """The default function by which an `OptimizerV2` adds up gradients."""

    @property
    def ITERATORS_NEED_DATA(self) -> bool:
        """Whether an iterator needs its data set before it takes a state."""

    @property
    def TABLES_ARE_EAGER(self) -> bool:
        """Whether scripts rely on TensorFlow to initialize lookup tables."""

    @property
    def GRADIENTS(self) -> Tuple[Tuple[Any, ...], str]:
        """The modules that have `gradients`, and its name there."""

    @property
    def DATASET(self) -> Any:
        """The base class of data sets."""

    @property
    def FUNCTIONS(self) -> Any:
        """The module `tensorflow_functions`, or `None`."""

    @property
    def BRANCHES_IN_LOOPS_READ(self) -> bool:
        """Whether a branch in a loop may read a variable."""

    @property
    def USUAL_KERAS(self) -> str:
        """The name of the Keras package that every process has."""

    @property
    def KERAS_PACKAGES(self) -> Dict[str, str]:
        """The modules of which Keras packages are made, by their names."""

    @property
    def REFUSED_PACKAGES(self) -> Dict[str, str]:
        """The same for Keras packages that are not served."""

    @property
    def REFUSED_MODELS(self) -> Tuple[Any, ...]:
        """The base classes of the models of refused packages."""

    @property
    def IGNORED_METHODS(self) -> Tuple[str, ...]:
        """The methods of models that Keras calls under eager execution only."""

    @property
    def concrete_function_of(self) -> Callable[[Any, Tuple[Any, ...], Dict[str, Any]], Any]:
        """What a `tf.function` calls, given arguments by place and by name."""

    @property
    def python_of(self) -> Callable[[Any], Callable[..., Any]]:
        """The Python of a `tf.function`."""

    def sorts_sums(self, width: int) -> bool:
        """Whether the CPU sums rows of a width faster after sorting them."""

    def visible_cards(self) -> Optional[int]:
        """How many graphics cards TensorFlow sees; `None` if that cannot be known yet."""

    def group_by_window(
        self,
        dataset: Any,
        group_of: Callable[..., Any],
        elements_of: Callable[[Any, Any], Any],
        size: int,
    ) -> Any:
        """What `elements_of` makes of each `size` elements of a group, in a data set."""

    def name_in_graphs(self, metric: str, is_weighted: bool) -> str:
        """The name of a metric in the logs of a model that is a graph."""

    def keras_module(self, name: str) -> Any:
        """The Keras package of a name, as scripts have it."""

    def keras_classes(self, name: str) -> Dict[str, Any]:
        """The classes of a Keras package by the names that `PATCHES` has."""

    def tensor_board(self, name: str) -> Any:
        """The class of the callback for TensorBoard that knows graphs."""

    def keras_version(self, name: str) -> str:
        """The version that the package writes to files."""

    def keras_backend(self, name: str) -> Any:
        """The `backend` of the package."""

    def keras_saving(self, name: str) -> Any:
        """The module that reads and writes HDF5 files."""

    def keras_writer(self, name: str) -> Callable[..., None]:
        """The function that writes a model to an open HDF5 file."""

    def keras_session(self, name: str) -> Optional[Session]:
        """The session that the package has open, or `None`."""

    def share_session(self, name: str, session: Session) -> None:
        """Has threads that have no session of Keras begin with this one."""

    def track_slots(self, name: str, optimizer: Optimizer) -> None:
        """Has Keras initialize the slots of a wrapped `tf.train.Optimizer`."""

    def track_variables(self, name: str, variables: Sequence[Variable]) -> None:
        """Has Keras initialize variables of a script's own."""

    def tracked_variables(self, name: str, graph: Graph) -> List[Variable]:
        """The variables that Keras alone initializes in a graph."""

    def for_graphs(self, name: str, optimizer: Optimizer) -> Optimizer:
        """An optimizer, or the equivalent that builds graphs."""

    def check_policy(self, policy: Any) -> None:
        """Refuses a precision in which no model can be trained."""

    def arguments_of_save(
        self, filepath: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """The arguments of `model.save(filepath, ...)` for an HDF5 file."""

    def model_in_file(self, model: Model) -> Any:
        """What the functions of `keras_saving` take for a model."""


if TYPE_CHECKING:
    _of_1: Generation = tensorflow_1
    _of_1_6: Generation = tensorflow_1_6
    _of_1_15: Generation = tensorflow_1_15
    _of_2: Generation = tensorflow_2
