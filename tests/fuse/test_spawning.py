"""`SkillFileSystem.mount`: a server as a process of its own, and its end, whatever ends first."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from skillfs import SkillFileSystem
from skillfs.errors import InvalidArgumentError, NotFoundError, SkillFSError, StoreUnavailableError
from skillfs.fuse import spawning
from skillfs.fuse.mountpoints import State, mount_point_at, states_of
from tests.conftest import skill_md, write
from tests.fuse.mounting import SECONDS, ended, hasten, held_open, is_alive, left_below, stop
from tests.mountable import needs_mount_points

pytestmark = needs_mount_points

Opener = Callable[..., SkillFileSystem]


@pytest.fixture
def fs(skills: Path) -> SkillFileSystem:
    return SkillFileSystem(skills)


def test_a_mount_point_answers_when_it_is_there_and_is_gone_after(
    fs: SkillFileSystem, mountpoint: Path
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with fs.mount(mountpoint) as folder:
        assert os.fspath(folder) == folder.path == str(mountpoint)
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        point = mount_point_at(str(mountpoint))
        assert point is not None
        assert states_of([point]) == [(State.SERVED, folder.pid)]
        assert os.getsid(folder.pid) == folder.pid != os.getsid(0)
        with pytest.raises(SkillFSError, match="already"):
            fs.mount(mountpoint)
        with pytest.raises(SkillFSError, match="already"):
            fs.mount(mountpoint, force=True)
    assert set(os.listdir("/proc/self/fd")) == before
    assert not left_below(mountpoint.parent)
    assert not is_alive(folder.pid)
    assert os.listdir(mountpoint) == []
    folder.close()
    mountpoint.rmdir()


def test_what_is_served_is_what_the_filesystem_shows(
    root: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in ("a", "b")})
    write(root, {"a/x.log": "x", "a/y.txt": "y"})
    # A module that only this process finds, by a place it has added.
    write(tmp_path / "modules", {"only_here.py": "import skillfs.filesystem\n"
          "class Own(skillfs.filesystem.SkillFileSystem):\n    protocol = 'own-skill'\n"})  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path / "modules")
    import only_here  # type: ignore[import-not-found]

    fs = only_here.Own(root, index=":memory:", base_paths=["a"], ignore=["*.log"], store_id="c" * 32)
    with fs.mount(mountpoint) as folder:
        # What it is opened with may be a credential.
        for name in ("cmdline", "environ"):
            assert b"cccccccc" not in Path(f"/proc/{folder.pid}/{name}").read_bytes()
        assert sorted(str(p.relative_to(mountpoint)) for p in mountpoint.rglob("*")) == [
            "a", "a/SKILL.md", "a/y.txt"
        ]  # fmt: skip
    several = SkillFileSystem({"one": root, "two": {"store": root, "store_id": "0" * 32, "ignore": ["b"]}})
    with several.mount(mountpoint):
        assert sorted(os.listdir(mountpoint)) == ["one", "two"]
        assert os.listdir(mountpoint / "two") == ["a"]


def test_a_server_that_was_killed_leaves_nothing_after_closing(
    fs: SkillFileSystem, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fs.mount(mountpoint) as folder:
        os.kill(folder.pid, signal.SIGKILL)
        assert ended(folder.pid)
        point = mount_point_at(str(mountpoint))
        assert point is not None
        assert states_of([point]) == [(State.STALE, None)]
        with pytest.raises(InvalidArgumentError, match=r"is gone.*--force"):
            fs.mount(mountpoint)
        with fs.mount(mountpoint, force=True) as anew:
            assert (mountpoint / "pdf/a.txt").read_text() == "first"
            folder.close()
            # What is closed is the earlier one.
            assert (mountpoint / "pdf/a.txt").read_text() == "first"
        assert not is_alive(anew.pid)
    assert not left_below(mountpoint.parent)
    with fs.mount(mountpoint) as folder:
        os.kill(folder.pid, signal.SIGKILL)
        # As when Python ends.
        monkeypatch.setattr(threading.Thread, "start", _no_thread)
    assert not left_below(mountpoint.parent)


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


def test_files_that_stay_open_do_not_keep_it(
    fs: SkillFileSystem, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasten(monkeypatch)
    folder = fs.mount(mountpoint)
    with held_open(mountpoint / "pdf/a.txt") as file:
        folder.close()
        assert not is_alive(folder.pid)
        assert not left_below(mountpoint.parent)
        with pytest.raises(OSError, match=r"not connected|abort"):
            os.read(file, 10)


def test_neither_a_fork_nor_to_forget_it_ends_it(fs: SkillFileSystem, mountpoint: Path) -> None:
    folder = fs.mount(mountpoint)
    pid = folder.pid
    fork = multiprocessing.get_context("fork").Process(target=folder.close)
    fork.start()
    fork.join(SECONDS)
    assert fork.exitcode == 0
    del fork
    assert (mountpoint / "pdf/a.txt").read_text() == "first"
    del folder
    gc.collect()
    assert (mountpoint / "pdf/a.txt").read_text() == "first"  # it lasts, whoever refers to it
    (kept,) = (one for one in spawning._mounted if one.pid == pid)
    kept.close()
    assert not is_alive(pid)
    assert not left_below(mountpoint.parent)
    assert kept not in spawning._mounted


@pytest.mark.parametrize("name", ["force", "allow_other"])
def test_what_is_neither_true_nor_false(
    mountpoint: Path, name: str, open_fs: Callable[..., SkillFileSystem]
) -> None:
    with pytest.raises(InvalidArgumentError, match=f'{name} is "yes"; pass True or False'):
        open_fs().mount(mountpoint, **{name: "yes"})


_HOLDER = """
import sys
from skillfs import SkillFileSystem
fs = SkillFileSystem(sys.argv[1])
folders = [fs.mount(path) for path in sys.argv[2:]]
print(*[folder.pid for folder in folders], flush=True)
sys.stdin.readline()
raise SystemExit(3)
"""


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_it_ends_with_its_parent(skills: Path, mountpoint: Path, tmp_path: Path, how: str) -> None:
    (tmp_path / "killed too").mkdir()
    points = [mountpoint, tmp_path / "killed too"][: 2 if how == "kill" else 1]
    command = [sys.executable, "-c", _HOLDER, skills, *points]
    pipe = subprocess.PIPE
    # Without an index on disk, of which it is warned.
    places = {**os.environ, "XDG_DATA_HOME": "/proc"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=places, text=True) as holder:
        assert holder.stdout is not None
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        for pid in pids[1:]:
            os.kill(pid, signal.SIGKILL)
        if how == "kill":
            holder.kill()
        _, errors = holder.communicate("\n")
    assert errors.count("IndexWarning") == 1, "once, not by each server"
    assert all(ended(pid) for pid in pids)
    assert left_below(tmp_path) == [str(point) for point in points[1:]]


_ODD = """
import os, signal, sys
from skillfs import SkillFileSystem
from skillfs.fuse.spawning import start_server

fs = SkillFileSystem(sys.argv[1], index=":memory:")
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
told = os.dup(1)
for number in range(3):
    os.close(number)
_, process = start_server(fs, sys.argv[2])
names = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
process.terminate()
os.write(told, f"{names} {process.wait(8)}".encode())
"""


def test_what_it_inherits_does_not_matter(skills: Path, mountpoint: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ODD, skills, mountpoint],
        stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=False
    )  # fmt: skip
    assert done.stdout == f"{[os.devnull] * 3} 0"
    assert not left_below(mountpoint.parent)


_WAITING = """
import os, sys, time
from skillfs.fuse.spawning import start_server

class Slow:
    def __reduce__(self):
        return time.sleep, (60,)
    def kernel_mounts(self):
        return []

start_server(Slow(), sys.argv[1], lives_on=len(sys.argv) > 2)
"""


@pytest.mark.parametrize(
    ("number", "options"), [(signal.SIGINT, []), (signal.SIGKILL, []), (signal.SIGKILL, ["lives on"])]
)
def test_it_ends_with_its_parent_while_it_opens_the_stores(
    mountpoint: Path, number: signal.Signals, options: list[str]
) -> None:
    command = [sys.executable, "-c", _WAITING, mountpoint, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
        while not (found := children.read_text().split()) or b"runpy" not in _arguments(found[0]):
            assert waiting.poll() is None
            time.sleep(0.01)
        waiting.send_signal(number)
        _, errors = waiting.communicate(timeout=SECONDS)
        assert waiting.returncode == -number
        assert errors.endswith("KeyboardInterrupt\n" if number == signal.SIGINT else "")
    assert ended(int(found[0]))


def _arguments(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_errors_of_the_server_are_those_of_the_call(
    root: Path, skills: Path, mountpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = SkillFileSystem(skills, index=":memory:")
    shutil.move(skills, tmp_path / "moved")
    with pytest.raises(NotFoundError) as told:
        gone.mount(mountpoint)
    with pytest.raises(NotFoundError) as same:
        SkillFileSystem(skills, index=":memory:")
    assert told.value.message == same.value.message
    # A relative path, from another folder.
    for name in ("here", "there"):
        write(tmp_path / name, {"s/a/SKILL.md": skill_md("a")})
    monkeypatch.chdir(tmp_path / "here")
    fs = SkillFileSystem("s")
    monkeypatch.chdir(tmp_path / "there")
    with pytest.raises(InvalidArgumentError, match="absolute"):
        fs.mount(mountpoint)
    # A server that says nothing.
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(spawning, "_BEGIN", "import sys; sys.stdin.buffer.read(10)")
    with pytest.raises(StoreUnavailableError, match="standard error"):
        fs.mount(mountpoint)
    assert not left_below(mountpoint.parent)


def test_the_kernel_refuses(fs: SkillFileSystem, mountpoint: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreUnavailableError, match="refused"):
        spawning.start_server(fs, str(mountpoint / "missing"))
    assert "fuse" in capfd.readouterr().err


def test_a_link_that_takes_the_place_of_the_folder(
    fs: SkillFileSystem, mountpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(mountpoint)
    with pytest.raises(StoreUnavailableError, match="replaced"):
        spawning.start_server(fs, str(tmp_path / "link"))
    assert not left_below(tmp_path)


@pytest.mark.parametrize("program", [None, "", "/no/such/program"])
def test_no_process_can_be_started(
    fs: SkillFileSystem, mountpoint: Path, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(StoreUnavailableError, match=r"could be started.*ulimit"):
        fs.mount(mountpoint)
    assert len(os.listdir("/proc/self/fd")) == len(before)


class Mine(LocalFileSystem):  # type: ignore[misc]
    """A filesystem that is sent by its name."""

    def __reduce__(self) -> tuple[object, ...]:
        if self.storage_options.get("sent"):
            return pickle.loads, (b"cno_such_module\nthing\n.",)
        raise TypeError("not to be sent")


def test_what_cannot_be_made_again_is_refused(skills: Path, mountpoint: Path) -> None:
    for options, message in (({}, "can be pickled"), ({"sent": True}, "can be imported")):
        fs = SkillFileSystem(str(skills), fs=Mine(**options), index=":memory:")
        with pytest.raises(InvalidArgumentError, match=message):
            fs.mount(mountpoint)


def test_what_no_other_process_can_read_is_refused(root: Path, mountpoint: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/skills-to-mount/a/SKILL.md", skill_md("a").encode())
    try:
        fs = SkillFileSystem("memory://skills-to-mount")
        with pytest.raises(InvalidArgumentError, match="memory"):
            fs.mount(mountpoint)
    finally:
        memory.rm("/skills-to-mount", recursive=True)


def test_two_at_once_make_one(fs: SkillFileSystem, mountpoint: Path) -> None:
    made, refused = [], []

    def mount() -> None:
        try:
            made.append(fs.mount(mountpoint))
        except InvalidArgumentError as error:
            refused.append(error.message)

    threads = [threading.Thread(target=mount) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 1)
    assert left_below(mountpoint.parent) == [str(mountpoint)]
    made[0].close()


def test_a_server_that_is_stopped_is_ended_all_the_same(
    fs: SkillFileSystem, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "_END_SECONDS", 0.3)
    folder = fs.mount(mountpoint)
    stop(folder.pid)
    folder.close()
    assert not is_alive(folder.pid)
    assert not left_below(mountpoint.parent)
