"""The commands that compare: states of a store, and skills with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError
from skillfs.faces import output
from skillfs.faces.changes import change_lines
from skillfs.faces.target import FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.model import Change, Difference, Differences
    from skillfs.core.versions import SkillVersions
    from skillfs.history.diff import Comparison

__all__ = ["diff", "versions"]

NOW = "."
"""Stands for the store as it is: no label can be this."""

_CONTEXT = 3

_AT_ONCE = 200  # skills whose versions are written at a time

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(epilog="Example: skillfs -s ./skills diff v1 --text --only pdf/SKILL.md")
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", default=NOW)
@click.option("--text", is_flag=True, help="Show what differs in the files, line by line.")
@click.option("--only", multiple=True, metavar="REF", help="Only this file, or folder; may repeat.")
@click.option(
    "--context", type=int, metavar="N", help=f"With --text, lines around each change; {_CONTEXT} by default."
)
@json_option
@click.pass_obj
def diff(
    target: Target,
    before: str,
    after: str,
    text: bool,
    only: tuple[str, ...],
    context: int | None,
    as_json: bool,
) -> int:
    """List what differs between two snapshots, or between one and the store.

    A and B are labels or digests of snapshots, or latest; "." is the store as it is, which B is by default.
    Prints a line for each skill that differs, with a slash behind its path, and then for each file, link and
    empty folder; with --text such a line before each unified diff. Exits with 1 when anything differs.
    """
    if as_json and text:
        raise InvalidArgumentError("--text is no JSON; leave out one of --text and --json")
    if context is not None and not text:
        raise InvalidArgumentError("--context goes with --text")
    lines = _CONTEXT if context is None else context
    with _compared(target, before, after, list(only) or None) as (comparison, roots):
        found = comparison.differences
        if text:
            for one in comparison.texts(lines):
                _write_diff(one)
    if as_json:
        output.write_json(_diff_dict(found, roots))
    elif not text:
        skills = tuple(_with_slash(skill) for skill in found.skills)
        output.write(change_lines(replace(found, items=skills), roots) + change_lines(found, roots))
    return FOUND_WRONG if found.items or found.skills else FINE


@contextmanager
def _compared(
    target: Target, before: str, after: str, only: list[str] | None
) -> Iterator[tuple[Comparison, Sequence[str]]]:
    """The comparison, and how the root of the store may be spelled.

    For two snapshots no store need be opened, or be there.
    """
    from skillfs.history.diff import Comparison, side_of_snapshot

    if NOW not in (before, after):
        snapshots = target.snapshots()
        sides = side_of_snapshot(snapshots, before), side_of_snapshot(snapshots, after)
        yield Comparison(*sides, only), ()
        return
    with target.open() as fs:
        a, b = (None if side == NOW else side for side in (before, after))
        yield fs.compare(a, b, only), fs.roots


def _with_slash(skill: Difference) -> Difference:
    old_path = None if skill.old_path is None else f"{skill.old_path}/"
    return replace(skill, path=f"{skill.path}/", old_path=old_path)


def _diff_dict(found: Differences, roots: Sequence[str]) -> dict[str, Any]:
    return {
        "revision": found.revision,
        "skills": [_item_dict(item, roots) for item in found.skills],
        "items": [_item_dict(item, roots) for item in found.items],
    }


def _item_dict(item: Change, roots: Sequence[str]) -> dict[str, Any]:
    told = output.as_dict(item, roots)
    if told["old_link"] is not None:
        told["old_link"] = printable_path(told["old_link"], roots)
    return told


def _write_diff(text: str) -> None:
    if not output.is_terminal():
        output.write(text)
        return
    for line in text.split("\n")[:-1]:
        shown = output.terminal_text(line)
        output.write((output.styled(shown, _COLOURS[line[0]]) if line[:1] in _COLOURS else shown) + "\n")


@click.command(epilog="Example: skillfs -s old=./a -s new=./b versions name:pdf")
@click.argument("ref", metavar="[SKILL]", required=False)
@click.option(
    "--least", type=float, default=10, metavar="PERCENT", help="Share from which it is edited; 10 by default."
)
@click.option(
    "--limit",
    type=int,
    default=20,
    metavar="N",
    help="Versions to show of a skill, 20 by default; 0 for all.",
)
@json_option
@click.pass_obj
def versions(target: Target, ref: str | None, least: float, limit: int, as_json: bool) -> None:
    """Find versions of a skill, or of all: copies, edited copies, namesakes.

    Prints a line for each version: the skill; what the other is to it; how much of the skill the other holds;
    how much of the other it holds; the other. What is compared are the SKILL.md files: those word for word
    are the same, edited ones share phrases of five words, an own version shares the name alone. Of those word
    for word it is told whether the rest of the skill is the same as well.
    """
    if not 0 <= least <= 100:
        raise InvalidArgumentError("--least takes a percentage, 0 to 100")
    with target.open() as fs:
        found = fs.versions(ref, least=round(least / 100, 9), limit=limit or None)
    if as_json:
        output.write_json([_versions_dict(one, fs.roots) for one in found if one.total or ref is not None])
        return
    # In a pipe a table has no end: so it need not be held.
    turn = max(1, len(found)) if output.is_terminal() else _AT_ONCE
    for begin in range(0, len(found), turn):
        _write_versions(found[begin : begin + turn], fs.roots)
    hidden = sum(one.total - len(one.versions) for one in found)
    if hidden:
        output.note(f"{output.counted(hidden, 'version')} more; show all with: --limit 0")
    elif not any(one.total for one in found):
        output.note("no other versions here")


def _write_versions(found: Sequence[SkillVersions], roots: Sequence[str]) -> None:
    output.table(
        ("skill", "version", "held", "holds", "other", "files"),
        [
            [
                output.path(one.path, roots),
                version.kind,
                _percent(version.held),
                _percent(version.holds),
                output.path(version.path, roots),
                "" if version.same_files is None else "same files" if version.same_files else "other files",
            ]
            for one in found
            for version in one.versions
        ],
    )


def _percent(share: float | None) -> str:
    # Cut, not rounded: what is not all of it is no 100 %.
    return "" if share is None else f"{int(share * 100)}%"


def _versions_dict(one: SkillVersions, roots: Sequence[str]) -> dict[str, Any]:
    told = asdict(one)
    for value in (told, *told["versions"]):
        value["path"] = printable_path(value["path"], roots)
    return told
