"""A snapshot as a store: the suite that every store passes, and what only a snapshot has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from skillfs import SkillFileSystem
from skillfs.testing import StoreSuite
from skillfs.testing.comparing import STORE_ID, Both, laid
from skillfs.testing.specimen import SPECIMEN
from skillfs.testing.suite import Seed
from tests.conftest import write

LEFT_OUT = {"pdf/.env", "pdf/key.pem", "pdf/id_rsa", "broken/lower/skill.md"}


class TestSnapshot(StoreSuite):
    """Over a snapshot, against what it was taken of."""

    hashes_at_scan = False
    is_changeable = False

    @pytest.fixture(scope="class")
    @classmethod
    def both(cls, seed: Seed, tmp_path_factory: pytest.TempPathFactory) -> Both:
        """Without what is left out with a problem that says so: a snapshot knows nothing of it."""
        files = {path: content for path, content in SPECIMEN.items() if path not in LEFT_OUT}
        return laid(seed, files, tmp_path_factory.mktemp("specimen"))

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Seed:
        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            place = tmp_path_factory.mktemp("snapshot")
            store = write(place / "store", files)
            fs = SkillFileSystem(
                store,
                index=":memory:",
                store_id=STORE_ID,
                objects=place / "objects",
                skip_instance_cache=True,
            )
            fs.snapshot("taken")
            return {"at": "taken", "objects": place / "objects"}

        return lay

    def test_problems(self, both: Both) -> None:
        """Everything that is wrong is said in the same words."""
        problems = both.answers(lambda fs: fs.problems())
        assert {problem.code for problem in problems} >= {"frontmatter-yaml", "shadowed", "case-collision"}
