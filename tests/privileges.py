"""Permissions hold for root, too, where a test wants them to."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_VERSION_3 = 0x20080522
_OVERRIDING = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """The calling thread gives up what lets root read every file, for a while."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    before = data[0]
    data[0] = before & ~_OVERRIDING
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        data[0] = before
        assert libc.capset(header, data) == 0
