"""An S3 that misbehaves: a second listener in front of the server, with rules for what goes wrong when.

A fault is looked for by operation and key, may come from the n-th such request on and so many times or for
ever::

    faulty.add(SLOW_DOWN, "GetObject", times=2)                  # the third time is lucky
    faulty.add(Cut(1000), "GetObject", key="*/big.md")
    faulty.add(INTERNAL_ERROR, "ListObjectsV2", first=2)         # page two of a listing, and all after
    faulty.add(Hook(lambda request: bucket.delete("a/b.md")), "GetObject", times=1)

Of several faults that fit a request every hook runs, the first answer counts, and all that happens on the way
back adds up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

from tests.servers.listener import Answer, Incoming, Listener
from tests.servers.s3 import KEY, SECRET, Recorder, Request, S3Server, request_of

__all__ = [
    "ACCESS_DENIED",
    "INTERNAL_ERROR",
    "SLOW_DOWN",
    "Cut",
    "Delay",
    "Error",
    "Fault",
    "FaultyS3",
    "Hook",
    "Html",
    "Redirect",
    "Reset",
    "Rule",
    "ShortLength",
]

LISTINGS = {"ListObjectsV2", "ListObjects", "ListObjectVersions"}


class Fault(Protocol):
    """Something that goes wrong."""

    def before(self, request: Request) -> Answer | None:
        """Called before a request is passed on; an answer is sent instead of passing it on."""

    def after(self, answer: Answer) -> Answer:
        """What is sent in place of an answer."""


class _OnTheWayThere:
    def after(self, answer: Answer) -> Answer:
        return answer


class _OnTheWayBack:
    def before(self, request: Request) -> Answer | None:
        return None


@dataclass(frozen=True)
class Error(_OnTheWayThere):
    """An error as S3 answers it.

    Attributes:
        status: Of HTTP.
        code: Of S3, such as `SlowDown`.
        message: For people.
    """

    status: int
    code: str
    message: str = "An error that was asked for."

    def before(self, request: Request) -> Answer | None:
        """The error."""
        return _xml(
            self.status,
            f"<Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message>"
            f"<Resource>/{escape(request.bucket)}/{escape(request.key)}</Resource>",
            request,
        )


SLOW_DOWN = Error(503, "SlowDown", "Please reduce your request rate.")
INTERNAL_ERROR = Error(500, "InternalError", "We encountered an internal error. Please try again.")
ACCESS_DENIED = Error(403, "AccessDenied", "Access Denied")


@dataclass(frozen=True)
class Html(_OnTheWayThere):
    """A page of HTML where XML or an object is expected: a captive portal with 200, a gateway with 502."""

    status: int = 200

    def before(self, request: Request) -> Answer | None:
        """The page."""
        page = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>Sign in</body></html>"
        return Answer(self.status, (("Content-Type", "text/html"),), _no_body_for_head(page, request))


@dataclass(frozen=True)
class Redirect(_OnTheWayThere):
    """A permanent redirect to another host, as for a bucket of another region.

    Attributes:
        location: URL to go to; by default one where nobody answers.
        region: Said to be the bucket's.
    """

    location: str = "http://127.0.0.1:1/"
    region: str = "eu-central-1"

    def before(self, request: Request) -> Answer | None:
        """The redirect."""
        answer = _xml(
            301,
            "<Code>PermanentRedirect</Code><Message>The bucket must be addressed elsewhere.</Message>"
            f"<Endpoint>{escape(self.location)}</Endpoint><Bucket>{escape(request.bucket)}</Bucket>",
            request,
        )
        more = (("Location", self.location), ("x-amz-bucket-region", self.region))
        return replace(answer, headers=answer.headers + more)


@dataclass(frozen=True)
class Reset:
    """The connection is reset.

    Attributes:
        at: Bytes of the body that are sent before; None for not even a status line, and then the request is
            not passed on.
    """

    at: int | None = None

    def before(self, request: Request) -> Answer | None:
        """Nothing but the reset, when it comes before the answer."""
        return Answer(0, reset=True) if self.at is None else None

    def after(self, answer: Answer) -> Answer:
        """The answer, cut and reset."""
        return replace(answer, end=self.at or 0, reset=True)


@dataclass(frozen=True)
class Cut(_OnTheWayBack):
    """The connection is closed in good order within the body, though Content-Length promised all of it.

    Attributes:
        at: Bytes of the body that are sent.
    """

    at: int

    def after(self, answer: Answer) -> Answer:
        """The answer, cut."""
        return replace(answer, end=self.at)


@dataclass(frozen=True)
class ShortLength(_OnTheWayBack):
    """Content-Length is smaller than the body.

    Attributes:
        missing: Bytes by which it is too small.
    """

    missing: int = 1

    def after(self, answer: Answer) -> Answer:
        """The answer with another length."""
        return replace(answer, length=max(0, len(answer.body) - self.missing))


@dataclass(frozen=True)
class Delay(_OnTheWayBack):
    """An answer that takes its time.

    Attributes:
        seconds: Of silence.
        at: Bytes of the body that come before it; None for not even a status line.
    """

    seconds: float
    at: int | None = None

    def after(self, answer: Answer) -> Answer:
        """The answer, late."""
        if self.at is None:
            return replace(answer, delay=answer.delay + self.seconds)
        return replace(answer, pause=(self.at, self.seconds))


@dataclass(frozen=True)
class Hook(_OnTheWayThere):
    """Something is done when a request has come and before it is passed on.

    Attributes:
        work: Called with the request, in a thread of the server.
    """

    work: Callable[[Request], object]

    def before(self, request: Request) -> Answer | None:
        """Do it, and pass the request on."""
        self.work(request)
        return None


@dataclass
class Rule:
    """When a fault comes.

    Attributes:
        fault: What goes wrong.
        operation: Pattern for the operation, such as `GetObject` or `List*`.
        key: Pattern for the key.
        times: How often; None for ever.
        first: The first request that it comes at, of those that fit, counted from 1.
        seen: How many requests fitted.
        hits: How often it came.
    """

    fault: Fault
    operation: str = "*"
    key: str = "*"
    times: int | None = None
    first: int = 1
    seen: int = 0
    hits: int = 0

    def takes(self, request: Request) -> bool:
        """Whether the fault comes at a request; counts it."""
        if not (fnmatchcase(request.operation, self.operation) and fnmatchcase(request.key, self.key)):
            return False
        self.seen += 1
        if self.seen < self.first or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


class FaultyS3(Recorder):
    """The way to a server on which things go wrong; `recorded()` tells what came, and what was sent back.

    Attributes:
        endpoint: URL of the way.
        target_options: What a filesystem over S3 is given to take it.
        rules: What goes wrong; may be changed at any time.
        page_size: How many keys a page of a listing holds at most; None for what was asked for.
        errors: What a hook raised; the request was passed on all the same.
    """

    def __init__(self, server: S3Server) -> None:
        super().__init__()
        self.rules: list[Rule] = []
        self.page_size: int | None = None
        self.errors: list[Exception] = []
        self._server = server
        self._rules_lock = threading.Lock()
        self._listener = Listener(self._answer)
        self.endpoint = self._listener.endpoint
        self.target_options = {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint}

    def add(
        self, fault: Fault, operation: str = "*", *, key: str = "*", times: int | None = None, first: int = 1
    ) -> Rule:
        """Add a rule; see `Rule`. It counts what it meets."""
        rule = Rule(fault, operation, key, times, first)
        self.rules.append(rule)
        return rule

    def close(self) -> None:
        """End it with all its threads, in the middle of whatever is being answered."""
        self._listener.close()

    def _answer(self, incoming: Incoming) -> Answer:
        request = request_of(incoming, Answer(0))
        with self._rules_lock:
            faults = [rule.fault for rule in self.rules if rule.takes(request)]
        answer = None
        for fault in faults:
            if answer is None or isinstance(fault, Hook):
                try:
                    instead = fault.before(request)
                except Exception as error:
                    self.errors.append(error)
                else:
                    answer = answer or instead
        if answer is None:
            answer = self._server.answer(self._with_page_size(incoming, request))
        for fault in faults:
            answer = fault.after(answer)
        self.record(request_of(incoming, answer))
        return answer

    def _with_page_size(self, incoming: Incoming, request: Request) -> Incoming:
        if self.page_size is None or request.operation not in LISTINGS:
            return incoming
        path, _, query = incoming.target.partition("?")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        asked["max-keys"] = str(min(self.page_size, int(asked.get("max-keys", 1000))))
        return replace(incoming, target=f"{path}?{urlencode(asked)}")


def _xml(status: int, inner: str, request: Request) -> Answer:
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inner}'
        "<RequestId>0A49CE4060975EAC</RequestId><HostId>none</HostId></Error>"
    )
    return Answer(status, (("Content-Type", "application/xml"),), _no_body_for_head(text.encode(), request))


def _no_body_for_head(body: bytes, request: Request) -> bytes:
    return b"" if request.operation.startswith("Head") else body
