from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillfs.errors import InvalidArgumentError
from skillfs.stores import confine
from skillfs.stores.confine import Opener, open_root, opener
from tests.race import FILES, SECRET, Swapper

REPOSITORY = Path(__file__).parents[2]
NOBODY = 65534
CALLS = ("file", "folder", "stat")


@dataclass(frozen=True, slots=True)
class Tree:
    """A root full of traps, and what lies outside of it."""

    root: Path
    outside: Path
    fd: int


@pytest.fixture(params=["openat2", "walk"])
def confined(request: pytest.FixtureRequest) -> Opener:
    return _opener(request.param)


def _opener(method: str) -> Opener:
    try:
        return opener(method)
    except InvalidArgumentError:
        pytest.skip(f"{method} is not to be had on this system")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    base = tmp_path_factory.mktemp("confine")
    root, outside = base / "root", base / "outside"
    (root / "skill/refs").mkdir(parents=True)
    (root / "skill/empty").mkdir()
    outside.mkdir()
    (root / "skill/SKILL.md").write_text("inside")
    (root / "skill/refs/a.md").write_text("inside a")
    for top in (outside, base / "root-evil", base / "root'"):
        top.mkdir(exist_ok=True)
        (top / "secret.md").write_text(SECRET)
    for name, target in {
        "file-out": outside / "secret.md",
        "dir-out": outside,
        "up": "../../outside/secret.md",
        "up-dir": "../../outside",
        "up-far": "../" * 40 + "etc",
        "hop1": "hop2",
        "hop2": "refs/hop3",
        "refs/hop3": outside / "secret.md",
        "inside-absolute": root / "skill/SKILL.md",
        "inside-relative": "SKILL.md",
        "inside-dir": "refs",
        "here": ".",
        "loop-a": "loop-b",
        "loop-b": "loop-a",
        "dangling": "nowhere",
        "magic": "/proc/self/root",
    }.items():
        (root / "skill" / name).symlink_to(target)
    fd = open_root(str(root))
    yield Tree(root, outside, fd)
    os.close(fd)


def _errno(call: Callable[[], object]) -> int:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what the caller compares
        call()
    assert caught.value.errno is not None
    return caught.value.errno


def _read(confined: Opener, root_fd: int, path: str) -> bytes:
    fd = confined.file(root_fd, path)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


@contextmanager
def _root(path: Path | str) -> Iterator[int]:
    fd = open_root(str(path))
    try:
        yield fd
    finally:
        os.close(fd)


def test_reads_a_file(confined: Opener, tree: Tree) -> None:
    assert _read(confined, tree.fd, "skill/SKILL.md") == b"inside"
    assert _read(confined, tree.fd, "skill/refs/a.md") == b"inside a"


@pytest.mark.parametrize("path", ["", "skill", "skill/refs", "skill/empty"])
def test_opens_a_folder_for_listing(confined: Opener, tree: Tree, path: str) -> None:
    fd = confined.folder(tree.fd, path)
    try:
        assert fd != tree.fd
        assert sorted(os.listdir(fd)) == sorted(os.listdir(tree.root / path))
    finally:
        os.close(fd)


def test_two_listings_of_the_root_do_not_share_a_position(confined: Opener, tree: Tree) -> None:
    first, second = confined.folder(tree.fd, ""), confined.folder(tree.fd, "")
    try:
        os.lseek(first, 0, os.SEEK_END)
        assert os.lseek(second, 0, os.SEEK_CUR) == 0
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.parametrize(
    "path", ["", "skill", "skill/SKILL.md", "skill/refs/a.md", "skill/dangling", "skill/up"]
)
def test_stat_is_that_of_the_thing_itself(confined: Opener, tree: Tree, path: str) -> None:
    assert confined.stat(tree.fd, path) == (tree.root / path).lstat()


@pytest.mark.parametrize(("call", "path"), [("file", "skill/SKILL.md"), ("folder", "skill"), ("folder", "")])
def test_descriptors_are_not_inherited(confined: Opener, tree: Tree, call: str, path: str) -> None:
    fd = getattr(confined, call)(tree.fd, path)
    try:
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "name",
    [
        "report..final.md",
        "...",
        "..a",
        ".hidden",
        "[...sections]",
        "~",
        "$HOME",
        "%2e%2e",
        "-rf",
        "*",
        "a\\b.md",
        "C:",
        "a::b",
        "two words ",
        "line\nbreak",
        "名前.md",
        "e\u0301.md",
        "\udcff.md",
        "x" * 255,
        "é" * 127,
    ],
)
def test_odd_names_are_plain_names(confined: Opener, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / name).write_bytes(b"odd")
    with _root(tmp_path) as fd:
        assert _read(confined, fd, f"{name}/{name}") == b"odd"
        assert _errno(lambda: confined.file(fd, f"{name}/{name}".rstrip()[:-1])) == errno.ENOENT


def test_many_components(confined: Opener, tmp_path: Path) -> None:
    path = "/".join("d" * 300)
    (tmp_path / path).mkdir(parents=True)
    (tmp_path / path / "f.md").write_bytes(b"deep")
    with _root(tmp_path) as fd:
        assert _read(confined, fd, f"{path}/f.md") == b"deep"
        assert stat.S_ISDIR(confined.stat(fd, path).st_mode)


def test_the_root_may_be_reached_through_a_link(confined: Opener, tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree.root)
    with _root(tmp_path / "link") as fd:
        assert _read(confined, fd, "skill/SKILL.md") == b"inside"


def test_the_root_may_be_the_top_of_the_system(confined: Opener, tree: Tree) -> None:
    with _root("/") as fd:
        assert _read(confined, fd, str(tree.root.resolve()).lstrip("/") + "/skill/SKILL.md") == b"inside"


def test_the_root_keeps_its_folder_when_renamed(confined: Opener, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/f.md").write_bytes(b"mine")
    with _root(tmp_path / "old") as fd:
        (tmp_path / "old").rename(tmp_path / "new")
        (tmp_path / "old").mkdir()
        (tmp_path / "old/f.md").write_bytes(b"another's")
        assert _read(confined, fd, "f.md") == b"mine"


def test_the_root_must_be_a_folder(tree: Tree) -> None:
    assert _errno(lambda: open_root(str(tree.root / "skill/SKILL.md"))) == errno.ENOTDIR
    assert _errno(lambda: open_root(str(tree.root / "nowhere"))) == errno.ENOENT


def test_the_root_is_not_inherited(tree: Tree) -> None:
    assert not os.get_inheritable(tree.fd)


REFUSED = [
    # Files that are links, wherever they lead.
    ("file", "skill/file-out", errno.ELOOP),
    ("file", "skill/up", errno.ELOOP),
    ("file", "skill/hop1", errno.ELOOP),
    ("file", "skill/refs/hop3", errno.ELOOP),
    ("file", "skill/inside-absolute", errno.ELOOP),
    ("file", "skill/inside-relative", errno.ELOOP),
    ("file", "skill/loop-a", errno.ELOOP),
    ("file", "skill/dangling", errno.ELOOP),
    ("file", "skill/dir-out", errno.ELOOP),
    ("file", "skill/magic", errno.ELOOP),
    # Folders that are links, at the end of the path.
    ("folder", "skill/dir-out", errno.ELOOP),
    ("folder", "skill/up-dir", errno.ELOOP),
    ("folder", "skill/up-far", errno.ELOOP),
    ("folder", "skill/inside-dir", errno.ELOOP),
    ("folder", "skill/here", errno.ELOOP),
    ("folder", "skill/loop-a", errno.ELOOP),
    ("folder", "skill/magic", errno.ELOOP),
    ("folder", "skill/file-out", errno.ELOOP),
    # Links in the middle of the path.
    *(
        (call, path, errno.ELOOP)
        for call in CALLS
        for path in (
            "skill/dir-out/secret.md",
            "skill/up-dir/secret.md",
            "skill/up-far/passwd",
            "skill/inside-dir/a.md",
            "skill/here/SKILL.md",
            "skill/loop-a/x",
            "skill/dangling/x",
            "skill/file-out/x",
            "skill/magic/etc/passwd",
        )
    ),
    # Things of another kind, and nothing.
    ("file", "", errno.EISDIR),
    ("file", "skill", errno.EISDIR),
    ("folder", "skill/SKILL.md", errno.ENOTDIR),
    *((call, "skill/SKILL.md/x", errno.ENOTDIR) for call in CALLS),
    *(
        (call, path, errno.ENOENT)
        for call in CALLS
        for path in ("skill/none.md", "none/SKILL.md", "SKILL.md")
    ),
    *((call, "skill/" + "x" * 256, errno.ENAMETOOLONG) for call in CALLS),
    *((call, "x" * 256 + "/f.md", errno.ENAMETOOLONG) for call in CALLS),
    *((call, "a/" * 2047 + "bc", errno.ENAMETOOLONG) for call in CALLS),
    *((call, "a/" * 2047 + "b", errno.ENOENT) for call in CALLS),
    # No store paths at all.
    *(
        (call, path, errno.ENOENT)
        for call in CALLS
        for path in (
            "..",
            ".",
            "/",
            "//",
            "../outside/secret.md",
            "../root-evil/secret.md",
            "../root'/secret.md",
            "../root/skill/SKILL.md",
            "skill/../../outside/secret.md",
            "skill/../skill/SKILL.md",
            "skill/..",
            "skill/refs/../SKILL.md",
            "./skill/SKILL.md",
            "skill/./SKILL.md",
            "skill/.",
            "skill//SKILL.md",
            "skill/SKILL.md/",
            "skill/",
            "/skill/SKILL.md",
            "/etc/passwd",
            "/proc/self/root/etc/passwd",
            "skill/SKILL.md\0",
            "skill/SKILL.md\0.txt",
            "skill\0/../../outside",
            "skill/\ud800.md",
            " skill/SKILL.md",
            "skill/SKILL.md ",
        )
    ),
]


@pytest.mark.parametrize(("call", "path", "number"), REFUSED)
def test_refused(confined: Opener, tree: Tree, call: str, path: str, number: int) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared below
        getattr(confined, call)(tree.fd, path)
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]
    assert caught.value.filename == path
    assert str(tree.root) not in str(caught.value)


def test_an_absolute_path_into_the_root_is_refused(confined: Opener, tree: Tree) -> None:
    for call in CALLS:
        assert (
            _errno(lambda call=call: getattr(confined, call)(tree.fd, f"{tree.root}/skill/SKILL.md"))
            == errno.ENOENT
        )


def test_the_kernel_alone_would_confine_too(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = _opener("openat2")
    monkeypatch.setattr(confine, "_encoded", os.fsencode)
    for call in CALLS:
        for path in ("../outside/secret.md", "skill/../../outside", "/etc", str(tree.outside)):
            assert _errno(lambda call=call, path=path: getattr(kernel, call)(tree.fd, path)) == errno.EXDEV


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_magic_links_are_refused(confined: Opener, tree: Tree) -> None:
    secret = os.open(tree.outside / "secret.md", os.O_RDONLY)
    try:
        with _root("/proc/self") as fd:
            for call, path in [
                ("file", f"fd/{secret}"),
                ("file", "exe"),
                ("file", "root/etc/passwd"),
                ("file", f"cwd/{Path(__file__).name}"),
                ("folder", "root"),
                ("folder", "cwd"),
                ("stat", "root/etc"),
                ("stat", "task/self/root/etc"),
            ]:
                expected = errno.ENOENT if path.startswith("task") else errno.ELOOP
                assert _errno(lambda call=call, path=path: getattr(confined, call)(fd, path)) == expected, (
                    path
                )
    finally:
        os.close(secret)


NAMES = [
    *("", ".", "..", "skill", "refs", "SKILL.md", "a.md", "outside", "secret.md", "root", "etc", "passwd"),
    *(
        "file-out",
        "dir-out",
        "up",
        "up-dir",
        "up-far",
        "hop1",
        "hop3",
        "inside-absolute",
        "inside-dir",
        "here",
    ),
    *("loop-a", "dangling", "magic", "~", "\0"),
]


@given(
    path=st.lists(st.sampled_from(NAMES) | st.text(max_size=3), max_size=6).map("/".join),
    call=st.sampled_from(CALLS),
    below_skill=st.booleans(),
)
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_methods_agree_and_stay_inside(tree: Tree, path: str, call: str, below_skill: bool) -> None:
    inside = {
        (found.st_dev, found.st_ino) for found in (p.lstat() for p in [tree.root, *tree.root.rglob("*")])
    }
    if below_skill:
        path = f"skill/{path}"
    outcomes = []
    for method in ("openat2", "walk"):
        try:
            found = getattr(_opener(method), call)(tree.fd, path)
        except OSError as error:
            outcomes.append(errno.errorcode[error.errno or 0])
            continue
        if isinstance(found, int):
            fd, found = found, os.fstat(found)
            os.close(fd)
        assert (found.st_dev, found.st_ino) in inside
        outcomes.append(found.st_ino)
    assert outcomes[0] == outcomes[1]


def test_a_fifo_is_refused_at_once_and_left_alone(confined: Opener, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    with _root(tmp_path) as fd:
        began = time.perf_counter()
        assert _errno(lambda: confined.file(fd, "pipe.md")) == errno.ENOENT
        assert _errno(lambda: confined.folder(fd, "pipe.md")) == errno.ENOTDIR
        assert stat.S_ISFIFO(confined.stat(fd, "pipe.md").st_mode)
        assert time.perf_counter() - began < 5  # it would wait for ever
        # No reader was left behind, for whom a writer would write in vain.
        assert _errno(lambda: os.open(tmp_path / "pipe.md", os.O_WRONLY | os.O_NONBLOCK)) == errno.ENXIO


def test_a_fifo_in_use_loses_nothing(confined: Opener, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    reader = os.open(tmp_path / "pipe.md", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "pipe.md", os.O_WRONLY)
    try:
        os.write(writer, b"one")
        with _root(tmp_path) as fd:
            assert _errno(lambda: confined.file(fd, "pipe.md")) == errno.ENOENT
        os.write(writer, b" two")
        assert os.read(reader, 100) == b"one two"
    finally:
        os.close(reader)
        os.close(writer)


def test_stat_does_not_wake_a_waiting_writer(confined: Opener, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    opened = threading.Event()

    def write() -> None:
        writer = os.open(tmp_path / "pipe.md", os.O_WRONLY)
        opened.set()
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with _root(tmp_path) as fd:
            for _ in range(100):
                confined.stat(fd, "pipe.md")
        assert not opened.wait(0.1)
    finally:
        os.close(os.open(tmp_path / "pipe.md", os.O_RDONLY))
        thread.join()


def test_a_socket_is_refused(confined: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is limited to some hundred bytes
    with socket.socket(socket.AF_UNIX) as listening, _root(tmp_path) as fd:
        listening.bind("talk.md")
        assert _errno(lambda: confined.file(fd, "talk.md")) == errno.ENOENT
        assert stat.S_ISSOCK(confined.stat(fd, "talk.md").st_mode)


@pytest.mark.parametrize(
    ("kind", "major", "minor"),
    [(stat.S_IFCHR, 1, 3), (stat.S_IFCHR, 1, 5), (stat.S_IFCHR, 240, 77), (stat.S_IFBLK, 240, 77)],
    ids=["null", "zero", "character device without a driver", "block device without a driver"],
)
def test_a_device_is_refused(confined: Opener, tmp_path: Path, kind: int, major: int, minor: int) -> None:
    try:
        os.mknod(tmp_path / "device.md", kind | 0o666, os.makedev(major, minor))
    except PermissionError:
        pytest.skip("making a device needs root")
    with _root(tmp_path) as fd:
        number = _errno(lambda: confined.file(fd, "device.md"))
        if number == errno.EACCES:
            pytest.skip("the filesystem of the temporary folder allows no devices")
        assert number == errno.ENOENT


AS_NOBODY = f"""
import errno, os, sys
from skillfs.stores.confine import opener

method, root = sys.argv[1], int(sys.argv[2])
confined = opener(method)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for call, path in [
    ("file", "open/f.md"), ("file", "open/secret.md"), ("stat", "open/secret.md"), ("folder", "shut"),
    ("file", "shut/f.md"), ("stat", "shut/f.md"), ("stat", "shut"),
    ("folder", "search"), ("file", "search/f.md"),
]:
    try:
        getattr(confined, call)(root, path)
        print(call, path, "fine")
    except OSError as error:
        print(call, path, errno.errorcode[error.errno])
"""


def test_permissions_are_the_systems(confined: Opener, tmp_path: Path) -> None:
    for folder in ("open", "shut", "search"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f.md").write_bytes(b"x")
        (tmp_path / folder / "f.md").chmod(0o644)
    (tmp_path / "open/secret.md").write_bytes(b"x")
    (tmp_path / "open/secret.md").chmod(0o000)
    for folder, mode in {"": 0o755, "open": 0o755, "shut": 0o000, "search": 0o111}.items():
        (tmp_path / folder).chmod(mode)
    with _root(tmp_path) as fd:
        command = [sys.executable, "-c", AS_NOBODY, confined.method, str(fd)]
        done = subprocess.run(
            command, cwd=REPOSITORY, pass_fds=[fd], capture_output=True, text=True, timeout=30
        )
    for folder in ("shut", "search"):
        (tmp_path / folder).chmod(0o755)
    if "os.setuid" in done.stderr or "os.setgroups" in done.stderr:
        pytest.skip("root may not become another user here")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "file open/f.md fine",
        "file open/secret.md EACCES",
        "stat open/secret.md fine",
        "folder shut EACCES",
        "file shut/f.md EACCES",
        "stat shut/f.md EACCES",
        "stat shut fine",
        "folder search EACCES",
        "file search/f.md fine",
    ]


@contextmanager
def _leased(path: Path, when_asked: Callable[[int], object]) -> Iterator[None]:
    """While it lasts the kernel asks for the lease back, and answers EAGAIN to whoever would not wait."""
    fd = os.open(path, os.O_RDWR)
    before = signal.signal(signal.SIGIO, lambda *_: when_asked(fd))
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("the filesystem of the temporary folder knows no leases")
    try:
        yield
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)


def test_a_file_under_a_lease_is_not_waited_for(confined: Opener, tmp_path: Path) -> None:
    (tmp_path / "f.md").write_bytes(b"x")
    with _root(tmp_path) as fd, _leased(tmp_path / "f.md", lambda _: None):
        began = time.perf_counter()
        with pytest.raises(BlockingIOError):
            confined.file(fd, "f.md")
        assert time.perf_counter() - began < 10  # a lease is waited for 45 seconds


def test_openat2_tries_again_when_the_kernel_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "f.md").write_bytes(b"x")
    asked = []

    def give_back(fd: int) -> None:
        asked.append(fd)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    with _root(tmp_path) as fd, _leased(tmp_path / "f.md", give_back):
        assert _read(_opener("openat2"), fd, "f.md") == b"x"
    assert asked


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_no_descriptor_is_left_open(confined: Opener, tree: Tree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    before = sorted(os.listdir("/proc/self/fd"))
    with _root(tmp_path) as fd:
        assert _errno(lambda: confined.file(fd, "pipe.md")) == errno.ENOENT
    for call, path, _ in REFUSED:
        _errno(lambda call=call, path=path: getattr(confined, call)(tree.fd, path))
    for path in ("", "skill", "skill/refs"):
        os.close(confined.folder(tree.fd, path))
    for path in ("", "skill", "skill/refs/a.md", "skill/up"):
        confined.stat(tree.fd, path)
    for path in ("skill/SKILL.md", "skill/refs/a.md"):
        _read(confined, tree.fd, path)
    assert sorted(os.listdir("/proc/self/fd")) == before
    os.fstat(tree.fd)


def test_threads_get_their_own_files_and_errors(confined: Opener, tree: Tree) -> None:
    jobs: list[tuple[str, bytes | int]] = [
        ("skill/SKILL.md", b"inside"),
        ("skill/refs/a.md", b"inside a"),
        ("skill/none.md", errno.ENOENT),
        ("skill/up", errno.ELOOP),
        ("skill/SKILL.md/x", errno.ENOTDIR),
        ("skill", errno.EISDIR),
    ]
    wrong: list[object] = []

    def work(path: str, expected: bytes | int) -> None:
        for _ in range(400):
            try:
                got: bytes | int | None = _read(confined, tree.fd, path)
            except OSError as error:
                got = error.errno
            if got != expected:
                wrong.append((path, got))

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_environment_forces_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("walk", "openat2"):
        _opener(method)
        monkeypatch.setenv("SKILLFS_OPEN", method)
        assert opener().method == method
        assert opener("walk").method == "walk"
    monkeypatch.setenv("SKILLFS_OPEN", "")
    assert opener().method == "openat2"


def test_an_unknown_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLFS_OPEN", "open")
    with pytest.raises(InvalidArgumentError, match=r'"open".*openat2 or walk'):
        opener()
    with pytest.raises(InvalidArgumentError, match='"Walk"'):
        opener("Walk")


# A filter of the kernel's that answers one system call with an error, as container profiles have it.
WITHOUT_OPENAT2 = """
import ctypes, os, struct, sys
from skillfs.errors import InvalidArgumentError
from skillfs.stores.confine import open_root, opener

number, root = int(sys.argv[1]), sys.argv[2]
program = b"".join(struct.pack("=HBBI", *step) for step in [
    (0x20, 0, 0, 0),                        # load the number of the system call
    (0x15, 0, 1, 437),                      # openat2?
    (0x06, 0, 0, 0x00050000 | number),      # then fail
    (0x06, 0, 0, 0x7FFF0000),               # else allow
])
steps = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(steps)))
prctl = ctypes.CDLL(None)["prctl"]
word = ctypes.c_ulong
if prctl(38, word(1), word(0), word(0), word(0)) or prctl(22, word(2), filter, word(0), word(0)):
    sys.exit("no filters")
confined = opener()
print(confined.method, os.read(confined.file(open_root(root), "skill/SKILL.md"), 100).decode())
try:
    opener("openat2")
except InvalidArgumentError as error:
    print(error.code)
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_walks_where_the_system_call_is_missing_or_forbidden(tree: Tree, number: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SKILLFS_OPEN"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_OPENAT2, str(number), str(tree.root)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    if done.stderr == "no filters\n":
        pytest.skip("the kernel takes no system call filters")
    assert done.stderr == ""
    assert done.stdout == "walk inside\ninvalid_argument\n"


@pytest.fixture
def swapper(tmp_path: Path) -> Swapper:
    return Swapper(tmp_path / "root", tmp_path / "outside")


def test_nothing_leaks_while_links_are_swapped_in(confined: Opener, swapper: Swapper) -> None:
    contents = {name: swapper.content(name) for name in FILES}
    outcomes: Counter[str] = Counter()

    def attempt(act: Callable[[], None]) -> None:
        try:
            act()
            outcomes["read"] += 1
        except OSError as error:
            outcomes[errno.errorcode[error.errno or 0]] += 1

    def check_file(name: str) -> None:
        fd = confined.file(root_fd, name)
        try:
            found = os.fstat(fd)
            assert (found.st_dev, found.st_ino) not in swapper.outside_ids
            assert os.read(fd, 1 << 16) == contents[name]
        finally:
            os.close(fd)

    def check_folder(name: str) -> None:
        fd = confined.folder(root_fd, name)
        try:
            found = os.fstat(fd)
            assert (found.st_dev, found.st_ino) not in swapper.outside_ids
        finally:
            os.close(fd)

    def check_stat(name: str) -> None:
        found = confined.stat(root_fd, name)
        assert (found.st_dev, found.st_ino) not in swapper.outside_ids

    with _root(swapper.root) as root_fd, swapper:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < 3 or (passed < 30 and outcomes["ELOOP"] == 0):
            for name in FILES:
                attempt(lambda name=name: check_file(name))
                attempt(lambda name=name: check_stat(name))
            attempt(lambda: check_folder("skill/refs"))
    assert outcomes["read"] > 100, outcomes
    assert outcomes["ELOOP"] > 0, outcomes
    assert outcomes.keys() <= {"read", "ELOOP", "ENOENT", "ENOTDIR", "EXDEV"}
    assert min(swapper.swaps.values()) > 20, swapper.swaps
    assert {name: swapper.content(name) for name in FILES} == contents


def test_the_race_catches_a_reader_that_checks_the_path_and_then_opens_it(swapper: Swapper) -> None:
    root = os.path.realpath(swapper.root)

    def leaks(name: str) -> bool:
        try:
            real = os.path.realpath(os.path.join(root, name), strict=True)
            if os.path.commonpath([root, real]) != root:
                return False
            with open(real, "rb") as file:
                return SECRET.encode() in file.read()
        except OSError:
            return False

    with swapper:
        end = time.monotonic() + 30
        leaked = False
        while not leaked and time.monotonic() < end:
            leaked = any(leaks(name) for name in FILES)
    assert leaked
