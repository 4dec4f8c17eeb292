"""Skills, problems and prompts: what front matter and scans say, seen through a filesystem."""

from __future__ import annotations

import os
import shutil
import socket
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.core.model import Problem
from skillfs.errors import InvalidArgumentError, NotFoundError
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

Opener = Callable[..., SkillFileSystem]


# -- skills ------------------------------------------------------------------------------------------------


def test_skills_are_sorted_by_component_and_complete(root: Path, open_fs: Opener) -> None:
    paths = ["a/x", "a-b/y", "a", "b/c/d", ".agents/skills/z", "Ä", "a!"]
    write(root, {f"{p}/SKILL.md": skill_md(p.rpartition("/")[2]) for p in paths})
    found = [s.path for s in open_fs().skills()]
    assert found == [".agents/skills/z", "a", "a/x", "a!", "a-b/y", "b/c/d", "Ä"]


def test_everything_that_front_matter_says(root: Path, open_fs: Opener) -> None:
    text = (
        "---\nname: pdf\ndescription: Reads.\nlicense: MIT\ncompatibility: any\n"
        "metadata:\n  author: someone\nallowed-tools: Bash(git add:*) Read\nx-own: 1.10\n---\n# Body\n"
    )
    write(root, {"tools/pdf/SKILL.md": text})
    fs = open_fs()
    (skill,) = fs.skills()
    assert fs.skill("pdf") == skill
    assert (skill.name, skill.description, skill.license, skill.compatibility) == (
        "pdf",
        "Reads.",
        "MIT",
        "any",
    )
    assert dict(skill.metadata) == {"author": "someone"}
    assert skill.allowed_tools == ("Bash(git add:*)", "Read")
    assert skill.front_matter["x-own"] == "1.10"
    assert (skill.path, skill.location) == ("tools/pdf", "tools/pdf/SKILL.md")
    assert (skill.uuid, skill.id) == (fs.entry("tools/pdf").uuid, fs.entry("tools/pdf").id)
    assert [p.code for p in skill.problems] == ["unknown-key"]


def test_a_skill_at_the_root_is_named_after_the_store(root: Path, open_fs: Opener) -> None:
    write(root, {"SKILL.md": "# Just text\n\nDoes a thing.\n"})
    (skill,) = open_fs().skills()
    assert (skill.name, skill.path, skill.location, skill.description) == (
        "store",
        "",
        "SKILL.md",
        "Does a thing.",
    )


def test_one_broken_skill_stops_no_other(root: Path, open_fs: Opener) -> None:
    broken: dict[str, str | bytes] = {
        "binary": b"\0\xff" * 500,
        "bomb": "---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n",
        "deep": "---\nx: " + "[" * 20_000 + "\n---\n",
        "empty": "",
        "fences": "---",
        "latin": "---\nname: caf\xe9\n---\n".encode("latin-1"),
        "long": "---\ndescription: " + "x" * 1_000_000 + "\n---\n",
        "tagged": "---\nname: !!python/object/apply:os.system ['true']\n---\n",
        "unclosed": "---\nname: a\n",
    }
    write(root, {f"{name}/SKILL.md": text for name, text in broken.items()})
    write(root, {"good/SKILL.md": skill_md("good")})
    fs = open_fs()
    skills = {s.path: s for s in fs.skills()}
    assert sorted(skills) == sorted([*broken, "good"])
    assert skills["good"].problems == ()
    for name in broken:
        assert skills[name].name == name
        assert skills[name].problems, name
        assert fs.cat_file(f"{name}/SKILL.md") is not None
    assert len(str(fs.skill_tree()).splitlines()) == 1 + len(skills)


@pytest.mark.parametrize("layout", ["folder", "fifo", "wrong-case"])
def test_what_makes_no_skill(root: Path, open_fs: Opener, layout: str) -> None:
    write(root, {"good/SKILL.md": skill_md("good"), "s/readme.md": ""})
    if layout == "folder":
        (root / "s/SKILL.md").mkdir()
    elif layout == "fifo":
        os.mkfifo(root / "s/SKILL.md")
    else:
        write(root, {"s/Skill.md": skill_md("s")})
    fs = open_fs()
    assert [s.path for s in fs.skills()] == ["good"]
    with pytest.raises(NotFoundError):
        fs.entry("s/readme.md")


def test_linked_skills_are_found(root: Path, open_fs: Opener) -> None:
    write(root, {"shared/a.md": skill_md("a"), "a/x.md": "", "b/SKILL.md": skill_md("b")})
    (root / "a/SKILL.md").symlink_to("../shared/a.md")
    (root / "alias").symlink_to("b")
    (root / "b/again").symlink_to("../b")
    fs = open_fs()
    assert [s.path for s in fs.skills()] == ["a", "b"]
    assert fs.skill("alias") == fs.skill("b")
    assert fs.get_content("a/SKILL.md").text == skill_md("a")


def test_an_unreadable_skill_is_still_one(root: Path, open_fs: Opener) -> None:
    write(
        root, {"a/SKILL.md": skill_md("other", "Not to be read."), "a/x.md": "x", "b/SKILL.md": skill_md("b")}
    )
    (root / "a/SKILL.md").chmod(0)
    with bound_by_permissions():
        fs = open_fs()
        a, b = fs.skills()
        assert (a.path, a.name, a.description) == ("a", "a", "")
        assert [(p.code, p.path) for p in a.problems] == [("unreadable", "a/SKILL.md")]
        assert b.problems == ()
        assert fs.skill("a") == a
        assert fs.get_content("a/x.md").text == "x"
        write(root, {"c/SKILL.md": "x"})
        (root / "c/SKILL.md").chmod(0)
        fs.sync()
        assert [s.name for s in fs.skills()] == ["a", "b", "c"]
        (root / "a/SKILL.md").chmod(0o644)
        (root / "c").rename(root / "d")
        fs.sync()
        assert [s.name for s in fs.skills()] == ["b", "d", "other"] or [s.name for s in fs.skills()] == [
            "other",
            "b",
            "d",
        ]
        assert not any(p.code == "unreadable" for s in fs.skills() if s.path == "a" for p in s.problems)


def test_an_unreadable_folder_and_a_loop_end_no_discovery(root: Path, open_fs: Opener) -> None:
    write(
        root, {"a/SKILL.md": skill_md("a"), "locked/in/SKILL.md": skill_md("in"), "z/SKILL.md": skill_md("z")}
    )
    (root / "loop").symlink_to(".")
    (root / "a/loop").symlink_to("..")
    (root / "locked").chmod(0)
    try:
        with bound_by_permissions():
            fs = open_fs()
            assert [s.path for s in fs.skills()] == ["a", "z"]
            assert ("unreadable", "locked") in [(p.code, p.path) for p in fs.problems()]
    finally:
        (root / "locked").chmod(0o755)
    fs.sync()
    assert [s.path for s in fs.skills()] == ["a", "locked/in", "z"]


# -- names -------------------------------------------------------------------------------------------------


@pytest.fixture
def twins(root: Path) -> Path:
    return write(
        root,
        {
            "a-b/x/SKILL.md": skill_md("x", "third"),
            "a/x/SKILL.md": skill_md("x", "second"),
            "a/SKILL.md": skill_md("x", "first"),
            "y/SKILL.md": skill_md("a", "named like a folder"),
            "z/SKILL.md": skill_md("z", "z"),
        },
    )


def test_of_one_name_the_first_path_wins_and_the_others_say_so(twins: Path, open_fs: Opener) -> None:
    fs = open_fs()
    by_path = {s.path: s for s in fs.skills()}
    assert {p: s.shadowed_by for p, s in by_path.items()} == {
        "a": None, "a/x": "a", "a-b/x": "a", "y": None, "z": None,
    }  # fmt: skip
    assert fs.skill("x").path == "a"
    assert fs.entry("name:x").path == "a"
    for path, skill in by_path.items():
        assert fs.skill(f"/{path}") == skill
        assert fs.skill(skill.uuid) == skill
        assert fs.skill(skill.id) == skill
        assert fs.skill(f"{path}/SKILL.md") == skill
    shadowed = [p for p in by_path["a/x"].problems if p.code == "shadowed"]
    assert [(p.path, p.severity) for p in shadowed] == [("a/x/SKILL.md", "warning")]
    assert '"a"' in shadowed[0].message


def test_shadowing_is_judged_among_what_can_be_seen(twins: Path, open_fs: Opener) -> None:
    fs = open_fs()
    mine = {s.path: s.shadowed_by for s in fs.skills(base_paths=["a-b", "/a/x"])}
    assert mine == {"a/x": None, "a-b/x": "a/x"}
    assert fs.skill("/a-b/x", base_paths=["a-b", "/a/x"]).shadowed_by == "a/x"
    assert fs.skill("x", base_paths=["a-b", "/a/x"]).path == "a/x"
    assert fs.skill("x", base_paths=["a-b"]).path == "a-b/x"
    assert fs.skill("x", base_paths=["a-b"]).shadowed_by is None
    assert "shadowed" not in [p.code for p in fs.problems(base_paths=["a-b"])]


def test_a_name_counts_before_a_path_and_what_is_no_name_is_none(twins: Path, open_fs: Opener) -> None:
    fs = open_fs()
    assert fs.skill("a").path == "y"
    assert fs.skill("/a").path == "a"
    assert fs.skill("y").path == "y"
    assert fs.skill("a/x").path == "a/x"
    assert fs.skill("name:z").path == "z"
    for ref in ("nobody", "name:nobody", "a/nobody", "https://x/y"):
        with pytest.raises(NotFoundError):
            fs.skill(ref)
    for ref in ("", None, ["a"], True):
        with pytest.raises(InvalidArgumentError):
            fs.skill(ref)
    with pytest.raises(NotFoundError):
        fs.skill("/")


def test_no_name_can_pass_for_the_uuid_or_id_of_another(root: Path, open_fs: Opener) -> None:
    write(root, {"good/SKILL.md": skill_md("good")})
    good = open_fs().skill("good")
    write(root, {"a/SKILL.md": skill_md(good.uuid), "b/SKILL.md": skill_md(str(good.id))})
    fs = open_fs()
    assert fs.skill(good.uuid).path == "good"
    assert fs.skill(str(good.id)).path == "good"
    assert fs.skill(f"name:{good.uuid}").path == "a"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "/etc/passwd", "x" * 200, "two words"])
def test_a_name_is_never_used_as_a_path(root: Path, open_fs: Opener, name: str) -> None:
    write(root, {"s/SKILL.md": skill_md(name), "a/b/SKILL.md": skill_md("b")})
    fs = open_fs()
    skill = fs.skill("/s")
    assert skill.name == name
    assert {"name-invalid", "name-differs-from-folder"} <= {p.code for p in skill.problems}
    assert fs.skill(f"name:{name}").path == "s"
    if name == "a/b":
        assert fs.skill(name).path == "a/b"


def test_one_skill_does_not_cost_all(root: Path, open_fs: Opener) -> None:
    write(root, {f"s{n}/SKILL.md": skill_md(f"s{n}") for n in range(1_500)})
    fs = open_fs(max_age=3600)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    # What SQLite does is the same on a busy machine.
    fs._engine.database.connection().set_progress_handler(count, 10)
    fs.skills()
    every, steps = steps, 0
    for number in range(20):
        assert fs.skill(f"s{number}").path == f"s{number}"
    assert 0 < steps / 20 < every / 10


# -- problems ----------------------------------------------------------------------------------------------


def _file(text: str | bytes) -> Callable[[Path], None]:
    return lambda root: void(write(root, {"s/SKILL.md": text}))


def void(_: object) -> None:
    return None


def _beside(action: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        write(root, {"s/SKILL.md": skill_md("s")})
        action(root)

    return make


def _socket(root: Path) -> None:
    at = os.getcwd()
    os.chdir(root / "s")  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("sock")
    finally:
        os.chdir(at)


def _unreadable(root: Path) -> None:
    write(root, {"s/locked.md": ""})
    (root / "s/locked.md").chmod(0)


_PROBLEMS: list[tuple[str, Callable[[Path], None], str, int | None]] = [
    ("frontmatter-missing", _file("# Title\n\nText.\n"), "s/SKILL.md", 1),
    ("frontmatter-unclosed", _file("---\nname: s\ndescription: d\n"), "s/SKILL.md", 1),
    ("frontmatter-yaml", _file("---\nname: s\ndescription: Set: it\n---\n"), "s/SKILL.md", 3),
    ("frontmatter-duplicate-key", _file("---\nname: s\ndescription: d\nname: t\n---\n"), "s/SKILL.md", 4),
    ("name-missing", _file("---\ndescription: d\n---\n"), "s/SKILL.md", None),
    ("name-invalid", _file(skill_md("S")), "s/SKILL.md", 2),
    ("name-differs-from-folder", _file(skill_md("t")), "s/SKILL.md", 2),
    ("description-missing", _file("---\nname: s\n---\n"), "s/SKILL.md", None),
    ("description-too-long", _file(skill_md("s", "x" * 1_025)), "s/SKILL.md", 3),
    ("compatibility-too-long", _file(f"---\nname: s\ncompatibility: {'x' * 501}\n---"), "s/SKILL.md", 3),
    ("unknown-key", _file("---\nname: s\ndescription: d\nversion: 1\n---\n"), "s/SKILL.md", 4),
    ("wrong-type", _file("---\nname: s\ndescription: [d]\n---\n"), "s/SKILL.md", 3),
    ("not-text", _file(b"---\nname: s\n---\n\xff\xfe\0"), "s/SKILL.md", None),
    ("too-large", _file("---\nname: s\nx: " + "y" * 70_000 + "\n---\n"), "s/SKILL.md", 1),
    ("invisible-characters", _file(skill_md("s", "a\u202eb")), "s/SKILL.md", 3),
    ("invisible-characters", _beside(lambda r: write(r, {"s/x\u200by.md": ""})), "s/x\u200by.md", None),
    ("shadowed", _beside(lambda r: write(r, {"a/SKILL.md": skill_md("s")})), "s/SKILL.md", None),
    ("case-collision", _beside(lambda r: write(r, {"s/A.md": "", "s/a.md": ""})), "s/A.md", None),
    ("case-collision", _beside(lambda r: write(r, {"s/A.md": "", "s/a.md": ""})), "s/a.md", None),
    ("link-escapes", _beside(lambda r: (r / "s/l").symlink_to("/etc/hostname")), "s/l", None),
    ("link-escapes", _beside(lambda r: (write(r, {"x.md": ""}) / "s/l").symlink_to("../x.md")), "s/l", None),
    ("link-escapes", _beside(lambda r: (r / "l").symlink_to("/etc")), "l", None),
    ("link-dangling", _beside(lambda r: (r / "s/l").symlink_to("nothing")), "s/l", None),
    ("link-loop", _beside(lambda r: (r / "s/l").symlink_to("l")), "s/l", None),
    ("hard-link", _beside(lambda r: os.link(r / "s/SKILL.md", r / "other")), "s/SKILL.md", None),
    ("special-file", _beside(lambda r: os.mkfifo(r / "s/pipe")), "s/pipe", None),
    ("special-file", _beside(_socket), "s/sock", None),
    ("name-not-utf8", _beside(lambda r: (r / os.fsdecode(b"s/\xff")).write_text("")), "s", None),
    ("wrong-case-skill-md", _beside(lambda r: write(r, {"t/skill.md": ""})), "t/skill.md", None),
    ("secret-file", _beside(lambda r: write(r, {"s/.env": "KEY=1", "s/.env.example": ""})), "s/.env", None),
    ("secret-file", _beside(lambda r: write(r, {"s/sub/server.pem": ""})), "s/sub/server.pem", None),
    ("unreadable", _beside(_unreadable), "s/locked.md", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "make", "path", "line"), _PROBLEMS, ids=[f"{code}-{n}" for n, (code, *_) in enumerate(_PROBLEMS)]
)
def test_every_problem_is_told_with_its_place(
    root: Path, open_fs: Opener, code: str, make: Callable[[Path], None], path: str, line: int | None
) -> None:
    make(root)
    with bound_by_permissions():
        fs = open_fs()
        found = [p for p in fs.problems() if p.code == code and p.path == path]
        assert len(found) == 1, [(p.code, p.path, p.line) for p in fs.problems()]
        assert line is None or found[0].line == line
        assert found[0].severity in ("error", "warning", "info")
        assert "\n" not in found[0].message
        assert str(root) not in found[0].message
        _check_owner(fs, found[0])
        # Once mended it is gone; a check that finds nothing new tells nothing twice.
        fs.sync()
        assert [p for p in fs.problems() if p.code == code and p.path == path] == found
    if code in ("hard-link", "shadowed", "wrong-case-skill-md"):
        shutil.rmtree(root / "a", ignore_errors=True)
        shutil.rmtree(root / "t", ignore_errors=True)
        (root / "other").unlink(missing_ok=True)
        (root / "s/SKILL.md").unlink()
    else:
        shutil.rmtree(root / "s")
        (root / "l").unlink(missing_ok=True)
    write(root, {"s/SKILL.md": skill_md("s")})
    fs.sync()
    assert [p for p in fs.problems() if p.code == code] == []


def _check_owner(fs: SkillFileSystem, problem: Problem) -> None:
    owners = [s for s in fs.skills() if s.uuid == problem.skill_folder_uuid]
    if problem.skill_folder_uuid is None:
        assert problem.path in ("l", "t/skill.md")
        return
    (owner,) = owners
    assert problem in owner.problems
    assert problem in fs.skill(owner.uuid).problems


def test_sound_skills_have_no_problems(root: Path, open_fs: Opener) -> None:
    write(
        root,
        {
            "a/SKILL.md": "\ufeff---\r\nname: a\r\ndescription: Set it.\r\n--- \r\n# A\r\n\r\n---\r\n",
            "b/SKILL.md": skill_md("b", "Ends — with a dash 👍", "x" * 100_000),
            "b/.rc": "",
            "c/SKILL.md": "---\nname: c\ndescription: |-\n  Two\n  lines.\n---\n",
        },
    )
    fs = open_fs()
    assert fs.problems() == []
    assert [s.description for s in fs.skills()] == ["Set it.", "Ends — with a dash 👍", "Two\nlines."]


def test_problems_are_sorted_and_kept_to_the_base_paths(root: Path, open_fs: Opener) -> None:
    write(
        root,
        {
            "a/SKILL.md": "x",
            "a/.env": "",
            "a/in/SKILL.md": "x",
            "b/SKILL.md": "x",
            "b/.env": "",
            "c/skill.md": "",
        },
    )
    fs = open_fs()
    everything = [(p.path, p.code) for p in fs.problems()]
    assert [p for p, _ in everything] == sorted((p for p, _ in everything), key=lambda p: p.split("/"))
    assert {p.partition("/")[0] for p, _ in everything} == {"a", "b", "c"}
    assert {p.path for p in fs.problems(base_paths=["a"])} == {"a/.env", "a/SKILL.md", "a/in/SKILL.md"}
    assert {p.path for p in fs.problems(base_paths=["a/in"])} == {"a/in/SKILL.md"}
    assert fs.problems(base_paths=[]) == []
    assert {p.path for p in fs.skill("a").problems} == {"a/.env", "a/SKILL.md"}


# -- the prompt --------------------------------------------------------------------------------------------


def test_prompt(root: Path, open_fs: Opener) -> None:
    write(
        root,
        {
            "tools/pdf/SKILL.md": skill_md("pdf", "Reads <b> & fills \u200bforms."),
            "zz/SKILL.md": skill_md("pdf", "shadowed"),
        },
    )
    assert open_fs().to_prompt() == (
        "<available_skills>\n"
        "  <skill>\n"
        "    <name>pdf</name>\n"
        "    <description>Reads &lt;b&gt; &amp; fills forms.</description>\n"
        "    <location>tools/pdf/SKILL.md</location>\n"
        "  </skill>\n"
        "</available_skills>"
    )


def test_prompt_of_nothing_is_empty(root: Path, open_fs: Opener) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    assert open_fs().to_prompt(base_paths=[]) == ""


@pytest.mark.parametrize(
    "folder", ["a  b", "<x>&amp;", "8004", "नमस्ते", "क\u200dष", "\x01odd", "x\u202ey", "a:b", "~x"]
)
def test_locations_can_be_passed_back(root: Path, open_fs: Opener, folder: str) -> None:
    write(root, {f"{folder}/SKILL.md": skill_md("s", "First\n---")})
    fs = open_fs()
    prompt = fs.to_prompt()
    location = ET.fromstring(prompt).findtext("skill/location")
    (skill,) = fs.skills()
    if folder == "\x01odd":
        assert location == skill.uuid
    else:
        assert fs.get_content(location).skill_folder_uuid == skill.uuid


@pytest.mark.parametrize(
    "description", ["a\n</description></skill><skill>", "]]>", "\x1b[31m", "x\u2028y", "می\u200cشود"]
)
def test_no_description_breaks_the_prompt(root: Path, open_fs: Opener, description: str) -> None:
    text = "---\nname: s\ndescription: " + repr(description)[1:-1].join('""') + "\n---\n"
    write(root, {"s/SKILL.md": text})
    fs = open_fs()
    (element,) = ET.fromstring(fs.to_prompt())
    shown = element.findtext("description")
    assert shown is not None
    assert len(shown.splitlines()) == 1
    if "\u200c" in description:
        assert shown == description
