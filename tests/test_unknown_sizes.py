"""Files of which no listing says how long they are: how much there is shows in the reading."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from skillfs import SkillFileSystem, TooLargeError
from skillfs.tools import answer
from tests.conftest import skill_md

TEXT = "".join(f"Zeile {n} äöü\n" for n in range(2_000))
DATA = TEXT.encode()


class Unmeasured(MemoryFileSystem):
    """Says of a file that it is there, and at most which version of it."""

    protocol = "unmeasured"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    tells: ClassVar[dict[str, Any]] = {}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return self._less(super().info(path, **kwargs))

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        found = super().find(path, *args, **kwargs)
        return {p: self._less(info) for p, info in found.items()} if isinstance(found, dict) else found

    def _less(self, info: dict[str, Any]) -> dict[str, Any]:
        if info["type"] != "file":
            return info
        return {"name": info["name"], "type": "file", "size": None, **self.tells}


@pytest.fixture(params=[{}, {"ETag": '"one"'}], ids=["nothing", "version"])
def fs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SkillFileSystem:
    backing = Unmeasured()
    monkeypatch.setattr(Unmeasured, "store", {})
    monkeypatch.setattr(Unmeasured, "pseudo_dirs", [""])
    monkeypatch.setattr(Unmeasured, "tells", request.param)
    backing.pipe_file("/k/a/SKILL.md", skill_md("a").encode())
    backing.pipe_file("/k/a/text.md", DATA)
    return SkillFileSystem("/k", fs=backing, index=":memory:")


def test_reading(fs: SkillFileSystem) -> None:
    for _ in range(2):
        assert fs.get_content("a/text.md").text == TEXT
        assert fs.get_content("a/text.md", 5_000, 100).text == TEXT[5_000:5_100]
        assert fs.cat_file("a/text.md") == DATA
        assert fs.cat_file("a/text.md", 10, 20) == DATA[10:20]
        assert fs.cat_file("a/text.md", -20) == DATA[-20:]
        assert fs.head("a/text.md", 10) == DATA[:10]
        assert fs.tail("a/text.md", 10) == DATA[-10:]
    with fs.open("a/text.md") as file:
        assert file.size == len(DATA)
        assert file.read() == DATA


def test_every_file_is_indexed(fs: SkillFileSystem) -> None:
    assert fs.index_all() in (0, 2)
    assert fs.get_content("a/text.md").size == len(TEXT)


def test_a_whole_that_is_too_large_is_refused(fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.core.text.HOLD_LIMIT", 1_000)
    with pytest.raises(TooLargeError):
        fs.cat_file("a/text.md")


def test_details_tell_how_much_there_is(fs: SkillFileSystem) -> None:
    for _ in range(2):  # read, then known
        (text,) = fs.skill_tree("a", details=True, include="text.md").root.children
        assert (text.size, text.characters) == (len(DATA), len(TEXT))
        assert f"({len(DATA)} bytes" in str(fs.skill_tree("a", details=True))


def test_a_manifest_and_a_tool_tell_how_much_there_is(fs: SkillFileSystem) -> None:
    for _ in range(3):  # computed, then known
        assert [file.size for file in fs.manifest("a")] == [len(skill_md("a").encode()), len(DATA)]
        found = answer(fs, "read_file", {"path": "a/text.md", "limit": 1}).structured
        assert found["metadata"]["size"] == len(DATA)
