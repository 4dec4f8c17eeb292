"""Locks: their text, there and back, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core.lock import (
    Lock,
    LockedFile,
    Verification,
    VerifiedFile,
    VerifiedSkill,
    locked_skills,
    parse_lock,
    render_lock,
)
from skillfs.core.manifest import digest_text, path_fault, skill_digest
from skillfs.errors import IntegrityError, InvalidArgumentError

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(lambda p: path_fault(p) is None)


def lock_of(files: dict[str, dict[str, tuple[int, bytes, bool]]]) -> Lock:
    return Lock(
        locked_skills(
            {skill: [LockedFile(path, *rest) for path, rest in own.items()] for skill, own in files.items()}
        )
    )


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    """Locks of skills, nested ones too, that can lie in one tree."""
    contents = st.tuples(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.booleans())
    skills: dict[str, dict[str, tuple[int, bytes, bool]]] = {}
    for path in draw(st.lists(st.one_of(st.just(""), PATHS), min_size=1, max_size=4, unique=True)):
        # A folder that no file is called like.
        own = {f"{name}.f": draw(contents) for name in draw(st.lists(NAMES, max_size=3))}
        own = {name: content for name, content in own.items() if path_fault(name) is None}
        whole = "/".join(f"{part}.d" for part in path.split("/")) if path else ""
        if not whole or path_fault(whole) is None:
            skills[whole] = {**own, "SKILL.md": draw(contents)}
    return lock_of(skills) if skills else lock_of({"": {"SKILL.md": draw(contents)}})


SMALL = lock_of(
    {
        "pdf": {"SKILL.md": (3, b"\1" * 32, False), "run.sh": (2**40, b"\2" * 32, True)},
        "pdf/in": {"SKILL.md": (0, b"\3" * 32, False)},
    }
)
TEXT = render_lock(SMALL)


def test_the_format() -> None:
    one, nested = "01" * 32, "03" * 32
    digest = skill_digest(
        [("SKILL.md", 3, b"\1" * 32), ("run.sh", 2**40, b"\2" * 32), ("in/SKILL.md", 0, b"\3" * 32)]
    )
    assert TEXT.decode() == (
        '{\n  "format": "skillfs-lock",\n  "version": 1,\n  "algorithm": "sha256",\n  "skills": [\n'
        f'    {{\n      "path": "pdf",\n      "digest": "{digest_text(digest)}",\n      "files": [\n'
        f'        {{"path": "SKILL.md", "size": 3, "sha256": "{one}"}},\n'
        f'        {{"path": "run.sh", "size": {2**40}, "sha256": "{"02" * 32}", "executable": true}}\n'
        '      ]\n    },\n    {\n      "path": "pdf/in",\n'
        f'      "digest": "{digest_text(skill_digest([("SKILL.md", 0, bytes([3] * 32))]))}",\n'
        f'      "files": [\n        {{"path": "SKILL.md", "size": 0, "sha256": "{nested}"}}\n'
        "      ]\n    }\n  ]\n}\n"
    )


@given(locks())
def test_what_is_written_is_read_back(lock: Lock) -> None:
    text = render_lock(lock)
    assert parse_lock(text) == lock
    paths = [skill["path"].encode() for skill in json.loads(text)["skills"]]
    assert paths == sorted(paths)
    for skill in json.loads(text)["skills"]:
        names = [file["path"].encode() for file in skill["files"]]
        assert names == sorted(names)


@given(locks())
def test_nothing_hidden_stands_in_the_text(lock: Lock) -> None:
    hidden = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), *"\u200e\u202e\u2066\u2028\ufeff\U000e0041"}
    for line in render_lock(lock).decode().split("\n"):
        assert hidden.isdisjoint(line)


def test_each_byte_flipped_is_caught() -> None:
    """Here by parsing alone; of a skill that is not nested another path passes, and verifying catches it."""
    passed = []
    for at in range(len(TEXT)):
        for bit in range(8):
            data = TEXT[:at] + bytes([TEXT[at] ^ 1 << bit]) + TEXT[at + 1 :]
            try:
                found = parse_lock(data)
            except IntegrityError:
                continue
            passed.append(found)
    assert passed == []


@given(st.integers(0, len(TEXT) - 1))
def test_cut_off(end: int) -> None:
    with pytest.raises(IntegrityError):
        parse_lock(TEXT[:end])


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(TEXT)
    change(value)
    return json.dumps(value).encode()


def file(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["skills"][0]["files"][0]
    return found


DEEP = "/".join(["d" * 250] * 17)
BAD_PATHS = ("../../x", "/etc/x", "a//b", "./a", "", "a\0b", "a/..", "\ud800", "x" * 256, DEEP, 7)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no JSON"),
        (b"[]", "format"),
        (b"{}", "format"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (TEXT.replace(b'"version": 1', b'"version": 1, "version": 1'), "no JSON"),
        (TEXT.replace(b'"size": 3', b'"size": 3.0'), "no JSON"),
        (TEXT.replace(b'"size": 3', b'"size": 1' + b"0" * 5000), "no JSON"),
        (TEXT + b"\n", "not written as"),
        (TEXT.rstrip(b"\n"), "not written as"),
        (TEXT.replace(b"\n", b"\r\n"), "other line endings"),
        (b"\xef\xbb\xbf" + TEXT, "no JSON"),
        (TEXT.replace(b"pdf", b"\\u0070df"), "not written as"),
        (changed(lambda v: v.update(version=2)), "upgrade skillfs"),
        (changed(lambda v: v.update(version=True)), "upgrade skillfs"),
        (changed(lambda v: v.update(version="1")), "upgrade skillfs"),
        (changed(lambda v: v.update(algorithm="md5")), '"md5"'),
        (changed(lambda v: v.pop("algorithm")), "algorithm"),
        (changed(lambda v: v.update(extra=1)), "key"),
        (changed(lambda v: v.update(skills=[])), "names no skill"),
        (changed(lambda v: v.update(skills={})), "skills belong"),
        (changed(lambda v: v["skills"].reverse()), "out of order"),
        (changed(lambda v: v["skills"].append(v["skills"][1])), "twice"),
        (changed(lambda v: v["skills"][0]["files"].reverse()), "out of order"),
        (changed(lambda v: v["skills"][0]["files"].append(v["skills"][0]["files"][1])), "twice"),
        (changed(lambda v: v["skills"][0]["files"].clear()), "without a SKILL.md"),
        (changed(lambda v: v["skills"][0].update(files=None)), "files belong"),
        (changed(lambda v: v["skills"][0].update(digest="sha256:00")), "digest of a skill"),
        (changed(lambda v: v["skills"][0].update(digest="sha256:" + "0" * 64)), "digest that its files"),
        (changed(lambda v: v["skills"][1].update(path="pdf/run.sh")), "twice"),
        (changed(lambda v: file(v).update(sha256="0" * 63)), "SHA-256 belongs"),
        (changed(lambda v: file(v).update(sha256="A" * 64)), "SHA-256 belongs"),
        (changed(lambda v: file(v).update(sha256=7)), "SHA-256 belongs"),
        (changed(lambda v: file(v).update(size=-1)), "size of a file"),
        (changed(lambda v: file(v).update(size=2**63)), "size of a file"),
        (changed(lambda v: file(v).update(size=True)), "size of a file"),
        (changed(lambda v: file(v).update(executable=False)), "not written as"),
        (changed(lambda v: file(v).update(executable=1)), "another form"),
        (changed(lambda v: file(v).update(mode=1)), "another form"),
        *(
            (changed(lambda v, path=path: file(v).update(path=path)), "names the path")  # type: ignore[misc]
            for path in BAD_PATHS
        ),
        (changed(lambda v: v["skills"][0].update(path="../x")), "names the path"),
        (changed(lambda v: v["skills"][0].update(path="/x")), "names the path"),
    ],
)
def test_what_is_no_lock(data: bytes, message: str) -> None:
    with pytest.raises(IntegrityError, match=message) as error:
        parse_lock(data)
    assert len(str(error.value)) < 600


def test_files_lie_with_their_own_skill() -> None:
    empty = (0, b"0" * 32, False)
    lock = lock_of({"a": {"SKILL.md": empty, "b/x": empty}, "a/b": {"SKILL.md": empty}})
    with pytest.raises(IntegrityError, match="another skill"):
        parse_lock(render_lock(lock))


def test_skills_nested_without_end() -> None:
    """A small lock costs no more than a large one, however it nests."""
    path, files = "", {}
    for _ in range(600):
        path = f"{path}/a".lstrip("/")
        files[path] = {"SKILL.md": (0, b"0" * 32, False)}
    files[path] |= {f"f{number}": (0, b"0" * 32, False) for number in range(1_000)}
    with pytest.raises(InvalidArgumentError, match="nested too deep"):
        lock_of(files)
    entry = '{"path": "%s", "size": 0, "sha256": "' + "0" * 64 + '"}'
    skills = [
        {"path": path, "digest": "sha256:" + "0" * 64, "files": [json.loads(entry % name) for name in own]}
        for path, own in ((path, sorted(own)) for path, own in files.items())
    ]
    text = changed(lambda value: value.update(skills=skills))
    with pytest.raises(IntegrityError, match="too deep"):
        parse_lock(text)


def test_what_counts_as_verified() -> None:
    ok = VerifiedSkill("a", "ok", (VerifiedFile("SKILL.md", "ok"), VerifiedFile(".env", "ignored")))
    new = VerifiedSkill("b", "unlocked")
    assert Verification((ok,)).ok
    assert not Verification(()).ok
    assert not Verification((ok, new)).ok
    assert Verification((ok, new), allow_unlocked=True).ok
    assert not Verification((new,), allow_unlocked=True).ok  # not one file was compared
    assert not Verification((ok, VerifiedSkill("a/b", "extra")), allow_unlocked=True).ok
    assert Verification((ok, new)).counts == {
        "skills.ok": 1, "files.ok": 1, "files.ignored": 1, "skills.unlocked": 1,
    }  # fmt: skip
