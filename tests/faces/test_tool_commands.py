"""`search`, `outline`, `tools` and `run` as people and scripts meet them."""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillfs import Content, SkillFileSystem
from skillfs.faces import tool_commands
from skillfs.faces.cli import main
from skillfs.tools import TOOLS, call, schemas
from tests.conftest import skill_md, write
from tests.faces.test_cli import Done, on_terminal, process

FILES: dict[str, str | bytes] = {
    "pdf/SKILL.md": skill_md(
        "pdf", "Read and fill PDF forms.", "# PDF\n\nIntro\n\n## Fill *in*\nThe zephyr.\n"
    ),
    "pdf/odd\nname.md": "# Odd \x1b[31m heading\nzephyr\n",
    "8004/SKILL.md": skill_md("8004", body="# Number\n"),
    "other/SKILL.md": skill_md("other"),
}

LIST = '{"action": "list_files", "properties": []}'
READ = '{"action": "read_file", "properties": [{"name": "filePath", "value": "%s"}]}'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "store", FILES)


@pytest.fixture
def run(store: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    """Run a command in this process."""

    def run_in_process(*arguments: str | Path, at: Path | None = store) -> Done:
        named = [] if at is None else ["-s", str(at), "--index", ":memory:"]
        code = main([*named, *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out.decode(), captured.err.decode())

    return run_in_process


@pytest.fixture
def payload(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Puts a text on standard input."""

    def put(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


# -- all of them -------------------------------------------------------------------------------------------


def test_help_names_every_command(run: Callable[..., Done]) -> None:
    done = run("--help")
    listed = done.out.partition("Commands:\n")[2].partition("\n\n")[0]
    commands = [line.split()[0] for line in listed.splitlines() if line[2] != " "]
    assert commands == sorted(commands)
    assert {"cat", "mcp", "outline", "run", "search", "tools", "tree", "watch"} <= set(commands)
    for name in commands:
        shown = run(name, "--help")
        assert shown.code == 0
        assert "Example: " in shown.out


def test_help_loads_nothing_heavy() -> None:
    heavy = {
        "fsspec",
        "sqlite3",
        "rich",
        "yaml",
        "mcp",
        "markdown_it",
        "skillfs.tools",
        "pydantic",
        "uvicorn",
    }
    code = (
        "import sys; from skillfs.faces.cli import main; main(['--help']); "
        f"print(sorted({heavy} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_listing_loads_no_command_that_it_is_not(store: Path) -> None:
    code = (
        "import sys; from skillfs.faces.cli import main; main(sys.argv[1:]); "
        "unused = ('skillfs.tools', 'markdown_it', 'skillfs.faces.tool_', 'skillfs.faces.state_'); "
        "print([name for name in sys.modules if name.startswith(unused)], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "-s", str(store), "--index", ":memory:", "tree"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


# -- search ------------------------------------------------------------------------------------------------


def test_search_prints_path_title_and_passage(run: Callable[..., Done]) -> None:
    done = run("search", "fill", "zephyr")
    assert done.code == 0
    path, title, passage, *_ = done.out.splitlines()
    assert path == "pdf/SKILL.md"
    assert title == "  pdf: Read and fill PDF forms."
    assert "zephyr" in passage


def test_search_as_json_can_be_read_on(run: Callable[..., Done], store: Path) -> None:
    found: Any = run("search", "zephyr", "--json", "--limit", "1").json
    assert (found["query"], found["total"], found["complete"]) == ("zephyr", 2, True)
    (hit,) = found["hits"]
    passage = hit["passages"][0]
    fs = SkillFileSystem(store, index=":memory:")
    content = fs.get_content(hit["uuid"], passage["start"], passage["length"], expect_hash=hit["hash"])
    assert content.text == passage["text"]


def test_search_tells_copies(run: Callable[..., Done], store: Path) -> None:
    write(store, {f"name:{n}/SKILL.md": skill_md("twin", body="Quokka.\n") for n in range(5)})
    (hit,) = run("search", "quokka", "--json").json["hits"]  # type: ignore[index]
    assert [hit["path"], *hit["copies"]] == [f"/name:{n}/SKILL.md" for n in range(5)]
    *_, last = run("search", "quokka").out.splitlines()
    assert last == "  same text: /name:1/SKILL.md /name:2/SKILL.md /name:3/SKILL.md …"


def test_search_says_what_is_left_out(run: Callable[..., Done]) -> None:
    done = run("search", "zephyr", "--limit", "1")
    assert "the best 1 of 2 files; see --limit" in done.err


def test_search_without_a_hit(run: Callable[..., Done]) -> None:
    done = run("search", "xylophone")
    assert (done.code, done.out) == (1, "")
    assert "nothing matches" in done.err
    found: Any = run("search", "xylophone", "--json").json
    assert found["hits"] == []


@pytest.mark.parametrize("arguments", [["search"], ["search", ""], ["search", "a", "--limit", "0"]])
def test_searches_that_are_refused(run: Callable[..., Done], arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: invalid_argument: ")


def test_search_breaks_no_line_and_no_terminal(run: Callable[..., Done], store: Path) -> None:
    done = run("search", "odd", "zephyr")
    assert '"pdf/odd\\nname.md"' in done.out.splitlines()
    shown = on_terminal("-s", store, "--index", ":memory:", "search", "heading")
    assert "\x1b[31m heading" not in shown.out


# -- outline -----------------------------------------------------------------------------------------------


def test_outline_prints_a_line_a_section(run: Callable[..., Done]) -> None:
    text = str(FILES["pdf/SKILL.md"])
    first, second = text.index("# PDF"), text.index("## Fill")
    done = run("outline", "pdf/SKILL.md")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"0\t{first}\t1\t0\t",
        f"{first}\t{second - first}\t5\t1\tPDF",
        f"{second}\t{len(text) - second}\t9\t2\tFill in",
    ]
    start, length, *_ = done.out.splitlines()[2].split("\t")
    assert run("cat", "pdf/SKILL.md", "--start", start, "--length", length).out == text[second:]


def test_outline_as_json(run: Callable[..., Done], store: Path) -> None:
    found: Any = run("outline", "/8004/SKILL.md", "--json").json
    assert [section["title"] for section in found["sections"]] == ["", "Number"]
    assert found["path"] == "8004/SKILL.md"
    assert found["hash"] == SkillFileSystem(store, index=":memory:").get_content(found["uuid"]).hash


def test_outline_escapes_headings(run: Callable[..., Done], store: Path) -> None:
    uuid = next(
        info["uuid"]
        for path, info in SkillFileSystem(store, index=":memory:").find("", detail=True).items()
        if "odd" in path
    )
    assert run("outline", uuid).out == "0\t27\t1\t1\tOdd \\x1b[31m heading\n"


def test_outline_of_what_is_not_there(run: Callable[..., Done]) -> None:
    assert run("outline", "pdf").err.startswith("skillfs: is_folder: ")
    done = run("outline", "zz.md")
    assert (done.code, done.out) == (2, "")


# -- tools -------------------------------------------------------------------------------------------------


def test_tools_for_people(run: Callable[..., Done]) -> None:
    done = run("tools", at=None)
    assert done.code == 0
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == list(TOOLS)
    assert ["read_file", "Read lines of a file", "path, offset?, limit?, encoding?"] in rows


@pytest.mark.parametrize("format", ["mcp", "anthropic", "openai"])
def test_tools_as_schemas(run: Callable[..., Done], format: Any) -> None:
    assert run("tools", "--format", format, at=None).json == schemas(format)


def test_tools_as_one_document(run: Callable[..., Done]) -> None:
    assert json.loads(run("tools", "--json", at=None).out) == schemas("mcp")
    assert json.loads(run("tools", "--json", "--format", "openai", at=None).out) == schemas("openai")


def test_an_unknown_format_is_refused(run: Callable[..., Done]) -> None:
    done = run("tools", "--format", "xml", at=None)
    assert done.code == 2
    assert "mcp" in done.err


# -- run NAME ----------------------------------------------------------------------------------------------


def test_run_prints_the_text_of_an_answer_exactly(run: Callable[..., Done], store: Path) -> None:
    done = run("run", "skill_get_content", '{"id": "pdf/SKILL.md", "start": 4, "length": 9}')
    assert done.code == 0
    fs = SkillFileSystem(store, index=":memory:")
    assert Content.parse(done.out) == fs.get_content("pdf/SKILL.md", 4, 9)
    structured: Any = run("run", "skill_get_content", '{"id": "pdf/SKILL.md"}', "--json").json
    assert structured["text"] == FILES["pdf/SKILL.md"]


def test_run_prints_json_where_there_is_no_text(run: Callable[..., Done], store: Path) -> None:
    done = run("run", "read_file", '{"path": "pdf/SKILL.md", "limit": 2}')
    fs = SkillFileSystem(store, index=":memory:")
    assert done.json == call(fs, "read_file", {"path": "pdf/SKILL.md", "limit": 2})
    assert done.code == 0
    assert run("run", "list_files").code == 0


def test_run_tells_a_failure_by_its_exit_code(run: Callable[..., Done]) -> None:
    done = run("run", "read_file", '{"path": "nothing"}')
    found: Any = done.json
    assert (done.code, found["error"]["code"]) == (1, "not_found")
    done = run("run", "skill_get_content", '{"id": "nothing"}')
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: not_found: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{", "no JSON: Expecting property name"),
        ("", "needs id"),
        ('{"id": 1} {}', "no JSON: Extra data at line 1, column 11"),
        ("{'id': 1}", "no JSON"),
        ('{"id": 1,}', "no JSON"),
        ('{"id": 1, "id": 2}', 'hold "id" twice'),
        ('{"id": {"x": 1, "x": 1}}', 'hold "x" twice'),
        ('{"id": NaN}', "hold NaN, which is no JSON"),
        ('{"id": -Infinity}', "hold -Infinity, which is no JSON"),
        ('{"id": 1e999}', "too large for a number"),
        ('{"id": ' + "9" * 5_000 + "}", "a number of 5,000 digits"),
        ('{"id": ' + "[" * 50_000 + "}", "nested too deeply"),
        ("[]", "takes an object of named arguments"),
        ("null", "takes an object of named arguments"),
        ('{"id": "a", "length": 1.5}', "length must be an integer"),
        ('{"id": "a", "Start": 1}', 'takes no argument "Start"; did you mean start?'),
        ('{"id": "\\ud800"}', "unpaired surrogate"),
    ],
)
def test_arguments_that_are_none(run: Callable[..., Done], arguments: str, message: str) -> None:
    done = run("run", "skill_get_content", arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: invalid_argument: ")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_an_unknown_tool(run: Callable[..., Done]) -> None:
    done = run("run", "read_files", "{}", at=None)
    assert done.code == 2
    assert "did you mean read_file?" in done.err


def test_a_dry_run_shows_the_request_and_opens_no_store(run: Callable[..., Done], tmp_path: Path) -> None:
    done = run("run", "read_file", '{"path": "a.md"}', "--dry-run", at=tmp_path / "nowhere")
    assert done.code == 0
    assert done.json == {
        "tool": "read_file",
        "arguments": {"path": "a.md", "offset": 1, "limit": 2_000, "encoding": "utf-8"},
    }
    assert run("run", "read_file", '{"limit": 1}', "--dry-run", at=None).code == 2


def test_a_base_confines_what_is_run(run: Callable[..., Done]) -> None:
    done = run("--base", "other", "run", "read_file", '{"path": "pdf/SKILL.md"}')
    assert done.code == 1
    assert '"not_found"' in done.out
    assert run("--base", "other", "run", "read_file", '{"path": "other/SKILL.md"}').code == 0


def test_an_answer_moves_no_cursor_of_a_terminal(store: Path) -> None:
    write(store, {"pdf/escape.txt": "red \x1b[31m and \u202e flip\n"})
    done = on_terminal(
        "-s", store, "--index", ":memory:", "run", "skill_get_content", '{"id": "pdf/escape.txt"}'
    )
    assert "\x1b" not in done.out
    assert "red \\x1b[31m and \\u202e flip" in done.out
    assert done.out.endswith("=== END OF FILE ===\n")


# -- run - -------------------------------------------------------------------------------------------------


def test_a_payload_is_read_from_standard_input(
    run: Callable[..., Done], payload: Callable[[str | bytes], None]
) -> None:
    payload(f"Here it is:\n```json\n{READ % 'pdf/SKILL.md'}\n```\n")
    done = run("run", "-")
    found: Any = done.json
    assert (done.code, found["success"], found["content"]) == (0, True, FILES["pdf/SKILL.md"])


def test_a_payload_that_fails(run: Callable[..., Done], payload: Callable[[str | bytes], None]) -> None:
    for text in (READ % "nothing", "no payload", ""):
        payload(text)
        done = run("run", "-")
        found: Any = done.json
        assert (done.code, found["success"]) == (1, False)
        assert found["error"]["code"]


def test_a_payload_is_shown_without_a_store(
    run: Callable[..., Done], payload: Callable[[str | bytes], None], tmp_path: Path
) -> None:
    payload(LIST)
    done = run("run", "-", "--dry-run", at=tmp_path / "nowhere")
    found: Any = done.json
    assert (done.code, found["request"]["action"], found["entries"]) == (0, "list_files", None)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"{" + b" " * tool_commands.MOST_INPUT])
def test_standard_input_that_is_none(
    run: Callable[..., Done], payload: Callable[[str | bytes], None], text: bytes
) -> None:
    payload(text)
    done = run("run", "-")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: invalid_argument: standard input")


def test_a_payload_that_comes_late_is_waited_for(store: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    command = [sys.executable, "-m", "skillfs", "-s", str(store), "--index", ":memory:", "run", "-"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        os.close(reading)
        text = LIST.encode()
        os.write(writing, text[:10])
        # It reads a pipe of its own and begins no earlier than it has taken the first part.
        waited = time.monotonic() + 20
        while queued(writing) and time.monotonic() < waited:
            time.sleep(0.01)
        os.write(writing, text[10:])
        os.close(writing)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, b"")
    assert json.loads(out)["success"]


def queued(pipe: int) -> int:
    """Bytes in a pipe that nobody has read yet."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def test_a_payload_goes_with_no_arguments(run: Callable[..., Done]) -> None:
    assert run("run", "-", "{}").code == 2


def test_a_payload_through_a_pipe(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(LIST)
    with file.open("rb") as opened:
        done = process("-s", store, "--index", ":memory:", "run", "-", stdin=opened)
    assert done.code == 0, done.err
    assert [entry["path"] for entry in json.loads(done.out)["entries"]] == ["/8004", "other", "pdf"]
