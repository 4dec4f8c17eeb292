"""The tables of the index of words, and what is asked of them.

FTS5 keeps which words a document has and nothing of its text. A document is what can be searched of one file;
those that are alike share it. Which files there are, and which document each has, is noted by skill folder as
of one revision of the index: nothing is found but through a file that was visible then. Documents that no
file has any more cannot be taken out; when a third are such, all are made anew.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from skillfs.core.search import Query, Word
from skillfs.core.words import ABOUT, FILE, OFTEN, SKILL
from skillfs.index.connections import inside_sqlite

__all__ = ["SEARCH_SCHEMA", "SEARCH_VIEW", "Document", "FileRow", "SearchFile", "every", "some"]

LEFT_OUT = 0
"""Stands for the document of a file that cannot be read."""

_DEAD_SHARE = 3
_FEW_DOCUMENTS = 300  # of which it does not matter how many are dead

SEARCH_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE skill (key INTEGER PRIMARY KEY, uuid BLOB NOT NULL) STRICT;
CREATE TABLE file (
    key INTEGER PRIMARY KEY,
    skill INTEGER NOT NULL,
    main INTEGER NOT NULL,
    document INTEGER,
    digest BLOB
) STRICT;
CREATE TABLE document (number INTEGER PRIMARY KEY, digest BLOB NOT NULL, main INTEGER NOT NULL,
    length INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (terms, content='', detail=none, columnsize=0, tokenize='ascii');
CREATE UNIQUE INDEX document_digest ON document (digest);
CREATE INDEX skill_uuid ON skill (uuid);
CREATE INDEX file_skill ON file (skill);
CREATE INDEX file_document ON file (document, skill);
CREATE INDEX file_missing ON file (main DESC, key) WHERE document IS NULL;
"""
# What a caller may see, where that is not all.
SEARCH_VIEW = """
CREATE TEMP TABLE seen_skill (skill INTEGER PRIMARY KEY) STRICT;
CREATE TEMP TABLE seen (document INTEGER PRIMARY KEY) STRICT
"""
# The tokenizer takes every other character than ASCII for a part of a word: all else was done before.


class FileRow(NamedTuple):
    """A file as it is noted.

    Attributes:
        key: Key of its entry in the index.
        main: Whether it is a `SKILL.md`.
        digest: Digest of its document; None where only a reading can tell.
    """

    key: int
    main: bool
    digest: bytes | None


class Document(NamedTuple):
    """What can be searched of a file.

    Attributes:
        key: Key of the file's entry.
        digest: The same for files that are alike.
        terms: Its terms, with blanks between them; None when it cannot be read.
        main: Whether it is a `SKILL.md`.
        length: Characters of its text.
    """

    key: int
    digest: bytes
    terms: str | None
    main: bool
    length: int


class SearchFile:
    """The file while it is open.

    Args:
        connection: To it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._skills: Sequence[bytes] | None = None
        self._has_seen = False  # whether the documents of these skills are noted as what may be seen

    def _run(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with inside_sqlite:
            return self._connection.execute(sql, parameters).fetchall()

    def _run_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        with inside_sqlite:
            self._connection.executemany(sql, rows)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, which waits for other writers."""
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._run("ROLLBACK")
            raise

    def about_all(self) -> SearchFile:
        """The file, with questions about all of it again, but within a moment, where they stay confined."""
        if not self._connection.in_transaction:
            self._skills = None
        return self

    def begin(self) -> None:
        """Have all questions until the end answered as of one moment."""
        self._run("BEGIN")
        self._skills = None

    def end(self) -> None:
        """End that; nothing happens where it has not begun, or has ended by an error."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._run("ROLLBACK")

    # -- which files there are -----------------------------------------------------------------------------

    def revision(self) -> int | None:
        """The revision of the index that the files are noted as of; None before the first."""
        rows = self._run("SELECT value FROM meta WHERE name='revision'")
        return rows[0][0] if rows else None

    def set_revision(self, revision: int) -> None:
        """Note it."""
        self._run("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (revision,))

    def forget_files(self) -> None:
        """Note that there are none; their documents stay."""
        for table in ("skill", "file"):
            self._run(f"DELETE FROM {table}")

    def skill_keys(self, uuids: Iterable[bytes]) -> list[int]:
        """Keys of skills that are noted."""
        return [key for uuid in uuids for (key,) in self._run("SELECT key FROM skill WHERE uuid=?", (uuid,))]

    def drop_skill(self, key: int) -> None:
        """Note that a skill is gone with its files."""
        self._run("DELETE FROM file WHERE skill=?", (key,))
        self._run("DELETE FROM skill WHERE key=?", (key,))

    def put_skill(self, key: int, uuid: bytes, files: Iterable[FileRow]) -> None:
        """Note a skill with the files that it encloses."""
        self._run("DELETE FROM file WHERE skill=?", (key,))
        self._run("INSERT OR REPLACE INTO skill VALUES (?, ?)", (key, uuid))
        self._run_many(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, (SELECT number FROM document WHERE digest=?), ?)",
            [(file.key, key, file.main, file.digest, file.digest) for file in files],
        )
        self._run("UPDATE file SET digest=NULL WHERE skill=? AND document > 0", (key,))

    # -- documents -----------------------------------------------------------------------------------------

    def missing(self, after: tuple[int, int], most: int) -> list[tuple[int, int]]:
        """Files whose document is not known, `SKILL.md` first: whether one is that, and its key.

        Args:
            after: What the one before the first was given as; `(2, 0)` to begin with.
            most: How many.
        """
        return self._run(
            "SELECT main, key FROM file f WHERE document IS NULL AND (main < ? OR (main = ? AND key > ?)) "
            f"{self._of_seen_skill} ORDER BY main DESC, key LIMIT ?",
            (after[0], *after, most),
        )

    def keep(self, documents: Iterable[Document]) -> None:
        """Add documents, and note the files that have them.

        What a file was read for may have changed in the meantime: then it is not that file's any more.
        """
        have = "UPDATE file SET document=? WHERE key=? AND document IS NULL AND (digest IS NULL OR digest=?)"
        for key, digest, terms, main, length in documents:
            if terms is None:
                self._run(have, (LEFT_OUT, key, digest))
                continue
            known = self._run("SELECT number FROM document WHERE digest=?", (digest,))
            if known:
                number = known[0][0]
            else:
                number = self._run(
                    "INSERT INTO document (digest, main, length) VALUES (?, ?, ?) RETURNING number",
                    (digest, main, length),
                )[0][0]
                self._run("INSERT INTO words (rowid, terms) VALUES (?, ?)", (number, terms))
            self._run(have, (number, key, digest))
            self._run("UPDATE file SET digest=NULL WHERE key=? AND document > 0", (key,))

    def has_left_out(self) -> bool:
        """Whether there is anything that could not be read."""
        return self._run("SELECT 1 FROM file WHERE document=? LIMIT 1", (LEFT_OUT,)) != []

    def try_again(self) -> None:
        """Have what could not be read count as not read yet."""
        self._run("UPDATE file SET document=NULL WHERE document=?", (LEFT_OUT,))

    def forget_dead(self) -> bool:
        """Throw all documents away where a third or more are of no file; returns whether it was done."""
        number = self._run("SELECT count(*) FROM document")[0][0]
        used = self._run("SELECT count(DISTINCT document) FROM file WHERE document > 0")[0][0]
        if number < _FEW_DOCUMENTS or (number - used) * _DEAD_SHARE < number:
            return False
        self._run("INSERT INTO words (words) VALUES ('delete-all')")
        digest = "(SELECT digest FROM document WHERE number=file.document)"
        self._run(f"UPDATE file SET document=NULL, digest={digest} WHERE document > 0")
        self._run("DELETE FROM document")
        return True

    # -- questions -----------------------------------------------------------------------------------------

    def only(self, skills: Sequence[bytes] | None) -> None:
        """Let what follows be about the files of some skills, given by UUID; None for all."""
        if skills is not None and skills is self._skills:
            return  # within a moment
        self._skills, self._has_seen = skills, False
        if skills is not None:
            self._run("DELETE FROM seen_skill")
            self._run_many(
                "INSERT OR IGNORE INTO seen_skill SELECT key FROM skill WHERE uuid=?",
                [(uuid,) for uuid in skills],
            )

    def _see_documents(self) -> None:
        if self._skills is not None and not self._has_seen:
            self._run("DELETE FROM seen")
            self._run(
                "INSERT OR IGNORE INTO seen SELECT document FROM file WHERE document > 0 "
                "AND skill IN (SELECT skill FROM seen_skill)"
            )
            self._has_seen = True

    # With a plus, as else the tables are taken for a way to the rows, of which each is looked for by itself.

    @property
    def _of_seen_skill(self) -> str:
        return "AND +f.skill IN (SELECT skill FROM seen_skill)" if self._skills is not None else ""

    @property
    def _is_seen(self) -> str:
        return "AND +words.rowid IN (SELECT document FROM seen)" if self._skills is not None else ""

    def counts(self) -> tuple[int, int]:
        """How many files there are, without those that cannot be read, and how many are known."""
        if self._skills is None:
            (files,) = self._run("SELECT count(*) FROM file")[0]
            (left,) = self._run("SELECT count(*) FROM file WHERE document=?", (LEFT_OUT,))[0]
            (missing,) = self._run("SELECT count(*) FROM file WHERE document IS NULL")[0]
            return files - left, files - left - missing
        files, known, left = self._run(
            "SELECT count(*), count(document), coalesce(sum(document=?), 0) FROM file "
            "WHERE skill IN (SELECT skill FROM seen_skill)",
            (LEFT_OUT,),
        )[0]
        return files - left, known - left

    def count(self, expression: str, most: int = -1) -> int:
        """How many files an expression matches.

        Args:
            expression: As `every` or `some` makes it.
            most: How far to count; -1 for all.
        """
        self._see_documents()
        sql = (
            "SELECT count(*) FROM (SELECT 1 FROM words CROSS JOIN file f ON f.document=words.rowid "
            f"WHERE words MATCH ? {self._is_seen} {self._of_seen_skill} LIMIT ?)"
        )
        return int(self._run(sql, (expression, most))[0][0])

    def best(
        self, query: Query, weights: Mapping[Word, float], needed: str, common: Iterable[Word], most: int
    ) -> list[tuple[int, int]]:
        """Files whose documents are likely to match best: number of the document and key of the file.

        Args:
            query: The query.
            weights: What each word counts.
            needed: An expression that all must match.
            common: Words that need not be looked for in texts.
            most: Of how many documents; of each all files are given.
        """
        self._see_documents()
        parts: list[str] = []
        parameters: list[object] = []
        common = set(common)
        for word in query.words:
            for mark, worth in (("", 1.0), *_WORTH.items()):
                if mark or word not in common:
                    parts.append(
                        f"SELECT rowid AS number, ? AS worth FROM words WHERE words MATCH ? {self._is_seen}"
                    )
                    parameters += (weights[word] * worth, _term(word, mark))
        sql = (
            "SELECT best.number, f.key FROM (SELECT likely.number, worth, document.main, length, digest FROM "
            f"(SELECT number, sum(worth) AS worth FROM ({' UNION ALL '.join(parts)}) "
            "WHERE number IN (SELECT rowid FROM words WHERE words MATCH ?) GROUP BY number) "
            "likely JOIN document ON document.number=likely.number "
            "WHERE EXISTS (SELECT 1 FROM file WHERE file.document=likely.number) "
            "ORDER BY round(worth, 6) DESC, document.main DESC, length, digest LIMIT ?) best "
            f"CROSS JOIN file f ON f.document=best.number {self._of_seen_skill} "
            "ORDER BY round(worth, 6) DESC, best.main DESC, length, best.digest"
        )
        return self._run(sql, (*parameters, needed, most))


_WORTH = {SKILL: 3.0, ABOUT: 1.5, FILE: 2.0, OFTEN: 0.5}
"""What a word adds by standing in one of these, where one that stands in the text adds 1."""


def _term(word: Word, mark: str = "") -> str:
    return f'"{mark}{word.term}"{" *" if word.begins else ""}'


def every(words: Iterable[Word]) -> str:
    """What matches files that have all of some words."""
    return " AND ".join(map(_term, words))


def some(words: Iterable[Word]) -> str:
    """What matches files that have any of some words."""
    return " OR ".join(map(_term, words))
