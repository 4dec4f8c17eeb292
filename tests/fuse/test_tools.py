"""Programs that know nothing of skills, at a mount point: they see what is there, and change nothing."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.fuse.mounted import (
    EXECUTABLE,
    KEPT,
    SECRET,
    TREE,
    Shown,
    local_shown,
    mounted,
    run,
    s3_shown,
    until,
)
from tests.mountable import needs_mount_points

pytestmark = needs_mount_points
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


# -- comparing ---------------------------------------------------------------------------------------------


def test_diff(shown: Shown) -> None:
    assert run("diff", "-r", shown.source, shown.at) == ""


@needs_rsync
def test_rsync_has_nothing_to_do(shown: Shown) -> None:
    more = ["-t"] if shown.kind == "local" else []
    options = ["-nrci", *more, "--omit-dir-times", "--delete"]
    for pair in ((shown.source, shown.at), (shown.at, shown.source)):
        assert run("rsync", *options, f"{pair[0]}/", f"{pair[1]}/") == ""


def test_tar(shown: Shown) -> None:
    # What a bucket does not know: who may execute a file, and of folders when they were changed.
    same = ["--mode=a-w" if shown.kind == "local" else "--mode=a-w,a-x,a+X", "--mtime=@0"]
    options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=pax", *same]
    options += ["--pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime", "-cf", "-"]
    if shown.kind == "s3":
        (shown.source / EXECUTABLE).chmod(0o644)
    one, two, source = (
        run("sh", "-c", f"tar {shlex.join(options)} -C {shlex.quote(str(folder))} . | sha256sum")
        for folder in (shown.at, shown.at, shown.source)
    )
    assert one == two == source


def test_grep(shown: Shown) -> None:
    found = run("grep", "-rn", "needle", ".", cwd=shown.at).splitlines()
    assert sorted(found) == sorted(run("grep", "-rn", "needle", ".", cwd=shown.source).splitlines())
    assert len(found) > 40
    assert SECRET not in "".join(found)


def test_find_agrees_with_the_index(shown: Shown) -> None:
    lines = run("find", shown.at, "-mindepth", "1", "-printf", r"%P\t%y\t%s\t%i\t%m\t%n\n").splitlines()
    executable = shown.kind == "local"
    expected = []
    for path, info in shown.fs.find("", withdirs=True, detail=True).items():
        folder = info["type"] == "directory"
        mode = "555" if folder or (executable and path == EXECUTABLE) else "444"
        expected.append(
            f"{path}\t{'d' if folder else 'f'}\t{0 if folder else info['size']}\t{info['id']}\t{mode}\t1"
        )
    assert sorted(lines) == sorted(expected)


def test_times(shown: Shown) -> None:
    for name in TREE:
        found = os.stat(shown.at / name).st_mtime_ns
        if shown.kind == "local":
            assert found == 1_600_000_000_123_456_789
        else:
            assert found == int(shown.fs.info(name)["mtime"]) * 1_000_000_000


def test_copying(shown: Shown, tmp_path: Path) -> None:
    run("cp", "-a", shown.at, tmp_path / "copy")
    try:
        assert run("diff", "-r", shown.source, tmp_path / "copy") == ""
        one, other = (os.stat(top / EXECUTABLE) for top in (shown.at, tmp_path / "copy"))
        assert (one.st_mode, one.st_mtime_ns) == (other.st_mode, other.st_mtime_ns)
    finally:
        run("chmod", "-R", "u+w", tmp_path / "copy")


@needs_rsync
def test_copying_links(tmp_path: Path) -> None:
    store = write(
        tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/refs/x.md": "x", "b/SKILL.md": skill_md("b")}
    )
    links = {"a/alias": "refs", "a/file": "refs/x.md", "b/other": "../a/refs"}
    for name, target in links.items():
        (store / name).symlink_to(target)
    with mounted(SkillFileSystem(store, index=":memory:"), tmp_path / "mount") as at:
        for command in (["cp", "-a", f"{at}/."], ["rsync", "-aX", f"{at}/"]):
            copy = tmp_path / command[0]
            copy.mkdir()
            run(*command, copy)
            run("chmod", "-R", "u+w", copy)
            assert run("diff", "-r", "--no-dereference", store, copy) == ""
            assert {name: os.readlink(copy / name) for name in links} == links
        assert run("diff", "-r", store, at) == ""
        assert os.listxattr(at / "a/file", follow_symlinks=False) == []
        assert os.listxattr(at / "a/file") == os.listxattr(at / "a/refs/x.md")
        assert os.getxattr(at / "a/file", "user.skillfs.uuid") == os.getxattr(
            at / "a/refs/x.md", "user.skillfs.uuid"
        )


def test_checksums(shown: Shown, tmp_path: Path) -> None:
    sums = "".join(
        f"{hashlib.md5((shown.source / name).read_bytes()).hexdigest()}  {name}\n" for name in TREE
    )
    (tmp_path / "sums").write_text(sums)
    told = run("md5sum", "-c", tmp_path / "sums", cwd=shown.at).splitlines()
    assert len(told) == len(TREE)


def test_pieces(shown: Shown) -> None:
    file = "sizes/0300001.bin"
    for command in (["wc", "-c"], ["cksum"]):
        assert run(*command, file, cwd=shown.at) == run(*command, file, cwd=shown.source)
    for command in (["head", "-c", "5000"], ["tail", "-c", "5000"], ["tail", "-c", "+131000"]):
        quoted = shlex.join([*command, file])
        one, other = (run("sh", "-c", f"{quoted} | md5sum", cwd=top) for top in (shown.at, shown.source))
        assert one == other
    assert run("tail", "-n", "2", "pdf/references/große Übersicht.md", cwd=shown.at) == "größe\nneedle: äöü\n"


# -- running -----------------------------------------------------------------------------------------------


def test_a_script_runs_from_there(shown: Shown) -> None:
    assert run(sys.executable, "pdf/scripts/main.py", cwd=shown.at) == "forty-two\n"
    assert run("sh", EXECUTABLE, cwd=shown.at) == "ran forty-two\n"
    assert run(sys.executable, shown.at / "pdf/scripts/main.py") == "forty-two\n"
    assert not (shown.at / "pdf/scripts/__pycache__").exists()


def test_an_executable_file_runs_by_itself(tmp_path: Path) -> None:
    program = Path(shutil.which("true") or "/bin/true").read_bytes()
    tree = {name: TREE[name] for name in (EXECUTABLE, "pdf/SKILL.md", "pdf/scripts/number.txt")}
    with local_shown(tmp_path, {**tree, "pdf/true": program, "pdf/not": program}) as shown:
        (tmp_path / "store/pdf/true").chmod(0o755)
        assert run(shown.at / EXECUTABLE) == "ran forty-two\n"
        assert run(shown.at / "pdf/true") == ""
        assert os.access(shown.at / EXECUTABLE, os.X_OK)
        assert not os.access(shown.at / "pdf/not", os.X_OK)
        assert not os.access(shown.at / EXECUTABLE, os.W_OK)
        with pytest.raises(PermissionError):
            run(shown.at / "pdf/not")


# -- git ---------------------------------------------------------------------------------------------------


def repository(folder: Path) -> Path:
    """A repository whose root is a skill, with two commits and a clean work tree."""
    write(
        folder,
        {
            "SKILL.md": skill_md("repository"), "references/a.md": "a\n" * 100,
            "scripts/run.sh": "#!/bin/sh\n", "größe.md": "größe\n", "inner/SKILL.md": skill_md("inner"),
        },
    )  # fmt: skip
    (folder / "scripts/run.sh").chmod(0o755)
    git = ["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=n@example.org"]
    run("git", "init", "-q", "-b", "main", folder)
    for message in ("first", "second"):
        (folder / "references/log.md").write_text(message)
        run(*git, "add", ".")
        run(*git, "commit", "-q", "-m", message)
    return folder


@needs_git
def test_git_of_a_clone_elsewhere(tmp_path: Path) -> None:
    store = repository(tmp_path / "store")
    fs = SkillFileSystem(store, index=":memory:")
    with mounted(fs, tmp_path / "mount") as at:
        run("git", "clone", "-q", store, tmp_path / "clone")
        git = ["git", f"--git-dir={tmp_path}/clone/.git", f"--work-tree={at}"]
        assert run(*git, "status", "--porcelain") == ""
        assert run(*git, "diff", "--stat") == ""
        (store / "references/a.md").write_text("changed\n")
        (store / "new.md").write_text("new\n")
        time.sleep(KEPT)  # until the kernel believes nothing else any more
        assert run(*git, "diff", "--numstat") == "1\t100\treferences/a.md\n"
        until(lambda: run(*git, "status", "--porcelain") == " M references/a.md\n?? new.md\n")
    assert run("git", "-C", store, "status", "--porcelain") == " M references/a.md\n?? new.md\n"


@needs_git
def test_git_of_a_clone_elsewhere_on_s3(tmp_path: Path, s3_server: object) -> None:
    clone = repository(tmp_path / "clone")
    files = run("git", "-C", clone, "ls-files", "-z").split("\0")[:-1]
    tree = {name: (clone / name).read_bytes() for name in files}
    with s3_shown(tmp_path, s3_server, tree, {}) as shown:  # type: ignore[arg-type]
        git = ["git", f"--git-dir={clone}/.git", f"--work-tree={shown.at}", "-c", "core.fileMode=false"]
        assert run(*git, "status", "--porcelain") == ""


@needs_git
def test_git_in_place(tmp_path: Path) -> None:
    store = repository(tmp_path / "store")
    fs = SkillFileSystem(store, index=":memory:", ignore=["!.git"])
    with mounted(fs, tmp_path / "mount") as at:
        assert run("git", "-C", at, "status", "--porcelain") == ""
        assert run("git", "-C", at, "log", "--format=%s").split() == ["second", "first"]
        assert (
            run("git", "-C", at, "diff", "HEAD~1", "--stat").splitlines()[0].startswith(" references/log.md")
        )
        assert run("git", "-C", at, "fsck", "--no-progress") == ""
        assert run("git", "clone", "-q", at, tmp_path / "clone") == ""
        assert run("diff", "-r", "-x", ".git", store, tmp_path / "clone") == ""


# -- writing -----------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Path, str], object]] = {
    "touch": lambda at, name: os.utime(at / name),
    "create": lambda at, name: os.open(at / "new", os.O_CREAT | os.O_WRONLY),
    "create-below": lambda at, name: os.open(at / "pdf/new", os.O_CREAT | os.O_WRONLY | os.O_EXCL),
    "mkdir": lambda at, name: os.mkdir(at / "pdf/new"),
    "rm": lambda at, name: os.unlink(at / name),
    "rmdir": lambda at, name: os.rmdir(at / "pdf"),
    "mv": lambda at, name: os.rename(at / name, at / "pdf/new"),
    "mv-over": lambda at, name: os.rename(at / name, at / "pdf/scripts/main.py"),
    "ln": lambda at, name: os.link(at / name, at / "pdf/new"),
    "ln-s": lambda at, name: os.symlink("x", at / "pdf/new"),
    "mkfifo": lambda at, name: os.mkfifo(at / "pdf/new"),
    "chmod": lambda at, name: os.chmod(at / name, 0o777),
    "chown": lambda at, name: os.chown(at / name, os.getuid(), os.getgid()),
    "setxattr": lambda at, name: os.setxattr(at / name, "user.skillfs.uuid", b"x"),
    "removexattr": lambda at, name: os.removexattr(at / name, "user.skillfs.uuid"),
    "open-for-writing": lambda at, name: os.open(at / name, os.O_WRONLY),
    "open-for-both": lambda at, name: os.open(at / name, os.O_RDWR),
    "append": lambda at, name: os.open(at / name, os.O_WRONLY | os.O_APPEND),
    "open-truncating": lambda at, name: os.open(at / name, os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda at, name: os.truncate(at / name, 0),
    "no-name": lambda at, name: os.open(at / "pdf", os.O_TMPFILE | os.O_WRONLY),
}


@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_written(shown: Shown, write: str) -> None:
    with pytest.raises(OSError) as refused:  # noqa: PT011  # its number is what counts
        WRITES[write](shown.at, "pdf/SKILL.md")
    assert refused.value.errno == errno.EROFS
    assert (shown.at / "pdf/SKILL.md").read_text() == TREE["pdf/SKILL.md"]


def test_a_handle_for_reading_writes_nothing(shown: Shown) -> None:
    fd = os.open(shown.at / "pdf/SKILL.md", os.O_RDONLY)
    try:
        for work in (lambda: os.write(fd, b"x"), lambda: os.ftruncate(fd, 0), lambda: os.fchmod(fd, 0o777)):
            with pytest.raises(OSError) as refused:  # noqa: PT011  # its number is what counts
                work()
            assert refused.value.errno in (errno.EBADF, errno.EINVAL, errno.EROFS)
    finally:
        os.close(fd)
