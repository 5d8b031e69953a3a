# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a program for the kernel accepts, by an interpreter of the instructions that are used."""

import ipaddress
import struct

import pytest

from keras_parallax.engine.job import packet_filter


def accepts(instructions, source):
    """Runs a program on a packet from an address, as the kernel's documentation defines it."""
    address = ipaddress.ip_address(source)
    if address.version == 4:
        header = bytes([0x45]) + bytes(11) + address.packed + bytes(4)
    else:
        header = bytes([0x60]) + bytes(7) + address.packed + bytes(16)
    accumulator, place = 0, 0
    while True:
        code, if_true, if_false, operand = instructions[place]
        place += 1
        offset = operand - 0xFFF00000
        if code == 0x20:
            accumulator = struct.unpack('!I', header[offset : offset + 4])[0]
        elif code == 0x30:
            accumulator = header[offset]
        elif code == 0x54:
            accumulator &= operand
        elif code == 0x15:
            place += if_true if accumulator == operand else if_false
        elif code == 0x05:
            place += operand
        elif code == 0x06:
            return operand > 0
        else:
            raise AssertionError(code)


def program(*networks):
    return packet_filter.program([ipaddress.ip_network(network) for network in networks])


@pytest.mark.parametrize(
    'networks, inside, outside',
    [
        (['10.0.0.1'], ['10.0.0.1'], ['10.0.0.2', '11.0.0.1', '::ffff:10.0.0.1', '::a00:1']),
        (['10.1.0.0/16', '10.9.9.9'], ['10.1.7.7', '10.9.9.9'], ['10.2.0.1', '10.9.9.8']),
        (['10.0.0.0/12'], ['10.15.255.255'], ['10.16.0.0']),
        (['fd00::2'], ['fd00::2'], ['fd00::3', 'fd00:0:1::2', 'fd01::2', '0.0.0.2', '10.0.0.1']),
        (['fd00:1::/40', '10.0.0.1'], ['fd00:1:ff::9', '10.0.0.1'], ['fd00:2::9', '10.0.0.3']),
        (['::1', '127.0.0.0/8'], ['::1', '127.3.2.1'], ['::2', '128.0.0.1']),
        (['0.0.0.0/0'], ['1.2.3.4'], ['fd00::2']),
        ([], [], ['1.2.3.4', '::1']),
    ],
)
def test_a_program_accepts_what_is_in_its_networks(networks, inside, outside):
    instructions = program(*networks)
    assert [source for source in inside + outside if accepts(instructions, source)] == inside


def test_a_program_of_many_networks_accepts_the_first_and_the_last_and_nothing_between():
    four = ['10.%d.%d.1' % (high, low) for high in range(4) for low in range(100)]
    six = ['fd00:%x::1' % number for number in range(400)]
    instructions = program(*four, *six)
    for source in four[0], four[-1], six[0], six[-1]:
        assert accepts(instructions, source)
    for source in '10.0.0.2', '10.4.0.1', 'fd00:190::1', 'fd00::2':
        assert not accepts(instructions, source)


def test_neighbouring_networks_become_one():
    assert program('10.0.0.0/9', '10.128.0.0/9') == program('10.0.0.0/8')


def test_an_instruction_takes_eight_bytes():
    instructions = program('10.0.0.1')
    assert len(packet_filter.packed(instructions)) == 8 * len(instructions)
