"""The MCP server as a client of the official SDK meets it, over both transports and in both eras."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from skillfs.core.wire import Content
from skillfs.errors import InvalidArgumentError
from skillfs.faces.mcp_command import mcp_command
from skillfs.faces.target import Target
from skillfs.tools import TOOLS, schemas
from tests.conftest import skill_md, write
from tests.faces.mcp_clients import Refused, Served, Web, over_stdio

LONG = "".join(random.Random(5).choices("abc déß漢😀\n\r\t", k=400_000))
BOOK = "Preface.\n\n" + "".join(f"## Chapter {n}\n\n{'wörd ' * 2_000}\n" for n in range(40))
PNG = b"\x89PNG\r\n\x1a\n\0\0\xff" * 9


def lay_out(root: Path) -> Path:
    """A store with what a server may stumble over."""
    write(
        root,
        {
            "pdf/SKILL.md": skill_md("pdf", "Forms."),
            "pdf/references/forms.md": "# Forms\n\nText of forms of Zanzibar.\n",
            "pdf/references/long.txt": LONG,
            "pdf/references/book.md": BOOK,
            "pdf/assets/logo.png": PNG,
            "pdf/-rf [a]{b}#?.md": "odd name\n",
            "deep/er/notes/SKILL.md": skill_md("notes", "Taking notes."),
            "deep/er/notes/inner/SKILL.md": skill_md("inner", "Nested."),
            "deep/er/notes/inner/x.md": "x\n",
            "other/SKILL.md": skill_md("not-other", "Named otherwise."),
            "8004/SKILL.md": skill_md("8004", "Digits only."),
            "Ä b/SKILL.md": skill_md("ab", "Odd folder."),
            "outside.md": "outside every skill\n",
        },
    )
    secret = root.parent / "secret.md"
    secret.write_text("secret outside")
    (root / "pdf/escape.md").symlink_to(secret)
    (root / "pdf/alias.md").symlink_to(root / "pdf/references/forms.md")
    os.mkfifo(root / "pdf/fifo.md")
    return root


WAYS = ["stdio 2025", "stdio 2026", "http 2025", "http 2026"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("mcp") / "the-store-itself")


@pytest.fixture(scope="module")
def web(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    web = Web(store, tmp_path_factory.mktemp("home"))
    yield web
    assert "Traceback" not in web.close()


@pytest.fixture(scope="module")
def clients(store: Path, web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    home = tmp_path_factory.mktemp("home")
    with (
        over_stdio(store, home, "legacy") as stdio_old,
        over_stdio(store, home, "auto") as stdio_new,
        web.client("legacy") as http_old,
        web.client("auto") as http_new,
    ):
        found = dict(zip(WAYS, (stdio_old, stdio_new, http_old, http_new), strict=True))
        yield found
    # Whatever was answered to whatever was asked: the host's paths are in none of it.
    told = [line for served in found.values() for line in served.transcript]
    assert not [line for line in told if str(store.parent) in line or "secret outside" in line]


@pytest.fixture(params=WAYS)
def served(request: pytest.FixtureRequest, clients: dict[str, Served]) -> Served:
    return clients[request.param]


# -- what it declares --------------------------------------------------------------------------------------


def test_what_is_declared(served: Served) -> None:
    capabilities = served.client.server_capabilities
    assert capabilities.tools is not None
    assert capabilities.resources is not None
    assert capabilities.resources.subscribe
    assert capabilities.resources.list_changed
    assert served.client.instructions
    if served.client.protocol_version > "2026":
        assert served.ask("server/discover")["capabilities"]["extensions"] == {
            "io.modelcontextprotocol/skills": {"directoryRead": True}
        }


def test_tools_are_those_of_the_registry(served: Served) -> None:
    found = served.ask("tools/list")["tools"]
    assert found == schemas("mcp")
    assert [tool["name"] for tool in found] == list(TOOLS)
    assert all(tool["annotations"]["readOnlyHint"] for tool in found)


# -- tools -------------------------------------------------------------------------------------------------


def test_a_text_is_read_whole_and_in_the_raw_format(served: Served) -> None:
    found = served.whole("skill_get_content", {"id": "pdf/SKILL.md"})
    text = Content.parse(found["content"][0]["text"]).text
    assert text == skill_md("pdf", "Forms.") == found["structuredContent"]["text"]
    assert not found["isError"]


def test_a_long_text_is_paged_by_what_the_answers_say(served: Served) -> None:
    parts: list[str] = []
    start, expected = 0, {}
    while start is not None:
        found = served.call("skill_get_content", id="pdf/references/long.txt", start=start, **expected)
        parts.append(found["text"])
        assert len(found["text"]) == found["length"] <= 50_000
        expected = {"expectHash": found["hash"]}
        start = found["next_start"]
    assert "".join(parts) == LONG
    assert hashlib.md5("".join(parts).encode()).hexdigest() == expected["expectHash"]


def test_a_long_text_is_read_by_the_sections_of_its_outline(served: Served) -> None:
    sections = served.call("skill_outline", id="pdf/references/book.md")["sections"]
    assert len(sections) == 41
    parts = []
    for section in sections:
        start, left = section["start"], section["length"]
        while left:
            found = served.call("skill_get_content", id="pdf/references/book.md", start=start, length=left)
            parts.append(found["text"])
            start, left = start + found["length"], left - found["length"]
    assert "".join(parts) == BOOK


def test_a_search_leads_to_the_passage(served: Served) -> None:
    hit = served.call("skill_search", query="zanzibar")["hits"][0]
    assert hit["path"] == "pdf/references/forms.md"
    passage = hit["passages"][0]
    found = served.call("skill_get_content", id=hit["uuid"], start=passage["start"], length=passage["length"])
    assert "Zanzibar" in found["text"]


def test_the_file_tools(served: Served) -> None:
    found = served.whole("read_file", {"path": "pdf/references/forms.md", "offset": 3, "limit": 1})
    assert found["structuredContent"]["output"] == "Text of forms of Zanzibar.\n"
    found = served.whole("read_file", {"path": "pdf/assets/logo.png"})
    assert found["structuredContent"]["success"] is False
    assert found["isError"]
    assert "forms.md" in served.whole("list_files", {"directoryPath": "pdf/references"})["content"][0]["text"]


INVALID, MISSING = "invalid_argument", "not_found"

FAULTS: list[tuple[object, str]] = [
    ("../../etc/passwd", INVALID),
    ("pdf/../pdf/SKILL.md", INVALID),
    ("././pdf/SKILL.md", INVALID),
    ("/etc/passwd", MISSING),
    ("pdf//SKILL.md", INVALID),
    ("", INVALID),
    ("..", INVALID),
    (" ", MISSING),
    ("/", "is_folder"),
    (".", "is_folder"),
    ("pdf/SKILL.md\0.txt", INVALID),
    ("x" * 256, INVALID),
    ("x/" * 2_500, INVALID),
    ("x" * 1_000_000, INVALID),
    ("%2e%2e/secret", MISSING),
    ("file:///etc/passwd", MISSING),
    ("http://169.254.169.254/latest/", MISSING),
    ("~/.ssh/id_rsa", MISSING),
    ("$HOME/x", MISSING),
    ("pdf\\SKILL.md", MISSING),
    ("pdf/escape.md", MISSING),
    ("pdf/fifo.md", MISSING),
    ("outside.md", MISSING),
    ("pdf", "is_folder"),
    ("pdf/assets/logo.png", "not_text"),
    ("pdf/skill.md", MISSING),
    ("00000000-0000-0000-0000-000000000000", MISSING),
    (None, INVALID),
    (True, INVALID),
    (["pdf"], INVALID),
    ({}, INVALID),
    (1.5, INVALID),
    (2**63, MISSING),
]


def test_references_that_are_refused(served: Served) -> None:
    for ref, code in FAULTS:
        found = served.whole("skill_get_content", {"id": ref})
        error = found["structuredContent"]["error"]
        assert (ref, error["code"]) == (ref, code)
        assert found["isError"]
        assert found["content"][0]["text"] == f"{code}: {error['message']}"
        assert len(error["message"]) < 800


def test_paths_of_the_store_on_the_host_work_and_are_not_told(served: Served, store: Path) -> None:
    found = served.whole("skill_get_content", {"id": f"{store}/pdf/SKILL.md"})
    assert found["structuredContent"]["path"] == "pdf/SKILL.md"
    for outside in (f"{store}-evil/x", f"{store}/../x", f"{store}/nothing", f"skill://{store}/nothing"):
        found = served.whole("skill_get_content", {"id": outside})
        assert found["structuredContent"]["error"]["code"] in (INVALID, MISSING)
        # What the client sent itself is the one thing that could hold it.
        served.transcript.pop()


ARGUMENTS: list[tuple[str, dict[str, object], str]] = [
    ("skill_get_content", {}, "id"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "start": -1}, "start"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "start": "0"}, "start"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "start": True}, "start"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "length": None}, "leave it out"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "view_range": [1, 2]}, "view_range"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "basePathIds": "pdf"}, "basePathIds"),
    ("skill_get_content", {"id": "pdf/SKILL.md", "basePathIds": [[]]}, "basePathIds"),
    ("skill_tree", {"depth": 0}, "depth"),
    ("skill_tree", {"maxResults": 10**30}, "maxResults"),
    ("skill_changes", {"since": -5}, "since"),
]


def test_arguments_are_strict(served: Served) -> None:
    for tool, arguments, named in ARGUMENTS:
        error = served.call(tool, **arguments)["error"]
        assert error["code"] == INVALID
        assert named in error["message"]


def test_numbers_beyond_all_bounds_end_well(served: Served) -> None:
    found = served.call("skill_get_content", id="pdf/SKILL.md", start=10**30, length=10**30)
    assert found["text"] == ""
    assert found["complete"]
    assert served.call("skill_get_content", id="pdf/SKILL.md", length=0)["length"] == 0


def test_base_paths_of_a_call(served: Served) -> None:
    read = "skill_get_content"
    assert "error" not in served.call(read, id="pdf/SKILL.md", basePathIds=["pdf", "pdf"])
    for bases in ([], ["deep"]):
        assert served.call(read, id="pdf/SKILL.md", basePathIds=bases)["error"]["code"] == MISSING
    for bases in (["nothing"], [""], [".."], ["pdf/SKILL.md"]):
        assert "error" in served.call(read, id="pdf/SKILL.md", basePathIds=bases)


def test_a_tree_shows_what_there_is(served: Served) -> None:
    found = served.whole("skill_tree", {"id": "/"})
    assert "notes" in found["content"][0]["text"]
    assert "outside.md" not in repr(found)
    assert found["structuredContent"]["total"] >= 15


def test_there_is_no_such_tool(served: Served) -> None:
    with pytest.raises(Refused, match="did you mean skill_tree") as refused:
        served.ask("tools/call", name="skill_trees", arguments={})
    assert refused.value.code == -32602
    with pytest.raises(Refused) as refused:
        served.ask("tools/call", name="skill_tree", arguments=[])
    assert refused.value.code == -32602


def test_a_method_that_there_is_not(served: Served) -> None:
    with pytest.raises(Refused) as refused:
        served.ask("skills/delete", uri="skill://pdf/SKILL.md")
    assert refused.value.code == -32601


# -- resources ---------------------------------------------------------------------------------------------


def all_pages(served: Served, method: str, key: str, **params: object) -> list[dict]:
    found: list[dict] = []
    page = served.ask(method, **params)
    found += page[key]
    while "nextCursor" in page:
        page = served.ask(method, **params, cursor=page["nextCursor"])
        found += page[key]
    return found


def test_every_visible_file_is_a_resource_and_reads_as_its_bytes(served: Served, store: Path) -> None:
    listed = all_pages(served, "resources/list", "resources")
    uris = [resource["uri"] for resource in listed]
    assert len(set(uris)) == len(uris) == 13
    assert "skill://%C3%84%20b/SKILL.md" in uris
    assert "skill://pdf/-rf%20%5Ba%5D%7Bb%7D%23%3F.md" in uris
    for resource in listed:
        contents = served.ask("resources/read", uri=resource["uri"])["contents"][0]
        blob = contents.get("blob")
        data = base64.b64decode(blob) if blob is not None else contents["text"].encode()
        assert contents["uri"] == resource["uri"]
        from urllib.parse import unquote

        assert data == (store / unquote(resource["uri"].removeprefix("skill://"))).read_bytes()
        assert len(data) == resource["size"]
    skill = next(r for r in listed if r["uri"] == "skill://pdf/SKILL.md")
    assert skill["name"] == "pdf"
    assert skill["description"] == "Forms."
    assert skill["mimeType"] == "text/markdown"
    assert next(r for r in listed if r["name"] == "logo.png")["mimeType"] == "image/png"
    assert served.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "skill://{+path}"


@pytest.mark.parametrize(
    "uri",
    ["skill://nothing", "skill://pdf/escape.md", "skill://outside.md", "pdf/SKILL.md", "file:///etc/passwd",
     "skill://pdf", "skill://pdf/%2e%2e/pdf/SKILL.md", "skill://pdf/%FF", "", "skill://pdf/fifo.md",
     "x" * 100_000],
)  # fmt: skip
def test_a_resource_that_there_is_not(served: Served, uri: str) -> None:
    with pytest.raises(Refused) as refused:
        served.ask("resources/read", uri=uri)
    assert refused.value.code == -32602
    assert len(refused.value.message) < 600


def test_a_directory_is_read(served: Served) -> None:
    found = served.ask("resources/directory/read", uri="skill://deep/er/notes")
    assert [(r["uri"], r["mimeType"]) for r in found["resources"]] == [
        ("skill://deep/er/notes/SKILL.md", "text/markdown"),
        ("skill://deep/er/notes/inner", "inode/directory"),
    ]
    assert found["resultType"] == "complete"
    top = served.ask("resources/directory/read", uri="skill://deep")["resources"]
    assert [r["uri"] for r in top] == ["skill://deep/er"]
    for uri in ("skill://pdf/SKILL.md", "skill://nothing", "skill://outside.md"):
        with pytest.raises(Refused) as refused:
            served.ask("resources/directory/read", uri=uri)
        assert refused.value.code == -32602


@pytest.mark.parametrize("method", ["resources/list", "skills/list", "tools/list"])
def test_a_cursor_that_is_none(served: Served, method: str) -> None:
    for cursor in ("", "x", "W10=", "\u00e9", "WyJza2lsbHMiLCAxXQ==", "A" * 50_000):
        with pytest.raises(Refused) as refused:
            served.ask(method, cursor=cursor)
        assert refused.value.code == -32602


# -- skills ------------------------------------------------------------------------------------------------


def test_skills_are_listed_with_every_file_and_true_digests(served: Served) -> None:
    page = served.ask("skills/list")
    assert page["resultType"] == "complete"
    assert page["cacheScope"] == "private"
    assert page["ttlMs"] == 2_000
    names = [skill["uri"] for skill in page["skills"]]
    assert names == [
        "skill://deep/er/notes/SKILL.md", "skill://deep/er/notes/inner/SKILL.md", "skill://pdf/SKILL.md"
    ]  # fmt: skip
    skipped = {item["uri"]: item["reason"] for item in page["_meta"]["skillfs/skipped"]}
    assert set(skipped) == {
        "skill://8004/SKILL.md", "skill://other/SKILL.md", "skill://%C3%84%20b/SKILL.md"
    }  # fmt: skip
    for skill in page["skills"]:
        assert skill["frontmatter"]["name"] == skill["uri"].split("/")[-2]
        assert served.ask("skills/get", uri=skill["uri"])["skill"] == skill
        for resource in skill["resources"]:
            contents = served.ask("resources/read", uri=resource["uri"])["contents"][0]
            data = base64.b64decode(contents["blob"]) if "blob" in contents else contents["text"].encode()
            assert len(data) == resource["size"]
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == resource["digest"]
    outer = page["skills"][0]["resources"]
    assert [r["uri"] for r in outer] == [
        "skill://deep/er/notes/SKILL.md",
        "skill://deep/er/notes/inner/SKILL.md",
        "skill://deep/er/notes/inner/x.md",
    ]


@pytest.mark.parametrize(
    "uri",
    ["skill://pdf", "skill://pdf/references/forms.md", "skill://nothing/SKILL.md", "pdf/SKILL.md", "",
     "skill://other/SKILL.md", "https://example.org/SKILL.md", "skill://pdf/%2e/SKILL.md"],
)  # fmt: skip
def test_no_skill_is_there(served: Served, uri: str) -> None:
    with pytest.raises(Refused) as refused:
        served.ask("skills/get", uri=uri)
    assert refused.value.code == -32602
    if uri == "skill://other/SKILL.md":
        assert "name is not the name of the folder" in refused.value.message


# -- many calls while the store changes --------------------------------------------------------------------


def is_whole(found: dict, versions: set[str]) -> bool:
    if found["isError"]:
        return False
    content = Content.parse(found["content"][0]["text"])
    return (
        content.text in versions
        and content.hash == hashlib.md5(content.text.encode()).hexdigest()
        and content.size == content.length == len(content.text)
    )


@pytest.mark.parametrize(("way", "in_a_row"), [("stdio 2026", 1_000), ("http 2025", 100)])
def test_many_calls_while_the_store_changes(
    clients: dict[str, Served], store: Path, way: str, in_a_row: int
) -> None:
    served = clients[way]
    path = store / "pdf/changing.md"
    versions = {letter * (300 + 700 * number) + "é" for number, letter in enumerate("abcdefg")}
    path.write_text("é", encoding="utf-8")
    versions.add("é")
    stop = threading.Event()

    def change() -> None:
        for number in range(10**9):
            beside = store / f"pdf/.tmp-{number % 3}~"
            beside.write_text(sorted(versions)[number % len(versions)], encoding="utf-8")
            beside.replace(path)
            if stop.wait(0.005):
                return

    arguments = {"name": "skill_get_content", "arguments": {"id": "pdf/changing.md"}}
    unwhole: list[object] = []

    async def ask() -> None:
        found = await served.ask_async("tools/call", arguments)
        while found["isError"] and found["structuredContent"]["error"]["code"] == "changed":
            found = await served.ask_async("tools/call", arguments)  # as its message says
        if not is_whole(found, versions):
            unwhole.append(found)

    async def all_of_them() -> None:
        for _ in range(in_a_row):
            await ask()
        for _ in range(4):
            async with anyio.create_task_group() as group:
                for _ in range(32):
                    group.start_soon(ask)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        served.do(all_of_them)
    finally:
        stop.set()
        changing.join()
        path.unlink()
    assert not unwhole, unwhole[0]


# -- base paths --------------------------------------------------------------------------------------------


def test_a_server_with_base_paths_shows_nothing_else(store: Path, tmp_path: Path) -> None:
    with over_stdio(store, tmp_path, "auto", "--base", "deep", log=tmp_path / "log") as served:
        for tool in served.ask("tools/list")["tools"]:
            assert "basePathIds" not in tool["inputSchema"]["properties"]
        error = served.call("skill_get_content", id="deep/er/notes/SKILL.md", basePathIds=["pdf"])["error"]
        assert error["code"] == INVALID
        assert "text" in served.call("skill_get_content", id="deep/er/notes/SKILL.md")
        assert served.call("skill_get_content", id="pdf/SKILL.md")["error"]["code"] == MISSING
        page = served.ask("skills/list")
        assert len(page["skills"]) == 2
        assert "_meta" not in page or "skillfs/skipped" not in page["_meta"]
        assert len(served.ask("resources/list")["resources"]) == 3
        top = served.ask("resources/directory/read", uri="skill://")["resources"]
        assert [r["uri"] for r in top] == ["skill://deep"]
        for uri in ("skill://pdf/SKILL.md", "skill://other/SKILL.md"):
            for method in ("resources/read", "skills/get"):
                with pytest.raises(Refused) as refused:
                    served.ask(method, uri=uri)
                assert "is served" in refused.value.message
        told = served.transcript[1:]  # but for the tools, whose descriptions have examples
    echoes = ("skill://pdf/SKILL.md", '"pdf/SKILL.md"')
    assert not [line for line in told if "pdf" in line and not any(echo in line for echo in echoes)]
    assert "other" not in (tmp_path / "log").read_text()


def test_a_server_wants_a_store_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLFS_STORE", "")
    done = CliRunner().invoke(mcp_command, obj=Target((), None, (), (), ()))
    assert isinstance(done.exception, InvalidArgumentError)
    assert str(done.exception).startswith("which store?")
