"""Where a store may differ from its index: what events leave behind until somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from skillfs.sync.reconcile import parents_of

__all__ = ["Marks"]


@dataclass(slots=True)
class Marks:
    """Places to look at. An event says where, never what happened there.

    Attributes:
        folders: Paths of folders to list again.
        trees: Paths of folders below which everything is to be compared.
        moves: New path to old path of what the kernel said was renamed; to be confirmed by what lies there.
        doubt: Why the whole store has to be compared; None where it need not.
        arrivals: Whether something was moved to one of the folders.
    """

    folders: set[str] = field(default_factory=set)
    trees: set[str] = field(default_factory=set)
    moves: dict[str, str] = field(default_factory=dict)
    doubt: str | None = None
    arrivals: bool = False

    def __bool__(self) -> bool:
        return bool(self.folders or self.trees or self.doubt)

    def moved(self, old: str, new: str) -> None:
        """Remember that the kernel moved something, with all it holds, after all moves told before.

        Args:
            old: Its path until then.
            new: Its path from then on.
        """
        origin = self._origin(old)
        self.moves.pop(old, None)
        self.moves.pop(new, None)  # what it replaced
        inside = [path for path in self.moves if path.startswith(f"{old}/")]
        for path in inside:
            self.moves[new + path[len(old) :]] = self.moves.pop(path)
        if origin != new:
            self.moves[new] = origin

    def _origin(self, path: str) -> str:
        """The path that something had before all the moves."""
        for above in (path, *parents_of(path)):
            if above in self.moves:
                return self.moves[above] + path[len(above) :]
        return path

    def add(self, later: Marks) -> None:
        """Take in the marks of what happened after these."""
        self.folders |= later.folders
        self.trees |= later.trees
        for new, old in later.moves.items():
            self.moved(old, new)
        self.doubt = self.doubt or later.doubt
        self.arrivals = self.arrivals or later.arrivals

    def tops(self) -> list[str]:
        """The trees that lie in no other."""
        return [path for path in sorted(self.trees) if not _is_in(path, self.trees)]


def _is_in(path: str, trees: Iterable[str]) -> bool:
    return bool(path) and ("" in trees or any(above in trees for above in parents_of(path)))
