"""Permissions that hold for root, too: the right to pass over them is given up for a while."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_VERSION_3 = 0x20080522
_CAPGET, _CAPSET = 125, 126
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def not_writable(folder: Path) -> Iterator[None]:
    """``folder`` cannot be written to within, whoever runs the tests (this thread alone)."""
    before = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        with without_privileges():
            yield
    finally:
        folder.chmod(before)


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """The modes of files and folders hold within, whoever runs the tests (this thread, and those that it starts)."""
    kept = _read_capabilities()
    effective, *others = kept
    _set_capabilities((effective & ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH), *others))
    try:
        yield
    finally:
        _set_capabilities(kept)


def _read_capabilities() -> tuple[int, ...]:
    """(effective, permitted, inheritable) of this thread, and the same of the capabilities from 32 on."""
    data = ctypes.create_string_buffer(24)
    _call(_CAPGET, data)
    return struct.unpack("6I", data.raw)


def _set_capabilities(values: tuple[int, ...]) -> None:
    _call(_CAPSET, ctypes.create_string_buffer(struct.pack("6I", *values), 24))


def _call(number: int, data: ctypes.Array[ctypes.c_char]) -> None:
    header = ctypes.create_string_buffer(struct.pack("II", _VERSION_3, 0), 8)
    if _libc.syscall(number, header, data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
