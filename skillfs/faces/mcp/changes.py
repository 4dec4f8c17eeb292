"""Notifications of changes: to who subscribed in the handshake era, and to who listens since 2026-07-28.

The change feed runs only while somebody wants to know. Changes are gathered for a moment and told once each:
that a resource was updated, to who asked for it or for a folder above it; that the list changed, to all who
take that. A client that does not read holds up nobody else: what it was not told yet is one set.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from skillfs.errors import SkillFSError, quoted
from skillfs.faces.mcp.uris import path_of
from skillfs.faces.mcp.workers import Workers

if TYPE_CHECKING:
    from skillfs.core.model import Changes
    from skillfs.feed import ChangeFeed
    from skillfs.filesystem import SkillFileSystem

__all__ = ["Announcer"]

GATHER_SECONDS = 0.1
MOST_SUBSCRIPTIONS = 1_000
"""Resources that one client may subscribe to."""

MOST_LISTENERS = 256
LONGEST_URI = 8 * 1024
CLOSE_SECONDS = 5.0

_log = logging.getLogger("skillfs")


class _Client:
    """A client of the handshake era that is told of changes."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.subscribed: set[str] = set()
        self.has_listed = False
        self.updated: set[str] = set()
        self.list_changed = False
        self.told = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def tell(self) -> None:
        """Send what there is to be told, as fast as the client takes it."""
        while True:
            await self.told.wait()
            self.told.clear()
            updated, self.updated = sorted(self.updated), set()
            list_changed, self.list_changed = self.list_changed, False
            for uri in updated:
                if uri in self.subscribed:
                    await self.session.send_resource_updated(uri)
            if list_changed:
                await self.session.send_resource_list_changed()


class Announcer:
    """Tells clients what changed.

    Args:
        fs: The filesystem.
        workers: Threads for opening and closing the feed.
    """

    def __init__(self, fs: SkillFileSystem, workers: Workers) -> None:
        self._fs = fs
        self._workers = workers
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus, max_subscriptions=MOST_LISTENERS)
        self._clients: dict[int, _Client] = {}
        self._wanted: dict[str, dict[str, int]] = {}
        """Subscribed URIs by the path that they name, with the number of those who did."""
        self._listeners = 0
        self._feed: ChangeFeed | None = None
        self._changing: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._updated: set[str] = set()
        self._list_changed = False
        self._gathering: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_running(self) -> bool:
        """Whether the feed is open."""
        return self._feed is not None

    # -- who wants to know ---------------------------------------------------------------------------------

    async def subscribe(
        self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Serve `resources/subscribe`; answered when the feed is open, so that nothing later is missed."""
        _check_uri(params.uri)
        client = self._client(context)
        if params.uri not in client.subscribed:
            if len(client.subscribed) >= MOST_SUBSCRIPTIONS:
                message = f"{MOST_SUBSCRIPTIONS:,} resources are subscribed to; unsubscribe from some first"
                raise MCPError(INVALID_PARAMS, message)
            client.subscribed.add(params.uri)
            self._want(params.uri, 1)
        try:
            await self._keep_feed()
        except SkillFSError:
            self._drop(client, params.uri)
            raise
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """Serve `resources/unsubscribe`."""
        self._drop(self._client(context), params.uri)
        self._start(self._keep_feed())
        return EmptyResult()

    def _drop(self, client: _Client, uri: str) -> None:
        if uri in client.subscribed:
            client.subscribed.discard(uri)
            self._want(uri, -1)

    def listed(self, context: ServerRequestContext[Any, Any]) -> None:
        """Take note that a client of the handshake era has listed: it is told when the list changes."""
        if context.protocol_version < "2026":
            self._client(context).has_listed = True
            if self._feed is None and self._changing is None:  # also where it could not be opened before
                self._start(self._keep_feed())

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve `subscriptions/listen` until the client or the server ends."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > MOST_SUBSCRIPTIONS:
            message = f"{len(uris):,} resources are asked for; listen to {MOST_SUBSCRIPTIONS:,} at most"
            raise MCPError(INVALID_PARAMS, message)
        for uri in uris:
            _check_uri(uri)
        self._listeners += 1
        for uri in uris:
            self._want(uri, 1)
        try:
            await self._keep_feed()
            return await self._handler(context, params)
        finally:
            self._listeners -= 1
            for uri in uris:
                self._want(uri, -1)
            self._start(self._keep_feed())

    def _client(self, context: ServerRequestContext[Any, Any]) -> _Client:
        # The SDK hands out a proxy for each request; what lasts is the connection behind it.
        connection = context.session._connection
        client = self._clients.get(id(connection))
        if client is None:
            client = self._clients[id(connection)] = _Client(context.session)
            client.task = self._start(client.tell())
            connection.exit_stack.callback(self._leave, id(connection))
        return client

    def _leave(self, key: int) -> None:
        client = self._clients.pop(key, None)
        if client is None:
            return
        if client.task is not None:
            client.task.cancel()
        for uri in client.subscribed:
            self._want(uri, -1)
        self._start(self._keep_feed())

    def _want(self, uri: str, count: int) -> None:
        path = path_of(uri)
        if path is None:
            return
        uris = self._wanted.setdefault(path, {})
        uris[uri] = uris.get(uri, 0) + count
        if uris[uri] <= 0:
            del uris[uri]
        if not uris:
            del self._wanted[path]

    # -- the feed ------------------------------------------------------------------------------------------

    async def _keep_feed(self) -> None:
        """Open the feed, or close it, as it is wanted now.

        Raises:
            SkillFSError: It cannot be opened.
        """
        while True:
            clients = self._clients.values()
            wanted = self._listeners > 0 or any(c.subscribed or c.has_listed for c in clients)
            if self._changing is None:
                if self._is_closed or wanted == (self._feed is not None):
                    return
                self._changing = self._start(self._change_feed(wanted))
            # A request that is cancelled leaves alone what others wait for, too.
            await asyncio.shield(self._changing)

    async def _change_feed(self, wanted: bool) -> None:
        try:
            if wanted:
                self._loop = asyncio.get_running_loop()
                self._feed = await self._workers.run(self._fs.watch, self._take)
            elif self._feed is not None:
                feed, self._feed = self._feed, None
                await self._workers.run(feed.close)
        finally:
            self._changing = None

    def _take(self, changes: Changes) -> None:
        """Called by the feed, in its thread."""
        updated: set[str] = set()
        list_changed = changes.reset
        if changes.reset:
            updated.update(uri for uris in list(self._wanted.values()) for uri in list(uris))
        for item in changes.items:
            list_changed |= item.kind != "modified" or item.path.rpartition("/")[2] == "SKILL.md"
            for path in {item.path, item.old_path}:
                if path is not None:
                    updated.update(self._wanted_at(path))
        if (updated or list_changed) and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._gather, updated, list_changed)

    def _wanted_at(self, path: str) -> Iterator[str]:
        """URIs that are subscribed to and name a path or a folder above it."""
        while True:
            yield from list(self._wanted.get(path, ()))
            if not path:
                return
            path = path.rpartition("/")[0]

    def _gather(self, updated: set[str], list_changed: bool) -> None:
        self._updated |= updated
        self._list_changed |= list_changed
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(GATHER_SECONDS, lambda: self._start(self._tell()))

    async def _tell(self) -> None:
        self._gathering = None
        updated, self._updated = self._updated, set()
        list_changed, self._list_changed = self._list_changed, False
        for client in self._clients.values():
            client.updated |= updated & client.subscribed
            client.list_changed |= list_changed
            if client.updated or client.list_changed:
                client.told.set()
        for uri in sorted(updated):
            await self._bus.publish(ResourceUpdated(uri=uri))
        if list_changed:
            await self._bus.publish(ResourcesListChanged())

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SkillFSError):
            _log.warning("changes cannot be told now: %s", error.message)
        elif error is not None:
            _log.error("changes cannot be told now", exc_info=error)

    async def close(self) -> None:
        """Tell nobody any more, and close the feed."""
        self._is_closed = True
        self._handler.close()
        if self._gathering is not None:
            self._gathering.cancel()
        for task in self._tasks - {self._changing}:
            task.cancel()
        with contextlib.suppress(TimeoutError, SkillFSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._changing is not None:
                    await self._changing
                feed, self._feed = self._feed, None
                if feed is not None:
                    await self._workers.run(feed.close)


def _check_uri(uri: str) -> None:
    if path_of(uri) is None or len(uri) > LONGEST_URI:
        raise MCPError(INVALID_PARAMS, f"no resource is served at {quoted(uri)}; see resources/list")
