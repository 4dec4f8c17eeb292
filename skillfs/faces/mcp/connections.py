"""Connections over HTTP, with limits to how long a client may take."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEADER_SECONDS", "READ_SECONDS", "Connection"]

HEADER_SECONDS = 10.0
"""Seconds that a client has for the head of a request."""

READ_SECONDS = 60.0
"""Seconds for which a client may not read what is sent to it."""


class Connection(H11Protocol):
    """uvicorn's protocol with limits to how long a client may take for the head of a request, or not read."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        """Begin to wait for a head, or see that it is there."""
        if self._late is None and self._is_idle():
            self._late = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        super().data_received(data)
        if not self._is_idle():
            self._in_time()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._in_time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._reads()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._in_time()
        self._reads()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _reads(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
