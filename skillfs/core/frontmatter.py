"""Reading the front matter of a `SKILL.md`: leniently, with every fault as data.

Front matter is what stands between a first line `---` and the next line `---`; a byte-order mark, CRLF and
trailing blanks are tolerated. Its keys are those of the Agent Skills specification. Values are strings, lists
and mappings of strings: `NO`, `1.10`, `null` and dates stay what was written.

What a fault is called and how much it weighs (`check` fails on errors only):

| code | severity | when |
|---|---|---|
| `not-text` | error | the file is not UTF-8, or holds NUL |
| `too-large` | error | no closing fence within 64 KiB and 1,000 lines, or too many or too deep values |
| `frontmatter-missing` | warning | no fence on the first line; still a skill, named after its folder |
| `frontmatter-unclosed` | error | the file ends before a closing fence |
| `frontmatter-yaml` | error | no YAML mapping; or an anchor, alias, tag or merge key, which is left out |
| `frontmatter-yaml` | warning | a value that had to be read as if it were quoted |
| `frontmatter-duplicate-key` | warning | a key stands there again; its first value counts |
| `name-missing` | warning | none, or an empty one |
| `name-invalid` | warning | not 1 to 64 of `a-z`, `0-9` and single inner hyphens |
| `name-differs-from-folder` | warning | compared under NFC |
| `description-missing` | error | none in the front matter; without front matter, none in the text either |
| `description-too-long` | warning | over 1,024 characters; it is kept whole |
| `compatibility-too-long` | warning | over 500 characters; it is kept whole |
| `wrong-type` | error | a `description` that is a list or a mapping |
| `wrong-type` | warning | any other key of the specification with a value of another type than specified |
| `wrong-type` | info | `allowed-tools` with commas, which are read as blanks |
| `invisible-characters` | warning | control, bidirectional, zero-width or tag characters |
| `unknown-key` | info | a key that the specification does not name |

Where reading stopped half-way, the keys before that count, and none is called missing.
"""

from __future__ import annotations

import re
import unicodedata
from codecs import utf_8_decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from skillfs.core.model import Severity
from skillfs.errors import quoted

if TYPE_CHECKING:
    from skillfs.core.plainyaml import Value

__all__ = ["HEAD_LIMIT", "Fault", "FrontMatter", "read_front_matter"]

_BLOCK_LIMIT = 64 * 1024
_LINE_LIMIT = 1_000
_FAULT_LIMIT = 64
_NAME_LIMIT = 64
_USABLE_NAME_LIMIT = 255
_DESCRIPTION_LIMIT = 1_024
_COMPATIBILITY_LIMIT = 500

HEAD_LIMIT: int = _BLOCK_LIMIT + 8 * 1024
"""Bytes at the start of a `SKILL.md` that hold its front matter and first paragraph; the rest is ignored."""

_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
_KEYS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})

_FIRST_FENCE = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*+\r?(?:\n|\Z)")
_NEXT_FENCE = re.compile(rb"\n---[ \t]*+\r?(?:\n|\Z)")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Blanks and commas within parentheses belong to the tool: `Bash(git add:*)`.
_TOOL = re.compile(r"(?:\([^()]*+\)|[^\s,])+")
# Joiners belong to emoji and to several scripts, so they are suspicious only beside ASCII or nothing.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of a `SKILL.md`, without its place in the store.

    Attributes:
        code: Stable name of the fault, such as `frontmatter-missing`.
        severity: `error` for what breaks use, `warning` for what should be mended, `info` for the harmless.
        message: What is wrong and how to mend it; of the file it holds no more than keys and the name.
        line: Line in the file, counted from 1, where that makes sense.
    """

    code: str
    severity: Severity
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a `SKILL.md` says about its skill.

    Attributes:
        name: One line of at most 255 visible characters, which may still be against the specification and is
            no path; None when there is nothing of this kind.
        description: From the front matter, else the first paragraph of the text, cut to 1,024 characters; at
            most 64 KiB, trimmed, empty when there is none. May hold newlines.
        license: As written; None when missing, empty, or no string.
        compatibility: As written; None when missing, empty, or no string.
        metadata: The entries of `metadata` that are strings.
        allowed_tools: `allowed-tools` split at blanks and commas, or the strings of a list.
        values: Every key that was read; each value a string, or a list or mapping of values.
        faults: What is wrong, by line.
        body_line: Line on which the text after the front matter starts, counted from 1.
    """

    name: str | None
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    body_line: int = 1


def read_front_matter(head: bytes, folder_name: str, *, complete: bool = True) -> FrontMatter:
    """Read the start of a `SKILL.md`. Never raises, whatever the bytes.

    Args:
        head: The file's first bytes: `HEAD_LIMIT` of them, or all when the file is shorter.
        folder_name: Name of the skill folder, which the skill should bear; empty when that is a store's root.
        complete: Whether `head` is the whole file.
    """
    if len(head) > HEAD_LIMIT:
        head, complete = head[:HEAD_LIMIT], False
    faults: list[Fault] = []
    is_text = _decoded(head, complete=complete) is not None
    if not is_text:
        message = "SKILL.md is no UTF-8 text, or holds NUL characters; save it as UTF-8"
        faults.append(Fault("not-text", "error", message))
    parts = _split(head, complete)
    if parts.fault and (is_text or parts.fault.code != "frontmatter-missing"):
        faults.append(parts.fault)

    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    # What was not read cannot be called missing.
    whole = False
    if parts.block is not None and (text := _decoded(parts.block)) is not None:
        # Only here: importing PyYAML takes some 10 ms, which a command that reads no skill need not wait for.
        from skillfs.core.plainyaml import load

        loaded = load(text)
        values, whole = loaded.values, not loaded.broken
        lines = {key: row + 2 for key, row in loaded.rows.items()}
        faults += [Fault(n.code, n.severity, n.message, n.row + 2) for n in loaded.notices]

    judge = _Judge(values, lines, whole, faults)
    name = judge.name(folder_name)
    description = judge.description()
    if not description and is_text:
        body = _decoded(head[parts.body :], complete=complete) or ""
        description = _first_paragraph(body, unclosed=parts.unclosed)
        if not description and parts.fault and parts.fault.code == "frontmatter-missing":
            judge.missing_description()
    if description and not description.isprintable() and _INVISIBLE.search(description):
        judge.invisible("description")
    return FrontMatter(
        name=name,
        description=description,
        license=judge.string("license"),
        compatibility=judge.compatibility(),
        metadata=judge.metadata(),
        allowed_tools=judge.allowed_tools(),
        values=values,
        faults=judge.verdict(),
        body_line=parts.body_line,
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The block between the fences, None where it is not to be read, and the place where the text starts."""

    block: bytes | None
    body: int
    body_line: int = 1
    fault: Fault | None = None
    unclosed: bool = False


def _split(head: bytes, complete: bool) -> _Parts:
    first = _FIRST_FENCE.match(head)
    if first is None:
        message = (
            "SKILL.md has no front matter; start it with lines `---`, `name: …`, `description: …`, `---`"
        )
        return _Parts(None, 0, fault=Fault("frontmatter-missing", "warning", message, 1))
    start = first.end()
    # The newline of the first fence may also be the one before the next.
    last = _NEXT_FENCE.search(head, start - 1)
    block = head[start : last.start() + 1 if last else len(head)]
    lines = block.count(b"\n")
    if len(block) > _BLOCK_LIMIT or lines > _LINE_LIMIT or not (last or complete):
        message = "no line `---` closes the front matter within 64 KiB and 1,000 lines; close or shorten it"
        fault = Fault("too-large", "error", message, 1)
    elif last is None:
        message = "no line `---` closes the front matter; add it after the last key"
        fault = Fault("frontmatter-unclosed", "error", message, 1)
    else:
        return _Parts(block, last.end(), lines + 3)
    if last is None:
        return _Parts(None, start, fault=fault, unclosed=True)
    return _Parts(None, last.end(), lines + 3, fault)


def _decoded(data: bytes, *, complete: bool = True) -> str | None:
    """The text, without a character that is cut off at its end; None if it is none."""
    try:
        text = utf_8_decode(data, "strict", complete)[0]
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _first_paragraph(text: str, *, unclosed: bool) -> str:
    """The first lines of prose of a Markdown text, on one line, cut to 1,024 characters.

    Args:
        text: The text.
        unclosed: Whether it starts with front matter that nobody closed: to be left out up to a blank line.
    """
    words: list[str] = []
    until: str | None = None
    for line in text.removeprefix("\ufeff").split("\n"):
        part = line.strip()
        if unclosed:
            unclosed = bool(part) and part[0] != "#"
            if unclosed:
                continue
        if until is not None:
            until = None if until in part else until
        elif not part or part[0] == "#" or part.startswith(("```", "~~~", "<!--")):
            if words:
                break
            if part.startswith(("```", "~~~")):
                until = part[:3]
            elif part.startswith("<!--") and "-->" not in part:
                until = "-->"
        elif not part.strip("-=*_ "):
            # A rule, or the underline that makes a heading of what stands above it.
            words.clear()
        else:
            words.append(part)
    paragraph = " ".join(words)
    cut = paragraph[: _DESCRIPTION_LIMIT - 1].rstrip() + "…"
    return paragraph if len(paragraph) <= _DESCRIPTION_LIMIT else cut


class _Judge:
    """Takes the specified keys from what was read, and says what is wrong with them."""

    __slots__ = ("_faults", "_lines", "_values", "_whole")

    def __init__(
        self, values: Mapping[str, Value], lines: Mapping[str, int], whole: bool, faults: list[Fault]
    ) -> None:
        self._values = values
        self._lines = lines
        self._whole = whole
        self._faults = faults

    def _say(self, code: str, severity: Severity, message: str, key: str = "") -> None:
        self._faults.append(Fault(code, severity, message, self._lines.get(key)))

    def string(self, key: str) -> str | None:
        """The trimmed value, None if it is missing, empty or no string."""
        value = self._values.get(key)
        if isinstance(value, str):
            return value.strip() or None
        if value is not None:
            severity: Severity = "error" if key == "description" else "warning"
            what = "list" if isinstance(value, list) else "mapping"
            self._say("wrong-type", severity, f"{key} is a {what}; write it as one string", key)
        return None

    def name(self, folder_name: str) -> str | None:
        name = self.string("name")
        if name is None:
            if self._whole and isinstance(self._values.get("name", ""), str):
                self._say("name-missing", "warning", "name is missing; write the folder's name", "name")
            return None
        if len(name) > _NAME_LIMIT or not _NAME.fullmatch(name):
            message = "name must be 1 to 64 lower-case letters a-z, digits and single hyphens between them"
            self._say("name-invalid", "warning", message, "name")
        if invisible := not name.isprintable() and _INVISIBLE.search(name) is not None:
            self.invisible("name")
        if invisible or len(name) > _USABLE_NAME_LIMIT or "\n" in name or "\t" in name:
            return None
        if folder_name and name != folder_name:
            normal = unicodedata.normalize
            if normal("NFC", name) != normal("NFC", folder_name):
                message = f"name is {quoted(name)}, the folder's {quoted(folder_name)}; make them equal"
                self._say("name-differs-from-folder", "warning", message, "name")
        return name

    def description(self) -> str:
        description = self.string("description") or ""
        if not description:
            if self._whole and isinstance(self._values.get("description", ""), str):
                self.missing_description()
        elif len(description) > _DESCRIPTION_LIMIT:
            message = f"description has {len(description):,} characters; shorten it to 1,024"
            self._say("description-too-long", "warning", message, "description")
        return description

    def missing_description(self) -> None:
        message = "description is missing; write what the skill does and when to use it"
        self._say("description-missing", "error", message, "description")

    def invisible(self, key: str) -> None:
        message = f"{key} holds control, bidirectional, zero-width or tag characters; remove them"
        self._say("invisible-characters", "warning", message, key)

    def compatibility(self) -> str | None:
        compatibility = self.string("compatibility")
        if compatibility and len(compatibility) > _COMPATIBILITY_LIMIT:
            message = f"compatibility has {len(compatibility):,} characters; shorten it to 500"
            self._say("compatibility-too-long", "warning", message, "compatibility")
        return compatibility

    def metadata(self) -> dict[str, str]:
        metadata = self._values.get("metadata", "")
        if not isinstance(metadata, dict):
            if metadata:
                self._say(
                    "wrong-type", "warning", "metadata is no mapping; write `key: value` lines", "metadata"
                )
            return {}
        strings = {key: value for key, value in metadata.items() if isinstance(value, str)}
        if len(strings) < len(metadata):
            odd = next(key for key in metadata if key not in strings)
            message = (
                f"{quoted(odd)} in metadata is no string, and only to be had with all values; flatten it"
            )
            self._say("wrong-type", "warning", message, "metadata")
        return strings

    def allowed_tools(self) -> tuple[str, ...]:
        tools = self._values.get("allowed-tools", "")
        if isinstance(tools, str):
            found = tuple(_TOOL.findall(tools))
            if "," in _TOOL.sub("", tools):
                message = "allowed-tools has commas, read as blanks; separate by blanks alone"
                self._say("wrong-type", "info", message, "allowed-tools")
            return found
        message = "allowed-tools is no string; write the tools on one line, separated by blanks"
        self._say("wrong-type", "warning", message, "allowed-tools")
        return tuple(t for t in tools if isinstance(t, str)) if isinstance(tools, list) else ()

    def verdict(self) -> tuple[Fault, ...]:
        """Every fault, by line; of very many the first ones, of which the last says how many follow."""
        for key in self._values:
            if key not in _KEYS:
                message = f"{quoted(key)} is no key of the specification; other readers may ignore it"
                self._say("unknown-key", "info", message, key)
        # No error may be among those that are cut, for `check` goes by them.
        faults = sorted(self._faults, key=lambda fault: _SEVERITIES.index(fault.severity))
        if (more := len(faults) - _FAULT_LIMIT) > 0:
            last = faults[_FAULT_LIMIT - 1]
            faults[_FAULT_LIMIT - 1 :] = [replace(last, message=f"{last.message} (and {more} more faults)")]
        return tuple(sorted(faults, key=lambda fault: (fault.line or 0, fault.code)))
