"""What commands share: which stores they are about, how these are opened, and how a command ends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skillfs.errors import InvalidArgumentError
from skillfs.faces import output
from skillfs.faces.stores import STORE_VARIABLE, conventional_stores, named_stores, stores_of_environment

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem
    from skillfs.history.snapshots import Snapshots

__all__ = ["COULD_NOT_RUN", "FINE", "FOUND_WRONG", "Target", "json_option"]

FINE = 0
FOUND_WRONG = 1
COULD_NOT_RUN = 2

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """The options that say which stores are meant and what of them.

    Attributes:
        stores: Values of `--store`.
        index: Value of `--index`.
        base: Values of `--base`.
        follow: Values of `--follow`.
        ignore: Values of `--ignore`.
        at: Value of `--at`.
        objects: Value of `--objects`.
        lock: Value of `--lock`.
    """

    stores: tuple[str, ...]
    index: str | None
    base: tuple[str, ...]
    follow: tuple[str, ...]
    ignore: tuple[str, ...]
    at: str | None = None
    objects: str | None = None
    lock: str | None = None

    def named(self) -> str | dict[str, str] | None:
        """The stores that are named, or the one; None when none is."""
        said = os.environ.get(STORE_VARIABLE)
        values = self.stores or (stores_of_environment(said) if said else ())
        return named_stores(values) if values else None

    def alone(self) -> str:
        """The one store that a command changes, which has to be named.

        Raises:
            InvalidArgumentError: None is named, or several are.
        """
        stores = self.named()
        if stores is None:
            raise InvalidArgumentError(
                "which store? name the folder that holds the skill folders: skillfs -s STORE, "
                f"or set {STORE_VARIABLE}"
            )
        if isinstance(stores, str):
            return stores
        if len(stores) > 1:
            raise InvalidArgumentError(f"{len(stores)} stores are named, and this is done to one; name that")
        return next(iter(stores.values()))

    def _arguments(self) -> dict[str, Any]:
        """The stores as `SkillFileSystem` takes them, and where their index and snapshots are."""
        stores = self.named()
        if self.at is not None:
            return self._snapshot_arguments(stores)
        arguments = self._store_arguments(stores)
        return arguments if self.objects is None else {**arguments, "objects": self.objects}

    def _snapshot_arguments(self, stores: str | dict[str, str] | None) -> dict[str, Any]:
        kept = {"at": self.at, "index": self.index, "objects": self.objects}
        if stores is None and self.objects is not None:
            return kept
        store = self.alone()
        if isinstance(stores, dict):
            return {"store": {next(iter(stores)): {"store": store, **kept}}}
        return {"store": store, **kept}

    def snapshots(self) -> Snapshots:
        """The snapshots of the one store, which need not be there any more, or in the object folder.

        Raises:
            InvalidArgumentError: No store and no object folder is named, or several stores are.
        """
        from skillfs.history.snapshots import find_snapshots

        alone = self.objects is not None and self.named() is None
        return find_snapshots(
            None if alone else self.alone(),
            index=self.index,
            objects=self.objects,
            base_paths=list(self.base) if self.base else None,
            lock=self.lock,
        )

    def _store_arguments(self, stores: str | dict[str, str] | None) -> dict[str, Any]:
        if stores is None:
            stores, left_out = conventional_stores()
            for message in left_out:
                output.complain("warning", message)
        if isinstance(stores, str) or self.index in (None, ":memory:"):
            return {"store": stores, "index": self.index}
        if len(stores) > 1:
            raise InvalidArgumentError(
                f"--index names the index of one store, and there are {len(stores)}; leave it away, "
                'or pass ":memory:"'
            )
        return {"store": {name: {"store": store, "index": self.index} for name, store in stores.items()}}

    @contextmanager
    def open(self, *, log: bool = True, watch: bool = False) -> Iterator[SkillFileSystem]:
        """Open the stores, showing progress when that takes long.

        Args:
            log: Whether what is logged is told on standard error.
            watch: Whether the index is kept in step by itself.
        """
        from skillfs.filesystem import SkillFileSystem
        from skillfs.index.database import IndexWarning

        warnings.simplefilter("always", IndexWarning)
        with output.logged(told=log):
            with output.Progress("reading the store") as progress:
                fs = SkillFileSystem(
                    **self._arguments(),
                    base_paths=list(self.base) if self.base else None,
                    follow=self.follow,
                    ignore=self.ignore,
                    lock=self.lock,
                    watch=watch,
                    on_progress=progress.callback,
                    skip_instance_cache=True,
                )
            yield fs


def json_option(function: F) -> F:
    """Let a command take `--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)
