"""Tools in the shape that file tools of agents have: `read_file` and `list_files`."""

from __future__ import annotations

from skillfs.tools.registry import Tool

__all__ = ["FILE_TOOLS"]

FILE_TOOLS: tuple[Tool, ...] = ()
