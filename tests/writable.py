"""A filesystem that can be written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillfs import SkillFileSystem


def open_writable(store: Path | str | Mapping[str, Any], **options: Any) -> SkillFileSystem:
    """Open a store, or several, for writing, with an index in memory."""
    return SkillFileSystem(store, **{"index": ":memory:", "writable": True, **options})
