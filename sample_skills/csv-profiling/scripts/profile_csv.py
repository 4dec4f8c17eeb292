#!/usr/bin/env python3
"""Say what is in a delimited file: types, gaps, extremes, frequent values, and what looks wrong."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from csv_input import open_source

MAX_DISTINCT = 10_000
NULL_WORDS = {"na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "."}
BOOLEAN_WORDS = {"true", "false", "yes", "no", "ja", "nein"}
INTEGER = re.compile(r"[+-]?\d+")
DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+")
SCIENTIFIC = re.compile(r"[+-]?\d(\.\d+)?[eE]\+\d+")
DATES = (
    (re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})([T ]\d.*)?"), "ymd"),
    (re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})"), "ymd"),
    (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), "dmy"),
    (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), "either"),
)
MOJIBAKE = re.compile("Ã[\u0080-\u00bf]|â€|\ufffd")


def is_date(value: str) -> str | None:
    """Return "ambiguous", "clear" or None."""
    for pattern, order in DATES:
        if not (match := pattern.fullmatch(value)):
            continue
        first, second, third = (int(g) for g in match.groups()[:3])
        orders = {
            "ymd": [(first, second, third)],
            "dmy": [(third, second, first)],
            "either": [(third, second, first), (third, first, second)],
        }[order]
        valid = set()
        for parts in orders:
            try:
                valid.add(date(*parts))
            except ValueError:
                continue
        if valid:
            return "ambiguous" if len(valid) > 1 else "clear"
    return None


class Column:
    """What is known of one column so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.empty = 0
        self.filled = 0
        self.values: Counter[str] = Counter()
        self.overflow = False
        self.kinds: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.longest = ""
        self.low: int | float | None = None
        self.high: int | float | None = None
        self.first: str | None = None
        self.last: str | None = None

    def add(self, raw: str) -> None:
        """Take in one cell."""
        value = raw.strip()
        if not value:
            self.empty += 1
            return
        self.filled += 1
        if value in self.values or len(self.values) < MAX_DISTINCT:
            self.values[value] += 1
        else:
            self.overflow = True
        if len(value) > len(self.longest):
            self.longest = value
        if value != raw:
            self.marks["surrounding-space"] += 1
        if value[0] in "=@" or raw[0] == "\t" or (value[0] == "+" and not DECIMAL.fullmatch(value)):
            self.marks["formula"] += 1
        if MOJIBAKE.search(value):
            self.marks["mojibake"] += 1
        self.kinds[self._kind(value)] += 1

    def _kind(self, value: str) -> str:
        if value.lower() in NULL_WORDS:
            self.marks["null-words"] += 1
            return "null"
        if INTEGER.fullmatch(value):
            digits = value.lstrip("+-")
            if len(digits) > 1 and digits[0] == "0":
                self.marks["leading-zeros"] += 1
            if len(digits) > 15:
                self.marks["long-numbers"] += 1
            # Not float: it would round identifiers. Beyond 400 digits nobody reads a minimum.
            if len(digits) <= 400:
                self._range(int(value))
            return "integer"
        if DECIMAL.fullmatch(value):
            if SCIENTIFIC.fullmatch(value):
                self.marks["scientific"] += 1
            self._range(float(value))
            return "decimal"
        if DECIMAL_COMMA.fullmatch(value):
            self.marks["decimal-comma"] += 1
            self._range(float(value.replace(".", "").replace(",", ".")))
            return "decimal"
        if found := is_date(value):
            if found == "ambiguous":
                self.marks["ambiguous-dates"] += 1
            else:
                self.marks["clear-dates"] += 1
            return "date"
        if value.lower() in BOOLEAN_WORDS:
            return "boolean"
        return "text"

    def _range(self, number: int | float) -> None:
        self.low = number if self.low is None else min(self.low, number)
        self.high = number if self.high is None else max(self.high, number)

    def type(self) -> str:
        """Return the type that 99 % of the filled cells have."""
        judged = self.filled - self.kinds["null"]
        if not judged:
            return "empty"
        if self.marks["leading-zeros"]:
            return "text"
        numbers = self.kinds["integer"] + self.kinds["decimal"]
        for name, count in (
            ("integer", self.kinds["integer"]),
            ("decimal", numbers),
            ("date", self.kinds["date"]),
            ("boolean", self.kinds["boolean"]),
        ):
            if count >= 0.99 * judged:
                return name
        words = self.kinds["boolean"] + sum(self.values[v] for v in ("0", "1"))
        if self.kinds["boolean"] and words == judged:
            return "boolean"
        return "text"

    def findings(self, rows: int) -> list[str]:
        """Return the codes of what looks wrong, with counts."""
        kind = self.type()
        found = [
            f"{mark} ({count})"
            for mark, count in sorted(self.marks.items())
            if mark not in {"clear-dates", "ambiguous-dates"}
        ]
        if kind == "date" and self.marks["ambiguous-dates"] and not self.marks["clear-dates"]:
            found.append(f"ambiguous-dates ({self.marks['ambiguous-dates']})")
        typed = self.kinds["integer"] + self.kinds["decimal"] + self.kinds["date"]
        if kind == "text" and not self.marks["leading-zeros"] and typed >= 0.5 * self.filled:
            found.append(f"mixed-types ({self.filled - typed} of {self.filled} are text)")
        if rows > 1 and not self.empty and len(self.values) == 1 and not self.overflow:
            found.append("constant")
        return found

    def report(self, rows: int) -> dict[str, Any]:
        """Return everything about this column as JSON values."""
        numeric = self.type() in {"integer", "decimal"}
        return {
            "name": self.name,
            "type": self.type(),
            "empty": self.empty,
            "distinct": f"over {MAX_DISTINCT}" if self.overflow else len(self.values),
            "min": self.low if numeric else min(self.values, default=None),
            "max": self.high if numeric else max(self.values, default=None),
            "longest": len(self.longest),
            "top": [{"value": v[:60], "count": n} for v, n in self.values.most_common(5)],
            "findings": self.findings(rows),
        }


def profile(path: Path, encoding: str | None, delimiter: str | None) -> dict[str, Any]:
    """Read the file once and return the profile."""
    source = open_source(path, encoding, delimiter)
    findings: list[str] = []
    if source.encoding_guessed:
        findings.append("guessed-encoding")
    with source.open() as file:
        reader = csv.reader(file, delimiter=source.delimiter)
        header = next(reader, [])
        columns = [Column(name.strip()) for name in header]
        rows, ragged = 0, []
        for row in reader:
            if not row:
                continue
            rows += 1
            if len(row) != len(columns):
                ragged.append(reader.line_num)
            for column, value in zip(columns, row, strict=False):
                column.add(value)
    names = [c.name for c in columns]
    if "" in names:
        findings.append(f"empty-header (columns {[i for i, n in enumerate(names, 1) if not n]})")
    if twice := sorted(n for n, count in Counter(names).items() if n and count > 1):
        findings.append(f"duplicate-header {twice}")
    if ragged:
        findings.append(f"ragged-rows ({len(ragged)}; lines {ragged[:5]})")
    return {
        "file": path.name,
        "encoding": source.encoding,
        "delimiter": source.delimiter,
        "rows": rows,
        "findings": findings,
        "columns": [c.report(rows) for c in columns],
    }


def as_text(result: dict[str, Any]) -> str:
    """Draw the profile for reading."""
    lines = [
        f"{result['file']}: {result['rows']} rows, {len(result['columns'])} columns, "
        f"{result['encoding']}, delimiter {result['delimiter']!r}"
    ]
    lines += [f"  ! {f}" for f in result["findings"]]
    for c in result["columns"]:
        share = 100 * c["empty"] / result["rows"] if result["rows"] else 0
        lines.append(
            f"\n{c['name'] or '(no name)'}: {c['type']}, {share:.1f} % empty, {c['distinct']} distinct, "
            f"{c['min']} … {c['max']}, longest {c['longest']}"
        )
        lines.append("    top: " + ", ".join(f"{t['value']!r} × {t['count']}" for t in c["top"]))
        lines += [f"    ! {f}" for f in c["findings"]]
    return "\n".join(lines)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--encoding")
    parser.add_argument("--delimiter", help="one character, or the word tab")
    args = parser.parse_args()
    try:
        result = profile(args.file, args.encoding, args.delimiter)
    except (OSError, UnicodeError, LookupError, csv.Error, TypeError) as error:
        print(f"cannot read {args.file.name}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, ensure_ascii=False, indent=2) if args.json else as_text(result))
    return 1 if result["findings"] or any(c["findings"] for c in result["columns"]) else 0


if __name__ == "__main__":
    sys.exit(main())
