"""An interpreter of classic BPF, as far as seccomp filters use it (Linux's seccomp_filter.rst)."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def result(code: bytes, machine: int, number: int, arguments: Sequence[int] = ()) -> int:
    """What a filter returns for a system call: its ``number``, under the AUDIT_ARCH ``machine``."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, machine, 0, *padded)
    program = [struct.unpack_from("=HBBI", code, place) for place in range(0, len(code), 8)]
    place = value = 0
    while True:
        operation, if_true, if_false, constant = program[place]
        place += 1
        match operation:
            case 0x20:  # load a word
                (value,) = struct.unpack_from("=I", data, constant)
            case 0x54:
                value &= constant
            case 0x15:
                place += if_true if value == constant else if_false
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"no seccomp filter of ours has operation {operation:#x}")
