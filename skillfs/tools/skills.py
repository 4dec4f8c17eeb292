"""Tools that find and read skills: what they hold, where, and what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from skillfs.core.globs import compile_globs
from skillfs.core.refs import printable_path
from skillfs.core.wire import Content
from skillfs.tools.globs import split_globs
from skillfs.tools.parameters import Parameter
from skillfs.tools.registry import Answer, Tool

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["BASE_PATHS", "MOST_CHARACTERS", "SKILL_TOOLS"]

MOST_CHARACTERS = 50_000
"""Characters of content in one answer, whatever was asked for: what a model can take in one piece."""

MOST_RESULTS = 5_000
MOST_CHANGES = 2_000
MOST_SECTIONS = 1_000
MOST_HITS = 100

SEARCH_SECONDS = 20.0
"""How long a search catches up with the store before it answers from what it has: clients give up at 60 s."""

BASE_PATHS = Parameter(
    "basePathIds",
    "references",
    "Folders (path, uuid or id) to stay within: only skills at or below one of them are seen. "
    "Left out: no restriction. An empty list: nothing is seen.",
)

# `asdict` would copy each value, which takes a sixth of a call.
_OF_CONTENT = tuple(field.name for field in fields(Content))

_PATHS = ("path", "old_path", "skill_path")
_PATH_LISTS = ("copies",)

_ID = Parameter(
    "id",
    "reference",
    "The file: its uuid, integer id, or path from the store root such as "
    '"pdf/references/forms.md"; also "sha256:…" (a content hash). A skill itself is its "pdf/SKILL.md".',
    required=True,
)


def skill_get_content(
    fs: SkillFileSystem,
    *,
    id: str | int,
    start: int,
    length: int | None,
    expectHash: str | None,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """A stretch of a file in the raw format, of at most `MOST_CHARACTERS` characters."""
    most = MOST_CHARACTERS if length is None else min(length, MOST_CHARACTERS)
    content = fs.get_content(id, start, most, expect_hash=expectHash, base_paths=basePathIds)
    values: dict[str, Any] = {name: getattr(content, name) for name in _OF_CONTENT}
    values |= {"complete": content.complete, "next_start": content.next_start}
    return Answer(str(content), _plain(values, fs.roots))


def skill_tree(
    fs: SkillFileSystem,
    *,
    id: str | int | None,
    depth: int | None,
    withFiles: bool,
    includeHidden: bool,
    includeGlob: str,
    excludeGlob: str,
    showDetails: bool,
    maxResults: int,
    cursor: str | None,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """A folder or skill as a tree, or an overview of all skills: a drawing and nested data."""
    included, excluded = split_globs(includeGlob) or None, split_globs(excludeGlob) or None
    # What is wrong with them is to be told by the names that the caller knows.
    compile_globs(included, argument="includeGlob")
    compile_globs(excluded, argument="excludeGlob")
    tree = fs.skill_tree(
        id,
        depth=depth,
        files=withFiles,
        hidden=includeHidden,
        include=included,
        exclude=excluded,
        details=showDetails,
        limit=maxResults,
        cursor=cursor,
        base_paths=basePathIds,
    )
    return Answer(str(tree), tree.to_dict())


def skill_search(
    fs: SkillFileSystem,
    *,
    query: str,
    maxResults: int,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """The files that answer best to some words, with the passages that do."""
    found = fs.search(query, limit=maxResults, seconds=SEARCH_SECONDS, base_paths=basePathIds)
    return Answer(None, {**_plain(asdict(found), fs.roots), "complete": found.complete})


def skill_outline(
    fs: SkillFileSystem,
    *,
    id: str | int,
    start: int,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """The headings of a Markdown file with the stretch of text that each stands over."""
    outline = fs.outline(id, base_paths=basePathIds)
    sections = [section for section in outline.sections if section.start >= start]
    following = sections[MOST_SECTIONS].start if len(sections) > MOST_SECTIONS else None
    page = replace(outline, sections=tuple(sections[:MOST_SECTIONS]))
    values = _plain(asdict(page), fs.roots)
    return Answer(None, {**values, "total": len(outline.sections), "next_start": following})


def skill_changes(
    fs: SkillFileSystem,
    *,
    since: int,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """What changed since a revision; where that is not known, or too much, that all is to be read anew."""
    found = fs.changes(since, base_paths=basePathIds)
    total = len(found.items)
    reset = found.reset or total > MOST_CHANGES
    items = [] if reset else [_plain(asdict(item), fs.roots) for item in found.items]
    values: dict[str, Any] = {"revision": found.revision, "reset": reset, "total": total, "items": items}
    return Answer(None, values)


def _plain(values: dict[str, Any], roots: Sequence[str]) -> dict[str, Any]:
    """Values as JSON has them: lists for tuples, and paths in the form that can be passed back."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if name in _PATH_LISTS:
            plain[name] = [printable_path(path, roots) for path in value]
        elif isinstance(value, tuple | list):
            plain[name] = [_plain(v, roots) if isinstance(v, dict) else v for v in value]
        elif name in _PATHS and value is not None:
            plain[name] = printable_path(value, roots)
        else:
            plain[name] = value
    return plain


SKILL_TOOLS = (
    Tool(
        "skill_tree",
        "List skills and their files",
        "Lists skills and files as a tree, with uuids and one-line descriptions. Without id: all skills. "
        'With the id of a skill or folder: what it holds; id "/" lists all files of all skills. '
        "A tree that is cut tells how to go on: call again with its cursor. Read files by skill_get_content.",
        (
            Parameter(
                "id", "reference", "A skill or folder: uuid, integer id, path, or name:SKILL. Left out: all."
            ),
            Parameter("depth", "integer", "Levels to show. Left out: all.", least=1),
            Parameter("withFiles", "boolean", "Whether files are shown.", default=True),
            Parameter(
                "includeHidden", "boolean", "Whether names that start with a dot are shown.", default=False
            ),
            Parameter(
                "includeGlob",
                "string",
                'Show only what matches, such as "*.md,scripts/**"; several are separated by commas. One '
                "with a / counts from the folder that is shown.",
                default="",
            ),
            Parameter("excludeGlob", "string", "Leave out what matches, likewise.", default=""),
            Parameter(
                "showDetails",
                "boolean",
                "Whether sizes, characters and times are told, and MD5 hashes in the structured result; that "
                "reads the files.",
                default=False,
            ),
            Parameter(
                "maxResults",
                "integer",
                "Entries to show at once.",
                default=500,
                least=1,
                most=MOST_RESULTS,
            ),
            Parameter("cursor", "string", "The cursor of an earlier, cut tree, to go on after it."),
            BASE_PATHS,
        ),
        skill_tree,
    ),
    Tool(
        "skill_get_content",
        "Read a file of a skill",
        "Reads a stretch of a text file, counted in characters, with a header: uuid, name, hash (MD5), "
        f"size (characters of the whole file), start, length. An answer holds at most {MOST_CHARACTERS:,} "
        "characters: when start + length is less than size, call again with start = start + length and with "
        "expectHash = hash, so that the pages belong to one version. skill_outline tells the sections of a "
        "long file.",
        (
            _ID,
            Parameter("start", "integer", "First character, counted from 0.", default=0, least=0),
            Parameter(
                "length",
                "integer",
                f"Characters to read; at most {MOST_CHARACTERS:,} are answered. Left out: as many as that.",
                least=0,
            ),
            Parameter(
                "expectHash",
                "string",
                "The hash of an earlier page; another version of the file is refused.",
            ),
            BASE_PATHS,
        ),
        skill_get_content,
    ),
    Tool(
        "skill_search",
        "Search skills",
        "Finds skills and files by words in their names, descriptions and texts, best first. Each hit tells "
        "path, uuid, hash, the best passages with start and length, and the paths of copies with the same "
        'text: read on around a passage with skill_get_content. "Words in quotes" must occur as such. When '
        "complete is false, not all texts are searched yet: ask again, or, where words are quoted, with more "
        "words.",
        (
            Parameter(
                "query",
                "string",
                "The words to look for: two to five that tell most are best. Where nothing is found, try "
                "other forms of them.",
                required=True,
            ),
            Parameter("maxResults", "integer", "Files to tell of.", default=10, least=1, most=MOST_HITS),
            BASE_PATHS,
        ),
        skill_search,
    ),
    Tool(
        "skill_outline",
        "Outline a Markdown file",
        "Lists the headings of a Markdown file in order, each with start and length of its section in "
        "characters, to be read with skill_get_content: with expectHash = hash, so that they fit. Sections "
        "follow on each other without a gap; whole_length is with all subsections. What stands before the "
        "first heading is a section of level 0. When next_start is not null, call again with start = "
        "next_start.",
        (
            _ID,
            Parameter(
                "start", "integer", "Leave out sections that begin before this character.", default=0, least=0
            ),
            BASE_PATHS,
        ),
        skill_outline,
    ),
    Tool(
        "skill_changes",
        "See what changed",
        "Tells what was added, modified, moved and removed since a revision, and the revision of now for the "
        "next call. When reset is true, what changed is not known: list and read anew.",
        (
            Parameter(
                "since",
                "integer",
                "The revision of an earlier answer. Left out: only the revision of now is of use.",
                default=0,
                least=0,
            ),
            BASE_PATHS,
        ),
        skill_changes,
    ),
)
