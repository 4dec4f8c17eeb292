"""What `import skillfs` offers."""

import subprocess
import sys

import pytest

import skillfs


def test_every_public_name_is_there() -> None:
    for name in skillfs.__all__:
        value = getattr(skillfs, name)
        assert isinstance(value, tuple) or value.__module__.startswith("skillfs.")


def test_public_names_are_sorted_and_documented() -> None:
    assert list(skillfs.__all__) == sorted(set(skillfs.__all__), key=lambda n: (not n.isupper(), n))
    for name in skillfs.__all__:
        assert getattr(skillfs, name).__doc__, name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = skillfs.nothing_of_the_kind


def test_import_loads_nothing_heavy() -> None:
    heavy = {"fsspec", "yaml", "rich", "click", "sqlite3"}
    code = f"import sys, skillfs; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
