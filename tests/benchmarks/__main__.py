"""The command line of the benchmarks; see the package's docstring."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import corpus, harness, history, mcp_calls, mounting, peers, watching
from tests.benchmarks.bucket import LIBRARY, Bucket
from tests.benchmarks.harness import Contender, Limit, Row

_CALLS = 3000
_REMOTE_CALLS = 200
_REMOTE_SKILLS = 1000
_FILES = 10
_CHANGES = 40


def rows(made: corpus.Corpus, lookups: corpus.Corpus, environments: Path | None) -> list[Row]:
    """Every row, with contenders for these corpora."""
    store, state = str(made.store), str(made.state)
    index, git_dir = f"{state}/index.sqlite", f"{state}/git"
    libraries, dozens = made.shape.libraries, lookups.shape.dozens
    reading, huge = str(made.reading), str(made.reading / "texts" / "huge.txt")
    reading_index = f"{state}/reading.sqlite"
    pages = [f"texts/page-{number:03d}.md" for number in range(corpus.PAGES)]
    samples = harness.REPOSITORY / "sample_skills"
    one_sample = [str(path.parent) for path in sorted(samples.glob("*/SKILL.md"))[:1]]
    lookup = {"store": str(lookups.store), "index": f"{lookups.state}/index.sqlite"}
    table = f"{lookups.state}/floor.sqlite"

    def floor(label: str, function: str, **arguments: object) -> Contender:
        return Contender(label, "floor", "floors", function, arguments)

    def ours(function: str, **arguments: object) -> Contender:
        return Contender("skillfs", "skillfs", "rows", function, arguments)

    def program(name: str, label: str, function: str, once: bool = False, **arguments: object) -> Contender:
        python = sys.executable if peers.installed(name) else None
        return Contender(label, "peer", "peers", function, arguments, python, once)

    def package(name: str, label: str, function: str, once: bool = False, **arguments: object) -> Contender:
        return Contender(
            label, "peer", "peers", function, arguments, peers.python_of(environments, name), once
        )

    return [
        Row(
            "first-opening",
            "open a store the first time",
            "s",
            (
                floor("read + xxh3", "read_and_xxh3", store=store),
                program("rclone", "rclone md5sum", "rclone_md5", store=store),
                package("fastmcp", "fastmcp", "fastmcp", once=True, store=store),
                program("git", "git add", "git_add", once=True, store=store, git_dir=git_dir),
                ours("first_opening", store=store, state=state),
            ),
            (
                Limit(3.5, "read + xxh3"),
                Limit(0.4, "rclone md5sum"),
                Limit(120, figure="peak"),
            ),
        ),
        Row(
            "full-hashes",
            "the same with MD5 and SHA-256",
            "s",
            (
                floor("md5sum", "md5sum", store=store),
                program("rclone", "rclone md5sum", "rclone_md5", store=store),
                ours("full_hashes", store=store, state=state),
            ),
            (Limit(2.5, "md5sum"),),
        ),
        Row(
            "re-opening",
            "open again, nothing changed",
            "s",
            (
                floor("stat of all known", "stat_known", store=store),
                program("git", "git status", "git_status", store=store, git_dir=git_dir),
                ours("reopening", store=store, index=index),
            ),
            (Limit(1.3, "git status"),),
        ),
        Row(
            "check-again",
            "sync() when nothing changed",
            "s",
            (
                floor("stat of all known", "stat_known", store=store),
                program("git", "git status", "git_status", store=store, git_dir=git_dir),
                ours("check_again", store=store, index=index),
            ),
        ),
        Row(
            "discovery",
            "names and descriptions",
            "s",
            (
                floor("walk + heads", "walk_and_heads", store=store),
                # It reads no descriptions, so it is no peer here.
                replace(program("fdfind", "fd, paths alone", "fd", store=store), role="floor"),
                package("deepagents", "deepagents", "deepagents", store=store, libraries=libraries),
                package(
                    "pydantic-ai-skills",
                    "pydantic-ai-skills",
                    "pydantic_ai_skills",
                    store=store,
                    libraries=libraries,
                ),
                package("skills-ref", "skills-ref", "skills_ref", once=True, store=store),
                ours("discovery", store=store, index=index, state=state),
            ),
            (Limit(2.5),),
            ("open", "re-opened", "first"),
        ),
        Row(
            "read-huge",
            "1,000 characters in 200 MB",
            "µs",
            (
                floor(
                    "open, pread, decode",
                    "pread_huge",
                    path=huge,
                    characters=made.shape.huge_characters,
                    calls=_CALLS,
                ),
                Contender(
                    "decoding the file",
                    "peer",
                    "peers",
                    "decode_all",
                    {"path": huge, "characters": made.shape.huge_characters, "calls": 3},
                    once=True,
                ),
                ours("read_huge", store=reading, index=reading_index, calls=_CALLS),
            ),
            (Limit(60),),
            ("start", "middle", "end"),
        ),
        Row(
            "read-small",
            "a file of 4 KB",
            "µs",
            (
                floor(
                    "open, read, decode",
                    "read_pages",
                    paths=[f"{reading}/{page}" for page in pages],
                    calls=_CALLS,
                ),
                package(
                    "deepagents", "deepagents", "deepagents_read", store=reading, paths=pages, calls=_CALLS
                ),
                ours("read_pages", store=reading, index=reading_index, paths=pages, calls=_CALLS),
            ),
            (Limit(45),),
        ),
        Row(
            "look-up",
            f"look-up among {lookups.shape.files:,} files",
            "µs",
            (
                floor("one SQLite row", "look_up_rows", database=table, calls=_CALLS),
                ours("look_up", **lookup, calls=_CALLS),
            ),
            (Limit(30),),
            ("id", "uuid", "path", "hash"),
        ),
        Row(
            "tree",
            "tree of a skill of 12 files",
            "µs",
            (
                floor("its SQLite rows", "tree_rows", database=table, skills=dozens, calls=1000),
                ours("tree", **lookup, skills=dozens, calls=1000),
            ),
            (Limit(250),),
            ("listed", "drawn"),
        ),
        *_search_rows(store, index, state),
        *_history_rows(store, index, state),
        *mounting.rows(store, state, reading, environments),
        Row(
            "cli-start",
            "skillfs -s sample_skills tree",
            "s",
            (
                floor("python -c pass", "bare_interpreter"),
                package("skills-ref", "skills-ref, one skill", "skills_ref_prompt", skills=one_sample),
                ours("command_line", samples=str(samples), state=state),
            ),
        ),
    ]


def _search_rows(store: str, index: str, state: str) -> list[Row]:
    def floor(function: str, **arguments: object) -> Contender:
        where = {"store": store, "state": state, **arguments}
        return Contender("bare FTS5, all detail", "floor", "searching", function, where)

    def ours(function: str, **arguments: object) -> Contender:
        where = {"store": store, "index": index, **arguments}
        return Contender("skillfs", "skillfs", "searching", function, where)

    kinds = ("all", "one base")
    return [
        Row("search-build", "the first search", "s", (floor("build_fts"), ours("build"))),
        Row(
            "search-rare",
            "search for a word of few texts",
            "µs",
            (floor("rare_fts", calls=100), ours("rare", calls=100)),
            figures=kinds,
        ),
        Row(
            "search-common",
            "search for words of most texts",
            "µs",
            (floor("common_fts", calls=30), ours("common", calls=30)),
            figures=kinds,
        ),
    ]


def _history_rows(store: str, index: str, state: str) -> list[Row]:
    copy = f"{state}/copy"

    def one(label: str, role: harness.Role, function: str, **arguments: object) -> Contender:
        python = None if label.startswith("git") and not peers.installed("git") else sys.executable
        return Contender(label, role, "history", function, arguments, python)

    return [
        Row(
            "snapshot-first",
            "the first snapshot",
            "s",
            (
                one("read + SHA-256 + write", "floor", "read_hash_write", store=store, state=state),
                one("git add, git commit", "peer", "git_first", store=store, state=state),
                one("skillfs", "skillfs", "first_snapshot", store=store, index=index, state=state),
            ),
            (Limit(1, "git add, git commit"),),
            ("open", "from nothing"),
        ),
        Row(
            "snapshot-second",
            f"a snapshot after {history.CHANGED} changes",
            "s",
            (
                Contender("stat of all known", "floor", "floors", "stat_known", {"store": store}),
                one("git add, git commit", "peer", "git_second", copy=copy),
                one("skillfs", "skillfs", "second_snapshot", copy=copy),
            ),
        ),
        Row(
            "diff",
            f"what differs, {history.CHANGED} files",
            "s",
            (
                one("git diff --stat", "peer", "git_diff", copy=copy),
                one("skillfs", "skillfs", "difference", copy=copy),
            ),
        ),
        Row(
            "verify",
            "all files against a lock",
            "s",
            (
                one("sha256sum -c", "peer", "sha256sum", store=store, state=state),
                one("skillfs", "skillfs", "verify", store=store, state=state),
            ),
            figures=("from nothing", "again", "every file read"),
        ),
        Row(
            "versions",
            "versions of skills",
            "s",
            (
                one("read, cut into words", "floor", "read_and_split", store=store),
                one("skillfs", "skillfs", "versions", store=store, index=index),
            ),
            (Limit(300, figure="peak"),),
            ("all", "one"),
        ),
    ]


def remote_rows(endpoint: str, state: str) -> list[Row]:
    """The rows on a store on S3: 10,000 keys, and a skill with a text of 20 MB."""
    keys = _REMOTE_SKILLS * _FILES
    pages = Limit(keys / 1000, figure="LIST")
    calls = _REMOTE_CALLS
    skill = f"{LIBRARY}/owner-00000/repo-00000/skills/skill-00000/SKILL.md"

    def floor(label: str, function: str, **arguments: object) -> Contender:
        return Contender(label, "floor", "remote", function, {"endpoint": endpoint, **arguments})

    def peer(label: str, function: str, once: bool = False, **arguments: object) -> Contender:
        program = label.split()[0]
        python = sys.executable if program == "s3fs" or peers.installed(program) else None
        where = {"endpoint": endpoint, **arguments}
        return Contender(label, "peer", "remote", function, where, python, once)

    def ours(function: str, **arguments: object) -> Contender:
        where = {"endpoint": endpoint, "state": state, **arguments}
        return Contender("skillfs", "skillfs", "remote", function, where)

    def requests(get: float) -> tuple[Limit, ...]:
        return (pages, Limit(get, figure="GET"), Limit(0, figure="HEAD"))

    one = (Limit(1, figure="GET"), Limit(0, figure="LIST"), Limit(0, figure="HEAD"))
    none = (Limit(0, figure="GET"), Limit(0, figure="LIST"), Limit(0, figure="HEAD"))
    return [
        Row(
            "s3-opening",
            f"S3, {keys:,} keys, opened the first time",
            "s",
            (
                floor("LIST, GET of all heads", "list_and_heads"),
                peer("rclone lsjson", "rclone", once=True, arguments=["lsjson", "-R", "--fast-list"]),
                peer("s3fs find + cat", "s3fs_find_and_cat"),
                ours("first_opening"),
            ),
            requests(_REMOTE_SKILLS),
            ("", "15 ms away"),
        ),
        Row(
            "s3-re-opening",
            f"S3, {keys:,} keys, opened again",
            "s",
            (
                floor("LIST", "list_pages"),
                peer("rclone md5sum", "rclone", once=True, arguments=["md5sum", "--fast-list"]),
                peer("s3fs find", "s3fs_find"),
                ours("opening_again"),
            ),
            requests(0),
        ),
        Row(
            "s3-skill-changed",
            "S3, one SKILL.md changed",
            "s",
            (floor("LIST, one GET", "list_and_get", key=skill), ours("changed", skill=True)),
            requests(1),
        ),
        Row(
            "s3-file-changed",
            "S3, one other key changed",
            "s",
            (
                floor("LIST", "list_pages"),
                ours("changed", skill=False),
            ),
            requests(0),
        ),
        Row(
            "s3-read-large",
            "S3, 1,000 characters in 20 MB",
            "µs",
            (
                floor("GET of 4 KB", "get_part", calls=calls),
                peer("s3fs cat_file", "s3fs_read_large", calls=10),
                ours("read_large", calls=calls),
            ),
            (*one, Limit(20_000, figure="sent")),
        ),
        Row(
            "s3-read-small",
            "S3, a file of 4 KB",
            "µs",
            (
                floor("GET", "get_pages", calls=calls),
                peer("s3fs read_text", "s3fs_read_pages", calls=calls),
                ours("read_pages", calls=calls),
            ),
            one,
        ),
        Row(
            "s3-looking",
            "S3, what the index answers",
            "µs",
            (
                floor("SQLite rows", "known_rows", calls=_REMOTE_SKILLS),
                ours("looking", calls=_REMOTE_SKILLS),
            ),
            none,
            ("by UUID", "tree of a skill", "missing path"),
        ),
        Row(
            "s3-ranges",
            "S3, 150 ranges by cat_ranges",
            "s",
            (
                floor("GET, 32 threads", "get_ranges", ranges=150),
                peer("s3fs cat_ranges", "s3fs_ranges", ranges=150),
                ours("ranges", ranges=150),
            ),
            (Limit(150, figure="GET"), Limit(0, figure="LIST"), Limit(0, figure="HEAD")),
            ("", "15 ms away"),
        ),
    ]


def watching_rows(store: str, state: str) -> list[Row]:
    """The rows on watching a store of small files."""
    index = f"{state}/index.sqlite"

    def contenders(function: str, **arguments: object) -> tuple[Contender, ...]:
        def one(label: str, role: harness.Role, name: str, python: str | None, **more: object) -> Contender:
            return Contender(label, role, "watching", name, {"store": store, **arguments, **more}, python)

        watchman = sys.executable if peers.installed("watchman") else None
        return (
            one("inotify", "floor", f"{function}_inotify", sys.executable),
            one("watchdog", "floor", f"{function}_watchdog", sys.executable),
            one("watchman", "peer", f"{function}_watchman", watchman, state=state),
        )

    def ours(function: str, **arguments: object) -> Contender:
        where = {"store": store, "index": index, **arguments}
        return Contender("skillfs", "skillfs", "watching", function, where)

    soon = (Limit(250_000, figure="p99"), Limit(0, figure="missed"))
    return [
        Row(
            "watch-told",
            "a change told to who watches",
            "µs",
            (*contenders("told", calls=_CHANGES), ours("told", calls=_CHANGES)),
            soon,
            watching.KINDS,
        ),
        Row(
            "watch-told-elsewhere",
            "a change seen by another process",
            "µs",
            (ours("told_elsewhere", calls=_CHANGES),),
            soon,
            watching.KINDS,
        ),
        Row(
            "watch-idle",
            f"{watching.IDLE_SECONDS:.0f} s without a change",
            "s",
            (*contenders("idle"), ours("idle")),
            (Limit(0.1), Limit(5 * watching.IDLE_SECONDS, figure="wake-ups")),
        ),
        Row("watch-start", "begin to watch", "s", (*contenders("start"), ours("start"))),
    ]


def prepare(made: corpus.Corpus, lookups: corpus.Corpus, wanted: list[Row]) -> str | None:
    """What the rows need before the clock starts; returns why skillfs cannot run, if it cannot."""
    names = {row.name for row in wanted}
    store, state = str(made.store), str(made.state)
    for left in made.state.glob("fresh-*"):  # by a turn that failed
        shutil.rmtree(left)
    arguments: harness.Arguments = {"store": store}
    harness.turn(Contender("warm up", "floor", "floors", "read_and_xxh3", arguments))
    if names & {"look-up", "tree"} and not (lookups.state / "floor.sqlite").exists():
        arguments = {"store": str(lookups.store), "database": f"{lookups.state}/floor.sqlite"}
        harness.turn(Contender("rows", "floor", "floors", "prepare_rows", arguments))
    # The row of first openings makes the repository anew, before these come to their turn.
    needs_git = (
        names & {"re-opening", "check-again"} and "first-opening" not in names and peers.installed("git")
    )
    if needs_git and not (made.state / "git" / "index").exists():
        arguments = {"store": store, "git_dir": f"{state}/git"}
        harness.turn(Contender("git", "peer", "peers", "git_add", arguments))
    needed_by = {
        "re-opening": made,
        "check-again": made,
        "discovery": made,
        "search-build": made,
        "search-rare": made,
        "search-common": made,
        "snapshot-first": made,
        "verify": made,
        "versions": made,
        "mount-walk": made,
        "look-up": lookups,
        "tree": lookups,
    }
    indexes = {
        (str(needed_by[name].store), f"{needed_by[name].state}/index.sqlite")
        for name in names & set(needed_by)
    }
    if names & {"read-huge", "read-small", "mount-read"}:
        indexes.add((str(made.reading), f"{state}/reading.sqlite"))
    for root, index in sorted(indexes):
        arguments = {"store": root, "index": index}
        try:
            harness.turn(Contender("skillfs", "skillfs", "rows", "prepare", arguments))
        except RuntimeError as error:
            return str(error)
    before = []
    if names & {"snapshot-second", "diff"}:
        before.append(("prepare_copy", {"store": store, "copy": f"{state}/copy"}))
    if "verify" in names:
        before.append(("prepare_lock", {"store": store, "index": f"{state}/index.sqlite", "state": state}))
    for function, arguments in before:
        try:
            harness.turn(Contender("skillfs", "skillfs", "history", function, arguments))
        except RuntimeError as error:
            return str(error)
    return None


def _bucket(stack: contextlib.ExitStack, folder: Path) -> tuple[str, str]:
    """A server until the stack unwinds, and a folder with indexes of what it holds."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob("fresh-*"):  # by a turn that failed
        shutil.rmtree(left)
    bucket = stack.enter_context(Bucket("library", skills=_REMOTE_SKILLS, files=_FILES, small_files=False))
    where: harness.Arguments = {"endpoint": bucket.endpoint, "state": str(folder)}
    harness.turn(Contender("skillfs", "skillfs", "remote", "prepare", where))
    return bucket.endpoint, str(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="skillfs beside floors and peers"
    )
    default = Path(tempfile.gettempdir()) / "skillfs-benchmarks"
    parser.add_argument("--skills", type=int, default=10_000, help="skills in the corpus (10000)")
    parser.add_argument(
        "--corpus", type=Path, default=default, help="folder for the corpus, kept between runs"
    )
    parser.add_argument(
        "--lookups-skills", type=int, help="a second corpus of small files for look-up and tree"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to run")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender (3)")
    parser.add_argument(
        "--peers", type=Path, help="folder with the environments of Python peers, made where missing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to a file, too")
    options = parser.parse_args()

    nothing = corpus.Corpus(options.corpus, corpus.Shape(0, 0, 0, False, 0, 0, 0, [], [], 0))
    remote = [row.name for row in remote_rows("", "")]
    watched = [row.name for row in watching_rows("", "")]
    calls = [row.name for row in mcp_calls.rows()]
    mounted = [row.name for row in mounting.remote_rows("", "", None)]
    every = rows(nothing, nothing, None) + remote_rows("", "") + watching_rows("", "") + mcp_calls.rows()
    every += mounting.remote_rows("", "", None)
    if options.list:
        print("\n".join(f"{row.name:16}  {row.title}" for row in every))
        return
    unknown = set(options.only or ()) - {row.name for row in every}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list names them")
    asked = set(options.only or (row.name for row in every))
    made = lookups = nothing
    if asked - set(remote) - set(watched) - set(calls) - set(mounted):
        say(f"corpus of {options.skills:,} skills …")
        made = lookups = corpus.ensure(options.corpus.resolve() / f"{options.skills}", options.skills)
    if options.lookups_skills:
        say(f"corpus of {options.lookups_skills:,} skills of small files …")
        folder = options.corpus.resolve() / f"small-{options.lookups_skills}"
        lookups = corpus.ensure(folder, options.lookups_skills, small_files=True, reading=False)
    if options.peers:
        peers.install(options.peers)

    environments = options.peers and options.peers.resolve()
    wanted = [row for row in rows(made, lookups, environments) if row.name in asked]
    obstacle = None
    if wanted:
        say("warming up, and making indexes …")
        obstacle = prepare(made, lookups, wanted)
    with contextlib.ExitStack() as stack:
        if asked & set(remote):
            say("a bucket, and indexes of it …")
            endpoint, state = _bucket(stack, options.corpus.resolve() / "remote")
            wanted += [row for row in remote_rows(endpoint, state) if row.name in asked]
        if asked & set(watched):
            say(f"a store of {options.skills:,} skills of small files to watch …")
            folder = options.corpus.resolve() / f"watching-{options.skills}"
            small = corpus.ensure(folder, options.skills, small_files=True, reading=False)
            store, state = str(small.store), str(small.state)
            arguments: harness.Arguments = {"store": store, "index": f"{state}/index.sqlite"}
            harness.turn(Contender("skillfs", "skillfs", "rows", "prepare", arguments))
            every = watching_rows(store, state)
            wanted += [row for row in every if row.name in asked]
        wanted += [row for row in mcp_calls.rows() if row.name in asked]
        if asked & set(mounted):
            say("buckets to mount …")
            contents = {"skills": _REMOTE_SKILLS, "files": _FILES, "small_files": False}
            library = stack.enter_context(Bucket("library", **contents)).endpoint
            endless = stack.enter_context(Bucket("endless", blocks=mounting.BLOCKS)).endpoint
            every = mounting.remote_rows(library, endless, environments)
            wanted += [row for row in every if row.name in asked]
        results = [harness.compete(row, options.rounds, say) for row in wanted]

    shape = made.shape
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    if shape.skills:
        counts = f"{shape.skills:,} skills, {shape.files:,} files, {shape.folders:,} folders"
        machine = f"{counts}, {shape.size / 1e9:.2f} GB; {machine}"
    print(f"{machine}; median of {options.rounds} turns\n")
    print(harness.render(results))
    if lookups is made and {row.name for row in wanted} & {"look-up", "tree"}:
        print(
            "\nlook-up and tree: on this corpus; --lookups-skills 86000 makes one of a million files for them"
        )
    if obstacle:
        print(f"\nskillfs could not be prepared: {obstacle}")
    if options.json:
        report = {
            "corpus": {key: getattr(shape, key) for key in ("skills", "files", "folders", "size", "seed")},
            "lookups_files": lookups.shape.files,
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "system": platform.release(),
            },
            "rows": {
                r.row.name: {"unit": r.row.unit, "turns": r.turns, "failures": r.failures} for r in results
            },
        }
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
