"""Object folders of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from skillfs.objects.folder import ObjectFolder
from skillfs.objects.local import LocalObjects
from skillfs.objects.opening import open_objects
from tests.objects.harness import numbers


@pytest.fixture
def local(tmp_path: Path) -> LocalObjects:
    """An empty object folder on the disk."""
    return LocalObjects(tmp_path / "objects")


@pytest.fixture
def memory() -> Iterator[ObjectFolder]:
    """An empty object folder in memory."""
    name = f"objects-{next(numbers)}"
    yield open_objects(f"memory://{name}/in")
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


@pytest.fixture(params=["local", "memory"])
def quick(request: pytest.FixtureRequest) -> ObjectFolder:
    """An empty object folder of each kind that costs nothing."""
    found: ObjectFolder = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["local", "memory", "s3"])
def folder(request: pytest.FixtureRequest) -> ObjectFolder:
    """An empty object folder of each kind."""
    if request.param == "s3":
        bucket = request.getfixturevalue("bucket")
        return open_objects(f"{bucket.url}/objects", bucket.server.target_options)
    found: ObjectFolder = request.getfixturevalue(request.param)
    return found
