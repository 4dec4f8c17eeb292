from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import timeit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillfs.core.globs import MAX_PATTERN_CHARACTERS, MAX_PATTERNS, compile_globs
from skillfs.errors import InvalidArgumentError


def matches(patterns, path):
    """Match a path, of which a trailing `/` says that it is a folder."""
    glob = compile_globs(patterns, argument="include")
    assert glob is not None
    return glob(path.rstrip("/"), path.endswith("/"))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.md", ["a.md", "x/a.md", "x/y/.md", "dir.md/"], ["a.MD", "a.md.txt", "a.md/x", "amd"]),
        ("SKILL.md", ["SKILL.md", "x/SKILL.md"], ["skill.md", "SKILL.md/x", "xSKILL.md"]),
        ("*", ["a", ".hidden", "x/y", "x/", "[a]", "-"], []),
        ("?", ["a", "é", "😀", "x/a"], ["ab", "e\u0301"]),
        (".claude/agents/*.md", [".claude/agents/a.md", ".claude/agents/.b.md"], ["x/.claude/agents/a.md"]),
        ("references/*.md", ["references/a.md"], ["references/x/a.md", "x/references/a.md", "references/a"]),
        ("references/*", ["references/a.md", "references/x/"], ["references/", "references/x/a.md"]),
        ("/a", ["a", "a/"], ["x/a", "a/b"]),
        ("./a", ["a", "a/"], ["x/a"]),
        ("/*.md", ["a.md"], ["x/a.md"]),
        ("a/", ["a/", "x/a/"], ["a", "x/a", "a/b"]),
        ("/a/", ["a/"], ["a", "x/a/"]),
        ("a/b/", ["a/b/"], ["a/b", "x/a/b/"]),
        ("*/", ["a/", "x/a/"], ["a", "x/a"]),
        (
            "src/**/*.py",
            ["src/a.py", "src/x/a.py", "src/x/y/a.py"],
            ["a.py", "x/src/a.py", "src", "src/a.pyc"],
        ),
        ("**/*.py", ["a.py", "src/x/a.py", ".x/.a.py"], ["a.pyc", "a.py/x"]),
        ("**/a/*", ["a/b", "x/a/b"], ["a", "a/b/c", "xa/b"]),
        ("a/**", ["a/b", "a/b/c", "a/b/"], ["a", "a/", "ab/c", "x/a/b"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a", "b", "a/bx", "ab"]),
        ("**/a/**", ["a/b", "x/a/b/c"], ["a", "x/a", "b"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/c", "a/b/b/c", "a/b/c/c"], ["a/c", "a/c/b", "a/x/c"]),
        ("a/**/b/**/b", ["a/b/b", "a/b/x/b"], ["a/b"]),
        ("**/b/c/**/c/d", ["b/c/c/d", "b/b/c/x/c/d"], ["b/c/d"]),
        ("**/**/a", ["a", "x/a", "x/y/a"], ["ab"]),
        ("**", ["a", "a/b", "x/"], []),
        ("**/", ["a/", "a/b/"], ["a", "a/b"]),
        ("a**b", ["ab", "axxb", "x/axb"], ["a/b"]),
        ("**a/x", ["a/x", "ba/x"], ["b/a/x"]),
        ("[ab].md", ["a.md", "x/b.md"], ["c.md", "[ab].md"]),
        ("[!a]", ["b", "!"], ["a", "ab"]),
        ("[^a]", ["b", "^"], ["a"]),
        ("[a-c]x", ["bx"], ["dx", "-x"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[:digit:]]*", ["8004"], ["a1"]),
        ("[z-a]", [], ["z", "a"]),
        ("[a", ["[a"], ["a"]),
        ("a]", ["a]"], ["a"]),
        ("a[/]b", ["a[/]b"], ["a/b"]),
        (r"\[a\].md", ["[a].md", "x/[a].md"], ["a.md"]),
        ("[[]a[]].md", ["[a].md"], ["a.md"]),
        (r"a\*", ["a*"], ["ab", r"a\b"]),
        (r"a\\b", [r"a\b"], ["ab", "a/b"]),
        (r"a\b", ["ab"], [r"a\b", "a/b"]),
        ("a\\", ["a\\"], ["a"]),
        ("a\\\\", ["a\\"], ["a"]),
        (r"a\/b", ["a/b"], [r"a\/b"]),
        ("a//b", ["a/b"], []),
        ("a/./b", ["a/b"], []),
        ("*.{md,txt}", ["a.md", "x/a.txt"], ["a.py", "a.{md,txt}"]),
        ("{a,b/c}", ["a", "x/a", "b/c"], ["x/b/c", "c"]),
        ("{a,{b,c}}.md", ["a.md", "b.md", "c.md"], ["d.md"]),
        ("x{,y}", ["x", "xy"], ["xz"]),
        ("{,a}", ["a"], ["b"]),
        ("f{1..3}", ["f1", "f3"], ["f4", "f"]),
        (r"\{a,b\}", ["{a,b}"], ["a"]),
        ("{a}", ["{a}"], ["a"]),
        ("a,b", ["a,b"], ["a", "b"]),
        ("*.md,*.txt", ["a.md,b.txt"], ["a.md"]),
        ("!a", ["!a"], ["a", "b"]),
        ("-rf", ["-rf"], []),
        ("~/x", ["~/x"], []),
        ("@(a|b)", ["@(a|b)"], ["a"]),
        ("#a", ["#a"], ["a"]),
        ("a|b", ["a|b"], ["a"]),
        (" ", [" "], [""]),
        ("é*", ["éa"], ["ea"]),
        ("a*", ["a\nb", "a\u2028"], ["\na"]),
        ("a?b", ["a\nb"], []),
        ("a", [], ["a\n", "\na"]),
    ],
)
def test_what_a_pattern_matches(pattern, yes, no):
    assert [path for path in yes if not matches(pattern, path)] == []
    assert [path for path in no if matches(pattern, path)] == []


def test_one_of_several_has_to_match():
    several = ["*.md", "/scripts/**", "assets/"]
    assert matches(several, "x/a.md")
    assert matches(several, "scripts/a.py")
    assert matches(several, "x/assets/")
    assert not matches(several, "x/assets")
    assert not matches(several, "x/scripts/a.py")
    assert matches(tuple(several), "a.md")


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_no_patterns_are_no_filter(nothing):
    assert compile_globs(nothing, argument="include") is None


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        ("", "is empty"),
        (["*.md", ""], "is empty"),
        ("/", "nothing below"),
        (".", "nothing below"),
        ("./", "nothing below"),
        ("..", r'no "\.\."'),
        ("../*.md", r'no "\.\."'),
        ("a/../b", r'no "\.\."'),
        ("{a,..}/b", r'no "\.\."'),
        ("a\0", "control character"),
        ("a\n", "control character"),
        ("a\x85", "control character"),
        ("\ud800", "unpaired surrogate"),
        ("é" * (MAX_PATTERN_CHARACTERS + 1), "over 1,024 characters"),
        ("a" * 10**6, "over 1,024 characters"),
        (["*"] * (MAX_PATTERNS + 1), "more than 256"),
        (["*.md"] * 10_000, "more than 256"),
        ("{a,b}" * 9, "more than 256"),
        ("{a,b}" * 32, "more than 256"),
        ("{1..1000000000}", "more than 256"),
        (["{a,b}" * 8] * 2, "more than 256"),
        (["a" * 1000] * 20, "16,384 characters"),
        ("{a,b}" * 7 + "a" * 900, "16,384 characters"),
        ("{" * 33, "more than 32"),
        ("{" * 500 + "," + "}" * 500, "more than 32"),
        (7, "not 7"),
        (b"*.md", "a bytes"),
        ({"*.md"}, "a set"),
        ({"a": 1}, "a dict"),
        (["*.md", 7], "not 7"),
        (["*.md", None], "a NoneType"),
        ([["*.md"]], "a list"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_refused_patterns_name_the_argument_quickly(patterns, reason):
    def refuse():
        with pytest.raises(InvalidArgumentError, match=reason) as caught:
            compile_globs(patterns, argument="excludeGlob")
        assert str(caught.value).startswith("excludeGlob")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500

    assert min(timeit.repeat(refuse, number=1, repeat=3)) < 0.1


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 300 + "*b", "a" * 255),
        ("*?a" * 300 + "b", "a" * 255),
        ("?*" * 300 + "b", "a" * 255),
        ("*[ab]" * 100 + "c", "a" * 255),
        ("[!b]*" * 100 + "b", "a" * 255),
        ("*" * 1000 + "b", "a" * 255),
        ("*{a,b}" * 8 + "c", "a" * 255),
        ("**/" * 300 + "x", "a/" * 2000 + "b"),
        ("**/a/" * 100 + "x", "a/" * 2000 + "b"),
        ("**/*a*/" * 100 + "x", "aa/" * 1300 + "b"),
        ("**/*a*b/" * 50 + "**/x", "aa/" * 1300 + "x"),
        ("a/**/" * 100 + "x", "a/" * 2000 + "b"),
        ("**/a/a/a/a/a/a/a/b/**/x", "a/" * 2000 + "x"),
        ("*/" * 500 + "x", "a/" * 2000 + "b"),
    ],
    ids=lambda value: value[:20],
)
def test_no_pattern_backtracks(pattern, path):
    glob = compile_globs(pattern, argument="include")
    assert glob is not None
    assert not glob(path)
    # Measured under 1 ms, most of them under 0.1; backtracking would take from seconds to years.
    assert min(timeit.repeat(lambda: glob(path), number=1, repeat=3)) < 0.05


@pytest.mark.parametrize(
    "unit", ["[", "[a-", "[[:alpha:]", "[!]", "\\", "\\[", "*[a]", "?", "{", "{a,", "(", "+", "]-["]
)
def test_odd_patterns_compile_quickly(unit):
    pattern = unit * (MAX_PATTERN_CHARACTERS // len(unit)) if "{" not in unit else unit * 32
    assert min(timeit.repeat(lambda: compile_globs(pattern, argument="include"), number=1, repeat=3)) < 0.2


letters = "ab.[]{}*?!-^\\, "
file_names = st.text(letters + "é", min_size=1, max_size=6).filter(lambda name: name not in {".", ".."})


shell_tokens = st.sampled_from(
    ["a", "b", ".", "-", "!", "]", " ", "*", "?", "[ab]", "[!a]", "[ ]", "[a-c]", "[]b]"]
)


@given(
    st.lists(shell_tokens, min_size=1, max_size=8).map("".join).filter(lambda text: text not in {".", ".."}),
    st.text("ab.] -", min_size=1, max_size=8).filter(lambda name: name not in {".", ".."}),
)
@example("*a*b", "abab")
@example("*a*ab", "aab")
def test_agrees_with_fnmatch_on_one_component(pattern, name):
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@given(file_names)
def test_an_escaped_name_matches_itself_alone(name):
    escaped = re.sub(r"(\W)", r"\\\1", name)
    assert matches(escaped, name)
    assert matches(f"x/{escaped}", f"x/{name}")
    assert not matches(escaped, name + "a")
    assert not matches(escaped, "a" + name)


# A pattern as a list of components, each a list of (text of the token, the characters it matches one of); a
# component None is "**".
ANY = ("?", None)
STAR = ("*", None)
tokens = st.one_of(
    st.sampled_from(letters).map(lambda char: (f"\\{char}", char)),
    st.sampled_from([STAR, ANY, ("a", "a"), ("[ab]", "ab"), ("[a-c]", "abc"), (r"[\]]", "]"), ("[]]", "]")]),
)
components = st.one_of(
    st.none(),
    st.lists(tokens, min_size=1, max_size=5).filter(lambda component: component != [STAR, STAR]),
)


def name_matches(component, name):
    if not component:
        return not name
    (_, accepted), rest = component[0], component[1:]
    if component[0] is STAR:
        return any(name_matches(rest, name[at:]) for at in range(len(name) + 1))
    return bool(name) and (accepted is None or name[0] in accepted) and name_matches(rest, name[1:])


def path_matches(pattern, names):
    if not pattern:
        return not names
    if pattern[0] is None:
        if len(pattern) == 1:
            return bool(names)
        return any(path_matches(pattern[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and name_matches(pattern[0], names[0]) and path_matches(pattern[1:], names[1:])


def draw_name(draw, component):
    """Draw a name, more often than not one that the component is likely to match."""
    pieces = st.text("ab.]", max_size=2)
    made = [
        draw(pieces) if part is STAR else draw(st.sampled_from(part[1] or "ab"))
        for part in component or [STAR]
    ]
    return "".join(made) if draw(st.integers(0, 4)) else draw(pieces)


@st.composite
def patterns_and_paths(draw):
    pattern = draw(st.lists(components, min_size=1, max_size=6))
    names = []
    for component in pattern:
        repeat = 1 if component is not None else draw(st.integers(0, 2))
        names += [draw_name(draw, component) for _ in range(repeat)]
    return pattern, [name if name not in {"", ".", ".."} else "a" for name in names] or ["a"]


@given(patterns_and_paths())
@example(([None, [("b", "b")], None, [("b", "b")]], ["b"]))
@example(([[STAR, ("a", "a"), STAR, ("a", "a"), ANY]], ["aaa"]))
def test_agrees_with_trying_everything(pattern_and_path):
    pattern, names = pattern_and_path
    written = ["**" if part is None else "".join(text for text, _ in part) for part in pattern]
    assert matches("/" + "/".join(written), "/".join(names)) == path_matches(pattern, names)


@given(
    st.one_of(st.text(max_size=20), st.lists(st.text("ab{}[],*?!\\/.:-^|()@+", max_size=20), max_size=4)),
    st.lists(file_names, min_size=1, max_size=3).map("/".join),
)
def test_any_patterns_are_compiled_or_refused(patterns, path):
    try:
        glob = compile_globs(patterns, argument="include")
    except InvalidArgumentError:
        return
    assert glob is None or glob(path) in {True, False}


def test_importing_does_not_load_the_libraries():
    code = "import sys, skillfs.core.globs; assert not {'wcmatch', 'bracex'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
