"""Revisions and what changed in each."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from typing import NamedTuple

from skillfs.index.database import Database

__all__ = ["ChangeRow", "Journal"]

KEPT_CHANGES = 100_000
"""How many changes are kept; a reader that is further behind has to read everything anew."""


class ChangeRow(NamedTuple):
    """One change as it is kept; see `Change`. Skill paths tell in which base paths it was and is."""

    kind: str
    uuid: bytes
    path: str
    old_path: str | None = None
    skill: bytes | None = None
    skill_path: str | None = None
    old_skill: bytes | None = None
    old_skill_path: str | None = None
    content: bytes | None = None
    old_content: bytes | None = None


class Journal:
    """The change log of an index.

    Args:
        database: The index.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def revision(self) -> int:
        """The current revision; 0 before the first scan."""
        rows = self._database.read("SELECT value FROM facts.meta WHERE name='revision'")
        return int(rows[0][0]) if rows else 0

    def since(self, revision: int) -> tuple[int, bool, list[ChangeRow]]:
        """The changes after a revision.

        Returns:
            The current revision, whether the one asked from is too old or unknown, and the changes.
        """
        now, reset, rows = self._after(revision, None)
        return now, reset, [row for _, row in rows]

    def steps(self, revision: int, most: int) -> tuple[int, bool, list[list[ChangeRow]]]:
        """The changes after a revision, by revision.

        Args:
            revision: The one to begin after.
            most: How many revisions to give at most.

        Returns:
            The current revision, whether the one asked from is too old or unknown, and for each following
            revision its changes.
        """
        now, reset, rows = self._after(revision, most)
        steps: list[list[ChangeRow]] = [[] for _ in range(0 if reset else min(now - revision, most))]
        for number, row in rows:
            steps[number - revision - 1].append(row)
        return now, reset, steps

    def _after(self, revision: int, most: int | None) -> tuple[int, bool, list[tuple[int, ChangeRow]]]:
        with self._database.snapshot():
            now = self.revision()
            if revision == now:
                return now, False, []
            first = self._database.read("SELECT value FROM facts.meta WHERE name='first_revision'")
            if not first or revision < first[0][0] or revision > now:
                return now, True, []
            rows = self._database.read(
                "SELECT revision, kind, uuid, path, old_path, skill, skill_path, old_skill, old_skill_path, "
                "content, old_content FROM change WHERE revision > ? AND revision <= ? ORDER BY rowid",
                (revision, now if most is None else min(now, revision + most)),
            )
            return now, False, [(number, ChangeRow(*row)) for number, *row in rows]

    @staticmethod
    def begin(connection: sqlite3.Connection) -> int:
        """Start the log of a new index.

        The first revision is the time in milliseconds, in which less than one revision is made: a rebuilt
        index then never counts through numbers that a caller still holds from the one before.
        """
        before = connection.execute(
            "SELECT max(value) FROM facts.meta WHERE name IN ('revision', 'stamp')"
        ).fetchone()
        # Nor does the stamp repeat, which changes more often: what readers keep in memory is good for one.
        revision = max(int(time.time() * 1000), (before[0] or 0) + 1)
        connection.executemany(
            "INSERT OR REPLACE INTO facts.meta VALUES (?, ?)",
            [("revision", revision), ("first_revision", revision), ("stamp", revision)],
        )
        connection.execute("DELETE FROM change")
        return revision

    @staticmethod
    def append(connection: sqlite3.Connection, rows: Iterable[ChangeRow]) -> int:
        """Add one revision's changes and return its number; without any, only the revision grows."""
        before = connection.execute("SELECT value FROM facts.meta WHERE name='revision'").fetchone()
        revision = int(before[0]) + 1
        connection.execute("UPDATE facts.meta SET value=? WHERE name='revision'", (revision,))
        connection.executemany(
            "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(revision, *row) for row in rows]
        )
        # Rows come at the upper end and go, whole revisions, at the lower: their numbers have no gaps.
        oldest = connection.execute(
            "SELECT revision FROM change WHERE rowid = (SELECT max(rowid) FROM change) - ?", (KEPT_CHANGES,)
        ).fetchone()
        if oldest is not None:
            connection.execute("DELETE FROM change WHERE revision <= ?", (oldest[0],))
            connection.execute("UPDATE facts.meta SET value=? WHERE name='first_revision'", (oldest[0],))
        return revision
