"""The tools against each other, and against the filesystem in Python, on stores of every sort."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skillfs import NotFoundError, SkillFileSystem, SkillFSError
from skillfs.tools import answer, call, parse_payload, run_payload
from tests.conftest import skill_md, write

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket

NAMES = (
    *(
        "SKILL.md",
        "123",
        "6a1f6f0e-6f0f-5b0e-9c58-2d1f0a0c9b1d",
        "name:a",
        "md5:" + "0" * 32,
        "skill:",
        "-rf",
    ),
    *(
        "a b",
        " lead",
        "trail ",
        "100%",
        "%2e%2e",
        "a#b",
        "a?b=c",
        "[x].{md}",
        "*",
        "a\\b",
        "~",
        "$HOME",
        "C:",
    ),
    *("a -> b", "a  (9 bytes)", '"quoted"', "(9 files)", "中文.md", "e\u0301.md", "😀.md", "\u202egnp.md"),
    *("\u200bzero.md", ".hidden.md", "report..final.md", "Z.md", "z.md", "a.md", "a-b.md", "a_b.md"),
)
UNREACHABLE = ("line\nbreak.md", "\x1b[31mred.md")
FOLDERS = ("456", "b", "a.b", "a-b", ".dot", "name:x", "Über uns", "nested")

FILES: dict[str, str | bytes] = {
    **{f"odd/{name}": f"# {number}\n" for number, name in enumerate(NAMES)},
    **{f"odd/{folder}/x.md": f"in {folder}\n" for folder in FOLDERS},
    "odd/SKILL.md": skill_md("odd"),
    "odd/nested/SKILL.md": skill_md("nested"),
    "8004/SKILL.md": skill_md("8004"),
    "name:x/deep/er/SKILL.md": skill_md("er"),
    "name:x/outside.md": "outside\n",
    "outside.md": "outside\n",
}


@pytest.fixture(params=["local", "mounted", "s3"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> SkillFileSystem:
    options: dict[str, Any] = {"index": ":memory:", "skip_instance_cache": True}
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        bucket.seed(FILES)
        return SkillFileSystem(bucket.url, target_options=bucket.server.target_options, **options)
    first = write(tmp_path / "first", {**FILES, **{f"odd/{name}": "odd\n" for name in UNREACHABLE}})
    (first / "odd" / "link.md").symlink_to("../8004/SKILL.md")
    (first / "odd" / "link").symlink_to("nested")
    (first / "odd" / "void").mkdir()
    if request.param == "local":
        return SkillFileSystem(first, **options)
    second = write(tmp_path / "second", {"8004/SKILL.md": skill_md("8004"), "z/SKILL.md": skill_md("z")})
    return SkillFileSystem({"zwei": first, "eins": second}, **options)


@pytest.fixture
def local(root: Path, open_fs: Callable[..., SkillFileSystem]) -> SkillFileSystem:
    write(root, FILES)
    return open_fs()


def told(fs: SkillFileSystem, name: str, **arguments: Any) -> dict[str, Any]:
    return answer(fs, name, arguments).structured


def nodes_of(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All below a tree, as it is drawn."""
    for node in tree["children"]:
        yield node
        yield from nodes_of({"children": node.get("children", [])})


def known(node: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(node.get(name) for name in ("path", "name", "kind", "uuid", "id", "link"))


def tree_of(fs: SkillFileSystem, **arguments: Any) -> list[tuple[Any, ...]]:
    tree = told(fs, "skill_tree", **{"id": "/", "includeHidden": True, "maxResults": 5_000, **arguments})
    assert not tree["truncated"]
    return [known(node) for node in nodes_of(tree)]


def list_of(fs: SkillFileSystem, **arguments: Any) -> list[tuple[Any, ...]]:
    found = told(fs, "list_files", **{"includeHidden": True, "maxResults": 5_000, **arguments})
    assert found["success"], found
    assert not found["metadata"]["truncated"]
    return [known(node) for node in found["metadata"]["entries"]]


def test_the_listings_agree(fs: SkillFileSystem) -> None:
    tree = tree_of(fs)
    files = [node for node in tree if node[2] == "file"]
    assert list_of(fs, recursive=True) == files
    walked = []
    folders = ["./"]
    while folders:
        for node in list_of(fs, directoryPath=folders.pop()):
            walked.append(node)
            if node[2] != "file" and node[5] is None:
                folders.append(node[0])
    assert sorted(walked, key=str) == sorted(tree, key=str)
    shown = tree_of(fs, includeHidden=False)
    assert list_of(fs, includeHidden=False, recursive=True) == [node for node in shown if node[2] == "file"]
    assert {name for _, name, *_ in tree} - {name for _, name, *_ in shown} == {
        ".dot",
        ".hidden.md",
        "x.md",
    } - {name for _, name, *_ in shown}
    odd = [node for node in tree if node[1] not in UNREACHABLE]
    assert {node[3] for node in odd if node[2] == "file"} == {
        fs.info(path)["uuid"] for path in fs.find("") if not path.endswith(UNREACHABLE)
    }
    assert {skill.uuid for skill in fs.skills()} == {node[3] for node in tree if node[2] == "skill"}
    assert tree_of(fs, withFiles=False) == [node for node in tree if node[2] != "file"]


def test_every_file_is_read_alike_by_path_uuid_and_payload(fs: SkillFileSystem) -> None:
    for path, name, _, uuid, number, link in list_of(fs, recursive=True):
        content = told(fs, "skill_get_content", id=uuid)
        data = content["text"].encode()
        assert hashlib.md5(data).hexdigest() == content["hash"]
        assert content["path"] == (path if link is None else link)
        assert told(fs, "skill_get_content", id=number) == content
        if name in UNREACHABLE:
            assert told(fs, "read_file", path=path)["error"]["code"] == "invalid_argument"
            assert told(fs, "read_file", path=uuid)["output"] == content["text"]
            continue
        assert told(fs, "skill_get_content", id=path) == content
        assert call(fs, "skill_get_content", {"id": path}) == str(fs.get_content(path))
        read = told(fs, "read_file", path=path)
        assert (read["output"], read["metadata"]["uuid"]) == (content["text"], uuid)
        assert (read["metadata"]["path"], read["metadata"]["size"]) == (content["path"], len(data))
        folder = fs.entry(f"/{path.removeprefix('/').rpartition('/')[0]}").uuid
        for given in ({"filePath": path}, {"filePath": folder, "fileName": name},
                      {"filePath": path, "fileName": name}):  # fmt: skip
            properties = [{"name": member, "value": value} for member, value in given.items()]
            done = run_payload(fs, {"action": "read_file", "properties": properties})
            assert (done["content"], done["metadata"]["path"]) == (content["text"], content["path"]), given
        sections = told(fs, "skill_outline", id=path)["sections"]
        assert sum(section["length"] for section in sections) == content["size"]


def test_what_is_in_no_skill_is_nowhere(fs: SkillFileSystem) -> None:
    everything = str([tree_of(fs), list_of(fs, recursive=True), told(fs, "skill_search", query="outside")])
    assert "outside.md" not in everything
    for prefix in ("", "zwei/"):
        for path in (f"{prefix}outside.md", f"/{prefix}name:x/outside.md"):
            assert told(fs, "read_file", path=path)["error"]["code"] == "not_found"
            with pytest.raises(NotFoundError):
                call(fs, "skill_get_content", {"id": path})


def test_bases_of_a_call_and_of_the_filesystem_agree(
    local: SkillFileSystem, open_fs: Callable[..., SkillFileSystem]
) -> None:
    outer = local.entry("odd").uuid
    md5 = f"md5:{local.get_content('8004/SKILL.md').hash}"
    refs = [
        "/",
        "odd",
        outer,
        "odd/nested",
        "odd/123",
        "8004/SKILL.md",
        "name:8004",
        "/8004",
        "zz",
        "name:zz",
    ]
    refs += [md5, "md5:" + "0" * 32, local.entry("/8004").uuid]
    for bases in (["odd"], ["odd/nested"], [outer, "/8004"], ["/name:x"], ["/"], []):
        own = open_fs(base_paths=bases)
        calls: list[tuple[str, dict[str, Any]]] = [("skill_tree", {}), ("list_files", {"recursive": True})]
        for ref in refs:
            calls += [("skill_tree", {"id": ref}), ("skill_get_content", {"id": ref})]
            calls += [("read_file", {"path": ref}), ("list_files", {"directoryPath": ref})]
        for name, arguments in calls:
            assert outcome(own, name, arguments) == outcome(local, name, arguments, bases), (name, arguments)
    # Nor does an error tell what lies outside from what is nowhere.
    narrow = open_fs(base_paths=["odd"])
    pairs = [("/8004", "/8005"), ("8004/SKILL.md", "8005/SKILL.md"), ("name:8004", "name:8005")]
    for name, argument in (
        ("read_file", "path"),
        ("list_files", "directoryPath"),
        ("skill_get_content", "id"),
    ):
        for there, nowhere in [*pairs, (md5, "md5:" + "0" * 32)]:
            found, missing = (outcome(narrow, name, {argument: ref}) for ref in (there, nowhere))
            assert found.replace(there, "") == missing.replace(nowhere, "")


def outcome(fs: SkillFileSystem, name: str, arguments: dict[str, Any], bases: list[str] | None = None) -> str:
    fixed = None if bases is None else {"basePathIds": bases}
    try:
        found = answer(fs, name, arguments, fixed=fixed)
    except SkillFSError as error:
        return f"{error.code}: {error}"
    return str((found.text, found.structured))


def test_what_changed_between_two_calls_is_told_as_it_is_now(root: Path, local: SkillFileSystem) -> None:
    fs = local
    listed = {name: (path, uuid) for path, name, _, uuid, *_ in list_of(fs, directoryPath="odd")}
    odd = root / "odd"
    (odd / "a.md").unlink()
    (odd / "Z.md").write_text("changed\n")
    (odd / "z.md").rename(odd / "y.md")
    (odd / "a-b.md").unlink()
    write(odd, {"a-b.md/inner.md": "now a folder\n"})
    for ref in listed["a.md"]:
        assert told(fs, "read_file", path=ref)["error"]["code"] == "not_found"
        with pytest.raises(NotFoundError):
            call(fs, "skill_outline", {"id": ref})
    assert told(fs, "read_file", path=listed["Z.md"][1])["output"] == "changed\n"
    assert told(fs, "read_file", path="odd/z.md")["error"]["code"] == "not_found"
    assert told(fs, "read_file", path="odd/a-b.md")["error"]["code"] == "is_folder"
    assert told(fs, "list_files", directoryPath="odd/a-b.md")["output"] == "odd/a-b.md/inner.md\n(1 entry)"
    fs.sync()
    assert told(fs, "read_file", path=listed["z.md"][1])["metadata"]["path"] == "odd/y.md"
    (odd / "SKILL.md").unlink()
    for name, ref in (("read_file", "odd/y.md"), ("list_files", "odd/a.b")):
        argument = "path" if name == "read_file" else "directoryPath"
        assert told(fs, name, **{argument: ref})["error"]["code"] == "not_found"


def test_answers_are_values_that_travel(local: SkillFileSystem) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("skill_tree", {"id": "/", "showDetails": True}), ("skill_get_content", {"id": "odd/a.md"}),
        ("skill_outline", {"id": "odd/SKILL.md"}), ("skill_changes", {}), ("read_file", {"path": "zz"}),
        ("list_files", {"recursive": True, "showDetails": True}),
    ]  # fmt: skip
    expected = [answer(local, name, arguments) for name, arguments in calls]
    assert pickle.loads(pickle.dumps(expected)) == expected
    with ThreadPoolExecutor(8) as pool:
        again = pool.map(lambda given: answer(local, *given), calls * 20)
    assert list(again) == expected * 20
    payload = parse_payload('{"action": "list_files", "sequential": {"prompt": "x"},}')
    assert pickle.loads(pickle.dumps(payload)) == payload
