"""Mount points of this machine as the kernel lists them, and folders that are to be one."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.fuse import mountpoints
from skillfs.fuse.claiming import claimed, refuse_within
from skillfs.fuse.mountpoints import (
    MountPoint,
    Standing,
    State,
    mount_point_at,
    mount_points,
    resolved,
    states_of,
    unmount_with_server,
)
from tests.conftest import write
from tests.fuse.mounting import ended, hasten, held_open, is_alive, left_below, stop
from tests.mountable import needs_mount_points
from tests.privileges import bound_by_permissions

OWN = f"rw,user_id={os.getuid()},group_id=0"


def line(
    path: str, *, device: str = "0:50", kind: str = "fuse.skillfs", options: str = OWN, root: str = "/"
) -> str:
    escaped = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", path)
    return f"42 27 {device} {root} {escaped} ro,nosuid - {kind} skillfs {options}\n"


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of the kernel, to be written."""
    file = tmp_path / "mountinfo"
    monkeypatch.setattr(mountpoints, "MOUNTS", str(file))
    return file


def test_those_of_this_user_are_found(listed: Path) -> None:
    listed.write_text(
        line("/a")
        + line("/b", kind="fuse.rclone")
        + line("/c", options=f"rw,user_id={os.getuid() + 1},group_id=0")
        + line("/d/e", root="/pdf")
        + line("/covered") + line("/covered", kind="tmpfs", device="0:51")
        + line("/twice", device="0:52") + line("/twice", device="0:53")
        + line("/f").replace("nosuid -", "nosuid shared:4 master:1 -")
    )  # fmt: skip
    assert mount_points() == [
        MountPoint("/a", "0:50"), MountPoint("/twice", "0:53"), MountPoint("/f", "0:50")
    ]  # fmt: skip
    assert mount_point_at("/b") is None
    assert mountpoints.is_mounted("0:51")
    assert not mountpoints.is_mounted("0:54")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_paths_of_all_kinds_are_read(name: str) -> None:
    path = f"/{name}"
    with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patched:
        file.write(line(path).encode())
        file.flush()
        patched.setattr(mountpoints, "MOUNTS", file.name)
        assert mount_points() == [MountPoint(path, "0:50")]


def test_a_mount_point_is_found_by_links_and_not_looked_into(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real/point").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "to-point").symlink_to("real/point")
    real = os.path.realpath(tmp_path / "real/point")
    listed.write_text(line(real))
    monkeypatch.chdir(tmp_path / "link")
    for path in (real, tmp_path / "link/point", "point", "./point/", tmp_path / "to-point", "../real/point"):
        assert resolved(path) == real
    lstat = os.lstat

    def watched(path: str, **options: object) -> os.stat_result:
        assert os.fspath(path) != real, "a server that hangs would be waited for"
        return lstat(path)

    monkeypatch.setattr(os, "lstat", watched)
    assert resolved(tmp_path / "link/point") == real


@pytest.mark.parametrize("value", ["", "a\0b", None, 3, b"/x"])
def test_what_is_no_path_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="mount point"):
        resolved(value)  # type: ignore[arg-type]


def test_a_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(NotFoundError, match="absolute"):
        resolved("point")


def test_only_an_empty_folder_can_be_claimed(tmp_path: Path) -> None:
    write(tmp_path, {"file": "x", "full/x": "x"})
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, error in {
        "missing": NotFoundError,
        "dangling": NotFoundError,
        "missing/below": NotFoundError,
        "file": IsFileError,
        "file/below": IsFileError,
        "full": InvalidArgumentError,
    }.items():
        with pytest.raises(error) as told, claimed(f"{tmp_path}/{name}"):
            pass
        echo = f'"{tmp_path}/{name}"'
        assert str(tmp_path) not in told.value.message.replace(echo, ""), "only what was sent is echoed"
    with claimed(tmp_path / "link") as path:
        assert path == os.path.realpath(tmp_path / "empty")
        with pytest.raises(InvalidArgumentError, match="another process"), claimed(tmp_path / "empty"):
            pass
    with claimed(tmp_path / "empty"):
        pass


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    with bound_by_permissions(), pytest.raises(UnreadableError), claimed(tmp_path / "closed"):
        pass


@pytest.mark.parametrize(
    ("path", "folders", "refused"),
    [
        ("/a/b", ["/a"], True),
        ("/a", ["/a"], True),
        ("/ab", ["/a"], False),
        ("/a", ["/a/b"], False),
        ("/x", ["/"], True),
        ("/x/y", ["/z", "/x"], True),
        ("/x", [], False),
    ],
)
def test_a_mount_point_in_what_is_served(path: str, folders: list[str], refused: bool) -> None:
    try:
        refuse_within(path, path, folders)
        assert not refused
    except InvalidArgumentError:
        assert refused


@needs_mount_points
def test_a_store_does_not_hold_itself(skills: Path, mountpoint: Path, tmp_path: Path) -> None:
    (skills / "pdf/empty").mkdir()
    (tmp_path / "aside/empty").mkdir(parents=True)
    fs = SkillFileSystem(skills, index=":memory:", follow=[tmp_path / "aside"])
    for path in (skills / "pdf/empty", tmp_path / "aside/empty"):
        with pytest.raises(InvalidArgumentError, match="outside"):
            fs.mount(path)
    several = SkillFileSystem({"a": skills}, index=":memory:")
    with pytest.raises(InvalidArgumentError, match="outside"):
        several.mount(skills / "pdf/empty")
    taken = SkillFileSystem(skills, objects=tmp_path / "objects")
    taken.snapshot("v1")
    (tmp_path / "objects/empty").mkdir()
    still = SkillFileSystem(skills, at="v1", objects=tmp_path / "objects")
    with pytest.raises(InvalidArgumentError, match="outside"):
        still.mount(tmp_path / "objects/empty")
    with still.mount(mountpoint):
        assert (mountpoint / "pdf/a.txt").read_text() == "first"


@needs_mount_points
def test_a_server_that_hangs_is_told_apart_and_replaced(
    skills: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = SkillFileSystem(skills)
    folder = fs.mount(mountpoint)
    point = mount_point_at(str(mountpoint))
    assert point is not None
    stop(folder.pid)
    monkeypatch.setattr(mountpoints, "ANSWER_SECONDS", 0.2)
    for standing in states_of([point, point]):
        # Some kernels tell who serves it.
        assert standing in (Standing(State.HUNG, None), Standing(State.HUNG, folder.pid))
    with pytest.raises(InvalidArgumentError, match=r"does not answer.*--force"):
        fs.mount(mountpoint)
    with pytest.raises(StoreUnavailableError, match=r"does not answer.*--force"):
        unmount_with_server(mountpoint)
    with fs.mount(mountpoint, force=True) as anew:
        assert anew.pid != folder.pid
        os.kill(folder.pid, signal.SIGCONT)
        assert ended(folder.pid)
        monkeypatch.undo()
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        folder.close()
        assert (mountpoint / "pdf/a.txt").read_text() == "first"


@needs_mount_points
def test_unmounting(skills: Path, mountpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
    fs = SkillFileSystem(skills)
    with pytest.raises(InvalidArgumentError, match="no mount point of yours"):
        unmount_with_server(mountpoint)
    folder = fs.mount(mountpoint)
    with held_open(mountpoint / "pdf/a.txt"):
        with pytest.raises(StoreUnavailableError, match=r"in use.*--force") as told:
            unmount_with_server(mountpoint)
        assert told.value.message.count(str(mountpoint)) == 1
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        unmount_with_server(mountpoint, force=True)
        assert not is_alive(folder.pid)
        assert not left_below(mountpoint.parent)
    folder = fs.mount(mountpoint)
    unmount_with_server(mountpoint)
    assert not is_alive(folder.pid)
    folder.close()
    # One that nobody serves any more, with a file that was opened before.
    folder = fs.mount(mountpoint)
    with held_open(mountpoint / "pdf/a.txt"):
        os.kill(folder.pid, signal.SIGKILL)
        assert ended(folder.pid)
        unmount_with_server(mountpoint)
        assert not left_below(mountpoint.parent)


def test_nothing_is_unmounted_that_is_not_ours(tmp_path: Path) -> None:
    for path in ("/", "/proc", tmp_path, tmp_path / "missing"):
        with pytest.raises(SkillFSError, match="no mount point of yours"):
            unmount_with_server(path, force=True)
