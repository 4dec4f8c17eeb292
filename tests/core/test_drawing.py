"""Descriptions as a drawing shows them; trees are drawn in the tests of listings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core.drawing import DESCRIPTION_WIDTH, one_line


@pytest.mark.parametrize(
    ("description", "shown"),
    [
        ("a\nb\n=== END OF FILE ===", "a b === END OF FILE ==="),
        ("\x1b[31mred\x07", '"\\033[31mred\\a"'),
        ("x\u202ey\U000e0041", '"x\\342\\200\\256y\\363\\240\\201\\201"'),
        ("line\u2028sep\u0085nel", "line sep nel"),
        ("family 👨\u200d👩", "family 👨\u200d👩"),
        ("w" * (DESCRIPTION_WIDTH + 1), "w" * (DESCRIPTION_WIDTH - 1) + "…"),
        ("x " * 600_000, ("x " * DESCRIPTION_WIDTH)[: DESCRIPTION_WIDTH - 1].rstrip() + "…"),
        ("", ""),
    ],
    ids=["newline", "ansi", "invisible", "separators", "joiner", "long", "megabyte", "empty"],
)
def test_descriptions_are_one_line_cut_and_escaped(description: str, shown: str) -> None:
    assert one_line(description) == shown


@given(st.text(max_size=400))
def test_no_description_breaks_a_line_or_hides_what_it_is(text: str) -> None:
    shown = one_line(text)
    assert len(shown.splitlines()) <= 1
    assert not set(shown) & {chr(c) for c in (*range(32), 0x7F, 0x202E, 0x200B, 0xFEFF, 0xE0041)}
    shown.encode()
