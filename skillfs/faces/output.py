"""What commands print: lines, tables and JSON, exact in a pipe and harmless on a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from skillfs.core.refs import printable_path
from skillfs.core.wire import quote_name
from skillfs.errors import StoreUnavailableError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from skillfs.core.model import Change, Entry, Problem, Skill

__all__ = [
    "Progress",
    "abandon",
    "as_dict",
    "complain",
    "counted",
    "fields",
    "flush",
    "is_terminal",
    "logged",
    "note",
    "path",
    "prepared",
    "printable",
    "require_reader",
    "skill_dict",
    "styled",
    "table",
    "terminal_text",
    "write",
    "write_bytes",
    "write_json",
]

SHOW_AFTER = 0.5
"""Seconds of work after which a progress bar is worth looking at, and worth the time to load it."""

_PATHS = ("path", "old_path", "skill_path", "link", "shadowed_by")

_ANY_BUT_ASCII = re.compile(r"[^ -~]")
_ANY_BUT_ASCII_LINES = re.compile(r"\r\n|[^\t\n -~]")
_ANY_BUT_ASCII_JSON = re.compile(r"[^\n -~]")


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Make standard output take every character, whatever the locale, and all of them.

    In a pipe it is UTF-8; a terminal keeps its encoding. What cannot be encoded is written as an escape.
    """
    found = sys.stdout
    buffered = None
    if isinstance(getattr(found, "buffer", None), io.RawIOBase):
        # Unbuffered, as PYTHONUNBUFFERED has it, a long write to a full pipe ends early without a word.
        sys.stdout = buffered = io.TextIOWrapper(io.BufferedWriter(found.buffer), found.encoding)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if stream.isatty():
            reconfigure(errors="backslashreplace")
        else:
            reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        if buffered is not None:
            buffered.detach().detach()  # or the end of the wrapper closes what it was made from
            sys.stdout = found


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


# -- characters --------------------------------------------------------------------------------------------


def _shows(char: str) -> bool:
    # Joiners and other spaces are not "printable", but emoji and several scripts are spelled with them.
    return char.isprintable() or char in "\u200c\u200d" or unicodedata.category(char) == "Zs"


def _escaped(match: re.Match[str]) -> str:
    text = match[0]
    return text if text == "\r\n" or _shows(text) else text.encode("unicode_escape").decode()


def printable(text: str) -> str:
    """One line, with an escape for every character that could move a cursor, turn a text or hide in it."""
    return text if text.isprintable() else _ANY_BUT_ASCII.sub(_escaped, text)


def terminal_text(text: str) -> str:
    """The same for a text of many lines: tabs and line ends stay."""
    return _ANY_BUT_ASCII_LINES.sub(_escaped, text)


# -- standard output ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon()
        raise StoreUnavailableError(f"standard output cannot be written: {error.strerror}") from error


def write(text: str) -> None:
    """Write a text as it is."""
    with _writing():
        sys.stdout.write(text)


def write_bytes(data: bytes) -> None:
    """Write bytes as they are."""
    with _writing():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Hand over what was written.

    Raises:
        BrokenPipeError: Nobody reads any more.
        StoreUnavailableError: It cannot be written, on a full disk for instance.
    """
    with _writing():
        sys.stdout.flush()


def require_reader() -> None:
    """Notice that nobody reads any more, also when there is nothing to write.

    Raises:
        BrokenPipeError: What reads standard output has gone.
    """
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):  # no file: then nobody can go
        poll.register(sys.stdout.fileno(), 0)
    if any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0)):
        raise BrokenPipeError


def abandon() -> None:
    """Drop what was not written yet, so that the end of the process neither waits for a reader nor fails."""
    streams = [sys.stdout] if _takes_more(sys.stderr) else [sys.stdout, sys.stderr]
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in streams:
            os.dup2(null, stream.fileno())
        os.close(null)


def _takes_more(stream: Any) -> bool:
    """Whether a line can be written without waiting for somebody to read what was written before."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):
        return True  # it is none that could be full
    return bool(poll.poll(0))


def note(text: str) -> None:
    """Tell something beside the output, on standard error."""
    flush()
    _tell(text)


def complain(code: str, message: str) -> None:
    """Report an error or a warning on standard error."""
    if sys.stdout is not None:
        with contextlib.suppress(StoreUnavailableError):
            flush()
    _tell(f"skillfs: {code}: {message}")


def _tell(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(printable(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def logged(*, told: bool = True) -> Iterator[None]:
    """Take what is logged: Python itself would write it raw.

    Args:
        told: Whether warnings and errors are told on standard error, a line each, as `complain` does.
    """
    import logging

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # It comes from any thread, and holds a lock that the end of the process waits for.
            for line in self.format(record).splitlines() if told and _takes_more(sys.stderr) else ():
                _tell(f"skillfs: {record.levelname.lower()}: {line}")

    handler = Teller(logging.WARNING)
    logger = logging.getLogger("skillfs")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def write_json(value: object, *, line: bool = False) -> None:
    """Write one JSON document, readable or on one line.

    What a terminal should not get raw is escaped as JSON escapes it, so the document means the same.
    """
    text = json.dumps(value, ensure_ascii=False, indent=None if line else 2)
    write(_ANY_BUT_ASCII_JSON.sub(lambda m: m[0] if _shows(m[0]) else json.dumps(m[0])[1:-1], text) + "\n")


# -- values ------------------------------------------------------------------------------------------------


def path(store_path: str, roots: Sequence[str]) -> str:
    """A store path on one line, in the form that can be passed back."""
    return quote_name(printable_path(store_path, roots))


def as_dict(value: Entry | Problem | Change | Skill, roots: Sequence[str]) -> dict[str, Any]:
    """A value as JSON can hold it, its paths in the form that can be passed back."""
    found = asdict(value)
    for key in _PATHS:
        if found.get(key) is not None:
            found[key] = printable_path(found[key], roots)
    if "places" in found:
        found["places"] = [printable_path(place, roots) for place in found["places"]]
    if isinstance(found.get("modified"), datetime):
        found["modified"] = found["modified"].isoformat()
    return found


def skill_dict(skill: Skill, roots: Sequence[str]) -> dict[str, Any]:
    """The same for a skill, with its location and its problems."""
    problems = [as_dict(problem, roots) for problem in skill.problems]
    return {**as_dict(skill, roots), "location": printable_path(skill.location, roots), "problems": problems}


# -- colours and tables ------------------------------------------------------------------------------------


def _has_colour() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, colour: str) -> str:
    """A text in a colour of the terminal; unchanged in a pipe or where `NO_COLOR` is set."""
    import click

    return click.style(text, fg=colour) if _has_colour() else text


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table on a terminal; in a pipe one line a row, without headings, values separated by a tab."""
    cells = [[printable(value) for value in row] for row in rows]
    if not is_terminal():
        write("".join("\t".join(row) + "\n" for row in cells))
        return
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold")
    _draw(drawn, cells)


def fields(values: Mapping[str, object]) -> None:
    """Write named values, one a line; None is a dash, names and paths are quoted where they need it."""
    cells = []
    for name, value in values.items():
        shown = "-" if value is None else str(value)
        cells.append([name, quote_name(shown) if name in ("name", *_PATHS) else printable(shown)])
    if not is_terminal():
        write("".join(f"{name}: {value}\n" for name, value in cells))
        return
    from rich.table import Table

    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold")
    drawn.add_column(overflow="fold")
    _draw(drawn, cells)


def _draw(drawn: Any, cells: list[list[str]]) -> None:
    from rich.text import Text

    for row in cells:
        drawn.add_row(*map(Text, row))  # a Text, because a plain string would be read as markup
    _console().print(drawn)


def _console() -> Console:
    from rich.console import Console

    return Console(
        file=sys.stdout,
        color_system="auto" if _has_colour() else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "skill"), counted(1200, "file")
    ('1 skill', '1,200 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# -- progress ----------------------------------------------------------------------------------------------


class Progress:
    """A bar on standard error, when that is a terminal and the work takes long. Call it with what is done.

    Args:
        label: What is being done.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._started = time.monotonic()
        self._bar: RichProgress | None = None
        self.wanted = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show how far the work is.

        Args:
            done: Entries or files that are done.
            total: How many there are, where that is known.
        """
        if not self.wanted or time.monotonic() - self._started < SHOW_AFTER:
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(self._label, total=None)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    @property
    def callback(self) -> Callable[[int], None] | None:
        """What to hand to the work; None when nobody would see it."""
        return self if self.wanted else None


def _bar() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr, no_color=bool(os.environ.get("NO_COLOR"))),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
