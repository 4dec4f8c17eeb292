"""`skillfs mcp`: offers the skills to agents by the Model Context Protocol."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.faces import output
from skillfs.faces.stores import STORE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skillfs.faces.target import Target
    from skillfs.filesystem import SkillFileSystem

__all__ = ["mcp_command"]

TOKEN_VARIABLE = "SKILLFS_MCP_TOKEN"

_LONGEST_TOKEN = 4 * 1024


@click.command(
    "mcp",
    epilog='Example: {"mcpServers": {"skills": {"command": "skillfs", "args": ["-s", "~/skills", "mcp"]}}}',
)
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Serve over HTTP at /mcp, and not on standard input."
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Name by which clients reach the server, beside the address; may repeat.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help=f"File with the bearer token that clients send; {TOKEN_VARIABLE} by default.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Keep large stores in step by themselves, so that no call has to compare them first.",
)
@click.pass_obj
def mcp_command(
    target: Target,
    address: str | None,
    allowed_hosts: tuple[str, ...],
    token_file: str | None,
    watch: bool,
) -> None:
    """Offer the skills to agents by the Model Context Protocol.

    Serves one client on standard input and output until the input ends, or many with --http until
    interrupted. HTTP on any address but the loopback wants a token. With --base, no tool has base paths.
    """
    if address is None and (allowed_hosts or token_file is not None):
        raise click.UsageError("--allow-host and --token-file go with --http")
    if target.named() is None:
        raise InvalidArgumentError(
            f"which store? name what is to be offered: skillfs -s STORE mcp, or set {STORE_VARIABLE}"
        )
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise StoreUnavailableError(
            "the server needs the mcp package; install it: pip install 'fsspec-skillfs[mcp]'"
        )
    from skillfs.faces.mcp.logs import others_logged
    from skillfs.faces.mcp.server import make_server

    fixed: Mapping[str, Any] | None = {"basePathIds": list(target.base)} if target.base else None
    if address is None:
        from skillfs.faces.mcp.stdio import claimed, serve_stdio

        # Claimed before the store is opened: nothing that does may print to the client.
        with claimed() as wire, target.open(watch=watch) as fs, others_logged():
            _warn_of_nothing(fs)
            serve_stdio(make_server(fs, fixed=fixed), wire)
    else:
        from skillfs.faces.mcp.http import ANY_ADDRESS, serve_http, settings_of

        # Checked before the store is opened, which may take long.
        settings = settings_of(address, allowed_hosts, _token(token_file))
        if settings.host in ANY_ADDRESS and not allowed_hosts:
            output.complain(
                "warning",
                "only clients on this machine are served: name what others call it with --allow-host",
            )
        with target.open(watch=watch) as fs, others_logged():
            _warn_of_nothing(fs)
            serve_http(make_server(fs, fixed=fixed), settings)


def _warn_of_nothing(fs: SkillFileSystem) -> None:
    """Say that a store holds nothing: a wrong folder would look like a server that is well."""
    if not fs.status()["skills"]:
        output.complain("warning", "there are no skills here: a skill is a folder that holds a SKILL.md")


def _token(token_file: str | None) -> str | None:
    """The token that clients have to send; None for none.

    Raises:
        InvalidArgumentError: The file cannot be read, or what it or the environment holds is no token.
    """
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            return None
        source = TOKEN_VARIABLE
    else:
        source = "the file of --token-file"
        try:
            with open(token_file, "rb") as file:
                token = file.read(_LONGEST_TOKEN + 1).decode("ascii", "replace")
        except OSError as error:
            raise InvalidArgumentError(f"{source} cannot be read ({error.strerror}); name another") from None
    token = token.strip()
    if not token or len(token) > _LONGEST_TOKEN or not all("!" <= c <= "~" for c in token):
        raise InvalidArgumentError(
            f"{source} holds no token: up to 4,096 visible ASCII characters, no blanks"
        )
    return token
