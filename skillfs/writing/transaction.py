"""Files that take their places together."""

from __future__ import annotations

import threading
from typing import Any

from fsspec.transaction import Transaction

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["WritingTransaction"]


class WritingTransaction(Transaction):  # type: ignore[misc]  # fsspec is not typed
    """Files that take their places together, when the transaction ends.

    It is of the thread that began it; what others write meanwhile takes its place at once.
    """

    fs: Any
    thread: int | None = None

    def start(self) -> None:
        """Begin.

        Raises:
            InvalidArgumentError: One is under way, or this one has ended.
        """
        if self.fs is None:
            raise InvalidArgumentError("this transaction has ended; begin another")
        if self.fs._intrans:
            raise InvalidArgumentError("a transaction is under way; end it before another one begins")
        self.thread = threading.get_ident()
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Commit all files, or discard them; after a failure, those that were not committed yet.

        Raises:
            InvalidArgumentError: One is not closed; none is committed.
        """
        fs, files = self.fs, list(self.files)
        if fs is None:
            return
        self.files.clear()
        try:
            if commit:
                for file in files:
                    if file.forgotten or not (file.closed or file.discarded):
                        raise InvalidArgumentError(
                            f"{quoted(file.asked.shown)} was not closed before the transaction ended, and "
                            "nothing was written; close every file in it"
                        )
                fs._commit_all([file for file in files if not file.discarded])
        finally:
            for file in files:
                file.discard()
            fs._intrans = False
            fs._transaction = None
            self.fs = None

    @property
    def defers(self) -> bool:
        """Whether what the calling thread writes waits for the end."""
        return self.thread == threading.get_ident()
