"""The tree that a listing makes, and reading through a source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core.model import Place
from skillfs.core.refs import component_fault
from skillfs.stores.base import FileState, StaleFile
from skillfs.stores.folder_tree import FolderTree
from skillfs.stores.fsspec_source import FsspecSource
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import Found

STATE = FileState(b"v", 1, 0)


def tree_of(keys: list[str]) -> FolderTree:
    tree = FolderTree()
    for number, key in enumerate(keys):
        tree.add(Found(key, "file", FileState(key.encode("utf-8", "surrogatepass"), number, 0)))
    tree.finish()
    return tree


NAMES = st.sampled_from(
    ["a", "b", "SKILL.md", "..", ".", "", "ä", "x\ny", "\x7f", "c d", "~", "*", "a" * 256]
)
KEYS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12, unique=True)


@given(KEYS)
def test_a_key_is_its_own_path_or_left_out_and_told(keys: list[str]) -> None:
    tree = tree_of(keys)
    sound = {key for key in keys if key and not any(map(component_fault, key.split("/")))}
    folders = {key[:at] for key in sound for at in range(len(key)) if key[at] == "/"}
    for key in keys:
        found = tree.at(key)
        if key in sound and key not in folders:
            assert found == FileState(key.encode(), keys.index(key), 0)
        else:
            assert not isinstance(found, FileState)
    told = [unfit for unfits in tree.unfit.values() for unfit in unfits]
    assert len(told) == len([key for key in keys if key and (key not in sound or key in folders)])
    codes = {unfit.code for unfit in told}
    assert ("file-and-folder" in codes) == bool(sound & folders)


@given(KEYS, st.randoms())
def test_the_order_of_a_listing_says_nothing(keys: list[str], random: object) -> None:
    mixed = list(keys)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = tree_of(keys), tree_of(mixed)
    assert {k: [u.code for u in v] for k, v in sorted(one.unfit.items())}.keys() == other.unfit.keys()
    for key in keys:
        mine, theirs = one.at(key), other.at(key)
        assert isinstance(mine, FileState) == isinstance(theirs, FileState)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            assert mine.keys() == theirs.keys()


@pytest.mark.parametrize(
    ("keys", "folder", "code", "name"),
    [
        (["a//b", "a/c"], "a", "unfit-key", ""),
        (["a//b"], "", "unfit-key", ""),
        (["/a"], "", "unfit-key", ""),
        (["a/../b", "a/c"], "a", "unfit-key", ""),
        (["a/x\ny", "a/c"], "a", "unfit-key", ""),
        (["a/", "a/c"], "", "directory-marker", "a"),
        (["a/b/", "a/c"], "a", "directory-marker", "b"),
        (["a/b", "a/b/c"], "a", "file-and-folder", "b"),
        (["a/b/c", "a/b"], "a", "file-and-folder", "b"),
        (["a", "a/b/c/d"], "", "file-and-folder", "a"),
    ],
)
def test_what_is_left_out_is_told(keys: list[str], folder: str, code: str, name: str) -> None:
    unfit = tree_of(keys).unfit
    assert list(unfit) == [folder]
    assert [(u.code, u.name) for u in unfit[folder]] == [(code, name)]


def test_a_folder_is_another_when_a_name_in_it_is() -> None:
    def signature(*keys: str) -> bytes:
        store = RemoteStore(
            FsspecSource(MemoryFileSystem(), "/x", "memory:///x", {}, own=True), tree_of([*keys])
        )
        state = store.state(Place(0, "a"))
        assert state is not None
        return state.signature

    one = signature("a/b", "a/c")
    assert one == signature("a/c", "a/b")
    assert len({one, signature("a/b"), signature("a/b", "a/c/d"), signature("a/b", "a/c", "a//d")}) == 4


# -- any filesystem of fsspec ------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[tuple[MemoryFileSystem, str]]:
    fs, root = fsspec.filesystem("memory"), f"/{uuid4().hex}"
    yield fs, root
    if fs.exists(root):
        fs.rm(root, recursive=True)


def source_of(memory: tuple[MemoryFileSystem, str]) -> FsspecSource:
    fs, root = memory
    return FsspecSource(fs, root, f"memory://{root}", {}, own=True)


def test_bytes_of_another_version_are_none(memory: tuple[MemoryFileSystem, str]) -> None:
    fs, root = memory
    fs.pipe_file(f"{root}/x", b"0123456789")
    source = source_of(memory)
    state = source.state("x")
    assert state is not None
    assert source.get("x", 2, 5, state) == b"234"
    assert b"".join(source.blocks("x", state)) == b"0123456789"
    fs.pipe_file(f"{root}/x", b"9876543210")
    with pytest.raises(StaleFile):
        source.get("x", 2, 5, state)
    fs.rm(f"{root}/x")
    with pytest.raises(StaleFile):
        source.get("x", 2, 5, state)
    assert source.state("x") is None


def test_a_young_file_vouches_for_nothing_by_its_time(memory: tuple[MemoryFileSystem, str]) -> None:
    fs, root = memory
    fs.pipe_file(f"{root}/x", b"1")
    found = {f.key: f.state for f in source_of(memory).find("")}
    assert found["x"].signature.endswith(b"?")
    fs.store[f"{root}/x"].modified = datetime(2020, 1, 1, tzinfo=UTC)
    found = {f.key: f.state for f in source_of(memory).find("")}
    assert not found["x"].signature.endswith(b"?")


@pytest.mark.parametrize(
    ("info", "tells", "first"),
    [
        ({"size": 3, "ETag": '"x"', "mtime": 5.0}, "version", b"v"),
        ({"size": 3, "sha": "x"}, "version", b"v"),
        ({"size": 3, "generation": 7}, "version", b"v"),
        ({"size": 3, "mtime": 5.0}, "time", b"t"),
        ({"size": 3, "LastModified": "2026-01-01T00:00:00Z"}, "time", b"t"),
        ({"size": 3, "date_time": (2026, 1, 1, 0, 0, 0)}, "time", b"t"),
        ({"size": 3}, "nothing", b""),
        ({}, "nothing", b""),
    ],
)
def test_what_a_listing_can_tell(
    memory: tuple[MemoryFileSystem, str], info: dict[str, object], tells: str, first: bytes
) -> None:
    source = source_of(memory)
    state = source._state(info)
    assert (source.tells, state.signature[:1]) == (tells, first)
    assert state.size == info.get("size", -1)
    assert source.settled(state).signature.endswith(b"?") == (tells == "nothing")
    assert source._state(dict(info)) == state
    if tells != "nothing":
        for key, other in (
            ("size", 4),
            *((k, "another") for k in info if k in ("ETag", "sha", "generation")),
        ):
            assert source._state({**info, key: other}).signature != state.signature
