"""The suite that proves stores, over web servers, and what else servers do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from skillfs import SkillFileSystem
from skillfs.errors import IsFileError, NotFoundError, SkillFSError, StoreUnavailableError, UnreadableError
from skillfs.stores.http import _links_in
from tests.conftest import skill_md, write
from tests.servers.folders import OverAFolder, earlier
from tests.servers.listener import Answer, Incoming, Listener
from tests.servers.web import WebServer, plain_server

if TYPE_CHECKING:
    from skillfs.testing.suite import Seed


class TestPlainWeb(OverAFolder):
    """Over the server that comes with Python, which knows no ranges and no versions."""

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
        top = tmp_path_factory.mktemp("web")
        numbers = count(1)
        with plain_server(top) as url:

            def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
                number = next(numbers)
                cls.place = earlier(write(top / f"{number}/some skills", files))
                return {"store": f"{url}/{number}/some%20skills"}

            yield lay


class TestWeb(OverAFolder):
    """Over a server with ranges and ETags."""

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
        top = tmp_path_factory.mktemp("web")
        server = WebServer(top)
        numbers = count(1)

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            number = next(numbers)
            cls.place = write(top / f"{number}", files)
            return {"store": f"{server.url}/{number}/"}

        yield lay
        server.close()


# -- what servers do -----------------------------------------------------------------------------------------

FILES = {
    "a/SKILL.md": skill_md("a"),
    "a/one.md": "one\n",
    "a/big.md": "line\n" * 100_000,
    "a/http-client/x.md": "x\n",
    "a/https.md": "y\n",
    "a/deep/er/two.md": "two\n",
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.5)
    server = WebServer(earlier(write(tmp_path / "web", {f"skills/{p}": c for p, c in FILES.items()})))
    yield server
    server.close()


def opened(server: WebServer, **options: Any) -> SkillFileSystem:
    given = {"index": ":memory:", "skip_instance_cache": True, "max_age": 3600, **options}
    return SkillFileSystem(f"{server.url}/skills", **given)


def spoilt(
    server: WebServer, path: str, answer: Answer | Callable[[Answer], Answer], *, method: str = ""
) -> None:
    def spoil(incoming: Incoming, given: Answer) -> Answer:
        if incoming.target != path or method not in ("", incoming.method):
            return given
        return answer if isinstance(answer, Answer) else answer(given)

    server.spoil = spoil


def test_requests(server: WebServer) -> None:
    fs = opened(server)
    assert fs._engine.store.tells == "version"  # type: ignore[attr-defined]
    fs.index_all()
    server.forget()
    fs.sync()
    assert server.counts == {"page": 5, "HEAD": 6}
    server.forget()
    assert fs.get_content("a/big.md", 250_000, 10).text == FILES["a/big.md"][250_000:250_010]
    assert server.counts == {"file": 1}
    assert server.sent < 10_000
    server.forget()
    assert fs.cat_file("a/one.md") == b"one\n"
    assert server.counts == {"file": 1}


def test_names_that_begin_like_a_url_are_listed(server: WebServer) -> None:
    assert opened(server).find("") == sorted(FILES)


def test_as_an_instance(server: WebServer) -> None:
    fs = fsspec.filesystem("http", use_listings_cache=True)
    before = dict(vars(fs))
    store = SkillFileSystem(f"{server.url}/skills", fs=fs, index=":memory:", skip_instance_cache=True)
    assert store.cat_file("a/one.md") == b"one\n"
    assert vars(fs) == before
    assert store._engine is opened(server)._engine


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnreadableError),
        (403, UnreadableError),
        (500, StoreUnavailableError),
        (503, StoreUnavailableError),
    ],
)
@pytest.mark.parametrize("path", ["/skills/", "/skills/a/", "/skills/a/deep/", "/skills/a/one.md"])
def test_a_listing_that_fails_removes_nothing(
    server: WebServer, path: str, status: int, kind: type[SkillFSError]
) -> None:
    fs = opened(server)
    spoilt(server, path, Answer(status))
    with pytest.raises(kind) as caught:
        fs.sync()
    assert "127.0.0.1" not in str(caught.value)
    assert fs.find("") == sorted(FILES)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(401), "unreadable"),
        (Answer(403), "unreadable"),
        (Answer(500), "unavailable"),
        (Answer(418), "unavailable"),
        (Answer(0), "unavailable"),
        (Answer(0, reset=True), "unavailable"),
        (lambda answer: replace(answer, end=2), "unavailable"),
        (lambda answer: replace(answer, delay=3.0), "unavailable"),
        (lambda answer: replace(answer, pause=(1, 3.0)), "unavailable"),
        (Answer(302, (("Location", "http://127.0.0.1:1/skills/a/one.md"),)), "unavailable"),
        (Answer(302, (("Location", "https://elsewhere.example/"),)), "unavailable"),
        (Answer(302, (("Location", "/skills/a/one.md"),)), "unavailable"),
        (Answer(304), "unavailable"),
        (Answer(206, (("Content-Range", "bytes 1-3/4"),), b"ne\n"), "changed"),
        (Answer(200, (), b"two\n"), "changed"),
    ],
)
def test_a_reading_that_fails(
    server: WebServer, answer: Answer | Callable[[Answer], Answer], code: str
) -> None:
    fs = opened(server)
    fs.index_all()
    spoilt(server, "/skills/a/one.md", answer, method="GET")
    started = time.monotonic()
    for read in (fs.cat_file, fs.get_content):
        with pytest.raises(SkillFSError) as caught:
            read("a/one.md")
        assert caught.value.code == code, caught.value
        assert "127.0.0.1" not in str(caught.value)
        assert "elsewhere" not in str(caught.value)
    assert time.monotonic() - started < 8
    server.spoil = lambda incoming, given: given
    assert fs.cat_file("a/one.md") == b"one\n"


def test_a_long_file_that_breaks_off_is_gone_on_with(server: WebServer) -> None:
    fs = opened(server)
    left = [2]

    def cut(answer: Answer) -> Answer:
        left[0] -= 1
        return replace(answer, end=100_000) if left[0] >= 0 else answer

    spoilt(server, "/skills/a/big.md", cut, method="GET")
    assert fs.cat_file("a/big.md").decode() == FILES["a/big.md"]


def test_no_other_server_is_asked(server: WebServer) -> None:
    asked = []

    def answer(incoming: Incoming) -> Answer:
        asked.append(incoming.target)
        return Answer(200, (("Content-Type", "text/html"),), b"<a href='x.md'>x</a>")

    other = Listener(answer)
    try:
        for path in ("/skills/", "/skills/a/", "/skills/a/one.md"):
            moved = Answer(301, (("Location", f"{other.endpoint}{path}"), ("Content-Type", "text/html")))
            spoilt(server, path, moved)
            with pytest.raises(StoreUnavailableError, match="another server"):
                opened(server)
    finally:
        other.close()
    assert asked == []


def test_on_the_same_server_redirects_are_followed(server: WebServer) -> None:
    spoilt(server, "/skills/a/one.md", Answer(302, (("Location", "/skills/a/deep/er/two.md"),)))
    assert opened(server).cat_file("a/one.md") == b"two\n"


def test_a_file_that_goes_while_all_is_listed(server: WebServer) -> None:
    spoilt(server, "/skills/a/one.md", Answer(404))
    fs = opened(server)
    assert fs.find("") == sorted(set(FILES) - {"a/one.md"})


@pytest.mark.parametrize("status", [405, 501])
def test_servers_that_know_no_head(server: WebServer, status: int) -> None:
    def spoil(incoming: Incoming, answer: Answer) -> Answer:
        return Answer(status) if incoming.method == "HEAD" else answer

    server.spoil = spoil
    fs = opened(server)
    assert fs.find("") == sorted(FILES)
    assert fs.cat_file("a/one.md") == b"one\n"


def test_the_same_second_and_the_same_size(server: WebServer) -> None:
    """Servers that make their ETags of these two, or have none, do not tell such changes."""

    def spoil(incoming: Incoming, answer: Answer) -> Answer:
        kept = tuple(header for header in answer.headers if header[0] != "ETag")
        return replace(answer, headers=(*kept, ("ETag", '"always"')))

    server.spoil = spoil
    fs = opened(server)
    file = server.folder / "skills/a/one.md"
    for content in ("two\n", "six\n", "ten\n"):
        file.write_text(content)
        second = int(time.time())
        os.utime(file, (second, second))
        assert fs.get_content("a/one.md").text == content


def test_what_is_no_folder(server: WebServer) -> None:
    def error_of(path: str) -> type[SkillFSError]:
        with pytest.raises(SkillFSError) as caught:
            SkillFileSystem(f"{server.url}{path}", index=":memory:", skip_instance_cache=True)
        assert "127.0.0.1" not in str(caught.value)
        return type(caught.value)

    assert error_of("/none") is NotFoundError
    assert error_of("/skills/a/one.md") is NotFoundError
    spoilt(server, "/text/", Answer(200, (("Content-Type", "text/plain"),), b"text"))
    assert error_of("/text") is IsFileError
    portal = Answer(200, (("Content-Type", "text/html"),), b"<html><body>Sign in: <a href='/login'>here</a>")
    spoilt(server, "/skills/", portal)
    assert error_of("/skills") is StoreUnavailableError


def test_a_portal_in_between_removes_nothing(server: WebServer) -> None:
    fs = opened(server)
    page = Answer(200, (("Content-Type", "text/html"),), b"<html><body>Sign in</body></html>")
    server.spoil = lambda incoming, answer: page
    with pytest.raises(StoreUnavailableError, match="no listing"):
        fs.sync()
    assert fs.find("") == sorted(FILES)
    server.spoil = lambda incoming, answer: Answer(404)
    with pytest.raises(StoreUnavailableError, match="away"):
        fs.sync()
    assert fs.find("") == sorted(FILES)


@pytest.mark.parametrize(
    ("href", "name"),
    [
        ("x.md", "x.md"),
        ("./x.md", "x.md"),
        ("/s%20t/a/x.md", "x.md"),
        ("/s t/a/x.md", "x.md"),
        ("http://h:1/s%20t/a/x.md", "x.md"),
        ("b/", "b/"),
        ("b/c.md", "b/c.md"),
        ("x%23%3F%25.md", "x#?%.md"),
        ("x&amp;y.md", "x&y.md"),
        ("md5%3Ax/", "md5:x/"),
        ("http-client/", "http-client/"),
        ("a%2Fb", "a\0b"),
        ("%FF.md", "\udcff.md"),
        ("../", None),
        ("../x.md", None),
        ("/", None),
        ("./", None),
        ("?C=N;O=D", None),
        ("#top", None),
        ("http://other/s%20t/a/x.md", None),
        ("https://h:1/s%20t/a/x.md", None),
        ("//other/s%20t/a/x.md", None),
        ("javascript:void(0)", None),
        ("mailto:me@example.org", None),
        ("http://[", None),
    ],
)
def test_links(href: str, name: str | None) -> None:
    page = f'<html><A class="x" HREF="{href}">a</A><a name="y">b</a><link href="z.md"></html>'
    assert _links_in(page, "http://h:1/s%20t/a/") == ([] if name is None else [name])
