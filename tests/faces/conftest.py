"""What the tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs.faces.cli import OBJECTS_VARIABLE, main
from tests.faces.test_cli import Done


@pytest.fixture
def run(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Run a command in this process, in an empty folder."""
    monkeypatch.delenv(OBJECTS_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run_in_process(*arguments: str | Path) -> Done:
        code = main([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out.decode(), captured.err.decode())

    return run_in_process
