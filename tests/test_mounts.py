"""Several stores in one: what a table answers is what its stores answer, below the names of the mounts."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import (
    ChangeFeed,
    Changes,
    Entry,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    NotIndexedError,
    SkillFileSystem,
    SkillFSError,
    StoreUnavailableError,
)
from tests.conftest import skill_md, write
from tests.sync.watching import PATIENCE, wait_until

TEXT = "one\ntwo\nthree\n"


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """Three folders with stores, the third of which is itself a skill."""
    return write(
        tmp_path,
        {
            "t/pdf/SKILL.md": skill_md("pdf", "The team's."),
            "t/pdf/t.md": TEXT,
            "t/group/deep/SKILL.md": skill_md("deep"),
            "t/stray.md": "stray",
            "m/pdf/SKILL.md": skill_md("pdf", "My own."),
            "m/pdf/t.md": TEXT,
            "m/notes/SKILL.md": skill_md("notes"),
            "m/notes/.hidden": "x",
            "r/SKILL.md": skill_md("root", "The root's."),
            "r/in/SKILL.md": skill_md("in"),
            "r/in/own.md": "own",
        },
    )


def table_of(stores: Path, **options: Any) -> SkillFileSystem:
    table = {"team": stores / "t", "mine": str(stores / "m"), "root": {"store": stores / "r"}}
    return SkillFileSystem(table, **{"index": ":memory:", "max_age": 0, **options})


@pytest.fixture
def fs(stores: Path) -> SkillFileSystem:
    return table_of(stores)


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(SkillFSError) as caught:
        call()
    return caught.value.code, caught.value.message


# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a/b", "/a", "a/", "a\0", "a\nb", "\ud800", "x" * 256),
        *(
            "8004",
            "2dfd4627-a391-5597-bf5b-924f0550c2c5",
            "2DFD4627A3915597BF5B924F0550C2C5",
            "name:x",
            "name:",
        ),
        *("urn:uuid:2dfd4627-a391-5597-bf5b-924f0550c2c5", "md5:" + "0" * 32, "sha256:" + "a" * 64),
        *("a\u202eb", "\u2066a", "a\u200b", "\ufeffa", "a\u2028b", "a\U000e0041", "\u061ca"),
        *(" a", "a ", '"a"'),
        *(5, None, b"a", ("a",)),
    ],
    ids=repr,
)
def test_names_that_are_none(stores: Path, name: Any) -> None:
    code, message = refusal(lambda: SkillFileSystem({name: stores / "t"}, index=":memory:"))
    assert code == "invalid_argument"
    assert "mount" in message


@pytest.mark.parametrize(
    "name", ["a", "a b", ".agents", "~", "a:b", "C:", "md5:0", "ü", "*", "[x]", "-s", "%2e"]
)
def test_names_that_are_some(stores: Path, name: str) -> None:
    fs = SkillFileSystem({name: stores / "t"}, index=":memory:")
    assert fs.ls("", detail=False) == [name]
    assert fs.entry(f"{name}/pdf/t.md").path == f"{name}/pdf/t.md"
    assert fs.cat_file(fs.find(name)[-1]) == TEXT.encode()
    assert fs.get_content(f"skill://{name.replace('%', '%25')}/pdf/t.md").text == TEXT


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ({}, {}, "empty"),
        ({"a": "{t}"}, {"store_id": "6a1f6f0e-6f0f-4b0e-9c58-2d1f0a0c9b1d"}, '{"store": …, "store_id": …}'),
        ({"a": "{t}"}, {"index": "/tmp/x.sqlite"}, '"index": …'),
        ({"a": "{t}"}, {"fs": print}, '"fs": …'),
        ({"a": "{t}"}, {"target_options": {"anon": True}}, '"target_options": …'),
        ({"a": "{t}"}, {"fo": "{t}"}, "fo belongs"),
        ({"a": "{t}"}, {"max_age": -1}, "max_age"),
        ({"a": "{t}"}, {"colour": "red"}, "colour"),
        ({"a": {"store": "{t}", "colour": "red"}}, {}, '"colour"'),
        ({"a": {"store": "{t}", "watch": True}}, {}, '"watch"'),
        ({"a": {"store": "{t}", "max_age": -1}}, {}, 'mount "a": max_age'),
        ({"a": {"store": "{t}", "max_age": "1"}}, {}, 'mount "a": max_age'),
        ({"a": "{t}"}, {"watch": "yes"}, "watch"),
        ({"a": {}}, {}, 'mount "a": which store?'),
        ({"a": 5}, {}, 'mount "a": '),
        ({"a": None}, {}, 'mount "a": which store?'),
        ({"a": "{t}", "b": "{t}"}, {}, 'mount "b": it has the identity of mount "a"'),
        ({"a": "{t}", "b": "{t}/../t"}, {}, "identity"),
        ({"a": {"store": "{t}", "store_id": "x"}}, {}, "store_id"),
    ],
    ids=str,
)
def test_tables_that_are_refused(stores: Path, table: Any, options: Any, says: str) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        return value.replace("{t}", str(stores / "t")) if isinstance(value, str) else value

    code, message = refusal(lambda: SkillFileSystem(filled(table), **filled(options)))
    assert code == "invalid_argument"
    assert says in message
    assert str(stores) not in message


def test_two_mounts_with_one_identity_are_refused_however_they_come_by_it(stores: Path) -> None:
    own = str(uuid.uuid4())
    write(stores, {"t/.skillfs/store.json": json.dumps({"store_id": own})})
    tables: list[dict[str, Any]] = [
        {"a": stores / "t", "b": {"store": stores / "m", "store_id": own}},
        {"a": {"store": stores / "m", "store_id": own}, "b": {"store": stores / "r", "store_id": own}},
    ]
    for table in tables:
        assert "identity" in refusal(lambda table=table: SkillFileSystem(table, index=":memory:"))[1]
    one = {"store": stores / "t", "index": ":memory:"}
    twice = SkillFileSystem({"a": one, "b": {**one, "store_id": str(uuid.uuid4())}})
    assert twice.entry("a/pdf").uuid != twice.entry("b/pdf").uuid


def test_two_mounts_with_one_index_are_refused(stores: Path, tmp_path: Path) -> None:
    index = tmp_path / "index.sqlite"
    table = {name: {"store": stores / name, "index": index} for name in ("t", "m")}
    assert 'share its index with mount "t"' in refusal(lambda: SkillFileSystem(table))[1]


def test_options_of_all_and_of_one(stores: Path) -> None:
    own = str(uuid.uuid4())
    fs = SkillFileSystem(
        {"a": stores / "t", "b": {"store": stores / "m", "ignore": ["notes"], "store_id": own}},
        ignore=["deep"],
        index=":memory:",
    )
    assert [s.path for s in fs.skills()] == ["a/pdf", "b/pdf"]
    assert fs.status()["mounts"][1]["store_id"] == own
    alone = SkillFileSystem(stores / "m", store_id=own, ignore=["notes"], index=":memory:")
    assert fs.entry("b/pdf/t.md").uuid == alone.entry("pdf/t.md").uuid
    assert fs.entry("b/pdf/t.md").id == alone.entry("pdf/t.md").id


def test_a_mount_shares_its_engine_and_index_with_the_store_alone(stores: Path) -> None:
    alone = SkillFileSystem(stores / "t")
    table = SkillFileSystem({"x": stores / "t", "y": stores / "m"})
    assert table.status()["mounts"][0]["index"] == alone.status()["index"]
    assert table._table.mounts[0].engine is alone._engine
    write(stores, {"t/pdf/new.md": "new"})
    table.sync()
    assert "pdf/new.md" in alone.find("")


def test_a_store_of_any_filesystem_may_be_mounted(stores: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/mounts-{os.getpid()}/far/SKILL.md", skill_md("far").encode())
    url = f"memory://mounts-{os.getpid()}"
    memory.pipe(f"/passed-{os.getpid()}/own/SKILL.md", skill_md("own").encode())
    passed = {"fs": memory, "store": f"/passed-{os.getpid()}"}
    fs = SkillFileSystem({"near": stores / "t", "far": url, "passed": passed})
    assert fs.skill("own").path == "passed/own"
    assert fs.get_content("far/far/SKILL.md").text == skill_md("far")
    assert [m.max_age for m in fs._table.mounts][:2] == [2.0, 60.0]
    assert fs.get_content(f"memory:///mounts-{os.getpid()}/far/SKILL.md").path == "far/far/SKILL.md"
    assert fs.modified("far/far/SKILL.md").tzinfo is not None
    assert SkillFileSystem({"near": stores / "t", "far": url}, max_age=7).max_age == 7
    own = SkillFileSystem({"near": stores / "t", "far": {"store": url, "max_age": 5}}, max_age=7)
    assert [m.max_age for m in own._table.mounts] == [7.0, 5.0]


# -- references --------------------------------------------------------------------------------------------


def test_every_form_of_reference(stores: Path, fs: SkillFileSystem) -> None:
    fs.get_content("mine/pdf/t.md")
    entry = fs.entry("mine/pdf/t.md")
    assert entry.characters == len(TEXT)
    assert (entry.path, entry.name, entry.skill_path) == ("mine/pdf/t.md", "t.md", "mine/pdf")
    refs = [
        *("/mine/pdf/t.md", "./mine/pdf/t.md", "skill://mine/pdf/t.md", "skill://mine/pdf/%74.md"),
        *(f"{stores}/m/pdf/t.md", f"file://{stores}/m/pdf/t.md", entry.uuid, entry.id, str(entry.id)),
    ]
    for ref in refs:
        assert fs.entry(ref) == entry, ref
        content, lines = fs.get_content(ref), fs.get_lines(ref)
        assert (content.path, content.text, content.uuid) == (entry.path, TEXT, entry.uuid)
        assert (lines.path, lines.text, lines.id) == (entry.path, TEXT, entry.id)
    # Of a hash and of a name the first mount, then the first path.
    assert fs.entry(str(entry.hash)).path == "team/pdf/t.md"
    assert fs.entry("name:pdf").path == "team/pdf"
    assert [e.path for e in fs.find_content(str(entry.hash))] == ["mine/pdf/t.md", "team/pdf/t.md"]
    assert fs.entry("mine").name == "mine"
    assert (fs.entry("root").kind, fs.entry("mine/").kind, fs.entry(f"{stores}/r").kind) == (
        "skill",
        "folder",
        "skill",
    )


def test_the_first_mount_wins_whatever_the_paths(stores: Path) -> None:
    turned = SkillFileSystem({"z": stores / "m", "a": stores / "t"}, index=":memory:")
    assert turned.skill("pdf").path == turned.entry("name:pdf").path == "z/pdf"
    assert {s.path: s.shadowed_by for s in turned.skills() if s.name == "pdf"} == {
        "a/pdf": "z/pdf",
        "z/pdf": None,
    }
    assert turned.skill("a/pdf") == next(s for s in turned.skills() if s.path == "a/pdf")
    assert turned.skill("z/pdf").shadowed_by is None
    (problem,) = turned.skill("a/pdf").problems
    assert (problem.code, problem.path) == ("shadowed", "a/pdf/SKILL.md")
    assert '"z/pdf"' in problem.message
    assert problem in turned.problems()
    assert turned.entry(str(turned.entry("a/pdf/t.md").hash)).path == "z/pdf/t.md"
    # Among what can be seen.
    assert turned.skill("pdf", base_paths=["a"]).path == "a/pdf"
    assert turned.skill("pdf", base_paths=["a"]).problems == ()
    assert turned.skill("pdf", base_paths=["a", "z/notes"]).shadowed_by is None
    assert turned.skill("a/pdf", base_paths=["a", "z/pdf"]).shadowed_by == "z/pdf"


def test_the_root(stores: Path, fs: SkillFileSystem) -> None:
    root = fs.entry("/")
    assert (root.path, root.name, root.kind, root.skill_path) == ("", "", "folder", None)
    for ref in (".", "./", root.uuid, root.id, "skill://"):
        assert fs.entry(ref) == root, ref
        assert str(fs.skill_tree(ref)) == str(fs.skill_tree("/"))
    assert fs.entry("/", base_paths=[]) == replace(root, modified=fs.entry("/", base_paths=[]).modified)
    assert table_of(stores).entry("/") == root
    assert SkillFileSystem({"team": stores / "t"}, index=":memory:").entry("/").uuid != root.uuid
    for call in (fs.get_content, fs.get_lines, fs.cat_file, fs.open, fs.checksum):
        with pytest.raises(IsFolderError, match='"/" names a folder'):
            call("/")
    with pytest.raises(NotFoundError):
        fs.skill("/")
    assert fs.skill_tree("/").root.path == ""
    assert fs.skill_tree(cursor=None).to_dict()["path"] == "/"


@pytest.mark.parametrize(
    ("ref", "code", "says"),
    [
        ("none/pdf/t.md", "not_found", '"none/pdf/t.md"; list the tree'),
        ("pdf/t.md", "not_found", '"pdf/t.md"; list the tree'),
        ("/none/", "not_found", '"none"; list the tree'),
        ("roots/in", "not_found", '"roots/in"; did you mean "root"?'),
        ("min", "not_found", 'did you mean "mine"?'),
        ("team/pdf/tt.md", "not_found", '"team/pdf/tt.md"; did you mean "team/pdf/t.md"?'),
        ("team/stray.md", "not_found", '"team/stray.md"; list the tree'),
        ("mine/../team/pdf", "invalid_argument", 'component 2 of the path "mine/../team/pdf"'),
        ("mine//pdf", "invalid_argument", 'component 2 of the path "mine//pdf"'),
        ("team/pdf/t.md/", "is_file", '"team/pdf/t.md" is written as a folder'),
        ("team/pdf", "is_folder", '"team/pdf" names a folder'),
        ("team", "is_folder", '"team" names a folder'),
        ("name:none", "not_found", '"name:none"'),
        ("name:team", "not_found", '"name:team"'),
        (str(uuid.UUID(int=0)), "not_found", str(uuid.UUID(int=0))),
        ("1", "not_found", '"1"'),
        ("xxh3:" + "0" * 32, "not_found", "xxh3:"),
        ("sha256:" + "0" * 64, "not_indexed", "sha256 is not known for every file yet"),
        ("https://example.org/team", "not_found", "https://example.org/team"),
        ("", "invalid_argument", "empty"),
        (None, "invalid_argument", "NoneType"),
        (True, "invalid_argument", "bool"),
        ("x" * 5000, "invalid_argument", "4,096"),
    ],
)
def test_refusals_echo_the_whole_path(fs: SkillFileSystem, ref: object, code: str, says: str) -> None:
    found = refusal(lambda: fs.get_content(ref))
    assert found[0] == code
    assert says in found[1]


def test_a_tree_is_not_for_files(fs: SkillFileSystem) -> None:
    with pytest.raises(IsFileError, match=r'"mine/pdf/t\.md" names a file'):
        fs.skill_tree("mine/pdf/t.md")


def test_of_roots_in_one_another_the_longest_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a/s/SKILL.md": skill_md("s"), "a/b/t/SKILL.md": skill_md("t"), "ab/u/SKILL.md": skill_md("u")},
    )
    for names in (("out", "in"), ("in", "out")):
        places = {"out": tmp_path / "a", "in": tmp_path / "a/b"}
        fs = SkillFileSystem({name: places[name] for name in names}, index=":memory:")
        for prefix in ("", "file://"):
            assert fs.entry(f"{prefix}{tmp_path}/a/b/t").path == "in/t"
            assert fs.entry(f"{prefix}{tmp_path}/a/s").path == "out/s"
            assert fs.info(f"{prefix}{tmp_path}/a/b/t")["name"] == "in/t"
            assert fs._strip_protocol(f"{prefix}{tmp_path}/a/b/t") == "in/t"
            assert fs._strip_protocol(f"{prefix}{tmp_path}/a/b") == "in"
            assert (
                refusal(lambda fs=fs, prefix=prefix: fs.entry(f"{prefix}{tmp_path}/ab/u"))[0] == "not_found"
            )
        assert fs.entry("out/b/t").path == "out/b/t"


def test_names_of_mounts_are_found_in_another_normal_form(stores: Path) -> None:
    name = "caf\u00e9"
    fs = SkillFileSystem({name: stores / "t", "b": stores / "m"}, index=":memory:")
    other = unicodedata.normalize("NFD", name)
    assert fs.entry(f"{other}/pdf").path == f"{name}/pdf"
    assert f'"{other}/none"' in refusal(lambda: fs.entry(f"{other}/none"))[1]
    both = SkillFileSystem({name: stores / "t", other: stores / "m"}, index=":memory:")
    assert [both.entry(f"{n}/pdf").path for n in (name, other)] == [f"{name}/pdf", f"{other}/pdf"]
    # What is out of bounds is echoed as what is not there: as it was sent.
    confined = SkillFileSystem({name: stores / "t", "b": stores / "m"}, index=":memory:", base_paths=["b"])
    assert refusal(lambda: confined.entry(f"{other}/pdf"))[1].count(other) == 1


def test_hashes_that_one_mount_knows_and_another_does_not(stores: Path, fs: SkillFileSystem) -> None:
    import hashlib

    md5 = "md5:" + hashlib.md5(TEXT.encode()).hexdigest()
    with pytest.raises(NotIndexedError):
        fs.find_content(md5)
    fs.get_content("mine/pdf/t.md")
    assert fs.entry(md5).path == "mine/pdf/t.md"
    assert [e.path for e in fs.find_content(md5)] == ["mine/pdf/t.md"]
    seen: list[tuple[int, int]] = []
    count = fs.status()["files"]
    assert fs.index_all(on_progress=lambda done, total: seen.append((done, total))) == count
    assert seen[-1] == (count, count)
    assert seen == sorted(seen)
    assert fs.entry(md5).path == "team/pdf/t.md"
    assert [e.path for e in fs.find_content(md5)] == ["mine/pdf/t.md", "team/pdf/t.md"]
    with pytest.raises(NotFoundError):
        fs.find_content("md5:" + "0" * 32)
    with pytest.raises(InvalidArgumentError, match="no content hash"):
        fs.find_content("mine/pdf/t.md")


def test_an_id_of_a_later_mount_does_not_cost_a_check_of_the_first(stores: Path) -> None:
    fs = table_of(stores, max_age=3600)
    number = fs.entry("root/in").id
    checked: list[str] = []
    first = fs._table.mounts[0].engine
    first.ensure_fresh = lambda path, max_age: checked.append(path)  # type: ignore[method-assign]
    try:
        assert fs.entry(number).path == "root/in"
    finally:
        del first.ensure_fresh
    assert checked == []


def test_links_stay_in_their_store(stores: Path) -> None:
    (stores / "m/pdf/in.md").symlink_to("t.md")
    (stores / "m/pdf/out.md").symlink_to("../../t/pdf/t.md")
    fs = table_of(stores)
    entry = fs.entry("mine/pdf/in.md")
    assert (entry.path, entry.link) == ("mine/pdf/t.md", "mine/pdf/t.md")
    assert fs.info("mine/pdf/in.md")["name"] == "mine/pdf/in.md"
    assert "in.md -> mine/pdf/t.md" in str(fs.skill_tree("mine/pdf"))
    assert refusal(lambda: fs.entry("mine/pdf/out.md"))[0] == "not_found"
    assert ("link-escapes", "mine/pdf/out.md") in [(p.code, p.path) for p in fs.problems()]


# -- base paths --------------------------------------------------------------------------------------------

EVERYTHING = ["mine/notes", "mine/pdf", "root", "root/in", "team/group/deep", "team/pdf"]


@pytest.mark.parametrize(
    ("bases", "skills", "top"),
    [
        (["/"], EVERYTHING, ["mine", "root", "team"]),
        ([], [], []),
        (["team"], ["team/group/deep", "team/pdf"], ["team"]),
        (["team/"], ["team/group/deep", "team/pdf"], ["team"]),
        (["team/group", "mine/notes"], ["mine/notes", "team/group/deep"], ["mine", "team"]),
        (["root/in"], ["root/in"], ["root"]),
        (["root"], ["root", "root/in"], ["root"]),
        (["root", "root/in"], ["root", "root/in"], ["root"]),
        (["root/in", "root"], ["root", "root/in"], ["root"]),
        (["name:pdf"], ["team/pdf"], ["team"]),
        (["name:notes", "/team/pdf"], ["mine/notes", "team/pdf"], ["mine", "team"]),
        (["{m}/pdf"], ["mine/pdf"], ["mine"]),
        (["{m}"], ["mine/notes", "mine/pdf"], ["mine"]),
        (["skill://mine/pdf"], ["mine/pdf"], ["mine"]),
        (["uuid:mine/pdf"], ["mine/pdf"], ["mine"]),
        (["uuid:/"], EVERYTHING, ["mine", "root", "team"]),
        (["mine", "/"], EVERYTHING, ["mine", "root", "team"]),
    ],
    ids=str,
)
def test_what_base_paths_let_see(stores: Path, bases: list[str], skills: list[str], top: list[str]) -> None:
    fs = table_of(stores)
    given = [
        fs.entry(base[5:]).uuid if base.startswith("uuid:") else base.replace("{m}", str(stores / "m"))
        for base in bases
    ]
    confined = table_of(stores, base_paths=given)
    assert [s.path for s in fs.skills(base_paths=given)] == [s.path for s in confined.skills()] == skills
    assert confined.ls("", detail=False) == top
    assert [c.name for c in confined.skill_tree("/").root.children] == top
    tree = fs.skill_tree("/", base_paths=given)
    assert [c.name for c in tree.root.children] == top
    assert str(tree) == str(confined.skill_tree("/"))
    assert [p for p in confined.find("") if p.endswith("/SKILL.md")] == [
        f"{path}/SKILL.md" for path in skills
    ]
    assert [m["name"] for m in confined.status()["mounts"]] == [
        n for n in ("team", "mine", "root") if n in top
    ]
    assert confined.status()["skills"] == len(skills)
    assert confined.fsid == fs.fsid
    for path in set(EVERYTHING) - set(skills):
        code, message = refusal(lambda path=path: confined.entry(f"{path}/SKILL.md"))
        missing = message.replace(path, f"none/{path}")
        assert (code, message) == refusal(lambda path=path: fs.entry(f"{path}/SKILL.md", base_paths=given))
        assert missing == refusal(lambda path=path: confined.entry(f"none/{path}/SKILL.md"))[1]
    for mount in {"team", "mine", "root"} - set(top):
        message = f'nothing visible answers to "{mount}"; list the tree to see what there is'
        assert refusal(lambda mount=mount: confined.ls(mount)) == ("not_found", message)
        assert not confined.exists(mount)


def test_a_mount_that_is_a_skill_out_of_bounds_is_a_folder(stores: Path, fs: SkillFileSystem) -> None:
    bases = ["root/in"]
    for tree in (fs.skill_tree(base_paths=bases), fs.skill_tree("/", base_paths=bases)):
        (root,) = tree.root.children
        assert (root.name, root.kind, root.description) == ("root", "folder", None)
        assert "root's" not in str(tree)
    confined = table_of(stores, base_paths=bases)
    assert confined.info("root")["kind"] == "folder"
    assert confined.ls("")[0]["kind"] == "folder"
    assert confined.entry("root").kind == "folder"


def test_bases_of_a_call_are_within_those_of_the_filesystem(stores: Path) -> None:
    fs = table_of(stores, base_paths=["mine", "root/in"])
    assert [s.path for s in fs.skills(base_paths=["/"])] == ["mine/notes", "mine/pdf", "root/in"]
    assert [s.path for s in fs.skills(base_paths=["root"])] == ["root/in"]
    assert [s.path for s in fs.skills(base_paths=["mine/pdf"])] == ["mine/pdf"]
    assert refusal(lambda: fs.skills(base_paths=["team/pdf"]))[0] == "not_found"
    assert refusal(lambda: fs.skills(base_paths=["team"]))[0] == "not_found"
    assert fs.skill("pdf").path == "mine/pdf"
    assert fs.skill("pdf").shadowed_by is None


@pytest.mark.parametrize(
    ("bases", "code"),
    [
        ("mine", "invalid_argument"),
        (None, None),
        ({"mine": 1}, "invalid_argument"),
        ([""], "invalid_argument"),
        ([".."], "invalid_argument"),
        ([None], "invalid_argument"),
        (["none"], "not_found"),
        (["mine", "none/pdf"], "not_found"),
        (["mine/none"], "not_found"),
        (["name:none"], "not_found"),
        (["mine/pdf/t.md"], "is_file"),
        (["mine/pdf/t.md/"], "is_file"),
        (["team/stray.md"], "not_found"),
        ([str(uuid.UUID(int=0))], "not_found"),
        (["mine"] * 10_001, "invalid_argument"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_malformed_bases_are_refused(stores: Path, fs: SkillFileSystem, bases: Any, code: str | None) -> None:
    if code is None:
        assert len(fs.skills(base_paths=bases)) == len(EVERYTHING)
        return
    found = refusal(lambda: fs.skills(base_paths=bases))
    assert found[0] == code
    assert refusal(lambda: table_of(stores, base_paths=bases)) == found
    # Whatever else is asked for.
    assert refusal(lambda: fs.get_content("root/in/own.md", base_paths=bases)) == found


def test_what_lies_in_a_mount_out_of_bounds_leaves_no_trace(stores: Path) -> None:
    def answers() -> list[object]:
        fs = table_of(stores, base_paths=["team/pdf"])
        content = str(fs.entry("team/pdf/t.md").hash)
        return [
            *(
                fs.find("", detail=True),
                fs.skills(),
                fs.problems(),
                str(fs.skill_tree("/")),
                list(fs.walk("")),
            ),
            *(refusal(lambda ref=ref: fs.entry(ref)) for ref in ("mine/pdf/t.md", "mime", "name:notes", "9")),
            *(fs.entry("name:pdf"), fs.find_content(content), fs.to_prompt(), fs.roots, fs.status()["files"]),
            *(fs.ukey(""), fs.modified("")),
        ]

    confined = table_of(stores, base_paths=["team/pdf"])
    before, revision = answers(), confined.revision
    write(stores, {"m/pdf/t.md": "another", "m/new/SKILL.md": "x", "m/new/pdf.md": TEXT})
    (stores / "m/notes/SKILL.md").unlink()
    assert answers() == before
    assert confined.changes(revision) == Changes(revision, False, ())


# -- freshness ---------------------------------------------------------------------------------------------


def test_each_change_is_delivered_once(stores: Path) -> None:
    fs, other = table_of(stores), table_of(stores)
    since = seen = fs.revision
    assert fs.changes(since) == Changes(since, False, ())
    got: list[tuple[str, str, str | None]] = []
    steps: list[Callable[[], object]] = [
        lambda: write(stores, {"t/pdf/new.md": "n"}),
        lambda: write(stores, {"m/pdf/t.md": "changed", "r/in/more.md": "m"}),
        lambda: (stores / "t/pdf").rename(stores / "t/moved"),
        lambda: (stores / "m/notes/SKILL.md").unlink(),
        lambda: None,
    ]
    for step in steps:
        step()
        changes = fs.changes(seen)
        assert not changes.reset
        assert (changes.revision > seen) == bool(changes.items)
        assert other.revision == changes.revision
        got += [(c.kind, c.path, c.old_path) for c in changes.items]
        seen = changes.revision
    assert got == [(c.kind, c.path, c.old_path) for c in sorted_by(got, other.changes(since))]
    assert ("moved", "team/moved/t.md", "team/pdf/t.md") in got
    assert ("modified", "mine/pdf/t.md", None) in got
    assert ("removed", "mine/notes/SKILL.md", None) in got
    assert [c.path for c in fs.changes(since, base_paths=["root"]).items] == ["root/in/more.md"]


def sorted_by(order: list[tuple[str, str, str | None]], changes: Changes) -> list[Any]:
    """The same changes at once come mount by mount."""
    assert not changes.reset
    return sorted(changes.items, key=lambda c: order.index((c.kind, c.path, c.old_path)))


def test_what_is_not_known_is_a_reset(stores: Path) -> None:
    fs = table_of(stores)
    now = fs.revision
    for since in (0, 1, now - 1, now + 1, 10**30):
        changes = fs.changes(since)
        assert (changes.reset, changes.items, changes.revision) == (True, (), now)
    for since in (-1, True, "1", None, 1.0):
        with pytest.raises(InvalidArgumentError):
            fs.changes(since)  # type: ignore[arg-type]


def test_a_mount_whose_index_was_begun_anew_resets_all_that_see_it(stores: Path, tmp_path: Path) -> None:
    table = {name: {"store": stores / name, "index": tmp_path / f"{name}.sqlite"} for name in ("t", "m")}
    since = SkillFileSystem(table, max_age=0).revision
    gc.collect()
    for file in tmp_path.glob("m.sqlite*"):
        file.unlink()
    write(stores, {"t/pdf/new.md": "n"})
    fs = SkillFileSystem(table, max_age=0)
    changes = fs.changes(since)
    assert (changes.reset, changes.items) == (True, ())
    assert changes.revision == fs.revision > since
    assert [c.path for c in fs.changes(since, base_paths=["t"]).items] == ["t/pdf/new.md"]


CHANGES = """
import sys
from skillfs import SkillFileSystem
fs = SkillFileSystem({"team": sys.argv[1] + "/t", "mine": sys.argv[1] + "/m"}, max_age=0)
found = fs.changes(int(sys.argv[2])) if len(sys.argv) > 2 else None
print(fs.revision if found is None else [found.reset, found.revision, [c.path for c in found.items]])
"""


def test_revisions_count_on_in_other_processes(stores: Path, data_home: Path) -> None:
    def run(*arguments: object) -> str:
        command = [sys.executable, "-c", CHANGES, str(stores), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    first = int(run())
    fs = SkillFileSystem({"team": stores / "t", "mine": stores / "m"}, max_age=0)
    assert fs.revision == first
    write(stores, {"m/pdf/new.md": "n"})
    assert run(first) == f"[False, {first + 1}, ['mine/pdf/new.md']]"
    assert run(first + 1) == f"[False, {first + 1}, []]"
    assert [c.path for c in fs.changes(first).items] == ["mine/pdf/new.md"]
    # Under other names, or in another order, they are other mounts.
    assert SkillFileSystem({"t": stores / "t", "mine": stores / "m"}).changes(first).reset
    (file,) = [f for f in (data_home / "skillfs/indexes").glob("*.mounts.sqlite") if f.stat().st_size][:1]
    assert file.stat().st_mode & 0o077 == 0 or (file.parent.stat().st_mode & 0o077) == 0
    for damaged in (data_home / "skillfs/indexes").glob("*.mounts.sqlite"):
        damaged.write_bytes(b"no database at all" * 100)
    assert fs.changes(first).reset
    assert not fs.changes(fs.revision).reset


def test_a_store_that_is_not_there_is_named(stores: Path) -> None:
    for name, away in (("team", stores / "t"), ("mine", stores / "m")):
        moved = away.rename(away.with_name("away"))
        code, message = refusal(lambda: table_of(stores))
        assert code == "not_found"
        assert message.startswith(f'mount "{name}": ')
        moved.rename(away)


def test_others_go_on_when_one_goes_away(stores: Path) -> None:
    fs = table_of(stores)
    notes = fs.entry("mine/notes").uuid
    (stores / "t").rename(stores / "away")
    write(stores, {"m/notes/new.md": "new"})
    assert fs.ls("mine/notes", detail=False)[-1] == "mine/notes/new.md"
    assert fs.get_content("mine/notes/new.md").text == "new"
    assert [s.path for s in fs.skills(base_paths=["mine"])] == ["mine/notes", "mine/pdf"]
    assert "notes" in str(fs.skill_tree("mine"))
    assert fs.entry(notes).path == "mine/notes"
    calls: list[Callable[[], object]] = [
        fs.skills, fs.problems, fs.sync, fs.invalidate_cache, fs.skill_tree, lambda: fs.ls(""),
        lambda: fs.find(""), lambda: fs.skill("notes"), lambda: fs.changes(0), lambda: fs.skill_tree("/"),
    ]  # fmt: skip
    for call in calls:
        code, message = refusal(call)
        assert code == "unavailable"
        assert message.startswith('mount "team": ')
        assert str(stores) not in message
    with pytest.raises(StoreUnavailableError):
        fs.ls("team")
    write(stores, {"m/notes/after.md": "after"})
    with pytest.raises(StoreUnavailableError):
        fs.sync()  # which checks the others all the same
    mine = fs._table.mounts[1].engine
    assert mine.catalog.by_path(("notes", "after.md")) is not None
    (stores / "away").rename(stores / "t")
    assert len(fs.skills()) == len(EVERYTHING)


PATH_CALLS: dict[str, Callable[[SkillFileSystem, str], object]] = {
    **{
        name: lambda fs, path, name=name: getattr(fs, name)(path)  # type: ignore[misc]
        for name in ("info", "ls", "find", "exists", "isfile", "isdir", "cat_file", "open", "ukey", "created",
                     "modified", "checksum", "entry", "get_content", "get_lines", "skill", "rm", "rm_file",
                     "touch", "du", "head", "read_text")
    },
    "pipe_file": lambda fs, path: fs.pipe_file(path, b"x"),
    "pipe": lambda fs, path: fs.pipe({path: b"x"}),
    "put_file": lambda fs, path: fs.put_file(__file__, path),
    "open for writing": lambda fs, path: fs.open(path, "wb").close(),
    "mv": lambda fs, path: fs.mv(path, f"{path}.old"),
    "cp_file": lambda fs, path: fs.cp_file(path, f"{path}.old"),
    "mkdir": lambda fs, path: fs.mkdir(f"{path}.folder"),
    "makedirs": lambda fs, path: fs.makedirs(f"{path}.folder/below"),
    "skill_tree": lambda fs, path: fs.skill_tree(path.rpartition("/")[0]),
    "cat": lambda fs, path: fs.cat([path]),
    "cat_ranges": lambda fs, path: fs.cat_ranges([path], 0, 1, on_error="raise"),
    "walk": lambda fs, path: list(fs.walk(path.rpartition("/")[0], on_error="raise")),
}  # fmt: skip


@pytest.mark.parametrize("name", PATH_CALLS)
def test_whatever_a_path_is_for_the_mount_that_is_away_is_named(stores: Path, name: str) -> None:
    fs = table_of(stores, writable=True)
    write(stores, {"t/pdf/more.md": "not looked at yet"})
    (stores / "t").rename(stores / "away")
    failed: list[SkillFSError] = []
    for path in ("team/pdf/t.md", "team/pdf/more.md", f"{stores}/t/pdf/t.md"):
        try:
            PATH_CALLS[name](fs, path)
        except SkillFSError as error:
            failed.append(error)
    away = [error.message for error in failed if error.code == "unavailable"]
    assert away
    assert all(message.startswith('mount "team": ') for message in away)
    assert all(message.count("mount ") == 1 for message in away)
    assert not any(str(stores) in message.replace(f"{stores}/t/", "") for message in away)


def test_a_check_holds_for_max_age_in_each_mount(stores: Path) -> None:
    fs = table_of(stores, max_age=3600)
    write(stores, {"t/new/SKILL.md": skill_md("new"), "m/new/SKILL.md": skill_md("new")})
    assert len(fs.skills()) == len(EVERYTHING)
    fs.sync()
    assert len(fs.skills()) == len(EVERYTHING) + 2


# -- fsspec ------------------------------------------------------------------------------------------------


def test_every_way_to_an_instance(stores: Path) -> None:
    table = {"team": str(stores / "t"), "mine": {"store": str(stores / "m"), "ignore": ["notes"]}}
    options: dict[str, Any] = {"store": table, "index": ":memory:"}
    fs = fsspec.filesystem("skill", **options)
    assert isinstance(fs, SkillFileSystem)
    again: list[Any] = [pickle.loads(pickle.dumps(fs)), AbstractFileSystem.from_json(fs.to_json())]
    for other in (fs, *again):
        assert type(other) is type(fs)
        assert other.find("mine") == ["mine/pdf/SKILL.md", "mine/pdf/t.md"]
        assert other.fsid == fs.fsid
        assert other.revision == fs.revision
    with fsspec.open("skill://mine/pdf/t.md", "r", **options) as file:
        assert file.read() == TEXT
    assert [f.path for f in fsspec.open_files("skill://*/pdf/t.md", **options)] == [
        "mine/pdf/t.md",
        "team/pdf/t.md",
    ]
    mapper = fsspec.get_mapper("skill://mine/pdf", **options)
    assert mapper["t.md"] == TEXT.encode()
    assert fs.unstrip_protocol("mine/pdf") == "skill://mine/pdf"


def answer_in_child(fs: SkillFileSystem, answers: Any) -> None:
    try:
        answers.put((fs.get_content("mine/pdf/t.md").text, fs.find("team"), fs.changes(fs.revision).items))
    except BaseException as error:
        answers.put(repr(error))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("index", [None, ":memory:"])
def test_other_processes(stores: Path, method: str, index: str | None) -> None:
    fs = table_of(stores, index=index, max_age=3600)
    expected = (TEXT, fs.find("team"), ())
    revision = fs.revision
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=answer_in_child, args=(fs, answers))
    child.start()
    assert answers.get(timeout=30) == expected
    child.join(30)
    assert child.exitcode == 0
    assert (fs.get_content("mine/pdf/t.md").text, fs.find("team"), ()) == expected
    assert fs.revision == revision


def test_threads_share_one_table(stores: Path) -> None:
    kept = table_of(stores)
    start = kept.revision

    def work(number: int) -> list[str]:
        fs, seen, got = table_of(stores), start, []
        for turn in range(10):
            write(stores, {f"m/pdf/own-{number}.md": str(turn)})
            changes = fs.changes(seen)
            assert not changes.reset
            got += [c.path for c in changes.items]
            seen = changes.revision
            assert fs.get_content(f"mine/pdf/own-{number}.md").text == str(turn)
        return got

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    assert all(f"mine/pdf/own-{number}.md" in got for number, got in enumerate(found))
    assert kept.changes(kept.revision).items == ()


def test_a_class_of_ones_own_takes_one_store(stores: Path) -> None:
    class Own(SkillFileSystem):
        pass

    assert Own(stores / "t", index=":memory:").exists("pdf")
    with pytest.raises(InvalidArgumentError, match="takes one store"):
        Own({"a": stores / "t"}, index=":memory:")


def test_methods_of_fsspec(stores: Path, fs: SkillFileSystem, tmp_path: Path) -> None:
    assert fs.ls("", detail=False) == fs.ls("/", detail=False) == ["mine", "root", "team"]
    assert fs.ls("") == [fs.info(name) for name in ("mine", "root", "team")]
    assert [fs.info(name)["kind"] for name in ("", "mine", "root")] == ["folder", "folder", "skill"]
    assert fs.info("")["uuid"] == fs.entry("/").uuid
    assert (fs.isdir(""), fs.isdir("mine"), fs.isdir("none"), fs.exists("mine/none")) == (
        True,
        True,
        False,
        False,
    )
    assert (fs.isfile("mine/pdf/t.md"), fs.isfile("mine"), fs.exists("mine//pdf")) == (True, False, False)
    assert fs.find("", maxdepth=1) == []
    assert fs.find("", maxdepth=1, withdirs=True) == ["mine", "root", "team"]
    assert fs.find("", maxdepth=2) == ["root/SKILL.md"]
    assert fs.find("mine/pdf/t.md") == ["mine/pdf/t.md"]
    assert fs.find("none") == []
    assert [top for top, _, _ in fs.walk("", maxdepth=2)] == ["", "mine", "root", "team"]
    assert [top for top, _, _ in fs.walk("root", topdown=False)] == ["root/in", "root"]
    assert list(fs.walk("none")) == []
    with pytest.raises(NotFoundError):
        list(fs.walk("none", on_error="raise"))
    assert fs.glob("*/pdf/*.md") == [
        f"{mount}/pdf/{name}" for mount in ("mine", "team") for name in ("SKILL.md", "t.md")
    ]
    assert fs.glob("*") == ["mine", "root", "team"]
    assert fs.cat_file("mine/pdf/t.md", 4, -1) == TEXT.encode()[4:-1]
    ranges = fs.cat_ranges(["mine/pdf/t.md", "none/x", "", "team"], 0, 3)
    assert ranges[0] == b"one"
    assert [type(r) for r in ranges[1:]] == [NotFoundError, IsFolderError, IsFolderError]
    with fs.open("mine/pdf/t.md") as file:
        assert (file.read(), file.path, file.raw.path) == (TEXT.encode(), "mine/pdf/t.md", "mine/pdf/t.md")
        (stores / "m/pdf/t.md").write_text("another text")
        with pytest.raises(SkillFSError, match=r'"mine/pdf/t\.md" changed since'):
            file.seek(0) or file.raw.read()
    key = fs.ukey("mine/pdf/t.md")
    os.utime(stores / "m/pdf/t.md", (1, 1))
    assert fs.ukey("mine/pdf/t.md") != key
    assert fs.modified("mine/pdf/t.md").timestamp() == 1
    assert fs.created("mine").tzinfo is not None
    assert fs.modified("") == max(fs.modified(name) for name in ("mine", "root", "team"))
    assert fs.checksum("team/pdf/t.md") == SkillFileSystem(stores / "t", index=":memory:").checksum(
        "pdf/t.md"
    )
    assert fs.du("mine") == sum(fs.sizes(fs.find("mine")))
    for name in ("none", "none/x"):
        for call in (fs.ls, fs.info, fs.cat_file, fs.open, fs.ukey, fs.created, fs.checksum):
            assert refusal(lambda call=call, name=name: call(name))[0] == "not_found"
    fs.get("mine/pdf", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/t.md").read_text() == "another text"
    assert fs.find(f"{stores}/m/pdf") == ["mine/pdf/SKILL.md", "mine/pdf/t.md"]


def test_where_a_path_leads(stores: Path, fs: SkillFileSystem) -> None:
    for path in ("mine/pdf/new.md", "/mine/pdf/new.md", "skill://mine/pdf/new.md", f"{stores}/m/pdf/new.md"):
        mount, asked = fs._located(path)
        assert (mount.name, asked.ref.parts) == ("mine", ("pdf", "new.md"))
    assert fs._located("team")[1].ref.parts == ()
    assert refusal(lambda: fs._located("none/x"))[0] == "not_found"
    assert refusal(lambda: fs._located(""))[0] == "invalid_argument"


def test_status_tells_of_every_mount(stores: Path, fs: SkillFileSystem) -> None:
    status = fs.status()
    assert [m["name"] for m in status["mounts"]] == ["team", "mine", "root"]
    for key in ("skills", "folders", "files", "bytes"):
        assert status[key] == sum(m[key] for m in status["mounts"])
    for mount, store in zip(status["mounts"], ("t", "m", "r"), strict=True):
        alone = SkillFileSystem(stores / store, index=":memory:").status()
        assert {k: v for k, v in mount.items() if k != "name"} == alone
    assert status["revision"] == fs.revision
    json.dumps(status)


def test_status_of_a_remote_store_tells_how_far_its_listings_go(stores: Path) -> None:
    name = f"status-{uuid.uuid4()}"
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/{name}/a/SKILL.md", skill_md("a").encode())
    fs = SkillFileSystem({"near": stores / "t", "far": f"memory://{name}"}, index=":memory:", max_age=0.01)
    near, far = fs.status()["mounts"]
    assert not {"tells", "checked", "check_error"} & near.keys()
    assert far["tells"] in ("version", "time", "nothing")
    assert 0 <= far["checked"] < 60
    assert far["check_error"] is None
    assert {k: v for k, v in far.items() if k not in ("name", "checked")} == {
        k: v for k, v in SkillFileSystem(f"memory://{name}").status().items() if k != "checked"
    }
    memory.rm(f"/{name}", recursive=True)
    deadline = time.monotonic() + 10
    while fs.status()["mounts"][1]["check_error"] is None and time.monotonic() < deadline:
        time.sleep(0.02)
        fs.ls("far")
    failed = fs.status()["mounts"][1]
    assert failed["check_error"]
    json.dumps(failed)


# -- watching ----------------------------------------------------------------------------------------------


def next_paths(feed: ChangeFeed) -> list[tuple[str, str]]:
    changes = feed.get(timeout=PATIENCE)
    assert changes is not None
    assert not changes.reset
    return sorted((change.kind, change.path) for change in changes.items)


def taken(feed: ChangeFeed, count: int) -> list[tuple[str, str]]:
    """So many changes, however they were put together."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        found += next_paths(feed)
    return found


def states(feed: ChangeFeed) -> dict[str, str]:
    return {mount["name"]: mount["watch"] for mount in feed.status()["mounts"]}


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_changes_of_several_stores_as_they_come(stores: Path, on_disk: bool) -> None:
    fs = table_of(stores, index=None if on_disk else ":memory:", writable=True)
    start = fs.revision
    with fs.watch() as feed, fs.watch(base_paths=["mine"]) as mine:
        wait_until(lambda: set(states(feed).values()) == {"watching"})
        assert states(mine) == {"mine": "watching"}
        write(stores, {"t/pdf/new.md": "new"})
        assert next_paths(feed) == [("added", "team/pdf/new.md")]
        fs.mv("team/pdf/new.md", "mine/notes/new.md")  # two stores, of which each has its own revisions
        assert sorted(taken(feed, 2)) == [("added", "mine/notes/new.md"), ("removed", "team/pdf/new.md")]
        write(stores, {"m/pdf/a.md": "a", "r/in/b.md": "b"})
        assert sorted(taken(feed, 2)) == [("added", "mine/pdf/a.md"), ("added", "root/in/b.md")]
        assert feed.revision == fs.revision > start
        assert sorted(taken(mine, 2)) == [("added", "mine/notes/new.md"), ("added", "mine/pdf/a.md")]
        assert mine.get(timeout=0) is feed.get(timeout=0) is None
        since = feed.revision
        write(stores, {"m/pdf/a.md": "another"})
        assert next_paths(feed) == [("modified", "mine/pdf/a.md")]
        with fs.watch(since=since) as later:
            assert next_paths(later) == [("modified", "mine/pdf/a.md")]
            assert later.get(timeout=0) is None
    assert fs.status()["mounts"][0]["watch"] == "off"


def test_revisions_of_several_stores_come_in_order_once(stores: Path) -> None:
    fs = table_of(stores, index=None, writable=True)
    alone = SkillFileSystem(stores / "t", writable=True)
    told: list[Changes] = []
    start = fs.revision
    with fs.watch(told.append):
        for number in range(20):
            # In one step: what is written in place may be seen twice, empty at first.
            write(stores, {"new.md": f"{number}"})
            (stores / "new.md").rename(stores / f"m/pdf/{number}.md")
            fs.pipe_file(f"root/in/{number}.md", b"")
            alone.pipe_file(f"pdf/{number}.md", b"")
        fs.sync()
        wait_until(lambda: told and told[-1].revision == fs.revision)
    revisions = [changes.revision for changes in told]
    assert revisions == sorted(set(revisions))
    assert all(changes.items and not changes.reset for changes in told)
    found = sorted(change.path for changes in told for change in changes.items)
    expected = sorted(f"{skill}/{n}.md" for n in range(20) for skill in ("mine/pdf", "root/in", "team/pdf"))
    assert found == expected
    assert sorted(change.path for change in fs.changes(start).items) == expected


def test_a_revision_that_no_table_of_mounts_had(stores: Path) -> None:
    fs = table_of(stores, writable=True)
    unknown: list[Callable[[int], int]] = [lambda _: 0, lambda _: 1, lambda now: now + 1, lambda _: 10**30]
    for number, since in enumerate(unknown):
        with fs.watch(since=since(fs.revision)) as feed:
            assert feed.get(timeout=0) == Changes(fs.revision, True, ())
            fs.pipe_file("mine/pdf/x.md", b"%d" % number)
            assert [path for _, path in next_paths(feed)] == ["mine/pdf/x.md"]
    for bad in (-1, True, "1", 1.0):
        with pytest.raises(InvalidArgumentError):
            fs.watch(since=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("of_the_call", [True, False])
def test_nothing_is_told_of_what_is_out_of_bounds_in_any_mount(stores: Path, of_the_call: bool) -> None:
    writing = table_of(stores, index=None, writable=True)
    bases = ["mine/notes", "root/in"]
    confined = writing if of_the_call else table_of(stores, index=None, base_paths=bases)
    with confined.watch(base_paths=bases if of_the_call else None) as feed:
        wait_until(lambda: states(feed) == {"mine": "watching", "root": "watching"})
        assert feed.status()["watched_folders"] is None
        start = feed.revision
        writing.pipe_file("team/pdf/new.md", b"")
        writing.pipe_file("mine/pdf/new.md", b"")
        writing.pipe_file("root/new.md", b"")
        assert feed.get(timeout=0.2) is None
        assert feed.revision == start
        writing.mv("mine/pdf/new.md", "mine/notes/new.md")
        assert next_paths(feed) == [("added", "mine/notes/new.md")]
        writing.mv("mine/notes/new.md", "team/pdf/other.md")
        assert next_paths(feed) == [("removed", "mine/notes/new.md")]
        assert feed.get(timeout=0) is None


def test_what_a_call_allows_is_within_what_the_filesystem_does(stores: Path) -> None:
    writing = table_of(stores, index=None, writable=True)
    confined = table_of(stores, index=None, base_paths=["team/group/deep", "mine/notes"])
    above = [confined.entry("mine").uuid, "team/group"]
    with confined.watch(base_paths=above) as feed, writing.watch(base_paths=["mine"]) as mine:
        writing.pipe_file("team/group/other/SKILL.md", b"")
        writing.pipe_file("team/pdf/new.md", b"")
        assert mine.get(timeout=0) is None
        writing.pipe_file("mine/pdf/new.md", b"")
        assert next_paths(mine) == [("added", "mine/pdf/new.md")]
        assert feed.get(timeout=0) is None
        writing.pipe_file("team/group/deep/new.md", b"")
        writing.pipe_file("mine/notes/new.md", b"")
        assert sorted(taken(feed, 2)) == [("added", "mine/notes/new.md"), ("added", "team/group/deep/new.md")]
        assert feed.get(timeout=0) is None
        with pytest.raises(NotFoundError):
            confined.watch(base_paths=["mine/pdf"])


def test_a_base_in_a_mount_follows_what_it_names(stores: Path) -> None:
    writing = table_of(stores, index=None, writable=True)
    with writing.watch(base_paths=[writing.entry("mine/notes").uuid]) as feed:
        writing.mv("mine/notes", "mine/elsewhere", recursive=True)
        assert feed.get(timeout=PATIENCE) == Changes(writing.revision, True, ())
        writing.pipe_file("mine/elsewhere/new.md", b"")
        assert next_paths(feed) == [("added", "mine/elsewhere/new.md")]
        writing.pipe_file("mine/pdf/new.md", b"")
        assert feed.get(timeout=0) is None


def test_others_are_watched_on_when_one_goes_away(stores: Path) -> None:
    fs = table_of(stores)
    notes = {change: fs.entry(change).uuid for change in ("team/pdf", "team/pdf/t.md")}
    with fs.watch() as feed:
        wait_until(lambda: set(states(feed).values()) == {"watching"})
        (stores / "t").rename(stores / "away")
        wait_until(lambda: states(feed)["team"] == "unavailable")
        status = feed.status()
        assert (status["watch"], str(stores) in status["watch_reason"]) == ("unavailable", False)
        assert states(feed) == {"team": "unavailable", "mine": "watching", "root": "watching"}
        write(stores, {"m/notes/new.md": "new"})
        assert next_paths(feed) == [("added", "mine/notes/new.md")]
        (stores / "away").rename(stores / "t")
        wait_until(lambda: states(feed)["team"] == "watching")
        write(stores, {"t/pdf/new.md": "new"})
        assert next_paths(feed) == [("added", "team/pdf/new.md")]
        assert feed.get(timeout=0) is None
    assert {path: fs.entry(path).uuid for path in notes} == notes


def test_several_are_kept_in_step_by_themselves(stores: Path) -> None:
    def use() -> list[Any]:
        fs = table_of(stores, max_age=3600, watch=True)
        wait_until(lambda: all(mount["watch"] == "watching" for mount in fs.status()["mounts"]))
        write(stores, {"m/new/SKILL.md": skill_md("new"), "t/pdf/new.md": "new"})
        wait_until(lambda: {"mine/new/SKILL.md", "team/pdf/new.md"} <= set(fs.find("")))
        return [mount.engine for mount in fs._table.mounts]

    engines = use()
    gc.collect()
    wait_until(lambda: all(engine.watches is None for engine in engines))


def test_what_is_mounted_remotely_is_asked_at_its_own_interval(stores: Path) -> None:
    name = f"watched-{uuid.uuid4()}"
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/{name}/a/SKILL.md", skill_md("a").encode())
    far = {"store": f"memory://{name}", "max_age": 0.1}
    fs = SkillFileSystem({"near": stores / "t", "far": far}, index=":memory:", max_age=3600)
    with fs.watch() as feed:
        wait_until(lambda: states(feed) == {"near": "watching", "far": "polling"})
        assert feed.status()["watch"] == "polling"
        memory.pipe(f"/{name}/b/SKILL.md", skill_md("b").encode())
        assert ("added", "far/b/SKILL.md") in next_paths(feed)
        write(stores, {"t/pdf/new.md": "new"})
        assert next_paths(feed) == [("added", "near/pdf/new.md")]
    memory.rm(f"/{name}", recursive=True)


def test_the_numbers_of_mounts_that_are_lost_make_all_new(stores: Path, data_home: Path) -> None:
    fs = table_of(stores, index=None, writable=True)
    with fs.watch() as feed:
        for file in (data_home / "skillfs/indexes").glob("*.mounts.sqlite"):
            file.write_bytes(b"no database at all" * 100)
        fs.pipe_file("team/pdf/new.md", b"")
        assert feed.get(timeout=PATIENCE) == Changes(fs.revision, True, ())
        fs.pipe_file("team/pdf/newer.md", b"")
        assert next_paths(feed) == [("added", "team/pdf/newer.md")]


# -- everything that a table answers -----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "a-b", ".h", "ä", "8004"])
FILES = st.sampled_from(["SKILL.md", "SKILL.md", "x.md", ".env.example", "y"])
PATHS = st.tuples(st.lists(NAMES, max_size=3), FILES).map(lambda p: "/".join([*p[0], p[1]]))
TREES = st.dictionaries(PATHS, st.sampled_from(["", "x", "text\nof two lines\n"]), max_size=9)


def settled(files: dict[str, str]) -> dict[str, str]:
    """A layout that can be written: no file is a folder as well; skills have a name that others may have."""
    found = {}
    for path, content in files.items():
        if not any(other.startswith(f"{path}/") for other in files):
            front = skill_md(f"n{len(content) % 3}", content.strip() or "None.")
            found[path] = front if path.endswith("SKILL.md") else content
    return found


def below(mount: str, path: str | None) -> str | None:
    return None if path is None else f"{mount}/{path}" if path else mount


def mounted_entry(mount: str, entry: Entry) -> Entry:
    return replace(
        entry,
        path=below(mount, entry.path),
        name=entry.name or mount,
        skill_path=below(mount, entry.skill_path),
        link=below(mount, entry.link),
    )


def mounted_node(mount: str, node: dict[str, Any]) -> dict[str, Any]:
    path = node["path"].removeprefix("/")
    return {
        **node,
        "path": below(mount, path),
        "name": node["name"] if path else mount,
        **({"link": below(mount, node["link"])} if "link" in node else {}),
        **({"children": [mounted_node(mount, c) for c in node["children"]]} if "children" in node else {}),
    }


def flat(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in node.get("children", ()):
        if not child.get("continued"):
            yield {k: v for k, v in child.items() if k != "children"}
        yield from flat(child)


ORDER: Callable[[str], str] = lambda path: path.replace("/", "\0")  # noqa: E731

PAGE = ("total", "returned", "truncated", "cursor")


@given(st.lists(TREES, min_size=1, max_size=3), st.permutations(["b", "a", "a!"]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_table_answers_what_its_stores_answer(
    trees: list[dict[str, str]], names: list[str], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for number, (name, files) in enumerate(zip(names, trees, strict=False)):
            stores[name] = write(Path(folder) / f"s{number}", settled(files))
            stores[name].mkdir(exist_ok=True)
            links = [path for path in settled(files) if not path.endswith("SKILL.md")]
            for at, path in enumerate(links[:2]):
                (stores[name] / path).with_name(f"link{at}").symlink_to(Path(path).name)
        compare(stores, data)


def compare(stores: dict[str, Path], data: st.DataObject) -> None:
    options: dict[str, Any] = {"index": ":memory:", "max_age": 3600}
    whole = {name: SkillFileSystem(store, **options) for name, store in stores.items()}
    folders = [below(n, s.path) for n, fs in whole.items() for s in fs.skills()]
    bases = data.draw(st.none() | st.lists(st.sampled_from([*folders, *stores]), max_size=3))
    seen = whole
    if bases is not None:
        inner: dict[str, list[str]] = {}
        for base in bases:
            name, _, rest = base.partition("/")
            inner.setdefault(name, []).append(f"/{rest}")
        seen = {
            name: SkillFileSystem(stores[name], base_paths=inner[name], **options)
            for name in stores
            if name in inner
        }
    per_call = data.draw(st.booleans())
    fs = SkillFileSystem(stores, base_paths=None if per_call else bases, **options)
    call = {"base_paths": bases} if per_call else {}
    confined = SkillFileSystem(stores, base_paths=bases, **options)

    # Listings as fsspec makes them.
    infos = {}
    for name in sorted(seen):
        infos[name] = {**seen[name].info(""), "name": name}
        for path, info in seen[name].find("", withdirs=True, detail=True).items():
            infos[below(name, path)] = {**info, "name": below(name, path)}
    assert confined.find("", withdirs=True, detail=True) == infos
    assert list(infos) == sorted(infos, key=ORDER)
    depth = data.draw(st.integers(1, 4))
    cut = [p for p in infos if p.count("/") < depth]
    assert confined.find("", maxdepth=depth, withdirs=True) == cut
    assert confined.ls("", detail=False) == sorted(seen)
    for path, info in infos.items():
        assert confined.info(path) == info

    # Skills, problems.
    expected, first = [], {}
    for name, store in seen.items():
        for skill in store.skills():
            path = below(name, skill.path)
            winner = first.setdefault(skill.name, path)
            expected.append((path, skill.uuid, skill.id, skill.name, None if winner == path else winner))
    found = [(s.path, s.uuid, s.id, s.name, s.shadowed_by) for s in fs.skills(**call)]
    assert found == sorted(expected, key=lambda s: ORDER(s[0]))
    for skill in fs.skills(**call):
        assert skill.places == (skill.path,)
        assert fs.skill(skill.uuid, **call) == fs.skill(f"/{skill.path}", **call) == skill
        assert fs.skill(f"name:{skill.name}", **call).path == (skill.shadowed_by or skill.path)
    problems = [
        (below(name, p.path), p.code, p.line, p.skill_folder_uuid)
        for name, store in seen.items()
        for p in store.problems()
        if p.code != "shadowed"
    ]
    problems += [
        (f"{path}/SKILL.md", "shadowed", None, uuid_) for path, uuid_, _, _, by in expected if by is not None
    ]
    assert [(p.path, p.code, p.line, p.skill_folder_uuid) for p in fs.problems(**call)] == sorted(
        problems, key=lambda p: (ORDER(p[0]), p[2] or 0, p[1])
    )

    # Entries and readings.
    for name, store in seen.items():
        for path in ["", *store.find("", withdirs=True)]:
            entry = mounted_entry(name, store.entry(f"/{path}"))
            assert fs.entry(f"/{below(name, path)}", **call) == entry
            if entry.skill_path is not None:
                assert fs.entry(entry.uuid, **call) == fs.entry(entry.id, **call) == replace(entry, link=None)
            if entry.kind != "file":
                continue
            content = store.get_content(f"/{path}", 1, 4)
            mine = fs.get_content(f"/{below(name, path)}", 1, 4, **call)
            assert mine == content
            assert (mine.path, mine.id) == (entry.path, entry.id)
            assert fs.get_lines(entry.uuid, 2, 1, **call) == store.get_lines(entry.uuid, 2, 1)
            assert confined.cat_file(f"/{below(name, path)}") == store.cat_file(f"/{path}")
            held = [mounted_entry(n, e) for n, s in seen.items() for e in holders(s, str(entry.hash))]
            assert fs.find_content(str(entry.hash), **call) == sorted(held, key=lambda e: ORDER(e.path))
            assert fs.entry(str(entry.hash), **call) == held[0]

    # Trees.
    options = {
        "hidden": data.draw(st.booleans()),
        "files": data.draw(st.booleans()),
        "include": data.draw(st.none() | st.sampled_from(["*.md", "a", "a/"])),
        "exclude": data.draw(st.none() | st.sampled_from(["b", "*.md"])),
        "details": data.draw(st.booleans()),
        "limit": None,
        "depth": data.draw(st.none() | st.integers(1, 4)),
    }
    own = {**options, "depth": None if options["depth"] is None else options["depth"] - 1}
    for ref in ("/", None):
        tree = fs.skill_tree(ref, **options, **call).to_dict()
        nodes = []
        for name, store in seen.items():
            if own["depth"] == 0:
                alone = {**store.skill_tree(ref, **{**own, "depth": 1}).to_dict()}
                leads = bool(alone["children"])
                alone = {**mounted_node(name, alone), "children": []}
            else:
                alone = mounted_node(name, store.skill_tree(ref, **own).to_dict())
                leads = bool(alone["children"])
            if leads or alone["kind"] == "skill":
                nodes.append({key: value for key, value in alone.items() if key not in PAGE})
        if options["include"] is None and options["exclude"] is None:
            shown = {n["name"] for n in nodes}
            listed = [n for n in tree["children"] if n["name"] in shown or ref is None]
            assert without_sizes(listed) == without_sizes(sorted(nodes, key=lambda n: n["name"]))
            if ref is not None:
                assert [n["name"] for n in tree["children"]] == sorted(seen)
        assert tree["total"] == tree["returned"] == len(list(flat(tree)))
        pages: list[Any] = []
        cursor = None
        while True:
            page = fs.skill_tree(ref, **{**options, "limit": 2}, cursor=cursor, **call)
            pages += flat(page.to_dict())
            assert page.total == tree["total"]
            cursor = page.cursor
            if cursor is None:
                break
        assert pages == list(flat(tree))
    for name, store in seen.items():
        alone = mounted_node(name, store.skill_tree("/", **options).to_dict())
        assert without_sizes(fs.skill_tree(name, **options, **call).to_dict()) == without_sizes(alone)

    # Everything else is not there, and nothing tells why.
    for name, store in whole.items():
        for path in store.find(""):
            full = below(name, path)
            if full in infos:
                continue
            code, message = refusal(lambda full=full: fs.entry(f"/{full}", **call))
            assert code == "not_found"
            for other in whole[name].find("", withdirs=True):
                assert below(name, other) in infos or f'mean "{below(name, other)}"' not in message
            uuid_ = store.entry(f"/{path}").uuid
            assert refusal(lambda uuid_=uuid_: fs.entry(uuid_, **call))[0] == "not_found"


def without_sizes(value: Any) -> Any:
    """Without what belongs to a folder's place among pages, and not to what it holds."""
    if isinstance(value, list):
        return [without_sizes(one) for one in value]
    if isinstance(value, dict):
        return {k: without_sizes(v) for k, v in value.items() if k not in ("cursor", "modified")}
    return value


def holders(fs: SkillFileSystem, content_hash: str) -> list[Entry]:
    try:
        return fs.find_content(content_hash)
    except NotFoundError:
        return []


@given(st.lists(st.tuples(st.sampled_from(["b", "a"]), PATHS, st.sampled_from(["", "x", None])), max_size=8))
@settings(max_examples=40, deadline=None)
def test_changes_of_a_table_are_those_of_its_stores(steps: list[tuple[str, str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: write(Path(folder) / name, {"s/SKILL.md": skill_md("s")}) for name in ("b", "a")}
        options: dict[str, Any] = {"index": ":memory:", "max_age": 0}
        alone = {name: SkillFileSystem(store, **options) for name, store in stores.items()}
        fs = SkillFileSystem(stores, **options)
        since = {name: one.revision for name, one in alone.items()}
        start = last = fs.revision
        for name, path, content in steps:
            file = stores[name] / "s" / path
            if content is None:
                file.unlink(missing_ok=True)
            elif not file.is_dir() and not any(p.is_file() for p in file.parents):
                write(stores[name], {f"s/{path}": content})
            got = fs.changes(last)
            expected = []
            for mount, one in alone.items():
                own = one.changes(since[mount])
                since[mount] = own.revision
                expected += [
                    replace(c, path=below(mount, c.path), old_path=below(mount, c.old_path))
                    for c in own.items
                ]
            assert list(map(asdict, got.items)) == list(map(asdict, expected))
            assert got.revision == fs.revision
            assert (got.revision > last) == bool(expected)
            last = got.revision
        assert not fs.changes(start).reset
