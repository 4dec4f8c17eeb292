"""Which names are no part of a skill.

Patterns match one component, at any depth, case-sensitively; the last pattern that matches decides, and a
leading `!` takes back what an earlier one ignored, as in a gitignore file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Literal

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["DEFAULT_IGNORE", "SECRETS", "IgnoreRules"]

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


class IgnoreRules:
    """Decides by name alone.

    Args:
        extra: Patterns applied after the built-in ones.

    Raises:
        InvalidArgumentError: A pattern is empty or holds a `/` or a NUL.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        if isinstance(extra, str):
            raise InvalidArgumentError("ignore takes a list of name patterns, not one string")
        for pattern in extra:
            if not isinstance(pattern, str) or not pattern.removeprefix("!") or re.search("[/\0]", pattern):
                raise InvalidArgumentError(
                    f"the ignore pattern {quoted(pattern)} must match one name: no slash, not empty"
                )
        self.extra = tuple(extra)
        rules = [
            *((p, "ignored") for p in DEFAULT_IGNORE),
            *((p, "secret") for p in SECRETS),
            *((p, "ignored") for p in extra),
        ]
        self._rules = [
            (re.compile(translate(pattern.removeprefix("!"))), None if pattern.startswith("!") else why)
            for pattern, why in reversed(rules)
        ]
        # One alternation answers for nearly every name that none of them concerns.
        self._any = re.compile("|".join(rule.pattern for rule, _ in self._rules)).match

    def reason(self, name: str) -> Literal["ignored", "secret"] | None:
        """Why a name is left out, or None when it is served."""
        if self._any(name) is None:
            return None
        for rule, why in self._rules:
            if rule.match(name):
                return why  # type: ignore[return-value]  # the two literals above
        return None
