import shutil
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.core import textdiff
from skillfs.core.textdiff import unified_diff

texts = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "d\u2028\x0c\n"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["".join(lines), "".join(lines) + "end"])
)


def applied(old: str, diff: str) -> str:
    """What a diff makes of a text, by the rules of the format alone."""
    lines = [line + "\n" for line in old.split("\n")]
    lines[-1] = lines[-1][:-1]
    if not lines[-1]:
        lines.pop()
    made, at = [], 0
    told = diff.split("\n")[2:-1]
    for number, line in enumerate(told):
        ended = "" if told[number + 1 : number + 2] == ["\\ No newline at end of file"] else "\n"
        if line.startswith("@@"):
            start, _, count = line.split(" ")[1][1:].partition(",")
            begin = int(start) - (count != "0")
            made += lines[at:begin]
            at = begin
        elif line[0] in " -":
            assert lines[at] == line[1:] + ended
            at += 1
        if line[0] in " +":
            made.append(line[1:] + ended)
    return "".join(made + lines[at:])


@settings(deadline=None)
@given(texts, texts, st.integers(0, 4))
def test_a_diff_makes_the_new_text_of_the_old_one(old, new, context):
    diff = unified_diff(old, new, "a", "b", context)
    assert (diff == "") == (old == new)
    assert applied(old, diff) == new


@settings(deadline=None)
@given(texts, texts, st.integers(0, 3), st.integers(0, 2))
def test_so_it_does_where_much_differs(old, new, changed, levels):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textdiff, "_MOST_CHANGED", changed)
        patch.setattr(textdiff, "_MOST_LEVELS", levels)
        assert applied(old, unified_diff(old, new, "a", "b")) == new


def fewest(old: list[str], new: list[str]) -> int:
    """How many lines have to go or come, as it is defined."""
    row = list(range(len(new) + 1))
    for line in old:
        before, row[0] = row[0], row[0] + 1
        for at, other in enumerate(new, 1):
            before, row[at] = row[at], before if line == other else 1 + min(row[at], row[at - 1])
    return row[-1]


@settings(deadline=None)
@given(texts, texts)
def test_few_changes_are_the_fewest(old, new):
    told = unified_diff(old, new, "a", "b").split("\n")[2:]
    changed = [line for line in told if line[:1] in ("-", "+")]
    assert len(changed) == fewest(textdiff._lines(old), textdiff._lines(new))


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "a\n"),
        ("a\n", ""),
        ("a", "a\n"),
        ("a\nb\nc\n", "a\nc"),
        ("x\n" * 50, "x\n" * 20 + "y\n" + "x\n" * 29),
    ],
)
def test_patch_takes_it(tmp_path, old, new):
    (tmp_path / "f").write_text(old)
    diff = unified_diff(old, new, "a/f", "b/f")
    subprocess.run(["patch", "-s", "f"], cwd=tmp_path, input=diff.encode(), check=True, timeout=20)
    assert (tmp_path / "f").read_text() == new if new else not (tmp_path / "f").read_text()


def test_of_a_text_that_is_not_there_all_is_new():
    assert unified_diff(None, "a\nb", "a/f", "b/f") == (
        "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    )
    assert unified_diff("a\n", None, "a/f", "b/f") == "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert unified_diff(None, "", "a/f", "b/f") == "--- /dev/null\n+++ b/f\n"


@pytest.mark.parametrize("kind", ["doubled", "reversed", "another", "repeated"])
def test_no_two_texts_take_long(kind):
    size = 20_000
    old = [f"{n}\n" for n in range(size)]
    new = {
        "doubled": [line for n in old for line in (n, "\n")],
        "reversed": old[::-1],
        "another": [f"x{line}" for line in old],
        "repeated": [f"{n % 7}\n" for n in range(size)],
    }[kind]
    if kind == "repeated":
        old = [f"{n % 5}\n" for n in range(size)]
    started = time.monotonic()
    diff = unified_diff("".join(old), "".join(new), "a", "b")
    assert time.monotonic() - started < 20
    assert applied("".join(old), diff) == "".join(new)
