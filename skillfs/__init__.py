"""One filesystem over agent skill folders."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillfs.core.drawing import Tree, TreeNode
    from skillfs.core.ignore import DEFAULT_IGNORE
    from skillfs.core.lock import (
        Lock,
        LockedFile,
        LockedSkill,
        Verification,
        VerifiedFile,
        VerifiedSkill,
    )
    from skillfs.core.model import (
        Change,
        Changes,
        Difference,
        Differences,
        Entry,
        FileDigest,
        Kind,
        Problem,
        Skill,
        Snapshot,
    )
    from skillfs.core.outline import Outline, Section
    from skillfs.core.search import Passage, SearchHit, SearchResults
    from skillfs.core.versions import SkillVersions, Version
    from skillfs.core.wire import Content, Lines
    from skillfs.errors import (
        AlreadyExistsError,
        ChangedError,
        IntegrityError,
        InvalidArgumentError,
        IsFileError,
        IsFolderError,
        NotFoundError,
        NotIndexedError,
        NotTextError,
        ReadOnlyError,
        SkillFSError,
        StoreUnavailableError,
        TooLargeError,
        UnreadableError,
    )
    from skillfs.feed import ChangeFeed
    from skillfs.filesystem import SkillFileSystem
    from skillfs.history.locking import read_lock, write_lock
    from skillfs.history.snapshots import Snapshots
    from skillfs.index.database import IndexWarning

# Loaded at first use: the command line and a program that only catches errors need few of them.
_HOMES = {
    "core.drawing": ("Tree", "TreeNode"),
    "core.ignore": ("DEFAULT_IGNORE",),
    "core.lock": (*("Lock", "LockedFile", "LockedSkill", "Verification", "VerifiedFile", "VerifiedSkill"),),
    "core.model": (
        *("Change", "Changes", "Difference", "Differences", "Entry", "FileDigest", "Kind", "Problem"),
        *("Skill", "Snapshot"),
    ),
    "core.outline": ("Outline", "Section"),
    "core.search": ("Passage", "SearchHit", "SearchResults"),
    "core.versions": ("SkillVersions", "Version"),
    "core.wire": ("Content", "Lines"),
    "errors": (
        *("AlreadyExistsError",),
        *("ChangedError", "IntegrityError", "InvalidArgumentError", "IsFileError", "IsFolderError"),
        *("NotFoundError", "NotIndexedError", "NotTextError", "ReadOnlyError", "SkillFSError"),
        *("StoreUnavailableError", "TooLargeError", "UnreadableError"),
    ),
    "feed": ("ChangeFeed",),
    "filesystem": ("SkillFileSystem",),
    "history.locking": ("read_lock", "write_lock"),
    "history.snapshots": ("Snapshots",),
    "index.database": ("IndexWarning",),
}
_MODULE_OF = {name: f"skillfs.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "DEFAULT_IGNORE",
    "AlreadyExistsError",
    "Change",
    "ChangeFeed",
    "ChangedError",
    "Changes",
    "Content",
    "Difference",
    "Differences",
    "Entry",
    "FileDigest",
    "IndexWarning",
    "IntegrityError",
    "InvalidArgumentError",
    "IsFileError",
    "IsFolderError",
    "Kind",
    "Lines",
    "Lock",
    "LockedFile",
    "LockedSkill",
    "NotFoundError",
    "NotIndexedError",
    "NotTextError",
    "Outline",
    "Passage",
    "Problem",
    "ReadOnlyError",
    "SearchHit",
    "SearchResults",
    "Section",
    "Skill",
    "SkillFSError",
    "SkillFileSystem",
    "SkillVersions",
    "Snapshot",
    "Snapshots",
    "StoreUnavailableError",
    "TooLargeError",
    "Tree",
    "TreeNode",
    "UnreadableError",
    "Verification",
    "VerifiedFile",
    "VerifiedSkill",
    "Version",
    "read_lock",
    "write_lock",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'skillfs' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
