# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How the scripts of this folder report checks, and the sizes of what they train."""

import json
import math
import os
import traceback
from typing import Any, Callable

from gpu.running import REPORT

#: The environment variable that is `'card'` or `'small'`.
SIZES = 'GPU_CHECK_SIZES'


def report(check: str, passed: bool, reason: str = '', **numbers: Any) -> None:
    """Reports a check of this part, at once. Only rank 0 is heard.

    Args:
        check: one of the part's checks.
        passed: whether it passed.
        reason: why not.
        **numbers: what was measured, plain data.
    """
    if os.environ.get('HOROVOD_RANK', '0') != '0':
        return
    with open(os.environ[REPORT], 'a') as file:
        one = dict(check=check, passed=bool(passed), reason=reason, numbers=numbers)
        file.write(json.dumps(one) + '\n')


def report_error(check: str, act: Callable[[], None]) -> None:
    """Acts, and reports a check as failed if that raises.

    The checks that follow are made all the same. If one rank raises alone, the others wait for it
    until the part's time is over; its traceback is in the output.
    """
    try:
        act()
    except Exception as error:
        traceback.print_exc()
        report(check, False, '%s: %s' % (type(error).__name__, ' '.join(str(error).split())[:400]))


def is_small() -> bool:
    """Whether sizes are small, as without a card."""
    return os.environ[SIZES] == 'small'


def relative(ours: Any, plain: Any) -> float:
    """The largest difference of two arrays over the largest number of the second one."""
    import numpy as np

    ours, plain = np.asarray(ours, np.float64), np.asarray(plain, np.float64)
    if ours.shape != plain.shape:
        return math.inf
    if not ours.size:
        return 0.0
    return float(np.abs(ours - plain).max() / max(np.abs(plain).max(), 1e-30))
