"""What is restored is what there was: byte for byte, and mode for mode."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from skillfs import SkillFileSystem
from skillfs.errors import (
    AlreadyExistsError,
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    StoreUnavailableError,
    UnreadableError,
)
from tests.conftest import skill_md, write
from tests.history.trees import Tree, lay, on_disk, trees

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where bringing things to the disk costs nothing."""


def opened(root: Path, objects: Path, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        root, index=":memory:", objects=objects, max_age=0, skip_instance_cache=True, **options
    )


def visible(root: Path) -> dict[str, tuple[Any, ...]]:
    """What a snapshot has to hold of what lies on a disk, found the long way round."""
    there = on_disk(root)
    skills = {path.rpartition("/")[0] for path, node in there.items()
              if path.rpartition("/")[2] == "SKILL.md" and node[0] == "file"}  # fmt: skip

    def in_skill(path: str) -> bool:
        above = path
        while above:
            above = above.rpartition("/")[0]
            if above in skills:
                return True
        return False

    def seen(path: str) -> bool:
        return in_skill(path) or path in skills

    leading = {above for skill in skills for above in above_and_at(skill)}
    found = {
        path: node for path, node in there.items() if node[0] != "link" and (seen(path) or path in leading)
    }
    # A link to a folder that is on the way to a skill puts its own folder on the way to one.
    pending = {path: node[1] for path, node in there.items() if node[0] == "link"}
    shown: dict[str, tuple[Any, ...]] = {}
    while True:
        new = {}
        for path, target in pending.items():
            lies = there.get(target, ("folder",) if target == "." else None)
            if lies is None or lies[0] == "link" or target.startswith(".."):
                continue
            if (seen(target) or target in leading or target == ".") and (
                in_skill(path) or lies[0] == "folder"
            ):
                new[path] = ("link", target)
        if not new:
            break
        for path in new:
            del pending[path]
            leading.update(above_and_at(path.rpartition("/")[0]))
        shown.update(new)
    found.update(shown)
    for path in leading - {""}:
        found[path] = ("folder",)
    return found


def above_and_at(path: str) -> set[str]:
    found = {path}
    while path:
        path = path.rpartition("/")[0]
        found.add(path)
    return found


@settings(max_examples=25, deadline=None)
@given(trees())
def test_a_restored_snapshot_equals_the_store(tree: Tree) -> None:
    check_restored(tree)


@pytest.mark.soak
@settings(max_examples=2_000, deadline=None)
@given(trees())
def test_many_restored_snapshots_equal_their_stores(tree: Tree) -> None:
    check_restored(tree)


def check_restored(tree: Tree) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        place = Path(name)
        store = lay(place / "store", tree)
        fs = opened(store, place / "objects")
        taken = fs.snapshot()
        assert fs.snapshots.restore(taken, place / "restored") == taken
        assert on_disk(place / "restored") == visible(store)
        # The other way round: what was restored is the same to whoever takes a snapshot of it.
        again = opened(place / "restored", place / "others").snapshot()
        assert again.digest == taken.digest
        assert (again.skills, again.files, again.size) == (taken.skills, taken.files, taken.size)


@pytest.fixture
def store(root: Path) -> Path:
    write(
        root, {"a/SKILL.md": skill_md("a"), "a/run.sh": "#!/bin/sh\n", "a/big.bin": b"0123456789" * 300_000}
    )
    (root / "a/run.sh").chmod(0o755)
    return root


def test_what_links_lead_to_outside_becomes_part_of_it(store: Path, tmp_path: Path) -> None:
    """A `SKILL.md` that is a link, and a link into a followed folder, have no other entry than themselves."""
    write(tmp_path / "other", {"x/SKILL.md": skill_md("x"), "x/y.md": "y"})
    write(store, {"common.md": skill_md("b")})
    (store / "b").mkdir()
    (store / "b/SKILL.md").symlink_to("../common.md")
    (store / "linked").symlink_to(tmp_path / "other")
    fs = opened(store, tmp_path / "objects", follow=[tmp_path / "other"])
    fs.snapshots.restore(fs.snapshot(), tmp_path / "restored")
    found = on_disk(tmp_path / "restored")
    assert found["b/SKILL.md"] == ("file", skill_md("b").encode(), False)
    assert found["linked/x/y.md"] == ("file", b"y", False)


def test_a_folder_that_is_empty_is_taken(store: Path, tmp_path: Path) -> None:
    fs = opened(store, tmp_path / "objects")
    fs.snapshot("v1")
    (tmp_path / "there").mkdir()
    fs.snapshots.restore("v1", tmp_path / "there")
    assert on_disk(tmp_path / "there") == on_disk(store)
    assert os.listdir(tmp_path / "there") == ["a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["objects", "store", "there"]


@pytest.mark.parametrize("name", ["new", "new.zip"])
def test_nothing_is_written_into_a_skill(store: Path, tmp_path: Path, name: str) -> None:
    fs = opened(store, tmp_path / "objects")
    fs.snapshot("v1")
    before = on_disk(store)
    write = fs.snapshots.export if name.endswith(".zip") else fs.snapshots.restore
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        write("v1", store / "a" / name)
    assert on_disk(store) == before


def test_it_is_written_where_nothing_is(store: Path, tmp_path: Path) -> None:
    fs = opened(store, tmp_path / "objects")
    fs.snapshot("v1")
    write(tmp_path, {"full/x": "x", "file": "x"})
    for folder, error in (("full", AlreadyExistsError), ("file", IsFileError), ("no/where", NotFoundError)):
        with pytest.raises(error) as raised:
            fs.snapshots.restore("v1", tmp_path / folder)
        assert str(tmp_path) in str(raised.value)  # as it was sent, and nothing else of it
    with pytest.raises(ValueError, match="pass a path"):
        fs.snapshots.restore("v1", 7)  # type: ignore[arg-type]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "full", "objects", "store"]


def test_a_damaged_snapshot_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    fs = opened(store, tmp_path / "objects")
    taken = fs.snapshot("v1")
    digest = fs.digest("a/big.bin")[7:]
    blob = tmp_path / "objects/blobs" / digest[:2] / digest[2:]
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    with pytest.raises(IntegrityError):
        fs.snapshots.restore("v1", tmp_path / "restored")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["objects", "store"]
    # It was set aside; what is missing comes back with the next snapshot of a store that still has it.
    assert not blob.exists()
    assert fs.snapshot() == taken
    fs.snapshots.restore("v1", tmp_path / "restored")
    assert on_disk(tmp_path / "restored") == on_disk(store)


@pytest.mark.parametrize("call", ["mkdir", "open", "symlink", "rename"])
def test_what_the_system_refuses_leaves_nothing_behind(
    call: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "a/link").symlink_to("run.sh")
    fs = opened(store, tmp_path / "objects")
    fs.snapshot("v1")
    real = getattr(os, call)
    for code, error in ((errno.ENOSPC, StoreUnavailableError), (errno.EACCES, UnreadableError)):

        def refuse(*arguments: Any, code: int = code, **options: Any) -> Any:
            if "restored" in str(arguments) and (call != "open" or arguments[1] & os.O_CREAT):
                raise OSError(code, os.strerror(code), "/secret/path")
            return real(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, refuse)
            with pytest.raises(error) as raised:
                fs.snapshots.restore("v1", tmp_path / "restored")
        assert "secret" not in str(raised.value)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["objects", "store"]
