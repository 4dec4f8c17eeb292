"""Another naive scan of a store, which also follows links into folders beside it: what should be visible.

It shares no code with what it checks, nor with the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

from skillfs.core.digest import xxh3
from tests.sync.model import IGNORED, SECRETS, Shown


def scan(store: str, follow: Sequence[str] = ()) -> dict[str, Shown]:
    """Every visible path, the root being the empty one; contents are hashes."""
    roots = [os.path.realpath(root) for root in (store, *follow)]
    found: dict[str, Shown] = {}
    links: dict[str, tuple[str | None, str]] = {}

    def root_of(real: str) -> int | None:
        return next((n for n, root in enumerate(roots) if is_at(real, root)), None)

    def leads_to(at: str) -> str | None:
        """The real path, unless it is out of bounds or a name on the way is left out."""
        real = os.path.realpath(at)
        number = root_of(real) if os.path.lexists(real) else None
        if number is None:
            return None
        names = real[len(roots[number]) + 1 :].split("/")
        above = [os.path.join(roots[number], *names[:depth]) for depth in range(1, len(names) + 1)]
        return real if real == roots[number] or all(map(is_served, above)) else None

    def walk(path: str, at: str, skill: str | None, chain: tuple[str, ...]) -> None:
        names = [name for name in sorted(os.listdir(at)) if is_served(os.path.join(at, name))]
        inside = {f"{path}/{name}".lstrip("/"): os.path.join(at, name) for name in names}
        marker = os.path.join(at, "SKILL.md")
        is_skill = "SKILL.md" in names and os.path.isfile(leads_to(marker) or "")
        skill = path if is_skill else skill
        found[path] = Shown("skill" if is_skill else "folder", skill)
        for full, lies in inside.items():
            above = chain
            if os.path.islink(lies) and not (is_skill and lies == marker):
                real = leads_to(lies)
                is_cut = real is None or any(is_at(up, real) for up in (*chain, lies))
                if real is None or root_of(real) == 0 or is_cut or len(chain) >= 8:
                    links[full] = skill, os.path.realpath(lies)
                    continue
                lies, above = real, (*chain, real)
            if os.path.isdir(lies):
                walk(full, lies, skill, above)
            elif os.path.isfile(lies) and skill is not None:
                with open(lies, "rb") as file:
                    found[full] = Shown("file", skill, xxh3(file.read()))

    walk("", roots[0], None, ())
    seen = {"", *(path for path, shown in found.items() if shown.skill is not None)}
    size = 0
    while size < len(seen):
        size = len(seen)
        for path in [p for p in seen if p not in found or found[p].kind == "skill"]:
            seen.update(path[:n] for n, letter in enumerate(path) if letter == "/")
        for path, (skill, real) in links.items():
            target = real[len(roots[0]) + 1 :]
            is_shown = is_at(real, roots[0]) and target in seen and target not in links
            if is_shown and (skill is not None or (target in found and found[target].kind != "file")):
                seen.add(path)
    return {
        path: found.get(path) or Shown("link", links[path][0], None, links[path][1][len(roots[0]) + 1 :])
        for path in seen
    }


def is_at(path: str, folder: str) -> bool:
    """Whether a path is a folder's, or lies below it."""
    return f"{path}/".startswith(f"{folder}/")


def is_served(path: str) -> bool:
    """Whether a name is not left out."""
    is_folder = os.path.isdir(path) and not os.path.islink(path)
    patterns = IGNORED if is_folder else (*IGNORED, *SECRETS)
    return not any(fnmatchcase(os.path.basename(path), pattern) for pattern in patterns)
