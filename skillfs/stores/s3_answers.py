"""What answers of S3 say, and what they must say to be believed; a server may send anything at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime
from typing import Any

from skillfs.stores.attributes import MOST_NANOSECONDS
from skillfs.stores.base import FileState, StaleFile
from skillfs.stores.patience import Refused
from skillfs.stores.source import is_not_there, may_not_read

__all__ = [
    "LengthError",
    "NotS3Error",
    "answer_of",
    "is_same_version",
    "listed",
    "next_page",
    "read_all",
    "reason_of",
    "span",
    "state_of",
]

MOST_BYTES = 1 << 63
"""What a size must lie below."""

_SPAN = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})").fullmatch
_CODE = re.compile(r"[A-Za-z]{1,40}").fullmatch
_STATUS = re.compile(r"[1-5][0-9][0-9]").fullmatch


class NotS3Error(Exception):
    """An answer that is none of S3, such as the page of a gateway. Never reaches a caller."""


class LengthError(Exception):
    """A body of another length than was asked for, or announced. Never reaches a caller."""


def listed(answer: Mapping[str, Any], prefix: str, versions: bool) -> Iterator[tuple[str, FileState]]:
    """Keys and states of one page of a listing.

    Raises:
        NotS3Error: One of them cannot be.
    """
    for item in answer.get("Versions" if versions else "Contents", ()):
        key = item.get("Key")
        if not key or not key.startswith(prefix):
            raise NotS3Error
        if not versions or item.get("IsLatest"):
            yield key, state_of(item, item.get("Size"), versions)


def next_page(answer: Mapping[str, Any], versions: bool, asked: Set[tuple[str, ...]]) -> dict[str, str]:
    """How to ask for the page after this one; empty when it is the last.

    Args:
        answer: A page of a listing.
        versions: Whether it is one of versions.
        asked: What was asked for already; a page that leads back there would be read for ever.

    Raises:
        NotS3Error: It does not say, or leads back.
    """
    if not answer.get("IsTruncated"):
        return {}
    names = ("KeyMarker", "VersionIdMarker") if versions else ("ContinuationToken",)
    more = {name: answer[f"Next{name}"] for name in names if answer.get(f"Next{name}")}
    if names[0] not in more or tuple(more.values()) in asked:
        raise NotS3Error
    return more


def state_of(answer: Mapping[str, Any], size: object, versions: bool) -> FileState:
    """The state of a file, of an item of a listing or the answer to a GET.

    Raises:
        NotS3Error: There is no ETag, or the size is none.
    """
    etag = answer.get("ETag")
    if not isinstance(etag, str) or not etag or not etag.isprintable():
        raise NotS3Error
    if not isinstance(size, int) or not 0 <= size < MOST_BYTES:
        raise NotS3Error
    version = (answer.get("VersionId") or "") if versions else ""
    if version == "null":
        version = ""  # as a GET has it where versions were never kept
    return FileState(f"{etag}\0{size}\0{version}".encode(), size, _nanoseconds(answer.get("LastModified")))


def is_same_version(one: FileState, other: FileState) -> bool:
    """Whether ETag and version are the same, whatever the size: then one of the answers is wrong."""
    a, b = one.signature, other.signature
    return (a.partition(b"\0")[0], a.rpartition(b"\0")[2]) == (b.partition(b"\0")[0], b.rpartition(b"\0")[2])


def _nanoseconds(modified: object) -> int:
    if not isinstance(modified, datetime):
        return 0
    if modified.tzinfo is None:
        modified = modified.replace(tzinfo=UTC)
    # Whole seconds, because the headers of a GET know no others.
    return max(-MOST_NANOSECONDS, min(int(modified.timestamp()) * 1_000_000_000, MOST_NANOSECONDS - 1))


def span(answer: Mapping[str, Any]) -> tuple[int, int, int]:
    """The first byte of a body, the one after its last, and the size of the whole file.

    Raises:
        NotS3Error: The answer has no length.
        LengthError: Length and range contradict each other.
    """
    length = answer.get("ContentLength")
    if not isinstance(length, int):
        raise NotS3Error
    found = _SPAN(answer.get("ContentRange") or "")
    if found is None:
        return 0, length, length
    first, last, size = map(int, found.groups())
    if last + 1 - first != length or last >= size:
        raise LengthError
    return first, last + 1, size


async def read_all(body: Any, length: int, silence: float) -> bytes:
    """Exactly so many bytes: a reading may return fewer than were asked for.

    Args:
        body: Of an answer to a GET.
        length: Bytes to read.
        silence: Seconds that nothing may come for.

    Raises:
        LengthError: There are fewer.
        TimeoutError: Nothing came.
    """
    parts = []
    while length > 0:
        async with asyncio.timeout(silence):
            data = await body.read(length)
        if not data:
            raise LengthError
        parts.append(data)
        length -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_OF_ALL_KEYS = {
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidToken",
    "NoSuchBucket",
    "TokenRefreshRequired",
}
"""Codes with a status like that of a key that is refused, but of the bucket or the credentials."""


def reason_of(error: Exception, *, of_key: bool = False) -> str:
    """What went wrong, for `persistently`, without anything of endpoint or credentials.

    Args:
        error: As s3fs raises it.
        of_key: Whether it came of a request for one file.
    """
    answer = answer_of(error)
    if answer is None:
        return _reason_without_answer(error)
    status, code = answer
    if code == "InvalidObjectState":
        raise Refused("the object is archived; restore it first", of_key=of_key) from error
    if status == 404 and code != "NoSuchBucket":
        raise is_not_there() from error
    if status == 412 or code == "PreconditionFailed":
        raise StaleFile from error
    if status in (401, 403):
        raise may_not_read(code if _CODE(code) else "") from error
    if code == "NoSuchBucket":
        raise Refused("there is no such bucket") from error
    if 300 <= status < 500 and status not in (408, 409, 425, 429):
        words = f"HTTP status {status}" + (f", {code}" if _CODE(code) else "")
        raise Refused(words, of_key=of_key and status >= 400 and code not in _OF_ALL_KEYS) from error
    return f"HTTP status {status}"


_WORDS = {
    "NoCredentialsError": "",
    "PartialCredentialsError": "",
    "ProfileNotFound": "",
    "ClientPayloadError": "the answer was cut short",
    "LengthError": "the answer has not the length that was asked for",
    "ResponseParserError": "the answer is not one of S3",
    "NotS3Error": "the answer is not one of S3",
    "EndpointConnectionError": "no connection",
    "ConnectionClosedError": "the connection was closed",
    "ServerDisconnectedError": "the connection was closed",
    "TimeoutError": "no answer in time",
    "ReadTimeoutError": "no answer in time",
    "ConnectTimeoutError": "no answer in time",
    "SSLError": "no trusted connection",
}


def _reason_without_answer(error: Exception) -> str:
    if isinstance(error, FileExistsError):
        raise error
    names = [type(each).__name__ for each in _chain(error)]
    name = next((n for n in names if n in _WORDS), names[0])
    if name == "ProfileNotFound":
        raise Refused("there is no such profile; see that it is spelled right") from error
    if _WORDS.get(name) == "":
        raise Refused(
            "no credentials were found; pass key and secret, a profile or anon=True, or set them in the "
            "environment"
        ) from error
    if name == "ParamValidationError" or isinstance(
        error, TypeError | LookupError | AttributeError | ValueError | NameError | AssertionError
    ):
        raise Refused(
            f"the client takes no such endpoint, bucket or key ({name}); see that they are spelled right"
        ) from error
    return _WORDS.get(name, "the connection failed")


def answer_of(error: BaseException | None) -> tuple[int, str] | None:
    """HTTP status and code of the error of S3 that an error came from."""
    for each in _chain(error):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status or (code if _STATUS(code) else 0)), code
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from: s3fs raises errors of the system in place of those of S3."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
