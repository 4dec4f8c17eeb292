"""Which stores a command is about: those that are named, or those that agents conventionally use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skillfs.core.refs import mount_name_fault
from skillfs.errors import InvalidArgumentError, NotFoundError, quoted

__all__ = ["STORE_VARIABLE", "Conventional", "conventional_stores", "named_stores", "stores_of_environment"]

STORE_VARIABLE = "SKILLFS_STORE"

_AGENTS = ("agents", "claude", "codex", "cursor", "gemini", "github", "opencode")
_PROJECT = tuple(f".{name}/skills" for name in _AGENTS)
_HOME = (*_PROJECT, ".config/opencode/skills", ".copilot/skills")

_NEXT_STORE = re.compile(rf"{re.escape(os.pathsep)}(?=[^=/:.]+=)")


def named_stores(values: Sequence[str]) -> str | dict[str, str]:
    """The stores that `-s` names.

    What stands before the first `=` of a value is the name of a mount where it is a valid one and holds no
    `/`, `:` or `.`; else the whole value is the store.

    Returns:
        A store, or stores by name.

    Raises:
        InvalidArgumentError: There are several, and one has no name or two have the same; or a name is none.
    """
    for value in values:
        _check_name(value)
    if len(values) == 1 and _split(values[0]) is None:
        return values[0]
    stores: dict[str, str] = {}
    for value in values:
        named = _split(value)
        if named is None:
            raise InvalidArgumentError(
                f"{len(values)} stores are named, and of these each needs a name: write NAME=STORE"
            )
        if named[0] in stores:
            raise InvalidArgumentError(f"two stores have the name {quoted(named[0])}; give each its own")
        stores[named[0]] = named[1]
    return stores


def stores_of_environment(value: str) -> list[str]:
    """The stores that `SKILLFS_STORE` names, as `-s` takes them.

    One, or several as `NAME=STORE` with the separator of search paths between them. It separates nothing
    else: neither what has no `NAME=` after it nor the parts of a URL.
    """
    return _NEXT_STORE.split(value) if _split(value) is not None else [value]


def _check_name(value: str) -> None:
    """Refuse what is no store as a whole, but would be one with its name were it valid."""
    name, equals, store = value.partition("=")
    if not (name and equals and store) or "://" in name or os.path.lexists(os.path.expanduser(value)):
        return
    fault = mount_name_fault(name) or ('holds "/", ":" or "."' if set(name) & set("/:.") else None)
    if fault is not None and os.path.lexists(os.path.expanduser(store)):
        raise InvalidArgumentError(
            f"the mount name {quoted(name)} {fault}; choose another, as in -s NAME=STORE "
            f"and {STORE_VARIABLE}=NAME=STORE"
        )


def _split(value: str) -> tuple[str, str] | None:
    name, equals, store = value.partition("=")
    if not equals or mount_name_fault(name) is not None or set(name) & set("/:."):
        return None
    return name, store


class Conventional(NamedTuple):
    """The skill folders that agents conventionally use.

    Attributes:
        stores: By name, in the order of precedence.
        left_out: What looks like one and is none, each with the reason.
    """

    stores: dict[str, str]
    left_out: list[str]


def conventional_stores() -> Conventional:
    """The skill folders of agents in the project and in the home folder, those that are there.

    The project is the working folder and all above it up to the one that holds `.git`; without one, the
    working folder. What is nearer comes first, then the home folder. Of two ways to one folder the first
    counts.

    Raises:
        NotFoundError: There is none.
    """
    found = Conventional({}, [])
    taken: set[str] = set()
    for name, shown, path in _candidates():
        real = os.path.realpath(path)
        if real in taken or not os.path.lexists(path):
            continue
        fault = _fault(path)
        if fault is not None:
            if fault:
                found.left_out.append(f"{shown} {fault}, and is left out")
            continue
        taken.add(real)
        number = 1
        unique = name
        while unique in found.stores:
            number += 1
            unique = f"{name}-{number}"
        found.stores[unique] = path
    if not found.stores:
        raise NotFoundError(
            f"no skill folders are here: neither the project nor the home folder has {_PROJECT[0]}, "
            f"{_PROJECT[1]} or the like; name one: skillfs -s STORE, or set {STORE_VARIABLE}"
        )
    return found


def _candidates() -> Iterator[tuple[str, str, str]]:
    """Name, what messages call it, and path."""
    for level, folder in enumerate(_project()):
        for below in _PROJECT:
            yield below[1:].partition("/")[0], "../" * level + below, str(folder / below)
    try:
        home = Path.home()
    except RuntimeError:
        return
    for below in _HOME:
        name = below[1:].removesuffix("/skills").replace("/", "-")
        yield f"home-{name}", f"~/{below}", str(home / below)


def _project() -> list[Path]:
    try:
        here = Path.cwd()
    except OSError:
        return []
    folders = [here, *here.parents]
    for number, folder in enumerate(folders):
        if os.path.lexists(folder / ".git"):  # `Path.exists` raises where a folder may not be searched
            return folders[: number + 1]
    return [here]


def _fault(path: str) -> str | None:
    """Why a path is no folder that can be read; an empty text for what need not be told."""
    try:
        with os.scandir(path):
            return None
    except FileNotFoundError:
        return ""  # a link that leads nowhere
    except NotADirectoryError:
        return "is a file"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
