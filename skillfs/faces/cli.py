"""The command line: `skillfs [-s STORE]… COMMAND`.

It parses, asks `SkillFileSystem` and prints; what is refused is refused there. A command exits with 0 when
all is well, 1 when it found something wrong (`check`) or nothing at all (`find`), and 2 when it could not be
carried out.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skillfs import __version__
from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError, NotFoundError, SkillFSError, StoreUnavailableError, quoted
from skillfs.faces import output
from skillfs.faces.changes import ANEW, States, change_lines, changes_dict, tell_changes
from skillfs.faces.stores import STORE_VARIABLE, conventional_stores, named_stores, stores_of_environment

if TYPE_CHECKING:
    from skillfs.core.model import Entry, Problem
    from skillfs.filesystem import SkillFileSystem

__all__ = ["command", "main"]

FINE = 0
FOUND_WRONG = 1
COULD_NOT_RUN = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count
NOBODY_READS = 141  # 128 + SIGPIPE

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}

_LOOK_SECONDS = 1.0
"""How long `watch` waits for changes before it looks whether anybody still reads what it prints."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Target:
    """The options that say which stores are meant and what of them."""

    stores: tuple[str, ...]
    index: str | None
    base: tuple[str, ...]
    follow: tuple[str, ...]
    ignore: tuple[str, ...]

    def named(self) -> str | dict[str, str] | None:
        """The stores that are named, or the one; None when none is."""
        said = os.environ.get(STORE_VARIABLE)
        values = self.stores or (stores_of_environment(said) if said else ())
        return named_stores(values) if values else None

    def alone(self) -> str:
        """The one store that a command changes, which has to be named."""
        stores = self.named()
        if stores is None:
            raise InvalidArgumentError(
                "which store? name the folder that holds the skill folders: skillfs -s STORE, "
                f"or set {STORE_VARIABLE}"
            )
        if isinstance(stores, str):
            return stores
        if len(stores) > 1:
            raise InvalidArgumentError(f"{len(stores)} stores are named, and this is done to one; name that")
        return next(iter(stores.values()))

    def _arguments(self) -> dict[str, Any]:
        """The stores as `SkillFileSystem` takes them, and where their index is."""
        stores = self.named()
        if stores is None:
            stores, left_out = conventional_stores()
            for message in left_out:
                output.complain("warning", message)
        if isinstance(stores, str) or self.index in (None, ":memory:"):
            return {"store": stores, "index": self.index}
        if len(stores) > 1:
            raise InvalidArgumentError(
                f"--index names the index of one store, and there are {len(stores)}; leave it away, "
                'or pass ":memory:"'
            )
        return {"store": {name: {"store": store, "index": self.index} for name, store in stores.items()}}

    @contextmanager
    def open(self, *, log: bool = True) -> Iterator[SkillFileSystem]:
        """Open the stores, showing progress when that takes long.

        Args:
            log: Whether what is logged is told on standard error.
        """
        from skillfs.filesystem import SkillFileSystem
        from skillfs.index.database import IndexWarning

        warnings.simplefilter("always", IndexWarning)
        with output.logged(told=log):
            with output.Progress("reading the store") as progress:
                fs = SkillFileSystem(
                    **self._arguments(),
                    base_paths=list(self.base) if self.base else None,
                    follow=self.follow,
                    ignore=self.ignore,
                    on_progress=progress.callback,
                    skip_instance_cache=True,
                )
            yield fs


def _json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


class _LineRange(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """`A:B`, both counted from 1 and included; either may be missing. Converted to offset and limit."""

    name = "a:b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | None]:
        match = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", value)
        if match is None:
            self.fail(f"{quoted(value)} is no range of lines; write A:B, A: or :B", param, ctx)
        first = int(match[1] or 1)
        if not match[2]:
            return first, None
        if int(match[2]) < first:
            self.fail(f"{quoted(value)} ends before it starts", param, ctx)
        return first, int(match[2]) - first + 1


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: skillfs -s ./skills tree",
)
@click.option(
    "-s",
    "--store",
    "stores",
    multiple=True,
    metavar="[NAME=]STORE",
    help=f"Folder or URL that holds the skill folders; {STORE_VARIABLE} by default. May repeat with names.",
)
@click.option(
    "--index", metavar="PATH", help='File of the index, or ":memory:"; one in your data folder by default.'
)
@click.option(
    "--base", multiple=True, metavar="REF", help="Show only skills at or below this folder; may repeat."
)
@click.option(
    "--follow", multiple=True, metavar="FOLDER", help="Outside folder that links may lead into; may repeat."
)
@click.option(
    "--ignore", multiple=True, metavar="NAME", help='Name pattern to leave out; "!NAME" undoes; may repeat.'
)
@click.version_option(__version__, message="skillfs %(version)s")
@click.pass_context
def command(
    context: click.Context,
    stores: tuple[str, ...],
    index: str | None,
    base: tuple[str, ...],
    follow: tuple[str, ...],
    ignore: tuple[str, ...],
) -> None:
    """Find, list and read the files of agent skills.

    A REF is a path from the root of the store, an id, a UUID, a content hash (sha256:…, md5:…, xxh3:…), or
    name:SKILL. Put "--" before one that starts with "-".

    Several stores, each given as -s NAME=STORE, are mounted under their names: a path then begins with one. A
    NAME holds no "/", ":" or "."; for a folder with "=" in its name, write "./" before it. SKILLFS_STORE
    takes one store, or several as NAME=STORE:NAME=STORE. Without either, the skill folders that agents use
    are taken, such as .claude/skills, those in the project (up to the folder with .git) before those in the
    home folder. --index belongs to one store.
    """
    context.obj = _Target(stores, index, base, follow, ignore)
    if context.invoked_subcommand is None:
        output.write(context.get_help() + "\n")


# -- listing -----------------------------------------------------------------------------------------------


@command.command(epilog="Example: skillfs -s ./skills skills --json")
@click.option("--fold", is_flag=True, help="Show skills of the same content once, with all their places.")
@_json_option
@click.pass_obj
def skills(target: _Target, fold: bool, as_json: bool) -> None:
    """List the skills: name, path, description.

    With --fold, the places of copies follow, with a space between them.
    """
    with target.open() as fs:
        found = fs.skills(fold=fold)
    if as_json:
        output.write_json([output.skill_dict(skill, fs.roots) for skill in found])
        return
    from skillfs.core.drawing import one_line

    rows = []
    for skill in found:
        row = [skill.name, output.path(skill.path, fs.roots), one_line(skill.description)]
        copies = " ".join(output.path(place, fs.roots) for place in skill.places[1:])
        rows.append([*row, copies] if fold else row)
    output.table(("name", "path", "description", *(("copies",) if fold else ())), rows)
    if not found:
        output.note("no skills here: a skill is a folder that holds a SKILL.md")


@command.command(epilog="Example: skillfs -s ./skills tree name:pdf --depth 1")
@click.argument("ref", required=False)
@click.option("--depth", type=int, metavar="N", help="Levels to show; all by default.")
@click.option("--no-files", is_flag=True, help="Show skills and folders only.")
@click.option("--hidden", is_flag=True, help="Show names that start with a dot, too.")
@click.option("--include", multiple=True, metavar="GLOB", help="Show only what matches; may repeat.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches; may repeat.")
@click.option("--details", is_flag=True, help="Show sizes, characters, times and, in JSON, MD5.")
@click.option(
    "--limit", type=int, default=500, metavar="N", help="Entries to show, 500 by default; 0 for all."
)
@click.option("--cursor", metavar="CURSOR", help="Go on after an earlier, cut tree.")
@_json_option
@click.pass_obj
def tree(
    target: _Target,
    ref: str | None,
    depth: int | None,
    no_files: bool,
    hidden: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    details: bool,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Draw a folder, or all skills, as a tree.

    Without REF it shows every skill of the store and the folders that lead to them.

    A GLOB without "/" matches names at any depth; with one it is a path from the folder that is drawn. "/" as
    REF draws the whole store with its files.
    """
    with target.open() as fs:
        drawn = fs.skill_tree(
            ref,
            depth=depth,
            files=not no_files,
            hidden=hidden,
            include=include or None,
            exclude=exclude or None,
            details=details,
            limit=limit or None,
            cursor=cursor,
        )
    if as_json:
        output.write_json(drawn.to_dict())
    else:
        output.write(f"{drawn}\n")


@command.command(epilog="Example: skillfs -s ./skills find '*.py' 'pdf/references/**'")
@click.argument("patterns", nargs=-1, metavar="[GLOB]…")
@click.option(
    "--hash", "content_hash", metavar="HASH", help="Only files with this sha256:…, md5:… or xxh3:…."
)
@_json_option
@click.pass_obj
def find(target: _Target, patterns: tuple[str, ...], content_hash: str | None, as_json: bool) -> int:
    """List paths, by name or by content.

    Prints the paths of files and folders, one a line, and exits with 1 when there are none. A name that could
    break a line is quoted as git quotes it; with --json all are as they are.

    A GLOB without "/" matches names at any depth; with one it is a path from the root of the store.
    """
    from skillfs.core.globs import compile_globs

    glob = compile_globs(patterns, argument="GLOB")
    with target.open() as fs:
        if content_hash is None:
            infos: dict[str, Any] = fs.find("", withdirs=True, detail=True)
            if glob is not None:
                infos = {p: info for p, info in infos.items() if glob(p, info["type"] == "directory")}
            # Looking each of them up takes four times as long as listing them all.
            paths = list(infos)
            found = list(_entries(fs, infos)) if as_json else []
        else:
            try:
                found = fs.find_content(content_hash)
            except NotFoundError:
                found = []
            found = [entry for entry in found if glob is None or glob(entry.path)]
            paths = [entry.path for entry in found]
    if as_json:
        output.write_json([output.as_dict(entry, fs.roots) for entry in found])
    else:
        output.write("".join(output.path(path, fs.roots) + "\n" for path in paths))
    return FINE if (found if as_json else paths) else FOUND_WRONG


def _entries(fs: SkillFileSystem, infos: dict[str, Any]) -> Iterator[Entry]:
    """What a listing does not tell of its entries: where links lead, which facts of a text are known."""
    for path, info in infos.items():
        entry = _entry(fs, info["uuid"]) or _entry(fs, printable_path(path, fs.roots))
        if entry is None:
            continue  # gone since it was listed
        if entry.path != path:
            entry = replace(entry, path=path, name=path.rpartition("/")[2], link=entry.path)
        yield entry


def _entry(fs: SkillFileSystem, ref: str) -> Entry | None:
    # Not by path alone: one with a line break is refused. Nor by UUID alone: that of an outer skill which is
    # out of bounds is not given away, but its folder is on the way to one within.
    try:
        return fs.entry(ref)
    except (NotFoundError, InvalidArgumentError):
        return None


# -- one entry ---------------------------------------------------------------------------------------------


@command.command(epilog="Example: skillfs -s ./skills cat pdf/SKILL.md --lines 1:20")
@click.argument("ref")
@click.option("--start", type=int, metavar="N", help="First character, counted from 0.")
@click.option("--length", type=int, metavar="N", help="Characters to print; the rest by default.")
@click.option(
    "--lines", type=_LineRange(), metavar="A:B", help="Lines A to B, counted from 1; A: and :B, too."
)
@click.option("--encoding", metavar="NAME", help="Read the file in this encoding; what is printed is UTF-8.")
@click.option("--header", is_flag=True, help="Print the raw format: metadata, content, end marker.")
@click.option("--bytes", "raw", is_flag=True, help="Write the bytes of the file, text or not.")
@click.pass_obj
def cat(
    target: _Target,
    ref: str,
    start: int | None,
    length: int | None,
    lines: tuple[int, int | None] | None,
    encoding: str | None,
    header: bool,
    raw: bool,
) -> None:
    """Print the text of a file.

    Exactly as it is stored, with no newline added; on a terminal, control characters are escaped.
    """
    cut = start is not None or length is not None
    if raw and (cut or lines or header or encoding is not None):
        raise click.UsageError("--bytes writes the whole file and goes with no other option")
    if lines and (cut or header):
        raise click.UsageError("--lines goes with none of --start, --length, --header")
    if raw and output.is_terminal():
        raise click.UsageError("--bytes is not for a terminal; redirect the output to a file or a pipe")
    with target.open() as fs:
        if raw:
            data = fs.cat_file(fs.entry(ref).path)
        elif lines:
            data = fs.get_lines(ref, *lines, encoding=encoding).text.encode()
        else:
            content = fs.get_content(ref, 0 if start is None else start, length, encoding=encoding)
            data = (str(content) if header else content.text).encode()
    if output.is_terminal():
        output.write(output.terminal_text(data.decode()))
    else:
        output.write_bytes(data)


@command.command(epilog="Example: skillfs -s ./skills stat pdf/SKILL.md")
@click.argument("ref")
@_json_option
@click.pass_obj
def stat(target: _Target, ref: str, as_json: bool) -> None:
    """Show facts about a file, folder or skill."""
    with target.open() as fs:
        values = output.as_dict(fs.entry(ref), fs.roots)
    if as_json:
        output.write_json(values)
    else:
        output.fields(values)


# -- the state of the store --------------------------------------------------------------------------------


@command.command(epilog="Example: skillfs -s ./skills check --strict")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings and notes, too.")
@_json_option
@click.pass_obj
def check(target: _Target, strict: bool, as_json: bool) -> int:
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


@command.command(epilog="Example: skillfs -s ./skills index --full")
@click.option("--full", is_flag=True, help="Read every file now, for its characters, MD5 and SHA-256.")
@_json_option
@click.pass_obj
def index(target: _Target, full: bool, as_json: bool) -> None:
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


@command.command(epilog="Example: skillfs -s ./skills status")
@_json_option
@click.pass_obj
def status(target: _Target, as_json: bool) -> None:
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


@command.command(epilog="Example: skillfs -s ./skills changes --since 1767225600")
@click.option("--since", type=int, default=0, metavar="N", help="Revision that an earlier call told.")
@_json_option
@click.pass_obj
def changes(target: _Target, since: int, as_json: bool) -> None:
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


@command.command(epilog="Example: skillfs -s ./skills watch --json")
@click.option("--since", type=int, metavar="N", help="Revision to begin after; the present one by default.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document a line, for each revision with changes."
)
@click.pass_obj
def watch(target: _Target, since: int | None, as_json: bool) -> None:
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


@command.command(epilog="Example: skillfs -s ./skills init")
@click.pass_obj
def init(target: _Target) -> None:
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


# -- running -----------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    if sys.stdout is None:
        output.complain("unavailable", "standard output is closed; redirect it to /dev/null to discard it")
        return COULD_NOT_RUN
    with output.prepared(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except BrokenPipeError:
            output.abandon()
            return NOBODY_READS
        except KeyboardInterrupt:
            output.abandon()
            return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    try:
        # Not click's own main(), which turns an interrupt and a closed pipe into exit code 1.
        try:
            with command.make_context("skillfs", list(arguments)) as context:
                code = command.invoke(context)
        except click.exceptions.Exit as done:
            code = done.exit_code
        output.flush()
        return code or FINE
    except click.ClickException as error:
        output.complain("invalid_argument", _usage_message(error))
    except SkillFSError as error:
        output.complain(error.code, error.message)
    except BrokenPipeError:
        raise
    except OSError as error:
        # What the system refused, in its words but for the path that its error may hold.
        reason = error.strerror or type(error).__name__
        output.complain(
            "unavailable", f"the system does not let this be done ({reason}); mend that, or try again"
        )
    except Exception:
        traceback.print_exc()
    return COULD_NOT_RUN


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        if error.ctx is not None and error.ctx.parent is not None and _is_global(error.option_name):
            message = f"{error.option_name} goes before the command"
        else:
            message += '; put "--" before a name that starts with "-"'
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see: {context.command_path if context else 'skillfs'} --help"


def _is_global(option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    output.complain("warning", str(message))
