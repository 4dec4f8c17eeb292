"""What became of every entry: the pure comparison of what the index holds with what the store shows.

A function of values: no I/O, no clock, no order. Start-up, an explicit sync, a re-check at a read and, later,
a watcher all end here, so identities follow one set of rules:

1. A path that is there before and after, as the same class of thing, keeps its entry, whatever its inode or
   content became: an editor's atomic save, a swap of two names, a checkout.
2. A vanished and a new file are one moved file if inode and content agree. The inode alone says nothing: ext4
   hands a freed one to the next file.
3. Failing that, if their content is the only one of its kind: not empty, vanished once, new once, and held by
   no entry that stayed.
4. A vanished and a new folder are one moved folder if their inode agrees and something of what they hold
   moved along (or both hold nothing), failing that if more of its children moved there under their names
   than anywhere else.
5. Inside a moved folder, a vanished and a new folder of the same name are one, and so are a vanished and a
   new file of the same name and content.

What was moved through the filesystem itself needs no guessing and comes before all of these.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from skillfs.core.digest import xxh3

__all__ = ["Plan", "State", "reconcile"]

EMPTY_CONTENT = xxh3(b"")


class State(NamedTuple):
    """What one side knows of an entry.

    Attributes:
        folder: Whether it is a folder.
        inode: What the store calls the thing behind the name; empty where it has no such notion.
        content: XXH3-128 of the bytes; None for folders and for what could not be read.
    """

    folder: bool
    inode: bytes
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome.

    Each known path is in `kept`, `moved` (as old) or `removed`, each seen one in `kept`, `moved` (as new) or
    `added`.

    Attributes:
        kept: Paths whose entry stays where it is.
        moved: New path to old path.
        added: Paths of new entries.
        removed: Paths of entries that are gone.
    """

    kept: tuple[str, ...]
    moved: Mapping[str, str]
    added: tuple[str, ...]
    removed: tuple[str, ...]


def reconcile(
    known: Mapping[str, State],
    seen: Mapping[str, State],
    held: Container[bytes] = frozenset(),
    moves: Mapping[str, str] | None = None,
) -> Plan:
    """Decide what each known entry became.

    Both sides may leave out entries that are the same on both; `held` then stands for them.

    Args:
        known: Path to state, as the index has it.
        seen: Path to state, as the store shows it.
        held: Contents of entries that are on neither side because nothing happened to them.
        moves: New path to old path of files and folders that are known to have been moved; all that a folder
            holds moved along. Where the old path is there again, or the new one is not, nothing moved.
    """
    moved = _told(known, seen, moves) if moves else {}
    gone = set(moved.values())
    kept = [
        p
        for p, state in seen.items()
        if p in known and known[p].folder == state.folder and p not in moved and p not in gone
    ]
    stays = set(kept)
    vanished = sorted(p for p in known if p not in stays and p not in gone)
    new = sorted(p for p in seen if p not in stays and p not in moved)
    if vanished and new:
        kept_contents = {c for p in kept if (c := seen[p].content) is not None}
        _pair_files(known, seen, vanished, new, kept_contents, held, moved)
        _pair_folders(known, seen, vanished, new, moved)
        _pair_inside_moved_folders(known, seen, vanished, new, moved)
    gone = set(moved.values())
    return Plan(
        kept=tuple(kept),
        moved=moved,
        added=tuple(p for p in new if p not in moved),
        removed=tuple(p for p in vanished if p not in gone),
    )


def _told(known: Mapping[str, State], seen: Mapping[str, State], moves: Mapping[str, str]) -> dict[str, str]:
    targets = {old: new for new, old in moves.items()}
    found = []
    for path in known:
        for below, folder in enumerate((path, *parents_of(path))):
            if folder in targets:
                found.append((below, path, targets[folder] + path[len(folder) :]))
                break  # what a folder holds may have left it by a move of its own
    moved: dict[str, str] = {}
    # What was itself moved to a path lies there, rather than what moved along with the folder above.
    for _, path, to in sorted(found):
        if to in seen and path not in seen and to not in moved and seen[to].folder == known[path].folder:
            moved[to] = path
    return moved


def parent_of(path: str) -> str:
    """The path of the folder that holds this one."""
    return path.rpartition("/")[0]


def parents_of(path: str) -> list[str]:
    """The paths of the folders above, the nearest first, without the root."""
    found = []
    while path := parent_of(path):
        found.append(path)
    return found


def name_of(path: str) -> str:
    """The last component of a path."""
    return path.rpartition("/")[2]


def _pair_files(
    known: Mapping[str, State],
    seen: Mapping[str, State],
    vanished: list[str],
    new: list[str],
    kept_contents: set[bytes],
    held: Container[bytes],
    moved: dict[str, str],
) -> None:
    old_by_inode: defaultdict[tuple[bytes, bytes], list[str]] = defaultdict(list)
    old_by_content: defaultdict[bytes, list[str]] = defaultdict(list)
    for path in vanished:
        state = known[path]
        if not state.folder and state.content is not None:
            old_by_content[state.content].append(path)
            if state.inode:
                old_by_inode[state.inode, state.content].append(path)
    new_files = [p for p in new if not seen[p].folder and seen[p].content is not None]
    new_by_inode: defaultdict[tuple[bytes, bytes], list[str]] = defaultdict(list)
    for path in new_files:
        new_by_inode[seen[path].inode, seen[path].content or b""].append(path)

    taken: set[str] = set()
    for key, olds in old_by_inode.items():
        # Several names of one inode are hard links: a name that stayed the same finds its like first.
        news = new_by_inode.get(key, [])
        by_name = {name_of(p): p for p in reversed(news)}
        for old in list(olds):
            match = by_name.get(name_of(old))
            if match is not None and match not in moved:
                moved[match] = old
                taken.add(old)
        rest = [p for p in news if p not in moved]
        for old, match in zip([p for p in olds if p not in taken], rest, strict=False):
            moved[match] = old
            taken.add(old)

    new_by_content: defaultdict[bytes, list[str]] = defaultdict(list)
    for path in new_files:
        new_by_content[seen[path].content or b""].append(path)
    for content, news in new_by_content.items():
        olds = old_by_content.get(content, [])
        if len(news) != 1 or len(olds) != 1 or news[0] in moved or olds[0] in taken:
            continue
        if content == EMPTY_CONTENT or content in kept_contents or content in held:
            continue
        moved[news[0]] = olds[0]


def _pair_folders(
    known: Mapping[str, State],
    seen: Mapping[str, State],
    vanished: list[str],
    new: list[str],
    moved: dict[str, str],
) -> None:
    old_folders = {p for p in vanished if known[p].folder}
    new_folders = {p for p in new if seen[p].folder}
    if not old_folders or not new_folders:
        return
    votes: Counter[tuple[str, str]] = Counter()

    def vote(old: str, match: str) -> None:
        before, after = pair = (parent_of(old), parent_of(match))
        if before not in old_folders or after not in new_folders:
            return
        same_folder = known[before].inode and known[before].inode == seen[after].inode
        if same_folder or name_of(old) == name_of(match):
            votes[pair] += 1

    for match, old in moved.items():
        vote(old, match)
    new_by_inode = {seen[p].inode: p for p in sorted(new_folders, reverse=True) if seen[p].inode}
    childless = _childless(old_folders, vanished), _childless(new_folders, new)

    def candidates(folders: Iterable[str]) -> list[tuple[bool, int, str, str]]:
        wanted = set(folders)
        found = [
            (known[old].inode != seen[match].inode or not seen[match].inode, -count, old, match)
            for (old, match), count in votes.items()
            if old in wanted
        ]
        for old in wanted & childless[0]:
            twin = new_by_inode.get(known[old].inode)
            if twin is not None and twin in childless[1]:
                found.append((False, 0, old, twin))
        return sorted(found)

    # From the deepest up: a folder of folders is recognised by the folders that moved inside it.
    by_depth: defaultdict[int, list[str]] = defaultdict(list)
    for path in old_folders:
        by_depth[path.count("/")].append(path)
    taken: set[str] = set()
    for depth in sorted(by_depth, reverse=True):
        for _, _, old, match in candidates(by_depth[depth]):
            if old not in taken and match not in moved:
                moved[match] = old
                taken.add(old)
                vote(old, match)


def _childless(folders: set[str], paths: Iterable[str]) -> set[str]:
    return folders - {parent_of(p) for p in paths}


def _pair_inside_moved_folders(
    known: Mapping[str, State],
    seen: Mapping[str, State],
    vanished: list[str],
    new: list[str],
    moved: dict[str, str],
) -> None:
    missing = set(vanished).difference(moved.values())
    # A path sorts before everything below it: a folder that is recognised here carries on what it holds.
    for path in new:
        old_parent = moved.get(parent_of(path))
        if path in moved or old_parent is None:
            continue
        old = f"{old_parent}/{name_of(path)}"
        if old not in missing or known[old].folder != seen[path].folder:
            continue
        if seen[path].folder or (seen[path].content is not None and seen[path].content == known[old].content):
            moved[path] = old
            missing.discard(old)
