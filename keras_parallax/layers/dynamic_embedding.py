# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`DynamicEmbedding`: a table for ids that nobody has numbered."""

from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

from typing_extensions import Unpack

from keras_parallax.compat import graph_queries, index_storage, keras_api, tensorflow_api
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session import graph_scope
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.session.run_errors import BATCH_MARK, FULL_MARK
from keras_parallax.engine.tables import float_ids, id_index, id_part
from keras_parallax.engine.tables.id_index import IdIndex
from keras_parallax.engine.tables.id_part import NO_ID
from keras_parallax.engine.tables.id_policies import LFU, Admission, Eviction, as_policy
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Tensor
from keras_parallax.layers import bags, first_values
from keras_parallax.layers.keras_arguments import LayerArguments
from keras_parallax.layers.late_layer import LateLayer

#: What `Embedding` takes that a table of ids that come and go has not.
_NOT_TAKEN = (
    'input_dim',
    'embeddings_initializer',
    'embeddings_regularizer',
    'embeddings_constraint',
    'mask_zero',
    'dtype',
    'weights',
)


class DynamicEmbedding(LateLayer):
    """An `Embedding` of raw ids, each of which gets a row when it is first met in training.

    Ids are any integers of 64 bits but -2**63: hashes of words, numbers of users or goods. Strings
    have FarmHash's fingerprint of 64 bits, modulo 2**63 - 1, for an id, which two of them may
    share: of a million different ones, once in 18 million tables.

    A new row begins with values that follow from the id and the initializer's seed alone: they are
    the same on every worker, in whichever order ids arrive, and after a resume. In `predict` and
    `evaluate` an id without a row is looked up as those values, and gets none. What trains with the
    learning phase 1 is training: `fit`, `train_on_batch`, and whoever feeds
    `keras.backend.learning_phase()`.

    With fewer ids than rows, it trains as `Embedding` does on the same ids, numbered by a
    dictionary, whose rows begin with those values. Slots of an optimizer begin as ever.

    Inputs are of any shape, int64, int32 or strings; the output has one dimension more, of
    `output_dim`. Called on several inputs it is one table. In a strategy it is a sparse table of
    `capacity` rows, of which each shard gives away its own: an id's shard follows from the id. So
    the first shard is full a little before all are; with s shards, give a capacity of n + 4 *
    sqrt(n * s) for n ids.

    With a `combiner` it takes several ids a sample, in every form that `EmbeddingBag` does but of
    floating numbers, and outside of loops; the output is `[batch, output_dim]`.

    Called with `trainable=False`, it gives no rows, and looks up those that it was given.

    A weight `ids` `[capacity]` says which id each row has, -2**63 of one that none has. It is saved
    and set together with the rows. With an `admission` all weights have a row more, the last: that
    of all ids which have yet to be admitted. What is counted of rows and ids are weights, too.

    Args:
        output_dim: width of a row.
        capacity: number of rows that ids may have.
        admission: a `kp.Admission`, if not every id is to get a row at once. Needs a strategy.
        eviction: a `kp.Eviction`, if ids are to lose their rows to others. Needs a strategy.
        initializer: what rows begin with: `'uniform'`, `'normal'`, `'zeros'`, `'ones'`, or
            `RandomUniform`, `RandomNormal` or `Constant` of Keras. Its numbers are not those that
            Keras draws. Without a seed of its own, that follows from the layer's name.
        combiner: `'sum'`, `'mean'` or `'sqrtn'`, if the rows of several ids are to be combined.
        padding_id: with a combiner, an integer or a string that stands for no id.
        keras: `'keras'` or `'tf.keras'`, the package of the model. Defaults to `'keras'` if the
            script has imported it.
        kwargs: `name`, `trainable`, `input_length`, `input_shape` and the like, as `Embedding`
            takes them. Rows are of Keras's `floatx`.

    Raises:
        PlanError: an argument is none of these; or, when the layer is called, an input is neither
            of integers nor of strings, is of another shape or kind than a bag's, is of the other
            package or in a loop, the learning phase is set for good, or a policy is given outside
            of a strategy; or, in the first training call, the optimizer keeps what an eviction
            cannot begin anew, or the layer was called with `trainable=False` and is to be trained;
            or, with several workers or servers, the strategy has `architecture='allreduce'`,
            overrides the table's class, or has `sync=False` where ids are evicted, or the layer was
            frozen after it was called.
        TableFullError: in a training batch, there is no row for a new id. The step then moves no
            row, on any worker. Without a strategy this and the next one are TensorFlow's.
        DataError: a batch has the id -2**63, or, of bags, what `EmbeddingBag` refuses.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     users = keras.layers.Input((2,), dtype='int64')
        ...     rows = kp.layers.DynamicEmbedding(4, capacity=1000)(users)
        ...     model = keras.models.Model(users, rows)
        ...     model.compile('adagrad', 'mse')
        >>> batch = np.array([[7, -123456789012345678], [2**62, 7]])
        >>> before = model.predict(batch)
        >>> loss = model.train_on_batch(batch, np.zeros([2, 2, 4]))
        >>> bool(np.abs(model.predict(batch)).sum() < np.abs(before).sum())
        True
        >>> ids = model.get_weights()[1]
        >>> sorted(ids[ids != -2**63].tolist())
        [-123456789012345678, 7, 4611686018427387904]
        ```
    """

    base = staticmethod(lambda package: package.module.layers.Embedding)

    def __init__(
        self,
        output_dim: int,
        capacity: int,
        admission: Optional[Admission] = None,
        eviction: Optional[Eviction] = None,
        initializer: Any = 'uniform',
        combiner: Optional[str] = None,
        padding_id: Union[None, int, str] = None,
        keras: Optional[str] = None,
        **kwargs: Unpack[LayerArguments],
    ) -> None:
        del keras  # The class is of that package already.
        index_storage.require_locks()
        for name in _NOT_TAKEN:
            if name in kwargs:
                raise PlanError('DynamicEmbedding has no argument %s.' % name)
        for name, value in (('output_dim', output_dim), ('capacity', capacity)):
            if int(value) != value or value < 1:
                raise PlanError('%s must be a positive integer, but got %r.' % (name, value))
        if combiner is not None:
            bags.require_combiner(combiner)
        elif padding_id is not None:
            raise PlanError('padding_id is for bags: give a combiner, too.')
        if padding_id is not None and not isinstance(padding_id, str):
            if int(padding_id) != padding_id:
                raise PlanError(
                    'padding_id must be an integer, a string or None, but got %r.' % (padding_id,)
                )
            padding_id = int(padding_id)
        self.combiner, self.padding_id = combiner, padding_id
        self.admission = as_policy(Admission, 'admission', admission)
        self.eviction = as_policy(Eviction, 'eviction', eviction)
        # Of a layer that a `Sequential` begins with, it is the dtype of the input.
        rows = int(capacity) + (self.admission is not None)
        super().__init__(rows, int(output_dim), dtype='int64', **kwargs)
        self.capacity = int(capacity)
        self.initializer = first_values.initializer_of(self._package, initializer, self.name)

    def check_inputs(self, inputs: Sequence[Tensor]) -> None:
        """As `LateLayer.check_inputs`."""
        ids, problem = inputs[0], None
        if self.combiner is not None:
            bags.require_bags(inputs, self.name)
        elif len(inputs) > 1:
            problem = '%d inputs' % len(inputs)
        elif isinstance(ids, tf.SparseTensor):
            problem = 'a SparseTensor'
        if ids.dtype not in (tf.int32, tf.int64, tf.string):
            problem = 'one of %s' % ids.dtype.name
        elif any(
            tensorflow_api.is_in_control_flow(part)
            for tensor in inputs
            for part in tensorflow_api.ragged_parts(tensor) or [tensor]
        ):
            problem = 'one in a loop or a branch; call it before'
        if problem is not None:
            raise PlanError(
                "The layer %s takes %s of integers or strings, as of Input(dtype='int64'), but got "
                '%s.' % (self.name, 'ids' if self.combiner else 'one tensor', problem)
            )
        padding = self.padding_id
        if padding is not None and isinstance(padding, str) != (ids.dtype == tf.string):
            raise PlanError(
                'The layer %s has padding_id=%r, but its ids are of %s, so that it is none of them.'
                % (self.name, padding, ids.dtype.name)
            )
        decides = self.admission or self.eviction
        if (
            decides
            and graph_scope.scope_of(inputs[0].graph) is None
            and not id_index.is_to_predict()
        ):
            raise PlanError(
                'Which ids of the layer %s get rows and lose them is decided when a step of a '
                'ParallaxStrategy ends; call it inside `with strategy:`.' % self.name
            )
        if keras_api.is_phase_set(self._package) and not id_index.is_to_predict():
            raise PlanError(
                'K.set_learning_phase has said for good whether this is training, and the layer '
                '%s gives rows in training alone. Leave it out.' % self.name
            )

    def build(self, input_shape: Any) -> None:
        """Makes the weights.

        Args:
            input_shape: that of the ids.

        Raises:
            PlanError: variables are resources.
        """
        by_reference = index_storage.by_reference(self._package)
        beside: Dict[str, Tuple[Callable[..., Tensor], Tuple[int, ...]]]
        beside = {id_part.IDS: (_no_ids, ())}
        admission, eviction = self.admission, self.eviction
        if eviction or (admission and admission.probability < 1):
            beside[id_part.LAST_STEPS] = _before_all_steps, ()
        if eviction and eviction.policy == LFU:
            beside[id_part.STEPS_USED] = _nothing, ()
        if admission and admission.min_count > 1:
            beside[id_part.CANDIDATES] = _nothing, (2,)
        with tf.device('/device:CPU:0'):  # Where the index is.
            self.embeddings = self.add_weight(
                name='embeddings',
                shape=(self.input_dim, self.output_dim),
                initializer='zeros',
                dtype=self._package.backend.floatx(),
                **by_reference,
            )
            weights = {
                name: self.add_weight(
                    name=name,
                    shape=(self.input_dim,) + row_shape,
                    initializer=begin,
                    dtype='int64',
                    trainable=False,
                    **by_reference,
                )
                for name, (begin, row_shape) in beside.items()
            }
        self.ids = weights[id_part.IDS]
        by_handle = tensorflow_api.storage(self.embeddings).dtype == tf.resource
        if by_handle and not generation.BY_RESOURCE:
            raise PlanError(
                'The layer %s needs variables that are references; leave use_resource out.'
                % self.name
            )
        self._index = IdIndex(
            self.embeddings, weights, self._initial, self.admission, self.eviction
        )
        self._index.follow_assignment()
        # Whether what runs is training is fed to models that have such a layer (Keras 2.2.4).
        self.uses_learning_phase = True
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        """Looks ids up.

        Args:
            inputs: a tensor of integers or strings; with a combiner, or a list, as `EmbeddingBag`
                takes it.

        Returns:
            A tensor of one dimension more; with a combiner `[batch, output_dim]`.
        """
        ids_of = lambda given: float_ids.watched(_as_ids(given), self.name)  # noqa: E731
        if self.combiner is not None:
            entries = bags.entries_of(inputs, ids_of, self.padding_id, self.name)
            total = bags.sum_of_unique(self._values_of(entries.unique_ids), entries)
            return bags.combined(total, inputs, entries, self.combiner)
        ids = ids_of(inputs)
        unique, places = tf.unique(tf.reshape(ids, [-1]))
        output = _laid_out(self._values_of(unique), tf.reshape(places, tf.shape(ids)))
        output.set_shape(ids.shape.concatenate([self.output_dim]))
        return output

    def compute_output_shape(self, input_shape: Any) -> Tuple[Optional[int], ...]:
        """The shape of the output.

        Args:
            input_shape: that of the ids, or a list of the inputs' shapes.

        Returns:
            A tuple.
        """
        if self.combiner is None:
            return super().compute_output_shape(input_shape)
        return bags.count_of_shape(input_shape), self.output_dim

    def row_counts(self) -> Dict[str, int]:
        """What has come of rows and ids, on all shards.

        Returns:
            A dict of integers: `rows_used`, the rows that ids have now; `rows_given` and
            `rows_evicted`, how often one was given and taken away since this job began; and
            `ids_left_out`, how often a new id of a training batch has found no row.
        """
        with lock_of(self.embeddings.graph).held():
            counts = self._index.counts()
        found = self._package.backend.get_session().run(counts)
        return {name: int(value) for name, value in found.items()}

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, as Keras writes them to a file."""
        config = super().get_config()
        for name in _NOT_TAKEN:
            config.pop(name, None)
        config['initializer'] = self._package.module.initializers.serialize(self.initializer)
        for name in ('admission', 'eviction'):
            policy = getattr(self, name)
            config[name] = policy and policy.get_config()
        return dict(
            config,
            capacity=self.capacity,
            combiner=self.combiner,
            padding_id=self.padding_id,
        )

    def _values_of(self, ids: Tensor) -> Tensor:
        """The rows `[n, output_dim]` of ids `[n]`, each once, that get rows if this is training."""
        training = None
        if self.trainable and not id_index.is_to_predict():
            training = tf.cast(self._package.backend.learning_phase(), tf.bool)
        says = 'The layer %s takes any ids but %d, which stands for none' % (self.name, NO_ID)
        checks = [_check(tf.not_equal(ids, NO_ID), BATCH_MARK, says)]
        if training is not None and self.eviction is not None:
            # It is known before any id gets a row.
            checks.append(self._room_check(ids, None, training))
        with tf.control_dependencies(checks):
            rows = self._index.rows_of(tf.identity(ids), training)
        if training is not None and self.eviction is None:
            with tf.control_dependencies([self._room_check(ids, rows, training)]):
                rows = tf.identity(rows)
        shared = self._index.shared_row
        if shared is not None:
            rows = tf.where(rows >= 0, rows, tf.fill(tf.shape(rows), tf.to_int64(shared)))
        known, others = tf.where(rows >= 0)[:, 0], tf.where(rows < 0)[:, 0]
        positions = [tf.cast(known, tf.int32), tf.cast(others, tf.int32)]
        looked_up = tf.gather(rows, known)
        if shared is None:
            # Each id has a row of its own, so nobody needs to search them for repeats.
            graph_queries.mark_no_repeats(looked_up)
        values = tf.dynamic_stitch(
            positions,
            [
                tf.gather(self.embeddings, looked_up),
                self._initial(tf.gather(ids, others)),
            ],
        )
        values.set_shape([None, self.output_dim])
        return values

    def _room_check(self, ids: Tensor, rows: Any, training: Tensor) -> Operation:
        """An operation that fails in training if there are too few rows."""
        says = 'the layer %s has no row left for a new id: its capacity is %d'
        if self.eviction is not None:
            says = 'the layer %s was given more different ids in a batch than its capacity, %d'
            fits = tf.size(ids) <= self.capacity
        else:
            fits = rows >= (0 if self.admission is None else id_index.WITHOUT_ROW)
        fits = tf.logical_or(fits, tf.logical_not(training))
        return _check(fits, FULL_MARK, says % (self.name, self.capacity))

    def _initial(self, ids: Tensor) -> Tensor:
        dtype = self.embeddings.dtype.base_dtype
        return tf.cast(first_values.of_ids(ids, self.output_dim, self.initializer), dtype)


def _as_ids(inputs: Any) -> Tensor:
    """Ids of any shape, int64, of integers or strings."""
    if inputs.dtype == tf.string:
        return tf.string_to_hash_bucket_fast(inputs, 2**63 - 1)
    return tf.cast(inputs, tf.int64)


def _no_ids(shape: Any, dtype: Any = None, **_: Any) -> Tensor:
    """The weight of ids, of rows that none has yet."""
    del dtype
    return tf.fill([int(size) for size in shape], tf.constant(NO_ID, tf.int64))


def _nothing(shape: Any, dtype: Any = None, **_: Any) -> Tensor:
    """What is counted, before anything is. Those of Keras are of another dtype."""
    del dtype
    return tf.fill([int(size) for size in shape], tf.constant(0, tf.int64))


def _before_all_steps(shape: Any, dtype: Any = None, **_: Any) -> Tensor:
    """The steps in which rows were used, before any was."""
    del dtype
    return tf.fill([int(size) for size in shape], tf.constant(-1, tf.int64))


def _check(conditions: Tensor, mark: str, says: str) -> Operation:
    return tensorflow_api.raw_assert(tf.reduce_all(conditions), [mark, says], 1)


_GRADIENT = 'ParallaxLaidOutRows'


def _laid_out(rows: Tensor, places: Tensor) -> Tensor:
    """Rows at places of any shape, such that the gradient of a row is summed up at once."""
    with rows.graph.gradient_override_map({'Gather': _GRADIENT, 'GatherV2': _GRADIENT}):
        return tf.gather(rows, places)


@tf.RegisterGradient(_GRADIENT)
def _gradient_of_laid_out(operation: Operation, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
    """The gradient of a gather by rows, as a tensor and not as `IndexedSlices`."""
    rows, places = operation.inputs[:2]
    count = tf.shape(rows)[0]
    total = tf.unsorted_segment_sum(gradient, places, count)
    return (total,) + (None,) * (len(operation.inputs) - 1)
