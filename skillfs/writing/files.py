"""Open files that write: each takes its place when it is closed, or not at all."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from fsspec.compression import compr
from fsspec.core import get_compression

from skillfs.errors import InvalidArgumentError, StoreUnavailableError, quoted
from skillfs.lookup import Asked
from skillfs.writing.pending import Writing
from skillfs.writing.writer import Batch, Writer

__all__ = ["CompressedFile", "WrittenFile", "WrittenText", "text_options", "write_all"]

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BLOCK = 1 << 20
"""Bytes that are copied at once."""

HELD = 1 << 20
"""Bytes of a file in a transaction that are held in memory; what is longer goes to a temporary file."""


class WrittenFile(io.BufferedIOBase):
    """A file that is being written.

    Args:
        writer: Writes it.
        asked: Its path.
        kind: `w`, `x` or `a`.
        writing: Takes the bytes; None to hold them until a transaction ends.

    Attributes:
        discarded: Whether nothing of it is going to stay.
        forgotten: Whether it was neither closed nor given up before nobody had it any more.
        path: Store path.
        mode: As it was opened.
    """

    _writing: Writing | None = None
    _held: tempfile.SpooledTemporaryFile[bytes] | None = None

    def __init__(self, writer: Writer, asked: Asked, kind: str, writing: Writing | None) -> None:
        self.writer = writer
        self.asked = asked
        self.mode = f"{kind}b"
        self.path = str(asked.shown).lstrip("/")
        self.discarded = False
        self.forgotten = False
        self._pid = os.getpid()
        self._kind = kind
        self._failed = False
        self._writing = writing
        if writing is None:
            self._held = tempfile.SpooledTemporaryFile(HELD)  # noqa: SIM115  # closed by discard
            self._at = 0
        else:
            self._at = writing.size

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes so far; in a transaction without those of the file that is appended to."""
        return self._at

    def write(self, data: ReadableBuffer) -> int:
        """Add bytes.

        Raises:
            SkillFSError: The store does not take them; nothing of the file is going to stay.
        """
        if self.closed:
            raise ValueError("I/O operation on closed file")
        self._require_own()
        block = bytes(memoryview(data).cast("B"))
        try:
            if self._writing is not None:
                self._writing.write(block)
            elif self._held is not None:
                self._hold(self._held, block)
        except BaseException:
            self._failed = True
            raise
        self._at += len(block)
        return len(block)

    def _hold(self, held: tempfile.SpooledTemporaryFile[bytes], block: bytes) -> None:
        try:
            held.write(block)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise StoreUnavailableError(
                f"{quoted(self.asked.shown)} cannot be held until the transaction ends ({why}); "
                "make room in the folder for temporary files, or set TMPDIR"
            ) from error

    def _require_own(self) -> None:
        if self._pid != os.getpid():
            raise InvalidArgumentError(
                f"{quoted(self.asked.shown)} was opened in another process, which alone can write it; "
                "open it again in this one"
            )

    def close(self) -> None:
        """Let the file take its place; in a transaction, at the end of that.

        Raises:
            InvalidArgumentError: This is a forked process, and the file was opened before.
            ChangedError: Its place is gone meanwhile, or is in no skill any more.
            SkillFSError: It cannot be written; nothing of it stays.
        """
        if self.closed:
            return
        if self._failed or self._pid != os.getpid():
            self.discard()
            self._require_own()
            return
        try:
            if self._writing is not None:
                with self.writer.batch() as batch:
                    batch.commit(self._writing, late=True)
        except BaseException:
            self.discarded = True
            raise
        finally:
            self._writing = None
            super().close()

    def commit_to(self, batch: Batch) -> None:
        """Write what was held until the transaction ended."""
        self._require_own()
        assert self._held is not None
        held = self._held
        held.seek(0)
        blocks = iter(lambda: held.read(BLOCK), b"")
        write_all(batch, self.asked, blocks, exclusive=self._kind == "x", append=self._kind == "a")

    def discard(self) -> None:
        """Close it, and leave nothing of it; does nothing after it has taken its place."""
        self.discarded = True
        if self._writing is not None:
            if self._pid == os.getpid():
                self._writing.discard()
            self._writing = None
        if self._held is not None:
            with contextlib.suppress(OSError):  # it may have found no room for its last bytes
                self._held.close()
            self._held = None
        super().close()

    def forget(self) -> None:
        """The same for a file that nobody has any more."""
        self.forgotten = not (self.closed or self.discarded)
        self.discard()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse_pickling()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _leave(self, kind)

    def __del__(self) -> None:
        if self._writing is not None or self._held is not None:
            self.discard()


def _refuse_pickling() -> NoReturn:
    raise TypeError("a file that is open for writing cannot be pickled; close it first")


class CompressedFile(io.BufferedIOBase):
    """Compresses what is written to a file, and closes that with itself.

    Args:
        file: The file.
        compression: Name of a compression of fsspec, or `infer`.
        path: Path of the file, from which that is inferred.

    Raises:
        InvalidArgumentError: There is no such compression.
    """

    _compressor: Any = None

    def __init__(self, file: WrittenFile, compression: str, path: str) -> None:
        self._file = file
        try:
            name = get_compression(path, compression)
        except ValueError as error:
            raise InvalidArgumentError(f"no compression is called {quoted(compression)}") from error
        self._compressor = file if name is None else compr[name](file, mode="w")

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: ReadableBuffer) -> int:
        """Compress bytes; returns how many they were."""
        return self._compressor.write(data)  # type: ignore[no-any-return]  # as of any file

    def close(self) -> None:
        """See `WrittenFile.close`."""
        if not self.closed:
            try:
                self._compressor.close()
                self._file.close()
            except BaseException:
                self._file.discard()
                raise
            finally:
                super().close()

    def discard(self) -> None:
        """See `WrittenFile.discard`."""
        with contextlib.suppress(Exception):
            self._compressor.close()
        self._file.discard()
        super().close()

    def forget(self) -> None:
        """See `WrittenFile.forget`."""
        self._file.forget()
        self.discard()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse_pickling()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _leave(self, kind)

    def __del__(self) -> None:
        if self._compressor is not None and not self.closed:
            self.forget()


class WrittenText(io.TextIOWrapper):
    """Text over a file that is being written."""

    def discard(self) -> None:
        """See `WrittenFile.discard`."""
        self.buffer.discard()  # type: ignore[attr-defined]  # of either class above

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        _refuse_pickling()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _leave(self, kind)

    def __del__(self) -> None:
        if not self.closed:
            self.buffer.forget()  # type: ignore[attr-defined]


def text_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `WrittenText` among those of a call; UTF-8 unless another encoding is named.

    Raises:
        InvalidArgumentError: There is no such encoding, way to treat errors, or newline.
    """
    text = {name: options[name] for name in ("errors", "newline") if name in options}
    text["encoding"] = options.get("encoding") or "utf-8"
    try:
        io.TextIOWrapper(io.BytesIO(), **text)
        codecs.lookup_error(text.get("errors") or "strict")
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"text cannot be written so: {error}; see the arguments of open") from None
    return text


def _leave(file: WrittenFile | CompressedFile | WrittenText, kind: type[BaseException] | None) -> None:
    if kind is None:
        file.close()
    else:
        file.discard()


def write_all(
    batch: Batch, asked: Asked, blocks: Iterable[bytes], *, exclusive: bool = False, append: bool = False
) -> None:
    """Write a file from blocks, whole or not at all; see `Batch.begin`."""
    writing = batch.begin(asked, exclusive=exclusive, append=append)
    try:
        for block in blocks:
            writing.write(block)
        batch.commit(writing)
    finally:
        writing.discard()
