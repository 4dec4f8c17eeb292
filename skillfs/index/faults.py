"""What an error of SQLite means, and how a caller is told of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from skillfs.errors import StoreUnavailableError, no_handle_left
from skillfs.index.connections import FILES
from skillfs.index.rows import IndexDamage

__all__ = [
    "MAYBE_DAMAGE",
    "MAYBE_DAMAGE_IN_SYNC",
    "is_busy",
    "is_damage",
    "is_damaged",
    "is_unwritable",
    "may_pass",
    "reason",
    "unavailable",
]

MAYBE_DAMAGE = (sqlite3.Error, IndexDamage)
MAYBE_DAMAGE_IN_SYNC = (*MAYBE_DAMAGE, LookupError, AssertionError)
"""A sync compares rows with one another all the time: what it trips over may be damage too."""

_REASONS = {
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened, which may be for the permissions of its folder",
    sqlite3.SQLITE_READONLY: "its file may only be read",
    sqlite3.SQLITE_PERM: "its file may not be opened by this user",
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its disk cannot be read or written",
    sqlite3.SQLITE_NOMEM: "no memory is left",
}


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: Exception) -> bool:
    """Whether somebody else holds the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_unwritable(error: Exception) -> bool:
    """Whether a file may not be written, or its disk is full."""
    return _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)


def may_pass(error: Exception) -> bool:
    """Whether a file that cannot be used now may be usable soon, with nothing done to it."""
    return is_busy(error) or _no_handle_for_sqlite() is not None


def unavailable(error: Exception, what: str, waited: float) -> StoreUnavailableError:
    """What a caller is told of an error of SQLite.

    Args:
        error: The error.
        what: What the file holds.
        waited: Seconds that were waited for a file in use.
    """
    if is_busy(error):
        return StoreUnavailableError(
            f"another process has been writing {what} for over {waited:.0f} s; try again"
        )
    if (full := _no_handle_for_sqlite()) is not None:
        return full
    return StoreUnavailableError(f"{what} cannot be used now: {reason(error)}; mend that and try again")


def reason(error: Exception) -> str:
    """What is wrong, in words of our own: those of SQLite may name the path of the file."""
    return _REASONS.get(_code(error), "its file does not answer as an index does")


def _no_handle_for_sqlite() -> StoreUnavailableError | None:
    """Whether too few files can be opened for a connection: to SQLite that is any file that does not open."""
    taken: list[int] = []
    try:
        while len(taken) < FILES + 1:
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return no_handle_left(error)
    finally:
        for fd in taken:
            os.close(fd)
    return None


def is_damage(error: Exception) -> bool:
    """Whether an error says that what a file holds is none of ours, or not whole."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    return (
        _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
        or str(error).startswith(("no such table", "no such column", "Could not decode"))
    )


def is_damaged(path: Path | None) -> bool:
    """Whether a file is there and not a sound SQLite file."""
    if path is None or not os.path.exists(path):  # unlike `Path.exists`, whatever the permissions
        return False
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0)
        with contextlib.closing(connection):
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.OperationalError as error:
        return not may_pass(error)
    except sqlite3.DatabaseError:
        return True
