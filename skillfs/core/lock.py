"""Locks: which files skills had when somebody looked at them, as text that can be reviewed and checked.

A `skills.lock` is JSON, a line for each file, that holds nothing but what follows from the content: whoever
locks the same skills writes the same bytes. It begins::

    {
      "format": "skillfs-lock",
      "version": 1,
      "algorithm": "sha256",
      "skills": [
        {
          "path": "pdf",
          "digest": "sha256:…",
          "files": [
            {"path": "SKILL.md", "size": 120, "sha256": "…"},
            {"path": "scripts/run.sh", "size": 80, "sha256": "…", "executable": true}
          ]
        }
      ]
    }

Skills and files are sorted by the UTF-8 bytes of their paths. The files of a nested skill are told with that
skill, and nowhere else; the digest of a skill is that of its files and theirs, see `skill_digest`. A link to
a file is told at its own path, with the content of what it leads to. What is read is held against what would
be written, byte for byte, so that no byte of a lock can be another without an error or another meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

from skillfs.core.manifest import (
    Manifest,
    ManifestFile,
    ManifestSkill,
    digest_text,
    path_fault,
    skill_digest,
)
from skillfs.core.manifest_json import MOST_JSON_BYTES, parse_json
from skillfs.errors import IntegrityError, InvalidArgumentError, quoted

__all__ = [
    "LOCK_ALGORITHM",
    "LOCK_VERSION",
    "Lock",
    "LockedFile",
    "LockedSkill",
    "Status",
    "Verification",
    "VerifiedFile",
    "VerifiedSkill",
    "bad_lock",
    "locked_skills",
    "parse_lock",
    "render_lock",
]

LOCK_FORMAT = "skillfs-lock"
LOCK_VERSION = 1
LOCK_ALGORITHM = "sha256"

Status = Literal["ok", "modified", "missing", "extra", "mode", "unlocked", "ignored"]

MOST_NESTED_CHARACTERS = 256 << 20
"""Characters of paths at most, each file counted with every skill around its own."""

_SKILL_MD = "SKILL.md"
_MOST_SIZE = 2**63 - 1
_SHA256 = re.compile(r"[0-9a-f]{64}").fullmatch
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})").fullmatch
_FILE_KEYS = {"path", "size", "sha256"}
_EXECUTABLE_KEYS = {*_FILE_KEYS, "executable"}

# Control and format characters, which could turn, hide or break a line of the review; all else is written as
# it is. A fixed set, as what is printable is not the same for every version of Python.
_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_STRING = r'("(?:[^"\\\n]|\\.)*")'
_SKILL_TEXT = re.compile(
    rf'\n    {{\n      "path": {_STRING},\n      "digest": "sha256:([0-9a-f]{{64}})",\n'
    r'      "files": \[\n((?:        \{"path": .*\n)*)      \]\n    }'
)
_FILE_TEXT = re.compile(
    rf'        {{"path": {_STRING}, "size": ([0-9]{{1,19}}), "sha256": "([0-9a-f]{{64}})"'
    r'(, "executable": true)?},?\n'
)

_encode = json.JSONEncoder(ensure_ascii=False).encode


class LockedFile(NamedTuple):
    """A file of a locked skill.

    Attributes:
        path: Path below the skill folder.
        size: Bytes.
        digest: SHA-256, 32 bytes.
        executable: Whether its owner may execute it; False where the store did not know.
    """

    path: str
    size: int
    digest: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class LockedSkill:
    """A skill of a lock, with its files but for those of skills nested in it.

    Attributes:
        path: Store path; empty where the root is a skill.
        digest: Digest of the skill with those nested in it, 32 bytes; see `skill_digest`.
        files: Sorted by path.
    """

    path: str
    digest: bytes
    files: tuple[LockedFile, ...]

    def whole(self, path: str) -> str:
        """The store path of a path below the skill folder."""
        return f"{self.path}/{path}" if self.path else path


@dataclass(frozen=True, slots=True)
class Lock:
    """What a `skills.lock` says.

    Attributes:
        skills: Sorted by path.
    """

    skills: tuple[LockedSkill, ...]

    def files(self) -> dict[str, LockedFile]:
        """All files by their store paths."""
        return {skill.whole(file.path): file for skill in self.skills for file in skill.files}


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """How a file stands to a lock.

    Attributes:
        path: Path below the skill folder; of a folder that is left out by its name, with a slash at its end.
        status: `ok`; `modified`, other bytes; `missing`; `extra`, which the lock does not name; `mode`, the
            same bytes, but executable or not; `ignored`, left out by its name, which is no fault.
        line_endings: Whether a modified file has the locked bytes but for CRLF and LF.
    """

    path: str
    status: Status
    line_endings: bool = False


@dataclass(frozen=True, slots=True)
class VerifiedSkill:
    """How a skill stands to a lock.

    Attributes:
        path: Store path.
        status: `ok`; `modified` where a file of its own is not; `missing`; `unlocked`, which the lock does
            not name; `extra`, the same inside of a skill that it names, whose digest is another by that.
        files: Sorted by path; none of a skill that the lock does not name.
    """

    path: str
    status: Status
    files: tuple[VerifiedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """How skills stand to a lock.

    Attributes:
        skills: Those of the lock and of the store, sorted by path.
        allow_unlocked: Whether skills that the lock does not name are no fault.
    """

    skills: tuple[VerifiedSkill, ...]
    allow_unlocked: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many skills and files there are of each status, as `skills.<status>` and `files.<status>`."""
        counts: dict[str, int] = {}
        for skill in self.skills:
            key = f"skills.{skill.status}"
            counts[key] = counts.get(key, 0) + 1
            for file in skill.files:
                key = f"files.{file.status}"
                counts[key] = counts.get(key, 0) + 1
        return counts

    @property
    def ok(self) -> bool:
        """Whether at least one file is as locked, and nothing is not."""
        fine = {"ok", "unlocked"} if self.allow_unlocked else {"ok"}
        counts = self.counts
        return counts.get("files.ok", 0) > 0 and all(skill.status in fine for skill in self.skills)


def locked_skills(files: Mapping[str, Sequence[LockedFile]]) -> tuple[LockedSkill, ...]:
    """The skills of a lock, with their digests.

    Args:
        files: Own files of every skill by its store path, in any order.
    """
    told = {path: tuple(sorted(own)) for path, own in sorted(files.items())}
    digests = _digests(told)
    return tuple(LockedSkill(path, digests[path], own) for path, own in told.items())


def _digests(files: Mapping[str, Sequence[LockedFile]]) -> dict[str, bytes]:
    """The digest of every skill over its own files and those of the skills nested in it.

    Raises:
        InvalidArgumentError: Skills are nested so deep that it would take forever.
    """
    nested: dict[str, list[str]] = {}
    told = 0
    for path, own in files.items():
        for above in _above(path):
            if above in files:
                told += (len(path) - len(above)) * len(own) + sum(len(file.path) for file in own)
                if told > MOST_NESTED_CHARACTERS:
                    raise InvalidArgumentError(
                        "skills are nested too deep in one another to be locked; move some of them out"
                    )
                nested.setdefault(above, []).append(path)
    return {path: skill_digest(_all_files(path, files, nested.get(path, ()))) for path in files}


def _all_files(
    path: str, files: Mapping[str, Sequence[LockedFile]], nested: Iterable[str]
) -> Iterator[tuple[str, int, bytes]]:
    """The files of a skill and of those nested in it: path below it, size and SHA-256."""
    yield from (file[:3] for file in files[path])
    start = len(path) + 1 if path else 0
    for inner in nested:
        below = inner[start:]
        yield from ((f"{below}/{file.path}", file.size, file.digest) for file in files[inner])


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def bad_lock(what: str) -> IntegrityError:
    """The error of a lock that is not as skillfs wrote it."""
    return IntegrityError(f"the lock {what}; review the skills and write it anew with: skillfs lock")


# -- text ----------------------------------------------------------------------------------------------------


def render_lock(lock: Lock) -> bytes:
    """The text of a lock."""
    return b"".join(_pieces(lock.skills))


def _pieces(skills: Sequence[LockedSkill]) -> Iterator[bytes]:
    yield (
        f'{{\n  "format": "{LOCK_FORMAT}",\n  "version": {LOCK_VERSION},\n'
        f'  "algorithm": "{LOCK_ALGORITHM}",\n  "skills": ['
    ).encode()
    for number, skill in enumerate(skills):
        yield f"{',' if number else ''}{_skill_text(skill)}".encode()
    yield b"\n  ]\n}\n"


def _is_text_of(data: bytes, skills: Sequence[LockedSkill]) -> bool:
    at = 0
    for piece in _pieces(skills):
        if not data.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(data)


def _skill_text(skill: LockedSkill) -> str:
    files = ",\n".join(map(_file_text, skill.files))
    return (
        f'\n    {{\n      "path": {_text(skill.path)},\n      "digest": "{digest_text(skill.digest)}",\n'
        f'      "files": [\n{files}\n      ]\n    }}'
    )


def _file_text(file: LockedFile) -> str:
    executable = ', "executable": true' if file.executable else ""
    return (
        f'        {{"path": {_text(file.path)}, "size": {file.size}, "sha256": "{file.digest.hex()}"'
        f"{executable}}}"
    )


def _text(path: str) -> str:
    text = _encode(path)
    return text if text.isascii() and "\x7f" not in text else _HIDDEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def parse_lock(data: bytes) -> Lock:
    """Read the text of a lock back.

    Raises:
        IntegrityError: It is not a lock as `render_lock` writes it, or of a version or algorithm that is not
            known, or says of a skill what cannot be.
    """
    if len(data) > MOST_JSON_BYTES:
        raise bad_lock(f"has over {MOST_JSON_BYTES >> 20} MiB")
    if (skills := _as_written(data)) is None:
        # Whatever it is, it is not as it would be written, but the reason may be another.
        try:
            value = parse_json(data)
        except IntegrityError as error:
            raise bad_lock("is no JSON that can be read, or cut off") from error
        _check(tuple(map(_skill, _list(_document(value)["skills"], "skills"))))
        ends = ", and has other line endings" if b"\r\n" in data else ""
        raise bad_lock(f"is not written as skillfs writes it{ends}")
    _check(skills)
    return Lock(skills)


def _as_written(data: bytes) -> tuple[LockedSkill, ...] | None:
    """What a text says that is written as it would be written again; None of any other.

    What the patterns pass over is missing from what would be written. It takes a third of the memory that the
    whole takes as JSON.
    """
    skills = []
    try:
        for skill in _SKILL_TEXT.finditer(data.decode()):
            files = tuple(
                LockedFile(_path(path), int(size), bytes.fromhex(digest), bool(executable))
                for path, size, digest, executable in _FILE_TEXT.findall(skill[3])
            )
            skills.append(LockedSkill(_path(skill[1]), bytes.fromhex(skill[2]), files))
        return tuple(skills) if _is_text_of(data, skills) else None
    except ValueError:
        return None


def _path(text: str) -> str:
    return json.loads(text) if "\\" in text else text[1:-1]


def _document(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("format") != LOCK_FORMAT:
        raise bad_lock(f"is not of the format {LOCK_FORMAT}")
    version = value.get("version")
    if version != LOCK_VERSION or isinstance(version, bool):
        raise IntegrityError(
            f"the lock is of version {quoted(version)}, and only {LOCK_VERSION} is known; upgrade skillfs, "
            "or review the skills and write the lock anew with: skillfs lock"
        )
    algorithm = value.get("algorithm")
    if algorithm != LOCK_ALGORITHM:
        raise bad_lock(f"is made with the algorithm {quoted(algorithm)}, and only {LOCK_ALGORITHM} is known")
    if value.keys() != {"format", "version", "algorithm", "skills"}:
        raise bad_lock("lacks a key, or has one that is not known")
    return value


def _skill(value: object) -> LockedSkill:
    if not isinstance(value, dict) or value.keys() != {"path", "digest", "files"}:
        raise bad_lock("tells a skill in another form")
    path, digest = value["path"], value["digest"]
    if not isinstance(path, str):
        _require_path(path)
    match = _DIGEST(digest) if isinstance(digest, str) else None
    if match is None:
        raise bad_lock(f"holds {quoted(digest)} where the digest of a skill belongs")
    files = tuple(map(_file, _list(value["files"], "files")))
    return LockedSkill(path, bytes.fromhex(match[1]), files)


def _file(value: object) -> LockedFile:
    if not isinstance(value, dict) or value.keys() not in (_FILE_KEYS, _EXECUTABLE_KEYS):
        raise bad_lock("tells a file in another form")
    path, size, digest = value["path"], value["size"], value["sha256"]
    if not isinstance(path, str):
        _require_path(path)
    if not isinstance(size, int) or isinstance(size, bool):
        _require_size(size)
    if not isinstance(digest, str) or not _SHA256(digest):
        raise bad_lock(f"holds {quoted(digest)} where a SHA-256 belongs")
    executable = value.get("executable", False)
    if not isinstance(executable, bool):
        raise bad_lock("tells a file in another form")
    return LockedFile(path, size, bytes.fromhex(digest), executable)


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_lock(f"has something else where {what} belong")
    return value


def _require_size(size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MOST_SIZE:
        raise bad_lock(f"holds {quoted(size)} where the size of a file belongs")


def _require_path(path: object) -> None:
    if (fault := path_fault(path)) is not None:
        raise bad_lock(f"names the path {quoted(path)}, which {fault}")


def _require_rising(paths: Sequence[str], what: str) -> None:
    if any(one >= following for one, following in pairwise(paths)):
        raise bad_lock(f"names {what} out of order, or one of them twice")


def _check(skills: Sequence[LockedSkill]) -> None:
    """See that the skills can lie in one tree of folders, and that their digests are those of their files."""
    if not skills:
        raise bad_lock("names no skill")
    _require_rising([skill.path for skill in skills], "skills")
    for skill in skills:
        if skill.path:
            _require_path(skill.path)
        for file in skill.files:
            _require_path(file.path)
            _require_size(file.size)
        _require_rising([file.path for file in skill.files], "files")
        if not any(file.path == _SKILL_MD for file in skill.files):
            raise bad_lock(f"tells a skill at {quoted(skill.path or '/')} without a {_SKILL_MD}")
    try:
        # What it looks at, paths, files of both kinds have.
        tree = [ManifestSkill(s.path, s.digest, cast("tuple[ManifestFile, ...]", s.files)) for s in skills]
        Manifest(tuple(tree)).check()
    except IntegrityError as error:
        raise bad_lock("names a path twice, or a file with another skill than its own") from error
    try:
        digests = _digests({skill.path: skill.files for skill in skills})
    except InvalidArgumentError as error:
        raise bad_lock("nests skills too deep in one another") from error
    for skill in skills:
        if digests[skill.path] != skill.digest:
            raise bad_lock(
                f"gives the skill at {quoted(skill.path or '/')} a digest that its files do not have"
            )
