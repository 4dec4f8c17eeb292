"""What first readings compute of files: kept until there is enough for a commit, which holds nobody up."""

from __future__ import annotations

import atexit
import contextlib
import time
from typing import NamedTuple
from weakref import WeakSet

from skillfs.core.textfacts import TextFacts
from skillfs.index.database import Database
from skillfs.index.rows import Row

__all__ = ["LearnedFacts"]

MOST_PENDING_FACTS = 64
MOST_PENDING_SECONDS = 1.0
COSTLY = 1 << 20
"""Bytes of a file from which on it is not read again for a commit that was put off and never came."""

_KEEP_TEXT = (
    "INSERT OR REPLACE INTO text SELECT ?, ?, ?, ?, ?, ?, ?, ? "
    "WHERE EXISTS (SELECT 1 FROM entry WHERE key=? AND signature=?)"
)
_KEEP_CONTENT = "UPDATE entry SET content=? WHERE key=? AND signature=? AND content IS NULL"


class _Learned(NamedTuple):
    """What was computed of a row with a signature."""

    signature: bytes
    content: bytes
    md5: bytes
    text: TextFacts


class LearnedFacts:
    """Facts that are on their way into one index.

    Args:
        database: The index.
        with_contents: Whether contents are learned by reading, too, and not when the store is scanned.
    """

    def __init__(self, database: Database, *, with_contents: bool) -> None:
        self._database = database
        self._with_contents = with_contents
        self._pending: dict[int, _Learned] = {}
        self._since = 0.0
        _all.add(self)

    def of(self, row: Row) -> tuple[bytes, TextFacts] | None:
        """MD5 and text facts of a row that were computed here and are not committed yet."""
        pending = self._pending.get(row.key)
        if pending is None or pending.signature != row.signature:
            return None
        return pending.md5, pending.text

    def keep(self, row: Row, content: bytes, md5: bytes, facts: TextFacts) -> None:
        """Remember what a first reading computed; committed with others, never holding up a reader."""
        self._pending[row.key] = _Learned(row.signature, content, md5, facts)
        now = time.monotonic()
        if len(self._pending) == 1:
            self._since = now
        is_costly = row.size is not None and row.size > COSTLY
        is_much = len(self._pending) >= MOST_PENDING_FACTS
        if is_costly or is_much or now - self._since > MOST_PENDING_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit what is remembered unless another writer is busy; then it stays remembered."""
        if not self._pending:
            return
        some = dict(self._pending)
        texts = [
            (key, md5, f.encoding, f.characters, f.lines, f.reason, f.reason_at,
             None if f.grid is None else f.grid.pack(), key, signature)
            for key, (signature, _, md5, f) in some.items()
        ]  # fmt: skip
        contents = [(p.content, key, p.signature) for key, p in some.items()] if self._with_contents else []
        if self._database.try_write([(_KEEP_TEXT, texts), (_KEEP_CONTENT, contents)]):
            for key, value in some.items():
                if self._pending.get(key) is value:
                    del self._pending[key]
        elif len(self._pending) > 50 * MOST_PENDING_FACTS:
            self.forget()  # facts are a cache: computed again at the next reading

    def forget(self) -> None:
        """Drop what is remembered."""
        self._pending = {}

    def __del__(self) -> None:
        # A process that reads one file and ends never comes to the next commit.
        with contextlib.suppress(Exception):
            self.flush()


_all: WeakSet[LearnedFacts] = WeakSet()


def _flush_all() -> None:
    """At the end of a process, commit what it has learned."""
    for learned in list(_all):
        with contextlib.suppress(Exception):
            learned.flush()


atexit.register(_flush_all)
