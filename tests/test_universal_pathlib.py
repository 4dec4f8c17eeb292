"""Paths of universal_pathlib over stores of every kind, and the chained URLs that fsspec knows."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from upath import UPath

from skillfs import ReadOnlyError
from skillfs.upath import SkillPath
from tests.conftest import skill_md
from tests.servers.s3 import Bucket

FILES: dict[str, bytes | str] = {
    "team/pdf/SKILL.md": skill_md("pdf", "Reads PDFs."),
    "team/pdf/references/größe.md": "naïve — 数据\n",
    "team/pdf/assets/logo.png": b"\x89PNG\r\n\x1a\n\0",
    "csv/SKILL.md": skill_md("csv", "Reads CSV."),
    "csv/a b#c%20.md": "an odd name\n",
}


@pytest.fixture(params=["local", "memory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """URL of a store, and the options of the filesystem that it lies in."""
    if request.param == "local":
        for name, content in FILES.items():
            path = tmp_path / "store" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        yield f"file://{tmp_path}/store", {}
    elif request.param == "memory":
        name = f"k-{uuid4()}"
        memory = fsspec.filesystem("memory")
        memory.pipe({f"/{name}/{k}": v.encode() if isinstance(v, str) else v for k, v in FILES.items()})
        yield f"memory://{name}", {}
        memory.rm(f"/{name}", recursive=True)
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        bucket.seed(FILES, "library/")
        yield f"{bucket.url}/library", bucket.server.target_options


@pytest.fixture
def top(where: tuple[str, dict[str, Any]]) -> UPath:
    """The root of a store."""
    url, options = where
    more = {"target_options": options} if options else {}
    return UPath("skill://", store=url, index=":memory:", **more)


def test_the_class_is_found_by_its_entry_point(top: UPath) -> None:
    assert type(top) is type(top / "team") is SkillPath
    assert (top.path, str(top)) == ("", "skill://")
    assert [path.path for path in UPath("skill://", **top.storage_options).iterdir()] == ["csv", "team"]


def test_reading(top: UPath) -> None:
    for name, content in FILES.items():
        path = top / name
        data = content.encode() if isinstance(content, str) else content
        assert path.read_bytes() == data
        with path.open("rb") as file:
            assert file.read() == data
        if isinstance(content, str):
            assert path.read_text(encoding="utf-8") == content
        assert path.stat().st_size == len(data)
        assert stat.S_ISREG(path.stat().st_mode)


def test_what_is_there(top: UPath) -> None:
    file, folder = top / "team/pdf/SKILL.md", top / "team/pdf"
    assert file.exists()
    assert file.is_file()
    assert not file.is_dir()
    assert folder.exists()
    assert folder.is_dir()
    assert not folder.is_file()
    assert top.is_dir()
    assert stat.S_ISDIR(folder.stat().st_mode)
    missing = top / "team/pdf/nothing.md"
    assert not missing.exists()
    assert not missing.is_file()
    with pytest.raises(FileNotFoundError):
        missing.read_bytes()
    with pytest.raises(FileNotFoundError):
        missing.stat()
    for no_folder in (file, missing):
        with pytest.raises(NotADirectoryError):
            list(no_folder.iterdir())
    with pytest.raises(IsADirectoryError):
        folder.read_bytes()


def test_listing(top: UPath) -> None:
    def names(found: Any) -> list[str]:
        return sorted(path.path for path in found)

    assert names(top.iterdir()) == ["csv", "team"]
    assert names((top / "team/pdf").iterdir()) == [
        "team/pdf/SKILL.md",
        "team/pdf/assets",
        "team/pdf/references",
    ]
    assert names(top.glob("*/SKILL.md")) == ["csv/SKILL.md"]
    assert names(top.glob("**/SKILL.md")) == ["csv/SKILL.md", "team/pdf/SKILL.md"]
    assert names(top.rglob("*.md")) == sorted(name for name in FILES if name.endswith(".md"))
    assert names((top / "team").rglob("gr*")) == ["team/pdf/references/größe.md"]
    walked = {path.path: (sorted(folders), sorted(files)) for path, folders, files in top.walk()}
    assert walked == {
        "": (["csv", "team"], []),
        "csv": ([], ["SKILL.md", "a b#c%20.md"]),
        "team": (["pdf"], []),
        "team/pdf": (["assets", "references"], ["SKILL.md"]),
        "team/pdf/assets": ([], ["logo.png"]),
        "team/pdf/references": ([], ["größe.md"]),
    }


def test_names(top: UPath) -> None:
    path = top.joinpath("team", "pdf", "references", "größe.md")
    assert path == top / "team/pdf/references/größe.md"
    assert (path.name, path.stem, path.suffix) == ("größe.md", "größe", ".md")
    assert path.parent == top / "team/pdf/references"
    assert [above.path for above in path.parents] == ["team/pdf/references", "team/pdf", "team", ""]
    assert path.is_relative_to(top / "team")
    assert path.relative_to(top / "team").as_posix() == "pdf/references/größe.md"
    assert path.with_name("other.md").path == "team/pdf/references/other.md"
    assert str(path) == "skill://team/pdf/references/größe.md"
    assert UPath(str(path), **path.storage_options).read_text() == "naïve — 数据\n"
    with pytest.raises(ValueError, match="not in the subpath"):
        path.relative_to(top / "csv")


@pytest.mark.parametrize("write", ["write_text", "unlink", "mkdir", "touch", "rmdir"])
def test_nothing_is_written(top: UPath, write: str) -> None:
    path = top / "csv/SKILL.md" if write != "mkdir" else top / "csv/new"
    with pytest.raises(NotADirectoryError if write == "rmdir" else ReadOnlyError):
        getattr(path, write)(*(["x"] if write == "write_text" else []))
    assert (top / "csv/SKILL.md").read_bytes() == str(FILES["csv/SKILL.md"]).encode()


def chained(where: tuple[str, dict[str, Any]], path: str) -> tuple[str, dict[str, Any]]:
    url, options = where
    below = {url.partition("://")[0]: options} if options else {}
    return f"skill://{path}::{url}", {"index": ":memory:", **below}


def test_chained_urls_of_fsspec(where: tuple[str, dict[str, Any]]) -> None:
    for name, content in FILES.items():
        url, options = chained(where, name)
        with fsspec.open(url, **options) as file:
            assert file.read() == (content.encode() if isinstance(content, str) else content)
    url, options = chained(where, "team/pdf/references/größe.md")
    with fsspec.open(url, "rt", encoding="utf-8", **options) as file:
        assert file.read() == "naïve — 数据\n"
    fs, path = fsspec.url_to_fs(chained(where, "team/pdf")[0], **options)
    assert path == "team/pdf"
    assert fs.ls(path, detail=False) == ["team/pdf/SKILL.md", "team/pdf/assets", "team/pdf/references"]
    files = fsspec.open_files(chained(where, "*/SKILL.md")[0], **options)
    assert [file.path for file in files] == ["csv/SKILL.md"]


def test_chained_urls_of_paths(where: tuple[str, dict[str, Any]]) -> None:
    url, options = chained(where, "team/pdf/SKILL.md")
    path = UPath(url, **options)
    assert path.path == "team/pdf/SKILL.md"
    assert path.read_text() == FILES["team/pdf/SKILL.md"]
    folder = path.parent
    assert sorted(below.name for below in folder.iterdir()) == ["SKILL.md", "assets", "references"]
    assert (folder / "references/größe.md").read_text(encoding="utf-8") == "naïve — 数据\n"
    assert [found.path for found in folder.rglob("*.png")] == ["team/pdf/assets/logo.png"]
    url, options = chained(where, "")
    top = UPath(url, **options)
    assert sorted(below.path for below in top.iterdir()) == ["csv", "team"]
