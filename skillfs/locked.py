"""What a lock names of one store: which bytes a file must have, and whose word is taken for a skill.

What an index knows of a skill it has from the first bytes of the `SKILL.md`, and it keeps their SHA-256. It
is told only where the lock names these very bytes. No signature is believed: what a file held when it was
looked at need not be what it holds when it is hashed, and a store may show both as one version. Of a file
that is larger the whole is read for it once in a process, and has to begin with the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.core.lock import Lock, LockedFile
from skillfs.core.refs import is_below
from skillfs.index.catalog import Catalog
from skillfs.index.rows import ROOT

__all__ = ["LockedStore", "MainFile", "locked_store", "names_of_skills"]

MOST_COMPUTED = 100_000
"""Large files of which it is remembered what they hold."""

_SKILL_MD = "SKILL.md"

_MAIN_FILES = (
    "SELECT k.key, e.key, e.uuid, e.signature, e.size, k.head FROM skill k "
    "JOIN entry e ON e.parent=k.key AND e.name='SKILL.md'"
)
_SOME = " WHERE k.key IN (SELECT value FROM json_each(?))"
_FOLDERS_OF_NAME = "SELECT k.key FROM skill k JOIN entry e ON e.key=k.key WHERE e.name=?"


class MainFile(NamedTuple):
    """The `SKILL.md` of a skill, as an index has it.

    Attributes:
        skill: Key of the skill folder's row.
        key: Key of its own row.
        uuid: 16 bytes.
        signature: Of the version that the index is about.
        size: Bytes; None where a listing does not tell.
        head: SHA-256 of the first bytes, `HEAD_LIMIT` at most, from which all else is known; None where they
            could not be read.
    """

    skill: int
    key: int
    uuid: bytes
    signature: bytes
    size: int | None
    head: bytes | None


class LockedStore:
    """What a lock names of one store.

    Args:
        files: The files by their store paths.

    Attributes:
        files: Likewise.
        settled: Stamp of the index for which all large files that matter were read.
    """

    def __init__(self, files: Mapping[str, LockedFile]) -> None:
        self.files = files
        self._computed: dict[tuple[int, bytes], tuple[bytes, bytes]] = {}
        self._has_large = any(
            file.size > HEAD_LIMIT and path.rpartition("/")[2] == _SKILL_MD for path, file in files.items()
        )
        self.settled: int | None = None

    def main_files(self, catalog: Catalog, keys: Iterable[int] | None = None) -> list[MainFile]:
        """The `SKILL.md` of every skill, or of some, by the keys of their folders."""
        if keys is None:
            rows = catalog.read(_MAIN_FILES)
        else:
            rows = catalog.read(_MAIN_FILES + _SOME, (json.dumps(list(keys)),))
        return [MainFile(*row) for row in rows]

    def main_file_at(self, skill_path: str) -> LockedFile | None:
        """What the lock says of the `SKILL.md` of a skill."""
        return self.files.get(f"{skill_path}/{_SKILL_MD}" if skill_path else _SKILL_MD)

    def remember(self, key: int, signature: bytes, head: bytes, digest: bytes) -> None:
        """Remember the SHA-256 of the first bytes and of the whole of a version of a large file."""
        if len(self._computed) >= MOST_COMPUTED:
            self._computed.clear()
        self._computed[key, signature] = head, digest

    def unknown(self, catalog: Catalog) -> list[MainFile]:
        """Every large `SKILL.md` that may be as the lock names it, of which that is not known."""
        if not self._has_large:
            return []
        with catalog.database.snapshot():
            mains = self._maybe(catalog, None)
        return [main for main, locked in mains if self._is_vouched(main, locked) is None]

    def _is_vouched(self, main: MainFile, locked: LockedFile) -> bool | None:
        """Whether what is known of a skill comes from locked bytes; None where that is not known."""
        if main.head is None:
            return False
        if locked.size <= HEAD_LIMIT:
            return main.head == locked.digest
        computed = self._computed.get((main.key, main.signature))
        return None if computed is None else computed == (main.head, locked.digest)

    def vouched(
        self, catalog: Catalog, keys: Iterable[int] | None = None, *, maybe: bool = False
    ) -> set[int]:
        """Keys of the skills, of all or of some, whose `SKILL.md` is as the lock names it.

        What else is asked of the index is to be asked in the same moment.

        Args:
            catalog: The index.
            keys: Keys of their folders; None for all.
            maybe: Whether those count, too, of which that is not known.
        """
        found = set()
        for main, locked in self._maybe(catalog, keys):
            is_vouched = self._is_vouched(main, locked)
            if is_vouched or (maybe and is_vouched is None):
                found.add(main.skill)
        return found

    def _maybe(self, catalog: Catalog, keys: Iterable[int] | None) -> list[tuple[MainFile, LockedFile]]:
        """Every `SKILL.md` that the lock names, but for those of another size."""
        mains = self.main_files(catalog, keys)
        paths = {ROOT: "", **catalog.with_paths([main.skill for main in mains])}
        found = []
        for main in mains:
            path = paths.get(main.skill)
            locked = None if path is None else self.main_file_at(path)
            if locked is not None and main.size in (None, locked.size):
                found.append((main, locked))
        return found


def locked_store(lock: Lock, mount: str = "") -> LockedStore:
    """What a lock names of the store that is mounted under a name; empty where it is alone."""
    if not mount:
        return LockedStore(lock.files())
    start = len(mount) + 1
    return LockedStore({p[start:]: file for p, file in lock.files().items() if is_below(p, mount)})


def names_of_skills(catalog: Catalog, name: str, locked: LockedStore | None) -> list[int]:
    """Keys of the skills that answer to a name.

    Under a lock these are the ones that it vouches for, or may vouch for: what they are called is told where
    that is known. Where there is none, those whose folder has the name.
    """
    if locked is None:
        return catalog.skill_keys(name)
    with catalog.database.snapshot():
        if maybe := locked.vouched(catalog, catalog.skill_keys(name), maybe=True):
            return sorted(maybe)
        folders = [key for (key,) in catalog.read(_FOLDERS_OF_NAME, (name,))]
        return sorted(set(folders) - locked.vouched(catalog, folders))
