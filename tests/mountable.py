"""Whether this machine can serve mount points: where it cannot, tests of them are left out, but not in CI."""

from __future__ import annotations

import os

import pytest

from skillfs.errors import StoreUnavailableError
from skillfs.fuse.library import check_library

__all__ = ["can_mount", "needs_mount_points"]


def _reason() -> str | None:
    try:
        check_library()
    except StoreUnavailableError as error:
        return error.message
    return None


can_mount = _reason() is None or bool(os.environ.get("CI"))

needs_mount_points = pytest.mark.skipif(not can_mount, reason=_reason() or "there are mount points here")
"""In CI such tests run and fail: what they need is installed there."""
