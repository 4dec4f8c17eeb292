from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.stores.base import WritableStore
from skillfs.stores.confine import opener
from skillfs.stores.local import LocalStore
from tests.conftest import write
from tests.privileges import bound_by_permissions
from tests.race import SECRET, Swapper


@pytest.fixture(params=["openat2", "walk"])
def store(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    write(root, {"a/x.md": "old", "a/sub/y.md": "y", "a/empty/.keep": ""})
    (root / "a/empty/.keep").unlink()
    return _opened(root, request.param, monkeypatch)


def _opened(root: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setenv("SKILLFS_OPEN", method)
    try:
        opener()
    except ValueError:
        pytest.skip(f"{method} is not to be had on this system")
    return LocalStore(root)


def at(path: str) -> Place:
    return Place(0, path)


def put(store: WritableStore, path: str, data: bytes, *, exclusive: bool = False) -> None:
    sink = store.create(at(path), exclusive=exclusive)
    sink.write(data)
    sink.commit()


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing(call: Callable[[], object]) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what the caller compares
        call()
    return errno.errorcode[caught.value.errno or 0]


# -- files -------------------------------------------------------------------------------------------------


def test_it_is_a_writable_store(store: LocalStore) -> None:
    checked: WritableStore = store
    assert checked.holds_empty_folders


def test_a_file_appears_whole_at_its_commit(store: LocalStore, root: Path) -> None:
    sink = store.create(at("a/new.md"))
    sink.write(b"one ")
    sink.write(b"two")
    (beside,) = set(names(root / "a")) - {"x.md", "sub", "sub/y.md", "empty"}
    assert IgnoreRules().reason(beside) == "ignored"
    sink.commit()
    assert (root / "a/new.md").read_bytes() == b"one two"
    assert names(root / "a") == ["empty", "new.md", "sub", "sub/y.md", "x.md"]


def test_a_file_is_replaced_whole_at_its_commit(store: LocalStore, root: Path) -> None:
    sink = store.create(at("a/x.md"))
    with (root / "a/x.md").open("rb") as reader:
        sink.write(b"new")
        assert (root / "a/x.md").read_bytes() == b"old"
        sink.commit()
        assert reader.read() == b"old"
    assert (root / "a/x.md").read_bytes() == b"new"


@pytest.mark.parametrize("end", ["discard", "drop", "discard after a commit", "discard twice"])
def test_nothing_else_stays(store: LocalStore, root: Path, end: str) -> None:
    before = names(root)
    sink = store.create(at("a/x.md"))
    sink.write(b"old")
    if "commit" in end:
        sink.commit()
    if "discard" in end:
        sink.discard()
    if "twice" in end:
        sink.discard()
    del sink
    gc.collect()
    assert names(root) == before
    assert (root / "a/x.md").read_bytes() == b"old"


def test_a_forked_child_leaves_the_parents_file_alone(store: LocalStore, root: Path) -> None:
    sink = store.create(at("a/new.md"))
    sink.write(b"parent's")
    child = os.fork()
    if child == 0:
        sink.discard()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sink.commit()
    assert (root / "a/new.md").read_bytes() == b"parent's"


def test_exclusive_creation_is_decided_at_the_commit(store: LocalStore, root: Path) -> None:
    put(store, "a/new.md", b"1", exclusive=True)
    assert failing(lambda: put(store, "a/new.md", b"2", exclusive=True)) == "EEXIST"
    sink = store.create(at("a/late.md"), exclusive=True)
    (root / "a/late.md").write_text("first")
    assert failing(sink.commit) == "EEXIST"
    assert (root / "a/late.md").read_text() == "first"
    assert names(root / "a") == ["empty", "late.md", "new.md", "sub", "sub/y.md", "x.md"]


def test_exclusive_creation_does_not_follow_a_link(store: LocalStore, root: Path) -> None:
    (root / "a/link.md").symlink_to("nowhere.md")
    assert failing(lambda: put(store, "a/link.md", b"2", exclusive=True)) == "EEXIST"
    assert not (root / "a/nowhere.md").exists()


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_and_folders_get_the_usual_permissions(
    store: LocalStore, root: Path, mask: int, expected: int
) -> None:
    with umask(mask):
        put(store, "a/new.md", b"")
        store.make_folder(at("a/folder"))
    assert mode(root / "a/new.md") == expected
    assert mode(root / "a/folder") == 0o777 & ~mask


@pytest.mark.parametrize("bits", [0o600, 0o755, 0o444, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(store: LocalStore, root: Path, bits: int) -> None:
    (root / "a/x.md").chmod(bits)
    sink = store.create(at("a/x.md"))
    (beside,) = (root / "a").glob(".skillfs-*")
    assert mode(beside) & ~bits == 0
    sink.write(b"new")
    sink.commit()
    assert mode(root / "a/x.md") == bits
    assert (root / "a/x.md").read_bytes() == b"new"


def test_a_copy_has_the_permissions_of_its_source_or_of_what_it_replaces(
    store: LocalStore, root: Path
) -> None:
    (root / "a/x.md").chmod(0o755)
    (root / "a/sub/y.md").chmod(0o600)
    store.copy(at("a/x.md"), at("a/new.md"))
    store.copy(at("a/x.md"), at("a/sub/y.md"))
    assert (root / "a/new.md").read_bytes() == (root / "a/sub/y.md").read_bytes() == b"old"
    assert mode(root / "a/new.md") == 0o755
    assert mode(root / "a/sub/y.md") == 0o600


def test_touch_is_of_the_time_alone(store: LocalStore, root: Path) -> None:
    os.utime(root / "a/x.md", (1, 1))
    before = time.time() - 1
    store.touch(at("a/x.md"))
    assert (root / "a/x.md").stat().st_mtime > before
    assert (root / "a/x.md").read_bytes() == b"old"


def test_removing_a_link_removes_the_link(store: LocalStore, root: Path) -> None:
    (root / "a/link.md").symlink_to("x.md")
    store.remove(at("a/link.md"))
    assert not (root / "a/link.md").is_symlink()
    assert (root / "a/x.md").exists()


def test_folders(store: LocalStore, root: Path) -> None:
    store.make_folder(at("b"))
    store.make_folder(at("b/c"))
    assert failing(lambda: store.make_folder(at("b/c"))) == "EEXIST"
    assert failing(lambda: store.make_folder(at("a/x.md"))) == "EEXIST"
    assert failing(lambda: store.remove_folder(at("b"))) == "ENOTEMPTY"
    assert failing(lambda: store.remove(at("b/c"))) in ("EISDIR", "EPERM")
    assert failing(lambda: store.remove_folder(at("a/x.md"))) == "ENOTDIR"
    store.remove_folder(at("b/c"))
    store.remove_folder(at("b"))
    assert not (root / "b").exists()


def test_moves(store: LocalStore, root: Path) -> None:
    inode = (root / "a/x.md").stat().st_ino
    store.move(at("a/x.md"), at("a/sub/y.md"))
    assert (root / "a/sub/y.md").read_bytes() == b"old"
    assert (root / "a/sub/y.md").stat().st_ino == inode
    store.move(at("a/sub"), at("b"))
    assert names(root) == ["a", "a/empty", "b", "b/y.md"]
    assert failing(lambda: store.move(at("b"), at("b/inside"))) == "EINVAL"
    assert failing(lambda: store.move(at("a"), at("b/y.md"))) == "ENOTDIR"
    assert failing(lambda: store.move(at("nothing"), at("b/z.md"))) == "ENOENT"


def test_one_of_two_hard_links_moved_onto_the_other_is_gone(store: LocalStore, root: Path) -> None:
    os.link(root / "a/x.md", root / "a/same.md")
    store.move(at("a/x.md"), at("a/same.md"))
    assert not (root / "a/x.md").exists()
    assert (root / "a/same.md").read_bytes() == b"old"


def test_no_handle_is_left_open(store: LocalStore, root: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        put(store, "a/x.md", b"1")
        store.create(at("a/x.md")).discard()
        store.copy(at("a/x.md"), at("a/y.md"))
        store.move(at("a/y.md"), at("a/z.md"))
        store.remove(at("a/z.md"))
        failing(lambda: store.remove(at("a/none.md")))
        failing(lambda: store.create(at("a/none/x.md")))
        failing(lambda: put(store, "a/x.md", b"", exclusive=True))
        failing(lambda: store.copy(at("a/none.md"), at("a/y.md")))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_folders_without_permission_stay_as_they_are(store: LocalStore, root: Path) -> None:
    (root / "a").chmod(0o555)
    try:
        with bound_by_permissions():
            for name, call in CALLS.items():
                own = {"make_folder": "a/new", "move to": "a/new", "remove_folder": "a/empty"}
                path = own.get(name, "a/x.md")
                if name not in ("touch", "copy from"):
                    assert failing(lambda call=call, path=path: call(store, path)) == "EACCES", name
            assert failing(lambda: store.copy(at("a/x.md"), at("a/new.md"))) == "EACCES"
    finally:
        (root / "a").chmod(0o755)
    assert names(root) == ["a", "a/empty", "a/sub", "a/sub/y.md", "a/x.md"]


def test_a_write_that_fails_leaves_nothing(store: LocalStore, root: Path) -> None:
    import resource

    before = names(root)
    sink = store.create(at("a/x.md"))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
        assert failing(lambda: sink.write(b"z" * 1000)) == "EFBIG"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    sink.discard()
    assert names(root) == before
    assert (root / "a/x.md").read_bytes() == b"old"


# -- what is on the disk when --------------------------------------------------------------------------------


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed and renamed, in order: names of folders, and `file` for any file."""
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted(fd: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) if is_folder else "file")
        fsync(fd)

    def renamed(*arguments: object, **options: object) -> None:
        order.append("rename")
        rename(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "rename", renamed)
    return order


def test_a_change_is_on_the_disk_when_its_call_returns(store: LocalStore, flushed: list[str]) -> None:
    for call, expected in (
        (lambda: put(store, "a/new.md", b"1"), ["file", "rename", "a"]),
        (lambda: store.make_folder(at("a/folder")), ["a"]),
        (lambda: store.remove(at("a/new.md")), ["a"]),
        (lambda: store.remove_folder(at("a/folder")), ["a"]),
        (lambda: store.move(at("a/x.md"), at("a/sub/x.md")), ["rename", "sub", "a"]),
    ):
        call()
        assert flushed == expected
        flushed.clear()


def test_many_changes_are_on_the_disk_at_the_end_of_all(
    store: LocalStore, flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.together():
        for number in range(5):
            put(store, f"a/{number}.md", b"1")
            put(store, f"a/sub/{number}.md", b"1")
        with store.together():
            store.remove(at("a/1.md"))
        assert flushed == ["file", "rename"] * 10
    assert sorted(flushed[20:]) == ["a", "sub"]
    flushed.clear()
    monkeypatch.setattr("skillfs.stores.local_writing.MOST_HELD", 1)

    def fail_after_changes() -> None:
        with store.together():
            store.remove(at("a/2.md"))
            store.remove(at("a/sub/2.md"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_changes()
    assert sorted(flushed) == ["a", "sub"]
    flushed.clear()
    store.remove(at("a/3.md"))
    assert flushed == ["a"]


# -- what killed writers leave -------------------------------------------------------------------------------

LEFT = ".skillfs-0123456789abcdef~"


@pytest.mark.parametrize("sweep", ["create", "copy", "remove_folder"])
def test_what_nobody_writes_is_swept_away(store: LocalStore, root: Path, sweep: str) -> None:
    kept = [".skillfs-0123~", "note~", LEFT.upper(), LEFT + "~"]
    target = "a/empty" if sweep == "remove_folder" else "a"
    write(root / target, {LEFT: "half", **({} if sweep == "remove_folder" else dict.fromkeys(kept, "kept"))})
    if sweep == "create":
        put(store, "a/new.md", b"")
    elif sweep == "copy":
        store.copy(at("a/sub/y.md"), at("a/new.md"))
    else:
        store.remove_folder(at("a/empty"))
        assert not (root / "a/empty").exists()
        return
    assert not (root / "a" / LEFT).exists()
    assert all((root / "a" / name).exists() for name in kept)


def test_what_somebody_writes_stays(store: LocalStore, root: Path) -> None:
    one = store.create(at("a/empty/one.md"))
    one.write(b"one")
    assert failing(lambda: store.remove_folder(at("a/empty"))) == "ENOTEMPTY"
    put(store, "a/empty/two.md", b"two")
    one.commit()
    assert names(root / "a/empty") == ["one.md", "two.md"]


def test_a_folder_or_link_of_such_a_name_stays(store: LocalStore, root: Path) -> None:
    (root / "a" / LEFT).symlink_to("x.md")
    (root / "a/sub" / LEFT).mkdir()
    put(store, "a/new.md", b"")
    put(store, "a/sub/new.md", b"")
    assert (root / "a" / LEFT).is_symlink()
    assert (root / "a/sub" / LEFT).is_dir()


def test_a_file_that_is_swept_before_it_is_locked_is_made_again(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    flock, swept = fcntl.flock, []

    def late(fd: int, operation: int) -> None:
        if not swept:
            (beside,) = (root / "a").glob(".skillfs-*~")
            swept.append(beside)
            beside.unlink()
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    put(store, "a/new.md", b"whole")
    assert swept
    assert (root / "a/new.md").read_bytes() == b"whole"


def test_a_file_that_is_being_swept_is_made_again(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sweeps has the lock, and removes the file in the next moment."""
    import fcntl

    flock, sweepers = fcntl.flock, []

    def late(fd: int, operation: int) -> None:
        if not sweepers:
            (beside,) = (root / "a").glob(".skillfs-*~")
            sweepers.append((beside, os.open(beside, os.O_RDONLY)))
            flock(sweepers[0][1], fcntl.LOCK_EX)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    sink = store.create(at("a/new.md"))
    ((beside, fd),) = sweepers
    beside.unlink()
    os.close(fd)
    sink.write(b"whole")
    sink.commit()
    assert (root / "a/new.md").read_bytes() == b"whole"


def test_touch_of_a_file_with_other_names_is_of_this_one_alone(store: LocalStore, root: Path) -> None:
    outside = root.parent / "outside.md"
    outside.write_text("shared")
    os.utime(outside, (1, 1))
    os.link(outside, root / "a/shared.md")
    store.touch(at("a/shared.md"))
    assert outside.stat().st_mtime == 1
    assert (root / "a/shared.md").stat().st_mtime > 1
    assert (root / "a/shared.md").read_text() == "shared"


def test_a_folder_takes_the_place_of_an_empty_one(store: LocalStore, root: Path) -> None:
    store.move(at("a/sub"), at("a/empty"))
    assert names(root) == ["a", "a/empty", "a/empty/y.md", "a/x.md"]
    (root / "full").mkdir()
    (root / "full/x").touch()
    assert failing(lambda: store.move(at("a/empty"), at("full"))) == "ENOTEMPTY"


# -- confinement -------------------------------------------------------------------------------------------


def _put_one(store: LocalStore, path: str) -> None:
    sink = store.create(at(path))
    sink.write(b"inside")
    sink.commit()


CALLS: dict[str, Callable[[LocalStore, str], object]] = {
    "create": _put_one,
    "remove": lambda store, path: store.remove(at(path)),
    "touch": lambda store, path: store.touch(at(path)),
    "make_folder": lambda store, path: store.make_folder(at(path)),
    "remove_folder": lambda store, path: store.remove_folder(at(path)),
    "move from": lambda store, path: store.move(at(path), at("moved.md")),
    "move to": lambda store, path: store.move(at("a/empty"), at(path)),
    "copy from": lambda store, path: store.copy(at(path), at("a/copied.md")),
    "copy to": lambda store, path: store.copy(at("a/sub/y.md"), at(path)),
}

ODD_PATHS = [
    "../outside/f.md",
    "a/../../outside/f.md",
    "a/../x.md",
    "..",
    ".",
    "",
    "a//x.md",
    "a/x.md/",
    "/a/x.md",
    "/etc/passwd",
    "a/./x.md",
    "a/x.md\0",
    "a/\ud800.md",
    "out/f.md",
    "out/sub/f.md",
    "up/f.md",
    "a/inside/y.md",
    "loop/f.md",
    "a/x.md/f.md",
    "none/f.md",
    "x" * 256,
    "a/" * 2047 + "b",
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_no_change_leads_out_or_through_a_link(store: LocalStore, root: Path, path: str) -> None:
    outside = write(root.parent / "outside", {"f.md": SECRET, "sub/f.md": SECRET})
    (root / "out").symlink_to(outside)
    (root / "up").symlink_to("../outside")
    (root / "loop").symlink_to("loop")
    (root / "a/inside").symlink_to("sub")
    before = _fingerprint(root), _fingerprint(outside)
    for call in CALLS.values():
        with pytest.raises(OSError):  # noqa: PT011 - which one differs from call to call
            call(store, path)
    assert (_fingerprint(root), _fingerprint(outside)) == before


@pytest.mark.parametrize("method", ["openat2", "walk"])
def test_nothing_outside_changes_while_folders_are_swapped_for_links(
    root: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    swapper = Swapper(root, outside)
    for top in (root, outside):
        write(top, {"skill/refs/victim.md": SECRET, "skill/refs/folder/.keep": "", "skill/victim.md": SECRET})
        (top / "skill/refs/folder/.keep").unlink()
    store = _opened(root, method, monkeypatch)
    refs = "skill/refs"
    calls: dict[str, list[Callable[[], object]]] = {
        "create": [lambda: put(store, f"{refs}/new.md", b"inside")],
        "replace": [lambda: put(store, f"{refs}/victim.md", b"inside")],
        "exclusive": [lambda: put(store, f"{refs}/once.md", b"", exclusive=True)],
        "touch": [lambda: store.touch(at(f"{refs}/victim.md"))],
        "remove": [
            lambda: store.remove(at(f"{refs}/once.md")),
            lambda: store.remove(at(f"{refs}/victim.md")),
        ],
        "make_folder": [lambda: store.make_folder(at(f"{refs}/made"))],
        "remove_folder": [
            lambda: store.remove_folder(at(f"{refs}/made")),
            lambda: store.remove_folder(at(f"{refs}/folder")),
        ],
        "move": [
            lambda: store.move(at(f"{refs}/new.md"), at("skill/moved.md")),
            lambda: store.move(at("skill/moved.md"), at(f"{refs}/victim.md")),
            lambda: store.move(at(f"{refs}/folder"), at("skill/folder")),
        ],
        "copy": [
            lambda: store.copy(at("skill/victim.md"), at(f"{refs}/victim.md")),
            lambda: store.copy(at(f"{refs}/a.md"), at("skill/copied.md")),
        ],
    }
    before = _fingerprint(outside)
    done: Counter[str] = Counter()
    with swapper:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            for name, some in calls.items():
                for call in some:
                    with contextlib.suppress(OSError):
                        call()
                        done[name] += 1
    assert set(done) == set(calls)
    assert min(swapper.swaps.values()) > 50
    assert _fingerprint(outside, without="waiting") == before
    copied = root / "skill/copied.md"
    assert not copied.exists() or SECRET not in copied.read_text()


def _fingerprint(top: Path, without: str = "") -> dict[str, object]:
    """Everything below a folder; a time betrays even what came and went again."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top).as_posix()
        if without and (name == without or name.startswith(f"{without}/")):
            continue
        st = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(st.st_mode) else None
        found[name] = (st.st_mode, st.st_ino, st.st_nlink, st.st_mtime_ns, content)
    return found


# -- crashes -----------------------------------------------------------------------------------------------

_WRITER = """
import sys
from skillfs.core.model import Place
from skillfs.stores.local import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
for number in range(10**9):
    sink = store.create(Place(0, f"a/big{number % 3}.md"))
    for _ in range(64):
        sink.write(bytes([65 + number % 26]) * 65_536)
    sink.commit()
"""


def test_a_killed_writer_leaves_no_half_file(root: Path) -> None:
    write(root, {"a/SKILL.md": "x"})
    ignore = IgnoreRules()
    for delay in (0.02, 0.05, 0.11, 0.17):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(root)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
        for path in (root / "a").iterdir():
            if ignore.reason(path.name) is None and path.name != "SKILL.md":
                data = path.read_bytes()
                assert len(data) == 64 * 65_536
                assert len(set(data)) == 1
