"""Nothing that is no part of a skill is reached through a mount point, by whatever name, whoever swaps."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.fuse.mounted import KEPT, mounted, refused, run, s3_shown, until
from tests.mountable import needs_mount_points
from tests.race import FILES, SECRET, Swapper
from tests.servers.s3 import S3Server

pytestmark = needs_mount_points


def everything(at: Path) -> dict[str, bytes | None]:
    """Every path below a mount point that listings lead to; of files with what is in them."""
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(os.fsencode(at)):
        below = os.path.relpath(folder, os.fsencode(at))
        for name in folders + files:
            path = os.path.normpath(os.path.join(below, name))
            whole = os.path.join(folder, name)
            is_file = os.path.isfile(whole)
            found[os.fsdecode(path)] = Path(os.fsdecode(whole)).read_bytes() if is_file else None
    return found


LONGEST = "l" * 252 + ".md"
COMPOSED, DECOMPOSED = "gr\u00f6\u00dfe.md", "gro\u0308\u00dfe.md"
INSIDE = {
    "a/SKILL.md": skill_md("a"),
    "a/refs/x.md": "x\n",
    "a/line\nbreak\t\x07.md": "line\n",
    f"a/{LONGEST}": "longest\n",
    f"a/{COMPOSED}": "composed\n",
    f"a/{DECOMPOSED}": "decomposed\n",
    "a/Case.md": "upper\n",
    "a/case.md": "lower\n",
    "a/.hidden.md": "hidden\n",
    "a/name:b": "no reference\n",
    "a/%2e%2e": "no code\n",
    "a/~x": "no home\n",
    "a/12345": "no id\n",
    "b/SKILL.md": skill_md("b"),
    "b/y.md": "y\n",
}
OUTSIDE = {
    "loose.md": SECRET,
    "evil/README.md": SECRET,
    "a/.env": SECRET,
    "a/key.pem": SECRET,
    "a/.git/config": SECRET,
    "a/node_modules/x.js": SECRET,
    "a/x.pyc": SECRET,
    "evil/below/x.md": SECRET,
    ".skillfs/other.json": SECRET,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confined")
    write(
        folder / "outside",
        {"passwd": SECRET, "SKILL.md": skill_md("outside", SECRET), "folder/file.md": SECRET},
    )
    store = write(folder / "store", {**INSIDE, **OUTSIDE})
    with contextlib.suppress(OSError):  # not every disk takes such names
        (Path(os.fsdecode(os.fsencode(store / "a") + b"/not-\xff-utf8.md"))).write_text(SECRET)
    outside = folder / "outside"
    links = {
        "a/file": outside / "passwd", "a/folder": outside / "folder", "a/up": "../../outside",
        "a/far-up": "../" * 12 + str(outside).lstrip("/"), "a/one": "two", "a/two": outside / "passwd",
        "a/loop": "loop", "a/ping": "pong", "a/pong": "ping", "a/dangling": "nowhere",
        "a/proc": "/proc/self/fd/0", "a/to-loose": "../loose.md", "a/to-env": ".env", "a/to-evil": "../evil",
        "evil/SKILL.md": outside / "SKILL.md",
        "a/alias": "refs", "a/to-b": "../b/y.md", "a/inside-absolute": store / "a/refs/x.md", "top-b": "b",
    }  # fmt: skip
    for name, target in links.items():
        (store / name).symlink_to(target)
    os.mkfifo(store / "a/pipe")
    return store


@pytest.fixture(scope="module")
def at(store: Path) -> Iterator[Path]:
    with mounted(SkillFileSystem(store, index=":memory:"), store.parent / "mount") as shown:
        yield shown


def test_all_that_is_listed(at: Path) -> None:
    found = everything(at)
    files = {name: content.encode() for name, content in INSIDE.items()}
    links = {"a/to-b": b"y\n", "a/inside-absolute": b"x\n", "a/alias": None, "top-b": None}
    assert found == {**files, **links, "a": None, "b": None, "a/refs": None}
    assert os.listdir(at) == ["a", "b", "top-b"]


def test_links_lead_where_they_lead_and_never_out(at: Path) -> None:
    assert os.readlink(at / "a/inside-absolute") == "refs/x.md"
    assert os.readlink(at / "a/to-b") == "../b/y.md"
    assert os.readlink(at / "a/alias") == "refs"
    assert (at / "a/alias/x.md").read_text() == "x\n"
    assert os.path.realpath(at / "a/to-b") == str(at / "b/y.md")
    assert run("find", "-L", at, "-type", "l") == ""  # of those that are there none dangles


@pytest.mark.parametrize(
    "path",
    [
        *OUTSIDE, "evil", "evil/SKILL.md", "a/file", "a/folder", "a/folder/file.md", "a/up", "a/up/passwd",
        "a/far-up/passwd", "a/one", "a/two", "a/loop", "a/loop/x", "a/ping", "a/dangling", "a/proc",
        "a/pipe", "a/to-loose", "a/to-env", "a/to-evil", "a/to-evil/README.md", "a/.git", "a/node_modules",
        ".skillfs", "a/CASE.md", "A/SKILL.md", "a/skill.md", "a/not-\udcff-utf8.md", "a/no\udcffsuch",
        "name:a", "*", "a/*", "a/refs/x.md:stream", "a/SKILL.md ", "a/\u202e", "a/refs\\x.md",
    ],
)  # fmt: skip
def test_what_cannot_be_reached(at: Path, path: str) -> None:
    there = at / path
    for work in (os.lstat, os.stat, os.listdir, os.readlink, os.listxattr, lambda p: os.open(p, os.O_RDONLY)):
        assert refused(lambda work=work: work(there)) == errno.ENOENT
    assert refused(lambda: os.getxattr(there, "user.skillfs.md5")) == errno.ENOENT


def test_names_that_are_too_long_or_lead_through_files(at: Path) -> None:
    for name in ("x" * 256, "ö" * 128, "x" * 1000):
        assert refused(lambda name=name: os.stat(at / "a" / name)) == errno.ENOENT
    assert refused(lambda: os.stat(at / "a/SKILL.md/x")) == errno.ENOTDIR
    assert refused(lambda: os.listdir(at / "a/SKILL.md")) == errno.ENOTDIR
    assert refused(lambda: os.readlink(at / "a/SKILL.md")) == errno.EINVAL


def test_going_up_ends_where_folders_end(at: Path, store: Path) -> None:
    assert sorted(os.listdir(at / "a/..")) == ["a", "b", "top-b"]
    assert os.stat(at / "..").st_ino == os.stat(store.parent).st_ino
    assert refused(lambda: os.stat(at / "a/../loose.md")) == errno.ENOENT
    fd = os.open(at / "a/refs", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert sorted(os.listdir(f"/proc/self/fd/{fd}/../..")) == ["a", "b", "top-b"]
        assert refused(lambda: os.open("../../loose.md", os.O_RDONLY, dir_fd=fd)) == errno.ENOENT
        assert refused(lambda: os.open("../.env", os.O_RDONLY, dir_fd=fd)) == errno.ENOENT
        again = os.open("x.md", os.O_RDONLY, dir_fd=fd)
        try:
            # By the handle alone nothing is opened anew but the very file.
            assert Path(f"/proc/self/fd/{again}").read_text() == "x\n"
            assert os.readlink(f"/proc/self/fd/{again}") == str(at / "a/refs/x.md")
            assert refused(lambda: os.open(f"/proc/self/fd/{again}", os.O_RDWR)) == errno.EROFS
        finally:
            os.close(again)
    finally:
        os.close(fd)


def test_the_server_holds_nothing_that_others_could_take(at: Path) -> None:
    told = "".join(os.listxattr(at)) + repr([os.getxattr(at, name) for name in os.listxattr(at)])
    assert str(at.parent) not in told
    assert str(at.parent / "store") not in Path("/proc/self/mountinfo").read_text()


# -- less than all -----------------------------------------------------------------------------------------


def test_base_paths_hold(store: Path, tmp_path: Path) -> None:
    with mounted(SkillFileSystem(store, index=":memory:", base_paths=["b"]), tmp_path / "mount") as at:
        assert everything(at) == {
            "b": None, "b/SKILL.md": skill_md("b").encode(), "b/y.md": b"y\n",
        }  # fmt: skip
        for path in ("a", "a/SKILL.md", "a/to-b", "loose.md"):
            assert refused(lambda path=path: os.lstat(at / path)) == errno.ENOENT


def test_what_a_lock_does_not_name_is_not_read(tmp_path: Path) -> None:
    store = write(tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/x.md": "x" * 9000, "a/y.md": "y"})
    fs = SkillFileSystem(store, index=":memory:")
    with mounted(SkillFileSystem(store, index=":memory:", lock=fs.lock()), tmp_path / "mount") as at:
        assert (at / "a/x.md").read_text() == "x" * 9000
        write(store, {"a/x.md": "z" * 9000, "a/new.md": "new"})
        time.sleep(KEPT)
        assert os.stat(at / "a/new.md").st_size == 3
        for name in ("x.md", "new.md"):
            assert refused(lambda name=name: (at / "a" / name).read_bytes()) == errno.EBADMSG
            assert (
                refused(lambda name=name: os.getxattr(at / "a" / name, "user.skillfs.md5")) == errno.EBADMSG
            )
        assert (at / "a/y.md").read_text() == "y"
        write(store, {"a/x.md": "x" * 9000})
        assert (at / "a/x.md").read_text() == "x" * 9000


AS_ANOTHER = """
import os, sys
os.setuid(65534)
try:
    print(os.listdir(sys.argv[1]), open(sys.argv[1] + "/a/x.md").read())
except OSError as error:
    print(error.errno)
"""


def test_others_see_nothing_unless_they_are_let_in(shared_folder: Path) -> None:
    store = write(shared_folder / "store", {"a/SKILL.md": skill_md("a"), "a/x.md": "x"})
    (store / "a/x.md").chmod(0o600)
    for allow, told in ((False, f"{errno.EACCES}\n"), (True, "['a'] x\n")):
        fs = SkillFileSystem(store, index=":memory:")
        with mounted(fs, shared_folder / "mount", allow_other=allow) as at:
            assert run(sys.executable, "-I", "-S", "-c", AS_ANOTHER, at) == told


def test_keys_that_cannot_be_paths(tmp_path: Path, s3_server: S3Server) -> None:
    tree = {"a/SKILL.md": skill_md("a"), "a/fine.md": "fine"}
    hidden = {
        "a/../a/x.md": SECRET, "a/./x.md": SECRET, "a//x.md": SECRET, "/a/x.md": SECRET, "a/folder/": "",
        "a/both": SECRET, "a/both/x.md": "below", "a/" + "n" * 256: SECRET, "../outside.md": SECRET,
        "a/nul\0.md": SECRET,
    }  # fmt: skip
    with s3_shown(tmp_path, s3_server, tree, hidden) as shown:
        found = everything(shown.at)
        assert SECRET not in str(found)
        assert {**found, "a/both": None, "a/both/x.md": None, "a/folder": None} == {
            "a": None, "a/SKILL.md": skill_md("a").encode(), "a/fine.md": b"fine",
            "a/both": None, "a/both/x.md": None, "a/folder": None,
        }  # fmt: skip


# -- races -------------------------------------------------------------------------------------------------


def race(tmp_path: Path, seconds: float) -> dict[str, int]:
    """Read through a mount point while links that lead outside are swapped in: how often each went well."""
    root, outside = tmp_path / "root", tmp_path / "elsewhere"
    swapper = Swapper(root, outside)
    write(outside, {"skill/only-outside.md": SECRET, "skill/refs/only-outside.md": SECRET})
    inner = {name: swapper.content(name) for name in FILES}
    asked = (*FILES, "skill/only-outside.md", "skill/refs/only-outside.md")
    done = dict.fromkeys(("read", "list", "stat", "xattr", "link"), 0)
    bad: list[object] = []

    def attempt(kind: str, work: Callable[[], object], fine: Callable[[object], bool]) -> None:
        try:
            result = work()
        except OSError:
            return
        done[kind] += 1
        if not fine(result):
            bad.append((kind, result))

    def read_all(at: Path, until: float) -> None:
        while time.monotonic() < until and not bad:
            for name in asked:
                attempt("read", (at / name).read_bytes, lambda r, name=name: r == inner.get(name))
                attempt(
                    "stat", lambda name=name: os.stat(at / name).st_size, lambda r, name=name: name in inner
                )
                attempt(
                    "xattr",
                    lambda name=name: os.getxattr(at / name, "user.skillfs.uuid"),
                    lambda r, name=name: name in inner,
                )
                attempt("link", lambda name=name: os.readlink(at / name), lambda r: False)

    def list_all(at: Path, until: float) -> None:
        while time.monotonic() < until and not bad:
            for folder in ("", "skill", "skill/refs"):
                attempt("list", lambda folder=folder: os.listdir(at / folder),
                        lambda r: set(r) <= {"skill", "SKILL.md", "refs", "a.md", "b.md"})  # fmt: skip

    fs = SkillFileSystem(root, index=":memory:", max_age=0.05)
    with mounted(fs, tmp_path / "mount") as at:
        with swapper:
            until_then = time.monotonic() + seconds
            threads = [
                threading.Thread(target=work, args=(at, until_then))
                for work in (read_all, read_all, list_all)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert bad == []
        assert min(swapper.swaps.values()) > 20
        until(lambda: {name for name, content in everything(at).items() if content is not None} == set(FILES))
        for name in FILES:
            assert (at / name).read_bytes() == inner[name]
    return done


def test_nothing_outside_leaks_while_links_are_swapped_in(tmp_path: Path) -> None:
    done = race(tmp_path, 1.5)
    assert done.pop("link") == 0
    assert min(done.values()) > 0, done


@pytest.mark.soak
def test_nothing_outside_leaks_for_long(tmp_path: Path) -> None:
    race(tmp_path, 60)


def test_a_folder_that_was_moved_out_and_linked_to(tmp_path: Path) -> None:
    store = write(
        tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/refs/x.md": "x", "a/refs/deep/y.md": "y"}
    )
    with mounted(SkillFileSystem(store, index=":memory:"), tmp_path / "mount") as at:
        assert (at / "a/refs/deep/y.md").read_text() == "y"
        (store / "a/refs").rename(tmp_path / "moved-out")
        (store / "a/refs").symlink_to(tmp_path / "moved-out")
        time.sleep(KEPT)
        for path in ("a/refs", "a/refs/x.md", "a/refs/deep", "a/refs/deep/y.md"):
            assert refused(lambda path=path: os.stat(at / path)) == errno.ENOENT
            assert refused(lambda path=path: os.open(at / path, os.O_RDONLY)) == errno.ENOENT
        (store / "a/refs").unlink()
        shutil.move(tmp_path / "moved-out", store / "a/refs")
        until(lambda: os.path.exists(at / "a/refs/deep/y.md"))
