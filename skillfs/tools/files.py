"""Tools in the shape that file tools of agents have: `read_file` and `list_files`.

Both answer with one JSON object: `success`, `output`, `exitCode`, `metadata`, and on a failure `error`. What
the filesystem refuses is such a failure, not an exception; malformed arguments are refused before that, as
those of every tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skillfs.core.refs import below_mount, printable_path, root_above
from skillfs.core.text import normal_encoding
from skillfs.errors import SkillFSError, quoted
from skillfs.reading import MOST_START
from skillfs.tools.globs import split_globs
from skillfs.tools.listing import listing
from skillfs.tools.parameters import Parameter
from skillfs.tools.registry import Answer, Tool
from skillfs.tools.skills import BASE_PATHS, MOST_RESULTS

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["AS_IT_IS", "FILE_TOOLS", "MOST_OUTPUT"]

MOST_OUTPUT = 1_000_000
"""Characters of file content in one answer, whatever number of lines was asked for."""

AS_IT_IS = "utf-8"
"""The default of `encoding`: a file is read as what it shows itself to be, UTF-16 with its mark included."""


def read_file(
    fs: SkillFileSystem,
    *,
    path: str,
    offset: int,
    limit: int,
    encoding: str,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """Some lines of a text file, as they are stored."""
    try:
        named = normal_encoding(encoding)
        lines = fs.get_lines(
            path,
            offset,
            limit,
            base_paths=basePathIds,
            encoding=None if named == AS_IT_IS else named,
            most_characters=MOST_OUTPUT,
        )
    except SkillFSError as error:
        return _failure(fs, path, error)
    cut = None
    if lines.cut_at is not None:
        cut = {"line": lines.offset, "nextStart": lines.cut_at}
    metadata = {
        "path": printable_path(lines.path or "", fs.roots),
        "uuid": lines.uuid,
        "hash": lines.hash,
        "size": lines.size_bytes,
        "characters": lines.size,
        "lines": lines.lines,
        "offset": lines.offset,
        "limit": min(limit, MOST_START),
        "returned": lines.count,
        "truncated": cut is not None or lines.next_offset is not None,
        "nextOffset": lines.next_offset,
        "cut": cut,
    }
    return _success(lines.text, metadata)


def list_files(
    fs: SkillFileSystem,
    *,
    directoryPath: str,
    recursive: bool,
    includeHidden: bool,
    includeGlob: str,
    excludeGlob: str,
    showDetails: bool,
    maxResults: int,
    description: str,
    sequential: str,
    cursor: str | None,
    basePathIds: Sequence[str | int] | None,
) -> Answer:
    """What a folder holds, or all files below it; `description` and `sequential` change nothing."""
    try:
        found = listing(
            fs,
            directory=directoryPath,
            recursive=recursive,
            hidden=includeHidden,
            include=split_globs(includeGlob),
            exclude=split_globs(excludeGlob),
            details=showDetails,
            limit=maxResults,
            cursor=cursor,
            base_paths=basePathIds,
        )
    except SkillFSError as error:
        return _failure(fs, directoryPath, error)
    return _success(str(found), found.to_dict())


def _success(output: str, metadata: dict[str, Any]) -> Answer:
    return Answer(None, {"success": True, "output": output, "exitCode": 0, "metadata": metadata})


def _failure(fs: SkillFileSystem, path: str, error: SkillFSError) -> Answer:
    asked = path
    if (root := root_above(path, fs.roots)) is not None:
        asked = path[len(root) :].lstrip("/")
        with suppress(SkillFSError):
            asked = below_mount(fs.entry(root).path, asked)  # of several stores, the root of one is a mount
    values = {
        "success": False,
        "output": "",
        "exitCode": 1,
        "error": {"code": error.code, "message": error.message},
        "metadata": {"path": quoted(asked)},
    }
    return Answer(None, values, failed=True)


_HIDDEN_BASE_PATHS = replace(BASE_PATHS, hidden=True)

FILE_TOOLS: tuple[Tool, ...] = (
    Tool(
        "read_file",
        "Read lines of a file",
        "Reads lines of a text file as they are. Answers with success, output (the lines), exitCode and "
        "metadata: path, hash (MD5), size (bytes), lines (of the whole file), returned, truncated, "
        f"nextOffset. An answer holds at most {MOST_OUTPUT:,} characters. When truncated is true, call again "
        "with offset = nextOffset; when cut is not null, the line it names is longer than that: read on with "
        "skill_get_content from start = nextStart.",
        (
            Parameter(
                "path",
                "string",
                'The file: its path from the store root, such as "pdf/references/forms.md", or its uuid.',
                required=True,
            ),
            Parameter("offset", "integer", "First line, counted from 1.", default=1, least=1),
            Parameter("limit", "integer", "Lines to read.", default=2_000, least=1),
            Parameter(
                "encoding",
                "string",
                "Encoding of the file. utf-8: as it shows itself to be, UTF-16 and UTF-32 included by "
                "their byte-order mark. Name another one only if you know it.",
                default=AS_IT_IS,
            ),
            _HIDDEN_BASE_PATHS,
        ),
        read_file,
    ),
    Tool(
        "list_files",
        "List files",
        "Lists a folder, one entry a line: files and folders (with a trailing /), or, when recursive, all "
        "files below it. Paths are from the store root and can be passed to read_file; for one in double "
        "quotes, which is written with escapes, pass its uuid. The last line, in parentheses, tells how many "
        "there are and what is cut; call again with the cursor to go on.",
        (
            Parameter(
                "directoryPath", "string", "The folder, from the store root; ./ is the root.", default="./"
            ),
            Parameter(
                "recursive", "boolean", "Whether files at any depth are listed instead.", default=False
            ),
            Parameter(
                "includeHidden", "boolean", "Whether names that start with a dot are listed.", default=False
            ),
            Parameter(
                "includeGlob",
                "string",
                'Files to list, such as "*.md,scripts/**"; several are separated by commas. One with a / '
                "counts from the folder that is listed. Folders stay.",
                default="*",
            ),
            Parameter("excludeGlob", "string", "Files to leave out, likewise.", default=""),
            Parameter(
                "showDetails",
                "boolean",
                "Whether sizes, characters, times and MD5 hashes are told; that reads the files.",
                default=False,
            ),
            Parameter(
                "maxResults", "integer", "Entries to list at once.", default=500, least=1, most=MOST_RESULTS
            ),
            Parameter("description", "string", "What the call is for; changes nothing.", default=""),
            Parameter("sequential", "string", "What is to be done next; changes nothing.", default=""),
            Parameter("cursor", "string", "The cursor of an earlier, cut listing, to go on after it."),
            _HIDDEN_BASE_PATHS,
        ),
        list_files,
    ),
)
