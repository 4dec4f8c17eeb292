from __future__ import annotations

import pytest

from skillfs.core.ignore import IgnoreRules
from skillfs.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("name", "extra", "reason", "folder_is_ignored"),
    [
        ("SKILL.md", (), None, False),
        (".git", (), "ignored", True),
        ("x.pyc", (), "ignored", True),
        (".gitignore", (), None, False),
        (".env", (), "secret", False),
        (".env.local", (), "secret", False),
        (".env.example", (), None, False),
        ("server.pem", (), "secret", False),
        ("id_rsa-rotation", (), "secret", False),
        ("id_ed25519", (), "secret", False),
        ("id_rsa~", (), "secret", True),
        (".env", (".env",), "ignored", True),
        (".env", ("!.env",), None, False),
        (".git", ("!.git",), None, False),
        ("x.tmp", ("*.tmp",), "ignored", True),
        ("x.tmp", ("*.tmp", "!x.*"), None, False),
        ("x.tmp", ("!x.*", "*.tmp"), "ignored", True),
        ("X.TMP", ("*.tmp",), None, False),
    ],
)
def test_names(name: str, extra: tuple[str, ...], reason: str | None, folder_is_ignored: bool) -> None:
    rules = IgnoreRules(extra)
    assert rules.reason(name) == reason
    assert rules.ignores_folder(name) == folder_is_ignored
    for above in ("", "a/", "a/b/"):
        assert rules.hides(above + name, is_folder=False) == (reason is not None)
        assert rules.hides(above + name, is_folder=True) == folder_is_ignored
        for is_folder in (False, True):
            assert rules.hides(f"{above}{name}/x.md", is_folder=is_folder) == folder_is_ignored
            assert rules.hides(f"{above}{name}/b/c", is_folder=is_folder) == folder_is_ignored


def test_the_root_is_never_hidden() -> None:
    assert not IgnoreRules(["*"]).hides("", is_folder=True)


@pytest.mark.parametrize("extra", ["*.tmp", [""], ["!"], ["a/b"], ["a\0"], [1]])
def test_what_is_no_pattern(extra: object) -> None:
    with pytest.raises(InvalidArgumentError):
        IgnoreRules(extra)  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [(), ("!*~",), ("!.*",), ("!*",), ("!.skillfs-*",)])
def test_files_that_are_being_written_are_never_served(extra: tuple[str, ...]) -> None:
    rules = IgnoreRules(extra)
    assert rules.reason(".skillfs-0123456789abcdef~") == "ignored"
    assert rules.hides("a/.skillfs-0123456789abcdef~", is_folder=False)
    assert rules.ignores_folder(".skillfs-0123456789abcdef~")
    for other in (".skillfs-0123456789abcdef", ".skillfs-012345~", "x.skillfs-0123456789abcdef~"):
        assert (rules.reason(other) is None) == (not other.endswith("~") or extra in (("!*~",), ("!*",)) or
                                                 (extra != () and other.startswith(".skillfs-")))  # fmt: skip
