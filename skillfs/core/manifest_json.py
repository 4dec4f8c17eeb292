"""The text of manifests and of the records of snapshots: canonical JSON, there and back.

What is read is held against what would be written, byte for byte: there is one text for a manifest.
"""

from __future__ import annotations

import json
import re
import uuid as uuidlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from skillfs.core.digest import sha256
from skillfs.core.manifest import (
    Manifest,
    ManifestFile,
    ManifestSkill,
    ManifestTop,
    SnapshotRecord,
    broken,
    digest_text,
    parse_digest,
    part_name,
    path_fault,
)
from skillfs.errors import quoted

__all__ = [
    "FORMAT_VERSION",
    "canonical_json",
    "parse_json",
    "parse_part",
    "parse_record",
    "parse_top",
    "render_part",
    "render_record",
    "render_top",
    "written",
]

FORMAT_VERSION = 1

MOST_JSON_BYTES = 256 << 20
"""Bytes of the largest JSON document that is read."""

_PART = re.compile(r"[0-9a-f]{2}").fullmatch
_MOST_SIZE = 2**63 - 1
_SKILL_MD = "SKILL.md"
_EARLIEST, _LATEST = 1970, 2261
"""Years whose times are nanoseconds since the epoch in 64 bits, as an index keeps them."""


def canonical_json(value: object) -> bytes:
    """JSON of which there is only one for a value: ASCII, sorted keys, no blanks, no final newline."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def parse_json(data: bytes) -> Any:
    """A JSON document without duplicate keys and without numbers that are no integers.

    Raises:
        IntegrityError: It is none.
    """
    if len(data) > MOST_JSON_BYTES:
        raise broken(f"has over {MOST_JSON_BYTES >> 20} MiB")
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        raise broken("is no JSON that can be read") from error


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"no integer: {text}")


def render_top(top: ManifestTop) -> bytes:
    """The text of the top of a manifest."""
    return canonical_json(
        {
            "format": "skillfs-manifest",
            "version": FORMAT_VERSION,
            "parts": {name: digest_text(digest) for name, digest in top.parts.items()},
            "skills": top.skills,
            "files": top.files,
            "size": top.size,
            "links": [list(link) for link in top.links],
        }
    )


def parse_top(data: bytes) -> ManifestTop:
    """Read the text of the top of a manifest back.

    Raises:
        IntegrityError: It is none, or not as `render_top` writes it.
    """
    value = _document(data, "skillfs-manifest", {"parts", "skills", "files", "size", "links"})
    parts = value["parts"]
    if not isinstance(parts, dict) or not all(map(_PART, parts)):
        raise broken("names a part that is none")
    top = ManifestTop(
        {name: parse_digest(digest) for name, digest in parts.items()},
        _count(value["skills"]),
        _count(value["files"]),
        _count(value["size"]),
        _links(value["links"]),
    )
    _require_canonical(data, render_top(top))
    return top


def render_part(skills: Iterable[ManifestSkill]) -> bytes:
    """The text of a part of a manifest."""
    return canonical_json(
        {
            "format": "skillfs-manifest-part",
            "version": FORMAT_VERSION,
            "skills": [_skill_value(skill) for skill in sorted(skills, key=lambda skill: skill.path)],
        }
    )


def parse_part(data: bytes, name: str) -> tuple[ManifestSkill, ...]:
    """Read the text of a part of a manifest back.

    Args:
        data: The text.
        name: Which part it is; see `part_name`.

    Raises:
        IntegrityError: It is none, or not as `render_part` writes it, or holds skills of another part.
    """
    value = _document(data, "skillfs-manifest-part", {"skills"})
    skills = tuple(_skill(item) for item in _list(value["skills"]))
    _require_rising([skill.path for skill in skills])
    if any(part_name(skill.path) != name for skill in skills):
        raise broken("tells a skill in a part where it does not belong")
    _require_canonical(data, render_part(skills))
    return skills


def render_record(record: SnapshotRecord) -> bytes:
    """The text of a snapshot's record."""
    return canonical_json(
        {
            "format": "skillfs-snapshot",
            "version": FORMAT_VERSION,
            "manifest": digest_text(record.manifest),
            "parents": [digest_text(parent) for parent in record.parents],
            "created": _time_text(record.created),
            "store_id": str(record.store_id),
            "identities": [[path, str(uuid)] for path, uuid in record.identities],
            "skills": record.skills,
            "files": record.files,
            "size": record.size,
        }
    )


def parse_record(data: bytes) -> SnapshotRecord:
    """Read the text of a snapshot's record back.

    Raises:
        IntegrityError: It is none, or not as `render_record` writes it.
    """
    value = _document(
        data,
        "skillfs-snapshot",
        {"manifest", "parents", "created", "store_id", "identities", "skills", "files", "size"},
    )
    identities = tuple((_path(path), _uuid(uuid)) for path, uuid in map(_pair, _list(value["identities"])))
    _require_rising([path for path, _ in identities])
    if len({uuid for _, uuid in identities}) < len(identities):
        raise broken("gives two paths one UUID")
    record = SnapshotRecord(
        parse_digest(value["manifest"]),
        tuple(map(parse_digest, _list(value["parents"]))),
        _time(value["created"]),
        _uuid(value["store_id"]),
        identities,
        _count(value["skills"]),
        _count(value["files"]),
        _count(value["size"]),
    )
    _require_canonical(data, render_record(record))
    return record


# -- the pieces ----------------------------------------------------------------------------------------------


def _skill_value(skill: ManifestSkill) -> dict[str, object]:
    files = [
        [file.path, file.size, digest_text(file.digest), *(["x"] if file.executable else [])]
        for file in skill.files
    ]
    return {
        "path": skill.path,
        "digest": digest_text(skill.digest),
        "files": files,
        "links": [list(link) for link in skill.links],
        "folders": list(skill.folders),
    }


def _skill(value: object) -> ManifestSkill:
    if not isinstance(value, dict) or value.keys() != {"path", "digest", "files", "links", "folders"}:
        raise broken("tells a skill in another form")
    files = tuple(map(_file, _list(value["files"])))
    _require_rising([file.path for file in files])
    if not any(file.path == _SKILL_MD for file in files):
        raise broken("tells a skill without a SKILL.md")
    folders = tuple(map(_path, _list(value["folders"])))
    _require_rising(folders)
    path = value["path"] if value["path"] == "" else _path(value["path"])
    return ManifestSkill(path, parse_digest(value["digest"]), files, _links(value["links"]), folders)


def _file(value: object) -> ManifestFile:
    found = _list(value)
    if len(found) not in (3, 4) or found[3:] not in ([], ["x"]):
        raise broken("tells a file in another form")
    return ManifestFile(_path(found[0]), _count(found[1]), parse_digest(found[2]), len(found) == 4)


def _links(value: object) -> tuple[tuple[str, str], ...]:
    pairs = [_pair(item) for item in _list(value)]
    links = tuple((_path(path), "" if target == "" else _path(target)) for path, target in pairs)
    _require_rising([path for path, _ in links])
    return links


def _document(data: bytes, form: str, keys: set[str]) -> dict[str, Any]:
    value = parse_json(data)
    if not isinstance(value, dict) or value.get("format") != form:
        raise broken(f"is not of the format {form}")
    version = value.get("version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise broken(f"is of version {quoted(version)}, and only {FORMAT_VERSION} is known; upgrade skillfs")
    if value.keys() != {"format", "version", *keys}:
        raise broken("lacks a key, or has one that is not known")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise broken("has something else where a list belongs")
    return value


def _pair(value: object) -> tuple[Any, Any]:
    found = _list(value)
    if len(found) != 2:
        raise broken("has something else where a pair belongs")
    return found[0], found[1]


def _path(value: object) -> str:
    if (fault := path_fault(value)) is not None:
        raise broken(f"names the path {quoted(value)}, which {fault}")
    assert isinstance(value, str)
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_SIZE:
        raise broken("has something else where a count belongs")
    return value


def _uuid(value: object) -> uuidlib.UUID:
    try:
        return uuidlib.UUID(value)  # type: ignore[arg-type]  # whatever it is
    except (ValueError, TypeError, AttributeError):
        raise broken("has something else where a UUID belongs") from None


def _time_text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(value: object) -> datetime:
    try:
        time = datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise broken("has something else where a time belongs") from None
    if not _EARLIEST <= time.year <= _LATEST:
        raise broken(f"bears a time that is not in the years {_EARLIEST} to {_LATEST}")
    return time


def _require_rising(paths: Sequence[str]) -> None:
    if any(one >= next_ for one, next_ in pairwise(paths)):
        raise broken("names paths out of order, or one of them twice")


def _require_canonical(data: bytes, again: bytes) -> None:
    if data != again:
        raise broken("is not written as skillfs writes it")


def written(manifest: Manifest) -> tuple[bytes, dict[bytes, bytes]]:
    """The text of the top, and those of the parts by their digests."""
    parts: dict[str, list[ManifestSkill]] = {}
    for skill in manifest.skills:
        parts.setdefault(part_name(skill.path), []).append(skill)
    texts = {name: render_part(skills) for name, skills in parts.items()}
    digests = {name: sha256(text).digest() for name, text in texts.items()}
    files = sum(len(skill.files) for skill in manifest.skills)
    size = sum(file.size for skill in manifest.skills for file in skill.files)
    top = ManifestTop(digests, len(manifest.skills), files, size, manifest.links)
    return render_top(top), {digests[name]: text for name, text in texts.items()}
