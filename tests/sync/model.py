"""A naive scan of a store: what should be visible, found again from nothing each time.

It shares no code with what it checks. It knows a few ignored names, which is all that the tests make.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import NamedTuple

IGNORED = (".git", "node_modules", "*.pyc", "*~")
SECRETS = (".env", "*.pem")


class Shown(NamedTuple):
    """What can be seen at a path."""

    kind: str
    skill: str | None = None
    content: bytes | None = None
    leads_to: str | None = None


def visible(root: str) -> dict[str, Shown]:
    """Every visible path below a root, the root itself being the empty path."""
    root = os.path.realpath(root)
    folders: dict[str, bool] = {}
    files: list[str] = []
    links: list[str] = []
    for at, inner, others in os.walk(root):
        where = _below(root, at)
        full = {n: os.path.join(at, n) for n in (*inner, *others)}
        names = [n for n in full if _is_served(full[n])]
        full = {n: full[n] for n in names}
        inner[:] = [n for n in inner if n in full and not os.path.islink(full[n])]
        links += [
            f"{where}/{n}".lstrip("/")
            for n in names
            if os.path.islink(full[n]) and not _is_marker(root, full[n])
        ]
        files += [
            f"{where}/{n}".lstrip("/")
            for n in names
            if _is_marker(root, full[n]) or (os.path.isfile(full[n]) and not os.path.islink(full[n]))
        ]
        folders[where] = "SKILL.md" in full and _is_marker(root, full["SKILL.md"])

    def skill_of(folder: str) -> str | None:
        while not folders[folder]:
            if not folder:
                return None
            folder = folder.rpartition("/")[0]
        return folder

    shown = {
        p: Shown("skill" if folders[p] else "folder", skill_of(p)) for p in folders if skill_of(p) is not None
    }
    for path in files:
        skill = skill_of(path.rpartition("/")[0])
        if skill is not None:
            with open(os.path.join(root, path), "rb") as file:
                shown[path] = Shown("file", skill, file.read())
    while True:
        size = len(shown)
        shown.setdefault("", Shown("folder"))
        for path in [p for p, s in shown.items() if s.kind == "skill" or s.kind == "link"]:
            while path:
                path = path.rpartition("/")[0]
                shown.setdefault(path, Shown("folder"))
        for path in links:
            skill = skill_of(path.rpartition("/")[0])
            target = _leads_to(root, os.path.join(root, path))
            if (
                target in shown
                and shown[target].kind != "link"
                and (skill is not None or shown[target].kind != "file")
            ):
                shown[path] = Shown("link", skill, None, target)
        if len(shown) == size:
            return shown


def _is_served(path: str) -> bool:
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    name = os.path.basename(path)
    ignored = IGNORED if is_folder else IGNORED + SECRETS
    return not any(fnmatchcase(name, p) for p in ignored) and name.isprintable()


def _is_marker(root: str, path: str) -> bool:
    if os.path.basename(path) != "SKILL.md" or not os.path.isfile(path):
        return False
    if not os.path.islink(path):
        return True
    target = _leads_to(root, path)
    if target is None:
        return False
    inside = target.split("/")
    return all(_is_served(os.path.join(root, *inside[:depth])) for depth in range(1, len(inside) + 1))


def _leads_to(root: str, path: str) -> str | None:
    try:
        real = os.path.realpath(path, strict=True)
    except OSError:
        return None
    return _below(root, real) if f"{real}/".startswith(f"{root}/") else None


def _below(root: str, path: str) -> str:
    return path[len(root) + 1 :]
