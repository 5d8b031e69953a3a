"""Run by `tf_ps.py`: a parameter server of TensorFlow's, until it is killed.

Usage: parameter_server.py CLUSTER TASK THREADS.
"""

import ast
import sys

from systems import settings
from works.stack import tf


def serve(cluster, task, threads):
    """Serves the variables of a task of a cluster, a dict."""
    server = tf.train.Server(
        tf.train.ClusterSpec(cluster),
        'ps',
        task_index=task,
        config=settings.session_config(threads),
    )
    server.join()


if __name__ == '__main__':
    serve(ast.literal_eval(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
