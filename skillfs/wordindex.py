"""Keeps the index of words in step with a store.

Which files there are is taken from the index, as of one of its revisions: the changes since the last time say
which skill folders are to be noted anew. The text of a file is read once for each content that it has.
"""

from __future__ import annotations

import codecs
import errno
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from skillfs.core.digest import id_of_uuid, xxh3, xxh3_of_blocks
from skillfs.core.matching import Fields
from skillfs.core.words import index_terms
from skillfs.errors import StoreUnavailableError, no_handle_left
from skillfs.index.database import Database
from skillfs.index.rows import Row, RowKind
from skillfs.index.search import SearchIndex
from skillfs.index.words import Document, FileRow, SearchFile
from skillfs.stores.base import FileState, Handle, KeyRefusedError, StaleFile
from skillfs.stores.workers import Workers
from skillfs.sync.engine import Engine
from skillfs.sync.scan import SKILL_MD

__all__ = ["MOST_BYTES", "fields_of", "index_of", "known_content", "read_missing", "take_changes"]

MOST_BYTES = 4 << 20
"""Bytes of a file that are searched: the first."""

BATCH_FILES = 1_000
BATCH_BYTES = 16 << 20
BATCH_REQUESTS = 128
"""What is read between two commits: a search that was interrupted goes on from there."""

MOST_LOOKED_AT = 100
"""Folders that are looked at again because files in them are not what they were."""

RETRY_SECONDS = 600.0
"""After this time what could not be read is tried again: nothing tells of a permission that was given."""

_START = (2, 0)  # comes before all that is missing
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.EIO})

_FILES_OF_SKILL = """
WITH RECURSIVE down (key) AS (VALUES (?) UNION ALL
    SELECT e.key FROM down CROSS JOIN entry e ON e.parent=down.key WHERE e.kind=0)
SELECT f.key, f.parent, f.name, f.content, f.signature FROM down CROSS JOIN entry f ON f.parent=down.key
WHERE f.kind=2 AND f.visible=1
"""
_SKILLS = "SELECT e.key, e.uuid, s.name FROM skill s JOIN entry e ON e.key=s.key WHERE e.kind=1"

_indexes: WeakKeyDictionary[Database, SearchIndex] = WeakKeyDictionary()


def index_of(engine: Engine) -> SearchIndex:
    """The index of words that belongs to an index: one for all of a process."""
    database = engine.database
    path = database.path
    found = _indexes.get(database)
    if found is None or (path is None and found.path is not None):
        made = SearchIndex(None if path is None else path.with_name(f"{path.name}.search"))
        found = _indexes[database] = made if found is not None else _indexes.setdefault(database, made)
    return found


# -- which files there are ---------------------------------------------------------------------------------


def take_changes(engine: Engine, index: SearchIndex) -> bool:
    """Note what has changed in the index since the last time; returns whether anything has."""

    def take(file: SearchFile) -> bool:
        is_time = time.monotonic() - index.tried > RETRY_SECONDS
        if is_time:
            index.tried = time.monotonic()
        again = is_time and file.has_left_out()
        if file.revision() == engine.query(engine.journal.revision) and not again:
            return False
        with file.writing():
            if again:
                file.try_again()
            # What goes wrong with one of the two indexes is not to be taken for the other's: so no statement
            # of this one within a question to that.
            news = engine.query(partial(_news, engine, file.revision()))
            if news.is_all:
                file.forget_files()
            for key in file.skill_keys(news.uuids):
                file.drop_skill(key)
            for skill in news.skills:
                file.put_skill(*skill)
            file.set_revision(news.revision)
            file.forget_dead()
        return True

    return index.run(take)


class _News(NamedTuple):
    """What has changed in an index.

    Attributes:
        revision: The one it has come to.
        is_all: Whether this is all there is, and nothing that was noted holds.
        uuids: Of the skills that have changed, or are gone.
        skills: Key, UUID and files of those that are there.
    """

    revision: int
    is_all: bool
    uuids: set[bytes]
    skills: list[tuple[int, bytes, list[FileRow]]]


def _news(engine: Engine, known: int | None) -> _News:
    """What has changed since a revision; all there is where none is known, or not any more."""
    catalog = engine.catalog
    with engine.database.snapshot():
        revision, is_all, rows = engine.journal.since(known or 0)
        if is_all:
            skills = [(key, uuid, _files_of(engine, key, name)) for key, uuid, name in catalog.read(_SKILLS)]
            return _News(revision, True, set(), skills)
        uuids = {uuid for row in rows for uuid in (row.skill, row.old_skill) if uuid is not None}
        skills = []
        for uuid in uuids:
            skill = catalog.by_uuid(uuid, id_of_uuid(uuid))
            named = None if skill is None else catalog.skill_row(skill.key)
            if skill is not None and skill.kind == RowKind.SKILL and named is not None:
                skills.append((skill.key, uuid, _files_of(engine, skill.key, named[0])))
        return _News(revision, False, uuids, skills)


def _files_of(engine: Engine, skill: int, skill_name: str) -> list[FileRow]:
    files = []
    for key, parent, name, content, signature in engine.catalog.read(_FILES_OF_SKILL, (skill,)):
        is_main = parent == skill and name == SKILL_MD
        known = known_content(engine, content, signature)
        digest = None if known is None else _digest(known, is_main, skill_name if is_main else name)
        files.append(FileRow(key, is_main, digest))
    return files


def known_content(engine: Engine, content: bytes | None, signature: bytes) -> bytes | None:
    """What tells the content of a file from every other as long as it is not read."""
    # Of a remote store always the same: the content may be learned between two looks.
    return signature if engine.store.remote and not signature.endswith(b"?") else content


def _digest(content: bytes, is_main: bool, name: str) -> bytes:
    """What a document is known by: all that its words are taken from."""
    return xxh3(b"\0".join((b"skill" if is_main else b"file", name.encode(), content)))


def fields_of(engine: Engine, row: Row) -> Fields:
    """The names that belong to a file."""
    assert row.skill is not None
    name, front = engine.catalog.skill_row(row.skill.key) or ("", "{}")
    if row.path == (f"{row.skill.path}/{SKILL_MD}" if row.skill.path else SKILL_MD):
        return Fields(True, "", name, json.loads(front).get("description") or "")
    return Fields(False, row.name, name, "")


# -- what stands in them -----------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """What came of some files.

    Attributes:
        documents: What was read.
        stale: Folders with files that are not what the index says.
        error: What a store failed with; what was read before it counts.
    """

    documents: list[Document]
    stale: set[str]
    error: StoreUnavailableError | None = None


def read_missing(
    engine: Engine, index: SearchIndex, skills: Sequence[bytes] | None, deadline: float | None
) -> None:
    """Read the texts of files whose words are not known yet, `SKILL.md` first.

    Args:
        engine: Store and index.
        index: Of words.
        skills: UUIDs of the skills to which that is confined; None for all.
        deadline: By the monotonic clock, when to leave it at what is known; None to read all.

    Raises:
        StoreUnavailableError: The store does not answer.
    """
    if not _missing(index, skills, _START, 1):
        return
    with index.building(deadline) as is_turn:
        if not is_turn:
            return
        stale = _read_once(engine, index, skills, deadline)
        if _is_over(deadline):
            return
        for folder in sorted(stale)[:MOST_LOOKED_AT]:
            engine.look_again(folder)
        if take_changes(engine, index):
            _read_once(engine, index, skills, deadline)


def _missing(
    index: SearchIndex, skills: Sequence[bytes] | None, after: tuple[int, int], most: int
) -> list[tuple[int, int]]:
    def ask(file: SearchFile) -> list[tuple[int, int]]:
        file.only(skills)
        return file.missing(after, most)

    return index.run(ask)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _read_once(
    engine: Engine, index: SearchIndex, skills: Sequence[bytes] | None, deadline: float | None
) -> set[str]:
    """Read every text that is missing, once; returns the folders of those that have changed."""
    stale: set[str] = set()
    after = _START
    most = BATCH_REQUESTS if engine.store.remote else BATCH_FILES
    while not _is_over(deadline) and (some := _missing(index, skills, after, most)):
        left = some
        while left and not _is_over(deadline):
            read = _read_remote if engine.store.remote else _read_local
            number, batch = read(engine, [key for _, key in left], deadline)
            index.run(partial(_keep, batch.documents))
            stale |= batch.stale
            if batch.error is not None:
                raise batch.error
            left = left[number:]
        after = some[-1]
    return stale


def _keep(documents: list[Document], file: SearchFile) -> None:
    with file.writing():
        file.keep(documents)


def _read_local(engine: Engine, keys: Sequence[int], deadline: float | None) -> tuple[int, _Batch]:
    """Read files until there is enough for a commit, or it is time; returns how many."""
    documents: list[Document] = []
    stale: set[str] = set()
    size = done = 0
    for key in keys:
        done += 1
        found = _read(engine, key)
        if isinstance(found, Document):
            documents.append(found)
            size += found.length
        elif found is not None:
            stale.add(found)
        if size > BATCH_BYTES or _is_over(deadline):
            break
    return done, _Batch(documents, stale)


def _read_remote(engine: Engine, keys: Sequence[int], deadline: float | None) -> tuple[int, _Batch]:
    """Read files, several at a time."""

    def read(key: int) -> Document | str | StoreUnavailableError | None:
        try:
            return None if _is_over(deadline) else _read(engine, key)
        except StoreUnavailableError as error:
            return error

    with Workers() as workers:
        found = workers.map(read, list(keys))
    documents = [one for one in found if isinstance(one, Document)]
    stale = {one for one in found if isinstance(one, str)}
    error = next((one for one in found if isinstance(one, StoreUnavailableError)), None)
    return len(keys), _Batch(documents, stale, error)


def _read(engine: Engine, key: int) -> Document | str | None:
    """What can be searched of a file; its folder when it is not what the index says; None when it is gone."""
    row = engine.query(lambda: engine.catalog.by_key(key))
    if row is None or row.kind != RowKind.FILE or row.skill is None:
        return None
    folder = row.path.rpartition("/")[0]
    fields = engine.query(lambda: fields_of(engine, row))
    own_name = fields.skill if fields.is_main else fields.name
    known = known_content(engine, row.content, row.signature)
    digest = None if known is None else _digest(known, fields.is_main, own_name)
    left_out = Document(key, digest or b"", None, fields.is_main, 0)
    remote = engine.store.remote
    state = FileState(row.signature, -1 if row.size is None else row.size, row.modified) if remote else None
    try:
        with engine.store.open(row.place, state) as handle:
            if row.signature not in (handle.state.signature, handle.state.signature + b"?"):
                return folder
            # What was written a moment ago may have been written again since, with nothing to show for it.
            is_young = not remote and row.signature != handle.state.signature
            if is_young and xxh3_of_blocks(handle.blocks()) != row.content:
                return folder
            data, is_cut = _head(handle)
            if not handle.unchanged():
                return folder
    except KeyRefusedError:
        return left_out
    except StaleFile:
        return folder
    except StoreUnavailableError:
        raise
    except OSError as error:
        if (full := no_handle_left(error)) is not None:
            raise full from error
        return left_out if error.errno in _UNREADABLE else folder
    text = text_of(data, is_cut=is_cut)
    if digest is None:
        digest = _digest(b"%d:" % len(data) + xxh3(data), fields.is_main, own_name)
    terms = index_terms(text, fields.name, fields.skill if fields.is_main else "", fields.about)
    return Document(key, digest, terms, fields.is_main, len(text))


def _head(handle: Handle) -> tuple[bytes, bool]:
    """The bytes of a file that are searched, and whether there are more."""
    size = handle.state.size
    if size >= 0:
        return handle.read(0, min(size, MOST_BYTES)), size > MOST_BYTES
    data = bytearray()
    for block in handle.blocks():
        data += block
        if len(data) > MOST_BYTES:
            break
    return bytes(data[:MOST_BYTES]), len(data) > MOST_BYTES


def text_of(data: bytes, *, is_cut: bool = False) -> str:
    """The text of a file, by the same rule as for reading it; empty when it is none.

    Args:
        data: Its bytes, or the first of them.
        is_cut: Whether there are more.
    """
    encoding = "utf-8"
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "utf-32"
    elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in data:
        return ""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return ""
