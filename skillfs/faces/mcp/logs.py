"""What the SDK and the web server log, told as our own is: Python would write it raw, and every time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AGAIN_SECONDS", "others_logged"]

AGAIN_SECONDS = 60.0
"""Seconds for which a message is not told again: clients that cause it must not fill the log."""

_OTHERS = ("mcp", "uvicorn")
_MOST_KNOWN = 1_000

_log = logging.getLogger("skillfs")


class _Passing(logging.Handler):
    """Passes warnings and errors on to our own log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: dict[tuple[str, int], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        # By where it is logged, as a message may hold what a client sent.
        place, now = (record.pathname, record.lineno), time.monotonic()
        last = self._told.get(place)
        if last is not None and now - last < AGAIN_SECONDS:
            return
        if len(self._told) >= _MOST_KNOWN:
            self._told.clear()
        self._told[place] = now
        _log.handle(record)


@contextmanager
def others_logged() -> Iterator[None]:
    """Tell what others log as long as this lasts."""
    handler = _Passing()
    loggers = [logging.getLogger(name) for name in _OTHERS]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagates in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagates
