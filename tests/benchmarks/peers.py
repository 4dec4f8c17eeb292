"""Other tools on the same work, each as its own documentation says, in a process of its own.

The functions for Python packages run in the virtual environments that `install` makes, so this module needs
the standard library alone. How many skills a peer found, or refused, is among its figures.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import venv
import warnings
from pathlib import Path

from tests.benchmarks.measure import Meter, command, microseconds

PACKAGES = ("deepagents", "pydantic-ai-skills", "fastmcp", "skills-ref", "fusepy")
PROGRAMS = ("git", "rclone", "fdfind", "bindfs")
_WITH = {"fusepy": ("fsspec", "s3fs")}  # whose `fsspec.fuse` it is for


def install(folder: Path) -> None:
    """Make the environments in `folder` that are not there yet; one that cannot be made is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if python_of(folder, package):
            continue
        print(f"installing {package} …", file=sys.stderr)
        venv.create(folder / package, with_pip=True)
        python = folder / package / "bin" / "python"
        argv = [python, "-m", "pip", "install", "--quiet", package, *_WITH.get(package, ())]
        done = subprocess.run(argv, stderr=subprocess.DEVNULL)
        if done.returncode:
            shutil.rmtree(folder / package)


def python_of(folder: Path | None, package: str) -> str | None:
    """The interpreter that has `package`; None where it is not installed."""
    if folder is None:
        return None
    python = folder / package / "bin" / "python"
    name = package.replace("-", "_")
    found = list((folder / package).glob(f"lib/python3*/site-packages/{name}-*.dist-info"))
    return str(python) if found and python.exists() else None


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def git_command(store: str, git_dir: str, *arguments: str) -> list[str]:
    """A command of git on a repository that lies outside of what it holds."""
    settings = ["-c", "core.untrackedCache=false", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"]
    return ["git", f"--git-dir={git_dir}", f"--work-tree={store}", *settings, *arguments]


def git_environment() -> dict[str, str]:
    """An environment in which git commits, whatever it is told on this machine."""
    who = {f"GIT_{role}_{key}": "benchmark" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    return os.environ | who | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git_add(store: str, git_dir: str) -> dict[str, float]:
    """`git add` of everything into an empty repository, then, not timed, a commit for `git_status`."""
    shutil.rmtree(git_dir, ignore_errors=True)
    env = git_environment()
    # Started from the store, for git takes "." from where it is started.
    subprocess.run(git_command(store, git_dir, "init", "--quiet"), env=env, check=True, cwd=store)
    figures = command(git_command(store, git_dir, "add", "."), env=env, cwd=store)
    subprocess.run(
        git_command(store, git_dir, "commit", "--quiet", "-m", "all"), env=env, check=True, cwd=store
    )
    # The first run after an add looks again at what was written in the same instant.
    subprocess.run(git_command(store, git_dir, "status", "--porcelain"), env=env, check=True, cwd=store)
    return figures


def git_status(store: str, git_dir: str) -> dict[str, float]:
    return command(git_command(store, git_dir, "status", "--porcelain"), env=git_environment(), cwd=store)


def rclone_md5(store: str) -> dict[str, float]:
    """A listing of all files with their MD5."""
    figures = command(["rclone", "--config", "/dev/null", "md5sum", store])
    # It tells the kernel to drop the pages that it has read; without this whoever comes next reads from disk,
    # and md5sum then takes twice its CPU seconds.
    subprocess.run(["grep", "-rq", "no such line in any of the files", store])
    return figures


def fd(store: str) -> dict[str, float]:
    """Paths of all `SKILL.md`, hidden and ignored folders included."""
    return command(["fdfind", "--unrestricted", "--glob", "SKILL.md", store])


def fastmcp(store: str) -> dict[str, float]:
    """Load every skill folder, its files hashed, as the provider for servers does."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from fastmcp.skills.provider import SkillsDirectoryProvider

    refused = 0
    with Meter() as meter:
        try:
            SkillsDirectoryProvider(store)
        except ValueError as error:
            # Refused as a whole for the invalid ones, after all were read.
            refused = int(str(error).split(" ", 1)[0])
    return meter.figures() | {"refused": refused}


def deepagents(store: str, libraries: list[str]) -> dict[str, float]:
    """Names and descriptions from every library; it looks one level deep and keeps one skill of each name."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from deepagents.backends.filesystem import FilesystemBackend
    from deepagents.middleware.skills import SkillsMiddleware

    with Meter() as meter:
        backend = FilesystemBackend(root_dir=store, virtual_mode=True)
        middleware = SkillsMiddleware(backend=backend, sources=[f"/{library}/" for library in libraries])
        update = middleware.before_agent({}, None, {})
    return meter.figures(len(update["skills_metadata"]))


def pydantic_ai_skills(store: str, libraries: list[str]) -> dict[str, float]:
    """Names and descriptions from every library; it looks one level deep."""
    warnings.simplefilter("ignore")
    from pydantic_ai_skills import LocalSkillsRegistry

    with Meter() as meter:
        infos = [
            info for library in libraries for info in LocalSkillsRegistry(f"{store}/{library}").skill_infos()
        ]
    return meter.figures(len(infos))


def skills_ref(store: str) -> dict[str, float]:
    """Properties of every skill; finding the folders is left to the caller, here by `os.walk`."""
    from skills_ref import SkillError, read_properties

    found = 0
    with Meter() as meter:
        for folder, _, files in os.walk(store):
            if "SKILL.md" not in files:
                continue
            try:
                read_properties(Path(folder))
            except (SkillError, UnicodeDecodeError):
                continue
            found += 1
    return meter.figures(found)


def skills_ref_prompt(skills: list[str]) -> dict[str, float]:
    """Its command line, from start to end; it refuses a list in which one skill is not to its liking."""
    return command([str(Path(sys.executable).with_name("agentskills")), "to-prompt", *skills])


def deepagents_read(store: str, paths: list[str], calls: int) -> dict[str, float]:
    """Read a file of 4 KB through its filesystem backend."""
    warnings.simplefilter("ignore")
    from deepagents.backends.filesystem import FilesystemBackend

    backend = FilesystemBackend(root_dir=store, virtual_mode=True)
    if backend.read(f"/{paths[0]}").error:
        raise RuntimeError("deepagents could not read the page")
    return {"": microseconds(backend.read, [(f"/{paths[i % len(paths)]}",) for i in range(calls)])}


def decode_all(path: str, characters: int, calls: int) -> dict[str, float]:
    """Decode the whole text and cut 1,000 characters out, as readers without an index do."""

    def read(start: int) -> str:
        with open(path, encoding="utf-8", newline="") as text:
            return text.read()[start : start + 1000]

    places = {"start": 0, "middle": characters // 2, "end": characters - 2000}
    return {name: microseconds(read, [(place,)] * calls) for name, place in places.items()}
