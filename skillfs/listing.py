"""Rows as the values that callers get: entries, skills, problems, changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from skillfs.access import Access
from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.model import Change, Entry, Kind, Problem, Skill
from skillfs.core.refs import below_mount, find_unfit, printable_path
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.index.catalog import Catalog
from skillfs.index.journal import ChangeRow
from skillfs.index.rows import Row, RowKind, paths_of
from skillfs.locked import LockedStore, names_of_skills
from skillfs.sync.scan import SKILL_MD

__all__ = [
    "all_problems",
    "all_skills",
    "changes_of",
    "check_since",
    "counts_of",
    "entry_of",
    "first_of_name",
    "in_order",
    "kind_of",
    "problem_order",
    "prompt_of",
    "skill_of",
    "time_of",
]

LOCK_MISMATCH = "lock-mismatch"
"""Code of the problem of a skill of which nothing is told."""

_NOT_LOCKED = (
    "not as the lock names it, or not known to be, so nothing in it is told; whoever keeps the lock "
    "has to restore it, or to review it"
)

_JOINERS = "\u200c\u200d"  # Persian, several Indic scripts and emoji are spelled with them

_KINDS = {RowKind.FOLDER: Kind.FOLDER, RowKind.SKILL: Kind.SKILL, RowKind.FILE: Kind.FILE}


def kind_of(kind: RowKind) -> Kind:
    """The public kind of a row that is no link."""
    return _KINDS[kind]


def time_of(nanoseconds: int) -> datetime:
    """An aware time in UTC from nanoseconds since the epoch."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def entry_of(
    row: Row,
    *,
    md5: str | None = None,
    characters: int | None = None,
    link: str | None = None,
    mount: str = "",
) -> Entry:
    """An entry as callers see it.

    Args:
        row: A row that is no link.
        md5: When computed just now; else what the row knows.
        characters: Likewise.
        link: Store path of the target when the caller came through a link.
        mount: Name of the mount.
    """
    assert row.uuid is not None
    assert row.id is not None
    text = row.text
    if text is not None and characters is None and text.encoding is not None:
        characters = text.characters
    if text is not None and md5 is None and text.md5 is not None:
        md5 = text.md5.hex()
    return Entry(
        id=row.id,
        uuid=uuid_text(row.uuid),
        path=below_mount(mount, row.path),
        name=row.name or mount,
        kind=_KINDS[row.kind],
        size=row.size,
        modified=time_of(row.modified),
        characters=characters,
        md5=md5,
        hash=hex_hash(row.content),
        skill_folder_uuid=None if row.skill is None else uuid_text(row.skill.uuid),
        skill_path=None if row.skill is None else below_mount(mount, row.skill.path),
        link=None if link is None else below_mount(mount, link),
    )


def all_skills(
    catalog: Catalog,
    access: Access,
    mount: str = "",
    first: dict[str, str] | None = None,
    locked: LockedStore | None = None,
) -> list[Skill]:
    """Every visible skill, by path; of those with one name all but the first say what shadows them.

    A skill that a lock does not vouch for takes no name from another.

    Args:
        catalog: The index.
        access: What the caller may see.
        mount: Name of the mount.
        first: Which whole path answers to a name, as mounts before this one have it; added to.
        locked: What a lock names of the store; None without one.
    """
    with catalog.database.snapshot():
        rows = catalog.skill_rows()
        paths = catalog.with_paths("SELECT key FROM skill") if rows else {}
        vouched = None if locked is None else locked.vouched(catalog)
    found = sorted(
        (in_order(paths[key]), number, uuid, name, front if vouched is None or key in vouched else None)
        for key, number, uuid, name, front in rows
        if key in paths and access.allows(paths[key])
    )
    scanned: dict[str | None, list[Problem]] = {}
    for problem in _scan_problems(catalog, access, mount=mount):
        scanned.setdefault(problem.skill_folder_uuid, []).append(problem)
    first = {} if first is None else first
    skills = []
    for order, number, uuid, name, front in found:
        path = below_mount(mount, order.replace("\0", "/"))
        winner = path if front is None else first.setdefault(name, path)
        extra = scanned.get(uuid_text(uuid), ())
        skills.append(_skill(number, uuid, path, name, front, extra, None if winner == path else winner))
    return skills


def skill_of(
    catalog: Catalog,
    key: int,
    access: Access,
    mount: str = "",
    elsewhere: str | None = None,
    locked: LockedStore | None = None,
) -> Skill | None:
    """One skill, at the cost of those that share its name; None when it is not there, or not visible.

    Args:
        catalog: The index.
        key: Key of the skill folder's row.
        access: What the caller may see.
        mount: Name of the mount.
        elsewhere: Whole path of the skill that answers to its name in a mount before this one.
        locked: What a lock names of the store; None without one.
    """
    with catalog.database.snapshot():
        row = catalog.by_key(key)
        stored = catalog.skill_row(key)
        is_vouched = locked is None or key in locked.vouched(catalog, [key])
    if row is None or row.kind != RowKind.SKILL or stored is None or not access.allows(row.path):
        return None
    assert row.uuid is not None
    assert row.id is not None
    name, front = stored
    path = below_mount(mount, row.path)
    if not is_vouched:
        problems = _scan_problems(catalog, access, key, mount)
        return _skill(row.id, row.uuid, path, name, None, problems, None)
    winner = elsewhere
    if winner is None:
        own = first_of_name(catalog, name, access, locked)
        winner = path if own is None else below_mount(mount, own)
    problems = _scan_problems(catalog, access, key, mount)
    return _skill(row.id, row.uuid, path, name, front, problems, None if winner == path else winner)


def first_of_name(
    catalog: Catalog, name: str, access: Access, locked: LockedStore | None = None
) -> str | None:
    """Store path of the skill that a name stands for: the first by path that can be seen."""
    keys = names_of_skills(catalog, name, locked)
    paths = catalog.with_paths(keys)
    seen = [path for key in keys if (path := paths.get(key)) is not None and access.allows(path)]
    return min(seen, key=in_order, default=None)


def in_order(path: str) -> str:
    """What paths are sorted by, everywhere: component by component, by code point."""
    return path.replace("/", "\0")


def _skill(
    number: int,
    uuid: bytes,
    path: str,
    name: str,
    front_matter: str | None,
    scanned: Iterable[Problem],
    shadowed_by: str | None,
) -> Skill:
    """A skill; without front matter one of which nothing but the folder is told, as a lock has it."""
    own = uuid_text(uuid)
    where = f"{path}/{SKILL_MD}" if path else SKILL_MD
    if front_matter is None:
        fault = Problem(LOCK_MISMATCH, "error", _NOT_LOCKED, where, None, own)
        problems = sorted((fault, *scanned), key=problem_order)
        folder = path.rpartition("/")[2] or "skill"
        return Skill(number, own, path, folder, "", problems=tuple(problems), places=(path,))
    front = json.loads(front_matter)
    problems = [
        Problem(code, severity, message, where, line, own)
        for code, severity, message, line in front["faults"]
    ]
    problems.extend(scanned)
    if shadowed_by is not None:
        message = (
            f"the name answers for the skill at {quoted(shadowed_by or '/')}; rename one, or use path or UUID"
        )
        problems.append(Problem("shadowed", "warning", message, where, None, own))
    return Skill(
        id=number,
        uuid=own,
        path=path,
        name=name,
        description=front["description"],
        license=front["license"],
        compatibility=front["compatibility"],
        metadata=front["metadata"],
        allowed_tools=tuple(front["allowed_tools"]),
        front_matter=front["values"],
        problems=tuple(sorted(problems, key=problem_order)),
        shadowed_by=shadowed_by,
        places=(path,),
    )


def all_problems(
    catalog: Catalog,
    access: Access,
    mount: str = "",
    first: dict[str, str] | None = None,
    locked: LockedStore | None = None,
) -> list[Problem]:
    """Every problem that can be seen, those that belong to no skill too, by path and line.

    Args:
        catalog: The index.
        access: What the caller may see.
        mount: Name of the mount.
        first: As for `all_skills`.
        locked: Likewise.
    """
    skills = all_skills(catalog, access, mount, first, locked)
    problems = [problem for skill in skills for problem in skill.problems]
    problems.extend(p for p in _scan_problems(catalog, access, mount=mount) if p.skill_folder_uuid is None)
    return sorted(problems, key=problem_order)


def problem_order(problem: Problem) -> tuple[str, int, str, str]:
    """What problems are sorted by."""
    return in_order(problem.path), problem.line or 0, problem.code, problem.message


def _scan_problems(
    catalog: Catalog, access: Access, skill: int | None = None, mount: str = ""
) -> list[Problem]:
    """What scans found wrong with names and links: in one skill, or everywhere."""
    found = []
    folders: dict[int, Row | None] = {}
    for folder, name, code, severity, message in catalog.problems(skill):
        if folder not in folders:
            folders[folder] = catalog.by_key(folder)
        row = folders[folder]
        if row is None or not access.allows(row.path if row.skill is None else row.skill.path):
            continue
        path = "/".join(part for part in (mount, row.path, name) if part)
        uuid = None if row.skill is None else uuid_text(row.skill.uuid)
        found.append(Problem(code, severity, message, path, None, uuid))  # type: ignore[arg-type]  # stored by us
    return found


def changes_of(rows: Iterable[ChangeRow], access: Access, mount: str = "") -> tuple[Change, ...]:
    """Changes as who may see only some skills meets them: a move in is an arrival, one out a departure.

    Args:
        rows: The changes.
        access: What the caller may see.
        mount: Name of the mount.
    """
    found = []
    for row in rows:
        was = row.kind != "added" and _saw(access, row.old_skill_path, row.old_path or row.path)
        now = row.kind != "removed" and _saw(access, row.skill_path, row.path)
        if not was and not now:
            continue
        kind = (
            row.kind
            if was == (row.kind != "added") and now == (row.kind != "removed")
            else "added"
            if now
            else "removed"
        )
        skill = row.skill if now else row.old_skill
        # Only what has a path can move: the root stays, and its path is empty.
        old_path = below_mount(mount, row.old_path) if row.old_path else None
        path = below_mount(mount, row.path)
        found.append(
            Change(
                kind,  # type: ignore[arg-type]  # stored by us
                uuid_text(row.uuid),
                path if now else old_path or path,
                old_path if kind == "moved" else None,
                None if skill is None else uuid_text(skill),
                hex_hash(row.content) if now else None,
                hex_hash(row.old_content) if was else None,
            )
        )
    return tuple(found)


def check_since(since: object) -> None:
    """Refuse what is no revision.

    Raises:
        InvalidArgumentError: It is no integer of 0 or more.
    """
    if not isinstance(since, int) or isinstance(since, bool) or since < 0:
        raise InvalidArgumentError(f"since must be a revision, an integer of 0 or more, not {quoted(since)}")


def _saw(access: Access, skill_path: str | None, path: str) -> bool:
    return access.allows(skill_path) if skill_path is not None else access.leads(path)


def counts_of(catalog: Catalog, access: Access) -> dict[str, int]:
    """How many skills, folders and files there are to be seen, and how many bytes the files have."""
    if not access.restricted:
        return catalog.counts()
    nodes = catalog.overview()
    paths = paths_of({node.key: (node.parent, node.name) for node in nodes})
    skills = {paths[n.key]: n.key for n in nodes if n.kind == RowKind.SKILL and access.allows(paths[n.key])}
    # All below a skill that is allowed is allowed too, so only the topmost ones are counted.
    tops = [path for path in skills if not any(above in skills for above in _above(path))]
    counts = catalog.counts([skills[path] for path in tops])
    counts["folders"] += len({"", *(above for path in tops for above in _above(path))} - skills.keys())
    return counts


def _above(path: str) -> list[str]:
    """The folders that a path lies in, up to the root."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts))] if path else []


def prompt_of(skills: Iterable[Skill], roots: Sequence[str] = ()) -> str:
    """The `<available_skills>` block of the Agent Skills client guide; empty when there are no skills.

    Args:
        skills: The skills, in order; those that are not as a lock names them are left out.
        roots: Spellings of the store's root; a location is written so that it can be passed back.
    """
    lines = []
    for skill in skills:
        if any(problem.code == LOCK_MISMATCH for problem in skill.problems):
            continue
        location = printable_path(skill.location, roots)
        # XML has no place for control characters, nor does a reference: only the UUID is left then.
        location = skill.uuid if find_unfit(location) else location
        lines += [
            "  <skill>",
            f"    <name>{_flat(skill.name)}</name>",
            f"    <description>{_flat(skill.description)}</description>",
            f"    <location>{escape(location)}</location>",
            "  </skill>",
        ]
    return "\n".join(["<available_skills>", *lines, "</available_skills>"]) if lines else ""


def _flat(text: str) -> str:
    """Text for an XML element, on one line and without characters that cannot be seen but for joiners."""
    return escape(" ".join("".join(c if c.isprintable() or c in _JOINERS else " " for c in text).split()))
