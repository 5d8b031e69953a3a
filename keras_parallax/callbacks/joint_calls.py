"""In which callbacks ranks wait for each other, be they Horovod's or ours."""

from keras_parallax.callbacks.broadcast import BroadcastGlobalVariablesCallback
from keras_parallax.callbacks.metric_average import MetricAverageCallback
from keras_parallax.callbacks.model_checkpoint import ModelCheckpoint, joint_act
from keras_parallax.callbacks.profile import Profile
from keras_parallax.callbacks.step_metrics import StepMetrics
from keras_parallax.compat.horovod_api import horovod_callbacks


def call_of(callback):
    """What ranks wait for each other in, of a callback; `None` if it acts on each rank alone.

    It is a string, the same on every rank that has such a callback, be it Horovod's or ours.
    """
    if is_broadcast(callback):
        return 'BroadcastGlobalVariablesCallback(%r)' % callback.root_rank
    if is_metric_average(callback):
        also = getattr(callback, 'average_moving_statistics', False)
        return 'MetricAverageCallback' + ('(average_moving_statistics=True)' if also else '')
    if isinstance(callback, (StepMetrics, Profile)):
        return type(callback).__name__
    return joint_act(callback) if isinstance(callback, ModelCheckpoint) else None


def is_broadcast(callback):
    """Whether a callback gives all ranks the values of one."""
    theirs = horovod_callbacks.BroadcastGlobalVariablesCallbackImpl
    return isinstance(callback, (BroadcastGlobalVariablesCallback, theirs))


def is_metric_average(callback):
    """Whether a callback averages metrics over the ranks."""
    theirs = horovod_callbacks.MetricAverageCallbackImpl
    return isinstance(callback, (MetricAverageCallback, theirs))
