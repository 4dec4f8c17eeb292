"""Rows as the values that callers get: entries, skills, problems, changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.model import Change, Entry, Kind, Problem, Skill
from skillfs.index.catalog import Catalog, Row, RowKind
from skillfs.index.journal import ChangeRow
from skillfs.lookup import Access, covers
from skillfs.sync.scan import SKILL_MD

__all__ = ["all_problems", "all_skills", "changes_of", "entry_of", "kind_of", "prompt_of", "skill_of", "time_of"]

_KINDS = {RowKind.FOLDER: Kind.FOLDER, RowKind.SKILL: Kind.SKILL, RowKind.FILE: Kind.FILE}


def kind_of(kind: RowKind) -> Kind:
    """The public kind of a row that is no link."""
    return _KINDS[kind]


def time_of(nanoseconds: int) -> datetime:
    """An aware time in UTC from nanoseconds since the epoch."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def entry_of(row: Row, *, md5: str | None = None, characters: int | None = None, link: str | None = None) -> Entry:
    """An entry as callers see it.

    Args:
        row: A row that is no link.
        md5: When computed just now; else what the row knows.
        characters: Likewise.
        link: Path of the target when the caller came through a link.
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
        path=row.path,
        name=row.name,
        kind=_KINDS[row.kind],
        size=row.size,
        modified=time_of(row.modified),
        characters=characters,
        md5=md5,
        hash=hex_hash(row.content),
        skill_folder_uuid=None if row.skill is None else uuid_text(row.skill.uuid),
        skill_path=None if row.skill is None else row.skill.path,
        link=link,
    )


def skill_of(catalog: Catalog, row: Row, *, shadowed_by: str | None = None) -> Skill:
    """A skill from its folder's row."""
    assert row.uuid is not None
    assert row.id is not None
    stored = catalog.skill_row(row.key)
    name, front = stored if stored is not None else (row.name, _NO_FRONT_MATTER)
    return _skill(row.id, row.uuid, row.path, name, front, (), shadowed_by)


_NO_FRONT_MATTER = json.dumps(
    {
        "description": "",
        "license": None,
        "compatibility": None,
        "metadata": {},
        "allowed_tools": [],
        "values": {},
        "faults": [["unreadable", "error", "SKILL.md cannot be read; mend its permissions", None]],
    }
)


def _skill(
    number: int, uuid: bytes, path: str, name: str, front_json: str, extra: Iterable[Problem], shadowed_by: str | None
) -> Skill:
    front = json.loads(front_json)
    own = uuid_text(uuid)
    where = f"{path}/{SKILL_MD}" if path else SKILL_MD
    problems = [Problem(code, severity, message, where, line, own) for code, severity, message, line in front["faults"]]
    problems.extend(extra)
    if shadowed_by is not None:
        problems.append(
            Problem("shadowed", "warning", f"the name is taken by {shadowed_by!r}; rename one, or use the path", where, None, own)
        )
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
        problems=tuple(problems),
        shadowed_by=shadowed_by,
    )


def all_skills(catalog: Catalog, access: Access, *, with_problems: bool = True) -> list[Skill]:
    """Every visible skill, by path; of those with one name all but the first say by whom they are shadowed."""
    rows = catalog.skill_rows()
    paths = catalog.with_paths("SELECT key FROM skill") if rows else {}
    found = sorted(
        ((paths[key].replace("/", "\0"), number, uuid, paths[key], name, front) for key, number, uuid, name, front in rows
         if access.allows(paths[key])),
    )  # fmt: skip
    scanned: dict[str | None, list[Problem]] = {}
    if with_problems:
        for problem in _scan_problems(catalog, access):
            scanned.setdefault(problem.skill_folder_uuid, []).append(problem)
    first: dict[str, str] = {}
    skills = []
    for _, number, uuid, path, name, front in found:
        winner = first.setdefault(name, path)
        extra = scanned.get(uuid_text(uuid), ()) if with_problems else ()
        skills.append(_skill(number, uuid, path, name, front, extra, None if winner == path else winner))
    return skills


def all_problems(catalog: Catalog, access: Access) -> list[Problem]:
    """Every problem that can be seen: those of skills, then those that belong to none."""
    problems = [problem for skill in all_skills(catalog, access) for problem in skill.problems]
    problems.extend(p for p in _scan_problems(catalog, access) if p.skill_folder_uuid is None)
    return sorted(problems, key=lambda p: (p.path.replace("/", "\0"), p.line or 0, p.code))


def _scan_problems(catalog: Catalog, access: Access) -> list[Problem]:
    found = []
    folders: dict[int, Row | None] = {}
    for folder, name, code, severity, message in catalog.problems():
        if folder not in folders:
            folders[folder] = catalog.by_key(folder)
        row = folders[folder]
        if row is None:
            continue
        if row.skill is not None:
            if not access.allows(row.skill.path):
                continue
        elif access.sets and not all(any(covers(b, row.path) for b in bases) for bases in access.sets):
            continue
        path = "/".join(p for p in (row.path, name) if p)
        uuid = None if row.skill is None else uuid_text(row.skill.uuid)
        found.append(Problem(code, severity, message, path, None, uuid))  # type: ignore[arg-type]  # stored by us
    return found


def changes_of(rows: Iterable[ChangeRow], access: Access) -> tuple[Change, ...]:
    """Changes as one who may see only some skills experiences them: a move in is an arrival, one out a departure."""
    found = []
    for row in rows:
        was = row.kind != "added" and _saw(access, row.old_skill_path, row.old_path or row.path)
        now = row.kind != "removed" and _saw(access, row.skill_path, row.path)
        if not was and not now:
            continue
        kind = row.kind if was == (row.kind != "added") and now == (row.kind != "removed") else "added" if now else "removed"
        path = row.path if now else row.old_path or row.path
        found.append(
            Change(
                kind,  # type: ignore[arg-type]  # stored by us
                uuid_text(row.uuid),
                path,
                row.old_path if kind == "moved" else None,
                None if row.skill is None else uuid_text(row.skill),
                hex_hash(row.content) if kind != "removed" else None,
                hex_hash(row.old_content) if kind != "added" else None,
            )
        )
    return tuple(found)


def _saw(access: Access, skill_path: str | None, path: str) -> bool:
    return not access.sets or (access.allows(skill_path) if skill_path is not None else access.leads(path))


def prompt_of(skills: Iterable[Skill]) -> str:
    """The `<available_skills>` block of the Agent Skills client guide: name, description and location of each."""
    lines = ["<available_skills>"]
    for skill in skills:
        lines += [
            "<skill>",
            f"<name>{_flat(skill.name)}</name>",
            f"<description>{_flat(skill.description)}</description>",
            f"<location>{_flat(skill.location)}</location>",
            "</skill>",
        ]
    lines.append("</available_skills>")
    return "\n".join(lines)


def _flat(text: str) -> str:
    """Text for one XML element on one line, without characters that XML has no place for."""
    return escape(" ".join("".join(c if c.isprintable() else " " for c in text).split()))
