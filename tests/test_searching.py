"""Search over stores: what is found, what is not, and what comes first."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from skillfs import SearchHit, SearchResults, SkillFileSystem
from skillfs.core.matching import Fields, Finder, match_of, telling, weight_of
from skillfs.core.model import Kind
from skillfs.core.search import parse_query
from skillfs.core.words import terms_of
from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotTextError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.index.search import SearchIndex
from skillfs.index.words import SearchFile
from skillfs.listing import in_order
from skillfs.searching import FEW
from skillfs.sync.engine import Engine
from skillfs.wordindex import MOST_BYTES, read_missing, take_changes
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions
from tests.servers.faults import ACCESS_DENIED, FaultyS3
from tests.servers.s3 import Bucket
from tests.test_real_skills import real  # noqa: F401  # a fixture
from tests.test_tree import nodes
from tests.test_unknown_sizes import Unmeasured

Open = Callable[..., SkillFileSystem]
SAMPLES = Path(__file__).parent.parent / "sample_skills"


def paths(found: SearchResults) -> list[str]:
    return [hit.path for hit in found.hits]


def files(found: SearchResults) -> list[str]:
    """Paths of the hits and of their copies."""
    return [path for hit in found.hits for path in (hit.path, *hit.copies)]


def check(fs: SkillFileSystem, found: SearchResults) -> SearchResults:
    """See to it that every hit is what it says, and its passages are what is there."""
    assert [hit.score for hit in found.hits] == sorted((hit.score for hit in found.hits), reverse=True)
    for hit in found.hits:
        entry = fs.entry(hit.uuid)
        assert (entry.id, entry.path, entry.name) == (hit.id, hit.path, hit.name)
        assert (entry.skill_folder_uuid, entry.skill_path) == (hit.skill_folder_uuid, hit.skill_path)
        skill = fs.skill(hit.skill_folder_uuid)
        assert skill.name == hit.skill_name
        assert (hit.kind == Kind.SKILL) == (hit.path == skill.location)
        assert hit.description == (skill.description if hit.kind == Kind.SKILL else "")
        for passage in hit.passages:
            page = fs.get_content(hit.uuid, passage.start, passage.length, expect_hash=hit.hash)
            assert page.text == passage.text
            assert page.length == passage.length
        assert list(hit.copies) == sorted(hit.copies, key=in_order)
        for path in hit.copies:
            assert md5(fs.cat_file(path)).hexdigest() == hit.hash
    assert len(set(files(found))) == len(files(found)) <= found.total
    return found


# -- what a person would expect ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples() -> SkillFileSystem:
    return SkillFileSystem(SAMPLES, index=":memory:", skip_instance_cache=True, max_age=3600)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("write a commit message", "commit-messages/SKILL.md"),
        ("how do I write a good commit message for my team", "commit-messages/SKILL.md"),
        ("changelog", "commit-messages/SKILL.md"),
        ("postmortem", "incident-response/postmortem/SKILL.md"),
        ("postmortem template", "incident-response/postmortem/references/template.md"),
        ("production is down", "incident-response/SKILL.md"),
        ("what do I do when production is down", "incident-response/SKILL.md"),
        ("how can I find out what is in a csv file", "csv-profiling/scripts/csv_input.py"),
        ("severity levels", "incident-response/references/severity-levels.md"),
        ("数据", "ui-string-review/references/中文界面风格.md"),
        ("标点", "ui-string-review/references/中文界面风格.md"),
        ("中文界面", "ui-string-review/references/中文界面风格.md"),
        ("字", "ui-string-review/references/中文界面风格.md"),
        ("Anführungszeichen", "ui-string-review/references/deutsch.md"),
        ("anfuhrungszeichen", "ui-string-review/references/deutsch.md"),
        ("translate ui strings to german", "ui-string-review/SKILL.md"),
        ("emoji", "ui-string-review/references/emoji.md"),
        ("unicode table", "unicode-lookup/references/unicode-table.md"),
        ("look up a unicode character", "unicode-lookup/SKILL.md"),
        ("SNOWMAN", "unicode-lookup/references/unicode-table.md"),
        ("lock timeout postgres", "sql-migration-review/references/postgresql-locks.md"),
        ("alter table safe", "sql-migration-review/SKILL.md"),
        ("clean a csv file", "csv-profiling/SKILL.md"),
        ("profile_csv.py", "csv-profiling/scripts/profile_csv.py"),
        ("weekly status report word document", "status-report/SKILL.md"),
        ("banner.png", "status-report/assets/banner.png"),
        ('"traffic-light badge"', "status-report/SKILL.md"),
    ],
)
def test_what_is_expected_comes_first(samples: SkillFileSystem, query: str, expected: str) -> None:
    found = check(samples, samples.search(query))
    assert expected in paths(found)[:2]
    assert found.complete


@pytest.fixture(scope="module")
def published(real: Path) -> SkillFileSystem:  # noqa: F811
    return SkillFileSystem(real, index=":memory:", skip_instance_cache=True, max_age=3600)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("postgres query optimization", "postgres-patterns"),
        ("docker compose best practices", "docker-patterns"),
        ("database schema migrations without downtime", "database-migrations"),
        ("review code for security vulnerabilities", "security-review"),
        ("spring boot security", "springboot-security"),
        ("pytest fixtures", "python-testing"),
        ("goroutine leak", "golang-patterns"),
        ("wcag accessibility", "accessibility"),
        ("redis cache", "redis-patterns"),
        ("git branching strategy", "git-workflow"),
        ("write an article", "article-writing"),
        ("seo", "seo"),
        ("jira ticket", "jira-integration"),
        ("pitch deck for investors", "investor-materials"),
        ("HIPAA", "hipaa-compliance"),
        ("BGP neighbor down", "network-bgp-diagnostics"),
        ("react performance re-renders", "react-performance"),
        ("kotlin coroutines flow", "kotlin-coroutines-flows"),
        ("django celery task retry", "django-celery"),
        ("rest api pagination", "api-design"),
        ("pubmed literature search", "pubmed-database"),
        ("wireguard vpn at home", "homelab-wireguard-vpn"),
        ("rust ownership borrow", "rust-patterns"),
        ("prisma n+1", "prisma-patterns"),
        ("cost tracking of llm calls", "cost-tracking"),
        ("architecture decision record", "architecture-decision-records"),
        ("slides in html", "frontend-slides"),
        ("mcp server", "mcp-server-patterns"),
        ("end to end tests with playwright", "e2e-testing"),
        ("how do you run the e2e tests", "e2e-testing"),
        ("can you find the skill about docker", "docker-patterns"),
        ("run a security scan of the code", "security-scan"),
        ("how to do a code review for security", "security-review"),
        ("how do I deploy with docker", "docker-patterns"),
        ("help me to write an architecture decision record", "architecture-decision-records"),
        ('"test-driven development"', "tdd-workflow"),
    ],
)
def test_what_is_expected_comes_first_among_real_skills(
    published: SkillFileSystem, query: str, expected: str
) -> None:
    found = check(published, published.search(query))
    names = list(dict.fromkeys(hit.skill_name for hit in found.hits))
    assert expected in names[:3]
    assert found.complete


# -- by hand -----------------------------------------------------------------------------------------------


def test_a_skill_is_found_by_name_description_and_text(root: Path, open_fs: Open) -> None:
    write(
        root,
        {
            "a/SKILL.md": skill_md("alpha", "Find the needle."),
            "b/SKILL.md": "# No front matter here\n\nOnly thimbles.\n",
            "b/notes/yarn_and-wool.bin": b"\0\1\2",
        },
    )
    fs = open_fs()
    for query, path in [
        ("alpha", "a/SKILL.md"),
        ("needles", "a/SKILL.md"),
        ("THIMBLE", "b/SKILL.md"),
        ("wool", "b/notes/yarn_and-wool.bin"),
        ("b", "b/SKILL.md"),
    ]:
        assert paths(check(fs, fs.search(query))) == [path]
    (hit,) = fs.search("yarn").hits
    assert not hit.passages
    assert hit.hash == md5(b"\0\1\2").hexdigest()
    (hit,) = fs.search("alpha").hits
    assert (hit.kind, hit.description) == (Kind.SKILL, "Find the needle.")


@pytest.mark.parametrize(
    "data",
    [
        b"one\r\ntwo needle\r\n" * 400,
        "数据库中的 needle 在这里。".encode() * 200,
        ("😀" * 700 + "needle" + "👩‍👩‍👧‍👦" * 100).encode(),
        "über needle ünd 😀".encode("utf-16"),
        b"\xef\xbb\xbfneedle first",
        "x needle".encode("utf-32"),
        b"needle" + b"x" * 5_000,
        b"NEEDLES",
    ],
    ids=["crlf", "cjk", "emoji", "utf-16", "bom", "utf-32", "long word", "other form"],
)
def test_passages_are_what_get_content_gives(root: Path, open_fs: Open, data: bytes) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/t.txt": data})
    fs = open_fs()
    (hit,) = check(fs, fs.search("needle")).hits
    assert "needle" in hit.passages[0].text.lower()


def test_nothing_is_found_of_what_is_not_visible(root: Path, open_fs: Open) -> None:
    write(
        root,
        {
            "needle.md": "needle",
            "needle/needle.md": "needle",
            "a/SKILL.md": skill_md(),
            "a/.env": "needle",
            "a/.git/needle": "needle",
            "a/node_modules/needle.js": "needle",
        },
    )
    os.symlink(root / "needle.md", root / "a" / "needle")
    fs = open_fs()
    found = fs.search("needle")
    assert (found.hits, found.total) == ((), 0)
    assert found.texts == found.searched == 1


def test_a_link_leads_to_one_hit(root: Path, open_fs: Open, tmp_path: Path) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/one.md": "needle"})
    write(tmp_path / "other", {"far/SKILL.md": skill_md("far"), "far/two.md": "needle"})
    os.symlink("one.md", root / "a" / "link.md")
    os.symlink(tmp_path / "other" / "far", root / "far")
    assert paths(open_fs().search("needle")) == ["a/one.md"]
    followed = open_fs(follow=[tmp_path / "other"])
    assert files(check(followed, followed.search("needle"))) == ["a/one.md", "far/two.md"]


def test_the_first_bytes_of_a_huge_text_are_searched(root: Path, open_fs: Open) -> None:
    text = "needle\n" + "é " * (MOST_BYTES // 3) + "thimble"
    write(root, {"a/SKILL.md": skill_md(), "a/huge.txt": text, "a/cut.txt": "é" * (MOST_BYTES // 2 + 9)})
    fs = open_fs()
    assert paths(check(fs, fs.search("needle"))) == ["a/huge.txt"]
    assert not fs.search("thimble").hits
    assert fs.search("needle").complete


def test_what_cannot_be_read_is_left_out(root: Path, open_fs: Open, tmp_path: Path) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/one.md": "needle", "a/two.md": "needle"})
    (root / "a/two.md").chmod(0)
    with bound_by_permissions():
        fs = open_fs(index=tmp_path / "index.sqlite")
        found = fs.search("needle")
        assert paths(found) == ["a/one.md"]
        assert (found.texts, found.searched) == (2, 2)
        with pytest.raises(UnreadableError):
            fs.get_content("a/two.md")
        (root / "a/two.md").chmod(0o600)
        fs.sync()
        assert files(fs.search("needle")) == ["a/one.md", "a/two.md"]


@pytest.mark.parametrize("limit", [0, -1, 101, True, 1.0, "5", None])
def test_a_limit_is_a_number_of_hits(samples: SkillFileSystem, limit: int) -> None:
    with pytest.raises(InvalidArgumentError, match="limit"):
        samples.search("emoji", limit=limit)


@pytest.mark.parametrize("seconds", [0, -0.0, 1e308, 10**400, float("inf")])
def test_seconds_may_be_as_many_as_there_are(samples: SkillFileSystem, seconds: float) -> None:
    assert samples.search("emoji", seconds=seconds).texts


@pytest.mark.parametrize("seconds", [-1, -(10**400), True, "5", float("nan")])
def test_seconds_are_a_number(samples: SkillFileSystem, seconds: float) -> None:
    with pytest.raises(InvalidArgumentError, match="seconds"):
        samples.search("emoji", seconds=seconds)


def test_hits_are_cut_and_the_rest_is_counted(samples: SkillFileSystem) -> None:
    whole = samples.search("the", limit=100)
    assert whole.total == len(whole.hits) > 10
    for limit in (1, 3, 10):
        cut = samples.search("the", limit=limit)
        assert cut.hits == whole.hits[:limit]
        assert cut.total == whole.total


def test_equal_hits_come_by_path(root: Path, open_fs: Open) -> None:
    names = ["b", "a b", "a", "a-b", "ab", "a/n"]
    write(root, {f"{name}/SKILL.md": skill_md("x", "Needle.", f"Number {n}") for n, name in enumerate(names)})
    fs = open_fs()
    found = check(fs, fs.search("needle"))
    assert paths(found) == [skill.location for skill in fs.skills()]


def test_of_copies_the_first_is_the_hit(root: Path, open_fs: Open) -> None:
    copies = {f"{name}/needle.md": "needle" for name in ("b", "a b", "c/d", "c")}
    write(root, {f"{name}/SKILL.md": skill_md("x", "Some skill.") for name in ("b", "a b", "c/d", "c", "e")})
    write(root, {**copies, "e/other.md": "needle", "e/needle-too.md": "needles"})
    fs = open_fs()
    found = check(fs, fs.search("needle"))
    assert [(hit.path, hit.copies) for hit in found.hits] == [
        ("a b/needle.md", ("b/needle.md", "c/d/needle.md", "c/needle.md", "e/other.md")),
        ("e/needle-too.md", ()),
    ]
    assert found.total == 6
    confined = check(fs, fs.search("needle", base_paths=["c", "e"]))
    assert [(hit.path, hit.copies) for hit in confined.hits] == [
        ("c/d/needle.md", ("c/needle.md", "e/other.md")),
        ("e/needle-too.md", ()),
    ]
    assert (confined.total, fs.search("needle", limit=1).total) == (4, 6)
    write(root, {f"e/{n}/needle.md": "needle" for n in range(40)})
    fs.sync()
    many = check(fs, fs.search("needle"))
    assert (len(many.hits[0].copies), many.total) == (20, 46)


def test_where_few_files_have_all_words_others_follow(root: Path, open_fs: Open) -> None:
    write(
        root,
        {"a/SKILL.md": skill_md(), **{f"a/{n}.md": "needle" for n in range(5)}, "a/both.md": "needle yarn"},
    )
    fs = open_fs()
    found = fs.search("needle yarn")
    assert paths(found)[0] == "a/both.md"
    assert found.total == 6
    write(root, {f"a/both-{n}.md": f"needle yarn {n}" for n in range(FEW)})
    fs.sync()
    found = fs.search("yarn needle", limit=100)
    assert found.total == len(found.hits) == FEW + 1
    assert all("both" in path for path in paths(found))


# -- base paths --------------------------------------------------------------------------------------------


def shown(hit: SearchHit) -> tuple[object, ...]:
    return hit.path, hit.name, hit.score, hit.passages, hit.hash, hit.skill_name


def test_what_lies_outside_bears_on_nothing(root: Path, open_fs: Open, tmp_path: Path) -> None:
    inside = {
        "in/a/SKILL.md": skill_md("a", "Locks and keys."),
        "in/a/x.md": "lock " * 9 + "timeout",
        "in/a/y.md": "timeout " * 9 + "lock",
        "in/b/SKILL.md": skill_md("b", "Of timeouts."),
        "in/b/same.md": "a lock, and its timeout",
    }
    write(root, inside)
    for n in range(30):
        write(
            root, {f"out/{n}/SKILL.md": skill_md(f"s{n}", "A lock."), f"out/{n}/z.md": f"lock lock {n} rare"}
        )
    write(root, {"out/1/same.md": inside["in/b/same.md"]})
    alone = tmp_path / "alone"
    write(alone, inside)
    fs, only = open_fs(), SkillFileSystem(alone, index=":memory:", skip_instance_cache=True)
    for query in (
        "lock",
        "timeout",
        "lock timeout",
        "rare",
        "lock rare",
        '"a lock"',
        "loc",
        "x y",
        "lock x zz",
    ):
        expected = only.search(query)
        for found in (fs.search(query, base_paths=["in"]), open_fs(base_paths=["in"]).search(query)):
            assert [shown(hit) for hit in found.hits] == [shown(hit) for hit in expected.hits], query
            assert replace(found, hits=()) == replace(expected, hits=())
    assert fs.search("lock", base_paths=["in/b"]).texts == 2
    assert fs.search("rare", base_paths=[]).texts == 0
    assert fs.search("rare", base_paths=["/"]).total == fs.search("rare").total == 30
    with pytest.raises(NotFoundError):
        fs.search("rare", base_paths=["nowhere"])


def test_only_what_may_be_seen_is_read(root: Path, open_fs: Open) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(n, f"Needle {n}.") for n in "abc"})
    fs = open_fs()
    assert fs.search("needle", base_paths=["a"]).complete
    found = fs.search("needle", seconds=0)
    assert (found.texts, found.searched, paths(found)) == (3, 1, ["a/SKILL.md"])


# -- in step -----------------------------------------------------------------------------------------------


def test_changes_are_found_after_a_sync(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("alpha"), "a/x.md": "needle"})
    fs = open_fs()
    assert paths(fs.search("needle")) == ["a/x.md"]
    write(root, {"a/x.md": "thimble", "b/SKILL.md": skill_md("beta", "A needle.")})
    fs.sync()
    assert paths(fs.search("needle")) == ["b/SKILL.md"]
    assert paths(fs.search("thimble")) == ["a/x.md"]
    os.rename(root / "b", root / "c")
    fs.sync()
    assert paths(check(fs, fs.search("needle"))) == ["c/SKILL.md"]
    write(root, {"c/SKILL.md": skill_md("gamma", "A needle.")})
    fs.sync()
    assert [hit.skill_name for hit in check(fs, fs.search("gamma")).hits] == ["gamma"]
    assert not fs.search("beta").hits
    (root / "a" / "SKILL.md").unlink()
    fs.sync()
    assert not fs.search("thimble").hits
    assert fs.search("needle").texts == 1
    shutil.rmtree(root / "c")
    fs.sync()
    assert fs.search("needle").texts == 0


def test_what_changed_since_the_last_check_is_not_shown_as_it_was(root: Path, open_fs: Open) -> None:
    write(
        root,
        {"a/SKILL.md": skill_md(), "a/x.md": "needle one", "a/y.md": "needle two", "a/z.md": "needle three"},
    )
    fs = open_fs(max_age=3600)
    assert fs.search("needle").total == 3
    write(root, {"a/x.md": "gone", "a/y.md": "now two needles"})
    (root / "a/z.md").unlink()
    found = check(fs, fs.search("needle"))
    assert (paths(found), found.total) == (["a/y.md"], 1)
    assert found.hits[0].passages[0].text == "now two needles"


def test_a_file_that_lost_a_word_is_no_hit_where_enough_have_every_word(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md(), **{f"a/{n}.md": f"needle yarn {n}" for n in range(FEW + 2)}})
    fs = open_fs(max_age=3600)
    assert fs.search("needle yarn").total == FEW + 2
    write(root, {"a/0.md": "needle"})
    found = check(fs, fs.search("needle yarn", limit=100))
    assert len(found.hits) == found.total == FEW + 1
    assert "a/0.md" not in paths(found)


def test_not_all_is_read_where_that_is_much(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"a/SKILL.md": skill_md(), **{f"a/{n}.md": f"a needle yak {n}" for n in range(20)}})
    fs = open_fs(max_age=3600)
    fs.search("needle")
    read: list[str] = []
    find = Finder.find
    monkeypatch.setattr(Finder, "find", lambda self, text: (read.append(text), find(self, text))[1])
    monkeypatch.setattr("skillfs.searching.MOST_CHARACTERS", 10)
    monkeypatch.setattr("skillfs.searching.MOST_COUNTED", 5)  # the word is common, then
    found = check(fs, fs.search("needle", limit=3))
    assert (len(found.hits), found.total, found.searched) == (3, 20, 21)
    assert len(read) == 3
    assert len(check(fs, fs.search("yak", limit=100)).hits) == 20
    monkeypatch.setattr("skillfs.searching.MOST_VERIFIED", 5)
    found = check(fs, fs.search('"a needle"', limit=3))
    assert (len(found.hits), found.total, found.searched, found.texts) == (3, 5, 6, 21)


def test_what_changed_since_the_last_check_is_read_as_it_is(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/x.md": "needle", "a/y.md": "needle", "a/z.md": "yarn"})
    fs = open_fs(max_age=3600)
    write(root, {"a/x.md": "a thimble"})
    (root / "a/y.md").unlink()
    assert paths(check(fs, fs.search("thimble"))) == ["a/x.md"]
    found = fs.search("needle")
    assert (found.total, found.texts, found.searched) == (0, 3, 3)


def test_a_copy_that_changed_since_is_shown_as_it_is(root: Path, open_fs: Open) -> None:
    for name in "abc":
        write(root, {f"{name}/SKILL.md": skill_md("x"), f"{name}/y.md": "a needle, as ever"})
    fs = open_fs(max_age=3600)
    assert files(fs.search("needle")) == ["a/y.md", "b/y.md", "c/y.md"]
    write(root, {"a/y.md": "another needle"})
    found = check(fs, fs.search("needle"))
    assert {hit.passages[0].text: (hit.path, *hit.copies) for hit in found.hits} == {
        "another needle": ("a/y.md",),
        "a needle, as ever": ("b/y.md", "c/y.md"),
    }
    assert found.total == 3
    write(root, {"a/y.md": "gone"})
    (root / "b/y.md").unlink()
    found = check(fs, fs.search("needle"))
    assert (files(found), found.total) == (["c/y.md"], 1)


def test_what_is_known_is_not_read_again(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md(), "a/x.md": "one", "a/y.md": "two", "b/SKILL.md": "# None\n"})
    fs = open_fs()
    assert fs.search("one").complete
    write(root, {"a/x.md": "changed"})
    fs.sync()
    assert fs.search("two", seconds=0).searched == 3
    assert fs.search("two").complete
    os.rename(root / "a", root / "c")
    write(root, {"d/SKILL.md": skill_md(), "d/y.md": "two"})
    fs.sync()
    found = fs.search("two", seconds=0)
    assert files(found) == ["c/y.md", "d/y.md"]
    assert found.complete
    os.rename(root / "b", root / "named")
    fs.sync()
    assert not fs.search("two", seconds=0).complete
    assert [hit.skill_name for hit in fs.search("named").hits] == ["named"]


class Model:
    """Which files a query matches, by looking at each of them."""

    def __init__(self, fs: SkillFileSystem) -> None:
        self.fs = fs
        self.files: dict[str, tuple[Fields, str]] = {}
        skills = {skill.path: skill for skill in fs.skills()}
        for node in nodes(fs.skill_tree("/", hidden=True, limit=None)):
            if node.kind != Kind.FILE or node.link is not None:
                continue
            skill = skills[fs.entry(f"/{node.path}").skill_path or ""]
            is_main = node.path == skill.location
            fields = Fields(is_main, "" if is_main else node.name, skill.name, skill.description * is_main)
            try:
                text = fs.get_content(f"/{node.path}").text
            except NotTextError:
                text = ""
            self.files[node.path] = (fields, text)

    def matches(self, query: str) -> set[str]:
        parsed = parse_query(query)
        own = {
            path: {
                *terms_of(text),
                *terms_of(f"{fields.skill} {fields.about}" if fields.is_main else fields.name),
            }
            for path, (fields, text) in self.files.items()
        }
        parsed = parsed.widened({word for word in parsed.words if not any(map(word.is_in, own.values()))})
        weights = {
            word: weight_of(word, len(own), sum(map(word.is_in, own.values()))) for word in parsed.words
        }
        some, whole = set(), set()
        for path, (fields, text) in self.files.items():
            match = match_of(parsed, weights, fields, Finder(parsed).find(text))
            has = [word for word in parsed.words if word.is_in(own[path])]
            if match is not None:
                some.add(path)
                assert match.is_whole == set(telling(weights)).issubset(has)
                whole |= {path} if match.is_whole else set()
            else:
                assert parsed.phrases or not has
        return whole if len(whole) >= FEW else some


QUERIES = [
    "red",
    "red blue",
    "blue green 数据",
    "库",
    '"red blue"',
    "skill green",
    "md",
    "gree",
    "s1 red",
    "字",
]


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_a_look_at_each_file_finds(root: Path, open_fs: Open, seed: int) -> None:
    dice = random.Random(seed)
    words = ["red", "blue", "green", "数据库", "字", "\n", "Reds", "—", "_"]

    def text() -> str | bytes:
        chosen = " ".join(dice.choices(words, k=dice.randrange(6)))
        return (
            chosen.encode("utf-16") if dice.random() < 0.1 else b"\0red" if dice.random() < 0.05 else chosen
        )

    def path() -> Path:
        folder = dice.choice(["s1", "s2", "s1/deep", "s3/n", "top/s4", "none"])
        return root / folder / dice.choice(["a.md", "b red.txt", "sub/c.md", "数据.md", *["SKILL.md"] * 2])

    def change() -> None:
        target, kind = path(), dice.random()
        if kind < 0.55:
            content = text()
            if target.name == "SKILL.md" and isinstance(content, str):
                content = skill_md(dice.choice(["s1", "green-skill", "n"]), dice.choice(words[:5]), content)
            write(root, {str(target.relative_to(root)): content})
        elif kind < 0.75 and target.is_file():
            target.unlink()
        elif kind < 0.9 and target.is_file():
            goal = path()
            goal.parent.mkdir(parents=True, exist_ok=True)
            if not goal.is_dir():
                os.replace(target, goal)
        elif target.parent.is_dir() and target.parent.parent == root:
            goal = root / dice.choice(["s1", "s2", "moved"])
            if not goal.exists():
                os.rename(target.parent, goal)

    fs = open_fs(index=":memory:" if seed % 2 else root.parent / "index.sqlite")
    for turn in range(25):
        for _ in range(dice.randrange(1, 6)):
            change()
        fs.sync()
        model = Model(fs)
        for query in dice.sample(QUERIES, 4):
            found = check(fs, fs.search(query, limit=100))
            assert set(files(found)) == model.matches(query), (turn, query)
            assert found.total == len(files(found))
            assert found.texts == found.searched == len(model.files)


# -- the file, other processes, time -----------------------------------------------------------------------


def test_the_file_of_words_comes_with_the_first_search(root: Path, open_fs: Open, tmp_path: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a", "A needle.")})
    index = tmp_path / "index" / "index.sqlite"
    fs = open_fs(index=index)
    words = index.with_name("index.sqlite.search")
    assert not words.exists()
    assert fs.search("needle").total == 1
    assert stat.S_IMODE(words.stat().st_mode) == 0o600
    words.write_bytes(b"damaged " * 1_000)
    assert fs.search("needle").total == 1
    words.unlink()
    assert fs.search("needle").total == 1
    again = open_fs(index=index)
    assert again.search("needle", seconds=0).total == 1
    index.unlink()
    index.with_name("index.sqlite-wal").unlink(missing_ok=True)
    write(root, {"a/SKILL.md": skill_md("a", "A thimble.")})
    fs.sync()
    assert (fs.search("needle").total, fs.search("thimble").total) == (0, 1)


def test_a_search_that_runs_out_of_time_says_so_and_goes_on_later(
    root: Path, open_fs: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.") for n in range(40)})
    write(root, {f"{n}/x.md": f"needle {n}" for n in range(40)})
    fs = open_fs(index=tmp_path / "index.sqlite")
    found = fs.search("needle", seconds=0)
    assert (found.total, found.searched, found.texts, found.complete) == (0, 0, 80, False)
    seen = 0
    ticks = iter(range(10**9))
    monkeypatch.setattr("skillfs.wordindex.time.monotonic", lambda: time.time() + next(ticks) / 10)
    while not found.complete:
        found = fs.search("needle", seconds=1, limit=100)
        assert found.searched > seen
        seen = found.searched
        assert found.total == found.searched
        # The skills come first.
        assert seen > 40 or all(hit.kind == Kind.SKILL for hit in found.hits)
    assert seen == 80


def test_threads_and_a_child_search_at_the_same_time(root: Path, open_fs: Open, tmp_path: Path) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.") for n in range(60)})
    fs = open_fs(index=tmp_path / "index.sqlite")
    totals: list[object] = []

    def look() -> None:
        try:
            totals.append(fs.search("needle").total)
        except BaseException as error:
            totals.append(error)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert totals == [60] * 6


def test_an_answer_is_of_one_moment(
    root: Path, open_fs: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.") for n in range(12)})
    fs = open_fs(index=tmp_path / "index.sqlite")
    before = fs.search("needle")
    other = SearchIndex(tmp_path / "index.sqlite.search")
    count = SearchFile.count

    def meddled(self: SearchFile, expression: str, most: int = -1) -> int:
        found = count(self, expression, most)
        thread = threading.Thread(target=other.run, args=(SearchFile.forget_files,))
        thread.start()
        thread.join(30)
        return found

    monkeypatch.setattr(SearchFile, "count", meddled)
    assert fs.search("needle") == before
    assert other.run(SearchFile.counts) == (0, 0)


def test_what_comes_while_it_is_searched_is_read(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"a/SKILL.md": skill_md("a", "A needle.")})
    fs = open_fs(max_age=3600)
    done = []

    def read(engine: Engine, index: SearchIndex, *arguments: Any) -> None:
        read_missing(engine, index, *arguments)
        if not done:
            write(root, {"a/x.md": "another needle"})
            fs.sync()
            done.append(take_changes(engine, index))

    monkeypatch.setattr("skillfs.searching.read_missing", read)
    found = check(fs, fs.search("needle"))
    assert done
    assert (found.total, found.searched, found.texts) == (2, 2, 2)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("index", [":memory:", "file"])
def test_a_forked_child_searches(root: Path, open_fs: Open, tmp_path: Path, index: str) -> None:
    write(root, {"a/SKILL.md": skill_md("a", "A needle.")})
    fs = open_fs(index=index if index == ":memory:" else tmp_path / "index.sqlite")
    assert fs.search("needle").total == 1
    pid = os.fork()
    if not pid:
        code = 1
        try:
            write(root, {"b/SKILL.md": skill_md("b", "A needle.")})
            fs.sync()
            code = 0 if fs.search("needle").total == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    fs.sync()
    assert fs.search("needle").total == 2


# -- mounts and remote stores ------------------------------------------------------------------------------


def test_mounts_are_searched_together(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a/SKILL.md": skill_md("a", "A needle."), "a/x.md": "lock"})
    two = write(tmp_path / "two", {"SKILL.md": skill_md("two", "No needle."), "needle.md": "needle timeout"})
    fs = SkillFileSystem({"first": one, "second": two}, index=":memory:", skip_instance_cache=True)
    found = check(fs, fs.search("needle"))
    assert set(paths(found)) == {"first/a/SKILL.md", "second/SKILL.md", "second/needle.md"}
    assert paths(found)[0] == "second/needle.md"
    assert {hit.skill_path for hit in found.hits} == {"first/a", "second"}
    assert (found.total, found.texts, found.searched) == (3, 4, 4)
    assert paths(fs.search("needle", base_paths=["first"])) == ["first/a/SKILL.md"]
    assert fs.search("timeout", base_paths=["first"]).hits == ()
    assert paths(fs.search('"needle timeout"')) == ["second/needle.md"]
    write(one, {"a/copy.md": "needle timeout"})
    fs.sync()
    (hit,) = check(fs, fs.search("needle timeout", limit=1)).hits
    assert (hit.path, hit.copies) == ("second/needle.md", ("first/a/copy.md",))
    # A word that stands in one of them stands for no longer one in the other.
    assert paths(fs.search("lock")) == ["first/a/x.md"]


def test_a_bucket_is_searched_with_one_request_for_each_text(bucket: Bucket, tmp_path: Path) -> None:
    for n in range(20):
        bucket.put(f"lib/s{n}/SKILL.md", skill_md(f"s{n}", f"Needle {n}.").encode())
        bucket.put(f"lib/s{n}/x.md", f"lock {n}".encode())
    options = bucket.server.target_options
    fs = SkillFileSystem(f"{bucket.url}/lib", target_options=options, index=":memory:")
    with bucket.server.recorded() as requests:
        assert fs.search("nothing").complete
    assert requests.counts == {"GetObject": 40}
    with bucket.server.recorded() as requests:
        assert fs.search("nothing").complete
    assert requests.counts == {}
    found = check(fs, fs.search("needle", limit=20))
    assert (found.total, found.searched) == (20, 40)
    index = tmp_path / "index.sqlite"
    other = SkillFileSystem(f"{bucket.url}/lib", target_options=options, index=index, max_age=3600)
    bucket.put("lib/s3/x.md", b"now a needle, too")
    bucket.delete("lib/s4/x.md")
    now = other.search("needle", limit=30)
    assert (now.total, now.texts, now.searched) == (21, 39, 39)
    fs.sync()
    assert "s3/x.md" in paths(fs.search("needle", limit=30))
    assert fs.search("lock", base_paths=["s3"]).hits == ()


def test_what_may_not_be_read_is_tried_again_after_a_while(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("lib/a/SKILL.md", skill_md("a").encode())
    bucket.put("lib/a/x.md", b"a needle")
    bucket.put("lib/a/y.md", b"no thimble")
    faulty.add(ACCESS_DENIED, "GetObject", key="*/x.md", times=1)
    fs = SkillFileSystem(f"{bucket.url}/lib", target_options=faulty.target_options, index=":memory:")
    for _ in range(2):
        found = fs.search("needle")
        assert (found.total, found.texts, found.searched) == (0, 2, 2)
    monkeypatch.setattr("skillfs.wordindex.RETRY_SECONDS", 0.0)
    assert paths(check(fs, fs.search("needle"))) == ["a/x.md"]


def test_a_store_that_is_gone_is_told(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md()})
    fs = open_fs(max_age=0)
    shutil.rmtree(root)
    with pytest.raises(StoreUnavailableError):
        fs.search("needle")


@pytest.mark.parametrize("tells", [{}, {"ETag": '"one"'}], ids=["nothing", "version"])
def test_a_store_that_does_not_tell_sizes_is_searched(
    tells: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unmeasured, "store", {})
    monkeypatch.setattr(Unmeasured, "pseudo_dirs", [""])
    monkeypatch.setattr(Unmeasured, "tells", tells)
    backing = Unmeasured()
    backing.pipe_file("/k/a/SKILL.md", skill_md("a").encode())
    backing.pipe_file("/k/a/x.md", b"a needle")
    fs = SkillFileSystem("/k", fs=backing, index=":memory:", skip_instance_cache=True)
    for _ in range(2):
        assert paths(check(fs, fs.search("needle"))) == ["a/x.md"]
        fs.sync()
    monkeypatch.setattr(Unmeasured, "tells", {"ETag": '"two"'} if tells else {})
    backing.pipe_file("/k/a/x.md", b"a thimble")
    fs.sync()
    found = check(fs, fs.search("thimble"))
    assert paths(found) == ["a/x.md"]
    assert found.complete
    assert fs.search("needle").total == 0


PROCESS = """
import sys
from skillfs import SkillFileSystem
found = SkillFileSystem(sys.argv[1], index=sys.argv[2]).search("needle", limit=100)
print(found.total, found.searched, len(found.hits))
"""


def test_two_processes_search_for_the_first_time(root: Path, tmp_path: Path) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.", f"{n} text " * 2_000) for n in range(60)})
    command = [sys.executable, "-c", PROCESS, str(root), str(tmp_path / "index.sqlite")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == ["60 60 60\n"] * 2


def test_a_process_that_was_killed_leaves_what_it_had_read(root: Path, open_fs: Open, tmp_path: Path) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.", f"{n} text " * 20_000) for n in range(60)})
    index = tmp_path / "index.sqlite"
    open_fs(index=index)
    code = PROCESS.replace("from skillfs", "import skillfs.wordindex as w; w.BATCH_BYTES = 1\nfrom skillfs")
    process = subprocess.Popen([sys.executable, "-c", code, str(root), str(index)], stdout=subprocess.DEVNULL)
    fs = open_fs(index=index, max_age=3600)
    seen = 0
    while not seen and process.poll() is None:
        seen = fs.search("needle", seconds=0).searched
    process.kill()
    process.wait()
    assert fs.search("needle", seconds=0).searched >= seen > 0
    assert fs.search("needle").total == 60


@pytest.mark.parametrize("where", ["best", "count", "keep", "put_skill"])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL], ids=["damaged", "full"])
def test_what_goes_wrong_in_the_middle_is_done_again(
    root: Path, open_fs: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    write(root, {f"{n}/SKILL.md": skill_md(f"s{n}", "A needle.") for n in range(12)})
    fs = open_fs(index=tmp_path / "index.sqlite")
    work = getattr(SearchFile, where)
    failures = []

    def fail(self: SearchFile, *arguments: object) -> object:
        if not failures:
            failures.append(sqlite3.OperationalError("as if"))
            failures[0].sqlite_errorcode = code
            raise failures[0]
        return work(self, *arguments)

    monkeypatch.setattr(SearchFile, where, fail)
    found = check(fs, fs.search("needle"))
    assert failures
    assert (found.total, found.searched, found.texts, len(found.hits)) == (12, 12, 12, 10)
    assert fs.search("needle") == found
