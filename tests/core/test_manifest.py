import json
import uuid as uuidlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.core import manifest_json
from skillfs.core.digest import sha256
from skillfs.core.manifest import (
    Manifest,
    ManifestFile,
    ManifestSkill,
    ManifestTop,
    SnapshotRecord,
    check_label,
    digest_text,
    parse_digest,
    part_name,
    path_fault,
    skill_digest,
)
from skillfs.core.manifest_json import (
    canonical_json,
    parse_json,
    parse_part,
    parse_record,
    parse_top,
    render_part,
    render_record,
    render_top,
    written,
)
from skillfs.errors import IntegrityError, InvalidArgumentError

ONE, TWO = sha256(b"1").digest(), sha256(b"2").digest()
SKILL_MD = ManifestFile("SKILL.md", 7, ONE, False)

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8)
names = names.filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
digests = st.binary(min_size=32, max_size=32)
counts = st.integers(0, 2**63 - 1)
sizes = st.integers(0, 2**40)
links = st.dictionaries(paths, paths | st.just(""), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
files = st.builds(ManifestFile, paths, sizes, digests, st.booleans())


@st.composite
def skills(draw: st.DrawFn) -> ManifestSkill:
    own = {file.path: file for file in draw(st.lists(files, max_size=4))} | {"SKILL.md": SKILL_MD}
    return ManifestSkill(
        draw(paths | st.just("")), draw(digests), tuple(own[path] for path in sorted(own)), draw(links),
        tuple(sorted(draw(st.sets(paths, max_size=3)))),
    )  # fmt: skip


parts = st.dictionaries(st.from_regex(r"[0-9a-f]{2}", fullmatch=True), digests, max_size=4)
tops = st.builds(ManifestTop, parts, counts, counts, counts, links)
times = st.datetimes(datetime(1970, 1, 1), datetime(2261, 12, 31), timezones=st.just(UTC))
records = st.builds(
    SnapshotRecord,
    digests,
    st.lists(digests, max_size=2).map(tuple),
    times,
    st.uuids(),
    st.lists(
        st.tuples(paths, st.uuids()), max_size=3, unique_by=(lambda one: one[0], lambda one: one[1])
    ).map(lambda found: tuple(sorted(found))),
    counts,
    counts,
    counts,
)

SKILL = ManifestSkill(
    "a/é", ONE, (SKILL_MD, ManifestFile("b/x\n", 9, TWO, True)), (("l", ""), ("m", "a/b")), ("e",)
)
PART = part_name(SKILL.path)
TOP = ManifestTop({PART: TWO, "00": ONE}, 1, 2, 16, (("top", "a/é"),))
RECORD = SnapshotRecord(
    ONE,
    (TWO,),
    datetime(2026, 11, 30, 12, 0, 0, 5, UTC),
    uuidlib.UUID(int=7),
    (("a", uuidlib.UUID(int=8)),),
    1,
    2,
    16,
)
DOCUMENTS = {
    "top": (render_top(TOP), parse_top),
    "part": (render_part([SKILL]), lambda data: parse_part(data, PART)),
    "record": (render_record(RECORD), parse_record),
}


# -- there and back ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(skills(), max_size=3))
def test_what_is_written_of_skills_is_read_back(found):
    for name in {part_name(skill.path) for skill in found}:
        own = {skill.path: skill for skill in found if part_name(skill.path) == name}
        text = render_part(own.values())
        assert parse_part(text, name) == tuple(own[path] for path in sorted(own))
        assert text.isascii()


@settings(deadline=None)
@given(tops)
def test_what_is_written_of_a_top_is_read_back(top):
    assert parse_top(render_top(top)) == top


@settings(deadline=None)
@given(records)
def test_what_is_written_of_a_record_is_read_back(record):
    assert parse_record(render_record(record)) == record


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(paths, skills(), max_size=4), links)
def test_a_manifest_is_written_in_parts_that_make_it_again(found, outside):
    manifest = Manifest(tuple(replace(found[path], path=path) for path in sorted(found)), outside)
    text, texts = written(manifest)
    top = parse_top(text)
    again = [skill for name, digest in top.parts.items() for skill in parse_part(texts[digest], name)]
    assert sorted(again, key=lambda skill: skill.path) == list(manifest.skills)
    assert top.links == outside
    assert (top.skills, top.files) == (len(found), sum(len(skill.files) for skill in found.values()))
    assert all(sha256(text).digest() == digest for digest, text in texts.items())


def test_the_time_of_a_record_is_that_moment_wherever_it_is_told():
    elsewhere = replace(RECORD, created=RECORD.created.astimezone(timezone(timedelta(hours=5))))
    assert render_record(elsewhere) == render_record(RECORD)


# -- what is not as it was written ---------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_flipped_byte_goes_unseen(document):
    data, parse = DOCUMENTS[document]
    meant = parse(data)
    for at in range(len(data)):
        for flipped in {1, 0x20, 0x80}:
            changed = bytearray(data)
            changed[at] ^= flipped
            try:
                found = parse(bytes(changed))
            except IntegrityError:
                continue
            assert found != meant


@pytest.mark.soak
@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_other_byte_and_no_cut_goes_unseen(document):
    data, parse = DOCUMENTS[document]
    meant = parse(data)
    for at in range(len(data)):
        others = [data[:at] + bytes([value]) + data[at + 1 :] for value in range(256) if value != data[at]]
        for changed in (*others, data[:at], data[:at] + data[at + 1 :], data[:at] + b" " + data[at:]):
            try:
                assert parse(changed) != meant
            except IntegrityError:
                continue


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"",
        lambda text: text[:-1],
        lambda text: text + b"\n",
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b",", b", ", 1),
        lambda text: text.replace(b'"version":1', b'"version":1,"version":1'),
        lambda text: text.replace(b'"version":1', b'"version":2'),
        lambda text: text.replace(b'"version":1', b'"version":true'),
        lambda text: text.replace(b'"version":1', b'"version":1.0'),
        lambda text: text.replace(b'"version":1', b'"version":"1"'),
        lambda text: text.replace(b'"version":1', b'"version":1,"x":0'),
        lambda text: text.replace(b'"format"', b'"form"'),
        lambda text: text.replace(b"skillfs-", b"skillfs_"),
        lambda text: text.replace(b"sha256:", b"md5:"),
        lambda text: text.replace(b"sha256:", b"sha256:A"),
        lambda text: text.replace(b'"sha256:', b'"sha256:..', 1),
        lambda text: text.replace(b"16", b"-1") if b"16" in text else text.replace(b",7,", b",-1,"),
        lambda text: text.replace(b"16", b"9" * 400) if b"16" in text else text.replace(b",7,", b",1e3,"),
        lambda text: text.replace(b"16", b"NaN") if b"16" in text else text.replace(b",7,", b",true,"),
        lambda text: b"[" * 100_000,
        lambda text: b"{" * 100_000,
        lambda text: b'{"a":' * 100_000,
        lambda text: b"[]",
        lambda text: b"null",
        lambda text: text.replace(b"skillfs", b"skillf\xff", 1),
    ],
)  # fmt: skip
def test_a_crafted_document_is_refused(document, change):
    data, parse = DOCUMENTS[document]
    assert change(data) != data
    with pytest.raises(IntegrityError):
        parse(change(data))


BAD_PATHS = [
    "", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "./a", "a\0b", "x" * 256, "a/" * 2100 + "b",
    "\ud800", None, 7, ["a"], {},
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_no_path_leads_elsewhere(path):
    assert path_fault(path) is not None
    skill = json.loads(render_part([SKILL]))["skills"][0]
    for change in (
        {"path": path},
        {"files": [["SKILL.md", 7, digest_text(ONE)], [path, 9, digest_text(TWO)]]},
        {"links": [[path, "a"]]},
        {"links": [["l", path]]},
        {"folders": [path]},
    ):
        if path == "" and ("path" in change or change.get("links") == [["l", ""]]):
            continue  # the root
        own = {**skill, **change}
        data = canonical_json({"format": "skillfs-manifest-part", "version": 1, "skills": [own]})
        name = part_name(own["path"]) if path_fault(own["path"]) is None else PART
        with pytest.raises(IntegrityError):
            parse_part(data, name)
    record = json.loads(render_record(RECORD))
    with pytest.raises(IntegrityError):
        parse_record(canonical_json({**record, "identities": [[path, str(uuidlib.UUID(int=8))]]}))
    with pytest.raises(IntegrityError):
        parse_top(canonical_json({**json.loads(render_top(TOP)), "links": [[path, "a"]]}))


@pytest.mark.parametrize(
    "path", ["a", "a b", "~", "$HOME", "a\\b", "x\ny", "*", "...", "é" * 127, "SKILL.md"]
)
def test_odd_names_are_names(path):
    assert path_fault(path) is None


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": [["skill.md", 1, digest_text(ONE)]]},
        {"files": [["SKILL.md", 1, digest_text(ONE)], ["B", 1, digest_text(ONE)]]},
        {"files": [["SKILL.md", 1, digest_text(ONE)], ["SKILL.md", 1, digest_text(ONE)]]},
        {"files": [["SKILL.md", 1, digest_text(ONE), "y"]]},
        {"files": [["SKILL.md", 1, digest_text(ONE), "x", "x"]]},
        {"files": [["SKILL.md", 1]]},
        {"files": [["SKILL.md", 2**63, digest_text(ONE)]]},
        {"files": {"SKILL.md": 1}},
        {"files": ["SKILL.md"]},
        {"links": [["l"]]},
        {"links": [["m", "a"], ["l", "a"]]},
        {"links": {"l": "a"}},
        {"folders": ["b", "a"]},
        {"folders": "e"},
        {"digest": None},
        {"digest": digest_text(ONE).upper()},
        {"digest": digest_text(ONE)[:-2]},
        {"more": 1},
    ],
)
def test_a_skill_in_another_form_is_refused(change):
    skill = {**json.loads(render_part([SKILL]))["skills"][0], **change}
    data = canonical_json({"format": "skillfs-manifest-part", "version": 1, "skills": [skill]})
    with pytest.raises(IntegrityError):
        parse_part(data, PART)


def test_skills_stand_in_their_part_and_in_order():
    data = render_part([SKILL])
    with pytest.raises(IntegrityError):
        parse_part(data, f"{(int(PART, 16) + 1) % 256:02x}")
    value = json.loads(data)
    with pytest.raises(IntegrityError):
        parse_part(canonical_json({**value, "skills": value["skills"] * 2}), PART)
    top = json.loads(render_top(TOP))
    for name in ("0", "000", "0G", "..", "AB"):
        with pytest.raises(IntegrityError):
            parse_top(canonical_json({**top, "parts": {name: digest_text(ONE)}}))


@pytest.mark.parametrize(
    "created",
    [
        "2026-11-30",
        "2026-11-30T12:00:00Z",
        "2026-13-30T12:00:00.000000Z",
        "1969-12-31T23:59:59.999999Z",
        "2262-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.999999Z",
        5,
        None,
    ],
)
def test_a_time_in_another_form_is_refused(created):
    with pytest.raises(IntegrityError):
        parse_record(canonical_json({**json.loads(render_record(RECORD)), "created": created}))


def test_no_two_paths_have_one_uuid():
    twice = [["a", str(uuidlib.UUID(int=8))], ["b", str(uuidlib.UUID(int=8))]]
    with pytest.raises(IntegrityError, match="one UUID"):
        parse_record(canonical_json({**json.loads(render_record(RECORD)), "identities": twice}))


def test_what_is_too_large_is_refused_unread(monkeypatch):
    monkeypatch.setattr(manifest_json, "MOST_JSON_BYTES", 10)
    with pytest.raises(IntegrityError):
        parse_json(b" " * 11)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_whatever_is_read_is_refused_in_the_same_way(data):
    for _, parse in DOCUMENTS.values():
        with pytest.raises(IntegrityError):
            parse(data)


# -- one tree ------------------------------------------------------------------------------------------------


def skill(path: str, *below: str, links: tuple[tuple[str, str], ...] = (), folders: tuple[str, ...] = ()):
    own = (SKILL_MD, *(ManifestFile(name, 1, TWO, False) for name in below))
    return ManifestSkill(path, ONE, own, links, folders)


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest((skill("a", "x", "x/y"),)),
        Manifest((skill("a", "x/y", "x"),)),
        Manifest((skill("a", "x", links=(("x", "a"),)),)),
        Manifest((skill("a", "x", folders=("x",)),)),
        Manifest((skill("a", "x/y", folders=("x",)),)),
        Manifest((skill("a", links=(("x", "a"),), folders=("x/y",)),)),
        Manifest((skill("a", "b/x"), skill("a/b"))),
        Manifest((skill("a", links=(("b/x", "a"),)), skill("a/b"))),
        Manifest((skill("a", "b"), skill("a/b"))),
        Manifest((skill(""), skill("SKILL.md"))),
        Manifest((skill("a"),), (("a", "a"),)),
        Manifest((skill("a/b"),), (("a", "b"),)),
        Manifest((skill("a"), skill("a"))),
        Manifest((skill("a", links=(("b/SKILL.md", "a/SKILL.md"),)),)),
        Manifest((skill("a"),), (("b/SKILL.md", "a/SKILL.md"),)),
    ],
)
def test_what_cannot_lie_in_one_tree_is_refused(manifest):
    with pytest.raises(IntegrityError):
        manifest.check()


def test_what_can_lie_in_one_tree_is_taken():
    Manifest(
        (skill("", "x/y", folders=("z",)), skill("a/b", "c", links=(("l", ""),)), skill("a/b/d")),
        (("top", "a/b"), ("u/v", "a")),
    ).check()


# -- digests and labels --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.dictionaries(paths, st.tuples(counts, digests), max_size=4))
def test_the_digest_of_a_skill_is_that_of_the_sorted_list(found):
    told = [(path, size, digest) for path, (size, digest) in found.items()]
    listed = sorted([path, size, "sha256:" + digest.hex()] for path, size, digest in told)
    expected = sha256(json.dumps(listed, separators=(",", ":")).encode()).digest()
    assert skill_digest(told) == skill_digest(reversed(told)) == expected


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "g" * 64, ONE.hex(), "SHA256:" + ONE.hex(), None, 5]
)
def test_what_is_no_digest_is_refused(text):
    with pytest.raises(IntegrityError):
        parse_digest(text)


@pytest.mark.parametrize("label", ["a", "v1.0-rc+2_b", "7", "x" * 100])
def test_a_label_is_a_plain_name(label):
    assert check_label(label) == label


@pytest.mark.parametrize(
    "label", ["", ".", "..", "../x", "a/b", ".a", "-a", "a b", "a\n", "é", "x" * 101, "a\0", None, 5]
)
def test_what_could_be_a_path_is_no_label(label):
    with pytest.raises(InvalidArgumentError):
        check_label(label)


def test_skills_nested_too_deep_are_refused(monkeypatch):
    nested = Manifest(tuple(skill("/".join("a" * depth)) for depth in range(1, 20)))
    with pytest.raises(IntegrityError, match="not that of its files"):
        nested.check_digests()
    monkeypatch.setattr("skillfs.core.manifest.MOST_NESTED_CHARACTERS", 1_000)
    with pytest.raises(IntegrityError, match="too deep"):
        nested.check_digests()
