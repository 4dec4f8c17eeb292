"""From references to entries: which names what, what is seen at once, what base paths leave."""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs import SkillFileSystem, SkillFSError
from skillfs.access import Access
from tests.conftest import skill_md, write

Open = Callable[..., SkillFileSystem]

UUID = "0d4c4b1e-2f4a-5b7a-8f0e-1c2d3e4f5a6b"


@pytest.fixture
def store(root: Path) -> Path:
    return write(
        root,
        {
            "a/SKILL.md": skill_md("a"),
            "a/refs/x.md": "x of a\n",
            "a/refs/report..final.md": "two dots\n",
            "a/app/[...sections]/page.tsx": "brackets\n",
            "a/8004": "digits\n",
            "8004/SKILL.md": skill_md("8004"),
            f"{UUID}/SKILL.md": skill_md("uuid"),
            "b/SKILL.md": skill_md("b"),
            "b/x.md": "x of b\n",
            "b/inner/SKILL.md": skill_md("inner"),
            "b/inner/y.md": "y of inner\n",
            "group/deep/c/SKILL.md": skill_md("c"),
            "group/deep/c/z.md": "z of c\n",
            "group/stray.md": "in no skill\n",
            "stray.md": "in no skill\n",
        },
    )


def error_of(work: Callable[[], object]) -> SkillFSError:
    with pytest.raises(SkillFSError) as caught:
        work()
    return caught.value


# -- forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("a/refs/x.md", "a/refs/x.md"),
        ("/a/refs/x.md", "a/refs/x.md"),
        ("./a/refs/x.md", "a/refs/x.md"),
        ("skill://a/refs/x.md", "a/refs/x.md"),
        ("skill://a/app/%5B...sections%5D/page.tsx", "a/app/[...sections]/page.tsx"),
        ("{root}/a/refs/x.md", "a/refs/x.md"),
        ("file://{root}/a/refs/x.md", "a/refs/x.md"),
        ("local://{root}/a/refs/x.md", "a/refs/x.md"),
        ("a/refs/report..final.md", "a/refs/report..final.md"),
        ("a/app/[...sections]/page.tsx", "a/app/[...sections]/page.tsx"),
        ("a/8004", "a/8004"),
        ("/8004", "8004"),
        ("8004/", None),
        ("a/", "a"),
        ("name:c", "group/deep/c"),
        ("/", ""),
        (".", ""),
        ("./", ""),
        ("{root}", ""),
        ("{root}/", ""),
        (f"/{UUID}", UUID),
    ],
)
def test_reference_forms(store: Path, open_fs: Open, ref: str, path: str | None) -> None:
    fs = open_fs()
    ref = ref.replace("{root}", str(store))
    assert fs.entry(ref).path == ("8004" if path is None else path)


def test_identities_lead_back(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    for path in ("a", "a/refs", "a/refs/x.md", "b/inner/y.md", "group"):
        entry = fs.entry(path)
        plain = uuid.UUID(entry.uuid)
        forms = [
            entry.id, str(entry.id), entry.uuid, entry.uuid.upper(), plain.hex, plain.urn,
            f"URN:UUID:{plain.hex}",
        ]  # fmt: skip
        for form in forms:
            assert fs.entry(form).path == path, form


def test_hashes_lead_to_the_first_by_path(store: Path, open_fs: Open) -> None:
    write(store, {"b/copy.md": "x of a\n"})
    fs = open_fs()
    content = fs.entry("a/refs/x.md").hash
    assert content is not None
    assert fs.entry(content).path == "a/refs/x.md"
    assert [e.path for e in fs.find_content(content)] == ["a/refs/x.md", "b/copy.md"]
    for path in fs.find(""):
        fs.get_content(path, 0, 0)
    md5 = fs.get_content("b/copy.md").hash
    assert fs.get_content(f"md5:{md5.upper()}").path == "a/refs/x.md"


def test_a_printed_hash_can_be_asked_for_at_once(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    page = fs.get_content("a/refs/x.md")
    assert fs.get_content(f"md5:{page.hash}").text == page.text


def test_hashes_not_known_for_every_file(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    assert error_of(lambda: fs.entry("md5:" + "0" * 32)).code == "not_indexed"
    assert error_of(lambda: fs.entry("xxh3:" + "0" * 32)).code == "not_found"
    inside = error_of(lambda: fs.entry("md5:" + "0" * 32, base_paths=["a"]))
    assert inside.code == "not_indexed"
    assert not any(c.isdigit() for c in str(inside).replace("md5", ""))  # counts are not for everybody


def test_what_a_hash_names_has_that_hash(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    content = fs.entry("a/refs/x.md").hash
    (store / "a/refs/x.md").write_text("y of a\n")
    assert error_of(lambda: fs.get_content(content)).code == "not_found"


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("../../etc/passwd", "invalid_argument"),
        ("a/../a/SKILL.md", "invalid_argument"),
        ("a/./SKILL.md", "invalid_argument"),
        ("././a/SKILL.md", "invalid_argument"),
        ("/etc/passwd", "not_found"),
        ("{root}-evil/x", "not_found"),
        ("{root}'/a/SKILL.md", "not_found"),
        ("{root}/../x", "invalid_argument"),
        ("{root}//a/SKILL.md", "invalid_argument"),
        ("a//SKILL.md", "invalid_argument"),
        ("//a/SKILL.md", "invalid_argument"),
        ("a/SKILL.md//", "invalid_argument"),
        ("", "invalid_argument"),
        ("..", "invalid_argument"),
        (" ", "not_found"),
        ("/", "is_folder"),
        (".", "is_folder"),
        ("{root}", "is_folder"),
        ("a/SKILL.md\0.txt", "invalid_argument"),
        ("a/\ud800.md", "invalid_argument"),
        ("a/bad\udcff.md", "invalid_argument"),
        ("a/line\nbreak", "invalid_argument"),
        ("a/" + "x" * 256, "invalid_argument"),
        ("a/" + "é" * 128, "invalid_argument"),
        ("a/" * 2500, "invalid_argument"),
        ("x" * 2**20, "invalid_argument"),
        ("%2e%2e/secret", "not_found"),
        ("..%2fsecret", "not_found"),
        ("%252e", "not_found"),
        ("skill://%2e%2e/a", "invalid_argument"),
        ("skill://a%2f..%2fb", "invalid_argument"),
        ("skill://a/%00", "invalid_argument"),
        ("skill://a/%ff", "invalid_argument"),
        ("skill://a/%252e", "not_found"),
        ("file:///etc/passwd", "not_found"),
        ("local:///etc/passwd", "not_found"),
        ("file://{root}-evil/x", "not_found"),
        ("s3://other-bucket/x", "not_found"),
        ("http://169.254.169.254/latest/", "not_found"),
        ("simplecache::file:///etc/passwd", "not_found"),
        ("data:text/plain,x", "not_found"),
        ("~/.ssh/id_rsa", "not_found"),
        ("~root/x", "not_found"),
        ("$HOME/x", "not_found"),
        ("${HOME}", "not_found"),
        ("%USERPROFILE%", "not_found"),
        ("a\\SKILL.md", "not_found"),
        ("..\\..\\x", "not_found"),
        ("C:\\x", "not_found"),
        ("C:x", "not_found"),
        ("\\\\srv\\share\\x", "not_found"),
        ("\\\\?\\C:\\x", "not_found"),
        ("a/SKILL.md::$DATA", "not_found"),
        ("a/SKILL.md:s", "not_found"),
        ("a/SKILL.md.", "not_found"),
        ("a/SKILL.md ", "not_found"),
        ("CON", "not_found"),
        ("a/skill.md", "not_found"),
        ("A/SKILL.md", "not_found"),
        ("a", "is_folder"),
        ("a/", "is_folder"),
        ("a/refs", "is_folder"),
        ("a/SKILL.md/", "is_file"),
        ("a/SKILL.md/x", "not_found"),
        ("stray.md", "not_found"),
        ("group/stray.md", "not_found"),
        ("{" + UUID + "}", "not_found"),
        (UUID + " ", "not_found"),
        (UUID, "not_found"),
        ("00000000-0000-0000-0000-000000000000", "not_found"),
        (UUID + "\n", "invalid_argument"),
        ("f" * 10_000, "invalid_argument"),
        ("8004", "not_found"),
        ("9" * 4_000, "not_found"),
        (10**30, "not_found"),
        (-1, "invalid_argument"),
        (True, "invalid_argument"),
        (None, "invalid_argument"),
        (1.5, "invalid_argument"),
        (["a"], "invalid_argument"),
        ({"id": 1}, "invalid_argument"),
        (b"a/SKILL.md", "invalid_argument"),
        ("name:", "invalid_argument"),
        ("name:nobody", "not_found"),
        ("md5:123", "not_found"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refused_references(store: Path, open_fs: Open, ref: object, code: str) -> None:
    fs = open_fs()
    if isinstance(ref, str):
        ref = ref.replace("{root}", str(store))
    started = time.perf_counter()
    error = error_of(lambda: fs.get_content(ref))
    assert time.perf_counter() - started < 4
    assert error.code == code
    message = str(error)
    assert f"{store}/" not in message  # a folder whose name only begins like the root's is not the root
    assert len(message) < 500
    message.encode("utf-8")
    assert message.isprintable()
    if code == "invalid_argument" and not isinstance(ref, str | int):
        assert type(ref).__name__ in message
    if code == "is_folder":
        assert "list its tree" in message
    assert fs.get_content("a/refs/x.md").text == "x of a\n"


def test_no_message_echoes_the_root(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    r = str(store)
    calls: list[Callable[[], object]] = [
        lambda: fs.get_content(f"{r}/a"),
        lambda: fs.get_content(f"{r}/a/none.md"),
        lambda: fs.get_content(f"{r}/a/SKILL.md/"),
        lambda: fs.get_lines(f"{r}/a"),
        lambda: fs.entry(f"file://{r}/none"),
        lambda: fs.skill(f"{r}/group"),
        lambda: fs.find_content(f"{r}/a/SKILL.md"),
        lambda: fs.skill_tree(f"{r}/a/SKILL.md"),
        lambda: fs.skill_tree(f"{r}/none"),
        lambda: fs.get_content(f"skill://{r}/none"),
        lambda: fs.get_content(f"skill://{r[1:]}"),
        lambda: fs.get_content(f"{r[1:]}/none"),
        lambda: fs.get_content(f".{r}/none"),
        lambda: fs.get_content("a/SKILL.md", base_paths=[f"{r}/a/SKILL.md"]),
        lambda: fs.get_content("a/SKILL.md", base_paths=[f"{r}/none"]),
        lambda: open_fs(base_paths=[f"{r}/none"]),
        lambda: fs.info(f"{r}/none"),
        lambda: fs.cat_file(f"{r}/a"),
        lambda: fs.open(f"{r}/a"),
        lambda: fs.checksum(f"{r}/a"),
        lambda: fs.ls(f"{r}/a/SKILL.md/x"),
        lambda: fs.modified(f"{r}/none"),
    ]
    for call in calls:
        assert r[1:] not in str(error_of(call))


def test_names_that_look_like_patterns_or_options(root: Path, open_fs: Open) -> None:
    names = ["-rf", "--help", "*", "[a]", "{a,b}", "a?b", "#x", "~x", "$HOME", "a b", "report..md", "a\\b"]
    write(root, {"s/SKILL.md": skill_md("s"), **{f"s/{n}/{n}.md": n for n in names}, "s/a/a.md": "plain"})
    fs = open_fs()
    for name in names:
        path = f"s/{name}/{name}.md"
        assert fs.get_content(path).text == name
        assert fs.cat_file(path) == name.encode()
        assert fs.info(path)["name"] == path
        with fs.open(path) as file:
            assert file.read() == name.encode()
    assert error_of(lambda: fs.get_content("s/a/b/a/b.md")).code == "not_found"


def test_an_exact_name_wins_else_one_that_is_equal_under_nfc(root: Path, open_fs: Open) -> None:
    nfc, nfd = "é.md", unicodedata.normalize("NFD", "é.md")
    write(root, {"s/SKILL.md": skill_md("s"), f"s/{nfd}": "decomposed"})
    fs = open_fs()
    assert fs.get_content(f"s/{nfc}").text == "decomposed"
    write(root, {f"s/{nfc}": "composed"})
    assert fs.get_content(f"s/{nfc}").text == "composed"  # new, and exact
    assert fs.get_content(f"s/{nfd}").text == "decomposed"
    a, b = "ệ", unicodedata.normalize("NFD", "ệ")
    between = "\u00ea\u0323"  # a third spelling of the same
    write(root, {f"s/{a}.md": "1", f"s/{b}.md": "2"})
    error = error_of(lambda: fs.get_content(f"s/{between}.md"))
    assert error.code == "invalid_argument"
    assert "ambiguous" in str(error)


def test_an_ambiguity_is_only_one_among_what_may_be_seen(root: Path, open_fs: Open) -> None:
    a, b, between = "ệ", unicodedata.normalize("NFD", "ệ"), "\u00ea\u0323"
    write(root, {f"{a}/SKILL.md": skill_md("a"), f"{b}/SKILL.md": skill_md("b")})
    fs = open_fs()
    assert error_of(lambda: fs.entry(between)).code == "invalid_argument"
    assert fs.entry(between, base_paths=[f"/{a}"]).path == a


# -- now -----------------------------------------------------------------------------------------------------


def test_a_new_file_is_there_at_once(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    write(store, {"a/new.md": "new", "a/far/below/new.md": "deep", "fresh/SKILL.md": skill_md("fresh")})
    assert fs.get_content("a/new.md").text == "new"
    assert fs.get_content("a/far/below/new.md").text == "deep"
    assert fs.entry("fresh/SKILL.md").skill_path == "fresh"
    write(store, {"group/deep/c/new.md": "new"})
    assert fs.cat_file("group/deep/c/new.md") == b"new"


def test_a_new_skill_above_what_was_in_none(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    assert error_of(lambda: fs.get_content("group/stray.md")).code == "not_found"
    time.sleep(0.05)
    write(store, {"group/SKILL.md": skill_md("group")})
    assert fs.get_content("group/stray.md").text == "in no skill\n"
    assert fs.entry("group/deep").skill_path == "group"


def test_a_new_skill_two_folders_above(root: Path, open_fs: Open) -> None:
    write(root, {"g/h/i/stray.md": "stray\n", "other/SKILL.md": skill_md("other")})
    fs = open_fs(max_age=3600)
    assert error_of(lambda: fs.get_content("g/h/i/stray.md")).code == "not_found"
    time.sleep(0.05)
    write(root, {"g/SKILL.md": skill_md("g")})
    assert fs.get_content("g/h/i/stray.md").text == "stray\n"


def test_a_deleted_file_is_gone_at_once(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    entry = fs.entry("a/refs/x.md")
    (store / "a/refs/x.md").unlink()
    for ref in ("a/refs/x.md", entry.uuid, entry.id):
        assert error_of(lambda ref=ref: fs.get_content(ref)).code == "not_found"
        assert error_of(lambda ref=ref: fs.entry(ref)).code == "not_found"
    shutil.rmtree(store / "b")
    assert not fs.exists("b/inner/y.md")
    assert not fs.exists("b")


def test_a_file_that_becomes_a_folder_and_back(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    (store / "a/refs/x.md").unlink()
    write(store, {"a/refs/x.md/inner.md": "inner"})
    assert fs.get_content("a/refs/x.md/inner.md").text == "inner"
    assert fs.isdir("a/refs/x.md")
    shutil.rmtree(store / "a/refs/x.md")
    write(store, {"a/refs/x.md": "file again"})
    assert fs.get_content("a/refs/x.md").text == "file again"
    assert error_of(lambda: fs.get_content("a/refs/x.md/inner.md")).code == "not_found"


def test_facts_of_an_entry_are_those_of_now(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    assert fs.entry("a/refs/x.md").size == 7
    write(store, {"a/refs/x.md": "longer than before\n"})
    assert fs.entry("a/refs/x.md").size == fs.info("a/refs/x.md")["size"] == 19
    assert fs.checksum("a/refs/x.md") == int(str(fs.entry("a/refs/x.md").hash).removeprefix("xxh3:"), 16)


def test_a_skill_without_its_skill_md(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    before = fs.entry("a/refs/x.md")
    (store / "a/SKILL.md").rename(store / "a/away.md")
    for path in ("a", "a/refs", "a/refs/x.md", "a/SKILL.md", "a/away.md"):
        assert error_of(lambda path=path: fs.entry(path)).code == "not_found", path
    assert error_of(lambda: fs.get_content(before.uuid)).code == "not_found"
    (store / "a/away.md").rename(store / "a/SKILL.md")
    assert fs.entry("a/refs/x.md").uuid == before.uuid
    assert fs.get_content(before.uuid).text == "x of a\n"


def test_an_inner_skill_that_loses_its_skill_md_joins_the_outer(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    inner, outer = fs.entry("b/inner"), fs.entry("b")
    assert fs.get_content("b/inner/y.md").skill_folder_uuid == inner.uuid
    (store / "b/inner/SKILL.md").unlink()
    assert fs.get_content("b/inner/y.md").skill_folder_uuid == outer.uuid
    write(store, {"b/inner/SKILL.md": skill_md("inner")})
    assert fs.get_content("b/inner/y.md").skill_folder_uuid == inner.uuid == fs.entry("b/inner").uuid


def test_a_nested_skill_takes_what_is_below_it(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    before = fs.get_content("a/refs/x.md")
    assert before.skill_folder_uuid == fs.entry("a").uuid
    folder = fs.entry("a/refs").uuid
    write(store, {"a/refs/SKILL.md": skill_md("refs")})
    after = fs.get_content("a/refs/x.md")
    assert (after.uuid, after.skill_folder_uuid) == (before.uuid, folder)
    assert fs.entry(before.uuid).skill_path == "a/refs"


@pytest.mark.parametrize("what", ["folder", "fifo", "dangling link", "escaping link"])
def test_what_is_called_skill_md_and_is_none(store: Path, tmp_path: Path, open_fs: Open, what: str) -> None:
    fake = store / "a/refs/SKILL.md"
    write(tmp_path, {"outside/SKILL.md": skill_md("outside")})
    if what == "folder":
        fake.mkdir()
    elif what == "fifo":
        os.mkfifo(fake)
    else:
        fake.symlink_to("nowhere" if what == "dangling link" else tmp_path / "outside/SKILL.md")
    for fs in (open_fs(), open_fs(max_age=3600)):
        assert fs.get_content("a/refs/x.md").skill_folder_uuid == fs.entry("a").uuid
        assert fs.entry("a/refs").kind == "folder"


def test_a_skill_md_that_is_a_link_counts_while_it_leads_somewhere(root: Path, open_fs: Open) -> None:
    write(root, {"s/x.md": "x", "real/SKILL.md": skill_md("real")})
    (root / "s/SKILL.md").symlink_to("../real/SKILL.md")
    fs = open_fs(max_age=3600)
    assert fs.get_content("s/x.md").text == "x"
    (root / "real/SKILL.md").rename(root / "real/OTHER.md")
    assert error_of(lambda: fs.get_content("s/x.md")).code == "not_found"
    (root / "real/OTHER.md").rename(root / "real/SKILL.md")
    assert fs.get_content("s/x.md").text == "x"


def test_identities_follow_a_rename(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    file, folder = fs.entry("a/refs/x.md"), fs.entry("group/deep/c")
    (store / "a/refs/x.md").rename(store / "a/refs/renamed.md")
    assert fs.get_content(file.uuid).path == "a/refs/renamed.md"
    (store / "a/refs/renamed.md").rename(store / "b/inner/elsewhere.md")
    page = fs.get_content(file.id)
    assert (page.path, page.uuid) == ("b/inner/elsewhere.md", file.uuid)
    assert page.skill_folder_uuid == fs.entry("b/inner").uuid
    (store / "group/deep/c").rename(store / "moved")
    assert fs.entry(folder.uuid).path == "moved"
    assert fs.entry("moved/z.md").skill_folder_uuid == folder.uuid


# -- base paths ----------------------------------------------------------------------------------------------

BASED = [
    (["a"], {"a/refs/x.md"}),
    (["a", "a"], {"a/refs/x.md"}),
    (["/"], {"a/refs/x.md", "b/x.md", "b/inner/y.md", "group/deep/c/z.md"}),
    (["."], {"a/refs/x.md", "b/x.md", "b/inner/y.md", "group/deep/c/z.md"}),
    (["b"], {"b/x.md", "b/inner/y.md"}),
    (["b/inner"], {"b/inner/y.md"}),
    (["group"], {"group/deep/c/z.md"}),
    (["group/deep/"], {"group/deep/c/z.md"}),
    (["a", "group"], {"a/refs/x.md", "group/deep/c/z.md"}),
    (["a/refs"], set()),  # no skill is there or below
    ([], set()),
    ((), set()),
]
FILES = ("a/refs/x.md", "b/x.md", "b/inner/y.md", "group/deep/c/z.md")


@pytest.mark.parametrize(
    ("bases", "visible"), BASED, ids=lambda v: repr(sorted(v) if isinstance(v, set) else v)
)
def test_base_paths(store: Path, open_fs: Open, bases: list[str], visible: set[str]) -> None:
    fs, confined = open_fs(), open_fs(base_paths=bases)
    contents = {path: fs.entry(path) for path in FILES}
    for path, entry in contents.items():
        for ref in (path, entry.uuid, entry.id, entry.hash):
            assert ref is not None
            for read in (
                lambda ref=ref: fs.get_content(ref, base_paths=bases).path,
                lambda ref=ref: fs.get_lines(ref, base_paths=bases).path,
                lambda ref=ref: fs.entry(ref, base_paths=bases).path,
                lambda ref=ref: confined.get_content(ref).path,
            ):
                if path in visible:
                    assert read() == path
                else:
                    assert error_of(read).code == "not_found"
        assert confined.exists(path) == (path in visible)
    assert {p for p in confined.find("") if p in FILES} == visible
    assert {s.path for s in fs.skills(base_paths=bases)} == {s.path for s in confined.skills()}


def test_base_paths_meet(store: Path, open_fs: Open) -> None:
    fs = open_fs(base_paths=["b"])
    assert fs.get_content("b/inner/y.md", base_paths=["b/inner"]).text == "y of inner\n"
    assert fs.get_content("b/inner/y.md", base_paths=["/"]).text == "y of inner\n"
    assert error_of(lambda: fs.get_content("b/x.md", base_paths=["b/inner"])).code == "not_found"
    missing = error_of(lambda: fs.get_content("b/x.md", base_paths=["q"]))
    outside = error_of(lambda: fs.get_content("b/x.md", base_paths=["a"]))
    assert outside.code == missing.code == "not_found"
    assert str(outside) == str(missing).replace(chr(34) + "q", chr(34) + "a")


@pytest.mark.parametrize(
    ("bases", "code"),
    [
        (["nothing"], "not_found"),
        (["a", "nothing"], "not_found"),
        (["a/SKILL.md"], "is_file"),
        (["../x"], "invalid_argument"),
        ([""], "invalid_argument"),
        ([".."], "invalid_argument"),
        ([None], "invalid_argument"),
        ([["a"]], "invalid_argument"),
        ([True], "invalid_argument"),
        ("a", "invalid_argument"),
        (b"a", "invalid_argument"),
        (5, "invalid_argument"),
        ({"a": 1}, "invalid_argument"),
        (["/etc"], "not_found"),
        (["file:///etc"], "not_found"),
        (["00000000-0000-0000-0000-000000000000"], "not_found"),
        ([10**30], "not_found"),
    ],
    ids=repr,
)
def test_base_paths_that_are_none(store: Path, open_fs: Open, bases: list[object], code: str) -> None:
    fs = open_fs()
    assert error_of(lambda: fs.get_content("a/SKILL.md", base_paths=bases)).code == code
    assert error_of(lambda: open_fs(base_paths=bases)).code == code
    assert error_of(lambda: fs.skill_tree(base_paths=bases)).code == code


def test_very_many_base_paths_are_refused_quickly(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    started = time.perf_counter()
    assert (
        error_of(lambda: fs.get_content("a/SKILL.md", base_paths=["a"] * 100_000)).code == "invalid_argument"
    )
    assert time.perf_counter() - started < 2
    assert fs.get_content("a/SKILL.md", base_paths=iter(["a"])).path == "a/SKILL.md"  # type: ignore[arg-type]


def test_a_base_given_as_a_path_stays_that_path(store: Path, open_fs: Open) -> None:
    fs = open_fs(base_paths=["a"], max_age=0)
    (store / "a").rename(store / "moved")
    assert error_of(lambda: fs.get_content("moved/refs/x.md")).code == "not_found"
    assert error_of(lambda: fs.get_content("a/refs/x.md")).code == "not_found"
    assert fs.find("") == []
    assert fs.skills() == []
    (store / "b").rename(store / "a")
    assert fs.get_content("a/x.md").text == "x of b\n"


def test_a_base_given_as_a_uuid_follows_the_folder(store: Path, open_fs: Open) -> None:
    uuid_of_a = open_fs().entry("a").uuid
    fs = open_fs(base_paths=[uuid_of_a], max_age=0)
    (store / "a").rename(store / "moved")
    assert fs.get_content("moved/refs/x.md").text == "x of a\n"
    (store / "b").rename(store / "a")
    assert error_of(lambda: fs.get_content("a/x.md")).code == "not_found"
    shutil.rmtree(store / "moved")
    assert fs.find("") == []


def test_a_content_outside_the_base_paths_is_not_found_by_its_hash(store: Path, open_fs: Open) -> None:
    write(store, {"b/copy.md": "x of a\n"})
    fs = open_fs()
    both = fs.entry("a/refs/x.md").hash
    only_a = fs.entry("a/8004").hash
    assert fs.get_content(both, base_paths=["b"]).path == "b/copy.md"
    assert [e.path for e in fs.find_content(str(both), base_paths=["b"])] == ["b/copy.md"]
    there = error_of(lambda: fs.find_content(str(only_a), base_paths=["b"]))
    nowhere = error_of(lambda: fs.find_content("xxh3:" + "0" * 32, base_paths=["b"]))
    assert str(there).replace(str(only_a), "") == str(nowhere).replace("xxh3:" + "0" * 32, "")
    assert there.code == nowhere.code == "not_found"
    assert error_of(lambda: fs.get_content("name:a", base_paths=["b"])).code == "not_found"


def test_missing_outside_and_hidden_are_one_answer(store: Path, open_fs: Open) -> None:
    write(store, {"a/.env": "SECRET=1\n", "a/.git/config": "x\n"})
    (store / "a/escape.md").symlink_to("/etc/hostname")
    fs = open_fs()
    for path in ("stray.md", "group/stray.md", "a/.env", "a/.git/config", "a/escape.md", "b/x.md"):
        options = {"base_paths": ["a"]} if path == "b/x.md" else {}
        here = error_of(lambda path=path, options=options: fs.get_content(path, **options))
        assert here.code == "not_found"
        target = store / path
        if target.is_symlink() or target.is_file():
            target.unlink()
        gone = error_of(lambda path=path, options=options: fs.get_content(path, **options))
        assert (type(here), str(here), here.args) == (type(gone), str(gone), gone.args)


def test_an_outer_skill_is_but_a_folder_on_the_way_to_the_inner(store: Path, open_fs: Open) -> None:
    write(store, {"b/mid/deep/SKILL.md": skill_md("deep"), "b/mid/z.md": "z", "b/side/z.md": "z"})
    outer = open_fs().entry("b")
    fs = open_fs(base_paths=["b/mid/deep"], max_age=0)
    assert fs.ls("", detail=False) == ["b"]
    assert fs.ls("b", detail=False) == ["b/mid"]
    assert [top for top, _, _ in fs.walk("")] == ["", "b", "b/mid", "b/mid/deep"]
    assert fs.find("", withdirs=True) == ["b", "b/mid", "b/mid/deep", "b/mid/deep/SKILL.md"]
    assert fs.info("b")["kind"] == fs.ls("")[0]["kind"] == "folder"
    assert fs.info("b")["skill_folder_uuid"] is fs.ls("")[0]["skill_folder_uuid"] is None
    assert fs.info("b") == fs.ls("")[0]
    for hidden in ("b/side", "b/x.md", "b/mid/z.md", "b/SKILL.md", outer.uuid, outer.id, "name:b"):
        assert error_of(lambda hidden=hidden: fs.entry(hidden)).code == "not_found", hidden
    narrowed = open_fs(base_paths=["b/mid"])  # a folder in a skill: a base for the skill below it only
    assert narrowed.find("") == ["b/mid/deep/SKILL.md"]
    assert narrowed.ls("b/mid", detail=False) == ["b/mid/deep"]


@given(
    st.lists(st.sampled_from(["", "a", "a/b", "a/b/c", "a/bc", "b", "b/a"]), max_size=3),
    st.lists(st.sampled_from(["", "a", "a/b", "a/b/c", "a/bc", "b", "b/a"]), max_size=3),
    st.sampled_from(["", "a", "a/b", "a/b/c", "a/b/c/d", "a/bc", "a/bcd", "b", "b/a", "c"]),
)
def test_base_paths_meet_as_sets_of_paths_do(some: list[str], others: list[str], path: str) -> None:
    def below(bases: list[str]) -> bool:
        return any(not base or path == base or path.startswith(f"{base}/") for base in bases)

    assert Access(some).allows(path) == below(some)
    both = Access(some).within(others)
    assert both.allows(path) == (below(some) and below(others))
    assert Access().within(some).allows(path) == below(some)
    # A folder leads on when it is allowed, or something allowed can lie below it.
    assert Access(some).leads(path) == (
        below(some) or any(b.startswith(f"{path}/" if path else "") for b in some)
    )


def test_thousands_of_base_paths_cost_little(root: Path, open_fs: Open) -> None:
    skills = {f"g{n % 50}/s{n}/SKILL.md": skill_md(f"s{n}") for n in range(1000)}
    write(root, skills)
    fs = open_fs(max_age=3600)
    bases = [path.removesuffix("/SKILL.md") for path in skills]
    started = time.thread_time()  # of this thread alone: what else the machine does is not counted
    access = fs._lookup.access(bases * 10)
    assert time.thread_time() - started < 20
    assert all(access.allows(base) and access.leads(base) for base in bases)


def test_what_is_in_bounds_is_told_without_a_loop_over_the_bases() -> None:
    bases = [f"g{n % 50}/s{n}" for n in range(10_000)]
    access = Access(bases)
    started = time.thread_time()
    assert all(access.allows(base) and access.leads(base) for base in bases)
    assert not any(access.allows(f"{base}x") or access.leads(f"{base}x") for base in bases)
    assert time.thread_time() - started < 2  # a loop makes 400 million comparisons


# -- near misses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ref", "near"),
    [
        ("a/refs/x", "a/refs/x.md"),
        ("a/ref/x.md", "a/refs"),
        ("group/dep", "group/deep"),
        ("a/refs/quite-different.md", None),
        ("secret/x.md", None),
    ],
)
def test_a_near_miss_is_named(store: Path, open_fs: Open, ref: str, near: str | None) -> None:
    message = str(error_of(lambda: open_fs().get_content(ref)))
    assert ("did you mean" in message) == (near is not None)
    assert near is None or f'"{near}"' in message


def test_a_near_miss_is_only_what_may_be_seen(store: Path, open_fs: Open) -> None:
    """What is out of bounds is not offered, whether it is there or not."""
    confined = open_fs(base_paths=["a"])
    there = str(error_of(lambda: confined.get_content("bb")))
    assert "did you mean" in str(error_of(lambda: open_fs().get_content("b/x")))
    assert "did you mean" not in there
    assert "did you mean" not in str(error_of(lambda: confined.get_content("b/x")))
    (store / "b").rename(store / "quite-another")
    assert str(error_of(lambda: confined.get_content("bb"))) == there


INVISIBLE = [
    # what is asked for, what makes it exist and be out of sight, bases
    ("alpha", {"alpha/SKILL.md": "x"}, ["alphb"]),
    ("alpha/SKILL.md", {"alpha/SKILL.md": "x"}, ["alphb"]),
    ("alpha/none.md", {"alpha/SKILL.md": "x"}, ["alphb"]),
    ("alphb/inn", {"alphb/inn/SKILL.md": "x"}, ["alphb/inner"]),
    ("alphb/innerx", {"alphb/innerx": "x"}, ["alphb/inner"]),
    ("alphc", {"alphc/stray.md": "in no skill"}, None),
    ("alphc/stray.md", {"alphc/stray.md": "in no skill"}, None),
    ("alphb/.env", {"alphb/.env": "SECRET=1"}, None),
    ("alphb/.env/x", {"alphb/.env": "SECRET=1"}, None),
    ("alphb/.git", {"alphb/.git/config": "x"}, None),
    ("alphb/.git/config", {"alphb/.git/config": "x"}, None),
    ("alphb/notez.md", "/etc/hostname", None),
    ("alphb/notez.md/x", "/etc", None),
    ("alphb/notez.md", "../alphd/x.md", ["alphb"]),
    ("alphb/notez.md", "nowhere", None),
]


@pytest.mark.parametrize(("ref", "made", "bases"), INVISIBLE, ids=repr)
@pytest.mark.parametrize("reopened", [True, False])
def test_what_is_out_of_sight_leaves_no_trace_in_a_near_miss(
    root: Path, open_fs: Open, ref: str, made: dict[str, str] | str, bases: list[str] | None, reopened: bool
) -> None:
    write(
        root,
        {
            "alphb/SKILL.md": skill_md("alphb"),
            "alphb/.envx": "x",
            "alphb/.gitx/config.md": "x",
            "alphb/notes.md": "notes",
            "alphb/inner/SKILL.md": skill_md("inner"),
            "alphb/inner/inn.md": "x",
            "alphd/SKILL.md": skill_md("alphd"),
            "alphd/x.md": "x",
        },
    )

    def opened() -> SkillFileSystem:
        return open_fs() if bases is None else open_fs(base_paths=bases)

    before = fs = opened()
    missing = error_of(lambda: before.get_content(ref))
    if isinstance(made, dict):
        write(root, made)
    else:
        (root / "alphb/notez.md").symlink_to(made)
    if reopened:
        fs = opened()
    invisible = error_of(lambda: fs.get_content(ref))
    assert (type(invisible), str(invisible)) == (type(missing), str(missing))


def test_neighbours_out_of_sight_take_no_place_among_those_that_are_offered(
    root: Path, open_fs: Open
) -> None:
    write(root, {f"near-{n:03}/stray.md": "x" for n in range(600)})
    write(root, {"near-9999/SKILL.md": skill_md("near-9999")})
    assert '"near-9999"' in str(error_of(lambda: open_fs().entry("near-999")))


def statements(fs: SkillFileSystem, work: Callable[[], object]) -> list[str]:
    """What the index, which is in memory, is asked meanwhile."""
    asked: list[str] = []
    connection = fs._engine.database.connection()
    connection.set_trace_callback(asked.append)
    try:
        work()
    finally:
        connection.set_trace_callback(None)
    return asked


def test_no_near_miss_is_looked_for_where_none_is_shown(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    for work in (fs.exists, fs.isdir, fs.isfile, fs.find):
        asked = statements(fs, lambda work=work: work("a/refs/none.md"))
        assert asked
        assert not any("ORDER BY name" in sql for sql in asked)
    shown = statements(fs, lambda: error_of(lambda: fs.entry("a/refs/none.md")))
    assert any("ORDER BY name" in sql for sql in shown)


def test_a_name_in_ascii_is_equal_to_another_under_nfc(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/300\u212a.md": "kelvin"})
    fs = open_fs()
    assert fs.get_content("s/300K.md").text == "kelvin"
    assert fs.info("s/300K.md")["islink"] is False
    (root / "s/300\u212a.md").rename(root / "s/300K.md")
    assert fs.get_content("s/300\u212a.md").text == "kelvin"


def test_an_entry_behind_a_link_says_so(root: Path, open_fs: Open) -> None:
    decomposed = unicodedata.normalize("NFD", "\u00e9.md")
    write(root, {"s/SKILL.md": skill_md("s"), "s/refs/x.md": "x", f"s/{decomposed}": "y"})
    (root / "s/l.md").symlink_to("refs/x.md")
    (root / "s/l").symlink_to("refs")
    fs = open_fs()
    for path in ("s/l.md", "s/l/x.md"):
        assert (fs.entry(path).path, fs.entry(path).link) == ("s/refs/x.md", "s/refs/x.md")
    assert fs.entry("s/l").link == "s/refs"
    for ref in ("s/refs/x.md", "s", fs.entry("s/l.md").uuid, "s/\u00e9.md", "/"):
        assert fs.entry(ref).link is None, ref


def test_searches_see_what_is_new(store: Path, tmp_path: Path, open_fs: Open) -> None:
    fs, other = open_fs(max_age=0), open_fs(max_age=0)
    write(store, {"a/zed.md": "zed\n", "zed/SKILL.md": skill_md("zed"), "gone/SKILL.md": skill_md("gone")})
    other.sync()
    entry = other.entry("a/zed.md")
    assert entry.hash is not None
    assert fs.entry("name:zed").path == "zed"
    write(store, {"zed/copy.md": "zed\n"})
    assert [e.path for e in fs.find_content(entry.hash)] == ["a/zed.md", "zed/copy.md"]
    write(store, {"a/a.md": "zed\n"})
    assert fs.get_content(entry.hash).path == "a/a.md"
    for number, form in enumerate(("id", "uuid")):
        write(store, {f"b/new{number}.md": "new"})
        other.sync()
        new = getattr(other.entry(f"b/new{number}.md"), form)
        assert fs.entry(new).path == f"b/new{number}.md"


def test_a_hash_not_known_outside_the_base_paths_is_none_to_wait_for(store: Path, open_fs: Open) -> None:
    fs = open_fs(base_paths=["a", "b/inner"])
    missing = "md5:" + "0" * 32
    assert error_of(lambda: fs.find_content(missing)).code == "not_indexed"
    fs.index_all()
    assert error_of(lambda: fs.find_content(missing)).code == "not_found"
    assert error_of(lambda: fs.entry(missing)).code == "not_found"
    assert error_of(lambda: open_fs(base_paths=["a", "b"]).find_content(missing)).code == "not_indexed"


def test_a_content_of_many_files_costs_one_row(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), **{f"s/{n:03}.md": "same" for n in range(200)}})
    time.sleep(0.05)  # younger files are looked at again at each look-up
    fs = open_fs(max_age=3600)
    content = fs.entry("s/000.md").hash
    asked = statements(fs, lambda: fs.entry(content))
    assert len(asked) < 10
    miss = statements(fs, lambda: error_of(lambda: fs.entry("xxh3:" + "0" * 32)))
    assert not any("count(" in sql for sql in miss)


def test_the_bases_of_a_filesystem_are_resolved_once(root: Path, open_fs: Open) -> None:
    write(root, {f"s{n}/SKILL.md": skill_md(f"s{n}") for n in range(200)})
    fs = open_fs(base_paths=[f"s{n}" for n in range(199)], max_age=3600)
    fs.entry("s7")
    assert len(statements(fs, lambda: fs.entry("s7"))) < 10
    assert error_of(lambda: fs.entry("s199")).code == "not_found"
    (root / "s7").rename(root / "s200")  # what is written is noticed, and the bases with it
    assert error_of(lambda: fs.entry("s7")).code == "not_found"
    assert error_of(lambda: fs.entry("s200")).code == "not_found"
    (root / "s199").rename(root / "s7")
    assert fs.entry("s7").path == "s7"


def test_a_root_that_was_replaced_is_noticed_by_every_reading(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    entry = fs.entry("a/refs/x.md")
    for number, ref in enumerate(("a/refs/x.md", entry.uuid, entry.id)):
        store.rename(store.with_name(f"old{number}"))
        write(store, {"a/SKILL.md": skill_md("a"), "a/refs/x.md": f"of another store {number}"})
        assert fs.get_content(ref).text == f"of another store {number}"
        assert fs.entry(ref).size == 18
    store.rename(store.with_name("away"))
    assert error_of(lambda: fs.get_content("a/refs/x.md")).code == "unavailable"
    store.with_name("away").rename(store)
    assert fs.get_content("a/refs/x.md").text == "of another store 2"


def test_a_base_that_becomes_a_link_is_not_widened(store: Path, open_fs: Open) -> None:
    confined, free = open_fs(base_paths=["a"]), open_fs()
    assert confined.exists("a/refs/x.md")
    (store / "a").rename(store / "was-a")
    (store / "a").symlink_to(".")
    for fs in (confined, free):
        fs.sync()
    assert confined.find("") == []
    assert not confined.exists("b/x.md")
    assert not confined.exists("a/b/x.md")
    assert error_of(lambda: free.get_content("b/x.md", base_paths=["a"])).code == "invalid_argument"
    assert error_of(lambda: open_fs(base_paths=["a"])).code == "invalid_argument"


def test_a_link_that_turned_is_noticed_at_once(root: Path, tmp_path: Path, open_fs: Open) -> None:
    write(root, {"s/one.md": skill_md("one"), "s/two.md": skill_md("two")})
    (root / "s/SKILL.md").symlink_to("one.md")
    outside = write(tmp_path / "outside", {"o.md": "first", "other/o.md": "second"})
    (root / "s/x").symlink_to(outside)
    time.sleep(0.05)  # signatures of files younger than that are not trusted anyway
    fs = open_fs(follow=[outside], max_age=3600)
    assert fs.get_content("s/SKILL.md").text == skill_md("one")
    assert fs.cat_file("s/x/o.md") == b"first"
    (root / "s/x").unlink()
    (root / "s/x").symlink_to(outside / "other")
    assert fs.cat_file("s/x/o.md") == b"second"
    (root / "s/x").unlink()
    assert error_of(lambda: fs.cat_file("s/x/o.md")).code == "not_found"
    (root / "s/SKILL.md").unlink()
    (root / "s/SKILL.md").symlink_to("two.md")
    assert fs.get_content("s/SKILL.md").text == skill_md("two")
    (root / "s/SKILL.md").unlink()
    assert error_of(lambda: fs.get_content("s/SKILL.md")).code == "not_found"


def test_an_id_that_names_nothing_is_echoed(store: Path, open_fs: Open) -> None:
    with pytest.raises(FileNotFoundError, match=r"answers to 4711;"):
        open_fs().entry(4711)
    with pytest.raises(FileNotFoundError, match=r"answers to an int;"):
        open_fs().entry(10**5000)


def test_who_reads_a_skill_is_told_its_file(root: Path, open_fs: Open) -> None:
    write(root, {"8/SKILL.md": skill_md("pdf"), "8/in/SKILL.md": skill_md("in"), "8/docs/a.md": "a"})
    fs = open_fs()

    def message(ref: str, **options: object) -> str:
        return error_of(lambda: fs.get_content(ref, **options)).message

    assert message("name:pdf") == '"name:pdf" names a folder; read "8/SKILL.md", or list its tree'
    assert message("8/docs") == '"8/docs" names a folder; list its tree, and read a file in it'
    assert message("/8", base_paths=["8/in"]) == '"/8" names a folder; list its tree, and read a file in it'
    several = SkillFileSystem({"m": root}, index=":memory:")
    with pytest.raises(IsADirectoryError, match=r'read "m/8/SKILL\.md", or list its tree'):
        several.get_content("name:pdf")
