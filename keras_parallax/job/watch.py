"""The watch over the other ranks."""

import os

#: How long a rank that cannot go on may take to leave by its exception before it is ended.
_GRACE_SECONDS = 15


#: The same, when a rank was lost, for the rank that tells of it. For half of that it does not end:
#: the others are to find the rank that was lost, and not those that ended since.
_GRACE_AFTER_LOSS_SECONDS = 10


#: The same for the others. Where the ranks' guards cannot agree, they may find it before the one
#: that is to tell of it; when that ends, horovodrun ends them.
_GRACE_OF_OTHERS_SECONDS = 20


#: The part of Gloo's timeout, 30 seconds, for which ranks that have not started are waited for: a
#: little less than Horovod waits, so that all have ended by then.
_START_SHARE = 5 / 6


#: How much longer than a step a rank may hang as a whole, so that not even a thread of Python runs.
_HANG_SECONDS = 30


def _gloo_timeout():
    return int(os.environ.get('HOROVOD_GLOO_TIMEOUT_SECONDS') or 30)
