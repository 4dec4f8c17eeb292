"""Requests of the kernel, called as libfuse calls them, without a kernel."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skillfs import SkillFileSystem
from skillfs.errors import ChangedError
from skillfs.fuse.operations import KEPT_SECONDS, STILL_SECONDS, Operations
from tests.conftest import skill_md, write
from tests.fuse.test_view import view_of
from tests.test_unknown_sizes import Unmeasured

Opener = Callable[..., SkillFileSystem]
FILE = "/pdf/a.txt"


@pytest.fixture
def store(root: Path) -> Path:
    return write(root, {"pdf/SKILL.md": skill_md("pdf"), "pdf/a.txt": "first", "pdf/b/c.txt": "c"})


@pytest.fixture
def operations(store: Path, open_fs: Opener) -> Any:
    made = Operations(view_of(open_fs()))
    yield made
    made.destroy("/")


def opened(operations: Operations, path: str = FILE) -> Any:
    info = SimpleNamespace(fh=0, direct_io=0, keep_cache=0)
    assert operations.open(path, info) == 0
    return info


def swap(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


# -- files -------------------------------------------------------------------------------------------------


def test_reading_by_offset(operations: Operations) -> None:
    info = opened(operations)
    assert [operations.read(FILE, 2, at, info) for at in (0, 3, 4, 5, 99)] == [b"fi", b"st", b"t", b"", b""]
    operations.release(FILE, info)


def test_a_version_that_is_gone_is_told_and_never_mixed(operations: Operations, store: Path) -> None:
    info = opened(operations)
    swap(store / "pdf/a.txt", "another")
    with pytest.raises(ChangedError) as refused:
        operations.read(FILE, 10, 0, info)
    assert refused.value.errno == errno.ESTALE
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        operations.getattr(FILE, info.fh)
    assert operations.getattr(FILE).size == 7


def test_a_version_that_is_gone_is_given_up_by_whoever_looks(operations: Operations, store: Path) -> None:
    for look in (
        lambda: operations.getattr(FILE),
        lambda: opened(operations),
    ):
        info = opened(operations)
        assert operations.getattr(FILE, info.fh).size == (store / "pdf/a.txt").stat().st_size
        swap(store / "pdf/a.txt", (store / "pdf/a.txt").read_text() + "!")
        look()
        for work in (
            lambda: operations.getattr(FILE, info.fh),  # noqa: B023  # called at once
            lambda: operations.read(FILE, 10, 0, info),  # noqa: B023  # called at once
        ):
            with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
                work()


def test_a_listing_gives_up_nothing(operations: Operations, store: Path) -> None:
    handle = operations.opendir("/pdf")
    swap(store / "pdf/a.txt", "longer than before")
    info = opened(operations)
    known = {name: known for _, name, _, known in operations.listed(handle, 0)}
    assert known == {b".": False, b"..": False, b"SKILL.md": True, b"a.txt": False, b"b": True}
    assert operations.read(FILE, 100, 0, info) == b"longer than before"


def test_two_versions_that_are_open_at_once_share_no_pages(operations: Operations, store: Path) -> None:
    first, same = opened(operations), opened(operations)
    assert not first.direct_io
    assert not same.direct_io
    swap(store / "pdf/a.txt", "another")
    other = opened(operations)
    assert other.direct_io
    assert operations.read(FILE, 10, 0, other) == b"another"
    for info in (first, same):
        operations.release(FILE, info)
    assert not opened(operations).direct_io


def test_pages_are_kept_for_a_version_that_was_opened_before(operations: Operations, store: Path) -> None:
    time.sleep(0.1)  # until it is old enough to be vouched for
    kept = []
    for text in (None, None, "again", None):
        if text is not None:
            swap(store / "pdf/a.txt", text)
            time.sleep(0.1)
        info = opened(operations)
        kept.append(bool(info.keep_cache))
        operations.release(FILE, info)
    assert kept == [False, True, False, True]


def test_no_pages_are_kept_of_what_may_change_without_a_trace(operations: Operations, store: Path) -> None:
    for _ in range(2):
        swap(store / "pdf/a.txt", "young")
        assert not opened(operations).keep_cache


def test_a_file_is_forgotten_by_its_handle_whatever_its_path_is_now(operations: Operations) -> None:
    info = opened(operations)
    operations.release("/pdf/renamed.txt", info)
    assert len(operations._versions) == 0
    assert not operations._versions._at


def test_the_kernel_asks_again_when_it_believes_something_else(operations: Operations, store: Path) -> None:
    asked: list[str] = []
    operations.ask_again = asked.append
    operations.getattr(FILE)
    opened(operations)
    assert asked == []
    swap(store / "pdf/a.txt", "longer than before")
    for _ in range(2):
        assert opened(operations).direct_io
        assert asked == [FILE]


def test_what_was_listed_counts_as_told(operations: Operations, store: Path) -> None:
    asked: list[str] = []
    operations.ask_again = asked.append
    handle = operations.opendir("/pdf")
    assert len(list(operations.listed(handle, 0))) == 5
    swap(store / "pdf/a.txt", "longer than before")
    for _ in range(2):
        operations.release(FILE, opened(operations))
        assert asked == [FILE]


def test_what_an_open_file_said_counts_as_told(operations: Operations, store: Path) -> None:
    asked: list[str] = []
    operations.ask_again = asked.append
    info = opened(operations)
    operations.getattr(FILE, info.fh)
    operations.release(FILE, info)
    swap(store / "pdf/a.txt", "longer than before")
    opened(operations)
    assert asked == [FILE]


def test_nothing_is_kept_while_a_version_is_open_that_is_no_more(operations: Operations, store: Path) -> None:
    config = SimpleNamespace()
    operations.init_with_config(None, config)
    first, second = opened(operations), opened(operations)
    assert config.attr_timeout == KEPT_SECONDS
    swap(store / "pdf/a.txt", "another")
    operations.getattr("/pdf/b/c.txt")
    assert config.attr_timeout == KEPT_SECONDS
    operations.getattr(FILE)
    assert config.attr_timeout == 0
    operations.release(FILE, first)
    assert config.attr_timeout == 0
    operations.release(FILE, second)
    assert config.attr_timeout == KEPT_SECONDS
    first = opened(operations)
    swap(store / "pdf/a.txt", "yet another")
    other = opened(operations)
    assert config.attr_timeout == 0
    operations.release(FILE, other)
    assert config.attr_timeout == 0
    operations.release(FILE, first)
    assert config.attr_timeout == KEPT_SECONDS


@pytest.mark.parametrize("tells", [{}, {"ETag": '"one"'}], ids=["nothing", "version"])
def test_a_file_of_unknown_size_is_read_past_the_pages(
    monkeypatch: pytest.MonkeyPatch, tells: dict[str, str]
) -> None:
    monkeypatch.setattr(Unmeasured, "store", {})
    monkeypatch.setattr(Unmeasured, "pseudo_dirs", [""])
    monkeypatch.setattr(Unmeasured, "tells", tells)
    backing = Unmeasured()
    backing.pipe_file("/k/a/SKILL.md", skill_md("a").encode())
    backing.pipe_file("/k/a/text.md", b"0123456789" * 1000)
    operations = Operations(view_of(SkillFileSystem("/k", fs=backing, index=":memory:")))
    path = "/a/text.md"
    for _ in range(2):
        assert operations.getattr(path).size == 0
        infos = [opened(operations, path) for _ in range(2)]
        assert operations.getattr(path).size == 0
        for info in infos:
            assert (info.direct_io, info.keep_cache) == (True, False)
            assert operations.read(path, 10, 5003, info) == b"3456789012"
            operations.release(path, info)
    operations.destroy("/")


# -- folders -----------------------------------------------------------------------------------------------


def test_a_listing_goes_on_where_a_buffer_was_full(operations: Operations, store: Path) -> None:
    handle = operations.opendir("/pdf")
    whole = [name for _, name, _, _ in operations.listed(handle, 0)]
    assert whole == [b".", b"..", b"SKILL.md", b"a.txt", b"b"]
    write(store, {"pdf/aa.txt": "new"})  # the listing stays what it was when it was begun
    pieces = []
    at = 0
    while piece := list(operations.listed(handle, at))[:2]:
        pieces += [name for _, name, _, _ in piece]
        at = piece[-1][0]
    assert pieces == whole
    operations.releasedir("/pdf", handle)
    assert not operations._folders


# -- links, attributes -------------------------------------------------------------------------------------


def test_readlink_of_what_is_no_link(operations: Operations) -> None:
    with pytest.raises(OSError, match="Invalid argument") as refused:
        operations.readlink(FILE)
    assert refused.value.errno == errno.EINVAL


def test_extended_attributes(operations: Operations) -> None:
    names = operations.listxattr(FILE)
    assert names == [f"user.skillfs.{name}" for name in ("uuid", "skill", "md5", "sha256")]
    assert operations.getxattr(FILE, "user.skillfs.md5") == b"8b04d5e3775d298e78455efc5ca404d5"
    for name in ("user.skillfs.other", "user.other", "security.capability", "user.skillfs.server"):
        with pytest.raises(OSError, match="No data") as refused:
            operations.getxattr(FILE, name)
        assert refused.value.errno == errno.ENODATA


def test_the_root_tells_who_serves_it_and_nothing_about_where_the_store_is(
    operations: Operations, store: Path
) -> None:
    assert "user.skillfs.server" in operations.listxattr("/")
    value = operations.getxattr("/", "user.skillfs.server").decode()
    assert json.loads(value) == {"pid": os.getpid()}


def test_totals(operations: Operations, store: Path) -> None:
    told = operations.statfs("/")
    assert (told["f_files"], told["f_blocks"], told["f_bsize"]) == (3, 1, 4096)


def test_what_the_kernel_keeps(store: Path, tmp_path: Path, open_fs: Opener) -> None:
    seconds = []
    fs = open_fs(objects=tmp_path / "objects")
    fs.snapshot("one")
    for some in (fs, open_fs(objects=tmp_path / "objects", at="one")):
        config = SimpleNamespace()
        ready = []
        operations = Operations(view_of(some), lambda: ready.append(True))  # noqa: B023  # called at once
        operations.init_with_config(None, config)
        assert ready == [True]
        assert config.use_ino == 1
        assert config.entry_timeout == config.attr_timeout
        seconds.append(config.attr_timeout)
        operations.destroy("/")
    assert seconds == [KEPT_SECONDS, STILL_SECONDS]
