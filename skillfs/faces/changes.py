"""How changes are shown, and how the stores are watched from which they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skillfs.errors import quoted
from skillfs.faces import output

if TYPE_CHECKING:
    from skillfs.core.model import Change, Changes

__all__ = ["ANEW", "States", "change_lines", "changes_dict", "tell_changes"]

ANEW = "take everything as new"

_COLOURS = {"added": "green", "modified": "yellow", "moved": "cyan", "removed": "red"}


def changes_dict(changes: Changes, roots: Sequence[str]) -> dict[str, Any]:
    """Changes as JSON can hold them."""
    items = [output.as_dict(item, roots) for item in changes.items]
    return {"revision": changes.revision, "reset": changes.reset, "items": items}


def change_lines(changes: Changes, roots: Sequence[str]) -> str:
    """Changes as text, one a line."""
    return "".join(_line(item, roots) for item in changes.items)


def _line(change: Change, roots: Sequence[str]) -> str:
    moved = "" if change.old_path is None else f"{output.path(change.old_path, roots)} -> "
    kind = output.styled(f"{change.kind:<8}", _COLOURS[change.kind])
    return f"{kind}  {moved}{output.path(change.path, roots)}\n"


def tell_changes(changes: Changes, roots: Sequence[str], *, as_json: bool) -> None:
    """Write the changes of one revision now: lines, or a document on one line where there are any."""
    if not as_json:
        output.write(change_lines(changes, roots))
    elif changes.items or changes.reset:
        output.write_json(changes_dict(changes, roots), line=True)
    if changes.reset:
        output.note(f"what changed until revision {changes.revision} is not known: {ANEW}")
    output.flush()


class States:
    """Tells how stores are watched, each time that changes."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str | None, str | None]] = {}

    def tell(self, status: dict[str, Any]) -> None:
        """Tell what is new, on standard error.

        Args:
            status: Of a `ChangeFeed`.
        """
        for store in status.get("mounts", [{**status, "name": ""}]):
            name, watch, reason = store["name"], store["watch"], store["watch_reason"]
            state = (watch, reason, error := store["check_error"])
            if state == self._told.get(name) or (watch == "starting" and reason is None):
                continue
            self._told[name] = state
            mount = f"mount {quoted(name)}: " if name else ""
            if watch == "unavailable" or error is not None:
                output.complain("unavailable", mount + (error or reason or ""))
                continue
            folders = store["watched_folders"]
            count = f" {output.counted(folders, 'folder')}" if watch == "watching" and folders else ""
            output.note(f"{mount}{watch}{count}" + ("" if reason is None else f": {reason}"))
