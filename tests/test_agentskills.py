"""The adapter for `agentskills-core`, by the suite that comes with that library."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write

THERE = all(importlib.util.find_spec(name) for name in ("agentskills_core", "agentskills_testing"))


@pytest.mark.skipif(
    importlib.util.find_spec("agentskills_core") is not None, reason="agentskills-core is installed"
)
def test_without_the_library_the_extra_is_named() -> None:
    code = "import skillfs.agentskills"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'fsspec-skillfs[agentskills]'" in done.stderr.splitlines()[-1]
    assert "ImportError: skillfs.agentskills needs agentskills-core" in done.stderr


if not THERE:

    @pytest.mark.timeout(300)
    def test_conformance_on_a_newer_python(tmp_path: Path) -> None:
        """Run this module on Python 3.12, in an environment of its own, where the machine has one."""
        python = next(filter(works, newer_pythons()), None)
        if python is None:
            pytest.skip("agentskills-core needs Python 3.12, and there is none here")
        root = Path(__file__).parent.parent
        subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
        own = tmp_path / "venv" / "bin" / "python"
        needed = ["agentskills-testing>=0.7", "pytest", "pytest-timeout", "pytest-xdist"]
        install = [own, "-m", "pip", "install", "-q"]
        if subprocess.run([*install, *needed], capture_output=True).returncode:
            pytest.skip("the packages for a newer Python cannot be had here")
        subprocess.run([*install, "-e", f"{root}[agentskills]"], check=True, capture_output=True)
        done = subprocess.run(
            [own, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/test_agentskills.py"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        assert re.search(r"\b1[0-9]{2} passed", done.stdout), done.stdout[-400:]

    def newer_pythons() -> Iterator[str]:
        """Interpreters on the path, and those that pyenv keeps beside the stand-ins that it puts there."""
        for name in ("python3.13", "python3.12"):
            if (found := shutil.which(name)) is not None:
                yield found
                yield from map(str, Path(found).parent.parent.glob(f"versions/*/bin/{name}"))

    def works(python: str) -> bool:
        """Whether this is an interpreter, and no mere stand-in for one, that can make environments."""
        done = subprocess.run([python, "-c", "import ensurepip, sqlite3, venv"], capture_output=True)
        return done.returncode == 0

else:
    from agentskills_core import (
        AgentSkillsError,
        ProviderUnavailableError,
        ResourceNotFoundError,
        SkillNotFoundError,
        SkillRegistry,
        capture_skill,
    )
    from agentskills_testing import (
        ASSET_BYTES,
        ASSET_NAME,
        REFERENCE_BYTES,
        REFERENCE_NAME,
        SCRIPT_BYTES,
        SCRIPT_NAME,
        SKILL_ID,
        ContentLimitConformanceSuite,
        ProviderConformanceSuite,
    )

    from skillfs.agentskills import SkillFSProvider

    CONTRACT_SKILL = {
        f"team/{SKILL_ID}/SKILL.md": skill_md(SKILL_ID),
        f"team/{SKILL_ID}/references/{REFERENCE_NAME}": REFERENCE_BYTES,
        f"team/{SKILL_ID}/scripts/{SCRIPT_NAME}": SCRIPT_BYTES,
        f"team/{SKILL_ID}/assets/{ASSET_NAME}": ASSET_BYTES,
    }

    @pytest.fixture(params=["local", "memory", "mounted"])
    def contract_fs(request: pytest.FixtureRequest, root: Path) -> SkillFileSystem:
        options = {"index": ":memory:", "skip_instance_cache": True}
        write(root, CONTRACT_SKILL)
        if request.param == "local":
            return SkillFileSystem(root, **options)
        if request.param == "mounted":
            return SkillFileSystem({"here": root}, **options)
        import fsspec

        memory = fsspec.filesystem("memory", skip_instance_cache=True)
        memory.pipe({f"/agentskills/{path}": _bytes(content) for path, content in CONTRACT_SKILL.items()})
        return SkillFileSystem("memory://agentskills", **options)

    def _bytes(content: str | bytes) -> bytes:
        return content.encode() if isinstance(content, str) else content

    class TestProvider(ProviderConformanceSuite):
        @pytest.fixture
        def provider(self, contract_fs: SkillFileSystem) -> SkillFSProvider:
            return SkillFSProvider(contract_fs)

    class TestLimits(ContentLimitConformanceSuite):
        @pytest.fixture
        def limited_provider(self, contract_fs: SkillFileSystem) -> SkillFSProvider:
            return SkillFSProvider(contract_fs, max_bytes=8)

    @pytest.fixture
    def provider(root: Path, open_fs: Callable[..., SkillFileSystem]) -> SkillFSProvider:
        write(
            root,
            {
                "a/pdf/SKILL.md": "\ufeff---\r\nname: pdf\r\ndescription: Reads.\r\nversion: 1.10\r\n"
                "metadata:\r\n  by: us\r\n---\r\n# PDF\r\n---\r\nend",
                "a/pdf/scripts/deep/er.py": "1",
                "a/pdf/scripts/.hidden": "2",
                "a/pdf/scripts/inner/SKILL.md": skill_md("inner"),
                "a/pdf/notes/größe #1.md": "3",
                "b/pdf/SKILL.md": skill_md("pdf", "The other one."),
                "b/pdf/scripts/other.py": "4",
                "b/plain/SKILL.md": "# No front matter\n\nWhat it does.\n",
                "b/broken/SKILL.md": b"\xff\xfe\x00",
                "b/no\nreference/SKILL.md": "# Can name it\n",
                "outside.txt": "5",
            },
        )
        (root / "a" / "pdf" / "linked.txt").symlink_to("notes/größe #1.md")
        (root / "a" / "pdf" / "away.txt").symlink_to("../../outside.txt")
        (root / "a" / "pdf" / "folder").symlink_to("notes")
        return SkillFSProvider(open_fs())

    @pytest.mark.asyncio
    async def test_the_id_is_the_name(provider: SkillFSProvider) -> None:
        assert await provider.discover() == ["broken", "inner", "pdf", "plain"]
        assert await provider.get_metadata("pdf") == {
            "name": "pdf",
            "description": "Reads.",
            "version": "1.10",
            "metadata": {"by": "us"},
        }
        assert await provider.get_body("pdf") == "# PDF\r\n---\r\nend"
        assert await provider.get_metadata("plain") == {"name": "plain", "description": "What it does."}
        assert await provider.get_body("plain") == "# No front matter\n\nWhat it does.\n"
        uuid = provider._fs.skill("pdf").uuid
        for other in ("a/pdf", "b/pdf", "a", uuid, "", "/", "pdf/", "name:pdf", "PDF", "x" * 5_000, "\ud800"):
            with pytest.raises(SkillNotFoundError):
                await provider.get_body(other)
        with pytest.raises(AgentSkillsError, match="no UTF-8 text"):
            await provider.get_body("broken")

    @pytest.mark.asyncio
    async def test_files_are_those_of_the_manifest(provider: SkillFSProvider) -> None:
        fs = provider._fs
        assert await provider.list_files("pdf") == [entry.path for entry in fs.manifest("a/pdf")]
        assert (await provider.list_resources("pdf"))["scripts"] == [
            ".hidden",
            "deep/er.py",
            "inner/SKILL.md",
        ]
        for path in await provider.list_files("pdf"):
            assert await provider.read_file("pdf", path) == fs.cat_file(f"a/pdf/{path}")
        assert await provider.get_script("pdf", "deep/er.py") == b"1"
        assert await provider.read_file("pdf", "linked.txt") == b"3"
        for path in (
            "away.txt",
            "scripts",
            "scripts/",
            "",
            "/notes",
            "scripts/other.py",
            "notes/gr\ud800",
            "x://y",
        ):
            with pytest.raises(ResourceNotFoundError):
                await provider.read_file("pdf", path)
        snapshot = await capture_skill(await _registered(provider, "inner"))
        assert [file.path for file in snapshot.files] == ["SKILL.md"]

    async def _registered(provider: SkillFSProvider, name: str) -> object:
        registry = SkillRegistry()
        await registry.register(name, provider)
        return registry.get_skill(name)

    @pytest.mark.asyncio
    async def test_what_changes_is_seen(provider: SkillFSProvider, root: Path) -> None:
        write(root, {"b/plain/SKILL.md": skill_md("plain", "Now with front matter.", "New.")})
        assert (await provider.get_metadata("plain"))["description"] == "Now with front matter."
        assert await provider.get_body("plain") == "New."
        root.rename(root.parent / "away")
        with pytest.raises(ProviderUnavailableError):
            await provider.get_body("plain")

    @pytest.mark.asyncio
    async def test_samples_are_registered() -> None:
        samples = Path(__file__).parent.parent / "sample_skills"
        fs = SkillFileSystem(samples, index=":memory:", skip_instance_cache=True)
        registry, provider = SkillRegistry(), SkillFSProvider(fs)
        names = sorted(skill.name for skill in fs.skills())
        assert await registry.register_all(provider) == names
        values = await registry.get_skill("csv-profiling").get_metadata()
        assert values["allowed-tools"] == ["Bash(python3:*)", "Bash(sh:*)", "Read"]
        assert values["compatibility"]["text"].startswith("Python 3.11 or newer")

    @pytest.mark.asyncio
    @pytest.mark.parametrize(
        ("written", "told"),
        [
            ("Read", ["Read"]),
            ("Read  Bash(git add:*) Write", ["Read", "Bash(git add:*)", "Write"]),
            ("Bash(a (b", ["Bash(a", "(b"]),
            ("[Read, Write]", ["Read", "Write"]),
            ("", []),
        ],
    )
    async def test_allowed_tools_are_a_list(
        root: Path, open_fs: Callable[..., SkillFileSystem], written: str, told: list[str]
    ) -> None:
        text = f"---\nname: a\ndescription: Does.\nallowed-tools: {written}\n---\nBody.\n"
        write(root, {"a/SKILL.md": text})
        provider = SkillFSProvider(open_fs())
        assert (await provider.get_metadata("a")).get("allowed-tools") == told
        assert await SkillRegistry().register_all(provider) == ["a"]
