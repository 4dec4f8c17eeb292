"""The commands about what skills hold: digests, locks, and whether a store is as locked."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from skillfs.core.manifest import digest_text
from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError
from skillfs.faces import output
from skillfs.faces.stores import STORE_VARIABLE
from skillfs.faces.target import FINE, FOUND_WRONG, Target, json_option

if TYPE_CHECKING:
    from skillfs.core.lock import Verification, VerifiedSkill

__all__ = ["digest", "lock", "verify"]

_COLOURS = {"ignored": "cyan", "unlocked": "yellow"}


@click.command(epilog="Example: skillfs -s ./skills digest name:pdf pdf/SKILL.md")
@click.argument("refs", nargs=-1, metavar="[REF]…")
@json_option
@click.pass_obj
def digest(target: Target, refs: tuple[str, ...], as_json: bool) -> None:
    """Print SHA-256 digests of skills and files.

    A line for each REF, or each skill: the digest, two spaces, the path. That of a file is of its bytes, that
    of a skill follows from the paths, sizes and digests of all of its files, and is the same wherever they
    lie.
    """
    with target.open() as fs:
        if refs:
            found = [(fs.entry(ref).path, fs.digest(ref)) for ref in refs]
        else:
            # All of them together, which takes less than one after the other.
            found = [(s.path, digest_text(s.digest)) for s in fs.lock().skills] if fs.skills() else []
        roots = fs.roots
    if as_json:
        output.write_json([{"path": printable_path(path, roots), "digest": value} for path, value in found])
    else:
        output.write("".join(f"{value}  {output.path(path, roots)}\n" for path, value in found))


@click.command(epilog="Example: skillfs -s ./skills lock name:pdf --output pdf.lock")
@click.argument("refs", nargs=-1, metavar="[REF]…")
@click.option(
    "--output",
    "file",
    default="skills.lock",
    metavar="FILE",
    help='File to write, skills.lock by default; "-" prints.',
)
@click.pass_obj
def lock(target: Target, refs: tuple[str, ...], file: str) -> None:
    """Write down what skills hold, to be reviewed and verified.

    A lock names every file with its size and SHA-256. Without REF all skills are locked; nested ones go with
    those that they lie in. Where FILE is a lock already, only what REFs name is locked anew, and the rest of
    it stays. The same content makes the same lock.
    """
    from skillfs.core.lock import render_lock
    from skillfs.history.locking import read_lock, write_lock

    if target.named() is None:
        raise InvalidArgumentError(
            f"which store? name what is to be locked: skillfs -s STORE lock, or set {STORE_VARIABLE}"
        )
    with _without_collecting(), target.open() as fs:
        before = read_lock(file) if refs and file != "-" and os.path.lexists(file) else None
        made = fs.lock(list(refs) or None, renewing=before)
    if file == "-":
        output.write_bytes(render_lock(made))
        return
    is_new = write_lock(file, made)
    files = sum(len(skill.files) for skill in made.skills)
    what = f"{output.counted(len(made.skills), 'skill')}, {output.counted(files, 'file')}"
    output.write(f"{'wrote' if is_new else 'unchanged:'} {output.printable(file)}: {what}\n")


@click.command(epilog="Example: skillfs -s ./skills verify skills.lock")
@click.argument("file", required=False, default="skills.lock", metavar="[LOCK]")
@click.option("--reread", is_flag=True, help="Read every file, whatever is known of it.")
@click.option("--allow-unlocked", is_flag=True, help="Skills that the lock does not name are no fault.")
@json_option
@click.pass_obj
def verify(target: Target, file: str, reread: bool, allow_unlocked: bool, as_json: bool) -> int:
    """Hold the skills against a lock, skills.lock by default.

    Prints a line for all that is not as locked, and one with counts; exits with 1 when anything is wrong, or
    when there is nothing to compare, and with 2 when there is no lock, or none that can be used.

    A file is "modified" (with "only line endings" where CRLF and LF are all the difference), "missing",
    "extra" where the lock does not name it, "mode" where it may be executed and was not, or the other way
    round, or "ignored" where its name keeps it out of the skill, which is no fault. A skill that the lock
    does not name is "unlocked".
    """
    with _without_collecting(), target.open() as fs:
        found = fs.verify(file, reread=reread, allow_unlocked=allow_unlocked, check=False)
        roots = fs.roots
    if as_json:
        output.write_json(_verification_dict(found, roots))
    else:
        output.write("".join(f"{line}\n" for skill in found.skills for line in _lines(skill, found, roots)))
        output.write(f"{_counts_line(found)}\n")
    return FINE if found.ok else FOUND_WRONG


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Have nothing look for circles meanwhile: a million rows hold none, and it costs a quarter."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _lines(skill: VerifiedSkill, found: Verification, roots: Sequence[str]) -> Iterator[str]:
    if skill.status in ("missing", "extra") or (skill.status == "unlocked" and not found.allow_unlocked):
        yield _line(skill.status, f"{skill.path}/" if skill.path else "/", roots)
        return
    for file in skill.files:
        if file.status != "ok":
            path = f"{skill.path}/{file.path}" if skill.path else file.path
            note = " (only line endings)" if file.line_endings else ""
            yield _line(file.status, path, roots) + note


def _line(status: str, path: str, roots: Sequence[str]) -> str:
    return f"{output.styled(f'{status:<8}', _COLOURS.get(status, 'red'))}  {output.path(path, roots)}"


def _counts_line(found: Verification) -> str:
    if not found.skills:
        return "nothing to verify: neither the lock nor the store has a skill to be seen"
    counts = found.counts
    parts = []
    for noun in ("skill", "file"):
        some = [(key.partition(".")[2], n) for key, n in counts.items() if key.startswith(noun)]
        told = ", ".join(f"{number:,} {status}" for status, number in sorted(some, key=_order))
        parts.append(f"{noun}s: {told or 'none'}")
    return "; ".join(parts)


def _order(counted: tuple[str, int]) -> int:
    return ("ok", "modified", "missing", "extra", "mode", "unlocked", "ignored").index(counted[0])


def _verification_dict(found: Verification, roots: Sequence[str]) -> dict[str, Any]:
    """A verification as JSON can hold it, paths of skills in the form that can be passed back."""
    skills = []
    for skill in found.skills:
        files = [
            {"path": f.path, "status": f.status, **({"line_endings": True} if f.line_endings else {})}
            for f in skill.files
        ]
        path = printable_path(skill.path, roots)
        skills.append({"path": path, "status": skill.status, "files": files})
    return {"ok": found.ok, "counts": found.counts, "skills": skills}
