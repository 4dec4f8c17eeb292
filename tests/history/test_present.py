"""What a store shows now, held against what its listings say."""

import os
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.core.digest import sha256
from skillfs.history.present import Present, digests_of, present

HEAD = "---\nname: {}\ndescription: A skill.\n---\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    files = {
        "pdf/SKILL.md": HEAD.format("pdf"),
        "pdf/scripts/run.sh": "#!/bin/sh\n",
        "pdf/inner/SKILL.md": HEAD.format("inner"),
        "pdf/inner/notes.txt": "notes\n",
        "pdf/.env": "SECRET=1\n",
        "team/deep/docx/SKILL.md": HEAD.format("docx"),
        "loose.txt": "in no skill\n",
    }
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (root / "pdf/scripts/run.sh").chmod(0o755)
    (root / "pdf/empty").mkdir()
    (root / "pdf/hidden").mkdir()
    (root / "pdf/hidden/__pycache__").mkdir()
    (root / "pdf/link.sh").symlink_to("scripts/run.sh")
    (root / "pdf/away").symlink_to("../team/deep/docx")
    (root / "pdf/nowhere").symlink_to("gone")
    (root / "alias").symlink_to("pdf/inner")
    return root


def shown(root: Path, base_paths: list[str] | None = None) -> Present:
    fs = SkillFileSystem(root, index=":memory:")
    (view,) = fs._seen_by(base_paths)
    return present(view)


def as_dict(found: Present) -> dict[str, tuple[list[str], list[tuple[str, str]], list[str]]]:
    return {
        skill.path: (
            [file.path for file in skill.files],
            [(link.path, link.target) for link in skill.links],
            skill.folders,
        )
        for skill in found.skills
    }


def test_everything(root: Path) -> None:
    found = shown(root)
    assert as_dict(found) == {
        "pdf": (
            ["SKILL.md", "scripts/run.sh"],
            [("away", "team/deep/docx"), ("link.sh", "pdf/scripts/run.sh")],
            ["empty", "hidden"],
        ),
        "pdf/inner": (["SKILL.md", "notes.txt"], [], []),
        "team/deep/docx": (["SKILL.md"], [], []),
    }
    assert [(link.path, link.target) for link in found.links] == [("alias", "pdf/inner")]
    pdf = found.skills[0]
    assert [skill.path for skill in found.nested(pdf)] == ["pdf", "pdf/inner"]
    assert [link.file is not None for link in pdf.links] == [False, True]
    assert pdf.below("x") == "pdf/x"


def test_uuids_are_those_of_the_entries(root: Path) -> None:
    fs = SkillFileSystem(root, index=":memory:")
    (view,) = fs._seen_by(None)
    found = present(view)
    for path, uuid in found.uuids.items():
        assert fs.entry(path or "/").uuid.replace("-", "") == uuid.hex()
    # The links are no entries of their own.
    linked = {path for path, info in fs.find("", withdirs=True, detail=True).items() if info.get("islink")}
    assert set(found.uuids) - {""} == set(fs.find("", withdirs=True)) - linked - {
        path for path in fs.find("", withdirs=True) if any(path.startswith(f"{link}/") for link in linked)
    }


def test_executable_bit_of_a_disk(root: Path) -> None:
    files = {file.path: file.executable for file in shown(root).skills[0].files}
    assert files == {"SKILL.md": False, "scripts/run.sh": True}


def test_change_of_the_executable_bit_alone_is_noticed(root: Path) -> None:
    fs = SkillFileSystem(root, index=":memory:")
    (root / "pdf/SKILL.md").chmod(0o744)
    fs.sync()
    (view,) = fs._seen_by(None)
    assert present(view).skills[0].files[0].executable is True


def test_remote_store_does_not_know_the_executable_bit() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/present/pdf/SKILL.md", HEAD.format("pdf").encode())
    try:
        fs = SkillFileSystem("memory://present")
        (view,) = fs._seen_by(None)
        assert [file.executable for file in present(view).skills[0].files] == [None]
    finally:
        memory.rm("/present", recursive=True)


@pytest.mark.parametrize("base", ["pdf/inner", "team"])
def test_confined_to_some_skills_nothing_else_is_told(root: Path, base: str) -> None:
    found = shown(root, [base])
    assert [skill.path for skill in found.skills] == [base if base != "team" else "team/deep/docx"]
    told = [path for path in found.uuids if path]
    assert all(path == base or path.startswith(f"{base}/") or base.startswith(f"{path}/") for path in told)
    assert found.links == []


def test_confined_link_to_what_is_out_of_bounds_is_not_told(root: Path) -> None:
    found = shown(root, ["pdf"])
    assert [link.path for link in found.skills[0].links] == ["link.sh"]


def test_root_that_is_a_skill(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text(HEAD.format("whole"))
    (tmp_path / "a.txt").write_text("a")
    found = shown(tmp_path)
    assert as_dict(found) == {"": (["SKILL.md", "a.txt"], [], [])}
    assert found.skills[0].node is None


def test_digests_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SkillFileSystem(root, index=":memory:")
    (view,) = fs._seen_by(None)
    import time

    time.sleep(0.1)  # until then a file may be being written, and nothing is kept of it
    fs.sync()
    found = present(view)
    nodes = [file.node for skill in found.skills for file in skill.files]
    first = digests_of(found, nodes)
    for skill in found.skills:
        for file in skill.files:
            data = (root / skill.below(file.path)).read_bytes()
            assert first[file.node.key] == (len(data), sha256(data).digest())
    monkeypatch.setattr(os, "pread", None)
    monkeypatch.setattr(os, "read", None)
    assert digests_of(present(view), nodes) == first
