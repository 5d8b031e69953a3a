"""Which tests a stack runs: on TensorFlow 1.11 all, on TensorFlow 2 those seen to pass."""

from frameworks import TF2

#: Files and folders below the project's.
ON_TENSORFLOW_2 = (
    'tests/parallel/test_async.py',
    'tests/parallel/test_behaviour.py',
    'tests/parallel/test_compiling.py',
    'tests/parallel/test_criteo.py',
    'tests/parallel/test_dynamic.py',
    'tests/parallel/test_equality.py',
    'tests/parallel/test_failures.py',
    'tests/parallel/test_increments.py',
    'tests/parallel/test_metrics.py',
    'tests/parallel/test_mnist.py',
    'tests/parallel/test_names.py',
    'tests/parallel/test_nmt.py',
    'tests/parallel/test_resnet50.py',
    'tests/parallel/test_resources.py',
    'tests/parallel/test_resuming.py',
    'tests/parallel/test_saving.py',
    'tests/parallel/test_saving_by_all.py',
    'tests/parallel/test_gather.py',
    'tests/parallel/test_barrier.py',
    'tests/parallel/test_gate.py',
    'tests/parallel/test_schedulers.py',
    'tests/parallel/test_servers.py',
    'tests/parallel/test_sessions.py',
    'tests/parallel/test_skip_thoughts.py',
    'tests/parallel/test_start_values.py',
    'tests/parallel/test_tables.py',
    'tests/parallel/test_threads.py',
    'tests/parallel/test_training.py',
    'tests/parallel/test_turnover.py',
    'tests/parallel/test_two_tower.py',
    'tests/unit/callbacks/',
    'tests/unit/checkpoint/test_chain.py',
    'tests/unit/checkpoint/test_increments.py',
    'tests/unit/checkpoint/test_keras_file_',
    'tests/unit/checkpoint/test_manifest.py',
    'tests/unit/checkpoint/test_once.py',
    'tests/unit/checkpoint/test_other_keras.py',
    'tests/unit/checkpoint/test_path_patterns.py',
    'tests/unit/checkpoint/test_random_state.py',
    'tests/unit/checkpoint/test_sample_inputs.py',
    'tests/unit/checkpoint/test_save.py',
    'tests/unit/checkpoint/test_saved_model',
    'tests/unit/checkpoint/test_saved_rows.py',
    'tests/unit/checkpoint/test_tensorflow_slots.py',
    'tests/unit/checkpoint/test_weight_pairs.py',
    'tests/unit/commands/',
    'tests/unit/compat/test_datasets.py',
    'tests/unit/compat/test_keras_optimizers.py',
    'tests/unit/compat/test_loss_scaling.py',
    'tests/unit/compat/test_session_hooks.py',
    'tests/unit/compat/test_tensorflow_2.py',
    'tests/unit/compat/test_tensorflow_optimizers.py',
    'tests/unit/compat/test_versions.py',
    'tests/unit/data/',
    'tests/unit/failures/',
    'tests/unit/job/test_activity.py',
    'tests/unit/job/test_dedicated_servers.py',
    'tests/unit/job/test_devices.py',
    'tests/unit/job/test_hosts.py',
    'tests/unit/job/test_job.py',
    'tests/unit/job/test_process_end.py',
    'tests/unit/job/test_rendezvous_server.py',
    'tests/unit/job/test_s',
    'tests/unit/job/test_w',
    'tests/unit/layers/',
    'tests/unit/metrics/',
    'tests/unit/planning/',
    'tests/unit/session/test_graph_sessions.py',
    'tests/unit/session/test_run_errors.py',
    'tests/unit/session/test_state_updates.py',
    'tests/unit/step/',
    'tests/unit/tables/',
    'tests/unit/test_atomic_files.py',
    'tests/unit/test_clicks.py',
    'tests/unit/test_compiling.py',
    'tests/unit/test_films.py',
    'tests/unit/test_from_parallax.py',
    'tests/unit/test_launch.py',
    'tests/unit/test_logs.py',
    'tests/unit/test_notebook.py',
    'tests/unit/test_sentences.py',
    'tests/unit/test_shapes.py',
    'tests/unit/test_single_process.py',
    'tests/unit/updates/test_asked_gradients.py',
    'tests/unit/updates/test_clipping.py',
    'tests/unit/updates/test_formula_graph.py',
    'tests/unit/updates/test_fused_kernels.py',
    'tests/unit/updates/test_row_rules.py',
    'tests/unit/updates/test_slots.py',
    'tests/unit/updates/test_table_updates.py',
)

#: From a reason to tests that TensorFlow 2 cannot pass for it, and cases of a worker that it cannot
#: run: beginnings of their names, each after its file's. Tests of them are skipped, and
#: docs/tensorflow2.md says how many there are.
NOT_ON_TENSORFLOW_2 = {
    "Horovod 0.28.1's own callback asks `keras.backend` for a session, which it has not": (
        'tests/parallel/test_behaviour.py::test_horovods_own_broadcast_callback',
    ),
    "Keras's optimizers have kernels and sparse updates of their own, by which they move rows": (
        'tests/parallel/test_behaviour.py::test_a_table_follows_its_own_optimizer',
        'tests/unit/updates/test_fused_kernels.py::',
        'tests/unit/updates/test_row_rules.py::test_a_rule_keeps',
        'tests/unit/updates/test_row_rules.py::test_rows_alone_are_exact',
        'tests/unit/updates/test_slots.py::test_a_slot_that_the_formula',
        'tests/unit/updates/test_slots.py::test_each_variable_has_its_first_slot',
        'tests/unit/updates/test_table_updates.py::test_rows_alone_are_updated',
    ),
    "every rank holds all variables of a user's optimizer, and no rank waits for an owner": (
        'tests/parallel/test_barrier.py::test_no_rank_pulls_rows_that_their_owner_has_yet_to_update['
        'counting',
    ),
    'Keras takes no notice of a momentum that is switched on later': (
        'tests/unit/updates/test_row_rules.py::test_momentum_switched_on',
    ),
    'Keras refuses a constraint on a table': (
        'tests/unit/updates/test_row_rules.py::test_lazy_heeds_regularizer_and_constraint[non neg',
        'tests/unit/updates/test_row_rules.py::test_lazy_heeds_regularizer_and_constraint[row norm',
        'tests/parallel/test_behaviour.py::test_a_server_is_sent_tensors_and_no_messages_that_only_'
        'tell_it_to_go_on[tf.keras-told:columns]',
    ),
    'the gradient of a table with a penalty is a tensor there, which no worker counts twice': (
        'tests/parallel/test_behaviour.py::test_a_formula_that_takes_rows_as_they_come_is_refused',
    ),
    'Keras warns of `fit_generator`': (
        'tests/unit/callbacks/test_epoch_reports.py::test_number_of_batches_is_what_keras_runs['
        'fit_generator',
        'tests/unit/test_single_process.py::test_fit_generator_gives',
        'tests/unit/test_single_process.py::test_a_sequence_gives',
    ),
    'Keras has no wrappers for scikit-learn any more': (
        'tests/parallel/compiling_worker.py::of_scikit_learn',
        'tests/parallel/training_worker.py::wrapped',
    ),
    'Keras does not warn that it saves no slots of a `tf.train.Optimizer`': (
        'tests/unit/callbacks/test_model_checkpoint.py::test_the_file_of_a_model_with_tensorflows',
    ),
    'metrics of validation differ in their last bit from one run to the next': (
        'tests/parallel/test_training.py::test_explicit_callbacks_change_nothing',
    ),
}


def is_run(path):
    """Whether this stack runs the tests of a file.

    Args:
        path: its path from the project's folder.
    """
    return not TF2 or path.startswith(ON_TENSORFLOW_2)


def reason_against(name):
    """Why this stack cannot pass a test, or run a case of a worker, or `None`.

    Args:
        name: its name, after its file's, as in `FILE::NAME[PARAMETERS]`.
    """
    for reason, names in NOT_ON_TENSORFLOW_2.items() if TF2 else ():
        if name.startswith(names):
            return reason
    return None
