"""The command line of the benchmarks; see the package's docstring."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import corpus, harness, peers
from tests.benchmarks.harness import Contender, Limit, Row

_CALLS = 3000


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
        "look-up": lookups,
        "tree": lookups,
    }
    indexes = {
        (str(needed_by[name].store), f"{needed_by[name].state}/index.sqlite")
        for name in names & set(needed_by)
    }
    if names & {"read-huge", "read-small"}:
        indexes.add((str(made.reading), f"{state}/reading.sqlite"))
    for root, index in sorted(indexes):
        arguments = {"store": root, "index": index}
        try:
            harness.turn(Contender("skillfs", "skillfs", "rows", "prepare", arguments))
        except RuntimeError as error:
            return str(error)
    return None


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

    if options.list:
        nothing = corpus.Corpus(options.corpus, corpus.Shape(0, 0, 0, False, 0, 0, 0, [], [], 0))
        print("\n".join(f"{row.name:14}  {row.title}" for row in rows(nothing, nothing, None)))
        return
    say(f"corpus of {options.skills:,} skills …")
    made = corpus.ensure(options.corpus.resolve() / f"{options.skills}", options.skills)
    lookups = made
    if options.lookups_skills:
        say(f"corpus of {options.lookups_skills:,} skills of small files …")
        folder = options.corpus.resolve() / f"small-{options.lookups_skills}"
        lookups = corpus.ensure(folder, options.lookups_skills, small_files=True, reading=False)
    if options.peers:
        peers.install(options.peers)
    every = rows(made, lookups, options.peers and options.peers.resolve())
    unknown = set(options.only or ()) - {row.name for row in every}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; --list names them")
    wanted = [row for row in every if not options.only or row.name in options.only]

    say("warming up, and making indexes …")
    obstacle = prepare(made, lookups, wanted)
    results = [harness.compete(row, options.rounds, say) for row in wanted]

    shape = made.shape
    counts = f"{shape.skills:,} skills, {shape.files:,} files, {shape.folders:,} folders"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{counts}, {shape.size / 1e9:.2f} GB; {machine}; median of {options.rounds} turns\n")
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
