"""Opening a delimited file whose encoding and delimiter nobody told us."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

DELIMITERS = ",;\t|"
BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

# The default of 131,072 characters a cell is exceeded by exported documents.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and how it is to be read."""

    path: Path
    encoding: str
    encoding_guessed: bool
    delimiter: str

    def open(self) -> io.TextIOWrapper:
        """Open it for `csv.reader`; the caller closes it."""
        # newline="" leaves line breaks inside quotes as they are.
        return open(self.path, encoding=self.encoding, newline="")


def detect_encoding(path: Path) -> tuple[str, bool]:
    """Return the encoding and whether it is a mere guess."""
    with open(path, "rb") as file:
        head = file.read(4)
    for bom, encoding in BOMS:
        if head.startswith(bom):
            return encoding, False
    try:
        with open(path, encoding="utf-8", newline="") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "cp1252", True
    return "utf-8", False


def detect_delimiter(sample: str) -> str:
    """Return the delimiter that splits the sample's rows most evenly, into more than one cell."""
    best, best_score = ",", 0.0
    for delimiter in DELIMITERS:
        widths = Counter(len(row) for row in csv.reader(io.StringIO(sample), delimiter=delimiter) if row)
        if not widths:
            continue
        width, rows = widths.most_common(1)[0]
        # Evenness counts first; among equally even ones the wider wins.
        score = rows / widths.total() + min(width, 100) / 1000 if width > 1 else 0.0
        if score > best_score:
            best, best_score = delimiter, score
    return best


def open_source(path: Path, encoding: str | None, delimiter: str | None) -> Source:
    """Find out what was not given. Raises OSError, UnicodeDecodeError, LookupError."""
    guessed = False
    if encoding is None:
        encoding, guessed = detect_encoding(path)
    if delimiter is None:
        with open(path, encoding=encoding, newline="") as file:
            sample = "".join(line for line, _ in zip(file, range(50), strict=False))
        delimiter = detect_delimiter(sample)
    elif delimiter == "tab":
        delimiter = "\t"
    return Source(path, encoding, guessed, delimiter)
