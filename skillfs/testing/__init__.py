"""A test suite that proves a store: that skillfs answers over it just as it does over local folders.

Derive a class, say how files get into the store without skillfs, and let pytest run it::

    import pytest
    from skillfs.testing import StoreSuite

    class TestMyStore(StoreSuite):
        hashes_at_scan = False

        @pytest.fixture(scope="class")
        @classmethod
        def seed(cls, my_server):
            def lay(files):
                cls.place = my_server.new_place()
                for path, content in files.items():
                    cls.place.write(path, content)
                return {"store": cls.place.url, "target_options": my_server.options}

            return lay

        @pytest.fixture
        def change(self):
            return self.place.write

        @pytest.fixture
        def remove(self):
            return self.place.delete

The suite lays one specimen tree in the store and in a local folder, opens both with the same store id, and
compares: everything must be equal, identities and messages included, but for times and for what a store
cannot know. Fixtures and class attributes are described at `StoreSuite`. pytest is needed, and Linux: the
specimen holds names that other systems cannot tell apart.
"""

from __future__ import annotations

try:
    import pytest
except ImportError as error:
    raise ImportError("skillfs.testing needs pytest; run: pip install pytest") from error

pytest.register_assert_rewrite(
    *(f"skillfs.testing.{module}" for module in ("changing", "comparing", "listing", "reading"))
)

from skillfs.testing.specimen import SPECIMEN  # noqa: E402 - rewritten as it is imported
from skillfs.testing.suite import StoreSuite  # noqa: E402

__all__ = ["SPECIMEN", "StoreSuite"]
