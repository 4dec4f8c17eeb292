"""Computes for every file what is otherwise computed at its first reading."""

from __future__ import annotations

from collections.abc import Callable

from skillfs.sync.engine import Engine

__all__ = ["index_all"]


def index_all(engine: Engine, on_progress: Callable[[int, int], None] | None) -> int:
    """Text facts, MD5 and SHA-256 of every file that lacks one of them; returns how many files could be read."""
    raise NotImplementedError
