#!/usr/bin/env python3
"""Write a clean copy of a delimited file: UTF-8, commas, LF, one width; what does not fit is set aside."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from csv_input import open_source

COMMA_NUMBER = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")


def snake_case(names: list[str]) -> list[str]:
    """Return unique lower_snake_case names; a nameless column is named after its number."""
    taken: set[str] = set()
    result = []
    for number, name in enumerate(names, 1):
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
        base = re.sub(r"\W+", "_", split.lower()).strip("_") or f"column_{number}"
        unique, n = base, 2
        while unique in taken:
            unique, n = f"{base}_{n}", n + 1
        taken.add(unique)
        result.append(unique)
    return result


def comma_to_point(value: str) -> str | None:
    """Return `1.234,56` as `1234.56`, or None if it is no such number."""
    if not COMMA_NUMBER.fullmatch(value):
        return None
    return value.replace(".", "").replace(",", ".")


def date_converter(pattern: str) -> Callable[[str], str | None]:
    """Return a function that turns dates of this strptime pattern into ISO dates."""

    def convert(value: str) -> str | None:
        try:
            return datetime.strptime(value, pattern).date().isoformat()
        except ValueError:
            return None

    return convert


def clean(args: argparse.Namespace) -> dict[str, Any]:
    """Do the work and return the summary."""
    source = open_source(args.input, args.encoding, args.delimiter)
    rejects_path = args.output.with_suffix(".rejects.csv")
    empties = set(args.empty.split(",")) if args.empty else set()
    counts: Counter[str] = Counter(dict.fromkeys(("rows_in", "rows_out", "rejected", "dropped"), 0))
    unconverted: Counter[str] = Counter()
    seen: set[bytes] = set()
    with source.open() as file:
        reader = csv.reader(file, delimiter=source.delimiter)
        header = next(reader, [])
        if args.snake_case:
            header = snake_case(header)
        converters: dict[int, Callable[[str], str | None]] = {}
        for column in args.decimal_comma:
            converters[find_column(header, column)] = comma_to_point
        for assignment in args.date:
            column, _, pattern = assignment.partition("=")
            converters[find_column(header, column)] = date_converter(pattern)
        rejects = None
        with open(args.output, "x", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(header)
            try:
                for row in reader:
                    counts["rows_in"] += 1
                    if not row or (args.drop_empty_rows and not any(cell.strip() for cell in row)):
                        counts["dropped"] += 1
                        continue
                    if len(row) != len(header):
                        if rejects is None:
                            rejects = open(rejects_path, "x", encoding="utf-8", newline="")
                        csv.writer(rejects, lineterminator="\n").writerow([reader.line_num, *row])
                        counts["rejected"] += 1
                        continue
                    if args.trim:
                        row = [cell.strip() for cell in row]
                    row = ["" if cell in empties else cell for cell in row]
                    for index, convert in converters.items():
                        if row[index]:
                            converted = convert(row[index].strip())
                            if converted is None:
                                unconverted[header[index]] += 1
                            else:
                                row[index] = converted
                    if args.drop_duplicates:
                        # A digest a row keeps the memory small where the rows are long.
                        key = blake2b(json.dumps(row).encode(), digest_size=16).digest()
                        if key in seen:
                            counts["dropped"] += 1
                            continue
                        seen.add(key)
                    writer.writerow(row)
                    counts["rows_out"] += 1
            except BaseException:
                # Half a clean file looks like a whole one.
                args.output.unlink()
                raise
            finally:
                if rejects is not None:
                    rejects.close()
    summary: dict[str, Any] = {
        "encoding_in": source.encoding + (" (guessed)" if source.encoding_guessed else ""),
        "delimiter_in": source.delimiter,
        **counts,
        "unconverted": dict(unconverted),
    }
    if counts["rejected"]:
        summary["rejects_file"] = rejects_path.name
    return summary


def find_column(header: list[str], name: str) -> int:
    """Return the index of the column. Raises ValueError naming what there is."""
    if name not in header:
        raise ValueError(f"no column {name!r}; there are: {', '.join(header)}")
    return header.index(name)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path, help="must not exist yet")
    parser.add_argument("--encoding")
    parser.add_argument("--delimiter", help="one character, or the word tab")
    parser.add_argument("--trim", action="store_true")
    parser.add_argument("--empty", metavar="LIST", help="comma-separated values that mean: empty")
    parser.add_argument("--snake-case", action="store_true")
    parser.add_argument("--drop-empty-rows", action="store_true")
    parser.add_argument("--drop-duplicates", action="store_true")
    parser.add_argument("--decimal-comma", action="append", default=[], metavar="COLUMN")
    parser.add_argument("--date", action="append", default=[], metavar="COLUMN=FORMAT")
    args = parser.parse_args()
    try:
        summary = clean(args)
    except (OSError, UnicodeError, LookupError, ValueError, csv.Error, TypeError) as error:
        print(f"not cleaned: {error}", file=sys.stderr)
        return 2
    print(json.dumps(summary, ensure_ascii=False, indent=2))
    return 1 if summary["rejected"] or summary["unconverted"] else 0


if __name__ == "__main__":
    sys.exit(main())
