"""Payloads: what is allowed, what is found, how much is answered, and that nothing in one makes them fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs import InvalidArgumentError, SkillFileSystem
from skillfs.tools import Payload, call, parse_payload, run_payload
from skillfs.tools.json_text import MOST_CHARACTERS as MOST_TEXT
from skillfs.tools.json_text import Repair
from tests.conftest import skill_md, write

MEMBERS = [
    *("action", "success", "content", "entries", "error", "truncated", "next", "sequential"),
    *("request", "repairs", "metadata"),
]
PAGE = 50_000
LONG = "".join(f"line {number} ✓ 数据\r\n" for number in range(1, 20_001))
WIDE = "é" * 120_000 + "\nlast"
LINES = "one\ntwö\n\nfour 😀\nfive"

FILES: dict[str, str | bytes] = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/scripts/Makefile": "all:\n",
    "pdf/scripts/run/run": "in a folder of its own name\n",
    "pdf/references/forms.md": LINES,
    "pdf/references/SKILL.md.md": "no skill\n",
    "pdf/8004": "digits\n",
    "pdf/e\u0301.md": "composed\n",
    "pdf/.hidden": "dot\n",
    "pdf/empty": "",
    "pdf/long.txt": LONG,
    "pdf/wide.txt": WIDE,
    "pdf/mixed.txt": "short\n" + "x" * 60_000 + "\n\né",
    "pdf/utf16.txt": LINES.encode("utf-16"),
    "pdf/latin.txt": LINES.replace("😀", "").encode("latin-1"),
    "pdf/seven.txt": b"+2AA-\n",
    "pdf/image.png": b"\x89PNG\0",
    "web/SKILL.md": skill_md("web"),
    "outside.txt": "in no skill",
}


@pytest.fixture(scope="module")
def fs(tmp_path_factory: pytest.TempPathFactory) -> SkillFileSystem:
    root = write(tmp_path_factory.mktemp("payloads"), FILES)
    (root / "pdf" / "link.md").symlink_to("references/forms.md")
    (root / "pdf" / "refs").symlink_to("references")
    (root / "pdf" / "passwd").symlink_to("/etc/passwd")
    return SkillFileSystem(root, index=":memory:", skip_instance_cache=True)


def payload(action: str = "read_file", **properties: str) -> dict[str, Any]:
    return {"action": action, "properties": [{"name": n, "value": v} for n, v in properties.items()]}


def checked(result: dict[str, Any]) -> dict[str, Any]:
    """A result, of which everything is checked that holds for all of them."""
    assert list(result) == MEMBERS
    json.dumps(result, allow_nan=False).encode()
    json.dumps(result, ensure_ascii=False).encode()
    failed = result["error"] is not None
    assert result["success"] is not failed
    if failed:
        assert result["error"]["code"]
        assert result["error"]["message"]
        assert (result["content"], result["entries"], result["next"], result["sequential"]) == (None,) * 4
    assert result["content"] is None or result["entries"] is None
    assert result["content"] is None or len(result["content"]) <= PAGE
    assert not (result["next"] and not result["truncated"])
    return result


def run(fs: SkillFileSystem, given: object, **options: Any) -> dict[str, Any]:
    return checked(run_payload(fs, given, **options))


def read(fs: SkillFileSystem, **properties: str) -> dict[str, Any]:
    result = run(fs, payload(**properties))
    assert result["error"] is None
    return result


def code(fs: SkillFileSystem, given: object, **options: Any) -> str:
    result = run(fs, given, **options)
    assert result["error"] is not None, result
    return f"{result['error']['code']}: {result['error']['message']}"


# -- what is allowed ---------------------------------------------------------------------------------------


def test_it_is_shown_with_what_holds_for_what_is_left_out() -> None:
    given = {**payload(filePath="pdf", startLine="3"), "thinking": "hm", "sequential": {"prompt": "and then"}}
    arguments = {
        "filePath": "pdf", "fileName": None, "encoding": "utf-8", "maxBytes": 0, "startLine": 3, "endLine": 0,
        "description": None,
    }  # fmt: skip
    parsed = parse_payload(given)
    assert parsed == Payload("read_file", arguments, "hm", "and then", ())
    assert parse_payload(f"So:\n```json\n{json.dumps(given, indent=1)}\n```\n") == parsed
    assert parsed.to_dict() == {
        "action": "read_file", "arguments": arguments, "thinking": "hm", "sequential": {"prompt": "and then"},
        "repairs": [],
    }  # fmt: skip
    assert parse_payload({"action": "list_files"}).arguments == {
        "directoryPath": "./", "recursive": False, "includeHidden": False, "includeGlob": "*",
        "excludeGlob": "", "showDetails": False, "maxResults": 500, "description": None, "sequential": None,
        "cursor": None,
    }  # fmt: skip


def test_what_was_mended_is_told(fs: SkillFileSystem) -> None:
    text = '{"action": "read_file" "properties": [{"name": "filePath", "value": "pdf/empty",}]}'
    repairs = (Repair("missing comma", 1, 23), Repair("trailing comma", 1, 80))
    assert parse_payload(text).repairs == repairs
    result = run(fs, text)
    assert result["content"] == ""
    assert result["repairs"] == [
        {"fault": "missing comma", "line": 1, "column": 23},
        {"fault": "trailing comma", "line": 1, "column": 80},
    ]


PROPERTY = {"name": "filePath", "value": "x"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "a payload is a JSON object, or text that holds one, not a NoneType"),
        (b"{}", "not a bytes"),
        ([{"action": "read_file"}], "not a list"),
        (7, "not 7"),
        ({}, "action must be text in double quotes, not null, or nothing"),
        ({"action": None}, "action must be text"),
        ({"action": 5}, "action must be text in double quotes, not 5"),
        ({"action": "Read_File"}, 'there is no action "Read_File"; use read_file or list_files'),
        ({"action": "read_file", "Thinking": ""}, 'no member "Thinking"; did you mean thinking?'),
        ({"action": "read_file", 7: ""}, "no member 7; it takes action, thinking, seq"),
        ({"action": "list_files", "thinking": None}, "thinking must be text in double quotes, not null"),
        ({"action": "list_files", "sequential": "go on"}, "sequential must be an object with a prompt, not"),
        ({"action": "list_files", "sequential": None}, "or leave it out"),
        ({"action": "list_files", "sequential": {}}, "the prompt of sequential must be text"),
        ({"action": "list_files", "sequential": {"prompt": "a", "x": 1}}, 'sequential takes no member "x"'),
        ({"action": "list_files", "properties": {"name": "a"}}, "properties must be a list, not a dict"),
        ({"action": "list_files", "properties": "x"}, "properties must be a list"),
        ({"action": "list_files", "properties": [["recursive", "true"]]}, "property 1 must be an object"),
        ({"action": "read_file", "properties": [PROPERTY, {"name": "x"}]}, 'takes no argument "x"'),
        ({"action": "read_file", "properties": [{"value": "x"}]}, "the name of property 1 must be text"),
        ({"action": "read_file", "properties": [{"name": "filePath"}]}, "the value of filePath must be text"),
        ({"action": "read_file", "properties": [{"name": "startLine", "value": 5}]}, "not 5"),
        ({"action": "list_files", "properties": [{"name": "recursive", "value": True}]}, "not a bool"),
        ({"action": "read_file", "properties": [{**PROPERTY, "type": "s"}]}, 'takes no member "type"'),
        ({"action": "read_file", "properties": [PROPERTY, PROPERTY]}, 'the property "filePath" stands twice'),
        (payload(filePath="x", filepath="y"), 'takes no argument "filepath"; did you mean filePath?'),
        (payload(filePath="x", directoryPath="y"), 'read_file takes no argument "directoryPath"'),
        (payload("list_files", filePath="y"), 'list_files takes no argument "filePath"'),
        (payload("list_files", basePathIds="y"), 'list_files takes no argument "basePathIds"'),
        (payload(), "read_file needs filePath"),
        (payload(fileName=""), "read_file needs filePath"),
        (payload(filePath=""), 'filePath: the reference is empty; the root of the store is "/"'),
        (payload("list_files", directoryPath="a//b"), "directoryPath: component 2 of the path"),
        (payload(filePath="pdf", fileName="/x.md"), 'fileName "/x.md" cannot follow on filePath; send'),
        (payload(filePath="pdf", fileName="./x.md"), 'fileName "./x.md" cannot follow on filePath'),
        (payload(filePath="pdf", fileName="../x"), 'fileName "../x" cannot follow on filePath'),
        (payload(filePath="a", encoding="klingon"), 'unknown encoding "klingon"'),
        (payload(filePath="a", encoding="hex"), "is no encoding of text files"),
        (payload(filePath="a", startLine="0"), "startLine must be 1 or more"),
        (payload(filePath="a", startLine="5", endLine="4"), "endLine is before startLine"),
        (payload(filePath="a", maxBytes="-1"), 'maxBytes must be a number in digits alone, such as "20"'),
        (payload(filePath="a", maxBytes="9" * 641), "maxBytes has over 640 digits"),
        (payload("list_files", maxResults="0"), "maxResults must be 1 or more"),
        (payload("list_files", maxResults="5001"), "maxResults must be 5,000 or less"),
        (payload("list_files", includeGlob="../*"), "includeGlob: the pattern"),
        (payload("list_files", excludeGlob="{a,b"), ""),
        (payload("list_files", includeGlob="a\0"), "includeGlob: the pattern"),
        (payload(filePath="a\ud800"), "the value of filePath holds an unpaired surrogate"),
        ({"action": "list_files", "thinking": "x" * (MOST_TEXT + 1)}, "thinking has over 1,048,576"),
        ({**payload("list_files", sequential="a"), "sequential": {"prompt": "b"}}, "two prompts; send one"),
        ('{"action": "list_files", "properties": []} {"action": "list_files"}', "two objects have a member"),
        ("{'action': 'list_files'}", "line 1, column 2"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_name(fs: SkillFileSystem, given: object, message: str) -> None:
    if not message:  # a brace that is never closed is an ordinary character
        assert run(fs, given)["success"]
        return
    with pytest.raises(InvalidArgumentError) as caught:
        parse_payload(given)
    assert message in caught.value.message
    answer = code(fs, given)
    assert answer == f"invalid_argument: {caught.value.message}"
    assert answer == code(fs, given, dry_run=True)


@pytest.mark.parametrize("name", ["maxBytes", "startLine", "endLine"])
@pytest.mark.parametrize(
    "value",
    ["", " ", "007", " 5", "5 ", "5\n", "+5", "-5", "5.0", "5e1", "0x5", "1_0", "\uff11", "٣", "²", "five"],
)
def test_numbers_are_strict(fs: SkillFileSystem, name: str, value: str) -> None:
    assert f"invalid_argument: {name} must be a number in digits" in code(
        fs, payload(filePath="pdf/empty", **{name: value})
    )


@pytest.mark.parametrize("value", ["", "True", "FALSE", "1", "0", "yes", " true", "null"])
def test_booleans_are_strict(fs: SkillFileSystem, value: str) -> None:
    for name in ("recursive", "includeHidden", "showDetails"):
        given = payload("list_files", **{name: value})
        assert f'invalid_argument: {name} must be "true" or "false"' in code(fs, given)


def test_what_may_be_blank_is_as_if_it_were_not_there(fs: SkillFileSystem) -> None:
    given = {**payload(filePath="pdf/empty", fileName="", description=""), "sequential": {"prompt": " "}}
    result = run(fs, given)
    assert result["content"] == ""
    assert result["sequential"] is None
    assert result["request"]["sequential"] is None
    given = payload("list_files", cursor="", description=" ", sequential="", includeGlob="", excludeGlob="")
    assert run(fs, given)["metadata"]["total"] == 2


def test_a_dry_run_reads_nothing() -> None:
    given = payload(filePath="s3://bucket/x", endLine="9" * 30)
    result = checked(run_payload(None, given, dry_run=True))
    assert result["success"]
    assert result["request"]["arguments"]["filePath"] == "s3://bucket/x"
    assert result["request"]["arguments"]["endLine"] == int("9" * 30)
    assert (result["content"], result["entries"], result["metadata"]) == (None, None, None)
    assert checked(run_payload(None, given))["error"]["code"] == "invalid_argument"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["filePath", "fileName", "encoding", "maxBytes", "startLine", "endLine", "recursive",
                         "directoryPath", "includeGlob", "cursor", "sequential"])  # fmt: skip
values = st.text(max_size=8) | st.sampled_from(
    [
        "pdf",
        "pdf/SKILL.md",
        "0",
        "1",
        "3",
        "true",
        "utf-16",
        "*.md",
        "..",
        "/",
        "web",
        "\ud800",
        "a\0",
        "x" * 300,
    ]
)
properties = st.lists(
    st.fixed_dictionaries({"name": names | st.text(max_size=5), "value": values}), max_size=4
)
envelopes = st.fixed_dictionaries(
    {"action": st.sampled_from(["read_file", "list_files"])},
    optional={
        "properties": properties | json_values,
        "thinking": st.text(max_size=5) | json_values,
        "sequential": st.fixed_dictionaries({"prompt": st.text(max_size=5)}) | json_values,
    },
)


@given(json_values | envelopes | st.text())
def test_nothing_in_a_payload_raises(fs: SkillFileSystem, given: object) -> None:
    result = run(fs, given)
    if not isinstance(given, str):
        assert run(fs, json.dumps(given))["success"] in (result["success"], False)


# -- which file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "found"),
    [
        ("pdf", "SKILL.md", "pdf/SKILL.md"),
        ("pdf/", "SKILL.md", "pdf/SKILL.md"),
        ("./pdf/", "SKILL.md", "pdf/SKILL.md"),
        ("/pdf", "SKILL.md", "pdf/SKILL.md"),
        ("skill://pdf", "SKILL.md", "pdf/SKILL.md"),
        ("name:pdf", "SKILL.md", "pdf/SKILL.md"),
        ("pdf/SKILL.md", "SKILL.md", "pdf/SKILL.md"),
        ("pdf/SKILL.md", None, "pdf/SKILL.md"),
        ("pdf/SKILL.md", "", "pdf/SKILL.md"),
        ("pdf/scripts", "Makefile", "pdf/scripts/Makefile"),
        ("pdf/scripts/Makefile", "Makefile", "pdf/scripts/Makefile"),
        ("pdf/scripts/Makefile", "scripts/Makefile", "pdf/scripts/Makefile"),
        ("pdf", "scripts/Makefile", "pdf/scripts/Makefile"),
        ("pdf/scripts/run", "run", "pdf/scripts/run/run"),
        ("pdf/scripts/run/run", "run", "pdf/scripts/run/run"),
        ("pdf", ".hidden", "pdf/.hidden"),
        ("pdf", "8004", "pdf/8004"),
        ("pdf/e\u0301.md", "é.md", "pdf/e\u0301.md"),
        ("pdf/é.md", "e\u0301.md", "pdf/e\u0301.md"),
        ("pdf/link.md", "link.md", "pdf/references/forms.md"),
        ("pdf/link.md", "forms.md", "pdf/references/forms.md"),
        ("pdf/refs", "forms.md", "pdf/references/forms.md"),
        ("./", "pdf/SKILL.md", "pdf/SKILL.md"),
        (None, "pdf/SKILL.md", "pdf/SKILL.md"),
    ],
)
def test_the_file_is_found(fs: SkillFileSystem, path: str | None, name: str | None, found: str) -> None:
    given = {k: v for k, v in {"filePath": path, "fileName": name}.items() if v is not None}
    result = read(fs, **given)
    assert result["metadata"]["path"] == found
    assert result["content"].encode() == fs.cat_file(found)
    for ref in (result["metadata"]["uuid"], f"md5:{result['metadata']['hash']}"):
        assert read(fs, filePath=ref)["content"] == result["content"]


def test_folders_by_identity(fs: SkillFileSystem) -> None:
    entry = fs.entry("pdf")
    for ref in (entry.uuid, str(entry.id)):
        assert read(fs, filePath=ref, fileName="SKILL.md")["metadata"]["path"] == "pdf/SKILL.md"


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("pdf", None, "is_folder"),
        ("pdf/scripts", "run", "is_folder"),
        ("./", None, "is_folder"),
        ("pdf/SKILL.md", "forms.md", "is_file"),
        ("pdf/SKILL.md", "L.md", "is_file"),
        ("pdf/references/SKILL.md.md", "SKILL.md", "is_file"),
        ("pdf", "missing", "not_found"),
        ("pdf/missing", "missing", "not_found"),
        ("pdf/scripts/makefile", None, "not_found"),
        ("outside.txt", None, "not_found"),
        ("./", "outside.txt", "not_found"),
        (None, "outside.txt", "not_found"),
        (None, "8004", "not_found"),
        ("pdf", "passwd", "not_found"),
        ("/etc", "passwd", "not_found"),
        ("/etc/passwd", "passwd", "not_found"),
        ("/etc", "shadow", "not_found"),
        ("C:\\Windows", "win.ini", "not_found"),
        ("C:\\Windows\\win.ini", None, "not_found"),
        ("\\\\server\\share", "x", "not_found"),
        ("~/.ssh", "id_rsa", "not_found"),
        ("~/.ssh/id_rsa", None, "not_found"),
        ("$HOME/.ssh", "id_rsa", "not_found"),
        ("file:///etc", "passwd", "not_found"),
        ("file:///etc/passwd", None, "not_found"),
        ("http://169.254.169.254/latest/", None, "not_found"),
        ("%2e%2e/secret", None, "not_found"),
        ("//etc/passwd", None, "invalid_argument"),
        ("..", "passwd", "invalid_argument"),
        ("pdf", "../outside.txt", "invalid_argument"),
        ("pdf", "..", "invalid_argument"),
        ("pdf", "/etc/passwd", "invalid_argument"),
        ("pdf", "./SKILL.md", "invalid_argument"),
        ("pdf/../outside.txt", None, "invalid_argument"),
        ("pdf/SKILL.md\0", None, "invalid_argument"),
        ("pdf", "SKILL.md\0", "invalid_argument"),
        ("pdf", "x" * 256, "invalid_argument"),
        ("x/" * 2_500, None, "invalid_argument"),
        ("pdf", "x/" * 2_500, "invalid_argument"),
        ("pdf/image.png", None, "not_text"),
        ("pdf/latin.txt", None, "not_text"),
    ],
)
def test_what_is_no_file_to_be_seen_is_refused(
    fs: SkillFileSystem, path: str | None, name: str | None, kind: str
) -> None:
    given = payload(**{k: v for k, v in {"filePath": path, "fileName": name}.items() if v is not None})
    answer = code(fs, given)
    assert answer.startswith(f"{kind}: ")
    assert answer == code(fs, json.dumps(given))
    assert str(fs.roots[0]) not in answer
    assert "PNG" not in answer
    if kind == "invalid_argument":
        assert code(fs, given, dry_run=True).startswith(kind)


def test_the_root_is_cut_from_what_is_echoed(fs: SkillFileSystem) -> None:
    root = next(root for root in fs.roots if root.startswith("/"))
    assert read(fs, filePath=f"{root}/pdf/empty")["content"] == ""
    assert read(fs, filePath=f"{root}/pdf", fileName="empty")["content"] == ""
    assert run(fs, payload("list_files", directoryPath=f"{root}/web"))["metadata"]["path"] == "web"
    for path in (f"{root}/../x", f"{root}/pdf/missing", f"{root}-evil/x"):
        given = payload(filePath=path)
        for options in ({}, {"dry_run": True}):
            error = run(fs, given, **options)["error"]
            assert error is None or f"{root}/" not in error["message"]


def test_base_paths_hold(fs: SkillFileSystem) -> None:
    inside, outside = (
        payload(filePath="web", fileName="SKILL.md"),
        payload(filePath="pdf", fileName="SKILL.md"),
    )
    assert run(fs, inside, base_paths=["web"])["success"]
    hidden = code(fs, outside, base_paths=["web"])
    assert hidden.startswith("not_found")
    assert hidden.replace("pdf", "nix") == code(
        fs, payload(filePath="nix", fileName="SKILL.md"), base_paths=["web"]
    )
    assert code(fs, payload(filePath="pdf/SKILL.md"), base_paths=["web"]).startswith("not_found")
    assert code(fs, inside, base_paths=[]).startswith("not_found")
    assert code(fs, inside, base_paths=["missing"]).startswith("not_found")
    listed = run(fs, payload("list_files", recursive="true"), base_paths=["web"])
    assert [entry["path"] for entry in listed["entries"]] == ["web/SKILL.md"]
    assert listed["metadata"]["total"] == 1


# -- how much ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ("1", "0", LINES),
        ("1", "1", "one\n"),
        ("2", "3", "twö\n\n"),
        ("5", "5", "five"),
        ("4", "99", "four 😀\nfive"),
        ("6", "0", ""),
        ("6", "7", ""),
        ("9" * 600, "0", ""),
        ("1", "9" * 600, LINES),
    ],
)
def test_lines_are_as_they_are(fs: SkillFileSystem, first: str, last: str, text: str) -> None:
    for name in ("references/forms.md", "utf16.txt"):
        result = read(fs, filePath="pdf", fileName=name, startLine=first, endLine=last)
        assert result["content"].removeprefix("\ufeff") == text
        assert not result["truncated"]
        assert result["next"] is None
        assert result["metadata"]["lines"] == 5
        lines = (int(first), min(int(last) or 5, 5)) if text else (None, None)
        assert (result["metadata"]["startLine"], result["metadata"]["endLine"]) == lines


def test_an_encoding_is_taken_where_it_is_named(fs: SkillFileSystem) -> None:
    result = read(fs, filePath="pdf/latin.txt", encoding="Latin1", startLine="2", endLine="2")
    assert result["content"] == "twö\n"
    assert result["request"]["arguments"]["encoding"] == "iso8859-1"
    assert code(fs, payload(filePath="pdf/latin.txt", encoding="ascii")).startswith("not_text")
    assert code(fs, payload(filePath="pdf/seven.txt", encoding="utf-7")).startswith("not_text")


@given(st.integers(1, 7), st.integers(0, 7), st.integers(0, 30))
def test_lines_first_then_whole_characters(fs: SkillFileSystem, first: int, last: int, most: int) -> None:
    given = payload(
        filePath="pdf/references/forms.md", startLine=str(first), endLine=str(last), maxBytes=str(most)
    )
    if last and last < first:
        assert code(fs, given).startswith("invalid_argument: endLine is before")
        return
    chosen = "".join(LINES.splitlines(keepends=True)[first - 1 : last or None])
    expected = chosen if not most else chosen.encode()[:most].decode(errors="ignore")
    result = run(fs, given)
    assert result["content"] == expected
    assert result["truncated"] == (expected != chosen)
    assert (result["next"] is not None) == result["truncated"]
    if result["next"] is not None:
        rest = going_on(fs, result)
        whole = chosen if result["next"]["call"] is None else "".join(LINES.splitlines(True)[first - 1 :])
        assert (expected + rest).startswith(chosen)
        assert whole.startswith((expected + rest)[: len(whole)])


def going_on(fs: SkillFileSystem, result: dict[str, Any]) -> str:
    """All that follows on a result, by doing what it says."""
    text = ""
    while (following := result["next"]) is not None:
        if following["payload"] is None:
            arguments = dict(following["call"]["arguments"])
            while arguments is not None:
                from skillfs.tools import answer

                page = answer(fs, following["call"]["name"], arguments).structured
                text += page["text"]
                if page["next_start"] is None:
                    return text
                arguments["start"] = page["next_start"]
        result = run(fs, following["payload"])
        text += result["content"]
    return text


@pytest.mark.parametrize(
    ("name", "text", "most"),
    [
        ("long.txt", LONG, "0"),
        ("long.txt", LONG, "60000"),
        ("long.txt", LONG, "9" * 40),
        ("wide.txt", WIDE, "0"),
        ("wide.txt", WIDE, "49999"),
        ("wide.txt", WIDE, "150000"),
    ],
)
def test_pages_rebuild_the_text(fs: SkillFileSystem, name: str, text: str, most: str) -> None:
    result = read(fs, filePath=f"pdf/{name}", maxBytes=most)
    assert result["truncated"]
    assert 0 < len(result["content"]) <= PAGE
    assert result["content"] + going_on(fs, result) == text


def test_who_counts_bytes_gets_them(fs: SkillFileSystem) -> None:
    # Of the second line only a part fits, though whole lines are preferred where nobody counts.
    given = {"filePath": "pdf/wide.txt", "startLine": "1", "endLine": "1"}
    assert len(read(fs, **given, maxBytes="99999")["content"]) == 49_999
    assert len(read(fs, **given, maxBytes="100001")["content"]) == PAGE
    assert read(fs, **given, maxBytes="1")["content"] == ""
    assert read(fs, **given, maxBytes="1")["next"]["call"]["arguments"]["start"] == 0
    lines = read(fs, filePath="pdf/long.txt", maxBytes="60001")["content"]
    assert len(lines.encode()) in range(59_998, 60_002)
    whole = read(fs, filePath="pdf/long.txt", maxBytes="100000000")
    assert whole["content"].endswith("\r\n")
    assert whole["next"]["payload"]["properties"][-1]["name"] == "startLine"


def test_a_line_that_is_too_long_is_begun_for_who_counts_bytes(fs: SkillFileSystem) -> None:
    mixed = FILES["pdf/mixed.txt"]
    assert read(fs, filePath="pdf/mixed.txt")["content"] == "short\n"
    for most, first in (("1000", "1"), ("49999", "1"), ("700", "2")):
        result = read(fs, filePath="pdf/mixed.txt", maxBytes=most, startLine=first)
        start = 0 if first == "1" else 6
        assert result["content"] == mixed[start : start + int(most)]
        assert result["next"]["call"]["arguments"]["start"] == start + int(most)


def test_a_cut_inside_of_a_line_is_gone_on_from_there(fs: SkillFileSystem) -> None:
    result = read(fs, filePath="pdf/long.txt", startLine="700", endLine="701", maxBytes="10")
    assert result["content"] == "line 700 "
    assert result["metadata"]["startLine"] == result["metadata"]["endLine"] == 700
    arguments = result["next"]["call"]["arguments"]
    assert arguments["start"] == LONG.index("line 700 ") + 9
    assert call(fs, "skill_get_content", {**arguments, "length": 3}).splitlines()[-2].startswith("✓ 数")
    one = read(fs, filePath="pdf/mixed.txt", startLine="4", maxBytes="1")
    assert (one["content"], one["next"]["call"]["arguments"]["start"]) == ("", 60_008)
    latin = read(fs, filePath="pdf/latin.txt", encoding="latin-1", maxBytes="2")
    assert (latin["content"], latin["truncated"], latin["next"]) == ("on", True, None)
    last = read(fs, filePath="pdf/wide.txt", startLine="2", maxBytes="3")
    assert (last["content"], last["next"]["call"]["arguments"]["start"]) == ("las", len(WIDE) - 1)


def test_an_answer_is_of_one_version(
    root: Path, open_fs: Callable[..., SkillFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"pdf/SKILL.md": skill_md("pdf"), "pdf/long.txt": LONG})
    fs = open_fs()
    true_lines = SkillFileSystem.get_lines

    def read_and_change(self: SkillFileSystem, *arguments: Any, **options: Any) -> Any:
        found = true_lines(self, *arguments, **options)
        write(root, {"pdf/long.txt": "moved on\n" + LONG})
        return found

    monkeypatch.setattr(SkillFileSystem, "get_lines", read_and_change)
    for most in ("10", "60001"):  # where the line is cut is looked up; of the next line a part fits
        write(root, {"pdf/long.txt": LONG})
        result = run_payload(fs, payload(filePath="pdf/long.txt", startLine="1", maxBytes=most))
        assert result["error"]["code"] == "changed"
        assert result["content"] is None


# -- going on ----------------------------------------------------------------------------------------------


def test_the_prompt_comes_with_the_answer_where_it_was_asked_for(fs: SkillFileSystem) -> None:
    prompt = "Now say {what} it holds."
    given = {**payload(filePath="pdf/references/forms.md"), "sequential": {"prompt": prompt}}
    assert run(fs, given)["sequential"] == {"prompt": prompt, "content": LINES, "entries": None}
    listed = run(fs, payload("list_files", directoryPath="web", sequential=prompt))
    assert listed["sequential"] == {"prompt": prompt, "content": None, "entries": listed["entries"]}
    both = {**payload("list_files", sequential=prompt), "sequential": {"prompt": prompt}}
    assert run(fs, both)["sequential"]["prompt"] == prompt
    assert run(fs, given, dry_run=True)["sequential"] is None
    failed = run(fs, {**payload(filePath="missing"), "sequential": {"prompt": prompt}})
    assert failed["sequential"] is None
    assert failed["request"]["sequential"] == {"prompt": prompt}


def test_an_error_is_no_answer(fs: SkillFileSystem) -> None:
    text = '{"action": "read_file", "thinking": "SECRET", "properties": [{]}'
    result = run(fs, text)
    assert "SECRET" not in json.dumps(result)
    assert (result["action"], result["request"]) == (None, None)
    assert run(fs, payload(filePath="x", maxBytes="x"))["action"] == "read_file"
    assert run(fs, {"action": "SECRET"})["action"] is None


# -- listings ----------------------------------------------------------------------------------------------


def paths(result: dict[str, Any]) -> list[str]:
    return [entry["path"] for entry in result["entries"]]


def test_a_folder_is_listed(fs: SkillFileSystem) -> None:
    assert paths(run(fs, payload("list_files"))) == ["pdf", "web"]
    given = payload(
        "list_files", directoryPath="pdf", includeGlob="*.{md,txt}, Make*", excludeGlob="l*.txt,[wm]i*"
    )
    names = ["SKILL.md", "e\u0301.md", "link.md", "references", "refs", "scripts", "seven.txt", "utf16.txt"]
    assert paths(run(fs, given)) == [f"pdf/{name}" for name in names]
    given = payload(
        "list_files", directoryPath="pdf", recursive="true", includeGlob="Make*,r*n", includeHidden="true"
    )
    assert paths(run(fs, given)) == ["pdf/scripts/Makefile", "pdf/scripts/run/run"]
    detailed = run(fs, payload("list_files", directoryPath="web", showDetails="true"))["entries"][0]
    assert detailed["size"] == len(FILES["web/SKILL.md"])
    assert code(fs, payload("list_files", directoryPath="pdf/SKILL.md")).startswith("is_file")
    for missing in ("nowhere", "/etc", "~", "C:\\", "file:///"):
        assert code(fs, payload("list_files", directoryPath=missing)).startswith("not_found")
    assert code(fs, payload("list_files", directoryPath="..")).startswith("invalid_argument")


def test_nothing_matches_and_empty_are_told_apart(fs: SkillFileSystem) -> None:
    nothing = run(fs, payload("list_files", directoryPath="web", includeGlob="*.py"))
    assert (nothing["success"], nothing["entries"]) == (True, [])
    assert nothing["metadata"]["remark"] == "nothing matches"


def test_a_cut_listing_is_gone_on_with(fs: SkillFileSystem) -> None:
    given = payload("list_files", directoryPath="pdf", recursive="true", maxResults="3", includeGlob="*.md")
    whole = paths(run(fs, payload("list_files", directoryPath="pdf", recursive="true", includeGlob="*.md")))
    found: list[str] = []
    result = run(fs, given)
    while True:
        found += paths(result)
        assert result["metadata"]["total"] == len(whole)
        assert result["truncated"] == (len(found) < len(whole))
        if result["next"] is None:
            break
        assert {**result["next"], "payload": None} == {"payload": None, "call": None}
        result = run(fs, json.dumps(result["next"]["payload"]))
    assert found == whole
    assert "cursor" in code(fs, payload("list_files", directoryPath="web", cursor="nonsense"))


def test_several_stores(tmp_path: Path, open_fs: Callable[..., SkillFileSystem]) -> None:
    one = write(tmp_path / "one", {"pdf/SKILL.md": skill_md("pdf"), "pdf/a": LONG})
    two = write(tmp_path / "two", {"web/SKILL.md": skill_md("web")})
    both = SkillFileSystem({"x": one, "y": two}, index=":memory:", skip_instance_cache=True)
    result = read(both, filePath="x/pdf", fileName="a")
    assert result["metadata"]["path"] == "x/pdf/a"
    assert result["content"] + going_on(both, result) == LONG
    assert paths(run(both, payload("list_files"))) == ["x", "y"]


def test_a_name_of_digits_is_a_name(root: Path, open_fs: Callable[..., SkillFileSystem]) -> None:
    write(root, {"SKILL.md": skill_md("store"), "8004": "digits\n"})
    fs = open_fs()
    for named in ({"fileName": "8004"}, {"filePath": "/", "fileName": "8004"}, {"filePath": "/8004"}):
        assert read(fs, **named)["content"] == "digits\n"
    assert code(fs, payload(filePath="8004")).startswith("not_found")


def test_two_versions_are_never_joined(
    root: Path, open_fs: Callable[..., SkillFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/x": "short\n" + "x" * 60_000})
    fs = open_fs()
    true_lines = fs.get_lines

    def lines_and_change(*arguments: Any, **options: Any) -> Any:
        found = true_lines(*arguments, **options)
        write(root, {"a/x": "other\n" + "y" * 60_000})
        return found

    monkeypatch.setattr(fs, "get_lines", lines_and_change)
    found = code(fs, payload(filePath="a/x", maxBytes="1000"))
    assert found.startswith("changed")
    assert "expect_hash" not in found  # a payload has none
