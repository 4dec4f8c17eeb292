"""The commands that do what agents' tools do: `search`, `outline`, `tools` and `run`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.faces import output
from skillfs.faces.target import FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.outline import Section
    from skillfs.core.search import SearchHit

__all__ = ["outline", "run", "search", "tools"]

MOST_INPUT = 4 * 2**20
"""Bytes of standard input that `run -` reads."""

LONGEST_NUMBER = 400
"""Digits of a number in the arguments of a tool: more than any float has, few enough for every reader."""

_SHOWN_PASSAGE = 240
_SHOWN_COPIES = 3


# -- search and outline ------------------------------------------------------------------------------------


@click.command(epilog='Example: skillfs -s ./skills search "fill in" pdf forms')
@click.argument("query", nargs=-1, required=True, metavar="QUERY…")
@click.option("--limit", type=int, default=10, metavar="N", help="Files to show; 10 by default, 100 at most.")
@json_option
@click.pass_obj
def search(target: Target, query: tuple[str, ...], limit: int, as_json: bool) -> int:
    """Find skills and files by words.

    Looks in names, descriptions and texts, and prints the path of each file with its skill, its best passage
    and where else the same text lies, the best first; exits with 1 when there is none. Words in double quotes
    must occur as such: quote them for the shell as well.
    """
    with target.open() as fs:
        found = fs.search(" ".join(query), limit=limit)
    if as_json:
        values = {**asdict(found), "complete": found.complete}
        values["hits"] = [_hit_dict(hit, fs.roots) for hit in found.hits]
        output.write_json(values)
    else:
        output.write("".join(_hit_lines(hit, fs.roots) for hit in found.hits))
        if len(found.hits) < found.total:
            output.note(f"the best {len(found.hits)} of {output.counted(found.total, 'file')}; see --limit")
        if not found.hits:
            output.note("nothing matches")
    if not found.complete:
        texts = output.counted(found.texts, "text")
        again = "search again, or with more words where some are quoted"
        output.note(f"only {found.searched:,} of {texts} are searched; {again}")
    return FINE if found.hits else FOUND_WRONG


def _hit_dict(hit: SearchHit, roots: Sequence[str]) -> dict[str, Any]:
    values = asdict(hit)
    for name in ("path", "skill_path"):
        values[name] = printable_path(values[name], roots)
    values["copies"] = [printable_path(path, roots) for path in values["copies"]]
    return values


def _hit_lines(hit: SearchHit, roots: Sequence[str]) -> str:
    from skillfs.core.drawing import one_line

    title = hit.skill_name + (f": {hit.description}" if hit.description else "")
    lines = [output.styled(output.path(hit.path, roots), "cyan"), f"  {one_line(title, 100)}"]
    if hit.passages:
        best = hit.passages[0]
        lines.append(f"  {best.start:,}: {one_line(best.text, _SHOWN_PASSAGE)}")
    if hit.copies:
        shown = [output.path(path, roots) for path in hit.copies[:_SHOWN_COPIES]]
        lines.append(f"  same text: {' '.join(shown)}{' …' if len(hit.copies) > _SHOWN_COPIES else ''}")
    return "\n".join(lines) + "\n"


@click.command(epilog="Example: skillfs -s ./skills outline pdf/SKILL.md")
@click.argument("ref")
@json_option
@click.pass_obj
def outline(target: Target, ref: str, as_json: bool) -> None:
    """List the headings of a Markdown file.

    Prints a line for each section: where it starts and how long it is, in characters as `cat` takes them, the
    line, the level, and the heading. What stands before the first heading has level 0.
    """
    with target.open() as fs:
        found = fs.outline(ref)
    if as_json:
        values = asdict(found)
        values["path"] = printable_path(found.path, fs.roots)
        output.write_json(values)
        return
    output.table(("start", "length", "line", "level", "heading"), map(_section_row, found.sections))


def _section_row(section: Section) -> list[str]:
    numbers = (section.start, section.length, section.line, section.level)
    return [*map(str, numbers), section.title]


# -- tools -------------------------------------------------------------------------------------------------


@click.command(epilog="Example: skillfs tools --format anthropic")
@click.option(
    "--format",
    "schema_format",
    type=click.Choice(["mcp", "anthropic", "openai"]),
    help="Print their JSON schemas as this interface takes them.",
)
@json_option
def tools(schema_format: str | None, as_json: bool) -> None:
    """List the tools for agents, with their arguments.

    With --json as MCP takes them, unless --format names another interface.
    """
    from skillfs.tools import TOOLS, schemas

    if schema_format is not None or as_json:
        output.write_json(schemas(cast(Any, schema_format or "mcp")))
        return
    rows = []
    for tool in TOOLS.values():
        known = [p for p in tool.parameters if not p.hidden]
        arguments = ", ".join(p.name if p.required else f"{p.name}?" for p in known)
        rows.append((tool.name, tool.title, arguments))
    output.table(("name", "title", "arguments"), rows)


@click.command(epilog="""Example: skillfs -s ./skills run skill_outline '{"id": "pdf/SKILL.md"}'""")
@click.argument("name", metavar="NAME|-")
@click.argument("arguments", required=False, metavar="[JSON]")
@click.option("--dry-run", is_flag=True, help="Check the request and show it; no store is opened.")
@json_option
@click.pass_obj
def run(target: Target, name: str, arguments: str | None, dry_run: bool, as_json: bool) -> int:
    """Call a tool as an agent does, and print its answer.

    NAME is one of those that `skillfs tools` lists, JSON an object of its arguments. With "-" as NAME a
    payload is read from standard input. Prints the text of the answer where it has one, else JSON; exits with
    1 when the answer tells of a failure.
    """
    if name == "-":
        if arguments is not None:
            raise click.UsageError('with "-" the payload is read from standard input; pass nothing else')
        return _run_payload(target, dry_run)
    from skillfs.tools import TOOLS, answer
    from skillfs.tools.parameters import checked
    from skillfs.tools.registry import find_tool

    tool = find_tool(TOOLS, name)
    given = _read_arguments(arguments or "{}")
    values = checked(tool.name, tool.parameters, given)
    if dry_run:
        hidden = {p.name for p in tool.parameters if p.hidden}
        shown = {argument: value for argument, value in values.items() if argument not in hidden}
        output.write_json({"tool": tool.name, "arguments": shown})
        return FINE
    with target.open() as fs:
        found = answer(fs, name, given)
    if as_json or found.text is None:
        output.write_json(found.structured)
    elif output.is_terminal():
        output.write(output.terminal_text(found.text) + "\n")
    else:
        output.write_bytes(found.text.encode())
    return FOUND_WRONG if found.failed else FINE


def _run_payload(target: Target, dry_run: bool) -> int:
    from skillfs.tools import run_payload

    payload = _standard_input()
    if dry_run:
        result = run_payload(None, payload, dry_run=True)
    else:
        with target.open() as fs:
            result = run_payload(fs, payload)
    output.write_json(result)
    return FINE if result["success"] else FOUND_WRONG


def _standard_input() -> str:
    data = b""
    if sys.stdin is not None:
        with contextlib.suppress(OSError):  # it has no number, or is closed: the reading tells
            os.set_blocking(sys.stdin.fileno(), True)  # else what is not there yet is taken for the end
        data = sys.stdin.buffer.read(MOST_INPUT + 1)
    if len(data) > MOST_INPUT:
        raise InvalidArgumentError(f"standard input is over {MOST_INPUT:,} bytes; a payload is far smaller")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"standard input is no UTF-8 at byte {error.start}; send the payload as UTF-8"
        ) from None


def _read_arguments(text: str) -> Any:
    """Read JSON, strictly: one value, no name twice, no number that is none.

    Raises:
        InvalidArgumentError: It is malformed; the message says where.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_int=_integer,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"the arguments are no JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            """pass an object such as '{"id": "pdf/SKILL.md"}'"""
        ) from None
    except RecursionError:
        raise InvalidArgumentError("the arguments are nested too deeply; no tool takes that") from None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(members)
    if len(values) < len(members):
        counts = Counter(name for name, _ in members)
        double = next(name for name, count in counts.items() if count > 1)
        raise InvalidArgumentError(f"the arguments hold {quoted(double)} twice; leave one away")
    return values


def _no_number(text: str) -> Any:
    raise InvalidArgumentError(f"the arguments hold {text}, which is no JSON; pass a number")


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise InvalidArgumentError(f"the arguments hold a number of {len(text):,} digits; pass a smaller one")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidArgumentError(f"the arguments hold {quoted(text)}, which is too large for a number")
    return value
