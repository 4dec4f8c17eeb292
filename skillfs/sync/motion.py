"""What is on the move: a pure notion of which folders a look may not split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from skillfs.sync.reconcile import parent_of, parents_of

__all__ = ["Motion", "in_motion"]


@dataclass(frozen=True, slots=True)
class Motion:
    """Places between which things are moved.

    Attributes:
        folders: The folders that something left or came to.
        things: The old and the new paths of what was moved.
    """

    folders: frozenset[str]
    things: frozenset[str]

    def __contains__(self, path: str) -> bool:
        things = self.things
        return path in self.folders or path in things or any(above in things for above in parents_of(path))


def in_motion(moves: Mapping[str, str], later: Mapping[str, str]) -> Motion:
    """What cannot be taken in while something is moved: where that is, and all that is tied to it by moves.

    A file that was moved from one folder to another is seen in both, or in none, by whoever lists one of them
    before the move and the other after it. And if one of two folders waits, so has the other.

    Args:
        moves: New path to old path of what was moved before.
        later: The same of what was moved meanwhile.
    """
    pairs = [*moves.items(), *later.items()]
    tied: defaultdict[str, set[str]] = defaultdict(set)
    for new, old in pairs:
        tied[parent_of(new)].add(parent_of(old))
        tied[parent_of(old)].add(parent_of(new))
    pending = [parent_of(path) for pair in later.items() for path in pair]
    folders: set[str] = set()
    while pending:
        folder = pending.pop()
        if folder not in folders:
            folders.add(folder)
            pending.extend(tied[folder])
    things = {path for pair in pairs if parent_of(pair[0]) in folders for path in pair}
    return Motion(frozenset(folders), frozenset(things))
