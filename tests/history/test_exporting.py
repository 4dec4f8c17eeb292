"""What is exported holds what the snapshot held, and can be checked by its lock."""

from __future__ import annotations

import os
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from hypothesis import given, settings

from skillfs import SkillFileSystem
from skillfs.core.lock import parse_lock
from skillfs.errors import (
    AlreadyExistsError,
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    ReadOnlyError,
    StoreUnavailableError,
)
from tests.conftest import skill_md, write
from tests.history.test_restoring import IN_MEMORY, opened, visible
from tests.history.trees import Tree, lay, on_disk, trees

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket, S3Server


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> SkillFileSystem:
    """A store of which there is a snapshot, `v1`."""
    write(
        root,
        {
            "office/pdf/SKILL.md": skill_md("pdf"),
            "office/pdf/run.sh": "#!/bin/sh\n",
            "office/pdf/inner/SKILL.md": skill_md("inner"),
            "office/pdf/inner/data.bin": bytes(range(256)) * 9_000,
            "shared/SKILL.md": skill_md("shared"),
            "shared/text.md": "shared\n",
        },
    )
    (root / "office/pdf/run.sh").chmod(0o755)
    (root / "office/pdf/empty").mkdir()
    (root / "office/pdf/own").symlink_to("inner")
    (root / "office/pdf/text.md").symlink_to("../../shared/text.md")
    (root / "office/pdf/all").symlink_to("../../shared")
    found = opened(root, tmp_path / "objects")
    found.snapshot("v1")
    return found


def checked(store: str | Path, lock: Path | bytes, tmp_path: Path, **options: Any) -> None:
    """What lies there is what the lock beside it says."""
    if isinstance(lock, bytes):
        (tmp_path / "a.lock").write_bytes(lock)
        lock = tmp_path / "a.lock"
    there = SkillFileSystem(store, index=":memory:", skip_instance_cache=True, **options)
    verification = there.verify(lock)
    assert verification.ok, verification


def test_a_folder(fs: SkillFileSystem, root: Path, tmp_path: Path) -> None:
    done = fs.snapshots.export("v1", tmp_path / "out")
    assert done == (3, 6, 2_304_000 + sum(len(skill_md(n)) for n in ("pdf", "inner", "shared")) + 17, ())
    found = on_disk(tmp_path / "out")
    assert found.pop("skills.lock")[0] == "file"
    assert found == visible(root)
    checked(tmp_path / "out", tmp_path / "out/skills.lock", tmp_path)
    assert parse_lock((tmp_path / "out/skills.lock").read_bytes()) == fs.lock()


def test_a_zip_is_the_same_for_the_same_content(fs: SkillFileSystem, root: Path, tmp_path: Path) -> None:
    done = fs.snapshots.export("v1", tmp_path / "one.zip")
    assert "office/pdf/own" in done.left_out  # a link to a folder
    other = opened(lay(tmp_path / "other", on_disk(root)), tmp_path / "others")
    other.snapshot("x")
    other.snapshots.export("x", tmp_path / "two.ZIP")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.ZIP").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as packed:
        assert packed.testzip() is None
        names = packed.namelist()
        assert names == sorted(names)
        modes = {info.filename: info.external_attr >> 16 for info in packed.infolist()}
        lock = packed.read("skills.lock")
    assert stat.S_IMODE(modes["office/pdf/run.sh"]) == 0o755
    assert stat.S_IMODE(modes["shared/text.md"]) == 0o644
    # What unpacks a link as a file that holds its aim would not unpack what the lock names.
    assert not any(stat.S_ISLNK(mode) for mode in modes.values())
    assert (
        SkillFileSystem("zip://", target_options={"fo": str(tmp_path / "one.zip")}, index=":memory:")
        .verify(parse_lock(lock))
        .ok
    )
    subprocess.run(
        ["python3", "-c", "import zipfile; zipfile.ZipFile('one.zip').extractall('plain')"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    assert (tmp_path / "plain/office/pdf/inner/data.bin").read_bytes() == bytes(range(256)) * 9_000
    assert (tmp_path / "plain/office/pdf/empty").is_dir()
    assert parse_lock(lock) == fs.lock()


def test_a_store(fs: SkillFileSystem, tmp_path: Path, s3_server: S3Server, bucket: Bucket) -> None:
    memory = fsspec.filesystem("memory")
    memory.makedirs("/exported/to")
    try:
        targets: list[tuple[str, dict[str, Any]]] = [
            ("memory://exported/to", {}),
            (f"{bucket.url}/to", {"target_options": s3_server.target_options}),
        ]
        for url, options in targets:
            done = fs.snapshots.export("v1", url, **options)
            assert done.left_out == ("office/pdf/all", "office/pdf/own")
            assert (done.skills, done.files) == (3, 7)
            there = SkillFileSystem(url, index=":memory:", skip_instance_cache=True, **options)
            assert there.cat_file("office/pdf/text.md") == b"shared\n"
            for skill in fs.skills():
                assert there.digest(skill.path) == fs.digest(skill.path)
            with pytest.raises(AlreadyExistsError):
                fs.snapshots.export("v1", url, **options)
        checked("memory://exported/to", memory.cat_file("/exported/to/skills.lock"), tmp_path)
    finally:
        memory.rm("/exported", recursive=True)
    (tmp_path / "x.zip").write_bytes(b"PK\5\6" + bytes(18))
    with pytest.raises(ReadOnlyError):
        fs.snapshots.export("v1", f"zip://::file://{tmp_path}/x.zip")


@pytest.mark.parametrize("skill", ["office/pdf", "/office/pdf/", "name:pdf", "uuid"])
def test_one_skill(fs: SkillFileSystem, tmp_path: Path, skill: str) -> None:
    ref = fs.entry("office/pdf").uuid if skill == "uuid" else skill
    fs.snapshots.export("v1", tmp_path / "out", skill=ref)
    assert sorted(os.listdir(tmp_path / "out")) == ["pdf", "skills.lock"]
    found = on_disk(tmp_path / "out/pdf")
    # What is outside of it comes along as files, so that it stays what it is.
    assert found["text.md"] == ("file", b"shared\n", False)
    assert found["own"] == ("link", "inner")
    assert "all" not in found
    there = SkillFileSystem(tmp_path / "out", index=":memory:", skip_instance_cache=True)
    assert there.digest("pdf") == fs.digest("office/pdf")
    checked(tmp_path / "out", tmp_path / "out/skills.lock", tmp_path)


def test_what_names_no_skill(fs: SkillFileSystem, tmp_path: Path) -> None:
    for skill, error in (
        ("none", NotFoundError),
        ("office", InvalidArgumentError),
        ("shared/text.md", IsFileError),
        ("..", InvalidArgumentError),
    ):
        with pytest.raises(error):
            fs.snapshots.export("v1", tmp_path / "out", skill=skill)
    for target in ("", 7, "a\0b"):
        with pytest.raises(InvalidArgumentError):
            fs.snapshots.export("v1", target)  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == ["objects", "store"]


def test_a_skill_that_is_the_root_gets_a_folder(tmp_path: Path) -> None:
    root = write(tmp_path / "store", {"SKILL.md": skill_md("alone"), "x.md": "x", "in/SKILL.md": "other"})
    fs = opened(root, tmp_path / "objects")
    fs.snapshot("v1")
    fs.snapshots.export("v1", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["alone", "skills.lock"]
    assert on_disk(tmp_path / "out/alone") == on_disk(root)
    checked(tmp_path / "out", tmp_path / "out/skills.lock", tmp_path)


def test_a_relative_target_where_the_working_folder_is_gone(
    fs: SkillFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.snapshot("v1")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for target in ("out", "out.zip"):
        with pytest.raises(StoreUnavailableError, match=target):
            fs.snapshots.export("v1", target)


def test_nothing_is_replaced_and_nothing_half_is_left(fs: SkillFileSystem, tmp_path: Path) -> None:
    (tmp_path / "there.zip").write_bytes(b"mine")
    with pytest.raises(AlreadyExistsError):
        fs.snapshots.export("v1", tmp_path / "there.zip")
    assert (tmp_path / "there.zip").read_bytes() == b"mine"
    digest = fs.digest("office/pdf/inner/data.bin")[7:]
    (tmp_path / "objects/blobs" / digest[:2] / digest[2:]).write_bytes(bytes(2_304_000))
    for target in ("new.zip", "new"):
        with pytest.raises(IntegrityError):
            fs.snapshots.export("v1", tmp_path / target)
    assert sorted(os.listdir(tmp_path)) == ["objects", "store", "there.zip"]


@settings(max_examples=15, deadline=None)
@given(trees())
def test_whatever_is_exported_matches_its_lock(tree: Tree) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        place = Path(name)
        fs = opened(lay(place / "store", tree), place / "objects")
        taken = fs.snapshot()
        if not taken.skills:
            with pytest.raises(InvalidArgumentError, match="no skill"):
                fs.snapshots.export(taken, place / "out")
            return
        fs.snapshots.export(taken, place / "out")
        checked(place / "out", (place / "out/skills.lock").read_bytes(), place)
