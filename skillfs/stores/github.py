"""Repositories on GitHub, by fsspec's filesystem for them, made to ask for the file that is meant."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fsspec.implementations.github import GithubFileSystem

__all__ = ["GithubTree"]


class GithubTree(GithubFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """Files of one commit, branch or tag."""

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        # As it is, "%41.md" would be fetched as "A.md", and of "a?b.md" only "a".
        return super()._open(quote(path), mode, **options)
