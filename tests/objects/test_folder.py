"""Folders of objects: on a disk, in memory, and on S3."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.errors import (
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.objects import locking, temporary
from skillfs.objects.folder import (
    ObjectFolder,
    bad_name,
    blob_name,
    check_name,
    check_prefix,
    digest_of_name,
    is_name,
    manifest_name,
)
from skillfs.objects.local import LocalObjects, check_outside
from skillfs.objects.opening import open_objects
from tests.conftest import write
from tests.objects.harness import digest_of
from tests.privileges import bound_by_permissions

A, B = (blob_name(digest_of(text)) for text in (b"a", b"b"))
RECORD = f"snapshots/20260102T030405678901Z-{'ab' * 32}"


# -- names ---------------------------------------------------------------------------------------------------


@given(digest=st.binary(min_size=32, max_size=32))
def test_names_lead_back_to_digests(digest: bytes) -> None:
    for name in (blob_name(digest), manifest_name(digest)):
        assert check_name(name) == name
        assert digest_of_name(name) == digest
        assert is_name(bad_name(name))


@given(text=st.text(max_size=80) | st.from_regex(r"(blobs|labels|bad)/[./\\a-f0-9\n]{1,70}", fullmatch=True))
def test_what_is_a_name_stays_in_its_folder(text: str) -> None:
    if is_name(text):
        assert text.isascii()
        assert text.isprintable()
        assert not any(part.startswith(".") or not part for part in text.split("/"))
        assert len(text.split("/")) == (3 if text.startswith("blobs/") else 2)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "lock",
        "tmp/0123456789abcdef/1",
        "labels/",
        "labels/.x",
        "labels/../x",
        "labels/a/b",
        "/labels/a",
        "labels/a\n",
        "labels/" + "a" * 101,
        "blobs/ab/" + "0" * 61,
        "blobs/AB/" + "0" * 62,
        "blobs/../" + "0" * 62,
        "blobs/ab/" + "0" * 61 + ".",
        "manifests/" + "0" * 63,
        "manifests/" + "g" * 64,
        "snapshots/" + "0" * 64,
        RECORD + "\n",
        "bad/.",
        "labels/é",
    ],
)
def test_other_names_are_refused_everywhere(quick: ObjectFolder, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: quick.open(name),
        lambda: quick.get(name),
        lambda: quick.has(name),
        lambda: quick.put_all([(name, [b"x"])]),
        lambda: quick.create(name, b"x"),
        lambda: quick.remove(name),
        lambda: quick.set_aside(name),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError):
            call()


@pytest.mark.parametrize("prefix", ["", "x/", "blobs", "blobs/a/", "blobs/ab", "../", "labels/a", "tmp/"])
def test_other_prefixes_are_refused(prefix: str) -> None:
    with pytest.raises(InvalidArgumentError):
        check_prefix(prefix)


# -- what is written is there --------------------------------------------------------------------------------


def test_round_trip(folder: ObjectFolder) -> None:
    big = os.urandom(300_000)
    contents = {A: b"", B: big, manifest_name(digest_of(b"m")): b"{}"}
    folder.put_all((name, [data[:7], data[7:]]) for name, data in contents.items())
    for name, data in contents.items():
        assert folder.get(name) == data
        assert folder.has(name)
        assert folder.has(name, len(data))
        assert not folder.has(name, len(data) + 1)
        with folder.open(name) as handle:
            assert handle.state.size == len(data)
            assert handle.read(0, 1 << 20) == data
            assert handle.read(5, 10) == data[5:15]
            assert b"".join(handle.blocks()) == data
    assert folder.get_all([B, RECORD, A]) == [big, None, b""]
    assert [(i.name, i.size) for i in folder.listed("blobs/")] == sorted(
        (n, len(contents[n])) for n in (A, B)
    )
    assert [info.name for info in folder.listed(A[:9])] == [A]
    assert folder.sizes("blobs/") == {n.removeprefix("blobs/"): len(contents[n]) for n in (A, B)}
    assert folder.sizes(A[:9]) == {A[9:]: 0}
    assert list(folder.listed("labels/")) == []
    assert folder.has_any("blobs/")
    assert not folder.has_any("labels/")
    folder.put_all([(A, [b"other"])])  # what is there already is replaced
    assert folder.get(A) == b"other"
    folder.remove(A)
    folder.remove(A)
    assert not folder.has(A)
    for read in (folder.get, folder.open):
        with pytest.raises(FileNotFoundError):
            read(A)


def test_many_at_a_time(folder: ObjectFolder) -> None:
    contents = {blob_name(digest_of(bytes([n]))): bytes([n]) * n for n in range(60)}
    folder.put_all((name, [data]) for name, data in contents.items())
    assert {info.name: info.size for info in folder.listed("blobs/")} == {
        n: len(d) for n, d in contents.items()
    }
    assert [info.name for info in folder.listed("blobs/")] == sorted(contents)
    assert folder.get_all(list(contents)) == list(contents.values())


def test_create_is_exclusive(folder: ObjectFolder) -> None:
    assert folder.create("labels/a", b"1")
    assert not folder.create("labels/a", b"2")
    assert folder.get("labels/a") == b"1"
    assert folder.create(RECORD, b"r")
    assert [info.name for info in folder.listed("snapshots/")] == [RECORD]


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_many_who_create_one_succeeds(kind: str, request: pytest.FixtureRequest) -> None:
    """Elsewhere nothing promises that."""
    if kind == "s3":
        bucket = request.getfixturevalue("bucket")
        folder = open_objects(bucket.url, bucket.server.target_options)
    else:
        folder = request.getfixturevalue("local")
    barrier, won = threading.Barrier(6), []

    def create(number: int) -> None:
        barrier.wait()
        if folder.create("labels/a", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [folder.get("labels/a")]


def test_where_there_are_no_hard_links(local: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    assert local.create("labels/a", b"1")
    assert not local.create("labels/a", b"2")
    assert local.get("labels/a") == b"1"
    assert os.listdir(Path(local.path) / "tmp") == []


def test_what_is_set_aside_is_not_there(folder: ObjectFolder) -> None:
    folder.put_all([(A, [b"wrong"])])
    folder.set_aside(A)
    folder.set_aside(A)
    assert not folder.has(A)
    assert [info.name for info in folder.listed("bad/")] == [bad_name(A)]
    assert folder.get(bad_name(A)) == b"wrong"
    folder.put_all([(A, [b"a"])])
    assert folder.get(A) == b"a"


def test_of_a_content_that_fails_nothing_is_left(folder: ObjectFolder) -> None:
    def broken() -> Iterator[bytes]:
        yield b"b"
        raise ValueError("it changed")

    with pytest.raises(ValueError, match="it changed"):
        folder.put_all([(A, [b"a"]), (B, broken())])
    assert not folder.has(B)
    assert folder.leftovers() == []
    folder.put_all([(A, [b"a"]), (B, [b"b"])])
    assert folder.get_all([A, B]) == [b"a", b"b"]


def test_together_or_alone(folder: ObjectFolder) -> None:
    with folder.holding(alone=False), folder.holding(alone=False, wait=False):
        with pytest.raises(StoreUnavailableError, match="try again"), folder.holding(alone=True, wait=False):
            pytest.fail("somebody is at work")
        folder.create("labels/a", b"")
    with folder.holding(alone=True):
        for alone in (False, True):
            with pytest.raises(StoreUnavailableError), folder.holding(alone=alone, wait=False):
                pytest.fail("somebody is alone")
        folder.remove("labels/a")
    with folder.holding(alone=True, wait=False):
        pass
    assert folder.leftovers() == []


def test_whoever_waits_gets_its_turn(folder: ObjectFolder) -> None:
    done = []

    def work() -> None:
        with folder.holding(alone=True):
            done.append("alone")

    with folder.holding(alone=False):
        thread = threading.Thread(target=work)
        thread.start()
        done.append("together")
    thread.join()
    assert done == ["together", "alone"]


def test_who_waits_to_be_alone_is_not_passed_by(local: LocalObjects) -> None:
    """However many come one after the other, each before the last has gone."""
    turns: list[bool] = []

    def work() -> None:
        with local.holding(alone=True):
            turns.append(True)

    thread = threading.Thread(target=work)
    with contextlib.ExitStack() as stack:
        stack.enter_context(local.holding(alone=False))
        thread.start()
        until = time.monotonic() + 10
        with contextlib.suppress(StoreUnavailableError):
            while time.monotonic() < until:
                later = contextlib.ExitStack()
                later.enter_context(local.holding(alone=False, wait=False))
                stack.close()
                stack.push(later)
        assert time.monotonic() < until, "others are let in for ever"
    thread.join()
    assert turns == [True]


def test_an_error_of_whoever_holds_is_its_own(folder: ObjectFolder) -> None:
    with pytest.raises(FileExistsError, match="mine"), folder.holding(alone=True):
        raise FileExistsError("mine")
    with folder.holding(alone=True, wait=False):
        pass


# -- on a disk -----------------------------------------------------------------------------------------------


def test_it_is_for_its_user_only(tmp_path: Path) -> None:
    folder = open_objects(tmp_path / "one" / "two")
    folder.put_all([(A, [b"a"])])
    folder.create("labels/a", b"")
    with folder.holding(alone=False):
        pass
    for path in (tmp_path / "one").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700


def test_nothing_temporary_is_left(local: LocalObjects) -> None:
    local.put_all([(A, [b"a"])])
    local.create("labels/a", b"")
    local.create("labels/a", b"")
    assert os.listdir(Path(local.path) / "tmp") == []


def test_batches_are_named_when_they_are_full(local: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill can cost is bounded."""
    monkeypatch.setattr(temporary, "MOST_WAITING", 10)
    names = [blob_name(digest_of(bytes([n]))) for n in range(25)]

    def contents() -> Iterator[tuple[str, list[bytes]]]:
        for number, name in enumerate(names):
            assert sum(map(local.has, names)) == number // 10 * 10
            yield name, [b"x"]

    local.put_all(contents())
    assert all(map(local.has, names))


@pytest.mark.parametrize("with_syncfs", [True, False])
def test_contents_are_on_the_disk_before_their_names(
    local: LocalObjects, monkeypatch: pytest.MonkeyPatch, with_syncfs: bool
) -> None:
    """And so are the names when the call returns; what a record leads to, before the record."""
    calls: list[str] = []

    def noting(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def noted(*args: object, **options: object) -> object:
            calls.append(name)
            return call(*args, **options)

        return noted

    def sync_filesystem(fd: int) -> bool:
        calls.append("all")
        return with_syncfs

    monkeypatch.setattr(temporary, "sync_filesystem", sync_filesystem)
    monkeypatch.setattr("skillfs.objects.local.sync_filesystem", sync_filesystem)
    for name in ("rename", "link", "fsync"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    count = temporary.FEW + 1
    local.put_all((blob_name(digest_of(bytes([n]))), [b"x"]) for n in range(count))
    named, first = calls.count("rename"), calls.index("rename")
    assert named == count
    assert calls[:first] == ["all", *([] if with_syncfs else ["fsync"] * count)]
    assert set(calls[first + count :]) == ({"all"} if with_syncfs else {"all", "fsync"})
    calls.clear()
    local.create(RECORD, b"r")
    assert calls == ["all", "fsync", "link", *calls[3:]]
    assert set(calls[3:]) == {"fsync"}
    calls.clear()
    local.remove(RECORD)  # or it could come back, and lead to what was removed after it
    assert calls == ["fsync"]


@pytest.mark.parametrize("where", ["root", "blobs", "blobs/12"])
def test_links_in_the_folder_are_not_followed(local: LocalObjects, tmp_path: Path, where: str) -> None:
    name = "blobs/12/" + "0" * 62
    local.put_all([(name, [b"a"])])
    outside = tmp_path / "outside"
    if where == "root":
        path = Path(local.path) / name
        outside.write_bytes(b"secret")
        path.unlink()
        path.symlink_to(outside)
    else:
        (Path(local.path) / where).rename(outside)
        (Path(local.path) / where).symlink_to(outside)
    assert not local.has(name)
    with pytest.raises(IntegrityError):
        local.get(name)
    before = sorted(outside.rglob("*"))
    if where == "root":
        assert list(local.listed("blobs/")) == []
        local.put_all([(name, [b"b"])])  # which replaces the link
        assert local.get(name) == b"b"
        assert outside.read_bytes() == b"secret"
        return
    with pytest.raises(IntegrityError):
        local.put_all([(name, [b"b"])])
    with pytest.raises(IntegrityError):
        local.remove(name)
    assert sorted(outside.rglob("*")) == before


def test_a_pipe_in_place_of_an_object_is_none(local: LocalObjects) -> None:
    local.put_all([(A, [b"a"])])
    path = Path(local.path) / A
    path.unlink()
    os.mkfifo(path)
    assert not local.has(A)
    with pytest.raises(FileNotFoundError):
        local.get(A)
    local.put_all([(A, [b"a"])])
    assert local.get(A) == b"a"


def test_a_folder_in_memory_where_an_object_belongs(memory: ObjectFolder) -> None:
    where = memory.url.removeprefix("memory://")
    fsspec.filesystem("memory").makedirs(f"/{where.strip('/')}/{A}/x")
    assert not memory.has(A)
    with pytest.raises(FileNotFoundError):
        memory.get(A)
    with pytest.raises(IntegrityError, match="something else"):
        memory.put_all([(A, [b"a"])])


def test_what_is_not_of_it_stays(local: LocalObjects) -> None:
    mine = {"README": "", "blobs/x": "", "blobs/ab/x": "", "tmp/mine/x": "", "labels/.hidden": ""}
    local.put_all([(A, [b"a"])])
    write(Path(local.path), mine)
    assert [info.name for info in local.listed("blobs/")] == [A]
    assert list(local.listed("labels/")) == []
    local.leftovers(remove=True)
    assert all((Path(local.path) / name).exists() for name in mine)


def test_what_a_killed_writer_left_goes_with_the_next(local: LocalObjects) -> None:
    write(Path(local.path), {"tmp/0123456789abcdef/1": "left"})
    ((name, size, _),) = local.leftovers()
    assert (name, size) == ("tmp/0123456789abcdef/1", 4)
    local.put_all([(A, [b"a"])])
    assert local.leftovers() == []
    assert os.listdir(Path(local.path) / "tmp") == []


def test_a_folder_that_is_swept_before_it_is_locked(
    local: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sweeps has opened and locked it, or even removed it, when its writer comes to lock it."""
    local.put_all([(B, [b"b"])])
    tmp = Path(local.path) / "tmp"
    mkdir, moments = os.mkdir, ["locked", "removed", "not"]

    def make(path: str | bytes, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        made = tmp / os.fsdecode(path)
        moment = moments.pop(0) if made.exists() else ""
        if moment == "locked":
            held.append(os.open(made, os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        elif moment == "removed":
            made.rmdir()

    held: list[int] = []
    monkeypatch.setattr(os, "mkdir", make)
    local.put_all([(A, [b"a"])])
    assert moments == []
    assert local.get(A) == b"a"
    os.close(held[0])
    assert local.leftovers(remove=True) == []
    assert os.listdir(tmp) == []


def test_many_writers_at_a_time(local: LocalObjects) -> None:
    """Each sweeps what it takes for left by the others."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                local.put_all([(blob_name(digest_of(b"%d-%d" % (number, turn))), [b"x"])])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(local.listed("blobs/"))) == 120


def test_what_is_being_written_stays(local: LocalObjects) -> None:
    def content() -> Iterator[bytes]:
        yield b"a"
        other = LocalObjects(local.path)
        other.put_all([(B, [b"b"])])
        assert other.leftovers(remove=True) == []

    local.put_all([(A, content())])
    assert local.get_all([A, B]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (errno.ENOSPC, StoreUnavailableError, "is full"),
        (errno.EDQUOT, StoreUnavailableError, "is full"),
        (errno.EIO, StoreUnavailableError, "try again"),
        (errno.EROFS, StoreUnavailableError, "cannot be written"),
        (errno.EACCES, UnreadableError, "permissions"),
        (errno.EMFILE, StoreUnavailableError, "too many files"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open"])
def test_errors_of_the_system_say_what_to_do(
    local: LocalObjects,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[SkillFSError],
    says: str,
    call: str,
) -> None:
    def fail(*args: object, **options: object) -> object:
        raise OSError(code, os.strerror(code), "/a/path/of/the/machine")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(error, match=says) as caught:
            local.put_all([(A, [b"a"])])
    assert "machine" not in str(caught.value)
    assert not local.has(A)
    assert local.leftovers() == []


def test_a_folder_that_this_user_may_not_use(tmp_path: Path) -> None:
    folder = LocalObjects(tmp_path / "objects")
    folder.put_all([(A, [b"a"])])
    with bound_by_permissions():
        os.chmod(tmp_path / "objects" / "tmp", 0)
        with pytest.raises(UnreadableError, match="permissions"):
            folder.put_all([(B, [b"b"])])
        assert folder.get(A) == b"a"
        os.chmod(tmp_path / "objects", 0)
        for call in (lambda: folder.get(A), lambda: open_objects(tmp_path / "objects" / "below")):
            with pytest.raises(UnreadableError, match="permissions"):
                call()
        os.chmod(tmp_path / "objects", 0o700)


def test_a_folder_that_goes_away_comes_back(tmp_path: Path) -> None:
    folder = LocalObjects(tmp_path / "objects")
    folder.put_all([(A, [b"a"])])
    (tmp_path / "objects").rename(tmp_path / "away")
    for call in (lambda: folder.get(A), lambda: folder.has(A), lambda: list(folder.listed("blobs/"))):
        with pytest.raises(StoreUnavailableError, match="not there any more"):
            call()
    (tmp_path / "away").rename(tmp_path / "objects")
    assert folder.get(A) == b"a"


def test_a_forked_child_does_not_hold_on(local: LocalObjects) -> None:
    with local.holding(alone=True):
        read, told = os.pipe()
        child = os.fork()
        if not child:
            os.close(told)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
    try:
        with local.holding(alone=True, wait=False):  # the child lives on
            pass
    finally:
        os.close(told)
        os.waitpid(child, 0)
    assert not locking._held


def test_a_child_of_one_that_is_killed_does_not_hold_on(local: LocalObjects) -> None:
    read, told = os.pipe()
    child = os.fork()
    if not child:
        with local.holding(alone=True):
            if os.fork():
                os._exit(0)
            os.close(told)
            os.read(read, 1)  # as long as this test is there
            os._exit(0)
    os.waitpid(child, 0)
    try:
        with local.holding(alone=True):
            pass
    finally:
        os.close(told)
        os.close(read)


# -- opening -------------------------------------------------------------------------------------------------


def test_one_that_is_not_there_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="take a snapshot"):
        open_objects(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(NotFoundError, match="take a snapshot"):
        open_objects("memory://no-such-objects", create=False)


def test_what_is_no_place_for_objects(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("", "a\0b", tmp_path / "file", tmp_path / "file" / "below", 7):
        with pytest.raises(InvalidArgumentError):
            open_objects(place)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="takes no option"):
        open_objects(tmp_path / "objects", {"key": "x"})
    with pytest.raises(InvalidArgumentError, match="password"):
        open_objects("ftp://me:secret@127.0.0.1/objects")


def test_a_url_of_a_local_folder(tmp_path: Path) -> None:
    folder = open_objects(f"file://{tmp_path}/objects")
    assert isinstance(folder, LocalObjects)
    assert folder.path == f"{tmp_path}/objects"
    assert isinstance(open_objects(f"{tmp_path}/a::b"), LocalObjects)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "objects.zip", "w") as file:
        file.writestr(A, b"a")
    folder = open_objects(f"zip://::file://{tmp_path}/objects.zip")
    assert folder.get(A) == b"a"
    assert [info.name for info in folder.listed("blobs/")] == [A]
    for call in (lambda: folder.put_all([(B, [b"b"])]), lambda: folder.create("labels/a", b"")):
        with pytest.raises(ReadOnlyError):
            call()


@pytest.mark.parametrize(("inside", "refused"), [("a/objects", True), ("a", True), ("objects", False)])
def test_it_may_not_lie_in_a_skill(root: Path, inside: str, refused: bool) -> None:
    write(root, {"a/SKILL.md": ""})
    if not refused:
        check_outside(root, root / inside)
        check_outside(root, root.parent)
        return
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        check_outside(root, root / inside)
    (root / "link").symlink_to(root / "a")
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        check_outside(root, root / "link" / "objects")


def test_only_a_file_makes_a_skill(root: Path) -> None:
    write(root, {"a/SKILL.md/x": "", "b/real.md": ""})
    check_outside(root, root / "a/objects")
    (root / "b/SKILL.md").symlink_to("real.md")
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        check_outside(root, root / "b/objects")


def test_a_root_that_is_a_skill_holds_no_objects(root: Path) -> None:
    write(root, {"SKILL.md": ""})
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        check_outside(root, root / "objects")
