"""The methods of fsspec that write, over `Writer`.

What goes where in a bulk call is worked out by fsspec itself, as for every filesystem. All is checked before
anything is written, a `SKILL.md` is written before what lies in its skill, and each call is one batch. One
that fails in its middle all the same, as when the disk is full, leaves what it has done so far, each file
whole, and the index knows of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from glob import has_magic
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem

from skillfs.errors import InvalidArgumentError, NotFoundError, ReadOnlyError, not_found, quoted
from skillfs.lookup import Asked
from skillfs.writing.bulk import check_local, local_blocks, markers_first, pairs_of, path_text, plan_all
from skillfs.writing.crossing import move_across
from skillfs.writing.files import CompressedFile, WrittenFile, WrittenText, text_options, write_all
from skillfs.writing.transaction import WritingTransaction
from skillfs.writing.writer import Batch, Writer, is_marker

__all__ = ["FsspecWriting"]

Method = TypeVar("Method", bound=Callable[..., Any])
_BatchFor: TypeAlias = Callable[[object], tuple[Batch, Asked]]

BLOCK = 1 << 20
"""Bytes that are copied at once."""


def _writes(method: Method) -> Method:
    """Let a method write only where that is allowed; asked before its arguments are looked at."""

    @wraps(method)
    def checked(self: FsspecWriting, *args: Any, **kwargs: Any) -> Any:
        self._require_writable()
        return method(self, *args, **kwargs)

    return cast(Method, checked)


class FsspecWriting(AbstractFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """What fsspec expects of a filesystem that can be written to.

    Whoever derives from it says whether it can (`_writable`), and who writes at a path (`_writer`).
    """

    transaction_type: ClassVar[type[WritingTransaction]] = WritingTransaction
    _writable: bool = False
    _transaction: Any

    def _writer(self, path: object) -> tuple[Writer, Asked]:
        """Who writes at a path, the same for every path of a store, and the path below that store's root.

        Raises:
            InvalidArgumentError: The path is malformed.
            NotFoundError: It leads into no store.
        """
        raise NotImplementedError

    @property
    def _defers(self) -> bool:
        """Whether what this thread writes waits for the end of a transaction."""
        return bool(self._intrans and self._transaction is not None and self._transaction.defers)

    def _require_writable(self) -> None:
        if not self._writable:
            raise ReadOnlyError("this filesystem is read-only; change the files in the store itself")

    @contextlib.contextmanager
    def _batches(self) -> Iterator[_BatchFor]:
        """One batch for each store that a call writes to."""
        with contextlib.ExitStack() as stack:
            batches: dict[Writer, Batch] = {}

            def batch_for(path: object) -> tuple[Batch, Asked]:
                writer, asked = self._writer(path)
                if writer not in batches:
                    batches[writer] = stack.enter_context(writer.batch())
                return batches[writer], asked

            yield batch_for

    # -- opening -------------------------------------------------------------------------------------------

    def open(
        self, path: Any, mode: str = "rb", *args: Any, compression: str | None = None, **kwargs: Any
    ) -> Any:
        """Open a file; see `fsspec.AbstractFileSystem.open`.

        A file that is written takes its place when it is closed, whole. The folders it needs are made when it
        is opened, and can be seen in a skill from then on. When it is closed because of an exception, or
        never, neither it nor they stay; when the process is killed, empty folders do. Text is UTF-8 unless
        another encoding is named.

        Args:
            path: The file.
            mode: `rb` and `r` read; `wb`, `xb` and `ab` write, create and append, `w`, `x` and `a` as text.
            *args: Passed on for reading.
            compression: Name of a compression of fsspec, or `infer`.
            **kwargs: `encoding`, `errors` and `newline` of text.

        Raises:
            ReadOnlyError: It would write, and the filesystem is read-only.
            InvalidArgumentError: The mode is unknown, or would write in place, or an argument is; or as for
                `pipe_file`.
        """
        if isinstance(mode, str) and "r" in mode and not set(mode) - set("rbt"):
            return super().open(path, mode, *args, compression=compression, **kwargs)
        kind = self._kind_of(mode)
        text = None if "b" in mode else text_options(kwargs)
        file: Any = self._open(path, kind + "b", autocommit=kwargs.pop("autocommit", not self._defers))
        try:
            if compression is not None:
                file = CompressedFile(file, compression, os.fspath(path))
            return file if text is None else WrittenText(file, **text)
        except BaseException:
            file.discard()
            raise

    def _open(self, path: Any, mode: str = "rb", *args: Any, autocommit: bool = True, **kwargs: Any) -> Any:
        if mode == "rb":
            return super()._open(path, mode, *args, **kwargs)
        kind = self._kind_of(mode)
        writer, asked = self._writer(path)
        if autocommit:
            with writer.batch() as batch:
                writing = batch.begin(asked, exclusive=kind == "x", append=kind == "a")
            return WrittenFile(writer, asked, kind, writing)
        # Refused now rather than at the end; what the transaction holds already counts as written.
        waiting = [f.asked for f in self.transaction.files if f.writer is writer and not f.discarded]
        with writer.batch() as batch:
            batch.expect(filter(is_marker, waiting))
            batch.plan([asked], exclusive=kind == "x")
        file = WrittenFile(writer, asked, kind, None)
        self.transaction.files.append(file)
        return file

    def _kind_of(self, mode: object) -> str:
        self._require_writable()
        kind = mode.replace("b", "", 1) if isinstance(mode, str) and "b" in mode else mode
        kind = kind.replace("t", "", 1) if isinstance(kind, str) and kind == mode else kind
        if kind not in ("w", "x", "a"):
            raise InvalidArgumentError(
                f"the mode is {quoted(mode)}; files are read by rb and r, "
                "and written whole by wb, xb, ab, w, x and a"
            )
        assert isinstance(kind, str)
        return kind

    # -- files ---------------------------------------------------------------------------------------------

    @_writes
    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write the bytes of a file.

        Args:
            path: The file; in a skill, or the `SKILL.md` of a new one.
            value: Bytes.
            mode: `overwrite`, or `create`, to which a file that is there is an error.
            **kwargs: Ignored.

        Raises:
            FileExistsError: It is there, and was to be created.
            IsFolderError: A folder is there.
            InvalidArgumentError: It would lie in no skill, behind a link, or under a name that is left out.
            NotFoundError: It is out of sight.
            UnreadableError: The system refuses to write it.
            StoreUnavailableError: The store fails to.
        """
        exclusive = _is_exclusive(mode)
        data = _bytes_of(value)
        if self._defers:
            with self._open(path, "xb" if exclusive else "wb", autocommit=False) as file:
                file.write(data)
            return
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.write(asked, data, exclusive=exclusive)

    @_writes
    def pipe(self, path: Any, value: Any = None, **kwargs: Any) -> None:
        """Write one file, or all of a mapping of path to bytes; see `pipe_file`.

        All is checked first: where one of them may not be written, none is.
        """
        if not isinstance(path, dict):
            self.pipe_file(path, value, **kwargs)
            return
        exclusive = _is_exclusive(kwargs.get("mode", "overwrite"))
        values = {name: _bytes_of(data) for name, data in path.items()}
        if self._defers:
            for name in markers_first(values, str):
                self.pipe_file(name, values[name], **kwargs)
            return
        with self._batches() as batch_for:
            files = [(*batch_for(name), data) for name, data in values.items()]
            plan_all([(batch, asked) for batch, asked, _ in files], [], exclusive=exclusive)
            for batch, asked, data in markers_first(files, lambda item: item[1]):
                batch.write(asked, data, exclusive=exclusive)

    @_writes
    def write_bytes(self, path: Any, value: Any, **kwargs: Any) -> None:
        """The same as `pipe_file`."""
        self.pipe_file(path, value, **kwargs)

    @_writes
    def write_text(
        self,
        path: Any,
        value: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Write the text of a file, as UTF-8 unless another encoding is named; returns its characters."""
        if not isinstance(value, str):
            raise InvalidArgumentError(f"text is a string, not {quoted(value)}")
        with self.open(path, "w", encoding=encoding, errors=errors, newline=newline, **kwargs) as file:
            file.write(value)
        return len(value)

    @_writes
    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        """Make a file empty, be it there or not; without `truncate` one that is there only becomes new."""
        if self._defers and (truncate or not self.exists(path)):
            self._open(path, "wb", autocommit=False).close()
            return
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.touch(asked, truncate=truncate)

    # -- from local files ----------------------------------------------------------------------------------

    @_writes
    def put_file(
        self, lpath: Any, rpath: Any, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Write a local file, or make a folder where a local folder is named; see `pipe_file`."""
        self._put([(path_text(lpath), rpath)], callback, _is_exclusive(mode), bulk=False)

    @_writes
    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Write local files, with `recursive` whole folders; see `fsspec.AbstractFileSystem.put`.

        All is checked first: where one of them may not be written, none is. Of a new skill the `SKILL.md` has
        to be among them.
        """
        pairs = pairs_of(self, AbstractFileSystem.put, lpath, rpath, recursive, maxdepth)
        self._put(pairs, callback, _is_exclusive(mode), bulk=True)

    upload = put

    def _put(self, pairs: Sequence[tuple[str, Any]], callback: Any, exclusive: bool, *, bulk: bool) -> None:
        if self._defers:
            files = [(local, path) for local, path in pairs if not os.path.isdir(local)]
            for local, _ in files:
                check_local(local)
            for local, path in markers_first(files, lambda item: str(item[1])):
                with self._open(path, "xb" if exclusive else "wb", autocommit=False) as file:
                    for block in local_blocks(local):
                        file.write(block)
            return
        with self._batches() as batch_for:
            items = [(local, *batch_for(path), os.path.isdir(local)) for local, path in pairs]
            plan_all(
                [(batch, asked) for _, batch, asked, is_folder in items if not is_folder],
                [(batch, asked) for _, batch, asked, is_folder in items if is_folder],
                exclusive=exclusive,
            )
            for local, _, _, is_folder in items:
                if not is_folder:
                    check_local(local)
            ordered = markers_first(items, lambda item: item[2])
            if bulk:
                callback.set_size(len(ordered))
            for local, batch, asked, is_folder in callback.wrap(ordered) if bulk else ordered:
                child = callback.branched(local, asked.shown) if bulk else contextlib.nullcontext(callback)
                with child as told:
                    if is_folder:
                        batch.make_folder(asked, exist_ok=True)
                    else:
                        _put_one(batch, local, asked, exclusive, told)

    # -- copying and moving --------------------------------------------------------------------------------

    @_writes
    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Copy a file to a new entry; of a folder only a folder is made."""
        with self._batches() as batch_for:
            self._copy_one(batch_for, path1, path2)

    @_writes
    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files, with `recursive` whole folders; see `fsspec.AbstractFileSystem.copy`.

        All is checked first: where one of them may not be written, none is. Of a link what it leads to is
        copied, once: a link to a folder behind another is refused.

        Args:
            path1: What to copy: a path, a pattern, or a list of either.
            path2: Where to.
            recursive: Whether folders are copied.
            maxdepth: Levels of folders; None for all.
            on_error: `raise`, or `ignore` for going on when something has gone away meanwhile; the default is
                `ignore` where it is recursive.
            **kwargs: Ignored.
        """
        if on_error not in (None, "raise", "ignore"):
            raise InvalidArgumentError(f"on_error is {quoted(on_error)}; pass raise or ignore")
        ignoring = on_error == "ignore" or (on_error is None and recursive)
        pairs = pairs_of(self, AbstractFileSystem.copy, path1, path2, recursive, maxdepth)
        with self._batches() as batch_for:
            targets = [(*batch_for(to), self.isdir(path)) for path, to in pairs]
            plan_all(
                [(batch, asked) for batch, asked, is_folder in targets if not is_folder],
                [(batch, asked) for batch, asked, is_folder in targets if is_folder],
            )
            for path, to in markers_first(pairs, lambda pair: str(pair[1])):
                try:
                    self._copy_one(batch_for, path, to)
                except NotFoundError:
                    if not ignoring or self.exists(path):
                        raise

    cp = copy

    def _copy_one(self, batch_for: _BatchFor, path1: Any, path2: Any) -> None:
        from_batch, source = batch_for(path1)
        to_batch, asked = batch_for(path2)
        if from_batch is to_batch:
            to_batch.copy(source, asked)
        elif self.info(path1)["type"] == "directory":
            to_batch.make_folder(asked, exist_ok=True)
        else:
            with self.open(path1, "rb") as file:
                write_all(to_batch, asked, iter(lambda: file.read(BLOCK), b""))

    @_writes
    def mv(
        self, path1: Any, path2: Any, recursive: bool = True, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        """Move a file, or a folder with all it holds; ids and UUIDs stay the same.

        As with a local filesystem, onto a folder it goes into that folder, and a file onto a file replaces
        it. Between two mounted stores it is a copy of all and then a removal of what was copied, and makes
        new entries; what is left out by its name stays, and links cannot go along.

        Args:
            path1: What to move; no pattern.
            path2: Where to.
            recursive: Ignored: a folder is moved with all it holds.
            maxdepth: Has to be None.
            **kwargs: Ignored.
        """
        if maxdepth is not None:
            raise InvalidArgumentError("a folder is moved with all it holds; leave maxdepth away")
        with self._batches() as batch_for:
            from_batch, source = batch_for(path1)
            to_batch, asked = batch_for(path2)
            if from_batch is to_batch:
                from_batch.move(source, asked)
            else:
                move_across(from_batch, source, to_batch, asked)

    move = rename = mv

    # -- removing ------------------------------------------------------------------------------------------

    @_writes
    def rm_file(self, path: Any) -> None:
        """Remove one file, or one link."""
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.remove([asked], recursive=False)

    _rm = rm_file

    @_writes
    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, with `recursive` whole folders and skills.

        All is checked first: where one of them may not be removed, none is. What is left out by its name
        stays, with the folders that hold it.

        Args:
            path: A path, a pattern that is no name of something, or a list of either.
            recursive: Whether folders are removed.
            maxdepth: Has to be None.
        """
        if maxdepth is not None:
            raise InvalidArgumentError("a folder is removed with all it holds; leave maxdepth away")
        with self._batches() as batch_for:
            doomed: dict[Batch, list[Asked]] = {}
            for name in path if isinstance(path, list | tuple) else [path]:
                for one in self._named(name):
                    batch, asked = batch_for(one)
                    doomed.setdefault(batch, []).append(asked)
            for batch, many in doomed.items():
                batch.remove(many, recursive=recursive)

    delete = rm

    def _named(self, name: Any) -> list[Any]:
        """What a path or pattern names; a name that something has is no pattern."""
        self._writer(name)
        if not has_magic(os.fspath(name)) or self.exists(name):
            return [name]
        found: list[Any] = self.glob(os.fspath(name))
        if not found:
            raise not_found(name)
        return found

    # -- folders -------------------------------------------------------------------------------------------

    @_writes
    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a folder inside a skill.

        Raises:
            FileExistsError: Something is there.
            NotFoundError: The folder above is missing and not to be made, or it is out of sight.
            InvalidArgumentError: It would lie in no skill, behind a link, or under a name that is left out.
        """
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.make_folder(asked, parents=create_parents)

    makedir = mkdir

    @_writes
    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Make a folder inside a skill, and those above it that are missing; see `mkdir`."""
        if exist_ok and self.isdir(path):
            return
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.make_folder(asked, exist_ok=exist_ok)

    mkdirs = makedirs

    @_writes
    def rmdir(self, path: Any) -> None:
        """Remove an empty folder.

        Raises:
            InvalidArgumentError: It is not empty, a link, or in no skill.
            IsFileError: It is a file.
        """
        with self._batches() as batch_for:
            batch, asked = batch_for(path)
            batch.remove_folder(asked)

    # -- transactions --------------------------------------------------------------------------------------

    @property
    def transaction(self) -> Any:
        """A context in which files that are written take their places together, at its end.

        When it ends by an exception, or with a file that was not closed, none does. Only files wait: folders,
        copies, moves and removals do not. It is of the thread that began it: what another thread writes
        meanwhile takes its place at once. There is one at a time.
        """
        self._require_writable()
        if self._transaction is None:
            self._transaction = self.transaction_type(self)
        return self._transaction

    @transaction.setter
    def transaction(self, value: object) -> None:
        self._require_writable()
        raise InvalidArgumentError("a transaction is not assigned; use start_transaction()")

    @_writes
    def start_transaction(self) -> Any:
        """Begin a transaction without a context; `end_transaction` ends it.

        Raises:
            InvalidArgumentError: One is under way.
        """
        transaction = self.transaction
        transaction.start()
        return transaction

    @_writes
    def end_transaction(self) -> None:
        """Let all files of the transaction take their places."""
        AbstractFileSystem.end_transaction(self)

    def _commit_all(self, files: Sequence[WrittenFile]) -> None:
        with contextlib.ExitStack() as stack:
            batches = {writer: stack.enter_context(writer.batch()) for writer in {f.writer for f in files}}
            plan_all([(batches[file.writer], file.asked) for file in files], [])
            created = [file for file in files if file.mode == "xb"]
            plan_all([(batches[file.writer], file.asked) for file in created], [], exclusive=True)
            for file in markers_first(files, lambda file: file.asked):
                file.commit_to(batches[file.writer])


def _put_one(batch: Batch, local: str, asked: Asked, exclusive: bool, callback: Any) -> None:
    def told() -> Iterator[bytes]:
        with contextlib.suppress(OSError):
            callback.set_size(os.stat(local).st_size)
        for block in local_blocks(local):
            yield block
            callback.relative_update(len(block))

    write_all(batch, asked, told(), exclusive=exclusive)


def _is_exclusive(mode: object) -> bool:
    if mode not in ("overwrite", "create"):
        raise InvalidArgumentError(f"mode is {quoted(mode)}; pass overwrite or create")
    return mode == "create"


def _bytes_of(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"the content of a file is bytes, not {quoted(value)}; encode text first")
    return bytes(value)
