"""The same files over two stores, and how what is said about them is compared."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import xxhash

from skillfs.core.model import Entry
from skillfs.errors import SkillFSError
from skillfs.filesystem import SkillFileSystem

__all__ = [
    "Both",
    "Failure",
    "Seed",
    "Work",
    "digests",
    "drawing",
    "everything",
    "laid",
    "opened",
    "outcome",
    "pages_of",
    "plain_data",
    "plain_entry",
    "plain_info",
    "whole",
]

Seed: TypeAlias = Callable[[Mapping[str, bytes]], dict[str, Any]]
"""Lays files and returns the arguments for `SkillFileSystem`."""

Work: TypeAlias = Callable[..., object]
"""Something that is done with a filesystem, which is its first argument."""

STORE_ID = "5f0c7c0e-6f0f-4b0e-9c58-2d1f0a0c9b1d"

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_CURSOR = re.compile(r'cursor "[^"]+"')


class Both(NamedTuple):
    """The same files in two places, open.

    Attributes:
        fs: Over the store that is tried.
        local: Over a local folder.
        folder: That folder.
    """

    fs: SkillFileSystem
    local: SkillFileSystem
    folder: Path

    def same(self, work: Work) -> Any:
        """Do something over both, check that what comes of it is the same, and return that."""
        ours, theirs = outcome(work, self.fs), outcome(work, self.local)
        assert ours == theirs
        return ours

    def answers(self, work: Work) -> Any:
        """The same, and it must be no error."""
        outcome = self.same(work)
        assert not isinstance(outcome, Failure), outcome
        return outcome

    def code(self, work: Work) -> str:
        """The same, and it must be an error, whose code is returned."""
        outcome = self.same(work)
        assert isinstance(outcome, Failure), outcome
        return outcome.code

    def write(self, path: str, content: bytes) -> None:
        """Write a file into the local folder."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)


class Failure(NamedTuple):
    """An error, in what a caller can tell of it."""

    kind: type[Exception]
    code: str
    message: str


def outcome(work: Work, fs: SkillFileSystem) -> Any:
    """What comes of it: a value, or a `Failure`."""
    try:
        return work(fs)
    except SkillFSError as error:
        return Failure(type(error), error.code, str(error))


def opened(options: Mapping[str, Any]) -> SkillFileSystem:
    """A filesystem with an index of its own, and the identities that all of them have."""
    # What is compared shall not be looked at again in the middle; tests of changes call sync().
    return SkillFileSystem(
        **{"index": ":memory:", "store_id": STORE_ID, "max_age": 3600, "skip_instance_cache": True, **options}
    )


def laid(seed: Seed, files: Mapping[str, bytes], folder: Path) -> Both:
    """Lay files in the store and in a folder, and open both."""
    options = seed(files)
    folder.mkdir(exist_ok=True)
    both = Both(opened(options), opened({"store": folder}), folder)
    for path, content in files.items():
        both.write(path, content)
    both.local.sync()
    return both


def everything(fs: SkillFileSystem) -> list[str]:
    """Path of every file and folder."""
    return list(fs.find("", withdirs=True))


def plain_entry(entry: Entry) -> Entry:
    """An entry without its time, and without what may or may not be known already."""
    replaced: Any = {"modified": None, "md5": None, "characters": None, "hash": None}
    return dataclasses.replace(entry, **replaced)


def plain_info(info: dict[str, Any]) -> dict[str, Any]:
    """Facts as fsspec has them, without time and hash."""
    return {key: value for key, value in info.items() if key not in ("mtime", "hash")}


def whole(reading: Any) -> tuple[str, object]:
    """The raw format, or what is in it, and what is not in it."""
    return str(reading), [getattr(reading, name) for name in ("id", "path", "text")]


def drawing(tree: object) -> str:
    """The drawing of a tree, without times and cursor."""
    return _CURSOR.sub("cursor", _TIME.sub("time", str(tree)))


def plain_data(value: dict[str, Any]) -> dict[str, Any]:
    """Nested data without times, and without the name of the root, which is the store's."""
    kept = {key: part for key, part in value.items() if key != "modified"}
    if "cursor" in kept:
        kept["cursor"] = kept["cursor"] is not None
        if kept["path"] in ("", "/"):
            del kept["name"]
    if "children" in kept:
        kept["children"] = [plain_data(child) for child in kept["children"]]
    return kept


def pages_of(fs: SkillFileSystem, ref: str, limit: int) -> Iterator[dict[str, Any]]:
    """Every page of a tree, as nested data."""
    cursor = None
    while True:
        tree = fs.skill_tree(ref, limit=limit, cursor=cursor)
        yield tree.to_dict()
        cursor = tree.cursor
        if cursor is None:
            return


def digests(content: bytes) -> tuple[str, str, str]:
    """References to a content by MD5, SHA-256 and XXH3."""
    return (
        f"md5:{hashlib.md5(content).hexdigest()}",
        f"sha256:{hashlib.sha256(content).hexdigest()}",
        f"xxh3:{xxhash.xxh3_128_hexdigest(content)}",
    )
