"""The MCP server of a filesystem: what it declares, its tools, and the guard around every answer."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
)
from pydantic import ValidationError

from skillfs import __version__
from skillfs.core.model import Kind
from skillfs.errors import InvalidArgumentError, SkillFSError
from skillfs.faces.mcp.changes import Announcer
from skillfs.faces.mcp.listed import Listed
from skillfs.faces.mcp.resources import TEMPLATE, ReadDirectoryParams, Resources
from skillfs.faces.mcp.skills import EXTENSION, SETTINGS, GetSkillParams, ListSkillsParams, Skills
from skillfs.faces.mcp.uris import place_of
from skillfs.faces.mcp.workers import SENT, Afterwards, Workers
from skillfs.tools import TOOLS, schemas
from skillfs.tools.registry import Answer, Tool, find_tool

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["MASKED", "SkillServer", "cleaned", "make_server"]

MASKED = "internal error; the log of the server tells more"

INSTRUCTIONS = (
    "Skills are folders with instructions (SKILL.md) and the files that these speak of. See what there is "
    "with skill_tree, find by words with skill_search, and read with skill_get_content: an answer that is "
    "cut says how to go on."
)

QUICK_BYTES = 1024 * 1024
"""Bytes of a local file that is read on the loop; a larger one might keep the other calls waiting."""

MOST_CHARACTERS = 64 * 1024 * 1024
"""Characters of one answer. All have limits of their own below it; this holds whatever they are."""

_MOST_LARGE = 4
"""Resources over `QUICK_BYTES` that are answered at once: each is held several times over."""

_TTL_TOOLS = 3_600_000

_MOST_KNOWN = 10_000
_KNOWN_SECONDS = 2.0

_ON_THE_LOOP = {"skill_get_content": "id", "read_file": "path"}
"""Tools that only read one file, by the argument that names it."""

# Refusals that say that the store or the server is at fault, and not what was asked for.
_NOT_OF_THE_CLIENT = frozenset({"unavailable", "changed", "integrity", "error"})

_log = logging.getLogger("skillfs")

Context = ServerRequestContext[Any, Any]


class SkillServer(Server[Any]):
    """The low-level server of the SDK, which declares what ours can do, whatever serves it."""

    announcer: Announcer | None = None
    """What tells clients of changes, while it is served."""

    async def end_streams(self) -> None:
        """Tell nobody any more: who listens is told that this is the end."""
        if self.announcer is not None:
            await self.announcer.close()

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """See the SDK; that the list of resources changes is told."""
        options = notification_options or NotificationOptions(resources_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class _Tools:
    """The tools of a filesystem, as MCP calls them."""

    def __init__(self, fs: SkillFileSystem, fixed: Mapping[str, Any] | None, workers: Workers) -> None:
        self._fs = fs
        self._fixed = fixed
        self._workers = workers
        status = fs.status()
        # Only a remote store says what its listings tell.
        self._is_remote = any("tells" in each for each in (status, *status.get("mounts", ())))
        # This also checks what is fixed, once for all calls.
        self.listed: dict[str, Any] = {"resultType": "complete", "tools": schemas("mcp", fixed)}
        self._small: set[object] = set()
        self._small_at = 0.0

    async def call(self, context: Context, params: CallToolRequestParams) -> dict[str, Any]:
        arguments = params.arguments or {}
        try:
            tool = find_tool(TOOLS, params.name)
        except InvalidArgumentError as error:
            raise MCPError(INVALID_PARAMS, error.message) from None
        if self._is_quick(tool.name, arguments):
            return self._answer(tool, arguments)
        return await self._workers.run(self._answer, tool, arguments)

    def _is_quick(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call takes less than a thread would cost: a small local file, while nothing else is done.

        A file that is new or another is taken in as it is read, which waits for a check of the store that is
        under way; the loop must not.
        """
        ref = arguments.get(_ON_THE_LOOP.get(name, ""))
        if (
            self._is_remote
            or not self._workers.is_idle
            or ref is None
            or (isinstance(ref, str) and ":" in ref)
            or self._fs.checking
        ):
            return False
        try:
            # What was small a moment ago still is, or is read on the loop once.
            if (now := time.monotonic()) - self._small_at > _KNOWN_SECONDS or len(self._small) >= _MOST_KNOWN:
                self._small.clear()
                self._small_at = now
            if isinstance(ref, str | int) and ref in self._small:
                return True
            entry = self._fs.entry(ref)
        except SkillFSError:
            return False
        is_small = entry.kind is Kind.FILE and (entry.size or 0) <= QUICK_BYTES
        if is_small:
            self._small.add(ref)
        return is_small

    def _answer(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _tool_result(tool.answer(self._fs, arguments, self._fixed))
        except SkillFSError as error:
            return _failure(error.code, error.message)
        except Exception:
            _log.exception("the tool %s failed", tool.name)
            return _failure("internal", MASKED)


def _tool_result(found: Answer) -> dict[str, Any]:
    text = found.text
    if text is None:
        text = json.dumps(found.structured, ensure_ascii=False, separators=(",", ":"))
    return {
        "resultType": "complete",
        "content": [{"type": "text", "text": text}],
        "structuredContent": found.structured,
        "isError": found.failed,
    }


def _failure(code: str, message: str) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "content": [{"type": "text", "text": f"{code}: {message}"}],
        "structuredContent": {"error": {"code": code, "message": message}},
        "isError": True,
    }


def make_server(fs: SkillFileSystem, *, fixed: Mapping[str, Any] | None = None) -> SkillServer:
    """The server of a filesystem; it runs on asyncio.

    Args:
        fs: The filesystem.
        fixed: Values of parameters of tools that no client may set; see `skillfs.tools.schemas`.

    Raises:
        InvalidArgumentError: No tool has a parameter of such a name, or a value is not allowed.
    """
    workers = Workers()
    listed = Listed(fs)
    large = asyncio.Semaphore(_MOST_LARGE)
    tools, skills, resources = _Tools(fs, fixed, workers), Skills(fs, listed), Resources(fs, listed)

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[Announcer]:
        announcer = server.announcer = Announcer(fs, workers)
        try:
            yield announcer
        finally:
            try:
                # A server that is cancelled must not leave the store watched.
                with anyio.CancelScope(shield=True):
                    await announcer.close()
            finally:
                workers.close()

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> Any:
        place_of("tools", params.cursor if params else None)  # it has one page
        return tools.listed

    async def list_resources(context: Context, params: PaginatedRequestParams | None) -> Any:
        _announcer(context).listed(context)
        return await workers.run(resources.page, params.cursor if params else None)

    async def list_templates(context: Context, params: PaginatedRequestParams | None) -> Any:
        place_of("templates", params.cursor if params else None)
        return {"resultType": "complete", "resourceTemplates": [TEMPLATE]}

    async def read_resource(context: Context, params: ReadResourceRequestParams) -> Any:
        found = await workers.run(resources.read, params.uri, QUICK_BYTES)
        if found is None:
            # Until it is sent, as far as that is known: a client may read slowly, or not at all.
            await large.acquire()
            try:
                found = await workers.run(resources.read, params.uri)
            finally:
                sent: Afterwards | None = getattr(context.request, "scope", {}).get(SENT)
                if sent is None:
                    large.release()
                else:
                    sent.add(large.release)
        return found

    async def read_directory(context: Context, params: ReadDirectoryParams) -> Any:
        _announcer(context).listed(context)
        return await workers.run(resources.directory, params.uri, params.cursor)

    async def list_skills(context: Context, params: ListSkillsParams) -> Any:
        _announcer(context).listed(context)
        return await workers.run(skills.page, params.cursor)

    async def get_skill(context: Context, params: GetSkillParams) -> Any:
        return await workers.run(skills.get, params.uri)

    ttl = int(min(fs.max_age, 3600) * 1000)
    server = SkillServer(
        "skillfs",
        version=__version__,
        title="Skills",
        instructions=INSTRUCTIONS,
        cache_hints={
            "tools/list": CacheHint(_TTL_TOOLS, "private"),
            "resources/templates/list": CacheHint(_TTL_TOOLS, "private"),
            "resources/list": CacheHint(ttl, "private"),
            "resources/read": CacheHint(0, "private"),
        },
        lifespan=lifespan,
        get_tool_input_schema=_schema_lookup(tools.listed["tools"]),
        on_list_tools=list_tools,
        on_call_tool=tools.call,  # type: ignore[arg-type]  # a result as JSON is one, too
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=lambda context, params: _announcer(context).subscribe(context, params),
        on_unsubscribe_resource=lambda context, params: _announcer(context).unsubscribe(context, params),
        on_subscriptions_listen=lambda context, params: _announcer(context).listen(context, params),
    )
    server.add_request_handler("skills/list", ListSkillsParams, list_skills)
    server.add_request_handler("skills/get", GetSkillParams, get_skill)
    server.add_request_handler("resources/directory/read", ReadDirectoryParams, read_directory)
    server.extensions[EXTENSION] = dict(SETTINGS)
    # In place of the SDK's own, which writes what is asked for into traces.
    server.middleware[:] = [_guard]
    return server


def _announcer(context: Context) -> Announcer:
    announcer: Announcer = context.lifespan_context
    return announcer


def _schema_lookup(tools: Sequence[Mapping[str, Any]]) -> Callable[[str], Mapping[str, Any] | None]:
    by_name = {tool["name"]: tool["inputSchema"] for tool in tools}
    return by_name.get


async def _guard(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Let nothing out but answers that every encoder takes, and refusals that were meant for the client."""
    try:
        result = await call_next(ctx)
    except ValidationError:
        raise  # told without a word of what was sent
    except MCPError as error:
        raise MCPError(error.code, cleaned(error.message), cleaned(error.data)) from None
    except SkillFSError as error:
        code = INTERNAL_ERROR if error.code in _NOT_OF_THE_CLIENT else INVALID_PARAMS
        raise MCPError(code, cleaned(error.message), {"code": error.code}) from None
    except Exception:
        _log.exception("the request %s failed", ctx.method.encode("ascii", "replace").decode()[:100])
        raise MCPError(INTERNAL_ERROR, MASKED) from None
    characters, is_clean = _look_at(result)
    if characters > MOST_CHARACTERS:
        raise MCPError(INTERNAL_ERROR, "the answer is too large; ask for less at once")
    found: HandlerResult = result if is_clean else cleaned(result)
    return found


def _look_at(value: object) -> tuple[int, bool]:
    """Characters of all strings in a value, and whether every encoder takes them."""
    characters = 0
    waiting = [value]
    for each in waiting:
        if isinstance(each, str):
            characters += len(each)
            if not each.isascii():
                try:
                    each.encode()
                except UnicodeEncodeError:
                    return characters, False
        elif isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return characters, True


def cleaned(value: Any) -> Any:
    """A value with U+FFFD for unpaired surrogates, which no encoder takes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, dict):
        return {cleaned(k): cleaned(v) for k, v in value.items()}
    return [cleaned(v) for v in value] if isinstance(value, list) else value
