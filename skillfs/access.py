"""What a caller may see of a store: all of it, or the skills at and below some folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skillfs.index.catalog import Catalog
from skillfs.index.rows import Row, RowKind

__all__ = ["Access"]


def _upwards(path: str) -> Iterator[str]:
    """A path and all above it, the root last."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


class Access:
    """What a call may see: the skills that lie at or below one of some folders.

    Args:
        bases: Paths of the folders; None for no restriction.
    """

    __slots__ = ("_above", "_bases", "_steps")

    def __init__(self, bases: Iterable[str] | None = None) -> None:
        self._bases = None if bases is None else frozenset(bases)
        # A call may name thousands of folders, and a listing asks for each of its rows: no loop over either.
        self._above = frozenset(above for base in self._bases or () for above in _upwards(base))
        self._steps: dict[str, set[str]] | None = None

    @property
    def restricted(self) -> bool:
        """Whether anything may be out of bounds."""
        return self._bases is not None

    @property
    def bases(self) -> frozenset[str] | None:
        """Paths of the folders; None without a restriction."""
        return self._bases

    def allows(self, skill_path: str) -> bool:
        """Whether a skill folder, and so what it encloses, can be seen."""
        bases = self._bases
        return bases is None or any(path in bases for path in _upwards(skill_path))

    def leads(self, folder: str) -> bool:
        """Whether a folder outside every skill can be on the way to a skill that is allowed."""
        return self._bases is None or folder in self._above or self.allows(folder)

    def steps(self, folder: str) -> list[str] | None:
        """Names in a folder that lie on the way to a base; None where anything in it may be in bounds."""
        if self.allows(folder):
            return None
        if self._steps is None:
            self._steps = {}
            for path in self._above - {""}:
                above, _, name = path.rpartition("/")
                self._steps.setdefault(above, set()).add(name)
        return sorted(self._steps.get(folder, ()))

    @property
    def tops(self) -> list[str]:
        """The bases that lie below no other; empty without a restriction."""
        return [b for b in self._bases or () if not b or not self.allows(b.rpartition("/")[0])]

    def leads_to_skill(self, catalog: Catalog, path: str, key: int) -> bool:
        """Whether a skill that is allowed lies below a folder.

        Args:
            catalog: The index.
            path: Store path of the folder.
            key: Key of its row.
        """
        if self.allows(path):
            return catalog.holds_skill(key)
        top = f"{path}/" if path else ""
        bases = [catalog.by_path(base.split("/")) for base in self.tops if base.startswith(top)]
        return any(
            base is not None and (base.kind == RowKind.SKILL or catalog.holds_skill(base.key))
            for base in bases
        )

    def sees(self, row: Row) -> bool:
        """Whether an entry can be seen."""
        if not row.path and row.skill is None:
            return True  # the root says nothing about what is below it
        if not row.visible:
            return False
        return self.allows(row.skill.path) if row.skill is not None else self.leads(row.path)

    def within(self, bases: Iterable[str]) -> Access:
        """What lies at or below one of these folders as well."""
        other = Access(bases)
        if self._bases is None:
            return other
        assert other._bases is not None
        return Access([*filter(other.allows, self._bases), *filter(self.allows, other._bases)])
