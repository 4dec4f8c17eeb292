"""Nothing outside the store is ever read or listed, whatever links say and whoever renames meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem, SkillFSError
from tests.conftest import skill_md, write
from tests.race import FILES, SECRET, Swapper

Open = Callable[..., SkillFileSystem]


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(SkillFSError) as caught:
        work()
    return caught.value.code


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write(
        tmp_path / "outside",
        {"passwd": SECRET, "SKILL.md": skill_md("outside", SECRET), "folder/file.md": SECRET},
    )


@pytest.fixture
def store(root: Path, outside: Path) -> Path:
    write(
        root,
        {
            "a/SKILL.md": skill_md("a"), "a/real.md": "real\n", "a/refs/x.md": "x\n",
            "b/SKILL.md": skill_md("b"), "b/y.md": "y\n", "evil/README.md": "none\n",
        },
    )  # fmt: skip
    links = {
        "a/file": outside / "passwd",
        "a/folder": outside / "folder",
        "a/up": "../../outside",
        "a/far-up": "../../../../../../../../../../" + str(outside),
        "a/one": "two", "a/two": "three", "a/three": outside / "passwd",
        "a/loop": "loop", "a/ping": "pong", "a/pong": "ping", "a/self": ".",
        "a/dangling": "nowhere",
        "a/proc": "/proc/self/fd/0",
        "a/inside-absolute": root / "a/real.md",
        "a/inside-relative": "refs/../real.md",
        "a/alias": "refs",
        "a/to-b": "../b/y.md",
        "top-b": "b",
        "evil/SKILL.md": outside / "SKILL.md",
    }  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


# -- links ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["openat2", "walk"])
@pytest.mark.parametrize(
    "path",
    [
        "a/file", "a/folder", "a/folder/file.md", "a/up", "a/up/passwd", "a/far-up", "a/far-up/passwd",
        "a/one", "a/two", "a/three", "a/loop", "a/loop/x", "a/ping", "a/dangling", "a/proc",
        "evil", "evil/SKILL.md", "evil/README.md", "a/self/file", "a/alias/../file.md",
    ],
)  # fmt: skip
def test_links_that_lead_outside_or_nowhere(
    store: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    monkeypatch.setenv("SKILLFS_OPEN", method)
    fs = open_fs()
    wanted = "invalid_argument" if ".." in path else "not_found"
    started = time.perf_counter()
    for call in (fs.get_content, fs.get_lines, fs.entry, fs.cat_file, fs.open, fs.info, fs.ls, fs.ukey):
        assert code_of(lambda call=call: call(path)) == wanted
    assert not fs.exists(path)
    assert not fs.lexists(path)
    assert time.perf_counter() - started < 20


def test_what_escapes_is_not_listed(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    listed = fs.find("")
    assert "a/inside-absolute" in listed
    for name in ("file", "folder", "up", "far-up", "one", "two", "three", "loop", "ping", "dangling", "proc"):
        assert f"a/{name}" not in listed
    assert SECRET not in str(fs.skill_tree(hidden=True, details=True)) + str(fs.skills()) + fs.to_prompt()
    assert {p.path: p.code for p in fs.problems()}["a/file"] == "link-escapes"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a/inside-absolute", "a/real.md"),
        ("a/inside-relative", "a/real.md"),
        ("a/alias/x.md", "a/refs/x.md"),
        ("a/to-b", "b/y.md"),
        ("top-b/y.md", "b/y.md"),
        ("a/self/self/alias/x.md", "a/refs/x.md"),
    ],
)
def test_links_inside_are_aliases(store: Path, open_fs: Open, path: str, target: str) -> None:
    fs = open_fs()
    real = fs.get_content(target)
    assert fs.get_content(path) == real
    assert fs.entry(path).uuid == real.uuid
    assert fs.cat_file(path) == real.text.encode()
    info = fs.info(path)
    assert (info["name"], info["uuid"], info["islink"]) == (path, real.uuid, True)
    with fs.open(path, "r") as file:
        assert file.read() == real.text


def test_a_link_out_of_the_base_paths(store: Path, open_fs: Open) -> None:
    fs = open_fs(base_paths=["a"])
    assert code_of(lambda: fs.get_content("a/to-b")) == "not_found"
    assert code_of(lambda: open_fs().get_content("a/to-b", base_paths=["a"])) == "not_found"
    assert "a/to-b" not in fs.find("")
    # A base given as a path stays that path, and no skill lies at or below a link.
    for path in ("top-b/y.md", "b/y.md"):
        assert (
            code_of(lambda path=path: open_fs().get_content(path, base_paths=["top-b"])) == "invalid_argument"
        )
    assert code_of(lambda: open_fs().get_content("a/to-b", base_paths=["b"])) == "not_found"


def test_a_link_that_is_turned_elsewhere(store: Path, outside: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    link = store / "a/inside-relative"
    assert fs.get_content("a/inside-relative").text == "real\n"
    for target, text in (
        ("refs/x.md", "x\n"),
        (outside / "passwd", None),
        ("../b/y.md", "y\n"),
        ("gone", None),
    ):
        link.unlink()
        link.symlink_to(target)
        if text is None:
            assert code_of(lambda: fs.get_content("a/inside-relative")) == "not_found"
        else:
            assert fs.get_content("a/inside-relative").text == text
    link.unlink()
    link.write_text("a file now")
    assert fs.get_content("a/inside-relative").text == "a file now"


def test_a_folder_that_is_replaced_by_a_link_outside(store: Path, outside: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    entry = fs.entry("a/refs/x.md")
    (store / "a/refs").rename(outside.parent / "away")
    write(outside, {"folder/x.md": SECRET})
    (store / "a/refs").symlink_to(outside / "folder")
    for ref in ("a/refs/x.md", entry.uuid, entry.id):
        assert code_of(lambda ref=ref: fs.get_content(ref)) == "not_found"


def test_the_root_itself_may_be_a_link(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    for given in (tmp_path / "link", f"file://{tmp_path}/link", f"{tmp_path}/link/"):
        fs = SkillFileSystem(given, index=":memory:", skip_instance_cache=True)
        assert fs.get_content("a/real.md").text == "real\n"
        assert fs.get_content(f"{tmp_path}/link/a/real.md").text == "real\n"
        assert fs.get_content(f"{store}/a/real.md").text == "real\n"


def test_stores_whose_names_begin_alike(tmp_path: Path) -> None:
    write(tmp_path, {"skills/a/SKILL.md": skill_md("a"), "skills-evil/a/SKILL.md": skill_md("evil", SECRET)})
    write(tmp_path, {"skills'/a/SKILL.md": skill_md("quote", SECRET)})
    fs = SkillFileSystem(tmp_path / "skills", index=":memory:", skip_instance_cache=True)
    for sibling in ("skills-evil", "skills'"):
        ref = f"{tmp_path}/{sibling}/a/SKILL.md"
        for spelled in (ref, f"file://{ref}"):
            assert code_of(lambda spelled=spelled: fs.get_content(spelled)) == "not_found"
            assert code_of(lambda spelled=spelled: fs.cat_file(spelled)) == "not_found"


# -- what is no file -----------------------------------------------------------------------------------------


def test_what_is_no_regular_file(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/was-file": "x"})
    os.mkfifo(root / "s/fifo.md")
    monkeypatch.chdir(root / "s")  # the name of a socket may be 108 bytes long
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.md")
        names = ["fifo.md", "socket.md", "was-file"]
        if os.getuid() == 0:
            try:
                os.mknod(root / "s/char.md", stat.S_IFCHR | 0o666, os.makedev(1, 3))
                os.mknod(root / "s/block.md", stat.S_IFBLK | 0o666, os.makedev(7, 0))
                names += ["char.md", "block.md"]
            except PermissionError:
                pass
        fs = open_fs(max_age=3600)
        (root / "s/was-file").unlink()
        os.mkfifo(root / "s/was-file")
        for name in names:
            for call in (fs.get_content, fs.cat_file, fs.open, fs.info):
                started = time.perf_counter()
                assert code_of(lambda call=call, name=name: call(f"s/{name}")) == "not_found"
                assert time.perf_counter() - started < 10  # a pipe that is opened waits for ever
        assert fs.find("") == ["s/SKILL.md"]


def test_a_writer_that_waits_at_a_fifo_goes_on_waiting(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    os.mkfifo(root / "s/fifo.md")
    writer = subprocess.Popen(["/bin/sh", "-c", f"echo x > '{root}/s/fifo.md'"])
    try:
        time.sleep(0.1)
        fs = open_fs()
        assert code_of(lambda: fs.get_content("s/fifo.md")) == "not_found"
        fs.sync()
        time.sleep(0.1)
        assert writer.poll() is None
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()


@pytest.mark.parametrize("given", ["/proc", "/sys", "/proc/self"])
def test_stores_of_the_kernel_are_refused(given: str) -> None:
    assert code_of(lambda: SkillFileSystem(given, index=":memory:")) == "invalid_argument"


# -- without a look ------------------------------------------------------------------------------------------

TRACED = """
import os, sys
from skillfs import SkillFileSystem, SkillFSError
fs = SkillFileSystem(sys.argv[1], index=":memory:")
refs = [
    "../../etc/passwd", "a/../a/SKILL.md", "a//SKILL.md", "", "..", "a/SKILL.md\\0.txt", "a/\\ud800.md",
    "x" * 300, "a/" * 2500, "x" * 2**20, "file:///etc/passwd", "local:///etc/passwd", "s3://other-bucket/x",
    "http://169.254.169.254/latest/", "simplecache::file:///etc/passwd", "github://a:b@c/x", None, True, -1,
    ["a"], "skill://%2e%2e/a", sys.argv[1] + "/../x",
]
calls = [fs.get_content, fs.get_lines, fs.entry, fs.cat_file, fs.open, fs.info, fs.ls, fs.find, fs.ukey]
def ask():
    for ref in refs:
        for call in calls:
            if ref in ("", "skill://%2e%2e/a") and call not in calls[:3]:
                continue  # to the methods of fsspec the root, and a plain name
            try:
                call(ref)
            except (SkillFSError, TypeError):
                pass
        try:
            fs.get_content("a/SKILL.md", base_paths=[ref])
        except SkillFSError:
            pass
ask()  # whatever is imported at first use has been by now
os.write(2, b"from here\\n")
ask()
os.write(2, b"to here\\n")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows what a process asks of the system")
def test_what_is_malformed_or_foreign_asks_nothing_of_the_system(store: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run(
        ["strace", "-f", "-o", str(log), "-e", "trace=%file,%network,write,openat2",
         sys.executable, "-c", TRACED, str(store)],
        check=True, capture_output=True, timeout=60, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    lines = log.read_text(errors="replace").splitlines()
    first = next(n for n, line in enumerate(lines) if '"from here' in line)
    last = next(n for n, line in enumerate(lines) if '"to here' in line)
    assert any("SKILL.md" in line for line in lines[:first])  # the trace shows looks where there are some
    assert lines[first + 1 : last] == []


# -- races ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["openat2", "walk"])
def test_nothing_outside_leaks_while_links_are_swapped_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("SKILLFS_OPEN", method)
    root, outside = tmp_path / "root", tmp_path / "elsewhere"
    swapper = Swapper(root, outside)
    write(outside, {"skill/only-outside.md": SECRET, "skill/refs/only-outside.md": SECRET})
    inner = {name: swapper.content(name) for name in FILES}
    names = {"", "skill", "skill/refs", *FILES}
    fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True, max_age=0)
    uuids = [fs.entry(name).uuid for name in FILES]
    asked = (*FILES, *uuids, "skill/only-outside.md", "skill/refs/only-outside.md")
    done = dict.fromkeys(("content", "cat", "open", "info", "ls", "find", "tree", "skills", "entry"), 0)
    bad: list[object] = []

    def attempt(kind: str, work: Callable[[], object], fine: Callable[[object], bool]) -> None:
        try:
            result = work()
        except SkillFSError as error:
            if str(tmp_path) in str(error):
                bad.append(error)
            return
        except BaseException as error:
            bad.append((kind, "".join(traceback.format_exception(error))))
            return
        done[kind] += 1
        if not fine(result):
            bad.append((kind, result))

    def streamed(path: str) -> bytes:
        with fs.open(path) as file:
            return bytes(file.read(30) + file.read())

    def read_all(until: float) -> None:
        while time.monotonic() < until and not bad:
            for ref in asked:
                attempt(
                    "content",
                    lambda ref=ref: fs.get_content(ref).text.encode(),
                    lambda r: r in inner.values(),
                )
                attempt("entry", lambda ref=ref: fs.entry(ref).path, lambda r: r in names)
                if "/" not in ref:
                    continue
                attempt("cat", lambda ref=ref: fs.cat_file(ref), lambda r, ref=ref: r == inner.get(ref))
                attempt("open", lambda ref=ref: streamed(ref), lambda r, ref=ref: r == inner.get(ref))
                attempt("info", lambda ref=ref: fs.info(ref), lambda r, ref=ref: r["name"] in inner)  # type: ignore[index]

    def list_all(until: float) -> None:
        while time.monotonic() < until and not bad:
            for folder in ("", "skill", "skill/refs"):
                attempt("ls", lambda folder=folder: fs.ls(folder, detail=False), lambda r: set(r) <= names)  # type: ignore[call-overload]
            attempt("find", lambda: fs.find("", withdirs=True), lambda r: set(r) <= names)  # type: ignore[call-overload]
            attempt(
                "tree",
                lambda: str(fs.skill_tree("/")),
                lambda r: "outside" not in str(r) and SECRET not in str(r),
            )
            attempt("skills", lambda: fs.skills(), lambda r: SECRET not in str(r))

    with swapper:
        until = time.monotonic() + 3.0
        threads = [threading.Thread(target=work, args=(until,)) for work in (read_all, list_all)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert bad == []
    assert min(done.values()) > 0, done
    assert min(swapper.swaps.values()) > 20
    for name in FILES:  # and when it is over everything is right again
        assert fs.cat_file(name) == inner[name]
    assert set(fs.find("")) == set(FILES)


@pytest.mark.parametrize("method", ["openat2", "walk"])
@pytest.mark.parametrize("path", ["a/refs/x.md", "a/refs/deep", "a/refs/deep/y.md", "a/refs/link.md"])
def test_a_folder_moved_out_and_linked_to_is_no_more(
    store: Path, tmp_path: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """Behind the link lie the very inodes that were in the store, unchanged."""
    monkeypatch.setenv("SKILLFS_OPEN", method)
    write(store, {"a/refs/deep/y.md": "y\n"})
    (store / "a/refs/link.md").symlink_to(store / "a/real.md")
    uuid = open_fs().entry(path).uuid if "link" not in path else path
    for name in ("info", "ukey", "modified", "created", "entry", "exists"):
        fs = open_fs(max_age=3600)
        look = getattr(fs, name)
        look(path)
        (store / "a/refs").rename(tmp_path / "moved-out")
        (store / "a/refs").symlink_to(tmp_path / "moved-out")
        if name == "exists":
            assert not fs.exists(path)
        else:
            # What was looked at again once is right for all: each is the first after the swap.
            assert code_of(lambda look=look: look(path)) == "not_found"
            assert code_of(lambda fs=fs: fs.entry(uuid)) == "not_found"
        (store / "a/refs").unlink()
        (tmp_path / "moved-out").rename(store / "a/refs")
