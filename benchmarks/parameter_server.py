# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `tf_ps.py` and `ps_strategy.py`: a server of TensorFlow's, until it is killed.

Usage: parameter_server.py CLUSTER JOB TASK THREADS. The job is `ps`, for variables, or `worker`.
"""

import ast
import os
import sys

from systems import settings
from works.stack import tf


def serve(cluster, job, task, threads):
    """Serves as a task of a job of a cluster, a dict."""
    config = settings.session_config(threads)
    if job == 'worker':
        # As TensorFlow's tutorial has it: functions of other processes wait in these threads.
        config.inter_op_parallelism_threads = max(os.cpu_count(), len(cluster['worker']) + 1)
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job, task_index=task, config=config)
    server.join()


if __name__ == '__main__':
    serve(ast.literal_eval(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
