"""The commands about the state of a store: what is wrong with it, what it holds, how it changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skillfs.errors import StoreUnavailableError
from skillfs.faces import output
from skillfs.faces.changes import ANEW, States, change_lines, changes_dict, tell_changes
from skillfs.faces.target import FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.model import Problem
    from skillfs.filesystem import SkillFileSystem

__all__ = ["changes", "check", "index", "init", "status", "watch"]

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}

_LOOK_SECONDS = 1.0
"""How long `watch` waits for changes before it looks whether anybody still reads what it prints."""


@click.command(epilog="Example: skillfs -s ./skills check --strict")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings and notes, too.")
@json_option
@click.pass_obj
def check(target: Target, strict: bool, as_json: bool) -> int:
    """List what is wrong with the skills.

    Prints a line for each problem, PATH:LINE: SEVERITY CODE: MESSAGE, and exits with 1 when there are errors.
    """
    with target.open() as fs:
        problems = fs.problems()
    count = dict.fromkeys(("error", "warning", "info"), 0)
    for problem in problems:
        count[problem.severity] += 1
    if as_json:
        output.write_json({"problems": [output.as_dict(p, fs.roots) for p in problems], "counts": count})
    else:
        output.write("".join(_problem_line(p, fs.roots) + "\n" for p in problems))
        output.note(
            f"{output.counted(count['error'], 'error')}, {output.counted(count['warning'], 'warning')}, "
            f"{output.counted(count['info'], 'note')}"
        )
    return FOUND_WRONG if count["error"] or (strict and problems) else FINE


def _problem_line(problem: Problem, roots: Sequence[str]) -> str:
    where = output.path(problem.path, roots) + ("" if problem.line is None else f":{problem.line}")
    severity = output.styled(problem.severity, _COLOURS[problem.severity])
    return f"{where}: {severity} {problem.code}: {output.printable(problem.message)}"


@click.command(epilog="Example: skillfs -s ./skills index --full")
@click.option("--full", is_flag=True, help="Read every file now, for its characters, MD5 and SHA-256.")
@json_option
@click.pass_obj
def index(target: Target, full: bool, as_json: bool) -> None:
    """Build the index, or bring it up to date.

    Says what it holds then. Every other command brings it up to date as well, without reading more than it
    needs.
    """
    with target.open() as fs:
        if full:
            with output.Progress("reading every file") as progress:
                fs.index_all(on_progress=progress)
        status = _status_of(fs)
    if as_json:
        output.write_json(status)
    else:
        output.write(
            f"{output.counted(status['skills'], 'skill')}, {output.counted(status['files'], 'file')}, "
            f"{output.counted(status['bytes'], 'byte')}; revision {status['revision']}\n"
        )


@click.command(epilog="Example: skillfs -s ./skills status")
@json_option
@click.pass_obj
def status(target: Target, as_json: bool) -> None:
    """Show counts, revision and place of the index."""
    with target.open() as fs:
        values = _status_of(fs)
    if as_json:
        output.write_json(values)
        return
    mounts = values.pop("mounts", ())
    output.fields(values)
    for mount in mounts:
        output.write("\n")
        output.fields(mount)


def _status_of(fs: SkillFileSystem) -> dict[str, Any]:
    """The status but for how it is watched: a command that ends at once watches nothing."""
    status = fs.status()
    for one in (status, *status.get("mounts", ())):
        for name in ("watch", "watch_reason", "watched_folders"):
            one.pop(name, None)
    return status


@click.command(epilog="Example: skillfs -s ./skills changes --since 1767225600")
@click.option("--since", type=int, default=0, metavar="N", help="Revision that an earlier call told.")
@json_option
@click.pass_obj
def changes(target: Target, since: int, as_json: bool) -> None:
    """List what changed since a revision.

    Prints a line for each change, the oldest first; standard error tells the revision for the next time.
    """
    with target.open() as fs:
        found = fs.changes(since)
    if as_json:
        output.write_json(changes_dict(found, fs.roots))
        return
    output.write(change_lines(found, fs.roots))
    if found.reset:
        output.note(f"what changed since revision {since} is not known: {ANEW}")
    output.note(f"now at revision {found.revision}; next time: skillfs changes --since {found.revision}")


@click.command(epilog="Example: skillfs -s ./skills watch --json")
@click.option("--since", type=int, metavar="N", help="Revision to begin after; the present one by default.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document a line, for each revision with changes."
)
@click.pass_obj
def watch(target: Target, since: int | None, as_json: bool) -> None:
    """Print changes as they come, until interrupted.

    Prints a line for each change, as `changes` does. Standard error tells the revision to begin with, how the
    stores are watched, and when one of them is away: it is waited for.
    """
    # What is logged of the stores is told as their state, and of which of them it is.
    with target.open(log=False) as fs, fs.watch(since=since) as feed:
        states = States()
        failure = None
        output.note(f"at revision {feed.revision}; interrupt to stop")
        while True:
            try:
                changes = feed.get(timeout=_LOOK_SECONDS)
                failure = None
            except StoreUnavailableError as error:
                if error.message != failure:
                    failure = error.message
                    output.complain(error.code, failure)
                changes = None
                time.sleep(_LOOK_SECONDS)
            states.tell(feed.status())
            output.require_reader()
            if changes is not None:
                tell_changes(changes, fs.roots, as_json=as_json)


@click.command(epilog="Example: skillfs -s ./skills init")
@click.pass_obj
def init(target: Target) -> None:
    """Write the identity of the store into it.

    UUIDs and ids are then the same wherever the store is copied or moved.
    """
    from skillfs.opening import STORE_FILE, open_store, store_namespace, write_store_id

    store = open_store(target.alone())
    namespace = store_namespace(store, None)
    if write_store_id(store, namespace):
        output.write(f"wrote {STORE_FILE}: the store is {namespace}\n")
    else:
        output.write(f"{STORE_FILE} is there already: the store is {namespace}\n")
