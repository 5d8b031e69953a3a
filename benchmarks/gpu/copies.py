# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Counts the copies between host and card in what TensorFlow notes of a step."""

import re
from typing import Any, Callable, Dict

#: A copy as CUPTI names it, in the trace of a card: `MEMCPYHtoD` or `MemcpyH2D`.
_MEMCPY = re.compile(r'memcpy\s*_?(h|d)(?:to|2)(h|d)', re.I)
#: Its bytes: `num_bytes:4096` or `size:4096`.
_BYTES = re.compile(r'\b(?:num_bytes|size|bytes)[:=\s]+(\d+)', re.I)
_NAMES = {'hd': 'to_card', 'dh': 'from_card'}
_ENDS = 'send_device', 'recv_device'
#: Bytes of TensorFlow's dtypes, by their numbers.
_SIZES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 9: 8, 10: 1, 14: 2, 17: 2, 19: 2, 22: 4, 23: 8}
#: What is counted.
NOTHING = dict.fromkeys(['to_card', 'to_card_bytes', 'from_card', 'from_card_bytes'], 0)


def kind(device: str) -> str:
    """`'d'` for a card, `'h'` for the host, by the name of a device."""
    return 'd' if '/device:gpu:' in device.lower() else 'h'


def in_graphs(metadata: Any, kind_of: Callable[[str], str] = kind) -> Dict[str, int]:
    """The copies that the placer has put between a rank's devices, with their bytes in this step.

    Args:
        metadata: a `RunMetadata` of a step with a full trace and with its partition graphs.
        kind_of: as `kind`.

    Returns:
        A dict: `to_card`, `to_card_bytes`, `from_card` and `from_card_bytes`. Copies that did not
        happen in this step, for instance in a branch that was not taken, do not count.
    """
    sizes = {
        (device.device, stats.node_name): {one.slot: _bytes_of(one) for one in stats.output}
        for device in metadata.step_stats.dev_stats
        for stats in device.node_stats
    }
    found = dict(NOTHING)
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if node.op not in ('_Send', '_HostSend'):
                continue
            sender, receiver = [node.attr[name].s.decode() for name in _ENDS]
            name = _NAMES.get(kind_of(sender) + kind_of(receiver))
            source, _, slot = node.input[0].partition(':')
            ran = sizes.get((sender, source))
            if name and ran is not None:
                found[name] += 1
                found[name + '_bytes'] += ran.get(int(slot or 0), 0)
    return found


def in_trace(step_stats: Any) -> Dict[str, int]:
    """The copies that a card did in a step, by its own trace; zeros without a card or a trace.

    Args:
        step_stats: a `StepStats`.

    Returns:
        As `in_graphs`.
    """
    found = dict(NOTHING)
    for device in step_stats.dev_stats:
        # Each copy is on the line of its stream and on this one.
        if not device.device.endswith('memcpy'):
            continue
        for stats in device.node_stats:
            text = '%s %s' % (stats.node_name, stats.timeline_label)
            kind, size = _MEMCPY.search(text), _BYTES.search(text)
            name = kind and _NAMES.get((kind.group(1) + kind.group(2)).lower())
            if name:
                found[name] += 1
                found[name + '_bytes'] += int(size.group(1)) if size else 0
    return found


def _bytes_of(output: Any) -> int:
    """The bytes of an output, by its shape: what was allocated may be shared or larger."""
    tensor, count = output.tensor_description, 1
    for dimension in tensor.shape.dim:
        count *= dimension.size
    return count * _SIZES.get(tensor.dtype, 0)
