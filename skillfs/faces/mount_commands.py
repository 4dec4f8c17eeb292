"""`skillfs mount`, `unmount` and `mountpoints`: stores as ordinary folders, for any program."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from skillfs.errors import InvalidArgumentError
from skillfs.faces import output
from skillfs.faces.stores import STORE_VARIABLE
from skillfs.faces.target import FINE, FOUND_WRONG, json_option

if TYPE_CHECKING:
    from contextlib import ExitStack

    from skillfs.faces.target import Target
    from skillfs.filesystem import SkillFileSystem

__all__ = ["mount", "mountpoints", "unmount"]


@click.command(epilog="Example: skillfs -s s3://bucket/skills mount ~/skills --background")
@click.argument("mountpoint")
@click.option("--background", is_flag=True, help="Return when it is mounted; end it with unmount.")
@click.option("--force", is_flag=True, help="Unmount first what a server left behind that is gone or hangs.")
@click.option(
    "--allow-other",
    is_flag=True,
    help="Let other users look in; unless you are root, /etc/fuse.conf has to say user_allow_other.",
)
@click.option("--watch", is_flag=True, help="Keep large stores in step by themselves.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on a line when it is mounted.")
@click.pass_obj
def mount(
    target: Target,
    mountpoint: str,
    background: bool,
    force: bool,
    allow_other: bool,
    watch: bool,
    as_json: bool,
) -> int:
    """Show the skills as ordinary, read-only folders and files.

    MOUNTPOINT is an empty folder outside the stores. It is served until interrupted, until the terminal is
    closed, or until it is unmounted; with --background, only until it is unmounted.
    """
    from contextlib import ExitStack

    from skillfs.fuse.claiming import claimed, refuse_within
    from skillfs.fuse.face import served_folders
    from skillfs.fuse.library import check_library

    if target.named() is None and (target.at is None or target.objects is None):
        raise InvalidArgumentError(
            "which store? name what is to be mounted: skillfs -s STORE mount MOUNTPOINT, "
            f"or set {STORE_VARIABLE}"
        )
    check_library()
    with ExitStack() as claim:
        # Claimed before the store is opened, which may take long.
        path = claim.enter_context(claimed(mountpoint, force=force))
        with target.open(watch=watch) as fs:
            refuse_within(path, mountpoint, served_folders(fs.kernel_mounts()))
            if not fs.status()["skills"]:
                output.complain(
                    "warning", "there are no skills here: a skill is a folder that holds a SKILL.md"
                )
            if background:
                _start(fs, path, allow_other=allow_other, as_json=as_json)
                return FINE
            return _serve(fs, path, claim, allow_other=allow_other, as_json=as_json)


def _start(fs: SkillFileSystem, path: str, *, allow_other: bool, as_json: bool) -> None:
    from skillfs.fuse.spawning import start_server

    _, process = start_server(fs, path, allow_other=allow_other, lives_on=True)
    if as_json:
        _tell(path, process.pid)
    process.returncode = FINE  # nobody waits for it: it lives on


def _serve(fs: SkillFileSystem, path: str, claim: ExitStack, *, allow_other: bool, as_json: bool) -> int:
    from skillfs.fuse.serving import end_soon, serve

    def ready(point: object) -> None:
        claim.close()  # by now everybody can see that it is taken
        if as_json:
            _tell(path, os.getpid())
        output.note("mounted; interrupt to unmount")

    status = serve(fs.kernel_view(), path, allow_other=allow_other, on_ready=ready)
    end_soon()
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    return status


def _tell(path: str, pid: int) -> None:
    output.write_json({"mountpoint": path, "pid": pid, "read_only": True}, line=True)
    output.flush()


@click.command(epilog="Example: skillfs unmount ~/skills")
@click.argument("mountpoint")
@click.option("--force", is_flag=True, help="Unmount it at once, whoever has files open in it.")
def unmount(mountpoint: str, force: bool) -> None:
    """Unmount what `mount` has mounted, and wait for the end of its server.

    One whose server is gone is cleaned up.
    """
    from skillfs.fuse.mountpoints import unmount_with_server

    unmount_with_server(mountpoint, force=force)


@click.command(epilog="Example: skillfs mountpoints --json")
@json_option
def mountpoints(as_json: bool) -> int:
    """List your mount points: path, state, process of the server.

    The state is `served`; `stale` where the server is gone; or `hung` where it does not answer. Exits with 1
    when one is not served.
    """
    from skillfs.fuse.mountpoints import State, mount_points, states_of

    points = mount_points()
    states = states_of(points)
    both = list(zip(points, states, strict=True))
    if as_json:
        output.write_json([{"mountpoint": p.path, "state": s.state.value, "pid": s.pid} for p, s in both])
    else:
        rows = [(p.path, s.state.value, "-" if s.pid is None else str(s.pid)) for p, s in both]
        output.table(("mountpoint", "state", "pid"), rows)
        if not points:
            output.note("nothing is mounted; see: skillfs mount --help")
    return FINE if all(standing.state == State.SERVED for standing in states) else FOUND_WRONG
