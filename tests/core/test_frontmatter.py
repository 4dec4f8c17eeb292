import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.core import frontmatter, plainyaml
from skillfs.core.frontmatter import HEAD_LIMIT, FrontMatter, read_front_matter

GOOD = "name: pdf\ndescription: Reads PDF files.\n"


def read(block: str, folder: str = "pdf", body: str = "# Title\n\nFirst words.\n") -> FrontMatter:
    return read_front_matter(f"---\n{block}---\n{body}".encode(), folder)


def faults(found: FrontMatter) -> list[tuple[str, str, int | None]]:
    return [(fault.code, fault.severity, fault.line) for fault in found.faults]


def codes(found: FrontMatter) -> set[str]:
    return {fault.code for fault in found.faults}


def test_every_specified_key():
    found = read(
        "name: pdf\ndescription: >-\n  Reads\n  PDF files.\nlicense: MIT\ncompatibility: Needs poppler\n"
        "metadata:\n  author: someone\n  version: 1.10\nallowed-tools: Bash(git add:*) Read\n"
    )
    assert found == FrontMatter(
        name="pdf",
        description="Reads PDF files.",
        license="MIT",
        compatibility="Needs poppler",
        metadata={"author": "someone", "version": "1.10"},
        allowed_tools=("Bash(git add:*)", "Read"),
        values={
            "name": "pdf",
            "description": "Reads PDF files.",
            "license": "MIT",
            "compatibility": "Needs poppler",
            "metadata": {"author": "someone", "version": "1.10"},
            "allowed-tools": "Bash(git add:*) Read",
        },
        faults=(),
        body_line=13,
    )


@pytest.mark.parametrize(
    ("head", "body_line"),
    [
        (f"---\n{GOOD}---\nbody", 5),
        (f"\ufeff---\n{GOOD}---\nbody", 5),
        (f"---\n{GOOD}---\nbody".replace("\n", "\r\n"), 5),
        (f"--- \t\n{GOOD}---\t \nbody", 5),
        (f"---\n{GOOD}---", 5),
        (f"---\n{GOOD}---\n\n---\n\nbody: x: y\n---\n", 5),
        (f"---\n{GOOD}x: |\n  ---\n  ----\n---\nbody", 8),
        (f"---\n{GOOD}# ----\n---\nbody", 6),
    ],
)
def test_fences(head, body_line):
    found = read_front_matter(head.encode(), "pdf")
    assert (found.name, found.description, found.body_line) == ("pdf", "Reads PDF files.", body_line)
    assert codes(found) <= {"unknown-key"}


@pytest.mark.parametrize("first", ["----", " ---", "--- x", "***", "\n---", "-- -", "\ufeff\ufeff---", "+++"])
def test_what_is_no_first_fence(first):
    found = read_front_matter(f"{first}\n{GOOD}---\nbody".encode(), "pdf")
    assert found.name is None
    assert found.values == {}
    assert found.body_line == 1
    assert ("frontmatter-missing", "warning", 1) in faults(found)


@pytest.mark.parametrize(
    ("head", "description", "expected"),
    [
        ("", "", {("frontmatter-missing", "warning"), ("description-missing", "error")}),
        ("\n\n# Only a title\n", "", {("frontmatter-missing", "warning"), ("description-missing", "error")}),
        ("\ufeff# T\n\nSome\nwords.\n\nMore.", "Some words.", {("frontmatter-missing", "warning")}),
        ("---", "", {("frontmatter-unclosed", "error")}),
        ("---\n", "", {("frontmatter-unclosed", "error")}),
        (f"---\n{GOOD}", "", {("frontmatter-unclosed", "error")}),
        (f"---\n{GOOD}----\n ---\n--- x\n", "", {("frontmatter-unclosed", "error")}),
        (f"---\n{GOOD}\n# Title\n\nWords.\n", "Words.", {("frontmatter-unclosed", "error")}),
        (f"---\n{GOOD}# Title\n\nWords.\n", "Words.", {("frontmatter-unclosed", "error")}),
        ("---\n---\nWords.", "Words.", {("name-missing", "warning"), ("description-missing", "error")}),
        ("---\n\n---\n", "", {("name-missing", "warning"), ("description-missing", "error")}),
        ("---\nA rule, and words\n---\nWords.", "Words.", {("frontmatter-yaml", "error")}),
    ],
)
def test_without_usable_front_matter(head, description, expected):
    found = read_front_matter(head.encode(), "pdf")
    assert found.name is None
    assert found.description == description
    assert {(fault.code, fault.severity) for fault in found.faults} == expected


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ("\n\nOne\ntwo\n\nthree", "One two"),
        ("# Title\nOne\n## Next\nTwo", "One"),
        ("Title\n=====\n\nOne", "One"),
        ("Title\n---\n\nOne", "One"),
        ("---\n***\n* * *\nOne", "One"),
        ("<!-- note -->\n<!--\nlong\n-->\nOne", "One"),
        ("```sh\nls\n\n```\nOne\n```\nx\n```", "One"),
        ("~~~\nnever closed\n", ""),
        ("  One  \r\n\ttwo\r\n\r\nthree", "One two"),
        ("x" * 1_024, "x" * 1_024),
        ("x" * 1_025, "x" * 1_023 + "…"),
        ("", ""),
    ],
)
def test_the_first_paragraph_stands_in_for_a_description(body, description):
    found = read("name: pdf\n", body=body)
    assert found.description == description
    assert faults(found) == [("description-missing", "error", None)]


@pytest.mark.parametrize(
    ("written", "name", "expected"),
    [
        ("pdf", "pdf", set()),
        ("pdf-2-go", "pdf-2-go", {"name-differs-from-folder"}),
        ("NO", "NO", {"name-invalid", "name-differs-from-folder"}),
        ("1.10", "1.10", {"name-invalid", "name-differs-from-folder"}),
        ("null", "null", {"name-differs-from-folder"}),
        ("2024-13-45", "2024-13-45", {"name-differs-from-folder"}),
        ("Pdf", "Pdf", {"name-invalid", "name-differs-from-folder"}),
        ("-pdf", "-pdf", {"name-invalid", "name-differs-from-folder"}),
        ("pdf-", "pdf-", {"name-invalid", "name-differs-from-folder"}),
        ("p--df", "p--df", {"name-invalid", "name-differs-from-folder"}),
        ("pdf٣", "pdf٣", {"name-invalid", "name-differs-from-folder"}),
        ("a/../b", "a/../b", {"name-invalid", "name-differs-from-folder"}),
        ("..", "..", {"name-invalid", "name-differs-from-folder"}),
        ('" pdf "', "pdf", set()),
        ("x" * 64, "x" * 64, {"name-differs-from-folder"}),
        ("x" * 65, "x" * 65, {"name-invalid", "name-differs-from-folder"}),
        ("x" * 255, "x" * 255, {"name-invalid", "name-differs-from-folder"}),
        ("x" * 256, None, {"name-invalid"}),
        ("x" * 10_000, None, {"name-invalid"}),
        ('"p\\ndf"', None, {"name-invalid"}),
        ('"p\\tdf"', None, {"name-invalid"}),
        ('"p\\0df"', None, {"name-invalid", "invisible-characters"}),
        ('"p\\e[31mdf"', None, {"name-invalid", "invisible-characters"}),
        ("p\u202edf", None, {"name-invalid", "invisible-characters"}),
        ("p\u200bdf", None, {"name-invalid", "invisible-characters"}),
        ("pdf\U000e0041", None, {"name-invalid", "invisible-characters"}),
        ("", None, {"name-missing"}),
        ('"  "', None, {"name-missing"}),
        ("[pdf]", None, {"wrong-type"}),
        ("{pdf: pdf}", None, {"wrong-type"}),
    ],
)
def test_names(written, name, expected):
    found = read(f"description: Reads PDF files.\nname: {written}\n")
    assert found.name == name
    assert faults(found) == [(code, "warning", 3) for code in sorted(expected)]


@pytest.mark.parametrize(
    ("name", "folder", "differs"),
    [
        ("pdf", "pdf", False),
        ("pdf", "Pdf", True),
        ("pdf", "", False),
        ("caf\u00e9", "cafe\u0301", False),
        ("cafe\u0301", "caf\u00e9", False),
        ("pdf", "\udcff", True),
    ],
)
def test_name_and_folder(name, folder, differs):
    found = read(f"name: {name}\ndescription: x\n", folder)
    assert ("name-differs-from-folder" in codes(found)) is differs
    # A message goes to terminals and into JSON, whatever the folder is called.
    assert all(fault.message.encode() for fault in found.faults)


@pytest.mark.parametrize(
    ("written", "description", "expected"),
    [
        ("Reads PDF files.", "Reads PDF files.", []),
        (
            "Configure the harness: Hooks",
            "Configure the harness: Hooks",
            [("frontmatter-yaml", "warning", 3)],
        ),
        ("|-\n  One\n  two", "One\ntwo", []),
        (">\n  One\n  two\n", "One two", []),
        ("x" * 1_024, "x" * 1_024, []),
        ("数" * 1_025, "数" * 1_025, [("description-too-long", "warning", 3)]),
        ("x" * 60_000, "x" * 60_000, [("description-too-long", "warning", 3)]),
        ("", "First words.", [("description-missing", "error", 3)]),
        ("'  '", "First words.", [("description-missing", "error", 3)]),
        ("[a, b]", "First words.", [("wrong-type", "error", 3)]),
        ("{a: b}", "First words.", [("wrong-type", "error", 3)]),
        ("a\u200bb", "a\u200bb", [("invisible-characters", "warning", 3)]),
        ("a\u202eb", "a\u202eb", [("invisible-characters", "warning", 3)]),
        ("a\U000e0062", "a\U000e0062", [("invisible-characters", "warning", 3)]),
        ('"a\\e[2J"', "a\x1b[2J", [("invisible-characters", "warning", 3)]),
        ("a\u200db", "a\u200db", [("invisible-characters", "warning", 3)]),
        ("\u200d", "\u200d", [("invisible-characters", "warning", 3)]),
        ("👩‍💻 می‌خواهم ☎️", "👩‍💻 می‌خواهم ☎️", []),
        ("tab\tand\u00a0blank", "tab\tand\u00a0blank", []),
    ],
)
def test_descriptions(written, description, expected):
    found = read(f"name: pdf\ndescription: {written}\n")
    assert found.description == description
    assert faults(found) == expected


def test_invisible_characters_of_the_text_are_named_too():
    found = read_front_matter("Wo\u202erds".encode(), "pdf")
    assert faults(found) == [("invisible-characters", "warning", None), ("frontmatter-missing", "warning", 1)]


@pytest.mark.parametrize(
    ("line", "attribute", "value", "expected"),
    [
        ("license: [MIT]", "license", None, [("wrong-type", "warning", 4)]),
        ("license: ", "license", None, []),
        ("compatibility: {a: b}", "compatibility", None, [("wrong-type", "warning", 4)]),
        ("compatibility: " + "x" * 500, "compatibility", "x" * 500, []),
        (
            "compatibility: " + "x" * 501,
            "compatibility",
            "x" * 501,
            [("compatibility-too-long", "warning", 4)],
        ),
        ("metadata:", "metadata", {}, []),
        ("metadata: x", "metadata", {}, [("wrong-type", "warning", 4)]),
        ("metadata: [x]", "metadata", {}, [("wrong-type", "warning", 4)]),
        ("metadata: {a: b, c: [d]}", "metadata", {"a": "b"}, [("wrong-type", "warning", 4)]),
        ("metadata: {a: 1.0, b: yes}", "metadata", {"a": "1.0", "b": "yes"}, []),
        ("allowed-tools: ", "allowed_tools", (), []),
        ("allowed-tools: A  B(c d) E", "allowed_tools", ("A", "B(c d)", "E"), []),
        (
            "allowed-tools: A, B(c, d:*),E",
            "allowed_tools",
            ("A", "B(c, d:*)", "E"),
            [("wrong-type", "info", 4)],
        ),
        ("allowed-tools: A(b c", "allowed_tools", ("A(b", "c"), []),
        ("allowed-tools: [A, B(c d)]", "allowed_tools", ("A", "B(c d)"), [("wrong-type", "warning", 4)]),
        ("allowed-tools: [A, {b: c}]", "allowed_tools", ("A",), [("wrong-type", "warning", 4)]),
        ("allowed-tools: {A: b}", "allowed_tools", (), [("wrong-type", "warning", 4)]),
        ("version: 1.0", "metadata", {}, [("unknown-key", "info", 4)]),
        ("License: MIT", "license", None, [("unknown-key", "info", 4)]),
        ("name: other", "name", "pdf", [("frontmatter-duplicate-key", "warning", 4)]),
    ],
)
def test_other_keys(line, attribute, value, expected):
    found = read(f"{GOOD}{line}\n")
    assert getattr(found, attribute) == value
    assert faults(found) == expected


def test_a_fault_has_its_line_in_the_file():
    found = read("# comment\nname: pdf\n\ndescription: a: b\nx: *y\nx: 1\nx: 2\n")
    assert faults(found) == [
        ("frontmatter-yaml", "warning", 5),
        ("frontmatter-yaml", "error", 6),
        ("unknown-key", "info", 7),
        ("frontmatter-duplicate-key", "warning", 8),
    ]


def test_keys_before_a_break_count_and_nothing_is_called_missing():
    found = read("name: pdf\nbroken\nallowed-tools: Read\n")
    assert found.name == "pdf"
    assert found.description == "First words."
    assert found.allowed_tools == ()
    assert faults(found) == [("frontmatter-yaml", "error", 3)]


@pytest.mark.parametrize(
    ("head", "complete", "name", "description"),
    [
        (b"\x7fELF\x02\x01\x00\x00\xff", True, None, ""),
        (b"---\n" + GOOD.encode("utf-16"), True, None, ""),
        (f"---\n{GOOD}---\n".encode("utf-16"), True, None, ""),
        (b"---\nname: pdf\ndescription: caf\xe9\n---\n", True, None, ""),
        (b"---\nname: p\0df\n---\nWords", True, None, ""),
        (b"---\nname: pdf\ndescription: x\n---\ncaf\xe9", True, "pdf", "x"),
        (b"---\nname: pdf\ndescription: x\n---\n\0", True, "pdf", "x"),
        (b"---\nname: pdf\n---\nWords \0", True, "pdf", ""),
        (b"---\nname: pdf\ndescription: x\n---\ncaf\xc3", True, "pdf", "x"),
    ],
)
def test_not_text(head, complete, name, description):
    found = read_front_matter(head, "pdf", complete=complete)
    assert (found.name, found.description) == (name, description)
    assert ("not-text", "error", None) in faults(found)
    assert "frontmatter-missing" not in codes(found)


def test_a_character_cut_at_the_end_of_the_head_is_no_fault():
    head = f"---\n{GOOD}---\n".encode() + "é".encode() * HEAD_LIMIT
    assert read_front_matter(head[:HEAD_LIMIT], "pdf", complete=False).faults == ()
    assert read_front_matter(head[: HEAD_LIMIT + 1], "pdf", complete=False).faults == ()


@pytest.mark.parametrize(
    ("block", "large"),
    [
        (f"{GOOD}x: {'y' * (64 * 1024 - len(GOOD) - 4)}\n", False),
        (f"{GOOD}x: {'y' * (64 * 1024 - len(GOOD) - 3)}\n", True),
        (f"{GOOD}x: {'é' * (32 * 1024 - len(GOOD) // 2)}\n", True),
        (GOOD + "#\n" * 998, False),
        (GOOD + "#\n" * 999, True),
        (GOOD + "x: " + "y" * 1_000_000 + "\n", True),
        (GOOD + "x: y\n" * 1_000_000, True),
    ],
)
def test_too_large(block, large):
    found = read(block)
    assert ("too-large" in codes(found)) is large
    assert (found.name is None) is large
    # What lies beyond the head changes nothing.
    head = f"---\n{block}---\n# Title\n\nFirst words.\n".encode()
    if len(head) > HEAD_LIMIT:
        assert read_front_matter(head[:HEAD_LIMIT], "pdf", complete=False) == found


def test_a_closing_fence_beyond_the_head_is_not_called_missing():
    head = f"---\n{GOOD}".encode() + b"# x\n" * 30_000
    assert codes(read_front_matter(head, "pdf")) == {"too-large"}
    assert codes(read_front_matter(head[:HEAD_LIMIT], "pdf", complete=False)) == {"too-large"}


def test_of_very_many_faults_every_error_is_kept():
    found = read("".join(f"k{i}: x\nk{i}: y\n" for i in range(200)))
    assert len(found.faults) == 64
    assert ("description-missing", "error", None) in faults(found)
    assert sum("more faults)" in fault.message for fault in found.faults) == 1


def test_the_documented_table_is_what_is_said():
    table = {
        tuple(cell.strip(" `") for cell in line.split("|")[1:3])
        for line in (frontmatter.__doc__ or "").splitlines()
        if line.startswith("| `")
    }
    said = set()
    for block in [
        "x: [a] b\ny: &a b\nz: 1\nz: 2\nname: [a]\ndescription: [b]\n",
        "words\n",
        "",
        f"name: A\ndescription: {'x' * 1_025}\u200b\ncompatibility: {'x' * 501}\nallowed-tools: a, b\n",
        "x: y\n" * 1_001,
    ]:
        said |= {(fault.code, fault.severity) for fault in read(block).faults}
    for head in [b"\0", b"", b"---\n"]:
        said |= {(fault.code, fault.severity) for fault in read_front_matter(head, "pdf").faults}
    assert said == table


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(f"---\n{LAUGHS}---\n".encode(), id="billion laughs"),
        pytest.param(b"---\na: " + b"[" * 20_000 + b"\n---\n", id="20,000 brackets"),
        pytest.param(
            b"---\n" + b"".join(b" " * i + b"a:\n" for i in range(3_000)) + b"---\n", id="3,000 deep"
        ),
        pytest.param(b"---\na: " + b"x" * 1_000_000 + b"\n---\n", id="1 MB scalar"),
        pytest.param(b"---\n" + b"a: b\n" * 1_000_000 + b"---\n", id="5 MB block"),
    ],
)
def test_hostile_front_matter_is_an_error_at_once(head):
    plainyaml.load("a: b")
    start = time.thread_time()
    found = read_front_matter(head, "x")
    # The aim is 10 ms for the first and 50 ms for all; the rest is room for a loaded machine.
    assert time.thread_time() - start < 0.2
    assert "error" in {fault.severity for fault in found.faults}


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"---\n" + b"\n---x" * 20_000, id="almost fences"),
        pytest.param(b"---\n" + (b"\n---" + b" " * 1_000 + b"x") * 70, id="fences with text far behind"),
        pytest.param(b"x\n" * 40_000, id="long paragraph"),
        pytest.param(b"<!--\n" * 20_000, id="comments"),
        pytest.param(b"---\nallowed-tools: " + b"(" * 60_000 + b"\n---\n", id="open parentheses"),
        pytest.param(b"---\nallowed-tools: " + b"(a " * 20_000 + b"\n---\n", id="open tools"),
        pytest.param(b"---\nname: " + b"a-" * 30_000 + b"\n---\n", id="long name"),
        pytest.param(b"---\ndescription: " + b"\xe2\x80\x8d" * 20_000 + b"\n---\n", id="joiners"),
        pytest.param(b"---\n" + b"".join(b"k%d: x\n" % i for i in range(999)) + b"---\n", id="many keys"),
    ],
)
def test_no_bytes_take_long(head):
    plainyaml.load("a: b")
    start = time.thread_time()
    read_front_matter(head, "x")
    assert time.thread_time() - start < 0.2


fences = st.sampled_from(
    [b"---\n", b"---\r\n", b"--- \n", b"\xef\xbb\xbf---\n", b"----\n", b"\n---\n", b"---"]
)
pieces = st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode(errors="surrogatepass"))
lines = st.sampled_from(
    [b"name: a\n", b"description: b: c\n", b"metadata:\n  a: b\n", b"allowed-tools: [a, b]\n"]
)


@settings(deadline=500, max_examples=300)
@given(st.lists(fences | pieces | lines, max_size=10).map(b"".join), st.text(max_size=10), st.booleans())
def test_any_bytes_are_read(head, folder, complete):
    found = read_front_matter(head, folder, complete=complete)
    assert found == read_front_matter(head, folder, complete=complete)
    for text in [found.name or "", found.description, *(fault.message for fault in found.faults)]:
        assert text.strip() == text
        text.encode()
    if found.name is not None:
        assert 0 < len(found.name) <= 255
        assert "\n" not in found.name
    assert all("\n" not in fault.message for fault in found.faults)
    assert 1 <= found.body_line <= head.count(b"\n") + 2


plain = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters="\ufffe\uffff"))


@given(
    st.from_regex(r"[a-z0-9]{1,20}(-[a-z0-9]{1,20}){0,2}", fullmatch=True),
    plain.map(str.strip).filter(bool),
    st.dictionaries(plain, plain, max_size=3),
)
def test_what_was_written_is_read(name, description, metadata):
    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    entries = "".join(f"  {quoted(key)}: {quoted(value)}\n" for key, value in metadata.items())
    found = read(f"name: {name}\ndescription: {quoted(description)}\nmetadata:\n{entries}", name)
    assert (found.name, found.description, found.metadata) == (name, description, metadata)
    assert codes(found) <= {"invisible-characters"}
