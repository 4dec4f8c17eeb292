"""What there is to serve, in order, kept for one revision of the store.

The paths of all skills are asked for once a revision that may have changed them, so that a page of a listing
costs its own length, however long the whole is; of what single folders hold only the last few are kept.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from skillfs.core.model import Changes
from skillfs.core.refs import find_unfit
from skillfs.listing import in_order

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["Listed"]

_MOST_KEPT = 8
_MOST_KEPT_ENTRIES = 100_000

T = TypeVar("T")


class Listed:
    """The skills and files of a filesystem by path; may be used by several threads.

    Args:
        fs: The filesystem.
    """

    def __init__(self, fs: SkillFileSystem) -> None:
        self._fs = fs
        self._lock = threading.Lock()
        self._revision = 0
        self._known = False
        self._orders: list[str] = []
        self._tops: list[str] = []
        self._kept: OrderedDict[tuple[str, str], list[dict[str, Any]]] = OrderedDict()

    def skills_after(self, path: str | None) -> Iterator[str]:
        """Paths of skills, sorted; those behind a path.

        Raises:
            StoreUnavailableError: The store or the index cannot be read now.
        """
        orders = self._now()[0]
        begin = 0 if path is None else bisect_right(orders, in_order(path))
        return (orders[at].replace("\0", "/") for at in range(begin, len(orders)))

    def files_after(self, path: str | None) -> Iterator[dict[str, Any]]:
        """Facts of files, as fsspec tells them, sorted by path; those behind a path.

        Every visible file lies in a skill, so these are the files of the outermost skills, one after another.

        Raises:
            StoreUnavailableError: As in `skills_after`.
        """
        tops = self._now()[1]
        order = None if path is None else in_order(path)
        # The skill that holds the path, or the next one.
        begin = 0 if order is None else max(bisect_right(tops, order) - 1, 0)
        for at in range(begin, len(tops)):
            top = tops[at].replace("\0", "/")
            for info in self._keep("files", top, partial(self._files, top)):
                if order is None or in_order(info["name"]) > order:
                    yield info

    def children_after(self, path: str, name: str | None) -> Iterator[dict[str, Any]]:
        """Facts of what a folder holds, sorted by name; those behind a name.

        Raises:
            SkillFSError: It is no folder that can be seen, or cannot be listed now.
        """
        self._now()
        found = self._keep("folder", path, lambda: self._fs.ls(path, detail=True))
        return (i for i in found if name is None or i["name"].rpartition("/")[2] > name)

    def _files(self, top: str) -> list[dict[str, Any]]:
        # What no reference can spell no URI can, nor anything below it.
        infos = {} if find_unfit(top) else self._fs.find(top, detail=True)
        return sorted(infos.values(), key=lambda info: in_order(info["name"]))

    def _now(self) -> tuple[list[str], list[str]]:
        """Skills and outermost skills, checked as often as any listing is."""
        with self._lock:
            changes = self._fs.changes(self._revision)
            if not self._known or changes.reset or changes.revision != self._revision:
                self._kept.clear()
                if not self._known or _may_move_skills(changes):
                    self._orders = [in_order(skill.path) for skill in self._fs.skills()]
                    self._tops = _outermost(self._orders)
                    self._known = True
                self._revision = changes.revision
            return self._orders, self._tops

    def _keep(self, what: str, path: str, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        key = (what, path)
        with self._lock:
            revision = self._revision
            found = self._kept.get(key)
        if found is not None:
            return found
        found = make()
        with self._lock:
            if revision == self._revision and len(found) <= _MOST_KEPT_ENTRIES:
                self._kept[key] = found
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return found


def _may_move_skills(changes: Changes) -> bool:
    """Whether skills may have come, gone or moved, by the folders and `SKILL.md` among the changes."""
    return changes.reset or any(
        item.kind != "modified"
        and (item.path.rpartition("/")[2] == "SKILL.md" or (item.hash is None and item.old_hash is None))
        for item in changes.items
    )


def _outermost(orders: list[str]) -> list[str]:
    found: list[str] = []
    for order in orders:
        if not found or not (found[-1] == "" or order.startswith(f"{found[-1]}\0")):
            found.append(order)
    return found
