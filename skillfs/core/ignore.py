"""Which names are no part of a skill.

Patterns match one component, at any depth, case-sensitively; the last pattern that matches decides, and a
leading `!` takes back what an earlier one ignored, as in a gitignore file. What looks like a secret is left
out as a file or link only: a folder of such a name is no secret, and may well be a skill about them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Literal

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["DEFAULT_IGNORE", "SECRETS", "TEMPORARY", "IgnoreRules"]

_Reason = Literal["ignored", "secret"]
_Rule = tuple[re.Pattern[str], _Reason | None]

DEFAULT_IGNORE: tuple[str, ...] = (
    *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".DS_Store", "*.pyc"),
    *("*~", ".*.sw[a-p]", ".#*", "#*#", ".skillfs"),
)
"""Version control, caches and editor temporaries."""

SECRETS: tuple[str, ...] = (
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template"),
    *("*.pem", "id_rsa*", "id_ed25519*"),
)
"""Names of files that usually hold secrets; a skill should not have one."""

TEMPORARY = ".skillfs-" + "[0-9a-f]" * 16 + "~"
"""Name of a file that is being written beside its place: no pattern takes it back."""


class IgnoreRules:
    """Decides by name alone.

    Args:
        extra: Patterns applied after the built-in ones.

    Raises:
        InvalidArgumentError: A pattern is empty or holds a `/` or a NUL.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        if isinstance(extra, str | bytes) or not isinstance(extra, Sequence):
            raise InvalidArgumentError(f"ignore takes a list of name patterns, not {quoted(extra)}")
        for pattern in extra:
            if not isinstance(pattern, str) or not pattern.removeprefix("!") or re.search("[/\0]", pattern):
                raise InvalidArgumentError(
                    f"the ignore pattern {quoted(pattern)} must match one name: no slash, not empty"
                )
        self.extra = tuple(extra)
        ignored: list[tuple[str, _Reason]] = [(pattern, "ignored") for pattern in DEFAULT_IGNORE]
        secrets: list[tuple[str, _Reason]] = [(pattern, "secret") for pattern in SECRETS]
        added: list[tuple[str, _Reason]] = [(pattern, "ignored") for pattern in extra]
        own: list[tuple[str, _Reason]] = [(TEMPORARY, "ignored")]
        self._rules = _compiled([*ignored, *secrets, *added, *own])
        self._folder_rules = _compiled([*ignored, *added, *own])
        # One alternation answers for nearly every name that none of them concerns.
        self._any = re.compile("|".join(rule.pattern for rule, _ in self._rules)).match

    def reason(self, name: str) -> _Reason | None:
        """Why a file or link of this name is left out, or None when it is served."""
        return None if self._any(name) is None else _decide(self._rules, name)

    def ignores_folder(self, name: str) -> bool:
        """Whether a folder of this name is left out, with all it holds."""
        return self._any(name) is not None and _decide(self._folder_rules, name) is not None

    def hides(self, path: str, *, is_folder: bool) -> bool:
        """Whether a name on the way to a file or folder, or its own, is left out.

        Args:
            path: Path below a root: links can lead where no walk from the top would come.
            is_folder: Whether a folder lies there.
        """
        if not path:
            return False  # the root has been named by whoever opened it
        *above, name = path.split("/")
        own = self.ignores_folder(name) if is_folder else self.reason(name) is not None
        return own or any(map(self.ignores_folder, above))


def _compiled(rules: list[tuple[str, _Reason]]) -> list[_Rule]:
    """The last first, so that the first that matches decides."""
    return [
        (re.compile(translate(pattern.removeprefix("!"))), None if pattern.startswith("!") else why)
        for pattern, why in reversed(rules)
    ]


def _decide(rules: list[_Rule], name: str) -> _Reason | None:
    return next((why for rule, why in rules if rule.match(name)), None)
