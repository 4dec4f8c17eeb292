"""Servers of files over HTTP and FTP, and an interface like that of GitHub, on the loopback interface."""

from __future__ import annotations

import base64
import hashlib
import html
import http.server
import json
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from tests.servers.listener import Answer, Incoming, Listener

__all__ = ["GithubServer", "WebServer", "ftp_server", "plain_server"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Nothing."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def plain_server(folder: Path) -> Iterator[str]:
    """The one that comes with Python: no ranges, no ETag, HTTP/1.0. Yields its URL."""

    def handler(*args: Any) -> _Quiet:
        return _Quiet(*args, directory=str(folder))

    server = _Server(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class WebServer:
    """Serves a folder with ETag, Last-Modified and ranges; what it is asked can be counted and spoilt.

    Attributes:
        folder: What is served.
        asked: Method and decoded path of each request.
        spoil: Called with request and answer, for what to send instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        self.spoil: Callable[[Incoming, Answer], Answer] = lambda incoming, answer: answer
        self._listener = Listener(self._answered)
        self.url = self._listener.endpoint

    @property
    def counts(self) -> dict[str, int]:
        """How often each method was asked for; a page and a file apart."""
        return dict(
            Counter(
                method if method != "GET" else "page" if path.endswith("/") else "file"
                for method, path in self.asked
            )
        )

    def forget(self) -> None:
        """Count from the start."""
        self.asked.clear()
        self.sent = 0

    def close(self) -> None:
        self._listener.close()

    def _answered(self, incoming: Incoming) -> Answer:
        answer = self.spoil(incoming, self._answer(incoming))
        self.asked.append((incoming.method, unquote(incoming.target)))
        self.sent += answer.sent
        return answer

    def _answer(self, incoming: Incoming) -> Answer:
        target = unquote(incoming.target.partition("?")[0])
        path = self.folder / target.lstrip("/")
        if path.is_dir():
            if not target.endswith("/"):
                return Answer(301, (("Location", f"{incoming.target}/"),))
            names = sorted(f"{child.name}/" if child.is_dir() else child.name for child in path.iterdir())
            links = "".join(f'<li><a href="./{quote(n)}">{html.escape(n)}</a>\n' for n in names)
            page = f"<html><body><a href='?C=N;O=D'>Name</a><a href='../'>Up</a><ul>{links}</ul></html>"
            return _bodied(incoming, 200, (("Content-Type", "text/html; charset=utf-8"),), page.encode())
        if not path.is_file() or target.endswith("/"):
            return _bodied(incoming, 404, (), b"none")
        content = path.read_bytes()
        headers = (
            ("ETag", f'"{hashlib.md5(content).hexdigest()}"'),
            ("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True)),
            ("Date", formatdate(usegmt=True)),
            ("Accept-Ranges", "bytes"),
        )
        wanted = incoming.headers.get("range")
        if wanted is None:
            return _bodied(incoming, 200, headers, content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if int(first) >= len(content):
            return Answer(416, (("Content-Range", f"bytes */{len(content)}"),))
        end = min(int(last) + 1, len(content)) if last else len(content)
        span = ("Content-Range", f"bytes {first}-{end - 1}/{len(content)}")
        return _bodied(incoming, 206, (*headers, span), content[int(first) : end])


def _bodied(incoming: Incoming, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> Answer:
    if incoming.method == "HEAD":
        return Answer(status, (*headers, ("Content-Length", str(len(body)))))
    return Answer(status, headers, body)


class GithubServer:
    """Trees and contents of one repository, as the interface of GitHub gives them.

    Attributes:
        files: Path to content.
        links: Paths that are symbolic links, to where they lead.
        asked: Decoded path of each request.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.asked: list[str] = []
        self._listener = Listener(self._answer)
        self.url = self._listener.endpoint
        self.templates = {
            "url": self.url + "/repos/{org}/{repo}/git/trees/{sha}",
            "content_url": self.url + "/repos/{org}/{repo}/contents/{path}?ref={sha}",
        }

    def close(self) -> None:
        self._listener.close()

    def _answer(self, incoming: Incoming) -> Answer:
        path, _, query = incoming.target.partition("?")
        self.asked.append(unquote(path))
        parts = path.split("/", 5)
        if path.startswith("/raw/"):
            return _bodied(incoming, 200, (), self.files[unquote(path[5:])])
        if parts[1:4] != ["repos", "team", "kit"]:
            return Answer(404)
        if parts[4] == "git":
            trees = self._trees()
            sha = parts[5].removeprefix("trees/")
            found = trees.get("" if sha == "main" else sha)
            return Answer(404) if found is None else _json({"sha": sha, "tree": found})
        name = unquote(parts[5])
        if name not in self.files or parse_qs(query).get("ref") != ["main"]:
            return Answer(404)
        content = self.files[name]
        inside = base64.encodebytes(content).decode() if len(content) <= 1 << 20 else ""
        return _json({"content": inside, "download_url": f"{self.url}/raw/{quote(name)}"})

    def _trees(self) -> Mapping[str, list[dict[str, Any]]]:
        """By SHA, what is in each folder; the root is under an empty one."""
        below: dict[str, dict[str, dict[str, Any]]] = {"": {}}
        contents = {**self.files, **{path: to.encode() for path, to in self.links.items()}}
        for path, content in contents.items():
            above, _, name = path.rpartition("/")
            mode = "120000" if path in self.links else "100644"
            sha = hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()
            below.setdefault(above, {})[name] = {
                "path": name, "mode": mode, "type": "blob", "size": len(content), "sha": sha,
            }  # fmt: skip
            while above:
                folder, above = above, above.rpartition("/")[0]
                below.setdefault(above, {})[folder.rpartition("/")[2]] = {
                    "path": folder.rpartition("/")[2], "mode": "040000", "type": "tree",
                    "sha": hashlib.sha1(folder.encode()).hexdigest(),
                }  # fmt: skip
        return {
            hashlib.sha1(folder.encode()).hexdigest() if folder else "": list(children.values())
            for folder, children in below.items()
        }


def _json(value: object) -> Answer:
    return Answer(200, (("Content-Type", "application/json"),), json.dumps(value).encode())


@contextmanager
def ftp_server(folder: Path, user: str, password: str) -> Iterator[tuple[str, int]]:
    """A server of a folder for one user, and for whoever gives no name. Yields host and port."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it uses what later versions of Python lack
        from pyftpdlib.authorizers import DummyAuthorizer
        from pyftpdlib.handlers import FTPHandler
        from pyftpdlib.ioloop import IOLoop
        from pyftpdlib.servers import FTPServer

    authorizer = DummyAuthorizer()
    authorizer.add_user(user, password, str(folder), perm="elradfmwMT")
    authorizer.add_anonymous(str(folder))

    class Handler(FTPHandler):  # type: ignore[misc]
        auth_failed_timeout = 0.01

        def log(self, *args: Any, **options: Any) -> None:
            """Nothing."""

        logline = log

    Handler.authorizer = authorizer
    loop = IOLoop()
    server = FTPServer(("127.0.0.1", 0), Handler, ioloop=loop)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            server.serve_forever(timeout=0.02, blocking=False)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.address
    finally:
        ended.set()
        thread.join()
        server.close_all()
