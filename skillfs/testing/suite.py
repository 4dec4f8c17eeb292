"""The suite itself; see `skillfs.testing`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from skillfs.testing.changing import ChangingTests
from skillfs.testing.comparing import Both, Seed, laid
from skillfs.testing.listing import ListingTests
from skillfs.testing.reading import ReadingTests
from skillfs.testing.specimen import SMALL, SPECIMEN

__all__ = ["StoreSuite"]


class StoreSuite(ReadingTests, ListingTests, ChangingTests):
    """Derive from it, give the fixtures, and every test here is run over the store.

    Fixtures to give:

    * `seed`, a class method of scope class: a function that lays files, given as path to bytes, in a new and
      empty place of the store, and returns the keyword arguments with which `SkillFileSystem` opens that
      place; `index`, `store_id` and `max_age` are added. It is called several times.
    * `change`: a function of path and bytes that writes one file into the place laid last, new or not.
    * `remove`: a function of a path that removes one file there.

    The last two are not needed where `is_changeable` is False.

    Attributes:
        is_changeable: Whether files can be changed behind the filesystem's back.
        hashes_at_scan: Whether the XXH3 of a file is known before it is read for the first time.
        has_empty_folders: Whether a folder stays when the last file in it is removed.
    """

    is_changeable: ClassVar[bool] = True
    hashes_at_scan: ClassVar[bool] = True
    has_empty_folders: ClassVar[bool] = True

    # -- what is tried ------------------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls) -> Seed:
        """Lays files in the store."""
        raise NotImplementedError("a StoreSuite needs a fixture `seed`; see skillfs.testing")

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        """Writes a file behind the filesystem's back."""
        raise NotImplementedError("a StoreSuite needs a fixture `change`, or is_changeable = False")

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        """Removes a file behind the filesystem's back."""
        raise NotImplementedError("a StoreSuite needs a fixture `remove`, or is_changeable = False")

    @pytest.fixture(scope="class")
    @classmethod
    def both(cls, seed: Seed, tmp_path_factory: pytest.TempPathFactory) -> Both:
        """The specimen in both places; what is known of its files is up to other tests."""
        return laid(seed, SPECIMEN, tmp_path_factory.mktemp("specimen"))

    @pytest.fixture(scope="class")
    @classmethod
    def indexed(cls, seed: Seed, tmp_path_factory: pytest.TempPathFactory) -> Both:
        """The same, with everything known of every file."""
        both = laid(seed, SPECIMEN, tmp_path_factory.mktemp("indexed"))
        assert both.fs.index_all() == both.local.index_all() > 90
        return both

    @pytest.fixture
    def small(self, seed: Seed, tmp_path: Path) -> Both:
        """Few files, for tests that change them."""
        if not self.is_changeable:
            pytest.skip("nothing can be changed behind the back of this store")
        return laid(seed, SMALL, tmp_path / "small")
