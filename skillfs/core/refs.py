r"""What a caller may name an entry by: parsing references, lexically and without looking anything up.

The form of a reference alone decides what it means; the first line that fits wins:

=============================================  ==================================================
`int`, or ASCII digits only                    integer id
UUID, hyphens or 32 hex digits, any case,      UUID
`urn:uuid:` before it or not
`sha256:`, `md5:`, `xxh3:` and the hex digits  content; with a wrong number of digits it is a path
`name:` and a skill's name                     skill of that name
`skill://` and a path                          path, percent-decoded once
a root of the store, alone or before `/…`      path below the root, compared by component
anything else with `://` in it                 nothing: not found
anything else                                  path from the store root
=============================================  ==================================================

`~`, `$`, `%`, `*`, `?`, `#`, `[` and `\` are ordinary characters of a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote

from skillfs.core.wire import quote_name
from skillfs.errors import InvalidArgumentError, not_found, quoted

__all__ = [
    "HashAlgorithm",
    "HashRef",
    "IdRef",
    "NameRef",
    "PathRef",
    "Ref",
    "UuidRef",
    "below_mount",
    "below_root",
    "component_fault",
    "is_below",
    "mount_name_fault",
    "parse_path",
    "parse_ref",
    "printable_path",
    "root_above",
]

HashAlgorithm: TypeAlias = Literal["sha256", "md5", "xxh3"]

MAX_REF_BYTES = 4096
MAX_COMPONENT_BYTES = 255

_URL_PREFIX = "skill://"


@dataclass(frozen=True, slots=True)
class IdRef:
    """An integer id, not negative; it may be larger than any id that is given out."""

    id: int


@dataclass(frozen=True, slots=True)
class UuidRef:
    """The 16 bytes of a UUID."""

    uuid: bytes


@dataclass(frozen=True, slots=True)
class HashRef:
    """The digest of a file's bytes: 32 bytes of SHA-256, 16 of MD5 or of XXH3-128."""

    algorithm: HashAlgorithm
    digest: bytes


@dataclass(frozen=True, slots=True)
class NameRef:
    """The name of a skill."""

    name: str


@dataclass(frozen=True, slots=True)
class PathRef:
    """A path from the store root.

    Attributes:
        parts: Its components, each checked; none for the root.
        folder: A trailing `/` says that a folder is meant. False for the root, however it was written.
    """

    parts: tuple[str, ...]
    folder: bool = False

    @property
    def path(self) -> str:
        """The store path: components joined by `/`, without a leading one; empty for the root."""
        return "/".join(self.parts)


Ref: TypeAlias = IdRef | UuidRef | HashRef | NameRef | PathRef

_UNFIT = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"  # control characters and unpaired surrogates

# Two components or more, nothing odd in them and no colon: a path in every reading, so the forms below need
# not be tried. This is what nearly all callers send (0.8 µs, against 2.1 µs for the forms one by one).
_PLAIN = re.compile(
    rf"(?!\.\.?/)[^{_UNFIT}/:]+(?:/(?!\.\.?(?:/|\Z))[^{_UNFIT}/:]+)+",
).fullmatch

# ASCII, because ignoring case would otherwise also take U+0131, a dotless i, for the "i" of "uuid".
_SPECIAL = re.compile(
    r"(?P<id>[0-9]+)"
    r"|(?i:urn:uuid:)?(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})"
    r"|(?P<hash>sha256:[0-9a-fA-F]{64}|(?:md5|xxh3):[0-9a-fA-F]{32})"
    r"|name:(?P<name>.*)",
    re.ASCII | re.DOTALL,
).fullmatch

find_unfit = re.compile(f"[{_UNFIT}]").search


def parse_ref(value: object, roots: Sequence[str] = ()) -> Ref:
    """Turn what a caller sent into a typed reference, by its form alone.

    Args:
        value: An integer id, or a string in any of the forms of the module's table.
        roots: The store's own URL and its absolute root, in every spelling a caller may use for them, such as
            `("/srv/skills", "file:///srv/skills")`. Each starts with `/` or holds `://`.

    Raises:
        InvalidArgumentError: The reference is of another type, too long, or malformed.
        NotFoundError: The string is a URL that is not this store's.
    """
    if type(value) is str and _fits(value, MAX_COMPONENT_BYTES) and _PLAIN(value):
        return PathRef(tuple(value.split("/")))
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise InvalidArgumentError("an integer id is not negative; pass one that a listing shows")
        return IdRef(int(value))
    if not isinstance(value, str):
        raise InvalidArgumentError(
            f"a reference is an integer id or a string (a UUID or a path, say), not {quoted(value)}"
        )
    _check_length(value, roots)
    match = _SPECIAL(value)
    if match is not None:
        return _special_ref(match, roots)
    if value.startswith(_URL_PREFIX):
        return _decoded_path(value, roots)
    return _path_below_root(value, roots)


def parse_path(value: object, roots: Sequence[str] = ()) -> PathRef:
    """Turn the path argument of a filesystem method into a path reference.

    A path only: digits, UUIDs and hashes are names here, and nothing is percent-decoded. `skill://` before it
    is dropped, a root of the store before it too. The empty string is the root, as fsspec writes it.

    Args:
        value: A string or an `os.PathLike`.
        roots: As for `parse_ref`.

    Raises:
        InvalidArgumentError: The path is of another type, too long, or malformed.
        NotFoundError: The string is a URL that is not this store's.
    """
    if type(value) is str and _fits(value, MAX_COMPONENT_BYTES) and _PLAIN(value):
        return PathRef(tuple(value.split("/")))
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise InvalidArgumentError(f"a path is a string or an os.PathLike of one, not {quoted(path)}")
    _check_length(path, roots)
    if path.startswith(_URL_PREFIX):
        path = path[len(_URL_PREFIX) :]
        return _path(_without_lead(path), path, roots)
    return _path_below_root(path, roots) if path else PathRef(())


def printable_path(path: str, roots: Sequence[str] = ()) -> str:
    """Write a store path so that passing it back as a reference means the same entry.

    A path that would be read as an id, a UUID, a hash or a name gets a leading `/`; the root is `/`.

    Args:
        path: A store path, without a leading slash; empty for the root.
        roots: As for `parse_ref`. Where the leading `/` would turn the path into a root of the store (a
            folder `8004` in a store at `/8004`), `./` is put before it instead.
    """
    if not path:
        return "/"
    if _SPECIAL(path) is None:
        return path
    return f"/{path}" if _below_root(f"/{path}", roots) in (None, path) else f"./{path}"


def below_mount(mount: str, path: str) -> str:
    """The whole path of what lies at a store path in a store that is mounted under a name.

    Args:
        mount: Name of the mount; empty where the store is alone, so that its paths are the whole ones.
        path: A store path.
    """
    return f"{mount}/{path}" if mount and path else mount or path


def mount_name_fault(name: str) -> str | None:
    """Say why a name is none for a mount; None when it is one.

    The name is the first component of paths, and what is printed of it has to come back as a path.
    """
    if "/" in name:
        return 'holds "/", and is to be one component of a path'
    if (fault := component_fault(name)) is not None:
        return fault
    if quote_name(name) != name:
        return 'holds a character that does not show, has a space at an end or begins with "'
    return "would be read as an id, a UUID, a hash or a skill's name" if _SPECIAL(name) else None


def root_above(text: str, roots: Sequence[str]) -> str | None:
    """The longest root that a text equals or lies below, compared by component; None when it is of none."""
    return max((r for r in roots if _below_root(text, (r,)) is not None), key=len, default=None)


def below_root(path: str, roots: Sequence[str]) -> str:
    """A store path without the root of the store, if that stands at its front: as an error echoes it."""
    below = _below_root(f"/{path}", roots)
    return path if below is None else below


def _fits(text: str, limit: int) -> bool:
    """Tell whether the text takes at most so many bytes in UTF-8; encodes it only when in doubt."""
    if len(text) * 4 <= limit:
        return True
    if len(text) > limit:
        return False
    return text.isascii() or len(text.encode("utf-8", "surrogatepass")) <= limit


def _check_length(text: str, roots: Sequence[str]) -> None:
    if not _fits(text, MAX_REF_BYTES):
        raise InvalidArgumentError(
            f"the reference {_echo(text, roots)} is over {MAX_REF_BYTES:,} bytes long; "
            "pass an id, a UUID or a path from a listing"
        )


def _special_ref(match: re.Match[str], roots: Sequence[str]) -> Ref:
    form = cast(str, match.lastgroup)
    text = match[form]
    if form == "id":
        return IdRef(_integer(text))
    if form == "uuid":
        return UuidRef(bytes.fromhex(text.replace("-", "")))
    if form == "hash":
        algorithm, _, digest = text.partition(":")
        return HashRef(cast(HashAlgorithm, algorithm), bytes.fromhex(digest))
    if not text:
        raise InvalidArgumentError('a reference by name needs the name of a skill after "name:"')
    if find_unfit(text):
        raise InvalidArgumentError(
            f"the name in {_echo(match[0], roots)} holds a control character or an unpaired surrogate; "
            "take the name from a list of skills"
        )
    return NameRef(text)


def _integer(digits: str) -> int:
    # In pieces: int() refuses long strings, by a limit that an application may lower to 640 digits.
    number = 0
    for at in range(0, len(digits), 640):
        piece = digits[at : at + 640]
        number = number * 10 ** len(piece) + int(piece)
    return number


def _decoded_path(url: str, roots: Sequence[str]) -> PathRef:
    try:
        path = unquote(url[len(_URL_PREFIX) :], errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            f"the percent-encoding in {_echo(url, roots)} is not of UTF-8 text; encode the path as UTF-8"
        ) from None
    return _path(_without_lead(path), path, roots)


def _path_below_root(text: str, roots: Sequence[str]) -> PathRef:
    below = _below_root(text, roots)
    if below is not None:
        return _path(below, below, roots)
    if "://" in text:
        raise not_found(_without_roots(text, roots))
    if not text:
        raise InvalidArgumentError('the reference is empty; the root of the store is "/"')
    return _path(_without_lead(text), text, roots)


def _below_root(text: str, roots: Sequence[str]) -> str | None:
    """Cut the longest root that the text equals or lies below; None where there is none."""
    best: str | None = None
    for root in roots:
        # A root that is nothing but a scheme or a slash keeps its slashes: "file:///" is not "file:".
        prefix = root if root.endswith("/") else f"{root}/"
        if text.startswith(prefix):
            rest = text[len(prefix) :]
        elif f"{text}/" == prefix and text and not text.endswith("/"):
            rest = ""
        else:
            continue
        if best is None or len(rest) < len(best):
            best = rest
    return best


def _without_lead(text: str) -> str:
    """Drop the one leading `/` or `./`, or the lone `.`, that says nothing but "from the root"."""
    if text.startswith("/"):
        return text[1:]
    if text.startswith("./"):
        return text[2:]
    return "" if text == "." else text


def _path(text: str, sent: str, roots: Sequence[str]) -> PathRef:
    """Split and check a path whose leading part is dealt with; `sent` is what errors echo."""
    if not text:
        return PathRef(())
    folder = text.endswith("/")
    parts = (text[:-1] if folder else text).split("/")
    for number, part in enumerate(parts, 1):
        fault = component_fault(part)
        if fault is not None:
            raise InvalidArgumentError(f"component {number} of the path {_echo(sent, roots)} {fault}")
    return PathRef(tuple(parts), folder)


def is_below(path: str, folder: str) -> bool:
    """Whether a store path is that of a folder, or of something below it."""
    return not folder or path == folder or path.startswith(f"{folder}/")


def component_fault(part: str) -> str | None:
    """Say what is wrong with one component, and what to do; None when it is sound."""
    if not part:
        return 'is empty; separate names by a single "/"'
    if part in {".", ".."}:
        return f'is "{part}", which is not followed; write the path from the root of the store'
    found = find_unfit(part)
    if found is not None:
        if found[0] == "\0":
            kind = "NUL"
        else:
            kind = "a control character" if found[0] < "\ud800" else "an unpaired surrogate"
        return f"holds {kind}, which no path may hold; pass the id or UUID from a listing"
    if not _fits(part, MAX_COMPONENT_BYTES):
        return f"is over {MAX_COMPONENT_BYTES} bytes in UTF-8, longer than any file name"
    return None


def _echo(text: str, roots: Sequence[str]) -> str:
    return quoted(_without_roots(text, roots))


def _without_roots(text: str, roots: Sequence[str]) -> str:
    """Cut the store's root out of what an error is going to echo, where it stands as whole components."""
    text = text[:MAX_REF_BYTES]
    for root in sorted(roots, key=len, reverse=True):
        bare = root.rstrip("/")
        if bare and not bare.endswith(":"):
            # A root "/s" is neither in "/srv" nor in "/x/s", but in "file:///s" it is.
            text = re.sub(rf"(?<![\w.~%+-]){re.escape(bare)}(?![^/])", "", text)
    return text
