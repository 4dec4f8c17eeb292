"""Paths of universal_pathlib over a skill filesystem, which finds this class by its entry point."""

from __future__ import annotations

from fsspec import get_filesystem_class
from upath import UPath

__all__ = ["SkillPath"]

# Where fsspec has loaded it, paths are parsed as the filesystem does; else as for any, with a warning.
get_filesystem_class("skill")


class SkillPath(UPath):
    """A path of a `SkillFileSystem`, with the methods of `pathlib.Path`."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """The path as the filesystem takes it; empty for the root."""
        path = super().path
        return "" if path == "." else path

    def __str__(self) -> str:
        text = super().__str__()
        return "skill://" if text == "skill://." else text
