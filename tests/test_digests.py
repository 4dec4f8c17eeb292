"""Manifests: which files a skill has, their sizes and their SHA-256."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillfs import (
    ChangedError,
    FileDigest,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFileSystem,
    UnreadableError,
)
from skillfs.reading import Reader
from tests.collisions import MD5_PAIR, XXH3_PAIR
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

FILES = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/b.bin": b"\0\xff" * 40_000,
    "pdf/.hidden": "seen all the same",
    "pdf/.env": "never",
    "pdf/inner/SKILL.md": skill_md("inner"),
    "pdf/inner/empty": "",
    "pdf/a/z.md": "z",
    "other/SKILL.md": skill_md("other"),
    "loose/x.md": "x",
}


def expected(root: Path, skill: str, names: list[str]) -> list[tuple[str, int, str]]:
    found = []
    for name in names:
        data = (root / skill / name).read_bytes()
        found.append((name, len(data), f"sha256:{hashlib.sha256(data).hexdigest()}"))
    return found


def told(files: tuple[FileDigest, ...]) -> list[tuple[str, int, str]]:
    return [(file.path, file.size, file.digest) for file in files]


def test_every_file_is_there_with_size_and_digest(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, FILES)
    fs = open_fs()
    names = [".hidden", "SKILL.md", "a/z.md", "b.bin", "inner/SKILL.md", "inner/empty"]
    for _ in range(2):  # computed, then known
        found = fs.manifest("name:pdf")
        assert told(found) == expected(root, "pdf", names)
        assert [file.uuid for file in found] == [fs.entry(f"pdf/{name}").uuid for name in names]
    assert told(fs.manifest("pdf/inner")) == expected(root, "pdf/inner", ["SKILL.md", "empty"])


def test_a_digest_once_known_is_kept_and_one_of_other_bytes_is_not(
    root: Path, open_fs: Callable[..., SkillFileSystem], tmp_path: Path
) -> None:
    write(root, FILES)
    index = tmp_path / "index"
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    fs = open_fs(index=index)
    fs.manifest("other")
    digest = hashlib.sha256(FILES["other/SKILL.md"].encode()).hexdigest()  # type: ignore[union-attr]
    assert fs.find_content(f"sha256:{digest}")[0].path == "other/SKILL.md"
    write(root, {"other/SKILL.md": skill_md("other", "Another.")})
    fs.sync()
    assert told(fs.manifest("other")) == expected(root, "other", ["SKILL.md"])


def test_links_to_files_are_files_and_links_to_folders_are_not(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, FILES)
    (root / "other/alias.md").symlink_to("../pdf/a/z.md")
    (root / "other/folder").symlink_to("../pdf/a")
    fs = open_fs()
    assert told(fs.manifest("other")) == expected(root, "other", ["SKILL.md", "alias.md"])
    assert told(fs.manifest("other", base_paths=["other"])) == expected(root, "other", ["SKILL.md"])


def test_what_is_no_skill_or_out_of_bounds_is_refused(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, FILES)
    fs = open_fs()
    with pytest.raises(IsFileError):
        fs.manifest("pdf/SKILL.md")
    with pytest.raises(InvalidArgumentError, match="no skill"):
        fs.manifest("pdf/a")
    for ref in ("loose", "nowhere"):
        with pytest.raises(NotFoundError):
            fs.manifest(ref)
    with pytest.raises(NotFoundError):
        fs.manifest("pdf", base_paths=["other"])
    # On the way to a base: the outer skill is shown as a folder, and tells nothing of itself.
    with pytest.raises(InvalidArgumentError, match="no skill"):
        fs.manifest("pdf", base_paths=["pdf/inner"])


def test_a_file_that_may_not_be_read_is_said(root: Path, open_fs: Callable[..., SkillFileSystem]) -> None:
    write(root, FILES)
    fs = open_fs()
    (root / "pdf/b.bin").chmod(0)
    # By its path, whatever way it was found.
    with bound_by_permissions(), pytest.raises(UnreadableError, match=r'"pdf/b\.bin"'):
        fs.manifest("pdf")
    with bound_by_permissions(), pytest.raises(UnreadableError, match=r'"pdf/b\.bin"'):
        fs.digest("pdf")


def test_of_several_stores(root: Path, tmp_path: Path) -> None:
    write(root, FILES)
    fs = SkillFileSystem({"one": root, "two": write(tmp_path / "two", FILES)}, index=":memory:")
    assert told(fs.manifest("two/other")) == expected(root, "other", ["SKILL.md"])
    assert told(fs.manifest("name:other")) == expected(root, "other", ["SKILL.md"])
    (root / "pdf/b.bin").chmod(0)
    with bound_by_permissions(), pytest.raises(UnreadableError, match=r'"one/pdf/b\.bin"'):
        fs.manifest("one/pdf")
    with pytest.raises(InvalidArgumentError, match="mounts"):
        fs.manifest("/")


def test_a_file_that_goes_away_meanwhile_is_left_out(
    root: Path, open_fs: Callable[..., SkillFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, FILES)
    fs = open_fs()
    true_many = Reader.many

    def remove_and_read(self: Reader, read: Any, items: list[Any]) -> Any:
        (root / "pdf/b.bin").unlink(missing_ok=True)
        return true_many(self, read, items)

    monkeypatch.setattr(Reader, "many", remove_and_read)
    assert [path for path, *_ in told(fs.manifest("pdf"))] == [
        ".hidden", "SKILL.md", "a/z.md", "inner/SKILL.md", "inner/empty",
    ]  # fmt: skip

    def replace_and_read(self: Reader, read: Any, items: list[Any]) -> Any:
        for item in items:
            if item.path.startswith("a/n"):
                (root / "pdf" / item.path).rename(root / "gone")
                write(root, {f"pdf/{item.path}x": item.path})  # no move, by its content
        return true_many(self, read, items)

    monkeypatch.setattr(Reader, "many", replace_and_read)
    write(root, {"pdf/a/n": "new"})
    with pytest.raises(ChangedError) as caught:
        open_fs(max_age=0).manifest("pdf")
    assert caught.value.message.startswith('files of "pdf" go away faster')


@pytest.mark.parametrize("pair", [XXH3_PAIR, MD5_PAIR], ids=["XXH3", "MD5"])
@pytest.mark.parametrize("way", ["replaced", "in place"])
def test_a_crafted_file_of_equal_hash_is_another(
    root: Path, open_fs: Callable[..., SkillFileSystem], pair: tuple[bytes, bytes], way: str
) -> None:
    """No hash that can be collided vouches for what was learned of other bytes."""
    one, other = pair
    file = write(root, {"pdf/SKILL.md": skill_md("pdf"), "pdf/blob": one}) / "pdf/blob"
    times = (time.time_ns() - 10**9,) * 2
    os.utime(file, ns=times)
    time.sleep(0.1)
    fs = open_fs(max_age=0)
    before = fs.skill_tree("pdf", details=True).to_dict()["children"][1]["hash"]
    assert fs.digest("pdf/blob") == f"sha256:{hashlib.sha256(one).hexdigest()}"
    if way == "replaced":
        (root / "new").write_bytes(other)
        os.replace(root / "new", file)
    else:
        file.write_bytes(other)
    os.utime(file, ns=times)
    time.sleep(0.1)
    fs.sync()
    assert fs.digest("pdf/blob") == f"sha256:{hashlib.sha256(other).hexdigest()}"
    assert {f.path: f.digest for f in fs.manifest("pdf")}["blob"] == fs.digest("pdf/blob")
    found = fs.skill_tree("pdf", details=True).to_dict()["children"][1]["hash"]
    assert found == hashlib.md5(other, usedforsecurity=False).hexdigest()
    assert (found == before) == (pair is MD5_PAIR)


def test_digest_of_a_skill_is_of_what_is_there_now(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, FILES)
    fs = open_fs(max_age=3600)
    before = fs.digest("pdf")
    write(root, {"pdf/new.md": "new"})
    assert fs.digest("pdf") != before
    assert fs.digest("pdf") == open_fs().digest("pdf")
