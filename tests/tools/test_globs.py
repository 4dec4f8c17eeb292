from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core.globs import compile_globs
from skillfs.tools.globs import split_globs

glob_text = st.text(st.sampled_from("ab*,{}[]!\\ /"), max_size=20)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" , ,", []),
        ("*", ["*"]),
        ("*.md,*.py", ["*.md", "*.py"]),
        (" *.md , src/**/*.py ", ["*.md", "src/**/*.py"]),
        ("*.{md,py}", ["*.{md,py}"]),
        ("*.{md,py},*.sh", ["*.{md,py}", "*.sh"]),
        ("{a,{b,c}},d", ["{a,{b,c}}", "d"]),
        ("{a,b", ["{a", "b"]),
        ("{a,{b,c},d", ["{a", "{b,c}", "d"]),
        ("a},b", ["a}", "b"]),
        ("[a,b],c", ["[a,b]", "c"]),
        ("[!,],c", ["[!,]", "c"]),
        ("[],],c", ["[],]", "c"]),
        ("[a,b", ["[a", "b"]),
        (r"a\,b,c", [r"a\,b", "c"]),
        (r"\{a,b\}", [r"\{a", r"b\}"]),
        (r"{a\},b},c", [r"{a\},b}", "c"]),
        ("a\\", ["a\\"]),
        ("中,文 ", ["中", "文"]),
    ],
)
def test_commas_split_but_inside_braces_and_brackets(text: str, parts: list[str]) -> None:
    assert split_globs(text) == parts


@given(text=glob_text)
def test_nothing_but_commas_and_blanks_gets_lost(text: str) -> None:
    parts = split_globs(text)
    assert all(part == part.strip() and part for part in parts)
    assert "".join(",".join(parts).split()).replace(",", "") == "".join(text.split()).replace(",", "")


@given(parts=st.lists(st.sampled_from(["*.md", "a", "{a,b}", "[,]x", r"\,", "x/{y,{z,w}}"]), max_size=6))
def test_sound_parts_come_back(parts: list[str]) -> None:
    assert split_globs(" , ".join(parts)) == parts


def test_parts_are_globs_that_match() -> None:
    glob = compile_globs(split_globs("*.{md,py},docs/[ab].txt"), argument="includeGlob")
    assert glob is not None
    assert [glob(path) for path in ("x/a.md", "a.py", "docs/a.txt", "docs/c.txt")] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text", ["{" * 100_000, "[" * 100_000, "{a," * 50_000, "[a]" * 50_000, "\\" * 100_000, "," * 100_000]
)
def test_no_text_takes_long(text: str) -> None:
    split_globs(text)
