"""What tests of stores over a served folder share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from skillfs.testing import StoreSuite
from tests.conftest import write

__all__ = ["OverAFolder", "earlier"]


class OverAFolder(StoreSuite):
    """What serves a local folder."""

    hashes_at_scan = False
    place: ClassVar[Path]

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: write(self.place, {path: content})

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: (self.place / path).unlink()


def earlier(folder: Path) -> Path:
    """As if everything had been written a while ago: times of whole seconds tell no two changes apart."""
    for path in folder.rglob("*"):
        os.utime(path, (1_780_000_000, 1_780_000_000))
    return folder
