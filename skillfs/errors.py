"""Every error that skillfs raises.

Each is a `SkillFSError` and also the standard exception that fits, carries a stable `code`, and has a
message that says what to do next::

    SkillFSError
    ├── InvalidArgumentError   ValueError                invalid_argument
    │   └── AlreadyExistsError FileExistsError           invalid_argument
    ├── NotFoundError          FileNotFoundError         not_found
    ├── IsFolderError          IsADirectoryError         is_folder
    ├── IsFileError            NotADirectoryError        is_file
    ├── NotTextError           ValueError                not_text
    ├── TooLargeError          OSError EFBIG             too_large
    ├── ChangedError           OSError ESTALE            changed
    ├── UnreadableError        PermissionError           unreadable
    ├── NotIndexedError        LookupError               not_indexed
    ├── ReadOnlyError          OSError EROFS             read_only
    ├── StoreUnavailableError  OSError EIO               unavailable
    └── IntegrityError         OSError EBADMSG           integrity

No message holds an absolute host path, a credential or the content of a file. What the caller sent is
echoed by `quoted`.
"""

from __future__ import annotations

import errno
import json
from typing import Any, ClassVar

__all__ = [
    "AlreadyExistsError",
    "ChangedError",
    "IntegrityError",
    "InvalidArgumentError",
    "IsFileError",
    "IsFolderError",
    "NotFoundError",
    "NotIndexedError",
    "NotTextError",
    "ReadOnlyError",
    "SkillFSError",
    "StoreUnavailableError",
    "TooLargeError",
    "UnreadableError",
    "no_handle_left",
    "not_found",
    "quoted",
]

_ECHO_LIMIT = 200
_HUGE = 10**40


def quoted(value: object) -> str:
    """Echo what a caller sent: in double quotes, printable characters as they are, cut to 200 characters.

    Control, bidirectional, line-separating and unpaired surrogate characters come out escaped, so an echoed
    reference can neither break a line nor a JSON encoder nor a terminal.

    Args:
        value: A string; an integer, which is echoed as it is unless it is huge; or anything else, of which
            only the type is named.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _HUGE:
        return str(value)
    if not isinstance(value, str):
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    cut = value[:_ECHO_LIMIT]
    text = "".join(c if c.isprintable() and c not in '"\\' else json.dumps(c)[1:-1] for c in cut)
    if len(text) > _ECHO_LIMIT:
        text = text[:_ECHO_LIMIT]
        cut = ""
    return f'"{text}"' + ("…" if len(cut) < len(value) else "")


class SkillFSError(Exception):
    """The root of all errors of skillfs.

    Attributes:
        code: Stable, machine-readable name of the kind of error.
        message: What happened and what to do next.
    """

    code: ClassVar[str] = "error"
    _errno: ClassVar[int | None] = None

    def __init__(self, message: str) -> None:
        if isinstance(self, OSError):
            super().__init__(self._errno, message)
        else:
            super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message,))


class InvalidArgumentError(SkillFSError, ValueError):
    """An argument is malformed; nothing was looked up."""

    code = "invalid_argument"


class AlreadyExistsError(InvalidArgumentError, FileExistsError):
    """Something lies where something new was to be made."""

    _errno = errno.EEXIST

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # OSError sets it where it makes the object, and here ValueError comes before it.
        self.errno = self._errno


class NotFoundError(SkillFSError, FileNotFoundError):
    """Nothing visible answers to the reference: missing, hidden, outside a skill or outside the bases."""

    code = "not_found"
    _errno = errno.ENOENT


class IsFolderError(SkillFSError, IsADirectoryError):
    """A file is needed and the reference names a folder."""

    code = "is_folder"
    _errno = errno.EISDIR


class IsFileError(SkillFSError, NotADirectoryError):
    """A folder is needed and the reference names a file."""

    code = "is_file"
    _errno = errno.ENOTDIR


class NotTextError(SkillFSError, ValueError):
    """The file does not decode as text, or not as the encoding that was named."""

    code = "not_text"


class TooLargeError(SkillFSError, OSError):
    """The whole file would have to be held in memory, and it is over 64 MiB."""

    code = "too_large"
    _errno = errno.EFBIG


class ChangedError(SkillFSError, OSError):
    """The file changed while it was read, or is not the version that was expected."""

    code = "changed"
    _errno = errno.ESTALE


class UnreadableError(SkillFSError, PermissionError):
    """The file is listed, but the system refuses to open it; not worth retrying."""

    code = "unreadable"
    _errno = errno.EACCES


class NotIndexedError(SkillFSError, LookupError):
    """The hash asked for is not known for every file yet."""

    code = "not_indexed"


class ReadOnlyError(SkillFSError, OSError):
    """The filesystem is read-only."""

    code = "read_only"
    _errno = errno.EROFS


class StoreUnavailableError(SkillFSError, OSError):
    """The store does not answer; worth retrying."""

    code = "unavailable"
    _errno = errno.EIO


class IntegrityError(SkillFSError, OSError):
    """Bytes do not match the digest that vouches for them."""

    code = "integrity"
    _errno = errno.EBADMSG


def not_found(ref: object, near: str | None = None) -> NotFoundError:
    """The one answer for everything that cannot be seen, whatever the reason: same reference, same bytes.

    Args:
        ref: What the caller sent.
        near: A path that this caller may see and may have meant.
    """
    hint = "list the tree to see what there is" if near is None else f"did you mean {quoted(near)}?"
    return NotFoundError(f"nothing visible answers to {quoted(ref)}; {hint}")


_NO_HANDLE_LEFT = {
    errno.EMFILE: "too many files are open in this process; "
    "raise the limit (ulimit -n) or mount fewer stores",
    errno.ENFILE: "too many files are open on this machine; close some and try again",
    errno.ENOMEM: "no memory is left to open a file; free some and try again",
}


def no_handle_left(error: OSError) -> StoreUnavailableError | None:
    """The error for a file that could not be opened because there are too many; None for another reason.

    Nothing is missing, or wrong with the file, then: only this process cannot look.
    """
    message = _NO_HANDLE_LEFT.get(error.errno or 0)
    return None if message is None else StoreUnavailableError(message)
