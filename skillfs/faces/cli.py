"""The command line: `skillfs [-s STORE]… COMMAND`.

It parses, asks `SkillFileSystem` and prints; what is refused is refused there. A command exits with 0 when
all is well, 1 when it found something wrong (`check`) or nothing at all (`find`), and 2 when it could not be
carried out.

Here are the commands that list and read; the others are in modules of their own, imported when they are used.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from skillfs import __version__
from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError, NotFoundError, SkillFSError, quoted
from skillfs.faces import output
from skillfs.faces.stores import STORE_VARIABLE
from skillfs.faces.target import COULD_NOT_RUN, FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.model import Entry
    from skillfs.filesystem import SkillFileSystem

__all__ = ["command", "main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells count
NOBODY_READS = 141  # 128 + SIGPIPE

OBJECTS_VARIABLE = "SKILLFS_OBJECTS"

_ELSEWHERE = {
    "changes": ("state_commands", "changes"),
    "check": ("state_commands", "check"),
    "diff": ("diff_commands", "diff"),
    "digest": ("lock_commands", "digest"),
    "index": ("state_commands", "index"),
    "init": ("state_commands", "init"),
    "lock": ("lock_commands", "lock"),
    "mcp": ("mcp_command", "mcp_command"),
    "mount": ("mount_commands", "mount"),
    "mountpoints": ("mount_commands", "mountpoints"),
    "outline": ("tool_commands", "outline"),
    "run": ("tool_commands", "run"),
    "search": ("tool_commands", "search"),
    "snapshot": ("snapshot_commands", "snapshot"),
    "status": ("state_commands", "status"),
    "tools": ("tool_commands", "tools"),
    "unmount": ("mount_commands", "unmount"),
    "verify": ("lock_commands", "verify"),
    "versions": ("diff_commands", "versions"),
    "watch": ("state_commands", "watch"),
}
"""Commands of other modules: each with its module and its name there."""


class _Commands(click.Group):
    """All commands, of which those of other modules are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, name = _ELSEWHERE[cmd_name]
        found: click.Command = getattr(import_module(f"skillfs.faces.{module}"), name)
        return found


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
    cls=_Commands,
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
@click.option(
    "--at", metavar="SNAPSHOT", help="Show the store as a snapshot has it: a label, a digest, or latest."
)
@click.option(
    "--objects",
    envvar=OBJECTS_VARIABLE,
    metavar="FOLDER",
    help=f"Folder or URL that keeps the snapshots; {OBJECTS_VARIABLE}, or beside the index, by default.",
)
@click.option(
    "--lock", "lock_file", metavar="FILE", help="Read only what this skills.lock names, and exactly so."
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
    at: str | None,
    objects: str | None,
    lock_file: str | None,
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
    context.obj = Target(stores, index, base, follow, ignore, at, objects or None, lock_file)
    if context.invoked_subcommand is None:
        output.write(context.get_help() + "\n")


# -- listing -----------------------------------------------------------------------------------------------


@command.command(epilog="Example: skillfs -s ./skills skills --json")
@click.option("--fold", is_flag=True, help="Show skills of the same content once, with all their places.")
@json_option
@click.pass_obj
def skills(target: Target, fold: bool, as_json: bool) -> None:
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
@json_option
@click.pass_obj
def tree(
    target: Target,
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
@json_option
@click.pass_obj
def find(target: Target, patterns: tuple[str, ...], content_hash: str | None, as_json: bool) -> int:
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
    target: Target,
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
@json_option
@click.pass_obj
def stat(target: Target, ref: str, as_json: bool) -> None:
    """Show facts about a file, folder or skill."""
    with target.open() as fs:
        values = output.as_dict(fs.entry(ref), fs.roots)
    if as_json:
        output.write_json(values)
    else:
        output.fields(values)


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
