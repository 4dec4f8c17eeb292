"""FTP, by fsspec's filesystem for it, made to say what went wrong.

That one takes every failure for a missing folder, goes on with a connection that has ended, and knows no
times. A server takes one command at a time, so whoever uses this calls it from one thread at a time.
"""

from __future__ import annotations

import ftplib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from fsspec.implementations.ftp import FTPFileSystem, _mlsd2

__all__ = ["FtpFileSystem"]

T = TypeVar("T")

_UNKNOWN_COMMAND = ("500", "501", "502", "504")


class FtpFileSystem(FTPFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """Files of an FTP server. Paths are absolute and taken as they are."""

    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        if path.startswith("ftp://"):
            path = path[6:].partition("/")[2]
        return "/" + path.strip("/")

    def _connect(self) -> None:
        try:
            super()._connect()
        except ftplib.error_perm as error:
            raise _meant(error) from error

    def __del__(self) -> None:
        if connection := getattr(self, "ftp", None):
            connection.close()

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What is in a folder."""
        path = self._strip_protocol(path)
        try:
            listed = self._ask(lambda: list(self.ftp.mlsd(path)))
        except ftplib.error_perm as error:
            if not str(error).startswith(_UNKNOWN_COMMAND):
                raise
            listed = self._ask(lambda: _mlsd2(self.ftp, path))
        top = path.rstrip("/")
        infos = [
            _info(f"{top}/{name}", facts)
            for name, facts in listed
            if name not in (".", "..") and facts.get("type") not in ("cdir", "pdir")
        ]
        return infos if detail else [info["name"] for info in infos]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Facts of one thing: by a listing of the folder that it is in."""
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": "/", "size": 0, "type": "directory"}
        for info in self.ls(path.rpartition("/")[0] or "/"):
            if info["name"] == path:
                return dict(info)
        raise FileNotFoundError(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Bytes of a file; of a part the transfer is broken off where the part ends."""
        path = self._strip_protocol(path)
        start = start or 0

        def fetch() -> bytes:
            self.ftp.voidcmd("TYPE I")
            parts = []
            left = -1 if end is None else end - start
            with self.ftp.transfercmd(f"RETR {path}", rest=start or None) as connection:
                while left and (data := connection.recv(self.blocksize)):
                    parts.append(data if left < 0 else data[:left])
                    left = left if left < 0 else left - len(parts[-1])
            try:
                self.ftp.voidresp()
            except (ftplib.error_temp, ftplib.error_perm):
                if left:
                    raise
            return b"".join(parts)

        return self._ask(fetch)

    def _ask(self, work: Callable[[], T]) -> T:
        """Do something over the connection, which is made anew when it has ended or is out of step."""
        try:
            return work()
        except ftplib.error_perm as error:
            raise _meant(error) from error
        except (ftplib.Error, OSError, EOFError):
            self.ftp.close()
            self._connect()
            raise


def _meant(error: ftplib.error_perm) -> Exception:
    text = str(error)
    if text.startswith("530") or "denied" in text.lower() or "permission" in text.lower():
        return PermissionError("the server does not allow it")
    if text.startswith("550"):
        return FileNotFoundError("the server knows no such file")
    return error


def _info(name: str, facts: dict[str, Any]) -> dict[str, Any]:
    kind = {"dir": "directory"}.get(facts["type"], facts["type"])
    info: dict[str, Any] = {"name": name, "type": kind, "size": int(facts.get("size", 0))}
    modified = facts.get("modify")
    if kind == "file" and isinstance(modified, str) and modified[:14].isdecimal():
        info["mtime"] = datetime.strptime(modified[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    if unique := facts.get("unique"):
        info["unique"] = unique
    return info
