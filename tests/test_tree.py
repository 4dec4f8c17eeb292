"""Trees: what is drawn, what is listed to whom, and how pages fit together."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.core.drawing import MOST_LEVELS, Tree, TreeNode
from skillfs.core.model import Kind
from skillfs.errors import InvalidArgumentError, IsFileError, NotFoundError
from skillfs.index.catalog import Catalog
from skillfs.index.database import Database
from skillfs.index.rows import NodeRow
from skillfs.tree import MOST_KEPT, KeptListings, _Listing
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

Opener = Callable[..., SkillFileSystem]


def nodes(tree: Tree) -> Iterator[TreeNode]:
    stack = list(reversed(tree.root.children))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def listed(tree: Tree) -> list[str]:
    """Paths of the page's own entries, folders with a slash."""
    return [n.path + ("" if n.kind == Kind.FILE else "/") for n in nodes(tree) if not n.continued]


def dicts(tree: Tree) -> Iterator[dict[str, Any]]:
    stack = [tree.to_dict()]
    while stack:
        value = stack.pop()
        yield value
        stack.extend(value.get("children", ()))


@pytest.fixture
def small(root: Path) -> Path:
    return write(
        root,
        {
            "pdf/SKILL.md": skill_md("pdf", "Reads PDF files."),
            "pdf/.hidden": "x",
            "pdf/.config/a.md": "x",
            "pdf/references/tables.md": "# Tables\n",
            "pdf/scripts/run.py": "print()\n",
            "office/word/SKILL.md": skill_md("word", "Writes letters."),
            "office/notes.txt": "in no skill",
            "zebra/readme.md": "in no skill",
        },
    )


# -- the drawing -------------------------------------------------------------------------------------------


def test_overview_shows_skills_and_the_folders_that_lead_to_them(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    word, pdf = fs.skill("word").uuid, fs.skill("pdf").uuid
    assert str(fs.skill_tree()) == (
        "/\n"
        "├── office/\n"
        f"│   └── word/  [skill {word}]  Writes letters.\n"
        f"└── pdf/  [skill {pdf}]  Reads PDF files."
    )


def test_drawing_of_one_skill_starts_with_a_path_that_can_be_passed_back(
    small: Path, open_fs: Opener
) -> None:
    fs = open_fs()
    word = fs.skill("word").uuid
    drawn = str(fs.skill_tree("name:word"))
    assert drawn == f"office/word/  [skill {word}]  Writes letters.\n└── SKILL.md"
    assert fs.entry(drawn.split("  ")[0] + "SKILL.md").name == "SKILL.md"


def test_drawing_with_details(small: Path, open_fs: Opener) -> None:
    os.utime(small / "pdf/references/tables.md", (86_400, 86_400))
    (small / "pdf/references/blob.bin").write_bytes(b"\0\1")
    os.utime(small / "pdf/references/blob.bin", (86_400, 86_400))
    assert str(open_fs().skill_tree("pdf/references", details=True)) == (
        "pdf/references/\n"
        "├── blob.bin  (2 bytes, 1970-01-02 00:00)\n"
        "└── tables.md  (9 bytes, 9 characters, 1970-01-02 00:00)"
    )


def test_drawing_of_a_page_in_the_middle(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    first = fs.skill_tree("/", limit=3)
    second = fs.skill_tree("/", limit=3, cursor=first.cursor)
    pdf = fs.skill("pdf").uuid
    assert str(second).splitlines()[:-1] == [
        "/",
        f"└── pdf/  [skill {pdf}]  Reads PDF files.",
        "    ├── SKILL.md",
        "    └── references/",
    ]
    third = fs.skill_tree("/", limit=3, cursor=second.cursor)
    assert str(third) == (
        "/\n"
        f"└── pdf/  [skill {pdf}]  (continued)\n"
        "    ├── references/  (continued)\n"
        "    │   └── tables.md\n"
        "    └── scripts/\n"
        "        └── run.py"
    )
    assert [n.path for n in nodes(third) if n.continued] == ["pdf", "pdf/references"]
    assert (
        str(second).splitlines()[-1]
        == f'(3 of {second.total} entries; ask for more at once, or go on with cursor "{second.cursor}")'
    )


def test_nested_data(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    value = fs.skill_tree("office").to_dict()
    word = fs.entry("office/word")
    file = fs.entry("office/word/SKILL.md")
    assert value == {
        "uuid": fs.entry("office").uuid,
        "id": fs.entry("office").id,
        "name": "office",
        "path": "office",
        "kind": "folder",
        "children": [
            {
                "uuid": word.uuid,
                "id": word.id,
                "name": "word",
                "path": "office/word",
                "kind": "skill",
                "description": "Writes letters.",
                "children": [
                    {
                        "uuid": file.uuid,
                        "id": file.id,
                        "name": "SKILL.md",
                        "path": "office/word/SKILL.md",
                        "kind": "file",
                    }
                ],
            }
        ],
        "total": 2,
        "returned": 2,
        "truncated": False,
        "cursor": None,
    }


def test_nested_data_with_details(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    (small / "pdf/references/blob.bin").write_bytes(b"\0\1")
    os.utime(small / "pdf/references/tables.md", ns=(0, 1_500_000_000_123_456_789))
    folder = fs.skill_tree("pdf/references", details=True).to_dict()
    blob, table = folder["children"]
    assert blob["size"] == 2
    assert blob["characters"] is None
    assert blob["hash"] == "441077cc9e57554dd476bdfb8b8b8102"
    assert (table["size"], table["characters"]) == (9, 9)
    assert table["hash"] == fs.get_content("pdf/references/tables.md").hash
    assert table["modified"] == "2017-07-14T02:40:00.123456+00:00"
    assert folder["size"] is None


def test_details_are_of_the_file_as_it_is_now(small: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=3600)
    fs.skill_tree("pdf", details=True)
    (small / "pdf/references/tables.md").write_text("changed since, and longer")
    table = next(d for d in dicts(fs.skill_tree("pdf", details=True)) if d["name"] == "tables.md")
    assert (table["size"], table["characters"]) == (25, 25)
    assert table["hash"] == fs.get_content("pdf/references/tables.md").hash


def test_a_file_that_cannot_be_read_is_listed_without_what_only_its_bytes_tell(
    small: Path, open_fs: Opener
) -> None:
    fs = open_fs()
    (small / "pdf/references/tables.md").chmod(0)
    with bound_by_permissions():
        table = next(d for d in dicts(fs.skill_tree("pdf", details=True)) if d["name"] == "tables.md")
    assert table["size"] == 9
    assert table["hash"] is None
    assert table["characters"] is None


# -- what is listed ----------------------------------------------------------------------------------------


def test_sorted_by_code_point_component_by_component(root: Path, open_fs: Opener) -> None:
    names = ["a/x", "a!/x", "a-b/x", "A/x", "a0", "a", "ä", "Ω", "🙂", "b", "Z", "ﬁ"]
    files = {f"s/{n}" if "/" in n else f"s/{n}.md": "" for n in names}
    write(root, {"s/SKILL.md": skill_md("s"), **files})
    found = [n.path for n in nodes(open_fs().skill_tree("s"))]
    assert found == sorted(found, key=lambda p: p.split("/"))
    assert found[:3] == ["s/A", "s/A/x", "s/SKILL.md"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["SKILL.md", "a/", "a/b/", "a/b/deep.md", "a/one.md", "run.py"]),
        ({"depth": 1}, ["SKILL.md", "a/", "run.py"]),
        ({"depth": 2}, ["SKILL.md", "a/", "a/b/", "a/one.md", "run.py"]),
        ({"files": False}, ["a/", "a/b/"]),
        ({"files": False, "depth": 1}, ["a/"]),
        (
            {"hidden": True},
            [".cfg/", ".cfg/x.md", ".dot", "SKILL.md", "a/", "a/b/", "a/b/deep.md", "a/one.md", "run.py"],
        ),
        ({"hidden": True, "depth": 1}, [".cfg/", ".dot", "SKILL.md", "a/", "run.py"]),
        ({"include": "*.py"}, ["run.py"]),
        ({"include": "deep.md"}, ["a/", "a/b/", "a/b/deep.md"]),
        ({"include": "*.md", "exclude": "b"}, ["SKILL.md", "a/", "a/one.md"]),
        ({"include": "a/*.md"}, ["a/", "a/one.md"]),
        ({"include": "a/**"}, ["a/", "a/b/", "a/b/deep.md", "a/one.md"]),
        ({"include": "**/*.md"}, ["SKILL.md", "a/", "a/b/", "a/b/deep.md", "a/one.md"]),
        ({"include": "b/"}, ["a/", "a/b/"]),
        ({"include": ["*.py", "one.md"]}, ["a/", "a/one.md", "run.py"]),
        ({"include": "{run,one}.*"}, ["a/", "a/one.md", "run.py"]),
        ({"include": "b/*.md"}, []),
        ({"include": "s/a/*.md"}, []),
        ({"include": ".dot"}, []),
        ({"include": ".dot", "hidden": True}, [".dot"]),
        ({"include": "deep.md", "depth": 2}, []),
        ({"exclude": "a"}, ["SKILL.md", "run.py"]),
        ({"exclude": "a", "include": "deep.md"}, []),
        ({"exclude": "/b"}, ["SKILL.md", "a/", "a/b/", "a/b/deep.md", "a/one.md", "run.py"]),
        ({"exclude": "*.md"}, ["a/", "a/b/", "run.py"]),
        ({"exclude": "a/**"}, ["SKILL.md", "a/", "run.py"]),
        ({"exclude": []}, ["SKILL.md", "a/", "a/b/", "a/b/deep.md", "a/one.md", "run.py"]),
    ],
    ids=str,
)
def test_what_of_a_skill_is_listed(
    root: Path, open_fs: Opener, options: dict[str, Any], expected: list[str]
) -> None:
    write(
        root,
        {
            "s/SKILL.md": skill_md("s"),
            "s/a/one.md": "",
            "s/a/b/deep.md": "",
            "s/run.py": "",
            "s/.dot": "",
            "s/.cfg/x.md": "",
            "s/.git/config": "",
            "s/node_modules/x.js": "",
        },
    )
    tree = open_fs().skill_tree("s", **options)
    assert [p.removeprefix("s/") for p in listed(tree)] == expected
    assert tree.total == tree.returned == len(expected)


@pytest.mark.parametrize("depth", [None, 1, 2, 3])
def test_folders_with_a_dot_that_lead_to_skills_are_shown(
    root: Path, open_fs: Opener, depth: int | None
) -> None:
    write(
        root,
        {
            ".claude/skills/x/SKILL.md": skill_md("x"),
            "outer/SKILL.md": skill_md("outer"),
            "outer/.agents/skills/y/SKILL.md": skill_md("y"),
            "outer/.agents/settings.json": "{}",
            "outer/.agents/skills/.z/SKILL.md": skill_md("z"),
            "outer/.agents/skills/.z/.rc": "",
        },
    )
    expected = [
        ".claude/",
        ".claude/skills/",
        ".claude/skills/x/",
        ".claude/skills/x/SKILL.md",
        "outer/",
        "outer/.agents/",
        "outer/.agents/skills/",
        "outer/.agents/skills/.z/",
        "outer/.agents/skills/.z/SKILL.md",
        "outer/.agents/skills/y/",
        "outer/.agents/skills/y/SKILL.md",
        "outer/SKILL.md",
    ]
    fs = open_fs()
    assert listed(fs.skill_tree("/", depth=depth)) == [
        p for p in expected if depth is None or p.rstrip("/").count("/") < depth
    ]
    # What is asked for by its own name is not hidden.
    assert "outer/.agents/settings.json" in listed(fs.skill_tree("outer/.agents"))


def test_overview_takes_depth_and_exclude(root: Path, open_fs: Opener) -> None:
    write(root, {f"{p}/SKILL.md": skill_md() for p in ("a", "b/c", "b/d/e")})
    fs = open_fs()
    assert listed(fs.skill_tree(depth=1)) == ["a/", "b/"]
    assert listed(fs.skill_tree(depth=2)) == ["a/", "b/", "b/c/", "b/d/"]
    assert listed(fs.skill_tree(exclude="d")) == ["a/", "b/", "b/c/"]
    assert listed(fs.skill_tree(include="SKILL.md", exclude="b")) == ["a/", "a/SKILL.md"]
    assert listed(fs.skill_tree(files=False)) == ["a/", "b/", "b/c/", "b/d/", "b/d/e/"]


def test_a_root_that_is_a_skill(root: Path, open_fs: Opener) -> None:
    write(root, {"SKILL.md": skill_md("store", "All of it."), "x.md": "", "in/SKILL.md": skill_md("in")})
    fs = open_fs()
    tree = fs.skill_tree()
    assert str(tree).splitlines()[0] == f"/  [skill {fs.skill('store').uuid}]  All of it."
    assert listed(tree) == ["in/"]
    assert listed(fs.skill_tree("/")) == ["SKILL.md", "in/", "in/SKILL.md", "x.md"]
    shutil.rmtree(root / "in")
    fs.sync()
    assert "(" not in str(fs.skill_tree())


@pytest.mark.parametrize(
    ("ref", "options", "remark"),
    [
        ("s/none", {}, "(empty)"),
        ("s", {"include": "*.xyz"}, "(nothing matches)"),
        ("s/none", {"include": "*.xyz"}, "(nothing matches)"),
        ("s/only", {"files": False}, "(nothing matches)"),
        ("s/dots", {}, "(nothing matches)"),
        (None, {"base_paths": []}, "(no skills)"),
        (None, {"include": "*.xyz"}, "(nothing matches)"),
    ],
    ids=str,
)
def test_nothing_to_show_says_why(
    root: Path, open_fs: Opener, ref: str | None, options: dict[str, Any], remark: str
) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/only/a.md": "", "s/dots/.a": ""})
    (root / "s/none").mkdir()
    tree = open_fs().skill_tree(ref, **options)
    assert str(tree).splitlines()[1:] == [remark]
    assert (tree.total, tree.returned, tree.truncated) == (0, 0, False)


@pytest.mark.parametrize("top", ["", "o/"])
def test_files_of_an_outer_skill_out_of_bounds_are_not_listed(root: Path, open_fs: Opener, top: str) -> None:
    write(
        root,
        {f"{top}SKILL.md": skill_md("o"), f"{top}sub/x.md": "", f"{top}sub/in/SKILL.md": skill_md("in")},
    )
    (root / top / "sub/link.md").symlink_to("in/SKILL.md")
    fs = open_fs(base_paths=[f"{top}sub"])
    for ref in ("/", top or "/", f"{top}sub"):
        found = [path for path in listed(fs.skill_tree(ref)) if not path.endswith("/")]
        assert found == [f"{top}sub/in/SKILL.md"] == fs.find(ref), ref
        assert "x.md" not in str(fs.skill_tree(ref, include="*.md"))


def test_a_folder_that_is_not_there_is_an_error(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    for ref in ("no/such", "zebra", "office/notes.txt", "pdf/.git"):
        with pytest.raises(NotFoundError):
            fs.skill_tree(ref)
    with pytest.raises(IsFileError, match="read it, or list"):
        fs.skill_tree("pdf/SKILL.md")


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 0},
        {"depth": True},
        {"depth": "1"},
        {"limit": 0},
        {"limit": -1},
        {"limit": 1.0},
        {"include": ""},
        {"include": 7},
        {"exclude": ["../x"]},
        {"base_paths": "s"},
    ],
    ids=str,
)
def test_malformed_requests_are_refused(small: Path, open_fs: Opener, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        open_fs().skill_tree(**options)


# -- links -------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(root: Path) -> Path:
    write(
        root,
        {
            "real/a/SKILL.md": skill_md("a", "The real one."),
            "real/a/sub/f.md": "",
            "b/SKILL.md": skill_md("b"),
            "outside.txt": "",
        },
    )
    (root / "alias").symlink_to("real/a")
    (root / "b/file.md").symlink_to("../real/a/sub/f.md")
    (root / "b/folder").symlink_to("../real/a/sub")
    (root / "b/loop").symlink_to("..")
    (root / "b/self").symlink_to("self")
    (root / "b/dangling").symlink_to("nowhere")
    (root / "b/out").symlink_to("/etc/hostname")
    (root / "b/hidden").symlink_to("../outside.txt")
    return root


def test_links_are_aliases_marked_and_not_entered(linked: Path, open_fs: Opener) -> None:
    fs = open_fs()
    tree = fs.skill_tree("/")
    by_path = {n.path: n for n in nodes(tree)}
    assert sorted(p for p, n in by_path.items() if n.link is not None) == [
        "alias",
        "b/file.md",
        "b/folder",
        "b/loop",
    ]
    a, file = fs.entry("real/a"), fs.entry("real/a/sub/f.md")
    assert (by_path["alias"].uuid, by_path["alias"].kind, by_path["alias"].link) == (
        a.uuid,
        Kind.SKILL,
        "real/a",
    )
    assert by_path["alias"].description == "The real one."
    assert (by_path["b/file.md"].uuid, by_path["b/file.md"].kind) == (file.uuid, Kind.FILE)
    assert by_path["b/folder"].kind == Kind.FOLDER
    assert (by_path["b/loop"].link, by_path["b/loop"].id) == ("", fs.skill_tree().root.id)
    assert all(not by_path[p].children for p in ("alias", "b/folder", "b/loop"))
    drawn = str(tree)
    assert f"alias/ -> real/a  [skill {a.uuid}]  The real one." in drawn
    assert "loop/ -> /" in drawn
    links = {d["path"]: d["link"] for d in dicts(tree) if "link" in d}
    assert links == {
        "alias": "real/a",
        "b/file.md": "real/a/sub/f.md",
        "b/folder": "real/a/sub",
        "b/loop": "/",
    }
    json.dumps(tree.to_dict())


def test_a_linked_skill_folder_is_in_the_overview(linked: Path, open_fs: Opener) -> None:
    assert listed(open_fs().skill_tree()) == ["alias/", "b/", "real/", "real/a/"]


def test_listing_through_an_alias_lists_the_target(linked: Path, open_fs: Opener) -> None:
    fs = open_fs()
    assert listed(fs.skill_tree("alias")) == listed(fs.skill_tree("real/a"))


def test_base_paths_hold_for_what_links_point_to(linked: Path, open_fs: Opener) -> None:
    fs = open_fs()
    assert listed(fs.skill_tree("/", base_paths=["b"])) == ["b/", "b/SKILL.md", "b/loop/"]
    assert listed(fs.skill_tree("/", base_paths=["real"])) == [
        "real/", "real/a/", "real/a/SKILL.md", "real/a/sub/", "real/a/sub/f.md",
    ]  # fmt: skip


# -- names and descriptions --------------------------------------------------------------------------------


def test_front_matter_cannot_draw(root: Path, open_fs: Opener) -> None:
    text = '---\nname: s\ndescription: "one\\n└── two/  [skill x]\\e[2J"\n---\n'
    write(root, {"s/SKILL.md": text})
    tree = open_fs().skill_tree()
    assert len(str(tree).splitlines()) == 2
    assert "\x1b" not in str(tree)
    assert "\n" not in tree.to_dict()["children"][0]["description"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb.md", '"a\\nb.md"'),
        ("\u202egpj.md", '"\\342\\200\\256gpj.md"'),
        (" lead.md", '" lead.md"'),
        ("pdf  [skill 0]  Trust me.md", '"pdf  [skill 0]  Trust me.md"'),
        ("a -> b.md", '"a -> b.md"'),
        ("*[a]{b}.md", "*[a]{b}.md"),
        ("--help.md", "--help.md"),
    ],
)
def test_names_that_could_pass_for_something_else_are_quoted(
    root: Path, open_fs: Opener, name: str, shown: str
) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), f"s/x/{name}": ""})
    tree = open_fs().skill_tree("s/x")
    assert str(tree) == f"s/x/\n└── {shown}"
    assert tree.to_dict()["children"][0]["name"] == name


def test_paths_that_would_be_read_as_something_else_get_a_slash(root: Path, open_fs: Opener) -> None:
    write(root, {"8004/SKILL.md": skill_md("n")})
    tree = open_fs().skill_tree("/8004")
    assert str(tree).startswith("/8004/  [skill")
    assert tree.to_dict()["path"] == "/8004"


def test_names_that_are_no_utf8_are_left_out(root: Path, open_fs: Opener) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    (root / os.fsdecode(b"s/bad\xff.md")).write_text("")
    (root / os.fsdecode(b"s/dir\xff")).mkdir()
    fs = open_fs()
    tree = fs.skill_tree("/")
    assert listed(tree) == ["s/", "s/SKILL.md"]
    json.dumps(tree.to_dict(), ensure_ascii=False).encode()
    str(tree).encode()
    assert [p.code for p in fs.problems()].count("name-not-utf8") == 2


# -- sizes -------------------------------------------------------------------------------------------------


def test_five_hundred_levels(root: Path, open_fs: Opener) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    at = os.open(root / "s", os.O_RDONLY)
    for _ in range(500):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("leaf.md", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    fs = open_fs()
    tree = fs.skill_tree("s", limit=None)
    assert tree.total == 502
    leaf = "s/" + "d/" * 500 + "leaf.md"
    assert listed(tree)[-1] == leaf or leaf in listed(tree)
    value = json.loads(json.dumps(tree.to_dict(), indent=1))
    depth, stack = 0, [(value, 0)]
    paths = []
    while stack:
        at_value, level = stack.pop()
        depth = max(depth, level)
        paths.append(at_value["path"])
        stack.extend((child, level + 1) for child in at_value.get("children", ()))
    assert depth == MOST_LEVELS
    assert len(paths) == 503
    assert leaf in paths
    drawn = str(tree)
    assert len(drawn.splitlines()) == 503
    assert "d/" * (500 - MOST_LEVELS + 1) + "leaf.md" in drawn
    last = fs.skill_tree("s", limit=1, cursor=fs.skill_tree("s", limit=501).cursor)
    assert listed(last) == ["s/SKILL.md"] or listed(last) == [leaf]
    assert fs.entry(leaf).kind == Kind.FILE


def test_a_huge_folder_is_cut(root: Path, open_fs: Opener) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    at = os.open(root / "s", os.O_RDONLY)
    for number in range(10_000):
        os.mkdir(f"{number:06}", dir_fd=at)
    os.close(at)
    tree = open_fs().skill_tree("s")
    assert (tree.total, tree.returned, tree.truncated) == (10_001, 500, True)
    assert len(str(tree).splitlines()) == 502


# -- pages -------------------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "a-b", "a b", ".x", "ä", "SKILL.md", "c.py", "\x01", "~", "0"])
_layouts = st.sets(st.lists(_names, min_size=1, max_size=4).map("/".join), min_size=1, max_size=25)


def lay_out(root: Path, files: set[str]) -> None:
    for name in sorted(files):
        path = root / name
        if any(p.is_file() for p in path.parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


_slow = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_slow
@given(files=_layouts, limit=st.integers(1, 9), options=st.fixed_dictionaries(
    {},
    optional={
        "ref": st.sampled_from(["/"]),
        "hidden": st.booleans(),
        "files": st.booleans(),
        "depth": st.integers(1, 4),
        "include": st.sampled_from(["*.py", "a", "**/b/**", "?"]),
        "exclude": st.sampled_from(["a-b", "*.py", "a/b"]),
    },
))  # fmt: skip
def test_pages_joined_are_the_whole_listing(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], limit: int, options: dict[str, Any]
) -> None:
    root = tmp_path_factory.mktemp("pages")
    lay_out(root, {"SKILL.md", *files} if len(files) % 2 else files)
    fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True, max_age=3600)
    whole = fs.skill_tree(**options, limit=None)
    assert not whole.truncated
    assert whole.total == whole.returned == len(listed(whole))
    joined: list[str] = []
    uuids: list[str] = []
    cursor = None
    while True:
        page = fs.skill_tree(**options, limit=limit, cursor=cursor)
        assert page.total == whole.total
        assert page.returned == len(listed(page)) <= limit
        assert page.truncated == (page.cursor is not None)
        joined += listed(page)
        uuids += [n.uuid for n in nodes(page) if not n.continued]
        # A folder is repeated only where the page goes on inside it.
        for node in nodes(page):
            assert node.children or not node.continued
        cursor = page.cursor
        if cursor is None:
            break
        assert page.returned == limit
    assert joined == listed(whole)
    assert uuids == [n.uuid for n in nodes(whole)]


def test_a_cursor_that_outlived_changes_loses_and_repeats_nothing_that_stayed(
    root: Path, open_fs: Opener
) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), **{f"s/f{n:02}": "" for n in range(20)}})
    fs = open_fs()
    first = fs.skill_tree("s", limit=8)
    last = listed(first)[-1]
    (root / last).unlink()
    (root / "s/f00").unlink()
    (root / "s/f01x").write_text("")
    (root / "s/f15x").write_text("")
    fs.sync()
    rest = listed(fs.skill_tree("s", limit=100, cursor=first.cursor))
    stayed = [f"s/f{n:02}" for n in range(20) if f"s/f{n:02}" not in (last, "s/f00")]
    assert [p for p in listed(first) + rest if p in stayed] == stayed
    assert "s/f15x" in rest


def test_a_cursor_holds_when_the_folder_moves(root: Path, open_fs: Opener) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), **{f"s/f{n}": "" for n in range(5)}})
    fs = open_fs()
    uuid = fs.skill("s").uuid
    first = fs.skill_tree(uuid, limit=3)
    (root / "s").rename(root / "moved")
    fs.sync()
    rest = fs.skill_tree(uuid, cursor=first.cursor)
    assert listed(rest) == ["moved/f2", "moved/f3", "moved/f4"]


def test_a_cursor_behind_the_end_does_not_look_like_an_empty_folder(root: Path, open_fs: Opener) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/z1": "", "s/z2": ""})
    fs = open_fs()
    cursor = fs.skill_tree("s", limit=2).cursor
    (root / "s/z2").unlink()
    fs.sync()
    tree = fs.skill_tree("s", cursor=cursor)
    assert (tree.returned, tree.total) == (0, 2)
    assert str(tree).splitlines()[-1] == "(no more entries; there are 2 in all)"


def test_malformed_cursors_are_refused(small: Path, open_fs: Opener) -> None:
    fs = open_fs()
    good = fs.skill_tree("/", limit=2).cursor
    assert good is not None
    other = fs.skill_tree("pdf", limit=1).cursor
    for cursor in (
        "",
        "x",
        "!!",
        "ä",
        "YWJj",
        "AAAAAGE",
        good[:-2],
        good + "AA",
        good.lower(),
        other,
        7,
        b"x",
        ["x"],
    ):
        with pytest.raises(InvalidArgumentError, match="cursor"):
            fs.skill_tree("/", cursor=cursor)  # type: ignore[arg-type]
    assert fs.skill_tree("/", cursor=good).returned


# -- who sees what -----------------------------------------------------------------------------------------


def stripped(tree: Tree) -> list[tuple[Any, ...]]:
    return [(n.path, n.kind, n.name, n.uuid, n.id, n.description) for n in [tree.root, *nodes(tree)]]


@_slow
@given(
    skills=st.sets(
        st.lists(st.sampled_from(["a", "b", "c", ".d"]), min_size=0, max_size=4).map("/".join),
        min_size=1,
        max_size=8,
    ),
    bases=st.sets(
        st.lists(st.sampled_from(["a", "b", "c", ".d"]), min_size=1, max_size=3).map("/".join), max_size=3
    ),
    options=st.fixed_dictionaries(
        {},
        optional={
            "ref": st.sampled_from(["/"]),
            "depth": st.integers(1, 3),
            "limit": st.integers(1, 6),
            "hidden": st.booleans(),
            "files": st.booleans(),
            "include": st.sampled_from(["b", "*.md"]),
        },
    ),
)
def test_a_restricted_tree_is_that_of_a_store_that_holds_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, skills: set[str], bases: set[str], options: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("restricted")
    full, only = folder / "full", folder / "only"
    full.mkdir()
    only.mkdir()

    def allowed(skill: str) -> bool:
        return any(skill == base or skill.startswith(base + "/") for base in bases)

    for skill in skills:
        files = {"SKILL.md": skill_md("s"), "extra/x.md": "", ".rc": ""}
        for name, text in files.items():
            path = f"{skill}/{name}" if skill else name
            write(full, {path: text})
            owner = max((s for s in skills if not s or path.startswith(s + "/")), key=len)
            if allowed(owner):
                write(only, {path: text})
    identity = "7a0f1b2c-3d4e-4f50-8a6b-9c0d1e2f3a4b"
    options = {"ref": None, **options}
    if options["ref"] == "/" and "" in skills:
        options["ref"] = None
    whole = SkillFileSystem(full, index=":memory:", store_id=identity, skip_instance_cache=True)
    lone = SkillFileSystem(only, index=":memory:", store_id=identity, skip_instance_cache=True)
    usable = [base for base in sorted(bases) if any(s == base or s.startswith(base + "/") for s in skills)]
    mine = whole.skill_tree(**options, base_paths=usable)
    theirs = lone.skill_tree(**options)
    mine.root.name = theirs.root.name = "store"
    assert stripped(mine) == stripped(theirs)
    assert (mine.total, mine.returned, mine.filtered) == (theirs.total, theirs.returned, theirs.filtered)
    assert str(mine) == str(theirs)
    narrow = SkillFileSystem(
        full, index=":memory:", store_id=identity, skip_instance_cache=True, base_paths=usable
    )
    counts = ("skills", "folders", "files", "bytes")
    assert [narrow.status()[c] for c in counts] == [lone.status()[c] for c in counts]
    assert [s.path for s in narrow.skills()] == [s.path for s in lone.skills()]
    assert [(p.code, p.path) for p in narrow.problems()] == [(p.code, p.path) for p in lone.problems()]


def test_a_skill_that_only_leads_to_an_allowed_one_is_shown_as_a_folder(root: Path, open_fs: Opener) -> None:
    write(
        root,
        {
            "outer/SKILL.md": skill_md("outer", "Secret."),
            "outer/private.md": "",
            "outer/in/inner/SKILL.md": skill_md("inner"),
        },
    )
    tree = open_fs().skill_tree(base_paths=["outer/in/inner"])
    assert [(n.path, n.kind) for n in nodes(tree)] == [
        ("outer", Kind.FOLDER),
        ("outer/in", Kind.FOLDER),
        ("outer/in/inner", Kind.SKILL),
    ]
    assert "Secret" not in str(tree)
    write(root, {"SKILL.md": skill_md("root", "Secret.")})
    assert "Secret" not in str(open_fs().skill_tree(base_paths=["outer/in/inner"]))


def test_descriptions_cost_no_query_each(
    root: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {f"s{n}/SKILL.md": skill_md(f"s{n}", f"Number {n}.") for n in range(600)})
    fs = open_fs(max_age=3600)
    asked: list[str] = []
    read = Database.read

    def counted(database: Database, sql: str, *more: Any) -> list[Any]:
        asked.append(sql)
        return read(database, sql, *more)

    monkeypatch.setattr(Database, "read", counted)
    fs.skill_tree(limit=1)
    few = len(asked)
    asked.clear()
    found = nodes(fs.skill_tree(limit=None))
    assert {n.path: n.description for n in found} == {f"s{n}": f"Number {n}." for n in range(600)}
    assert 0 < len(asked) <= few + 5


# -- while things move -------------------------------------------------------------------------------------


def test_a_store_that_changes_all_the_time_can_be_listed(root: Path, open_fs: Opener) -> None:
    write(root, {f"s{n}/SKILL.md": skill_md() for n in range(20)})
    fs = open_fs(max_age=0)
    done = threading.Event()

    def stir() -> None:
        number = 0
        while not done.is_set():
            number += 1
            folder = root / f"s{number % 20}"
            shutil.rmtree(folder, ignore_errors=True)
            write(root, {f"s{number % 20}/sub/{number}.md": "x", f"s{number % 20}/SKILL.md": skill_md()})

    thread = threading.Thread(target=stir)
    thread.start()
    try:
        for _ in range(25):
            fs.sync()
            tree = fs.skill_tree("/", limit=None, details=True)
            assert tree.returned == len(listed(tree))
            str(tree)
            for number in (3, 7):
                try:
                    fs.skill_tree(f"s{number}")
                except NotFoundError:
                    continue
    finally:
        done.set()
        thread.join()
    fs.sync()
    assert len(fs.skills()) == 20


# -- large listings, which are kept ------------------------------------------------------------------------


def test_a_page_of_a_large_listing_does_not_list_it_anew(
    root: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {f"g{n % 3}/s{n}/SKILL.md": skill_md(f"s{n}") for n in range(250)})
    fs = open_fs(max_age=1000)
    count = 0
    overview = Catalog.overview

    def counted(catalog: Catalog) -> list[NodeRow]:
        nonlocal count
        count += 1
        return overview(catalog)

    monkeypatch.setattr(Catalog, "overview", counted)
    pages = [fs.skill_tree(limit=100)]
    while pages[-1].cursor:
        pages.append(fs.skill_tree(limit=100, cursor=pages[-1].cursor))
    assert [page.returned for page in pages] == [100, 100, 53]
    assert count == 1
    assert sum(str(page).count("[skill ") for page in pages) == 250
    # What is asked for otherwise, or by another, is another listing.
    assert fs.skill_tree(limit=None, base_paths=["g1"]).total == 84
    assert fs.skill_tree(limit=None, depth=1).total == 3
    assert fs.skill_tree(limit=None, exclude="g1").total < 253
    assert fs.skill_tree(limit=None).total == 253
    # What changed is not kept.
    write(root, {"g0/new/SKILL.md": skill_md("new")})
    (root / "g2/s2/SKILL.md").unlink()
    fs.sync()
    found = listed(fs.skill_tree(limit=None))
    assert "g0/new/" in found
    assert "g2/s2/" not in found
    assert fs.skill_tree(limit=None).total == 253


def test_listings_that_are_kept_are_those_asked_for_last() -> None:
    kept = KeptListings()
    some = [_Listing([None] * (MOST_KEPT // 2), False) for _ in range(3)]  # type: ignore[list-item]
    for number, listing in enumerate(some):
        kept.keep(number, listing)
    assert [kept.get(number) for number in range(3)] == [None, some[1], some[2]]
    kept.keep("small", _Listing([], False))
    kept.keep("large", _Listing([None] * (MOST_KEPT + 1), False))  # type: ignore[list-item]
    assert kept.get("small") is kept.get("large") is None
