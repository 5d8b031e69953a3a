# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The commands that messages tell a user to run; `tests/parallel/test_remedies.py` runs them.

Any Python can read the module. Stacks are named as `supported_versions` names them.
"""

#: Compiles Horovod for the TensorFlow that is installed, or takes a kept wheel. Horovod is
#: replaced if it lacks what is asked for. `pip install horovod` would keep it, or would compile it
#: without TensorFlow.
HOROVOD = 'keras-parallax install-horovod'
HOROVOD_WITH_MPI = 'HOROVOD_WITH_MPI=1 ' + HOROVOD
HOROVOD_WITH_NCCL = 'HOROVOD_GPU_OPERATIONS=NCCL ' + HOROVOD

TENSORFLOW = {
    'tf1.6': 'pip install tensorflow==1.6.0',
    'tf1.11': 'pip install tensorflow==1.11.0',
    'tf1.15': "pip install tensorflow==1.15.5 'protobuf<3.21' 'h5py<3'",
    'tf2.15': 'pip install tensorflow==2.15.1',
    'tf2.21': 'pip install tensorflow==2.21.0 tf-keras==2.21.0',
}

#: For graphics cards. TensorFlow's packages install the same files, so the others go first.
TENSORFLOW_GPU = {
    'tf1.6': 'pip uninstall -y tensorflow; pip install tensorflow-gpu==1.6.0',
    'tf1.11': 'pip uninstall -y tensorflow; pip install tensorflow-gpu==1.11.0',
    'tf1.15': "pip uninstall -y tensorflow; pip install tensorflow-gpu==1.15.5 'protobuf<3.21'",
    'tf2.15': "pip uninstall -y tensorflow-cpu; pip install 'tensorflow[and-cuda]==2.15.1'",
    'tf2.21': "pip uninstall -y tensorflow-cpu; pip install 'tensorflow[and-cuda]==2.21.0'",
}

#: Keras 2.
KERAS = {
    'tf1.6': 'pip install keras==2.2.4',
    'tf1.11': 'pip install keras==2.2.4',
    'tf1.15': 'pip install keras==2.3.1',
    'tf2.15': 'pip install keras==2.15.0',
    'tf2.21': 'pip install tf-keras==2.21.0',
}

ANY_KERAS = 'pip install keras'
H5PY = 'pip install h5py'
H5PY_2 = "pip install 'h5py<3'"
JINJA2 = 'pip install jinja2'
MATPLOTLIB = 'pip install matplotlib'
OPEN_MPI = 'apt-get install -y openmpi-bin'


def tf_keras(tensorflow):
    # type: (str) -> str
    """The command for the `tf_keras` of a TensorFlow: another would replace TensorFlow.

    Args:
        tensorflow: its version, a string.
    """
    return "pip install 'tf-keras~=%s.0'" % '.'.join(tensorflow.split('.')[:2])
