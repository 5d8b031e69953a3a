# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Programs for the Linux kernel that accept packets from given networks only. Pure functions.

The programs are classic BPF; "Linux Socket Filtering" in the kernel's documentation describes the
instructions. The kernel runs a program on every packet that arrives at a socket, and drops the
packet if the program returns 0.
"""

import ipaddress
import struct
from typing import Any, List, NamedTuple, Sequence, Union

#: A network of either family. A single address is a network of one.
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

#: Offsets that begin here count from the IP header (SKF_NET_OFF).
_IP_HEADER = 0xFFF00000
_IPV4_SOURCE, _IPV6_SOURCE = _IP_HEADER + 12, _IP_HEADER + 8

_LOAD_WORD, _LOAD_BYTE, _AND, _JUMP_IF_EQUAL, _JUMP, _RETURN = 0x20, 0x30, 0x54, 0x15, 0x05, 0x06
_ALL_BITS = 0xFFFFFFFF


class Instruction(NamedTuple):
    """An instruction: `struct sock_filter` of the kernel."""

    code: int
    if_true: int
    if_false: int
    operand: int


_ACCEPT, _DROP = Instruction(_RETURN, 0, 0, _ALL_BITS), Instruction(_RETURN, 0, 0, 0)


def program(networks: Sequence[Network]) -> List[Instruction]:
    """A program that accepts packets whose source address is in one of the networks.

    Args:
        networks: IPv4 and IPv6 networks. Networks that overlap or touch are merged.

    Example:
        ```python
        >>> import ipaddress
        >>> len(program([ipaddress.ip_network('10.0.0.0/8')]))
        12
        ```
    """
    of_four = _accept_any(_merged(networks, 4), [_IPV4_SOURCE])
    of_six = _accept_any(_merged(networks, 6), [_IPV6_SOURCE + 4 * word for word in range(4)])
    return [
        Instruction(_LOAD_BYTE, 0, 0, _IP_HEADER),
        Instruction(_AND, 0, 0, 0xF0),
        # A conditional jump skips at most 255 instructions, `_JUMP` any number.
        Instruction(_JUMP_IF_EQUAL, 0, 1, 0x40),
        Instruction(_JUMP, 0, 0, 2 + len(of_six)),
        Instruction(_JUMP_IF_EQUAL, 1, 0, 0x60),
        _DROP,
        *of_six,
        *of_four,
    ]


def _merged(networks: Sequence[Network], version: int) -> List[Network]:
    family: Any = [network for network in networks if network.version == version]
    return list(ipaddress.collapse_addresses(family))


def _accept_any(networks: Sequence[Network], offsets: Sequence[int]) -> List[Instruction]:
    """Accepts a packet whose source address is in a network; its words are at these offsets."""
    instructions: List[Instruction] = []
    for network in networks:
        compared = [
            (offset, value, mask)
            for offset, value, mask in zip(
                offsets, _words(network.network_address), _words(network.netmask)
            )
            if mask
        ]
        block: List[Instruction] = [_ACCEPT]
        for offset, value, mask in reversed(compared):
            test = Instruction(_JUMP_IF_EQUAL, 0, len(block), value)
            load = Instruction(_LOAD_WORD, 0, 0, offset)
            masked = [Instruction(_AND, 0, 0, mask)] if mask != _ALL_BITS else []
            block = [load, *masked, test, *block]
        instructions += block
    return [*instructions, _DROP]


def _words(address: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]) -> Sequence[int]:
    packed = address.packed
    return struct.unpack('!%dI' % (len(packed) // 4), packed)


def packed(instructions: Sequence[Instruction]) -> bytes:
    """A program as the kernel takes it: an array of `struct sock_filter`, 8 bytes each."""
    return b''.join(struct.pack('HBBI', *instruction) for instruction in instructions)
