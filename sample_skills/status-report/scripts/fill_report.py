#!/usr/bin/env python3
"""Fill the status report template from a JSON file."""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ASSETS = Path(__file__).resolve().parent.parent / "assets"
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
NAMESPACES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "pic": "http://schemas.openxmlformats.org/drawingml/2006/picture",
}
TEXTS = ("title", "period", "status", "summary")
LISTS = ("progress", "risks", "next")
FIGURE_KEYS = {"name", "value", "target"}
STATUSES = ("green", "amber", "red")
ONE_PAGE = 1_900
PLACEHOLDER = re.compile(r"\{\{([a-z.]+)\}\}")


def check(report: Any) -> None:
    """Raise ValueError naming everything that is wrong with the report."""
    if not isinstance(report, dict):
        raise ValueError("the report must be a JSON object")
    known = {*TEXTS, *LISTS, "figures"}
    faults = [f"missing key {k!r}" for k in sorted(known - report.keys())]
    faults += [f"unknown key {k!r}" for k in sorted(report.keys() - known)]
    faults += [f"{k!r} must be a text that is not empty" for k in TEXTS
               if k in report and not (isinstance(report[k], str) and report[k].strip())]
    faults += [f"{k!r} must be a list of texts" for k in LISTS
               if k in report and not (isinstance(report[k], list) and all(isinstance(v, str) for v in report[k]))]
    figures = report.get("figures", [])
    if not isinstance(figures, list) or any(
        not isinstance(f, dict) or set(f) != FIGURE_KEYS or not all(isinstance(v, str) for v in f.values())
        for f in figures
    ):
        faults.append("'figures' must be a list of objects with the texts name, value and target")
    if isinstance(report.get("status"), str) and report["status"] not in STATUSES:
        faults.append(f"'status' must be one of {', '.join(STATUSES)}")
    if report.get("status") in ("amber", "red") and report.get("risks") == []:
        faults.append(f"status {report['status']} needs at least one risk")
    if faults:
        raise ValueError("; ".join(faults))


def placeholders(element: ET.Element) -> set[str]:
    """Return the names of the placeholders below this element."""
    return set(PLACEHOLDER.findall("".join(t.text or "" for t in element.iter(f"{W}t"))))


def fill(element: ET.Element, values: dict[str, str]) -> None:
    """Replace the placeholders below this element."""
    for text in element.iter(f"{W}t"):
        text.text = PLACEHOLDER.sub(lambda m: values.get(m[1], m[0]), text.text or "")


def repeat(parent: ET.Element, model: ET.Element, rows: list[dict[str, str]]) -> None:
    """Put one filled copy of the model for each row in the model's place."""
    at = list(parent).index(model)
    parent.remove(model)
    for offset, values in enumerate(rows):
        filled = copy.deepcopy(model)
        fill(filled, values)
        parent.insert(at + offset, filled)


def fill_document(xml: bytes, report: dict[str, Any]) -> bytes:
    """Return the template's document.xml, filled. Raises ValueError if a placeholder is left."""
    for prefix, uri in NAMESPACES.items():
        ET.register_namespace(prefix, uri)
    root = ET.fromstring(xml)
    body = root.find(f"{W}body")
    if body is None:
        raise ValueError("the template has no body")
    previous: ET.Element | None = None
    for element in list(body):
        names = placeholders(element)
        if element.tag == f"{W}tbl":
            for row in element.findall(f"{W}tr"):
                if placeholders(row) & {f"figure.{k}" for k in FIGURE_KEYS}:
                    repeat(element, row, [{f"figure.{k}": v for k, v in f.items()} for f in report["figures"]])
        elif key := next((k for k in LISTS if k in names), None):
            repeat(body, element, [{key: item} for item in report[key]])
            if not report[key] and previous is not None:
                body.remove(previous)  # the heading of an empty list
        else:
            fill(element, {k: report[k] for k in TEXTS})
        previous = element
    if left := placeholders(root):
        raise ValueError(f"the template has placeholders nobody fills: {', '.join(sorted(left))}")
    filled: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return filled


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="JSON file")
    parser.add_argument("output", type=Path, help=".docx file, must not exist yet")
    args = parser.parse_args()
    try:
        report = json.loads(args.report.read_text(encoding="utf-8"))
        check(report)
        with zipfile.ZipFile(ASSETS / "report-template.docx") as template:
            parts = {name: template.read(name) for name in template.namelist()}
        parts["word/document.xml"] = fill_document(parts["word/document.xml"], report)
        parts["word/media/badge.png"] = (ASSETS / f"badge-{report['status']}.png").read_bytes()
        with open(args.output, "xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
            for name, data in parts.items():
                out.writestr(name, data)
    except (OSError, ValueError, ET.ParseError) as error:
        print(f"not written: {error}", file=sys.stderr)
        return 2
    items = sum(len(report[k]) for k in LISTS)
    print(f"{args.output.name}: status {report['status']}, {items} list items, {len(report['figures'])} figures")
    characters = len(report["summary"]) + sum(len(v) for k in LISTS for v in report[k])
    characters += sum(len(v) for f in report["figures"] for v in f.values())
    if characters > ONE_PAGE:
        print(f"warning: {characters} characters will probably not fit on one page", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
