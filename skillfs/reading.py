"""Reading: the one way from a reference to characters, lines or bytes.

Bytes, hash and signature come from one handle. Where the handle's signature is the row's, only the bytes
around the wanted characters are read, by facts that were computed once for that signature; where it is not,
the folder is looked at again and the reading starts over. What changes while it is read is read again, and in
the end refused.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from skillfs.access import Access
from skillfs.core.digest import md5 as md5_of
from skillfs.core.digest import sha256 as sha256_of
from skillfs.core.digest import uuid_text, xxh3, xxh3_of_blocks
from skillfs.core.lock import LockedFile
from skillfs.core.refs import HashRef, PathRef
from skillfs.core.text import (
    HOLD_LIMIT,
    LineCut,
    Window,
    character_window,
    check_hold_limit,
    cut_characters,
    cut_lines,
    cut_lines_within,
    decode_as,
    holds_for,
    limit_window,
    line_window,
    normal_encoding,
    take_characters,
    take_lines,
    take_lines_within,
)
from skillfs.core.textfacts import Grid, TextFacts, TextScanner, decoded_facts, scan_text
from skillfs.core.wire import Content, Lines
from skillfs.errors import (
    ChangedError,
    IntegrityError,
    InvalidArgumentError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    no_handle_left,
    quoted,
)
from skillfs.index.rows import Row
from skillfs.lookup import Asked, Lookup
from skillfs.objects.verified import MOST_HELD, VerifiedHandle
from skillfs.open_file import BUFFER, OpenFile, StoreFile
from skillfs.stores.base import FileState, Handle, StaleFile
from skillfs.stores.workers import Workers

__all__ = ["Reader", "check_count", "sequence_of"]

if TYPE_CHECKING:
    pass

A = TypeVar("A")
T = TypeVar("T")

ATTEMPTS = 6
"""How often a reading starts over when the file changes under it."""

SMALL_FILE = 1 << 20
"""Bytes up to which a file is read at once, the first time."""

REMOTE_START = 128 << 10
"""Bytes of a remote file that are read when it is opened, where nothing else is said: most are no longer."""

MOST_START = 2**63 - 1
"""What an answer says of a start beyond it: larger integers are none for most readers of JSON."""

REMOTE_BUFFER = 1 << 20
"""Bytes that an open file of a remote store reads ahead; each filling costs a request."""

MOST_CACHED_FACTS = 2_048
_LOCKED = -1
"""Stands for the key of a row with the facts of what a lock names, which are kept by their SHA-256."""

_MD5 = re.compile(r"(?:md5:)?[0-9a-fA-F]{32}")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EISDIR, errno.ENAMETOOLONG})


class _Facts(NamedTuple):
    md5: bytes
    text: TextFacts


class _Retry(Exception):
    """The file changed while it was read."""


class Reader:
    """Reads files of one filesystem.

    Args:
        lookup: Finds them.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._engine = lookup.engine
        self._remote = lookup.engine.store.remote
        self._cache: dict[tuple[int, bytes], _Facts] = {}
        self._locked = lookup.locked
        self._verified: dict[bytes, bytes] = {}
        """Signatures of large files that were read whole and are as locked, by SHA-256."""

    @property
    def is_locked(self) -> bool:
        """Whether only what a lock names is read."""
        return self._locked is not None

    # -- text ----------------------------------------------------------------------------------------------

    def content(
        self,
        asked: Asked,
        start: int,
        length: int | None,
        access: Access,
        encoding: str | None,
        expect_hash: str | None,
        *,
        held_for: str | None = None,
    ) -> Content:
        """See `SkillFileSystem.get_content`.

        With `held_for`, which says what the whole text is needed for, a file that is too large to be held is
        refused before it is read.
        """
        check_count("start", start, 0)
        if length is not None:
            check_count("length", length, 0)
        named = _check_reading(encoding, expect_hash)

        def read(row: Row, handle: Handle) -> Content:
            if held_for is not None:
                check_hold_limit(handle.state.size, f"for {held_for}", "read it by lines or characters")
            md5, facts, whole = self._text(row, handle, named, expect_hash)
            window = character_window(facts, handle.state.size, start, length)
            if whole is None:
                text = take_characters(_bytes(handle, window.offset, window.end), window, facts)
            else:
                text = cut_characters(whole, window)
            assert row.skill is not None
            assert row.uuid is not None
            return Content(
                uuid_text(row.uuid), row.name, md5.hex(), facts.characters, min(start, MOST_START), len(text),
                uuid_text(row.skill.uuid), text, row.id, row.path,
            )  # fmt: skip

        return self.with_handle(asked, access, read)

    def lines(
        self,
        asked: Asked,
        offset: int,
        limit: int | None,
        access: Access,
        encoding: str | None,
        expect_hash: str | None,
        most_characters: int | None = None,
    ) -> Lines:
        """See `SkillFileSystem.get_lines`."""
        check_count("offset", offset, 1)
        if limit is not None:
            check_count("limit", limit, 0)
        if most_characters is not None:
            check_count("most_characters", most_characters, 1)
        named = _check_reading(encoding, expect_hash)

        def read(row: Row, handle: Handle) -> Lines:
            md5, facts, whole = self._text(row, handle, named, expect_hash)
            window = line_window(facts, handle.state.size, offset, limit)
            text, count, cut_at = _lines(handle, facts, whole, window, most_characters)
            assert row.skill is not None
            assert row.uuid is not None
            return Lines(
                uuid_text(row.uuid), row.name, md5.hex(), facts.characters, facts.lines,
                min(offset, MOST_START), count, uuid_text(row.skill.uuid), text, row.id, row.path,
                handle.state.size, cut_at,
            )  # fmt: skip

        return self.with_handle(asked, access, read)

    def _text(
        self, row: Row, handle: Handle, encoding: str | None, expect_hash: str | None
    ) -> tuple[bytes, TextFacts, str | None]:
        """MD5 and text facts of an open file, and its whole text where the encoding asks for that.

        Raises:
            ChangedError: It is not the version that was expected.
            NotTextError: It is not text in the encoding that was named.
            TooLargeError: It would have to be held whole and is over 64 MiB.
        """
        facts = self._facts(row, handle)
        _expect(facts, expect_hash)
        if encoding is None or holds_for(facts.text, encoding):
            return facts.md5, facts.text, None
        check_hold_limit(handle.state.size)
        whole = decode_as(_bytes(handle, 0, handle.state.size), encoding)
        return facts.md5, decoded_facts(whole, encoding), whole

    # -- bytes and hashes ----------------------------------------------------------------------------------

    def bytes(self, asked: Asked, start: int | None, end: int | None, access: Access) -> bytes:
        """Bytes `start` to `end` of a file, counted as slices count."""

        def read(row: Row, handle: Handle) -> bytes:
            first, last, _ = slice(start, end).indices(handle.state.size)
            return _bytes(handle, first, max(first, last))

        return self.with_handle(asked, access, read)

    def open(self, asked: Asked, access: Access) -> OpenFile:
        """Open a file for reading bytes; what is read belongs to one version of it."""
        buffer = REMOTE_BUFFER if self._remote else BUFFER
        return OpenFile(self.open_raw(asked, access, buffer)[1], buffer)

    def open_raw(self, asked: Asked, access: Access, start: int = REMOTE_START) -> tuple[Row, StoreFile]:
        """Open a file for reading bytes at any place, by several threads; raises as `with_handle`.

        Args:
            asked: A reference to it.
            access: What the caller may see.
            start: Bytes of a remote file that are read at once: opening fails where reading would, and the
                first reading has them.

        Returns:
            Its row, which may be of an earlier version, and the file.
        """

        def keep(row: Row, handle: Handle) -> tuple[Row, StoreFile]:
            if self._remote:
                handle.read(0, start)
            return row, StoreFile(handle, row.path, requested=self._remote and not isinstance(handle, _Held))

        return self.with_handle(asked, access, keep, close=False)

    def details(self, asked: Asked, access: Access) -> tuple[FileState, str, TextFacts]:
        """State, MD5 and text facts of a file, all from one opening of it; computed where not known.

        What is known of a file of a remote store is as of the last listing, like all that is listed. A file
        of which no listing tells the size is read for that each time.
        """
        if self._remote:
            row = self._lookup.file(asked, access)
            facts = self._known_facts(row) if self._locked is None else None
            if facts is not None and row.size is not None:
                state = FileState(row.signature, row.size, row.modified)
                return state, facts.md5.hex(), facts.text

        def read(row: Row, handle: Handle) -> tuple[FileState, str, TextFacts]:
            facts = self._facts(row, handle)
            return handle.state, facts.md5.hex(), facts.text

        return self.with_handle(asked, access, read)

    def checksum(self, asked: Asked, access: Access) -> int:
        """The XXH3-128 of a file, by reading it."""
        digest = self.with_handle(asked, access, lambda row, handle: xxh3_of_blocks(handle.blocks()))
        return int.from_bytes(digest, "big")

    def many(self, read: Callable[[A], T], items: list[A]) -> list[T]:
        """What reading makes of each of many things, in their order; of a remote store several at a time.

        The first error among them is raised. No lock of the engine may be held: the threads that read may
        have to look at the store again.
        """
        if not self._remote or len(items) < 2:
            return [read(item) for item in items]
        with Workers() as workers:
            return workers.map(read, items)

    # -- the way through -----------------------------------------------------------------------------------

    def with_handle(
        self,
        asked: Asked,
        access: Access,
        work: Callable[[Row, Handle], T],
        *,
        close: bool = True,
        enforced: bool = True,
    ) -> T:
        """Look a file up, open it confined, and work on the handle until nothing changes meanwhile.

        Args:
            asked: A reference to it.
            access: What the caller may see.
            work: Called with the row and the handle; again, when the file changes meanwhile.
            close: Whether the handle is closed in the end.
            enforced: Whether a lock is enforced, where there is one; not for who hands out no bytes.

        Raises:
            NotFoundError: Nothing visible answers to the reference.
            IsFolderError: It names a folder.
            UnreadableError: The system refuses to open it.
            StoreUnavailableError: The store failed to read it.
            ChangedError: It changed at every attempt.
            IntegrityError: A lock does not name it, or not so.
        """
        for attempt in range(ATTEMPTS):
            row = self._lookup.file(asked, access)
            locked = None
            if enforced and self._locked is not None:
                locked = self._locked_file(asked, row, self._locked.files)
            known = None
            if self._remote:
                known = FileState(row.signature, -1 if row.size is None else row.size, row.modified)
            try:
                handle = self._engine.store.open(row.place, known)
            except StaleFile:
                self._engine.look_again(row.path.rpartition("/")[0])
                continue
            except OSError as error:
                if error.errno in _GONE:
                    self._engine.look_again(row.path.rpartition("/")[0])
                    continue
                raise _open_error(error, asked) from error
            keep = False
            try:
                if handle.state.size < 0:
                    handle = _Held(handle)  # how much there is shows only in the reading
                if locked is not None:
                    handle = self._verified_handle(asked, handle, locked)
                if handle.state.signature != row.signature:
                    if attempt < ATTEMPTS - 1 and not _is_racy(row, handle, attempt):
                        self._engine.look_again(row.path.rpartition("/")[0])
                        continue
                    _check_content(asked, handle)
                    if close and handle.state.size <= HOLD_LIMIT:
                        # It may be being written: hash and text are to come from one and the same reading.
                        result = work(row, _Held(handle))
                        if handle.unchanged():
                            return result
                        continue
                result = work(row, handle)
                if handle.unchanged():
                    keep = not close
                    return result
            except StaleFile:
                self._engine.look_again(row.path.rpartition("/")[0])
            except _Retry:
                pass
            except (ChangedError, IntegrityError):
                # Of the version that was compared it is true; whether that is the one that is there, not yet.
                if self._is_the_same(row, handle, asked):
                    raise
            except SkillFSError:
                raise
            except OSError as error:
                raise _open_error(error, asked) from error
            finally:
                if not keep:
                    handle.close()
        self._lookup.file(asked, access)
        raise ChangedError(
            f"{quoted(asked.shown)} changes faster than it can be read; try again when it is at rest"
        )

    def _locked_file(self, asked: Asked, row: Row, files: Mapping[str, LockedFile]) -> LockedFile:
        """What the lock says of a file: of the link that was asked for, or of the file itself.

        Raises:
            IntegrityError: It names neither.
        """
        ref = asked.ref
        found = files.get(ref.path) if isinstance(ref, PathRef) and ref.path != row.path else None
        if found is None and (found := files.get(row.path)) is None:
            raise IntegrityError(
                f"the lock does not name {quoted(asked.shown)}, so it is not read; whoever keeps "
                "the lock has to review it first"
            )
        return found

    def _verified_handle(self, asked: Asked, handle: Handle, locked: LockedFile) -> VerifiedHandle:
        """A handle that gives out bytes as they are locked, and no others.

        Raises:
            IntegrityError: Others are there.
        """

        def refuse() -> None:
            raise IntegrityError(
                f"{quoted(asked.shown)} is not as the lock names it, so it is not read; whoever keeps "
                "the lock has to restore it, or to review it"
            )

        if self._remote and handle.state.size != locked.size:
            handle.read(0, 1)  # a listing says so: which version is there now, only a reading shows
        verified = VerifiedHandle(handle, locked.digest, locked.size, refuse)
        if locked.size <= MOST_HELD:
            verified.read(0, 0)  # all of it, and that for what reads no byte as well
        elif self._verified.get(locked.digest) != (signature := handle.state.signature):
            # Once for a version; later readings look at the blocks that they touch.
            verified.check()
            if len(self._verified) >= MOST_CACHED_FACTS:
                self._verified.clear()
            self._verified[locked.digest] = signature
        return verified

    def _is_the_same(self, row: Row, handle: Handle, asked: Asked) -> bool:
        """Whether an open file is still the one that it was; where it is not, the index looks again."""
        try:
            return handle.unchanged()
        except StaleFile:
            self._engine.look_again(row.path.rpartition("/")[0])
            return False
        except SkillFSError:
            raise
        except OSError as error:
            raise _open_error(error, asked) from error

    def _facts(self, row: Row, handle: Handle) -> _Facts:
        """MD5 and text facts of an open file: known for its signature, or computed from the same handle."""
        signature = handle.state.signature
        if (locked := _locked_handle(handle)) is not None:
            return self._facts_of_locked(row, locked)
        if signature != row.signature:
            facts, content = _compute(handle)
            if content == row.content and handle.unchanged():
                # Too young to be read by, but the row can be found by its MD5, and keeps it once settled.
                self._engine.learned.keep(row, content, facts.md5, facts.text)
            return facts
        known = self._known_facts(row)
        if known is not None:
            return known
        facts, content = _compute(handle)
        if not handle.unchanged():
            raise _Retry
        self._engine.learned.keep(row, content, facts.md5, facts.text)
        return self._cached(row, facts)

    def _facts_of_locked(self, row: Row, handle: VerifiedHandle) -> _Facts:
        """The same of a small file that a lock names: of its very bytes, whatever was known of this version.

        What a file held when that was computed need not be what it holds now, and is locked.
        """
        if (cached := self._cache.get((_LOCKED, handle.digest))) is not None:
            return cached
        facts, content = _compute(handle)
        if content == row.content and handle.state.signature == row.signature and handle.unchanged():
            self._engine.learned.keep(row, content, facts.md5, facts.text)
        if len(self._cache) >= MOST_CACHED_FACTS:
            self._cache.clear()
        self._cache[_LOCKED, handle.digest] = facts
        return facts

    def _known_facts(self, row: Row) -> _Facts | None:
        """What is known of the file that has a row's signature; None when it has not been read."""
        cached = self._cache.get((row.key, row.signature))
        if cached is not None:
            return cached
        pending = self._engine.learned.of(row)
        if pending is not None:
            return self._cached(row, _Facts(*pending))
        if row.text is not None and row.text.md5 is not None:
            return self._cached(row, self._stored(row))
        return None

    def _cached(self, row: Row, facts: _Facts) -> _Facts:
        if len(self._cache) >= MOST_CACHED_FACTS:
            self._cache.clear()
        self._cache[row.key, row.signature] = facts
        return facts

    def _stored(self, row: Row) -> _Facts:
        text = row.text
        assert text is not None
        assert text.md5 is not None
        packed = self._engine.catalog.grid(row.key)
        grid = Grid.unpack(packed) if packed is not None else None
        return _Facts(
            text.md5, TextFacts(text.encoding, text.characters, text.lines, text.reason, text.reason_at, grid)
        )


class _Held:
    """A file that was read whole, once; see `Handle`."""

    def __init__(self, handle: Handle) -> None:
        self.state = handle.state
        self.inner = handle
        if handle.state.size < 0:
            parts, size = [], 0
            for block in handle.blocks():
                parts.append(block)
                size += len(block)
                check_hold_limit(size)
            self._data = b"".join(parts)
            self.state = handle.state._replace(size=size)
        else:
            self._data = _bytes(handle, 0, handle.state.size)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def blocks(self) -> Iterator[bytes]:
        yield self._data

    def unchanged(self) -> bool:
        return self.inner.unchanged()

    def settled(self) -> FileState:
        return self.inner.settled()

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no integer of at least `least`; `True` is no count.

    Raises:
        InvalidArgumentError: Naming the argument.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be an integer, not {quoted(value)}")
    if value < least:
        raise InvalidArgumentError(f"{name} must be {least} or more")


def _check_reading(encoding: str | None, expect_hash: str | None) -> str | None:
    if expect_hash is not None and (not isinstance(expect_hash, str) or not _MD5.fullmatch(expect_hash)):
        raise InvalidArgumentError(
            f"the expected hash is {quoted(expect_hash)}; pass the hash of an earlier page, 32 hex digits"
        )
    return None if encoding is None else normal_encoding(encoding)


def _expect(facts: _Facts, expected: str | None) -> None:
    if expected is not None and facts.md5.hex() != expected.removeprefix("md5:").lower():
        raise ChangedError(
            "the file is not the version with the expected hash; start again from its first page"
        )


def _bytes(handle: Handle, start: int, end: int) -> bytes:
    data = handle.read(start, end - start) if end > start else b""
    if len(data) != end - start:
        raise _Retry
    return data


def _lines(
    handle: Handle, facts: TextFacts, whole: str | None, window: Window, most_characters: int | None
) -> LineCut:
    """The lines of a window, or as many of them as have no more than some characters."""
    if most_characters is not None:
        if whole is not None:
            return cut_lines_within(whole, window, most_characters)
        limited = limit_window(window, facts, most_characters)
        data = _bytes(handle, limited.offset, limited.end)
        return take_lines_within(data, window, limited, facts, most_characters)
    if whole is None:
        text = take_lines(_bytes(handle, window.offset, window.end), window, facts)
    else:
        text = cut_lines(whole, window) if window.count else ""
    return LineCut(text, window.count, None)


def _compute(handle: Handle) -> tuple[_Facts, bytes]:
    """The facts of an open file and the XXH3-128 of the same bytes."""
    size = handle.state.size
    if size <= SMALL_FILE:
        data = _bytes(handle, 0, size)
        return _Facts(md5_of(data).digest(), scan_text(data)), xxh3(data)
    hasher = md5_of()
    scanner = TextScanner()

    def blocks() -> Iterator[bytes]:
        for block in handle.blocks():
            hasher.update(block)
            scanner.feed(block)
            yield block

    content = xxh3_of_blocks(blocks())
    return _Facts(hasher.digest(), scanner.finish()), content


def _locked_handle(handle: Handle) -> VerifiedHandle | None:
    """What vouches for an open file that a lock names, where that is small."""
    if isinstance(handle, _Held):
        handle = handle.inner
    return handle if isinstance(handle, VerifiedHandle) and handle.state.size <= MOST_HELD else None


def _is_racy(row: Row, handle: Handle, attempt: int) -> bool:
    """Whether a file was indexed so soon after its last modification that its signature proves nothing yet.

    Once that time has passed a fresh look makes the signature one that facts can be kept for.
    """
    signature = handle.state.signature
    return row.signature == signature + b"?" and (attempt > 0 or handle.settled().signature != signature)


def _check_content(asked: Asked, handle: Handle) -> None:
    """What was asked for by its hash and is not the version that is indexed must still have that hash."""
    if not isinstance(asked.ref, HashRef):
        return
    algorithm, digest = asked.ref.algorithm, asked.ref.digest
    if algorithm == "xxh3":
        found = xxh3_of_blocks(handle.blocks())
    else:
        hasher = md5_of() if algorithm == "md5" else sha256_of()
        for block in handle.blocks():
            hasher.update(block)
        found = hasher.digest()
    if found != digest:
        raise _Retry


def _open_error(error: OSError, asked: Asked) -> Exception:
    if error.errno in (errno.EACCES, errno.EPERM):
        return UnreadableError(f"{quoted(asked.shown)} may not be read by this user; mend its permissions")
    if (full := no_handle_left(error)) is not None:
        return full
    return StoreUnavailableError(
        f"reading {quoted(asked.shown)} failed ({error.strerror or type(error).__name__}); try again"
    )


def sequence_of(values: object, argument: str) -> Sequence[object]:
    """A list that a caller passed.

    Raises:
        InvalidArgumentError: It is no list.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"{argument} takes a list, not {quoted(values)}")
    return values
