"""Notifications of changes, in both eras and over both transports; the feed runs for listeners only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated

from skillfs import SkillFileSystem
from skillfs.faces.mcp import changes as changes_module
from skillfs.faces.mcp.changes import Announcer
from skillfs.faces.mcp.server import make_server
from skillfs.faces.mcp.workers import Workers
from tests.conftest import skill_md, write
from tests.faces.mcp_clients import Anything, Refused, Served, Web, over_stdio

PATIENCE = 30.0
Open = Callable[..., SkillFileSystem]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Web, Path]]:
    store = write(tmp_path_factory.mktemp("store"), {"a/SKILL.md": skill_md("a"), "a/x.md": "x\n"})
    web = Web(store, tmp_path_factory.mktemp("home"))
    yield web, store
    assert "Traceback" not in web.close()


class Heard:
    """Notifications that a client of the handshake era got."""

    def __init__(self) -> None:
        self.updated: list[str] = []
        self.lists = 0

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.append(message.params.uri)
        elif isinstance(message, types.ResourceListChangedNotification):
            self.lists += 1


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing was told"
        time.sleep(0.01)


def check_handshake_era(served: Served, heard: Heard, store: Path) -> None:
    served.ask("resources/subscribe", uri="skill://a/x.md")
    served.ask("resources/subscribe", uri="skill://a")
    with pytest.raises(Refused):
        served.ask("resources/subscribe", uri="file:///etc/passwd")
    (store / "a/x.md").write_text("changed\n")
    until(lambda: {"skill://a/x.md", "skill://a"} <= set(heard.updated))
    write(store, {"b/SKILL.md": skill_md("b")})
    until(lambda: heard.lists > 0)
    assert "skill://b/SKILL.md" not in heard.updated
    served.ask("resources/unsubscribe", uri="skill://a/x.md")
    before = heard.updated.count("skill://a/x.md")
    whole = heard.updated.count("skill://a")
    (store / "a/x.md").write_text("changed again\n")
    until(lambda: heard.updated.count("skill://a") > whole)
    assert heard.updated.count("skill://a/x.md") == before


def test_the_handshake_era_over_stdio(tmp_path: Path, root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.md": "x\n"})
    heard = Heard()
    with over_stdio(root, tmp_path, "legacy", message_handler=heard) as served:
        check_handshake_era(served, heard, root)


def test_the_handshake_era_over_http(web: tuple[Web, Path]) -> None:
    heard = Heard()
    with web[0].client("legacy", message_handler=heard) as served:
        check_handshake_era(served, heard, web[1])


async def check_listening(client: Client, store: Path) -> None:
    (store / "a/x.md").write_text("before\n")
    listening = client.listen(resources_list_changed=True, resource_subscriptions=["skill://a/x.md"])
    async with listening as subscription:
        events = subscription.__aiter__()
        with anyio.fail_after(PATIENCE):
            (store / "a/x.md").write_text("changed\n")
            while await anext(events) != ResourceUpdated(uri="skill://a/x.md"):
                pass
            write(store, {"c/SKILL.md": skill_md("c")})
            while await anext(events) != ResourcesListChanged():
                pass


def test_listening_over_http(web: tuple[Web, Path]) -> None:
    with web[0].client("auto") as served:
        served.do(check_listening, served.client, web[1])


# -- in this process ---------------------------------------------------------------------------------------


def run(fs: SkillFileSystem, use: Callable[[Client, SkillFileSystem], Any], **options: Any) -> None:
    async def inner() -> None:
        async with Client(make_server(fs), cache=None, **options) as client:
            with anyio.fail_after(PATIENCE):
                await use(client, fs)

    asyncio.run(inner())


async def subscribe(client: Client, uri: str, method: str = "resources/subscribe") -> None:
    # The client's own method warns that it is of an older era.
    request = Anything(method=method, params={"uri": uri})
    await client.session.send_request(request, types.EmptyResult)


async def watched(fs: SkillFileSystem, state: str) -> None:
    while fs.status()["watch"] != state:
        await anyio.sleep(0.01)


def test_the_feed_runs_while_somebody_listens(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})

    async def use(client: Client, fs: SkillFileSystem) -> None:
        await client.list_resources()
        await client.read_resource("skill://a/SKILL.md")
        assert fs.status()["watch"] == "off"
        async with client.listen(resources_list_changed=True):
            await watched(fs, "watching")
            async with client.listen(resource_subscriptions=["skill://a"]):
                pass
            assert fs.status()["watch"] == "watching"
        await watched(fs, "off")
        async with client.listen(resources_list_changed=True):
            await watched(fs, "watching")

    fs = open_fs()
    run(fs, use, mode="auto")
    asyncio.run(watched(fs, "off"))


def test_a_client_of_the_handshake_era_that_lists_is_told(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    heard = Heard()

    async def use(client: Client, fs: SkillFileSystem) -> None:
        await client.read_resource("skill://a/SKILL.md")
        assert fs.status()["watch"] == "off"
        await client.list_resources()
        await watched(fs, "watching")
        write(root, {"b/SKILL.md": skill_md("b")})
        while not heard.lists:
            await anyio.sleep(0.01)

    fs = open_fs()
    run(fs, use, mode="legacy", message_handler=heard)
    asyncio.run(watched(fs, "off"))


def test_the_feed_ends_with_the_last_subscription(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})

    async def use(client: Client, fs: SkillFileSystem) -> None:
        for name in "ab":
            await subscribe(client, f"skill://{name}")
        assert fs.status()["watch"] != "off"
        await subscribe(client, "skill://a", "resources/unsubscribe")
        await subscribe(client, "skill://none", "resources/unsubscribe")
        await anyio.sleep(0.05)
        assert fs.status()["watch"] != "off"
        await subscribe(client, "skill://b", "resources/unsubscribe")
        await watched(fs, "off")
        await subscribe(client, "skill://a")
        await watched(fs, "watching")

    run(open_fs(), use, mode="legacy")


def test_changes_are_gathered(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), **{f"a/{n}.md": "x\n" for n in range(50)}})
    monkeypatch.setattr(changes_module, "GATHER_SECONDS", 1.0)
    heard = Heard()

    async def use(client: Client, fs: SkillFileSystem) -> None:
        await subscribe(client, "skill://a")
        for number in range(50):
            (root / f"a/{number}.md").write_text("changed\n")
        (root / "a/50.md").write_text("new\n")
        while not heard.lists:
            await anyio.sleep(0.01)

    run(open_fs(), use, mode="legacy", message_handler=heard)
    assert 1 <= len(heard.updated) <= 3
    assert 1 <= heard.lists <= 3


def test_too_many_subscriptions(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    monkeypatch.setattr(changes_module, "MOST_SUBSCRIPTIONS", 2)

    async def use(client: Client, fs: SkillFileSystem) -> None:
        for name in "aab":
            await subscribe(client, f"skill://{name}")
        with pytest.raises(Exception, match="unsubscribe"):
            await subscribe(client, "skill://c")
        await subscribe(client, "skill://a", "resources/unsubscribe")
        await subscribe(client, "skill://c")

    run(open_fs(), use, mode="legacy")


def test_a_base_keeps_changes_elsewhere_to_itself(root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "b/SKILL.md": skill_md("b")})
    fs = SkillFileSystem(root, index=":memory:", base_paths=["a"])
    heard = Heard()

    async def use(client: Client, fs: SkillFileSystem) -> None:
        for uri in ("skill://b", "skill://a/SKILL.md"):
            await subscribe(client, uri)
        write(root, {"b/new.md": "new\n", "b/SKILL.md": skill_md("b", "changed")})
        await anyio.sleep(0.4)
        assert not heard.updated
        assert not heard.lists
        write(root, {"a/SKILL.md": skill_md("a", "changed")})
        while not heard.updated:
            await anyio.sleep(0.01)

    run(fs, use, mode="legacy", message_handler=heard)
    assert set(heard.updated) == {"skill://a/SKILL.md"}


def test_a_feed_that_cannot_be_opened(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    fs = open_fs()
    monkeypatch.setenv("SKILLFS_WATCH", "nonsense")

    async def use(client: Client, fs: SkillFileSystem) -> None:
        await client.list_resources()
        with pytest.raises(Exception, match="SKILLFS_WATCH"):
            await subscribe(client, "skill://a")
        await anyio.sleep(0.05)
        monkeypatch.setenv("SKILLFS_WATCH", "auto")
        await client.read_resource("skill://a/SKILL.md")
        assert fs.status()["watch"] == "off"
        with anyio.fail_after(PATIENCE):
            await client.list_resources()
            await watched(fs, "watching")

    run(fs, use, mode="legacy")


def test_an_end_while_the_feed_opens(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is opened for somebody who has gone is closed again."""
    write(root, {"a/SKILL.md": skill_md("a")})
    fs = open_fs()
    watch = fs.watch

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.2)
        return watch(*arguments)

    monkeypatch.setattr(fs, "watch", slowly)

    async def inner() -> None:
        workers = Workers()
        announcer = Announcer(fs, workers)
        announcer._listeners = 1
        opening = asyncio.create_task(announcer._keep_feed())
        await asyncio.sleep(0.05)
        opening.cancel()
        await announcer.close()
        workers.close()
        assert not announcer.is_running

    asyncio.run(inner())
    asyncio.run(watched(fs, "off"))
