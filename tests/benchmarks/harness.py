"""Taking turns, targets, and the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from tests.benchmarks.measure import MARK

REPOSITORY = Path(__file__).resolve().parents[2]
_PATIENCE = 1800
MISSING = "-"

Role = Literal["floor", "peer", "skillfs"]
Arguments = dict[str, object]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work of a row.

    Attributes:
        label: What the table calls it.
        role: Which side it is on.
        module: `floors`, `peers` or `rows`; `remote` for all three of a store on S3.
        function: The function there.
        arguments: Its keyword arguments.
        python: The interpreter that runs it; None when the peer is not installed.
        once: Whether one turn is enough, because it takes long and is far from any limit.
    """

    label: str
    role: Role
    module: str
    function: str
    arguments: Arguments
    python: str | None = sys.executable
    once: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure of skillfs is to reach.

    Attributes:
        at_most: The limit, in the unit of the row, or as a ratio.
        over: The contender to whose figure the ratio is taken; None for a plain limit.
        figure: The figure that is held to it; None for each of the row's own.
    """

    at_most: float
    over: str | None = None
    figure: str | None = None

    def text(self, unit: str) -> str:
        if self.over is not None:
            return f"≤ {self.at_most:g} x {self.over}"
        if self.figure is None:
            return f"≤ {self.at_most:g} {unit}"
        return f"{self.figure} ≤ {self.at_most:,g}" + {"peak": " MB", "sent": " bytes"}.get(self.figure, "")


@dataclass(frozen=True, slots=True)
class Row:
    """One task, its contenders, and what skillfs is to reach."""

    name: str
    title: str
    unit: Literal["s", "µs"]
    contenders: tuple[Contender, ...]
    limits: tuple[Limit, ...] = ()
    figures: tuple[str, ...] = ("",)


@dataclass(slots=True)
class Result:
    """All turns of one row: for each contender its figures turn by turn, or why there are none."""

    row: Row
    turns: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def value(self, label: str, figure: str) -> float | None:
        """Median over the turns; a contender with one figure alone stands against each of the row's."""
        instead = figure if "" in self.row.figures else ""
        values = [each.get(figure, each.get(instead)) for each in self.turns.get(label, [])]
        known = [value for value in values if value is not None]
        return median(known) if known else None


def turn(contender: Contender) -> dict[str, float]:
    """Run a contender once in a fresh process.

    Raises:
        RuntimeError: It failed; the message is the last line of its standard error.
    """
    if contender.python is None:
        raise RuntimeError("not installed")
    module = "tests.benchmarks.measure"
    argv = [
        contender.python,
        "-m",
        module,
        contender.module,
        contender.function,
        json.dumps(contender.arguments),
    ]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            argv, env=env, cwd=REPOSITORY, capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {_PATIENCE} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no figures"])[-1][:160])
    figures: dict[str, float] = json.loads(lines[-1].removeprefix(MARK))
    return figures


def compete(row: Row, rounds: int, say: Callable[[str], None]) -> Result:
    """Let the contenders of a row take turns."""
    result = Result(row)
    for number in range(rounds):
        for contender in row.contenders:
            label = contender.label
            if label in result.failures or (contender.once and number):
                continue
            say(f"{row.name}: round {number + 1} of {rounds}, {label}")
            try:
                result.turns.setdefault(label, []).append(turn(contender))
            except RuntimeError as error:
                result.failures[label] = str(error)
                result.turns.pop(label, None)
    return result


def shown(value: float | None, unit: str) -> str:
    if value is None:
        return MISSING
    return (
        f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 10 or unit == "s" else f"{value:.1f}"
    )


def ratio(ours: float | None, theirs: float | None) -> str:
    return MISSING if ours is None or not theirs else f"{ours / theirs:.3g}"


def verdict(result: Result, limit: Limit, figure: str) -> str:
    """`yes`, `no`, or `-` where something needed was not measured; with the number behind it."""
    ours = result.value("skillfs", figure if limit.figure is None else limit.figure)
    if ours is None:
        return MISSING
    if limit.over is not None:
        other = result.value(limit.over, figure)
        if not other:
            return MISSING
        ours /= other
    number = f"{ours:.3g}" if ours < 1000 else f"{ours:,.0f}"
    return ("yes" if ours <= limit.at_most else "no") + f" ({number})"


def lines(result: Result) -> list[tuple[str, ...]]:
    """Rows of the final table: task, floor, peer, skillfs, ratios, target, reached."""
    row = result.row
    table: list[tuple[str, ...]] = []
    for figure in row.figures:
        values = {c.label: result.value(c.label, figure) for c in row.contenders}
        floor = next(
            (c.label for c in row.contenders if c.role == "floor" and values[c.label] is not None), None
        )
        present = [c.label for c in row.contenders if c.role == "peer" and values[c.label] is not None]
        named = [limit.over for limit in row.limits if limit.over in present]
        peer = named[0] if named else min(present, key=lambda label: values[label] or 0, default=None)
        ours = values.get("skillfs")
        limits = [
            limit
            for limit in row.limits
            if limit.figure in (None, figure)
            or (limit.figure not in row.figures and figure == row.figures[0])
        ]
        table.append(
            (
                f"{row.title}, {figure}" if figure else row.title,
                row.unit,
                f"{shown(values[floor], row.unit)} {floor}" if floor else MISSING,
                f"{shown(values[peer], row.unit)} {peer}" if peer else MISSING,
                shown(ours, row.unit),
                ratio(ours, values[floor] if floor else None),
                ratio(ours, values[peer] if peer else None),
                "; ".join(limit.text(row.unit) for limit in limits) or MISSING,
                "; ".join(verdict(result, limit, figure) for limit in limits) or MISSING,
            )
        )
    return table


def notes(result: Result) -> list[str]:
    """One line for each contender: every figure, the range over the turns, or why there is none."""
    found = []
    for contender in result.row.contenders:
        head = f"{result.row.name:>14}  {contender.label:<28}"
        if contender.label in result.failures:
            found.append(f"{head}  {result.failures[contender.label]}")
            continue
        turns = result.turns.get(contender.label, [])
        parts = []
        for figure in dict.fromkeys(key for each in turns for key in each):
            values = sorted(each[figure] for each in turns if figure in each)
            name = figure or ("CPU" if result.row.unit == "s" else "p50")
            span = f" ({values[0]:.4g} to {values[-1]:.4g})" if values[0] != values[-1] else ""
            parts.append(f"{name} {median(values):.4g}{span}")
        found.append(f"{head}  {', '.join(parts)}")
    return found


HEADINGS = ("task", "unit", "floor", "peer", "skillfs", "÷ floor", "÷ peer", "target", "reached")


def render(results: list[Result]) -> str:
    """The aligned table, and below it the notes."""
    table = [HEADINGS, *(line for result in results for line in lines(result))]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    drawn = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    drawn.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([*drawn, "", *(note for result in results for note in notes(result))])
