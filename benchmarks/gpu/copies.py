"""Counts the copies between host and card in what TensorFlow notes of a step."""

import re
from typing import Any, Dict

#: A copy as CUPTI names it, in the trace of a card: `MEMCPYHtoD` or `MemcpyH2D`.
_MEMCPY = re.compile(r'memcpy\s*_?(h|d)(?:to|2)(h|d)', re.I)
#: Its bytes: `num_bytes:4096` or `size:4096`.
_BYTES = re.compile(r'\b(?:num_bytes|size|bytes)[:=\s]+(\d+)', re.I)
_NAMES = {'hd': 'to_card', 'dh': 'from_card'}


def in_graphs(metadata: Any) -> Dict[str, int]:
    """The copies that the placer has put between a rank's devices, with their bytes in this step.

    Args:
        metadata: a `RunMetadata` of a step with a full trace and with its partition graphs.

    Returns:
        A dict: `to_card`, `to_card_bytes`, `from_card` and `from_card_bytes`. Copies that did not
        happen in this step, for instance in a branch that was not taken, do not count.
    """
    receivers = {}
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if node.op in ('_Recv', '_HostRecv'):
                sender = _kind(node.attr['send_device'].s.decode())
                receiver = _kind(node.attr['recv_device'].s.decode())
                if sender + receiver in _NAMES:
                    receivers[node.name] = _NAMES[sender + receiver]
    found = dict.fromkeys(['to_card', 'to_card_bytes', 'from_card', 'from_card_bytes'], 0)
    for device in metadata.step_stats.dev_stats:
        for stats in device.node_stats:
            # A card's own lines name kernels and copies by the operation that asks for them.
            if stats.node_name in receivers and 'stream' not in device.device:
                name = receivers[stats.node_name]
                found[name] += 1
                found[name + '_bytes'] += sum(map(_bytes_of, stats.output))
    return found


def in_trace(step_stats: Any) -> Dict[str, int]:
    """The copies that a card did in a step, by its own trace; zeros without a card or a trace.

    Args:
        step_stats: a `StepStats`.

    Returns:
        As `in_graphs`.
    """
    found = dict.fromkeys(['to_card', 'to_card_bytes', 'from_card', 'from_card_bytes'], 0)
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


def _kind(device: str) -> str:
    """`'d'` for a card, `'h'` for the host."""
    return 'd' if '/device:gpu:' in device.lower() or '/gpu:' in device.lower() else 'h'


def _bytes_of(output: Any) -> int:
    return output.tensor_description.allocation_description.requested_bytes
