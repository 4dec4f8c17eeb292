from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from skillfs import SkillFileSystem
from skillfs.core.refs import PathRef
from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
)
from skillfs.lookup import Asked
from skillfs.mounts import Mount
from skillfs.sync.engine import Engine
from skillfs.writing.pending import failing
from skillfs.writing.writer import Writer
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions
from tests.sync.harness import Follower, check, check_like_new
from tests.writable import open_writable

SKILLS = {
    "a/SKILL.md": skill_md("a"),
    "a/x.md": "x",
    "a/docs/y.md": "y",
    "a/inner/SKILL.md": skill_md("inner"),
    "a/inner/z.md": "z",
    "group/b/SKILL.md": skill_md("b"),
    "group/b/t.md": "t",
    "plain/p.md": "p",
    "top.md": "top",
}


@pytest.fixture
def fs(root: Path) -> SkillFileSystem:
    write(root, SKILLS)
    return open_writable(root, max_age=0)


@contextlib.contextmanager
def written_once(fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Counts how often the index takes something in."""
    calls: list[object] = []
    written = Engine.written

    def counted(self: Engine, *arguments: Any) -> None:
        calls.append(arguments)
        written(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "written", counted)
        yield calls


def in_step(fs: Any, root: Path) -> None:
    """The index says what a new one would, without having looked again."""
    engine = fs.engine if isinstance(fs, Mount) else fs._engine
    check(engine, root)
    check_like_new(engine, root)


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(SkillFSError) as caught:
        call()
    assert "/tmp/" not in str(caught.value) or "local" in str(caught.value)
    return caught.value.code


def everything(root: Path) -> dict[str, bytes | None]:
    return {
        p.relative_to(root).as_posix(): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in root.rglob("*")
    }


# -- who may write -----------------------------------------------------------------------------------------


def test_without_being_asked_for_nothing_is_written(root: Path) -> None:
    write(root, SKILLS)
    fs = open_writable(root)
    fs._writable = False
    before = everything(root)
    names = (
        *("mkdir", "makedirs", "mkdirs", "makedir", "rmdir", "rm", "rm_file", "_rm", "delete", "mv", "move"),
        *("rename", "copy", "cp", "cp_file", "put", "put_file", "upload", "pipe", "pipe_file", "touch"),
        *("write_text", "write_bytes", "start_transaction", "end_transaction"),
    )
    for name in names:
        for arguments in ((), ("a/x.md",), ("a/x.md", "a/new.md"), ([], []), ({},)):
            with pytest.raises(ReadOnlyError, match="this filesystem is read-only; change the files in"):
                getattr(fs, name)(*arguments)
    for mode in ("w", "wb", "xb", "ab", "r+b", "w+", "q", None, 5):
        with pytest.raises(ReadOnlyError):
            fs.open("a/x.md", mode)
    with pytest.raises(ReadOnlyError), fs.transaction:
        pass
    assert fs.cat_file("a/x.md") == b"x"
    assert everything(root) == before


# -- files -------------------------------------------------------------------------------------------------

WAYS: dict[str, Callable[[SkillFileSystem, str, bytes], object]] = {
    "pipe_file": lambda fs, path, data: fs.pipe_file(path, data),
    "pipe": lambda fs, path, data: fs.pipe(path, data),
    "pipe of a mapping": lambda fs, path, data: fs.pipe({path: data}),
    "pipe_file create": lambda fs, path, data: fs.pipe_file(path, data, mode="create"),
    "write_bytes": lambda fs, path, data: fs.write_bytes(path, data),
    "write_text": lambda fs, path, data: fs.write_text(path, data.decode()),
    "open wb": lambda fs, path, data: _open_and_write(fs, path, "wb", data),
    "open xb": lambda fs, path, data: _open_and_write(fs, path, "xb", data),
    "open ab": lambda fs, path, data: _open_and_write(fs, path, "ab", data),
    "open wt": lambda fs, path, data: _open_and_write(fs, path, "wt", data.decode()),
    "open x": lambda fs, path, data: _open_and_write(fs, path, "x", data.decode()),
    "transaction": lambda fs, path, data: _in_transaction(fs, path, data),
}


def _open_and_write(fs: SkillFileSystem, path: str, mode: str, data: Any) -> None:
    with fs.open(path, mode) as file:
        file.write(data[:1])
        file.write(data[1:])


def _in_transaction(fs: SkillFileSystem, path: str, data: bytes) -> None:
    with fs.transaction:
        fs.pipe_file(path, data)
        assert not fs.exists(path)


@pytest.mark.parametrize("way", WAYS)
def test_a_new_file_is_in_the_index_when_the_call_returns(
    fs: SkillFileSystem, root: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, revision = Follower(fs._engine), fs.revision
    with written_once(fs, monkeypatch) as calls:
        WAYS[way](fs, "a/more/new.md", "Grüße\n".encode())
    assert len(calls) == 1
    assert (root / "a/more/new.md").read_text(encoding="utf-8") == "Grüße\n"
    in_step(fs, root)
    assert fs.revision > revision
    assert [(c.kind, c.path) for c in fs.changes(revision).items] == [
        ("added", "a/more"),
        ("added", "a/more/new.md"),
    ]
    follower.catch_up()
    assert fs.get_content("a/more/new.md").text == "Grüße\n"


@pytest.mark.parametrize("way", [w for w in WAYS if "create" not in w and "x" not in w.split()[-1]])
def test_an_old_file_is_replaced_and_stays_the_same_entry(fs: SkillFileSystem, root: Path, way: str) -> None:
    if way in ("open ab", "transaction"):
        return
    uuid, revision = fs.info("a/x.md")["uuid"], fs.revision
    WAYS[way](fs, "a/x.md", b"other")
    assert fs.cat_file("a/x.md") == b"other"
    assert fs.info("a/x.md")["uuid"] == uuid
    assert [(c.kind, c.path) for c in fs.changes(revision).items] == [("modified", "a/x.md")]
    in_step(fs, root)


@pytest.mark.parametrize("way", ["pipe_file create", "open xb", "open x"])
def test_what_is_to_be_new_must_be_new(fs: SkillFileSystem, root: Path, way: str) -> None:
    with pytest.raises(FileExistsError) as caught:
        WAYS[way](fs, "a/x.md", b"other")
    assert isinstance(caught.value, SkillFSError)
    assert caught.value.errno == errno.EEXIST
    assert (root / "a/x.md").read_bytes() == b"x"


def test_what_is_to_be_new_must_be_new_until_it_is_written(fs: SkillFileSystem, root: Path) -> None:
    file = fs.open("a/late.md", "xb")
    file.write(b"late")
    (root / "a/late.md").write_text("first")
    with pytest.raises(FileExistsError):
        file.close()
    assert file.closed
    assert (root / "a/late.md").read_text() == "first"
    assert not list(root.rglob("*~"))


@pytest.mark.parametrize("value", ["text", None, 5, [b"x"], {"a": 1}])
def test_content_is_bytes(fs: SkillFileSystem, value: object) -> None:
    assert code_of(lambda: fs.pipe_file("a/x.md", value)) == "invalid_argument"
    assert fs.cat_file("a/x.md") == b"x"


@pytest.mark.parametrize("value", [b"b", bytearray(b"b"), memoryview(b"abc")[1:2]])
def test_bytes_of_all_kinds(fs: SkillFileSystem, value: Any) -> None:
    fs.pipe_file("a/x.md", value)
    assert fs.cat_file("a/x.md") == b"b"


def test_appending(fs: SkillFileSystem, root: Path) -> None:
    uuid = fs.info("a/x.md")["uuid"]
    with fs.open("a/x.md", "ab") as file:
        assert file.tell() == 1
        file.write(b"+y")
    with fs.open("a/x.md", "a") as file:
        file.write("ö")
    assert fs.cat_file("a/x.md") == "x+yö".encode()
    assert fs.info("a/x.md")["uuid"] == uuid
    with fs.transaction, fs.open("a/x.md", "ab") as file:
        file.write(b"!")
    assert fs.cat_file("a/x.md") == "x+yö!".encode()
    in_step(fs, root)


def test_appending_to_what_changed_meanwhile_is_refused(fs: SkillFileSystem, root: Path) -> None:
    file = fs.open("a/x.md", "ab")
    file.write(b"mine")
    (root / "a/x.md").write_bytes(b"another's")
    assert code_of(file.close) == "changed"
    assert (root / "a/x.md").read_bytes() == b"another's"
    assert not list(root.rglob("*~"))


def test_nothing_of_a_file_is_seen_before_it_is_closed(fs: SkillFileSystem, root: Path) -> None:
    before = fs.find("")
    with fs.open("a/new.md", "wb") as file:
        file.write(b"half")
        assert fs.find("") == before
        assert not fs.exists("a/new.md")
        assert fs.problems() == open_writable(root).problems()
    assert fs.cat_file("a/new.md") == b"half"


OPENED = [
    ("wb", b"half"),
    ("w", "half"),
    ("ab", b"half"),
    ("xb", b"half"),
    ("wb gzip", b"half"),
    ("w gzip", "half"),
]


@pytest.mark.parametrize(("mode", "data"), OPENED)
@pytest.mark.parametrize(
    "end", ["exception", "collected", "discard", "transaction fails", "exception in one"]
)
def test_what_is_given_up_leaves_nothing(
    fs: SkillFileSystem, root: Path, mode: str, data: Any, end: str
) -> None:
    before, revision = everything(root), fs.revision
    mode, *compression = mode.split()
    options = {"compression": compression[0]} if compression else {}
    path = "a/new/folder/f.md"

    def write_and_fail() -> None:
        with fs.open(path, mode, **options) as file:
            file.write(data)
            raise RuntimeError

    def fail_after_writing() -> None:
        with fs.transaction:
            with fs.open(path, mode, **options) as file:
                file.write(data)
            raise RuntimeError

    if end == "exception":
        with pytest.raises(RuntimeError):
            write_and_fail()
    elif end == "collected":
        file = fs.open(path, mode, **options)
        file.write(data)
        del file
        gc.collect()
    elif end == "discard":
        file = fs.open(path, mode, **options)
        file.write(data)
        file.discard()
        file.close()
    elif end == "transaction fails":
        with pytest.raises(RuntimeError):
            fail_after_writing()
    else:
        with fs.transaction, pytest.raises(RuntimeError):
            write_and_fail()
    assert everything(root) == before
    assert fs.revision == revision
    in_step(fs, root)


@pytest.mark.parametrize("compression", ["gzip", "infer", "bz2", "xz"])
@pytest.mark.parametrize("transaction", [False, True])
def test_compression(fs: SkillFileSystem, compression: str, transaction: bool) -> None:
    with fs.transaction if transaction else contextlib.nullcontext():
        with fs.open("a/t.gz", "wb", compression=compression) as file:
            file.write(b"text " * 1000)
        with fs.open("a/u.gz", "wt", compression=compression) as file:
            file.write("text " * 1000)
    for path in ("a/t.gz", "a/u.gz"):
        assert fs.info(path)["size"] < 1000
        with fs.open(path, "rb", compression=compression) as file:
            assert file.read() == b"text " * 1000
    assert code_of(lambda: fs.open("a/t.gz", "wb", compression="none-such")) == "invalid_argument"


@pytest.mark.parametrize(
    "mode", ["r+", "r+b", "rb+", "w+b", "a+", "q", "wr", "wbt", "bw+", None, 5, b"wb", ["wb"]]
)
def test_modes_that_are_refused(fs: SkillFileSystem, mode: Any) -> None:
    assert code_of(lambda: fs.open("a/x.md", mode)) == "invalid_argument"
    assert fs.cat_file("a/x.md") == b"x"


def test_open_files_are_like_others(fs: SkillFileSystem) -> None:
    with fs.open("a/n.md", "wb") as file:
        assert file.writable()
        assert not file.readable()
        assert not file.seekable()
        assert file.write(memoryview(b"abc")) == 3
        assert file.tell() == 3
        file.flush()
    assert file.closed
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")
    with fs.open("a/n.txt", "w", encoding="utf-16", newline="\r\n") as file:
        print("one", file=file)
    assert fs.cat_file("a/n.txt").decode("utf-16") == "one\r\n"
    with fs.open("a/n.zip", "wb") as file:
        import zipfile

        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("inner.txt", "text")
    with fs.open("a/n.zip", "rb") as file, zipfile.ZipFile(io.BytesIO(file.read())) as archive:
        assert archive.read("inner.txt") == b"text"


def test_touch(fs: SkillFileSystem, root: Path) -> None:
    fs.touch("a/new.md")
    assert fs.cat_file("a/new.md") == b""
    os.utime(root / "a/x.md", (1, 1))
    fs.touch("a/x.md", truncate=False)
    assert fs.cat_file("a/x.md") == b"x"
    assert fs.modified("a/x.md").timestamp() > time.time() - 60
    assert fs.info("a/x.md")["mtime"] > time.time() - 60
    fs.touch("a/x.md")
    assert fs.cat_file("a/x.md") == b""
    in_step(fs, root)


# -- where -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["new/SKILL.md", "deep/er/new/SKILL.md", "group/c/SKILL.md", "plain/new/SKILL.md"]
)
@pytest.mark.parametrize("way", ["pipe_file", "open wt", "transaction"])
def test_a_skill_md_makes_a_skill(fs: SkillFileSystem, root: Path, path: str, way: str) -> None:
    revision = fs.revision
    WAYS[way](fs, path, skill_md("new").encode())
    folder = path.rpartition("/")[0]
    assert fs.skill(folder + "/").path == folder
    changes = {(c.kind, c.path) for c in fs.changes(revision).items}
    assert {("added", folder), ("added", path)} <= changes
    in_step(fs, root)
    fs.pipe_file(f"{folder}/more.md", b"more")
    in_step(fs, root)


def test_the_root_can_become_a_skill(root: Path) -> None:
    fs = open_writable(root)
    fs.pipe_file("SKILL.md", skill_md("store").encode())
    fs.pipe_file("x.md", b"x")
    assert [s.path for s in fs.skills()] == [""]
    in_step(fs, root)
    assert code_of(lambda: fs.rm("", recursive=True)) == "invalid_argument"
    assert code_of(lambda: fs.rm("SKILL.md")) == "invalid_argument"
    fs.rm(["x.md", "SKILL.md"])
    assert fs.skills() == []


OUTSIDE = [
    "new.md",
    "plain/new.md",
    "group/new.md",
    "group/new/x.md",
    "new/folder/x.md",
    "new/skill.md",
    "top.md",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_everything_else_outside_skills_is_refused(fs: SkillFileSystem, root: Path, path: str) -> None:
    before = everything(root)
    for way in WAYS.values():
        with pytest.raises(InvalidArgumentError, match=r"no skill; write the SKILL\.md of its folder first"):
            way(fs, path, b"x")
    for call in (fs.mkdir, fs.makedirs, fs.touch):
        assert code_of(lambda call=call: call(path)) == "invalid_argument"
    for source in ("a/x.md", "a/docs"):
        assert code_of(lambda source=source: fs.cp(source, path, recursive=True)) == "invalid_argument"
        assert code_of(lambda source=source: fs.mv(source, path)) == "invalid_argument"
    assert everything(root) == before


@pytest.mark.parametrize("name", [".env", "key.pem", "x.pyc", "y~", ".DS_Store", "id_rsa"])
def test_names_that_are_left_out_are_refused(fs: SkillFileSystem, root: Path, name: str) -> None:
    before = everything(root)
    for path in (f"a/{name}", f"nowhere/{name}"):
        for way in WAYS.values():
            with pytest.raises(InvalidArgumentError, match="left out of skills, and could not be read back"):
                way(fs, path, b"x")
    for call in (fs.cp, fs.mv):
        assert code_of(lambda call=call: call("a/x.md", f"a/{name}")) == "invalid_argument"
    assert everything(root) == before


@pytest.mark.parametrize("name", [".git", "node_modules", "__pycache__", ".skillfs", "venv"])
def test_folders_that_are_left_out_are_refused(fs: SkillFileSystem, root: Path, name: str) -> None:
    before = everything(root)
    calls: list[Callable[[], object]] = [
        lambda: fs.pipe_file(f"a/{name}/x.md", b""),
        lambda: fs.pipe_file(f"{name}/s/SKILL.md", b""),
        lambda: fs.mkdir(f"a/{name}"),
        lambda: fs.makedirs(f"a/{name}/b"),
        lambda: fs.mv("a/docs", f"a/{name}"),
        lambda: fs.cp("a/docs", f"a/{name}", recursive=True),
    ]
    for call in calls:
        assert code_of(call) == "invalid_argument"
    assert everything(root) == before


@pytest.fixture
def linked(root: Path) -> SkillFileSystem:
    write(root, SKILLS)
    outside = write(root.parent / "outside", {"secret.md": "secret"})
    (root / "a/file-link.md").symlink_to("x.md")
    (root / "a/folder-link").symlink_to("docs")
    (root / "a/escape").symlink_to(outside)
    (root / "a/escape.md").symlink_to(outside / "secret.md")
    (root / "a/dangling.md").symlink_to("nowhere.md")
    (root / "skill-link").symlink_to("a")
    return open_writable(root, max_age=0)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "a/file-link.md",
            "a/folder-link/new.md",
            "a/folder-link/y.md",
            "skill-link/x.md",
            "skill-link/new.md",
        ),
        *("a/escape/new.md", "a/escape.md", "a/dangling.md", "a/escape/deep/new.md"),
    ],
)
def test_nothing_is_written_through_a_link(linked: SkillFileSystem, root: Path, path: str) -> None:
    fs, outside = linked, root.parent / "outside"
    before = everything(root), everything(outside)
    for way in WAYS.values():
        with pytest.raises(InvalidArgumentError, match="is a link or leads through one; write to what"):
            way(fs, path, b"x")
    for call in (fs.cp, fs.mv):
        assert code_of(lambda call=call: call("a/docs/y.md", path)) == "invalid_argument"
    assert (everything(root), everything(outside)) == before


def test_links_are_removed_and_not_what_they_lead_to(linked: SkillFileSystem, root: Path) -> None:
    fs = linked
    assert code_of(lambda: fs.mv("a/file-link.md", "a/moved.md")) == "invalid_argument"
    assert code_of(lambda: fs.mv("a/folder-link", "a/moved")) == "invalid_argument"
    assert code_of(lambda: fs.rm("a/folder-link/y.md")) == "invalid_argument"
    assert code_of(lambda: fs.rm("skill-link", recursive=True)) == "invalid_argument"
    assert code_of(lambda: fs.rm("a/dangling.md")) == "not_found"
    fs.rm_file("a/file-link.md")
    fs.rm("a/folder-link", recursive=True)
    assert (root / "a/x.md").exists()
    assert (root / "a/docs/y.md").exists()
    assert not (root / "a/folder-link").is_symlink()
    in_step(fs, root)
    fs.rm("a", recursive=True)
    assert not (root / "a").exists()
    assert everything(root.parent / "outside") == {"secret.md": b"secret"}
    in_step(fs, root)


def test_a_copy_of_a_link_is_a_file(linked: SkillFileSystem, root: Path) -> None:
    linked.cp("a/file-link.md", "a/copy.md")
    assert not (root / "a/copy.md").is_symlink()
    assert linked.cat_file("a/copy.md") == b"x"
    assert code_of(lambda: linked.cp("a/file-link.md", "a/x.md")) == "invalid_argument"


def test_a_linked_skill_md_is_a_link(root: Path) -> None:
    write(root, {**SKILLS, "a/real.md": skill_md("linked")})
    (root / "s").mkdir()
    (root / "s/SKILL.md").symlink_to("../a/real.md")
    fs = open_writable(root)
    assert code_of(lambda: fs.pipe_file("s/SKILL.md", b"")) == "invalid_argument"
    fs.pipe_file("s/x.md", b"x")
    assert code_of(lambda: fs.rm_file("s/SKILL.md")) == "invalid_argument"
    fs.rm("s", recursive=True)
    assert (root / "a/real.md").exists()
    in_step(fs, root)


def test_a_followed_folder_is_only_read(root: Path) -> None:
    write(root, SKILLS)
    other = write(root.parent / "other", {"f.md": "f", "sub/g.md": "g"})
    (root / "a/followed").symlink_to(other)
    fs = open_writable(root, follow=[str(other)])
    assert fs.cat_file("a/followed/sub/g.md") == b"g"
    before = everything(other)
    for call in (
        lambda: fs.pipe_file("a/followed/f.md", b"x"),
        lambda: fs.pipe_file("a/followed/new.md", b"x"),
        lambda: fs.rm("a/followed/f.md"),
        lambda: fs.mv("a/followed/f.md", "a/f.md"),
        lambda: fs.mv("a/x.md", "a/followed/x.md"),
        lambda: fs.mkdir("a/followed/sub/d"),
    ):
        assert code_of(call) == "invalid_argument"
    fs.cp("a/followed/f.md", "a/f.md")
    fs.cp("a/followed", "a/copied", recursive=True)
    assert fs.cat_file("a/f.md") == fs.cat_file("a/copied/f.md") == b"f"
    fs.rm("a", recursive=True)
    assert everything(other) == before
    in_step_with = open_writable(root, follow=[str(other)])
    assert fs.find("") == in_step_with.find("")


@pytest.mark.parametrize(
    "path", ["a/pipe", "a/pipe/x.md", "a/x.md/y.md", "a/docs", "a", "", "a/new.md/", "group"]
)
def test_other_things_in_the_way(fs: SkillFileSystem, root: Path, path: str) -> None:
    os.mkfifo(root / "a/pipe")
    before = everything(root)
    for way in WAYS.values():
        expected = ("is_file", "is_folder", "invalid_argument")
        assert code_of(lambda way=way: way(fs, path, b"x")) in expected
    assert everything(root) == before


@pytest.mark.parametrize(
    "path", ["a/../x", "a//x", "a/./x", "..", "a/\0", "a/\n.md", "a/" + "x" * 256, 5, None, b"a"]
)
def test_malformed_paths(fs: SkillFileSystem, root: Path, path: Any) -> None:
    before = everything(root)
    calls: list[Callable[[], object]] = [
        lambda: fs.pipe_file(path, b""),
        lambda: fs.pipe({path: b""}),
        lambda: fs.open(path, "wb"),
        lambda: fs.touch(path),
        lambda: fs.mkdir(path),
        lambda: fs.makedirs(path),
        lambda: fs.rmdir(path),
        lambda: fs.rm(path),
        lambda: fs.rm([path]),
        lambda: fs.rm_file(path),
        lambda: fs.mv(path, "a/new.md"),
        lambda: fs.mv("a/x.md", path),
        lambda: fs.cp(path, "a/new.md"),
        lambda: fs.cp("a/x.md", path),
        lambda: fs.cp_file("a/x.md", path),
        lambda: fs.put_file(__file__, path),
        lambda: fs.put(__file__, path),
        lambda: fs.write_text(path, ""),
    ]
    for number, call in enumerate(calls):
        assert code_of(call) in ("invalid_argument", "not_found"), number
    assert everything(root) == before


def test_names_equal_under_nfc_are_one(fs: SkillFileSystem, root: Path) -> None:
    composed, decomposed = "a/\u00e9.md", "a/e\u0301.md"
    fs.pipe_file(decomposed, b"1")
    fs.pipe_file(composed, b"2")
    assert fs.find("a/docs", withdirs=False) == ["a/docs/y.md"]
    assert [p for p in fs.ls("a", detail=False) if p.endswith("\u0301.md") or "\u00e9" in p] == [decomposed]
    assert fs.cat_file(composed) == fs.cat_file(decomposed) == b"2"
    write(root, {composed: "3"})
    fs.pipe_file(composed, b"4")
    assert (root / decomposed).read_bytes() == b"2"
    in_step(fs, root)


@pytest.mark.parametrize(
    "name", ["[x].md", "*.md", "a?b.md", "~x", "$HOME", "-rf", "名前.md", " blank .md", "a\\b"]
)
def test_odd_names_are_plain_names(fs: SkillFileSystem, root: Path, name: str) -> None:
    fs.pipe_file(f"a/{name}", b"odd")
    fs.cp(f"a/{name}", "a/copy.md")
    fs.cp(f"a/{name}", "a/docs")
    assert fs.cat_file("a/copy.md") == fs.cat_file(f"a/docs/{name}") == b"odd"
    fs.mv(f"a/{name}", f"a/2{name}")
    before = everything(root)
    fs.rm(f"a/2{name}")
    assert set(before) - set(everything(root)) == {f"a/2{name}"}
    in_step(fs, root)


# -- base paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["group/b/t.md", "group/b/new.md", "group/new/SKILL.md", "new/SKILL.md", "top.md", "group/b", "group"],
)
def test_out_of_bounds_is_not_found_as_for_reading(fs: SkillFileSystem, root: Path, path: str) -> None:
    confined = open_writable(root, base_paths=["a"])
    before = everything(root)
    with pytest.raises(NotFoundError) as read:
        confined.info(path)
    calls: list[Callable[[], object]] = [
        *(lambda way=way: way(confined, path, b"x") for way in WAYS.values()),
        lambda: confined.mkdir(path),
        lambda: confined.makedirs(path),
        lambda: confined.rmdir(path),
        lambda: confined.rm(path, recursive=True),
        lambda: confined.rm_file(path),
        lambda: confined.mv(path, "a/new.md"),
        lambda: confined.cp_file(path, "a/new.md"),
        lambda: confined.cp(path, "a/new.md", recursive=True),
        lambda: confined.cp_file("a/x.md", path),
        lambda: confined.put_file(__file__, path),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(NotFoundError) as caught:
            call()
        assert str(caught.value) == str(read.value), number
    for call in (lambda: confined.mv("a/x.md", path), lambda: confined.cp("a/x.md", path)):
        assert code_of(call) == "not_found"
    assert everything(root) == before
    confined.pipe_file("a/new.md", b"new")
    confined.mv("a/new.md", "a/newer.md")
    confined.rm("a/newer.md")


def test_in_bounds_a_skill_can_be_made(fs: SkillFileSystem, root: Path) -> None:
    confined = open_writable(root, base_paths=["group"])
    confined.pipe_file("group/new/SKILL.md", skill_md("new").encode())
    assert [s.path for s in confined.skills()] == ["group/b", "group/new"]
    assert code_of(lambda: confined.pipe_file("group/plain.md", b"")) == "invalid_argument"
    assert code_of(lambda: confined.mv("group/new", "new")) == "not_found"
    assert code_of(lambda: open_writable(root, base_paths=[]).pipe_file("x/SKILL.md", b"")) == "not_found"


def test_what_lies_in_an_outer_skill_out_of_bounds_stays_there(root: Path) -> None:
    write(root, {"o/SKILL.md": "", "o/g/secret.md": "secret", "o/g/s/SKILL.md": "", "o/g/s/x.md": "x"})
    confined = open_writable(root, base_paths=["o/g"])
    assert confined.find("") == ["o/g/s/SKILL.md", "o/g/s/x.md"]
    assert code_of(lambda: confined.pipe_file("o/g/SKILL.md", b"")) == "not_found"
    assert code_of(lambda: confined.pipe_file("o/g/new.md", b"")) == "not_found"
    assert code_of(lambda: confined.mv("o/g/s/SKILL.md", "o/g/SKILL.md")) == "not_found"
    assert code_of(lambda: confined.rm("o/g", recursive=True)) == "invalid_argument"
    # Without its SKILL.md the rest would be in a skill that this caller does not see.
    assert code_of(lambda: confined.rm("o/g/s/SKILL.md")) == "invalid_argument"
    confined.pipe_file("o/g/t/SKILL.md", b"")
    assert [s.path for s in confined.skills()] == ["o/g/s", "o/g/t"]


# -- folders -----------------------------------------------------------------------------------------------


def test_folders(fs: SkillFileSystem, root: Path) -> None:
    fs.mkdir("a/new/deep")
    assert fs.isdir("a/new/deep")
    fs.makedirs("a/new/deep", exist_ok=True)
    fs.makedirs("", exist_ok=True)
    fs.makedirs("group", exist_ok=True)
    fs.mkdir("a/new/other", create_parents=False)
    for call in (fs.mkdir, fs.makedirs):
        for path in ("a/new", "a/x.md", "a", ""):
            with pytest.raises(FileExistsError):
                call(path)
    with pytest.raises(FileExistsError):
        fs.makedirs("a/x.md", exist_ok=True)
    assert code_of(lambda: fs.mkdir("a/none/deep", create_parents=False)) == "not_found"
    assert code_of(lambda: fs.mkdir("a/x.md/deep")) == "is_file"
    in_step(fs, root)
    fs.rmdir("a/new/deep")
    assert code_of(lambda: fs.rmdir("a/new")) == "invalid_argument"
    assert code_of(lambda: fs.rmdir("a")) == "invalid_argument"
    assert code_of(lambda: fs.rmdir("group")) == "invalid_argument"
    assert code_of(lambda: fs.rmdir("")) == "invalid_argument"
    assert code_of(lambda: fs.rmdir("a/x.md")) == "is_file"
    assert code_of(lambda: fs.rmdir("a/none")) == "not_found"
    in_step(fs, root)


# -- put ---------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(
        tmp_path / "source",
        {
            "new/.early": "sorts before SKILL.md",
            "new/A.md": "so does this",
            "new/SKILL.md": skill_md("new"),
            "new/docs/x.md": "x",
            "new/docs/deep/y.md": "y",
            "new/sub/SKILL.md": skill_md("sub"),
            "new/sub/0.md": "0",
        },
    )


def _order(monkeypatch: pytest.MonkeyPatch, store: object) -> list[str]:
    """The paths of what a store creates, copies and removes, in order."""
    order: list[str] = []
    kind: Any = type(store)
    for name in ("create", "copy", "remove", "remove_folder"):
        original = getattr(kind, name)

        def noted(self: object, *places: Any, _of: Any = original, _name: str = name, **options: Any) -> Any:
            result = _of(self, *places, **options)
            order.append(f"{'-' if _name.startswith('remove') else ''}{places[-1].path}")
            return result

        monkeypatch.setattr(kind, name, noted)
    return order


def test_put_of_a_skill(
    fs: SkillFileSystem, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = _order(monkeypatch, fs._engine.store)
    revision = fs.revision
    with written_once(fs, monkeypatch) as calls:
        fs.put(str(source / "new"), "group/put", recursive=True)
    assert len(calls) == 1
    assert order.index("group/put/SKILL.md") == 0
    assert order.index("group/put/sub/SKILL.md") < order.index("group/put/sub/0.md")
    assert {p.removeprefix("group/put/") for p in fs.find("group/put")} == {
        p.relative_to(source / "new").as_posix() for p in (source / "new").rglob("*") if p.is_file()
    }
    assert all(c.kind == "added" for c in fs.changes(revision).items)
    in_step(fs, root)


def test_put_of_several_skills_with_the_folders_above(fs: SkillFileSystem, root: Path, source: Path) -> None:
    fs.put(str(source), "all/of/them", recursive=True)
    assert fs.isfile("all/of/them/new/docs/x.md")
    (source / "new").rename(source / "two")
    fs.put(str(source) + "/", "", recursive=True)
    assert fs.isfile("two/docs/x.md")
    in_step(fs, root)


@pytest.mark.parametrize(
    ("extra", "target"),
    [
        ("README.md", "all"),
        ("new/.env", "all"),
        ("new/x.pyc", "all"),
        ("other/x.md", "all"),
        ("new/z", "a/x.md/"),
    ],
)
def test_where_one_may_not_be_put_none_is(
    fs: SkillFileSystem, root: Path, source: Path, extra: str, target: str
) -> None:
    write(source, {extra: "refused"})
    before = everything(root)
    assert code_of(lambda: fs.put(str(source), target, recursive=True)) in ("invalid_argument", "is_file")
    assert everything(root) == before


def test_many_files_are_taken_in_once(
    fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = write(root.parent / "many", {f"f{n // 100}/{n}.md": f"{n}" for n in range(400)})
    time.sleep(0.1)
    fs.sync()  # what is young is looked at again whatever happens
    with written_once(fs, monkeypatch) as calls, monkeypatch.context() as patched:
        looks: list[object] = []
        patched.setattr(Engine, "look_again", lambda self, folder: looks.append(folder))
        fs.put(str(many), "a/many", recursive=True)
        fs.pipe({f"a/piped/{n}.md": b"" for n in range(100)})
    assert len(calls) == 2
    assert len(looks) < 8  # of what is young, but never for each file
    assert len(fs.find("a/many")) == 400
    in_step(fs, root)


def test_what_was_done_before_a_failure_is_in_the_index(
    fs: SkillFileSystem, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "new/zz.md").symlink_to("nowhere")
    monkeypatch.setattr("skillfs.fsspec_writing.check_local", lambda local: None)  # as if it went away since
    assert code_of(lambda: fs.put(str(source / "new"), "a/put", recursive=True)) == "not_found"
    assert fs.exists("a/put/docs/x.md")
    in_step(fs, root)


def test_put_arguments(fs: SkillFileSystem, root: Path, source: Path) -> None:
    local = str(source / "new/A.md")
    fs.put_file(local, "a/put.md")
    fs.put_file(Path(local), "a/path.md")
    fs.put_file(source / "new/docs", "a/put-folder")
    fs.upload(local, "a/uploaded.md")
    fs.put([local], ["a/listed.md"])
    fs.put([local], "a/docs")
    for path in ("a/put.md", "a/path.md", "a/uploaded.md", "a/listed.md", "a/docs/A.md"):
        assert fs.cat_file(path) == b"so does this"
    assert fs.ls("a/put-folder") == []
    with pytest.raises(FileExistsError):
        fs.put_file(local, "a/put.md", mode="create")
    with pytest.raises(FileExistsError):
        fs.put([local, local], ["a/not-yet.md", "a/put.md"], mode="create")
    assert not fs.exists("a/not-yet.md")
    calls: list[Callable[[], object]] = [
        lambda: fs.put(str(source / "none"), "a/x"),
        lambda: fs.put(5, "a/x"),
        lambda: fs.put(local, 5),
        lambda: fs.put([local], ["a/1", "a/2"]),
        lambda: fs.put(local, ["a/1"]),
        lambda: fs.put(local, "a/1", maxdepth=0),
        lambda: fs.put(local, "a/1", mode="other"),
        lambda: fs.put_file(str(source / "none"), "a/x"),
        lambda: fs.put_file(None, "a/x"),
        lambda: fs.pipe(None),
        lambda: fs.pipe({"a/1": "text"}),
        lambda: fs.pipe_file("a/1", b"", mode="other"),
        lambda: fs.write_text("a/1", b"bytes"),
        lambda: fs.rm("a/x.md", maxdepth=1),
        lambda: fs.mv("a/x.md", "a/1", maxdepth=1),
        lambda: fs.mv(["a/x.md"], "a/1"),
        lambda: fs.cp("a/x.md", "a/1", on_error="other"),
    ]
    for number, call in enumerate(calls):
        assert code_of(call) in ("invalid_argument", "not_found"), number
    in_step(fs, root)


def test_put_tells_a_callback(fs: SkillFileSystem, source: Path) -> None:
    from fsspec.callbacks import Callback

    callback = Callback()
    fs.put(str(source / "new"), "put", recursive=True, callback=callback)
    assert callback.value == callback.size == 11
    one = Callback()
    fs.put_file(str(source / "new/A.md"), "a/A.md", callback=one)
    assert one.value == one.size == len("so does this")


# -- copies ------------------------------------------------------------------------------------------------


def test_copies_are_new(fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a/x.md").chmod(0o755)
    uuids = {p: fs.info(p)["uuid"] for p in fs.find("")}
    order = _order(monkeypatch, fs._engine.store)
    with written_once(fs, monkeypatch) as calls:
        fs.cp("a", "copied", recursive=True)
    assert len(calls) == 1
    assert order[0] == "copied/SKILL.md"
    assert order.index("copied/inner/SKILL.md") < order.index("copied/inner/z.md")
    assert {p: fs.info(p)["uuid"] for p in uuids} == uuids
    assert not set(uuids.values()) & {fs.info(p)["uuid"] for p in fs.find("copied")}
    assert all(fs.cat_file(f"copied/{p[2:]}") == fs.cat_file(p) for p in fs.find("a"))
    assert (root / "copied/x.md").stat().st_mode & 0o777 == 0o755
    in_step(fs, root)
    assert code_of(lambda: fs.cp("a/x.md", "a/x.md")) == "invalid_argument"
    assert code_of(lambda: fs.cp("a/none.md", "a/y.md")) == "not_found"
    assert code_of(lambda: fs.cp("a/none", "a/y", recursive=True)) == "not_found"


def test_where_one_may_not_be_copied_none_is(fs: SkillFileSystem, root: Path) -> None:
    before = everything(root)
    assert code_of(lambda: fs.cp("a/docs", "elsewhere", recursive=True)) == "invalid_argument"
    assert code_of(lambda: fs.cp(["a/x.md", "a/docs/y.md"], ["a/1.md", "top/2.md"])) == "invalid_argument"
    assert everything(root) == before


# -- removing ----------------------------------------------------------------------------------------------


def test_a_skill_is_removed_from_the_inside(
    fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"a/.git/config": "kept", "a/docs/.DS_Store": "kept"})
    order = _order(monkeypatch, fs._engine.store)
    revision = fs.revision
    with written_once(fs, monkeypatch) as calls:
        fs.rm("a", recursive=True)
    assert len(calls) == 1
    files = [path for path in order if path.endswith(".md")]
    assert files[-1] == "-a/SKILL.md"
    assert files.index("-a/inner/z.md") < files.index("-a/inner/SKILL.md") < files.index("-a/x.md")
    assert everything(root / "a") == {
        ".git": None, ".git/config": b"kept", "docs": None, "docs/.DS_Store": b"kept",
    }  # fmt: skip
    assert not fs.exists("a")
    assert {c.kind for c in fs.changes(revision).items} == {"removed"}
    in_step(fs, root)
    fs.rm(["group/b"], recursive=True)
    assert not (root / "group/b").exists()
    assert fs.skills() == []


REMOVED: list[tuple[Any, bool, set[str]]] = [
    ("a/x.md", False, {"a/x.md"}),
    ("a/docs", True, {"a/docs", "a/docs/y.md"}),
    (["a/x.md", "group/b/t.md"], False, {"a/x.md", "group/b/t.md"}),
    (("a/x.md", "a/x.md"), False, {"a/x.md"}),
    ("a/*.md", False, {"a/x.md", "a/SKILL.md", "a/docs", "a/docs/y.md"}),
    ("a/inner/*.md", False, {"a/inner/z.md", "a/inner/SKILL.md"}),
    ("a/**/y.*", False, {"a/docs/y.md"}),
    ("a/inner/SKILL.md", False, {"a/inner/SKILL.md"}),
    (["a/docs", "a/docs/y.md"], True, {"a/docs", "a/docs/y.md"}),
]


@pytest.mark.parametrize(("path", "recursive", "gone"), REMOVED)
def test_removals(fs: SkillFileSystem, root: Path, path: Any, recursive: bool, gone: set[str]) -> None:
    if path == "a/*.md":
        fs.rm("a/docs", recursive=True)
    before = set(everything(root))
    fs.rm(path, recursive=recursive)
    assert before - set(everything(root)) == {p for p in gone if p in before}
    in_step(fs, root)


KEPT: list[tuple[Any, bool, str]] = [
    ("a/docs", False, "is_folder"),
    ("a", False, "is_folder"),
    ("", True, "invalid_argument"),
    ("/", True, "invalid_argument"),
    ("group", True, "invalid_argument"),
    ("*", True, "invalid_argument"),
    (["a/x.md", "group"], True, "invalid_argument"),
    (["a/x.md", "a/none.md"], False, "not_found"),
    ("a/none.md", True, "not_found"),
    ("a/*.none", True, "not_found"),
    ("plain", True, "not_found"),
    ("top.md", False, "not_found"),
    ("a/SKILL.md", False, "invalid_argument"),
    ("group/b/SKILL.md", True, "invalid_argument"),
    (["a/SKILL.md", "a/x.md"], False, "invalid_argument"),
    (["a/SKILL.md", "a/x.md", "a/inner/SKILL.md"], False, "invalid_argument"),
    ([5], False, "invalid_argument"),
    (5, False, "invalid_argument"),
]


@pytest.mark.parametrize(("path", "recursive", "code"), KEPT)
def test_what_is_not_removed(fs: SkillFileSystem, root: Path, path: Any, recursive: bool, code: str) -> None:
    before = everything(root)
    assert code_of(lambda: fs.rm(path, recursive=recursive)) == code
    assert everything(root) == before


def test_a_skill_md_alone_goes_when_nothing_is_left_without_a_skill(fs: SkillFileSystem, root: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="remove or move the whole folder instead, recursively"):
        fs.rm("group/b/SKILL.md")
    fs.rm("a/inner/SKILL.md")
    assert fs.entry("a/inner/z.md").skill_path == "a"
    fs.rm(["group/b/t.md", "group/b/SKILL.md"])
    assert not fs.exists("group")
    fs.pipe_file("n/SKILL.md", skill_md("n").encode())
    fs.pipe_file("n/deep/m/SKILL.md", skill_md("m").encode())
    fs.rm("n/SKILL.md")
    assert [s.path for s in fs.skills()] == ["a", "n/deep/m"]
    in_step(fs, root)


# -- moves -------------------------------------------------------------------------------------------------


def uuids_of(fs: SkillFileSystem) -> dict[str, str]:
    return {p: info["uuid"] for p, info in fs.find("", withdirs=True, detail=True).items()}


MOVED = [
    ("a/x.md", "a/new.md", "a/new.md"),
    ("a/x.md", "a/docs", "a/docs/x.md"),
    ("a/x.md", "a/docs/", "a/docs/x.md"),
    ("a/x.md", "a/fresh/", "a/fresh/x.md"),
    ("a/x.md", "a/docs/y.md", "a/docs/y.md"),
    ("a/x.md", "group/b/t.md", "group/b/t.md"),
    ("a/x.md", "a/new/deep/x.md", "a/new/deep/x.md"),
    ("a/docs", "a/renamed", "a/renamed"),
    ("a/docs", "a/inner", "a/inner/docs"),
    ("a/docs", "group/b/other", "group/b/other"),
    ("a", "b", "b"),
    ("a", "group", "group/a"),
    ("a", "group/b", "group/b/a"),
    ("a", "far/away/a", "far/away/a"),
    ("a/inner", "inner", "inner"),
    ("a/inner", "", "inner"),
    ("a/inner/z.md", "a/inner/SKILL.md", "a/inner/SKILL.md"),
    ("a/x.md", "a/x.md", "a/x.md"),
    ("a", "a", "a"),
    ("a", "a/", "a"),
]


@pytest.mark.parametrize(("old", "new", "lands"), MOVED)
@pytest.mark.parametrize("name", ["mv", "move", "rename"])
def test_a_move_keeps_identities(
    fs: SkillFileSystem,
    root: Path,
    old: str,
    new: str,
    lands: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, revision, follower = uuids_of(fs), fs.revision, Follower(fs._engine)
    bytes_before = {p: fs.cat_file(p) for p in fs.find("")}
    with written_once(fs, monkeypatch) as calls:
        getattr(fs, name)(old, new)
    assert len(calls) == (old.rstrip("/") != lands)
    along = {p: lands + p[len(old) :] for p in before if p == old or p.startswith(f"{old}/")}
    after = uuids_of(fs)
    for path, to in along.items():
        assert after[to] == before[path]
        if path in bytes_before:
            assert fs.cat_file(to) == bytes_before[path]
    moved = {(c.old_path, c.path) for c in fs.changes(revision).items if c.kind == "moved"}
    assert moved == {(p, to) for p, to in along.items() if p != to}
    follower.catch_up()
    in_step(fs, root)


NOT_MOVED = [
    ("a/none.md", "a/y.md", "not_found"),
    ("top.md", "a/top.md", "not_found"),
    ("", "b", "invalid_argument"),
    ("group", "other", "invalid_argument"),
    ("a", "a/docs", "invalid_argument"),
    ("a", "a/new", "invalid_argument"),
    ("a/docs", "a/docs/inside", "invalid_argument"),
    ("a/docs", "a/x.md", "invalid_argument"),
    ("a/docs", "top", "invalid_argument"),
    ("a/SKILL.md", "a/notes.md", "invalid_argument"),
    ("a/SKILL.md", "c/SKILL.md", "invalid_argument"),
    ("group/b/SKILL.md", "a/b.md", "invalid_argument"),
    ("a/x.md", "", "invalid_argument"),
    ("a/x.md", "top.md", "invalid_argument"),
    ("a/x.md", "a/.env", "invalid_argument"),
    ("a/x.md", "a/docs/y.md/z.md", "is_file"),
]


@pytest.mark.parametrize(("old", "new", "code"), NOT_MOVED)
def test_what_is_not_moved(fs: SkillFileSystem, root: Path, old: str, new: str, code: str) -> None:
    before, revision = everything(root), fs.revision
    assert code_of(lambda: fs.mv(old, new)) == code
    assert everything(root) == before
    assert fs.revision == revision


def test_a_name_that_is_taken_in_the_folder_is_not_replaced(fs: SkillFileSystem, root: Path) -> None:
    write(root, {"a/docs/x.md": "there", "a/inner/docs/old.md": "there"})
    for old, new in (("a/x.md", "a/docs"), ("a/docs", "a/inner")):
        with pytest.raises(FileExistsError):
            fs.mv(old, new)
    assert (root / "a/docs/x.md").read_text() == "there"


def test_a_lone_skill_md_can_be_moved(fs: SkillFileSystem, root: Path) -> None:
    fs.pipe_file("one/SKILL.md", skill_md("one").encode())
    uuid = fs.info("one/SKILL.md")["uuid"]
    assert code_of(lambda: fs.mv("one/SKILL.md", "one/notes.md")) == "invalid_argument"
    fs.mv("one/SKILL.md", "two/SKILL.md")
    assert fs.info("two/SKILL.md")["uuid"] == uuid
    assert not fs.exists("one")
    in_step(fs, root)


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("there", ["nothing", "file", "folder", "folder with the name", "itself"])
def test_moves_end_as_those_of_a_local_filesystem(root: Path, kind: str, there: str) -> None:
    outcomes = []
    for local in (False, True):
        top = root / ("local" if local else "ours")
        write(top, {"a/SKILL.md": skill_md("a"), "a/file": "f", "a/folder/in": "i"})
        target = f"a/{kind}" if there == "itself" else "a/target"
        if there == "file":
            write(top, {"a/target": "t"})
        elif there.startswith("folder"):
            write(top, {"a/target/other": "o", **({f"a/target/{kind}": "n"} if "name" in there else {})})
        try:
            if local:
                LocalFileSystem().mv(f"{top}/a/{kind}", f"{top}/{target}")
            else:
                open_writable(top).mv(f"a/{kind}", target)
            failed = False
        except Exception:
            failed = True
        outcomes.append((failed, everything(top)))
    assert outcomes[0] == outcomes[1]


def test_a_moved_entry_keeps_its_identity_for_a_new_index(fs: SkillFileSystem, root: Path) -> None:
    index = root.parent / "index.sqlite"
    kept = open_writable(root, index=str(index))
    before = uuids_of(kept)
    kept.mv("a", "moved")
    kept.mv("moved/x.md", "moved/docs/y.md")
    del kept
    gc.collect()
    again = SkillFileSystem(root, index=str(index), skip_instance_cache=True)
    assert again.info("moved")["uuid"] == before["a"]
    assert again.info("moved/docs/y.md")["uuid"] == before["a/x.md"]


def test_what_others_move_meanwhile_keeps_its_identity_too(fs: SkillFileSystem, root: Path) -> None:
    before = uuids_of(fs)
    (root / "a/x.md").rename(root / "group/b/theirs.md")
    fs.pipe_file("a/new.md", b"new")
    assert uuids_of(fs)["group/b/theirs.md"] == before["a/x.md"]
    (root / "group/b/theirs.md").rename(root / "a/back.md")
    fs.rm("a/docs", recursive=True)
    assert uuids_of(fs)["a/back.md"] == before["a/x.md"]
    in_step(fs, root)


# -- transactions ------------------------------------------------------------------------------------------


def test_files_of_a_transaction_appear_at_its_end(
    fs: SkillFileSystem, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(root)
    with written_once(fs, monkeypatch) as calls:
        with fs.transaction:
            fs.pipe_file("new/SKILL.md", skill_md("new").encode())
            with fs.open("new/docs/x.md", "w") as file:
                file.write("one")
            fs.put(str(source / "new"), "put", recursive=True)
            fs.pipe({"other/x.md": b"x", "other/SKILL.md": skill_md("other").encode()})
            fs.touch("a/touched.md")
            fs.write_text("a/x.md", "other")
            assert everything(root) == before
        assert len(calls) == 1
    assert {"new", "put", "other", "put/sub"} <= {s.path for s in fs.skills()}
    assert fs.cat_file("new/docs/x.md") == b"one"
    assert fs.cat_file("a/x.md") == b"other"
    assert not fs._intrans
    in_step(fs, root)
    fs.start_transaction()
    fs.pipe_file("a/late.md", b"late")
    assert not fs.exists("a/late.md")
    fs.end_transaction()
    assert fs.exists("a/late.md")
    fs.pipe_file("a/later.md", b"later")
    assert fs.exists("a/later.md")


def test_a_transaction_that_fails_at_its_end_leaves_nothing_in_doubt(fs: SkillFileSystem, root: Path) -> None:
    fs.start_transaction()
    fs.pipe_file("a/1.md", b"1")
    fs.pipe_file("a/2.md", b"2", mode="create")
    (root / "a/2.md").write_text("another's")
    with pytest.raises(FileExistsError):
        fs.end_transaction()
    assert not (root / "a/1.md").exists()
    assert (root / "a/2.md").read_text() == "another's"
    assert not fs._intrans
    assert not list(root.rglob("*~"))
    in_step(fs, root)


def test_what_is_refused_is_refused_at_once_in_a_transaction(fs: SkillFileSystem, root: Path) -> None:
    before = everything(root)
    with fs.transaction:
        assert code_of(lambda: fs.pipe_file("none/x.md", b"")) == "invalid_argument"
        assert code_of(lambda: fs.open("a/.env", "w")) == "invalid_argument"
    assert everything(root) == before


# -- the system refuses ------------------------------------------------------------------------------------

ERRORS = [
    (errno.ENOSPC, "unavailable"),
    (errno.EDQUOT, "unavailable"),
    (errno.EROFS, "read_only"),
    (errno.EACCES, "unreadable"),
    (errno.EPERM, "unreadable"),
    (errno.ENOTEMPTY, "invalid_argument"),
    (errno.EEXIST, "invalid_argument"),
    (errno.ENOENT, "not_found"),
    (errno.EISDIR, "is_folder"),
    (errno.ENOTDIR, "changed"),
    (errno.ELOOP, "changed"),
    (errno.ESTALE, "changed"),
    (errno.EXDEV, "invalid_argument"),
    (errno.EMFILE, "unavailable"),
    (errno.EFBIG, "too_large"),
    (errno.ENAMETOOLONG, "invalid_argument"),
    (errno.EIO, "unavailable"),
    (None, "unavailable"),
]


@pytest.mark.parametrize(("number", "code"), ERRORS)
def test_errors_of_the_system_in_our_words(number: int | None, code: str) -> None:
    error = OSError("odd") if number is None else OSError(number, os.strerror(number), "/srv/host/path")
    with pytest.raises(SkillFSError) as caught, failing(Asked(PathRef(("a", "x.md")), "a/x.md")):
        raise error
    assert caught.value.code == code
    assert "/srv" not in str(caught.value)


def test_folders_without_permission(fs: SkillFileSystem, root: Path) -> None:
    (root / "a").chmod(0o555)
    try:
        with bound_by_permissions():
            for call in (
                lambda: fs.pipe_file("a/x.md", b""),
                lambda: fs.pipe_file("a/new/y.md", b""),
                lambda: fs.rm("a/x.md"),
                lambda: fs.mv("a/x.md", "a/y.md"),
                lambda: fs.cp("a/x.md", "a/y.md"),
                lambda: fs.mkdir("a/new"),
            ):
                assert code_of(call) == "unreadable"
            # What can go goes, and the SKILL.md stays with what cannot.
            assert code_of(lambda: fs.rm("a", recursive=True)) == "unreadable"
    finally:
        (root / "a").chmod(0o755)
    assert fs.exists("a/SKILL.md")
    in_step(fs, root)


def test_a_store_that_cannot_be_written_to() -> None:
    looking = SimpleNamespace(engine=SimpleNamespace(store=SimpleNamespace(writable=False)))
    with pytest.raises(ReadOnlyError):
        Writer(looking)  # type: ignore[arg-type]  # stands for a store that is only read


# -- others ------------------------------------------------------------------------------------------------


def test_two_writers(fs: SkillFileSystem, root: Path) -> None:
    others = [open_writable(root), open_writable(root), fs]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        own = others[number % len(others)]
        try:
            for turn in range(12):
                own.pipe_file("a/shared.md", f"{number} {turn}\n".encode() * 2_000)
                own.pipe_file(f"a/w{number}/{turn}.md", b"own")
                with contextlib.suppress(NotFoundError):
                    own.mv(f"a/w{number}/{turn}.md", f"a/w{number}/moved-{turn}.md")
                lines = set((root / "a/shared.md").read_text().splitlines())
                assert len(lines) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for one in others:
        one.sync()
        in_step(one, root)
    assert len(fs.find("a/w0")) == 12


_WRITER = """
import sys
from tests.writable import open_writable
fs = open_writable(sys.argv[1])
print("ready", flush=True)
for number in range(10**9):
    with fs.open(f"a/big{number % 2}.md", "wb") as file:
        for _ in range(32):
            file.write(bytes([65 + number % 26]) * 65_536)
    fs.pipe({f"new{number}/SKILL.md": b"s", f"new{number}/x.md": b"x"})
    fs.rm(f"new{number}", recursive=True)
"""


def test_a_killed_writer_leaves_nothing_half(fs: SkillFileSystem, root: Path) -> None:
    for delay in (0.05, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(root)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
        fs.sync()
        for path, info in fs.find("a", detail=True).items():
            if "big" in path:
                assert info["size"] == 32 * 65_536
                assert len(set(fs.cat_file(path))) == 1
        for skill in fs.skills():
            assert fs.exists(f"{skill.path}/SKILL.md")
        assert all("~" not in path for path in fs.find(""))
        in_step(fs, root)


def test_mappers_write(fs: SkillFileSystem, root: Path) -> None:
    mapper: Mapping[str, bytes] = fs.get_mapper("a/store")
    mapper["k/1"] = b"one"  # type: ignore[index]  # fsspec is not typed
    assert mapper["k/1"] == b"one"
    del mapper["k/1"]  # type: ignore[attr-defined]
    assert list(mapper) == []
    in_step(fs, root)


# -- what nobody sees stays so -----------------------------------------------------------------------------

HIDDEN = {
    "hid/secret.txt": "secret",
    "hid/d/e.txt": "e",
    "group/notes.txt": "hidden",
    "k/.git/config": "left out",
}


@pytest.fixture
def hiding(root: Path) -> SkillFileSystem:
    write(root, {**SKILLS, **HIDDEN, "cradle/deep/.env": "S=1"})
    (root / "void").mkdir()
    (root / "void2/inner").mkdir(parents=True)
    (root / "hlink").symlink_to("hid")
    (root / "hlink.txt").symlink_to("top.md")
    (root / "wait").mkdir()
    (root / "wait/SKILL.md").symlink_to("nowhere")
    os.mkfifo(root / "hfifo")
    return open_writable(root, max_age=0)


@pytest.mark.parametrize(
    "path",
    [
        *("hid/SKILL.md", "SKILL.md", "group/SKILL.md", "plain/SKILL.md", "void2/SKILL.md", "wait/SKILL.md"),
        *("cradle/SKILL.md", "top.md/SKILL.md", "hlink/SKILL.md", "hfifo/SKILL.md", "top.md/deep/SKILL.md"),
    ],
)
def test_no_skill_is_made_around_what_is_hidden(hiding: SkillFileSystem, root: Path, path: str) -> None:
    fs, before = hiding, everything(root)
    with pytest.raises(InvalidArgumentError, match=f'no skill can be made at "{path}"; choose a new folder'):
        fs.pipe_file(path, b"")
    fs.pipe_file("lone/SKILL.md", b"")
    calls: list[Callable[[], object]] = [
        *(lambda way=way: way(fs, path, b"") for way in WAYS.values()),
        lambda: fs.cp_file("a/SKILL.md", path),
        lambda: fs.mv("lone/SKILL.md", path),
        lambda: fs.pipe({path: b"", f"{path[:-8]}more.md": b""}),
        lambda: fs.put_file(__file__, path),
    ]
    for number, call in enumerate(calls):
        assert code_of(call) == "invalid_argument", number
    fs.rm("lone", recursive=True)
    assert everything(root) == before
    confined = open_writable(root, base_paths=["/", "group/b"])
    with pytest.raises(NotFoundError) as read:
        confined.info(path)
    for way in WAYS.values():
        with pytest.raises(NotFoundError) as caught:
            way(confined, path, b"")
        assert str(caught.value) == str(read.value)
    assert everything(root) == before


@pytest.mark.parametrize("path", ["void", "k", "cradle/deep"])
def test_a_skill_can_be_made_where_nothing_is_or_what_stays_hidden(
    hiding: SkillFileSystem, root: Path, path: str
) -> None:
    hiding.pipe_file(f"{path}/SKILL.md", b"")
    assert hiding.find(path) == [f"{path}/SKILL.md"]
    in_step(hiding, root)


def test_a_folder_that_only_leads_to_skills_can_become_one(fs: SkillFileSystem, root: Path) -> None:
    fs.pipe_file("deep/er/s/SKILL.md", b"")
    fs.pipe_file("deep/SKILL.md", b"")
    assert fs.isdir("deep/er")
    in_step(fs, root)


@pytest.mark.parametrize("target", ["hid", "void2", "plain", "top.md", "hlink", "hfifo", "k", "wait"])
def test_no_skill_is_moved_onto_what_is_hidden(hiding: SkillFileSystem, root: Path, target: str) -> None:
    before = everything(root)
    with pytest.raises(
        InvalidArgumentError, match=f'no skill can be made at "{target}"; choose a new folder'
    ):
        hiding.mv("a", target)
    assert code_of(lambda: hiding.mv("a", f"{target}/")) == "invalid_argument"
    assert everything(root) == before
    hiding.mv("a", "void")
    assert hiding.isfile("void/x.md")
    in_step(hiding, root)


@pytest.mark.parametrize(
    "path",
    [
        *("hid", "hid/secret.txt", "hid/nothing", "hid/secret.txt/n", "top.md", "top.md/n", "void", "void/n"),
        *(
            "hlink",
            "hlink/n",
            "hlink.txt",
            "hlink.txt/n",
            "hfifo",
            "hfifo/n",
            "group/notes.txt/n",
            "hid/d/e.txt",
        ),
    ],
)
def test_what_is_hidden_is_as_if_it_were_missing(hiding: SkillFileSystem, root: Path, path: str) -> None:
    fs, before = hiding, everything(root)
    missing = "/".join(
        "missing" if number == 0 and part != "group" else part for number, part in enumerate(path.split("/"))
    )
    if path.startswith("group/"):
        missing = path.replace("notes.txt", "missing")
    calls: list[Callable[[str], object]] = [
        *(lambda p, way=way: way(fs, p, b"") for way in WAYS.values()),
        fs.mkdir, fs.makedirs, fs.touch, fs.rm, fs.rm_file, fs.rmdir,
        lambda p: fs.mkdir(p, create_parents=False),
        lambda p: fs.mv("a/x.md", p), lambda p: fs.mv("a/docs", p), lambda p: fs.mv(p, "a/y"),
        lambda p: fs.cp("a/x.md", p), lambda p: fs.cp_file("a/docs", p), lambda p: fs.put_file(__file__, p),
    ]  # fmt: skip
    for number, call in enumerate(calls):
        said = []
        for one in (path, missing):
            with pytest.raises(SkillFSError) as caught:
                call(one)
            said.append((type(caught.value), str(caught.value).replace(one, "…")))
        assert said[0] == said[1], number
    assert everything(root) == before


@pytest.mark.parametrize("path", ["a/SKILL.md", "a/new/SKILL.md", "a/docs/SKILL.md/deep", "a/new/SKILL.md/d"])
def test_no_folder_is_made_that_bears_the_name_of_a_skill_md(
    fs: SkillFileSystem, root: Path, path: str
) -> None:
    before = everything(root)
    for call in (
        lambda: fs.mkdir(path),
        lambda: fs.makedirs(path),
        lambda: fs.mv("a/inner", path),
        lambda: fs.pipe_file(f"{path}/x.md", b""),
        lambda: fs.cp("a/inner", path, recursive=True),
    ):
        assert code_of(call) in ("invalid_argument", "is_file")
    assert everything(root) == before


# -- what happens between opening and closing --------------------------------------------------------------


@pytest.mark.parametrize("path", ["a/new.md", "a/docs/y.md", "a/fresh/deep/new.md", "a/inner/new.md"])
@pytest.mark.parametrize("loss", ["rm", "others remove", "mv", "mv and anew", "marker", "others move"])
def test_a_file_whose_skill_is_gone_is_gone_too(
    fs: SkillFileSystem, root: Path, path: str, loss: str
) -> None:
    file = fs.open(path, "wb")
    file.write(b"late")
    if loss == "rm":
        fs.rm("a", recursive=True)
    elif loss == "others remove":
        for name in ("SKILL.md", "inner/SKILL.md"):
            (root / "a" / name).unlink()
    elif loss == "others move":
        (root / "a").rename(root / "b")
        write(root, {"a/SKILL.md": skill_md("a"), "a/docs/y.md": "y", "a/inner/SKILL.md": skill_md("a")})
    elif loss == "marker":
        (root / "a/SKILL.md").rename(root / "a/S.md")
        (root / "a/inner/SKILL.md").rename(root / "a/inner/S.md")
    else:
        fs.mv("a", "b")
        if loss == "mv and anew":
            fs.pipe({"a/SKILL.md": b"", "a/docs/y.md": b"y", "a/inner/SKILL.md": b""})
    with pytest.raises(SkillFSError, match="changed meanwhile; look again and try again"):
        file.close()
    assert file.closed
    assert b"late" not in everything(root).values()
    assert not list(root.rglob("*~"))
    if loss == "rm":
        assert not (root / "a").exists()
    fs.sync()
    in_step(fs, root)


def test_a_file_that_another_skill_takes_over_lands_there(fs: SkillFileSystem, root: Path) -> None:
    with fs.open("a/inner/new.md", "wb") as file:
        file.write(b"new")
        fs.rm("a/inner/SKILL.md")
    assert fs.cat_file("a/inner/new.md") == b"new"
    in_step(fs, root)


@pytest.mark.parametrize("transaction", [False, True])
def test_a_forked_child_does_not_finish_a_file_of_its_parent(
    fs: SkillFileSystem, root: Path, transaction: bool
) -> None:
    if transaction:
        fs.start_transaction()
    file = fs.open("a/fresh/new.md", "wb")
    file.write(b"parent's")
    child = os.fork()
    if child == 0:
        codes = []
        for call in (lambda: file.write(b"child's"), file.close):
            try:
                call()
            except InvalidArgumentError:
                codes.append(1)
        os._exit(0 if codes == [1, 1] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not (root / "a/fresh/new.md").exists()
    file.close()
    if transaction:
        fs.end_transaction()
    assert fs.cat_file("a/fresh/new.md") == b"parent's"


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"encoding": "none-such"}, "w"),
        ({"encoding": "rot13"}, "w"),
        ({"encoding": 5}, "w"),
        ({"errors": "none-such"}, "a"),
        ({"errors": 5}, "w"),
        ({"newline": "z"}, "x"),
        ({"newline": 5}, "w"),
    ],
)
@pytest.mark.parametrize("transaction", [False, True])
def test_how_text_is_written_is_checked_first(
    fs: SkillFileSystem, root: Path, options: dict[str, Any], mode: str, transaction: bool
) -> None:
    before = everything(root)
    with fs.transaction if transaction else contextlib.nullcontext():
        assert code_of(lambda: fs.open("a/new/n.md", mode, **options)) == "invalid_argument"
        gc.collect()
    assert everything(root) == before


@pytest.mark.parametrize(("mode", "data"), OPENED)
def test_open_files_are_not_pickled(fs: SkillFileSystem, mode: str, data: Any) -> None:
    mode, *compression = mode.split()
    with fs.open("a/n.md", mode, compression=compression[0] if compression else None) as file:
        file.write(data)
        with pytest.raises(TypeError, match="open for writing cannot be pickled; close it first"):
            pickle.dumps(file)


# -- what a killed writer leaves ---------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from tests.writable import open_writable
fs = open_writable(sys.argv[1])
file = fs.open("a/docs/late/big.md", "wb")
file.write(b"half")
other = fs.open("a/docs/big.md", "wb")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(fs: SkillFileSystem, root: Path) -> SkillFileSystem:
    subprocess.run([sys.executable, "-c", _KILLED, str(root)], cwd=Path(__file__).parents[1], check=False)
    assert len(list(root.rglob(".skillfs-*~"))) == 2
    return fs


def test_what_a_killed_writer_leaves_goes_with_the_folder(killed: SkillFileSystem, root: Path) -> None:
    killed.rmdir("a/docs/late")
    assert not (root / "a/docs/late").exists()
    killed.rm("a/docs", recursive=True)
    assert not (root / "a/docs").exists()
    in_step(killed, root)


def test_what_a_killed_writer_leaves_goes_at_the_next_write(killed: SkillFileSystem, root: Path) -> None:
    with killed.open("a/docs/mine.md", "wb") as mine:
        mine.write(b"mine")
        assert len(list((root / "a/docs").glob(".skillfs-*~"))) == 1
        killed.pipe_file("a/docs/z.md", b"z")  # sweeps, and not what is being written
        assert len(list((root / "a/docs").glob(".skillfs-*~"))) == 1
    assert killed.cat_file("a/docs/mine.md") == b"mine"
    assert not list((root / "a/docs").glob(".skillfs-*~"))


def test_temporary_files_are_never_seen(root: Path) -> None:
    write(root, SKILLS)
    fs = open_writable(root, ignore=["!*~"], max_age=0)
    with fs.open("a/n.md", "wb") as file:
        file.write(b"n")
        fs.sync()
        assert not [path for path in fs.find("a") if "~" in path]
    fs.pipe_file("a/u~", b"u")
    assert "a/u~" in fs.find("a")


# -- links and what they lead to ---------------------------------------------------------------------------


@pytest.mark.parametrize("link", ["../group/b/t.md", "../group/b", "../group/b/new.md", "../new"])
@pytest.mark.parametrize(
    "act",
    [
        lambda fs: fs.rm("group/b", recursive=True),
        lambda fs: fs.rm("group/b/t.md"),
        lambda fs: fs.mv("group/b", "new"),
        lambda fs: fs.mv("group/b/t.md", "group/b/new.md"),
        lambda fs: fs.pipe_file("group/b/new.md", b"new"),
        lambda fs: fs.pipe_file("new/SKILL.md", b"new"),
        lambda fs: fs.pipe_file("group/b/t.md", b"other"),
    ],
)
def test_links_are_as_true_as_what_they_lead_to(
    fs: SkillFileSystem, root: Path, link: str, act: Callable[[SkillFileSystem], object]
) -> None:
    (root / "a/link").symlink_to(link)
    time.sleep(0.05)
    fs.sync()  # what is young is looked at again whatever happens
    act(fs)
    in_step(fs, root)


def test_a_skill_md_that_is_a_link_is_lost_with_its_file(fs: SkillFileSystem, root: Path) -> None:
    (root / "a/SKILL.md").unlink()
    (root / "a/SKILL.md").symlink_to("../group/b/SKILL.md")
    fs = open_writable(root, max_age=1e9)
    before = everything(root)
    for call in (
        lambda: fs.rm("group/b", recursive=True),
        lambda: fs.rm(["group/b/t.md", "group/b/SKILL.md"]),
        lambda: fs.mv("group/b", "b"),
        lambda: fs.mv("a", "group/a"),
    ):
        assert code_of(call) == "invalid_argument"
    assert everything(root) == before
    time.sleep(0.05)
    fs.sync()  # what is young is looked at again whatever happens
    fs.pipe_file("group/b/SKILL.md", skill_md("other").encode())
    assert [skill.name for skill in fs.skills()] == ["other", "inner", "other"]
    in_step(fs, root)
    fs.mv("a", "moved")
    assert fs.isfile("moved/x.md")
    fs.rm(["moved", "group/b"], recursive=True)
    assert fs.skills() == []
    in_step(fs, root)


def test_a_copy_holds_what_links_lead_to(linked: SkillFileSystem, root: Path) -> None:
    linked.cp("a", "copied", recursive=True)
    assert (root / "copied/folder-link/y.md").read_text() == "y"
    assert not (root / "copied/folder-link").is_symlink()
    assert (root / "copied/file-link.md").read_text() == "x"
    in_step(linked, root)


@pytest.mark.parametrize(
    ("link", "target"), [("a/docs/up", ".."), ("a/docs/self", "."), ("a/docs/two", "../inner")]
)
def test_links_that_a_copy_does_not_follow(
    linked: SkillFileSystem, root: Path, link: str, target: str
) -> None:
    (root / link).symlink_to(target)
    before = everything(root)
    assert code_of(lambda: linked.cp("a", "copied", recursive=True)) == "invalid_argument"
    assert everything(root) == before


def test_touch_leaves_other_names_of_a_file_alone(fs: SkillFileSystem, root: Path) -> None:
    outside = root.parent / "outside.md"
    outside.write_text("shared")
    os.utime(outside, (1, 1))
    os.link(outside, root / "a/shared.md")
    uuid = fs.info("a/shared.md")["uuid"]
    fs.touch("a/shared.md", truncate=False)
    assert outside.stat().st_mtime == 1
    assert fs.info("a/shared.md")["mtime"] > 1
    assert fs.info("a/shared.md")["uuid"] == uuid
    assert fs.cat_file("a/shared.md") == b"shared"
    in_step(fs, root)


# -- bulk calls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        ["a/q", "a/q/r"],
        ["a/q/r/s", "a/q"],
        ["n/SKILL.md", "n/d", "n/d/e/f"],
        ["a/\u00e9.md", "a/e\u0301.md"],
        ["a/\u00e9/1.md", "a/e\u0301/2.md"],
        ["n/SKILL.md", "n/\u00e9.md", "n/e\u0301.md"],
    ],
)
@pytest.mark.parametrize("transaction", [False, True])
def test_what_cannot_lie_together_is_not_written(
    fs: SkillFileSystem, root: Path, files: list[str], transaction: bool
) -> None:
    before = everything(root)

    def act() -> None:
        with fs.transaction if transaction else contextlib.nullcontext():
            fs.pipe(dict.fromkeys(files, b"x"))

    assert code_of(act) in ("invalid_argument", "is_file")
    assert everything(root) == before


LOCAL_TROUBLE: dict[str, Callable[[Path], object]] = {
    "fifo": lambda path: os.mkfifo(path),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": lambda path: (path.write_text("x"), path.chmod(0)),
}


@pytest.mark.parametrize("trouble", LOCAL_TROUBLE)
@pytest.mark.parametrize("transaction", [False, True])
def test_what_cannot_be_read_is_not_put(
    fs: SkillFileSystem, root: Path, source: Path, trouble: str, transaction: bool
) -> None:
    LOCAL_TROUBLE[trouble](source / "new/docs/zz")
    before = everything(root)

    def act() -> None:
        with fs.transaction if transaction else contextlib.nullcontext():
            fs.put(str(source / "new"), "a/put", recursive=True)

    with bound_by_permissions(), pytest.raises(SkillFSError, match='the local file "new/docs/zz" ') as caught:
        act()
    assert str(source) not in str(caught.value)
    assert everything(root) == before


def test_refusals_of_put_name_the_whole_path(fs: SkillFileSystem, source: Path) -> None:
    write(source, {"new/docs/.env": "S=1"})
    with pytest.raises(
        InvalidArgumentError, match=r'"all/new/docs/\.env" cannot be written: the name "\.env"'
    ):
        fs.put(str(source), "all", recursive=True)


def test_errors_between_two_places_name_the_right_one(fs: SkillFileSystem, root: Path) -> None:
    write(root, {"a/closed.md": "c", "a/ro/in.md": "i", "a/rw/in.md": "i"})
    (root / "a/closed.md").chmod(0)
    (root / "a/ro").chmod(0o555)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: fs.cp("a/closed.md", "a/new.md"), r'"a/closed\.md" may not be read'),
        (lambda: fs.cp("a/x.md", "a/ro/x.md"), r'"a/ro/x\.md" may not be written'),
        (lambda: fs.mv("a/x.md", "a/ro/x.md"), r'"a/ro/x\.md" may not be written'),
        (lambda: fs.mv("a/ro/in.md", "a/rw/out.md"), r'"a/ro/in\.md" may not be written'),
    ]
    try:
        with bound_by_permissions():
            for call, said in cases:
                with pytest.raises(SkillFSError, match=said):
                    call()
    finally:
        (root / "a/ro").chmod(0o755)


# -- one transaction at a time -----------------------------------------------------------------------------


def test_a_second_transaction_is_refused_and_the_first_goes_on(fs: SkillFileSystem, root: Path) -> None:
    with fs.transaction as first:
        fs.pipe_file("a/1.md", b"1")
        with pytest.raises(InvalidArgumentError, match="a transaction is under way; end it"), fs.transaction:
            pass
        assert code_of(fs.start_transaction) == "invalid_argument"
        fs.pipe_file("a/2.md", b"2")
    assert (fs.cat_file("a/1.md"), fs.cat_file("a/2.md")) == (b"1", b"2")
    assert code_of(first.start) == "invalid_argument"
    fs.start_transaction()
    fs.pipe_file("a/3.md", b"3")
    assert code_of(fs.start_transaction) == "invalid_argument"
    fs.end_transaction()
    assert fs.cat_file("a/3.md") == b"3"


@pytest.mark.parametrize(("mode", "data"), OPENED)
@pytest.mark.parametrize("kept", [True, False])
def test_a_transaction_with_an_open_file_writes_nothing(
    fs: SkillFileSystem, root: Path, mode: str, data: Any, kept: bool
) -> None:
    before, held = everything(root), []
    mode, *compression = mode.split()

    def act() -> None:
        with fs.transaction:
            fs.pipe_file("a/whole.md", b"whole")
            file = fs.open("a/open.md", mode, compression=compression[0] if compression else None)
            file.write(data)
            if kept:
                held.append(file)
            del file
            gc.collect()

    with pytest.raises(
        InvalidArgumentError, match=r'"a/open\.md" was not closed before the transaction ended'
    ):
        act()
    assert everything(root) == before
    assert not fs._intrans
    fs.pipe_file("a/after.md", b"after")
    assert fs.exists("a/after.md")


def test_another_thread_does_not_wait_for_a_transaction(fs: SkillFileSystem) -> None:
    fs.start_transaction()
    fs.pipe_file("a/mine.md", b"mine")
    thread = threading.Thread(target=lambda: fs.pipe_file("a/theirs.md", b"theirs"))
    thread.start()
    thread.join()
    assert fs.exists("a/theirs.md")
    assert not fs.exists("a/mine.md")
    fs.end_transaction()
    assert fs.exists("a/mine.md")


def test_no_room_for_what_a_transaction_holds(
    fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = everything(root)
    held = pytest.raises(StoreUnavailableError, match="cannot be held until the transaction ends")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limit[1]))
        with held, fs.transaction:
            fs.pipe_file("a/big.md", b"z" * 3_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert everything(root) == before
    assert not fs._intrans


# -- mounts ------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(root: Path) -> SkillFileSystem:
    write(root / "1", SKILLS)
    write(root / "2", {"c/SKILL.md": skill_md("c"), "c/u.md": "u"})
    return open_writable({"one": root / "1", "two": root / "2"}, index=":memory:")


def test_writing_to_mounts(mounted: SkillFileSystem, root: Path) -> None:
    mounted.pipe({"one/a/1.md": b"1", "two/c/2.md": b"2", "two/new/SKILL.md": b"", "two/new/x.md": b"x"})
    uuid = mounted.info("one/a/1.md")["uuid"]
    mounted.mv("one/a/1.md", "one/a/docs")
    assert mounted.info("one/a/docs/1.md")["uuid"] == uuid
    assert mounted.cat_file("two/new/x.md") == b"x"
    with mounted.transaction:
        mounted.pipe_file("one/t/SKILL.md", b"")
        mounted.pipe_file("two/t/SKILL.md", b"")
        mounted.pipe_file("one/t/x.md", b"x")
    assert mounted.isfile("one/t/x.md")
    assert mounted.isfile("two/t/SKILL.md")
    mounted.rm(["one/t", "two/t"], recursive=True)
    for path in ("one/nowhere/x.md", "two/x.md"):
        with pytest.raises(InvalidArgumentError, match=f'"{path}" would lie in no skill'):
            mounted.pipe_file(path, b"")
    for path in ("three/SKILL.md", "SKILL.md"):
        assert code_of(lambda path=path: mounted.pipe_file(path, b"")) == "not_found"
    for path in ("", "one"):
        for call in (
            lambda path=path: mounted.pipe_file(path, b""),
            lambda path=path: mounted.rm(path, recursive=True),
            lambda path=path: mounted.mv(path, "two/c/d"),
            lambda path=path: mounted.rmdir(path),
            lambda path=path: mounted.mkdir(path),
        ):
            assert code_of(call) in ("invalid_argument", "is_folder", "not_found")
    for number, path in ((1, "one"), (2, "two")):
        in_step(mounted._table.mounts[number - 1], root / str(number))
        assert mounted.find(path) == [f"{path}/{p}" for p in open_writable(root / str(number)).find("")]


def test_from_mount_to_mount(mounted: SkillFileSystem, root: Path) -> None:
    before = mounted.info("one/a/x.md")["uuid"]
    mounted.cp("one/a/x.md", "two/c")
    assert mounted.cat_file("two/c/x.md") == b"x"
    mounted.cp("one/a", "two/copied", recursive=True)
    mounted.mv("one/a", "two/c")
    assert not mounted.exists("one/a")
    assert mounted.cat_file("two/c/a/inner/z.md") == mounted.cat_file("two/copied/inner/z.md") == b"z"
    assert mounted.info("two/c/a/x.md")["uuid"] != before
    assert code_of(lambda: mounted.mv("two/c/u.md", "one/u.md")) == "invalid_argument"
    assert mounted.exists("two/c/u.md")
    for number in (1, 2):
        in_step(mounted._table.mounts[number - 1], root / str(number))
