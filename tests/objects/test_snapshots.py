"""Records, labels and manifests in an object folder."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core.manifest import Manifest, digest_text, skill_digest
from skillfs.core.manifest_json import render_record, written
from skillfs.errors import (
    AlreadyExistsError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
)
from skillfs.objects.folder import ObjectFolder, blob_name, is_name, manifest_name
from skillfs.objects.local import LocalObjects
from skillfs.objects.snapshots import SnapshotCatalog, record_name, record_of_label
from tests.objects.harness import START, check_whole, digest_of, manifest_of, record_of, take, texts_of

OTHER = uuid.UUID(int=2)


@pytest.fixture
def catalog(local: LocalObjects) -> SnapshotCatalog:
    return SnapshotCatalog(local)


def test_a_snapshot_comes_back(folder: ObjectFolder) -> None:
    texts = [b"one", b"two", b"", bytes(range(256)) * 9]
    digest = take(SnapshotCatalog(folder), texts, "v1")
    catalog = SnapshotCatalog(folder)
    assert [found for found, _ in catalog.records()] == [digest]
    found, record = catalog.resolve("v1")
    assert found == digest
    assert record == catalog.record(digest) == record_of(manifest_of(texts), written(manifest_of(texts))[0])
    assert catalog.manifest(record) == manifest_of(texts)
    assert texts_of(catalog, record) == sorted(texts)
    assert check_whole(folder) == {"v1": sorted(texts)}


def test_what_there_is_by_which_name(folder: ObjectFolder) -> None:
    catalog = SnapshotCatalog(folder)
    first = take(catalog, [b"a"], "v1", at=0)
    second = take(catalog, [b"b"], "v2", at=1)
    third = take(catalog, [b"a"], at=2, store=OTHER)
    catalog.add(catalog.record(second), "also")
    catalog = SnapshotCatalog(folder)
    assert [name.digest for name in catalog.names()] == [third, second, first]
    assert [digest for digest, _ in catalog.records()] == [third, second, first]
    assert catalog.labels() == {"also": second, "v1": first, "v2": second}
    records = dict(catalog.records())
    asked = {
        "v1": first, "also": second, "latest": third,
        digest_text(first): first, digest_text(second)[:15]: second, digest_text(third).upper(): third,
        # Of several records with one manifest the newest is meant.
        digest_text(records[first].manifest): third, digest_text(records[second].manifest)[:20]: second,
    }  # fmt: skip
    for text, digest in asked.items():
        text = text.replace("SHA256", "sha256")
        assert catalog.resolve(text) == (digest, records[digest]), text
    assert catalog.resolve("latest", OTHER)[0] == third
    assert catalog.resolve("latest", records[first].store_id)[0] == second
    newest = catalog.newest_of(OTHER)
    assert newest is not None
    assert newest[0] == third
    assert catalog.newest_of(uuid.UUID(int=3)) is None


def test_what_names_nothing(catalog: SnapshotCatalog) -> None:
    for text in ("latest", "v1", "sha256:" + "0" * 64, "sha256:01234567"):
        with pytest.raises(NotFoundError, match="skillfs snapshot list"):
            catalog.resolve(text)
    for text in (
        "",
        "a/b",
        "../labels/v1",
        "sha256:0123456",
        "sha256:x",
        "sha256:" + "0" * 65,
        "-x",
        "a\n",
        None,
    ):
        with pytest.raises(InvalidArgumentError):
            catalog.resolve(text)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        catalog.resolve("latest", OTHER)
    with pytest.raises(NotFoundError):
        catalog.record(bytes(32))
    with pytest.raises(NotFoundError):
        catalog.remove(bytes(32))


def test_a_beginning_that_several_have(catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "skillfs.objects.snapshots._DIGEST", __import__("re").compile("sha256:(.*)").fullmatch
    )
    digests = [take(catalog, [b"%d" % n], at=n).hex() for n in range(17)]
    first = next(a for n, a in enumerate(digests) if any(a[0] == b[0] for b in digests[:n]))
    with pytest.raises(InvalidArgumentError, match="more digits"):
        catalog.resolve(f"sha256:{first[0]}")
    assert catalog.resolve(f"sha256:{first[:12]}")[0].hex() == first


def test_labels_are_of_one_snapshot(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    first = take(catalog, [b"a"], "v1")
    record = catalog.record(first)
    assert catalog.add(record, "v1") == first  # again is no fault
    assert catalog.check_free("v1", first) == "v1"
    for taken in (lambda: catalog.check_free("v1"), lambda: take(catalog, [b"b"], "v1", at=1)):
        with pytest.raises(AlreadyExistsError, match="taken"):
            taken()
    for label in ("latest", "", "a/b", ".x", "x" * 101, "a b", "é"):
        with pytest.raises(InvalidArgumentError):
            catalog.check_free(label)
        with pytest.raises(InvalidArgumentError):
            catalog.add(record, label)
    assert catalog.labels() == {"v1": first}
    assert [digest for digest, _ in catalog.records()] == [first]


def test_removing_takes_the_labels_too(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    first = take(catalog, [b"a"], "v1")
    second = take(catalog, [b"b"], "v2", at=1)
    catalog.add(catalog.record(first), "again")
    catalog.remove(first)
    assert catalog.labels() == {"v2": second}
    with pytest.raises(NotFoundError):
        catalog.record(first)
    assert take(catalog, [b"c"], "v1", at=2) != first
    assert check_whole(quick) == {"v1": [b"c"], "v2": [b"b"]}


def test_what_is_there_is_not_written_again(quick: ObjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = SnapshotCatalog(quick)
    take(catalog, [b"a", b"b"])
    put: list[str] = []
    write = quick.put_all
    monkeypatch.setattr(quick, "put_all", lambda objects: write([put.append(o[0]) or o for o in objects]))
    take(catalog, [b"a", b"b"], "v1", at=1)
    assert put == []
    take(catalog, [b"a", b"c"], at=2)
    assert blob_name(digest_of(b"c")) in put
    assert blob_name(digest_of(b"a")) not in put


def test_blobs_of_another_size_count_as_missing(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    digest, other = digest_of(b"abc"), digest_of(b"x")
    for count in (1, 100):  # one by one, and by a listing
        many = {digest_of(b"%d" % n): 1 for n in range(count)}
        quick.put_all([(blob_name(digest), [b"ab"])])
        assert catalog.blobs.has_all([digest, other, *many]) == {digest}
        assert catalog.blobs.has_all({digest: 3, other: 1, **many}) == set()
        assert catalog.blobs.has_all({digest: 2, other: 1, **many}) == {digest}
    assert catalog.blobs.has_all([]) == set()


def test_a_damaged_blob_is_set_aside_and_written_anew(folder: ObjectFolder) -> None:
    catalog = SnapshotCatalog(folder)
    take(catalog, [b"abc"], "v1")
    name = blob_name(digest_of(b"abc"))
    folder.put_all([(name, [b"abd"])])
    for says in ("damaged", "missing", "missing"):
        with pytest.raises(IntegrityError, match=says):
            check_whole(folder)
    assert not folder.has(name)
    take(catalog, [b"abc"], at=1)
    assert check_whole(folder) == {"v1": [b"abc"]}


def test_while_somebody_writes_nothing_is_set_aside(quick: ObjectFolder) -> None:
    """It may be written anew at this very moment."""
    catalog = SnapshotCatalog(quick)
    take(catalog, [b"abc"])
    name = blob_name(digest_of(b"abc"))
    quick.put_all([(name, [b"abd"])])
    with quick.holding(alone=False), pytest.raises(IntegrityError, match="damaged"):
        check_whole(quick)
    assert quick.has(name)


def test_a_blob_that_was_mended_meanwhile_stays(local: LocalObjects) -> None:
    catalog = SnapshotCatalog(local)
    name = blob_name(digest_of(b"abc"))
    local.put_all([(name, [b"abd"])])
    with catalog.blobs.open(digest_of(b"abc"), 3) as handle:
        local.put_all([(name, [b"abc"])])
        with pytest.raises(IntegrityError, match="damaged"):
            handle.read(0, 3)
    assert local.get(name) == b"abc"


def test_a_missing_or_damaged_manifest(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    digest = take(catalog, [b"a", b"b", b"c"])
    record = catalog.record(digest)
    top = catalog.top(record)
    part = manifest_name(next(iter(top.parts.values())))
    text = quick.get(part)
    quick.put_all([(part, [text + b" "])])
    for says in ("damaged", "missing"):
        with pytest.raises(IntegrityError, match=says):
            catalog.manifest(record)
    quick.put_all([(part, [text])])
    assert catalog.manifest(record) == manifest_of([b"a", b"b", b"c"])
    quick.remove(manifest_name(record.manifest))
    with pytest.raises(IntegrityError, match="missing"):
        catalog.top(record)


def test_parts_are_read_alone(catalog: SnapshotCatalog) -> None:
    texts = [b"%d" % n for n in range(30)]
    record = catalog.record(take(catalog, texts))
    top = catalog.top(record)
    some = sorted(top.parts)[:3]
    told = {skill.path for skill in catalog.parts(top, some)}
    assert 3 <= len(told) < 30
    assert told < {skill.path for skill in catalog.parts(top)}


def test_a_label_that_is_taken_at_this_moment(
    catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = take(catalog, [b"a"])
    create = catalog.folder.create

    def late(name: str, data: bytes) -> bool:
        if name == "labels/v1":
            monkeypatch.undo()
            catalog.add(catalog.record(first), "v1")
        return create(name, data)

    monkeypatch.setattr(catalog.folder, "create", late)
    with pytest.raises(AlreadyExistsError, match="taken"):
        take(catalog, [b"b"], "v1", at=1)
    assert catalog.labels() == {"v1": first}


def test_a_manifest_that_fits_in_no_tree(catalog: SnapshotCatalog) -> None:
    """Its skills are told in two parts, each sound by itself."""
    one, two = manifest_of([b"a", b"b"]).skills
    (file,) = one.files
    crafted = Manifest(
        (replace(one, files=(file, file._replace(path=two.path))), replace(two, path="s0000/s0001"))
    )
    top, parts = written(crafted)
    catalog.blobs.put_manifests({**parts, digest_of(top): top})
    with pytest.raises(IntegrityError, match="no folder"):
        catalog.manifest(record_of(crafted, top))


def test_a_digest_that_is_not_that_of_the_files(catalog: SnapshotCatalog) -> None:
    """Everything else of it is right, and its top and parts have their right digests."""
    one, two = manifest_of([b"a", b"b"]).skills
    linked = (("to", f"{two.path}/SKILL.md"),)
    told = [(file.path, file.size, file.digest) for file in one.files]
    digest = skill_digest([*told, ("to", two.files[0].size, two.files[0].digest)])
    for first in (
        replace(one, digest=two.digest),
        replace(one, digest=digest),  # as if it had the link
        replace(one, links=linked),  # as if it had not
        replace(one, path=""),  # as if the other did not lie in it
    ):
        crafted = Manifest((first, two))
        top, parts = written(crafted)
        catalog.blobs.put_manifests({**parts, digest_of(top): top})
        with pytest.raises(IntegrityError, match="not that of its files"):
            catalog.manifest(record_of(crafted, top))
    sound = Manifest((replace(one, digest=digest, links=linked), two))
    top, parts = written(sound)
    catalog.blobs.put_manifests({**parts, digest_of(top): top})
    assert catalog.manifest(record_of(sound, top)) == sound


def test_a_record_that_lies_about_its_manifest(catalog: SnapshotCatalog) -> None:
    record = catalog.record(take(catalog, [b"a"]))
    for lie in (replace(record, skills=2), replace(record, files=0), replace(record, size=5)):
        with pytest.raises(IntegrityError, match="counts"):
            catalog.manifest(lie)


def test_what_nobody_could_read_is_not_written(catalog: SnapshotCatalog) -> None:
    record = catalog.record(take(catalog, [b"a"]))
    with pytest.raises(IntegrityError, match="time"):
        catalog.add(replace(record, created=record.created.replace(year=2262)), "v1")
    assert len(catalog.names()) == 1
    assert catalog.labels() == {}


def test_a_record_under_another_time(catalog: SnapshotCatalog) -> None:
    digest = take(catalog, [b"a"])
    record = catalog.record(digest)
    later = record_name(replace(record, created=record.created + timedelta(seconds=1)), digest)
    catalog.folder.create(later, render_record(record))
    with pytest.raises(IntegrityError, match="another time"):
        list(SnapshotCatalog(catalog.folder).records())


def test_a_damaged_record_does_not_hide_the_others(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    first, second = take(catalog, [b"a"], "v1"), take(catalog, [b"b"], at=1)
    manifests = [catalog.record(digest).manifest for digest in (first, second)]
    quick.put_all([(record_name(catalog.record(second), second), [b"{}"])])
    catalog = SnapshotCatalog(quick)
    assert catalog.resolve("v1")[0] == first
    assert catalog.resolve(digest_text(manifests[0]))[0] == first
    # What may be the damaged one is not said to be missing.
    for text in ("latest", digest_text(second), digest_text(manifests[1])):
        with pytest.raises(IntegrityError):
            catalog.resolve(text)
    with pytest.raises(IntegrityError):
        list(catalog.records())
    catalog.remove(second)
    assert catalog.resolve("latest")[0] == first


def test_a_record_that_is_removed_meanwhile_is_left_out(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    first, second, third = (take(catalog, [b"%d" % at], at=at) for at in range(3))
    manifest = catalog.record(first).manifest
    found = SnapshotCatalog(quick).records()
    assert next(found)[0] == third
    catalog.remove(second)
    assert [digest for digest, _ in found] == [first]
    assert SnapshotCatalog(quick).resolve(digest_text(manifest))[0] == first


def test_a_record_that_is_no_file_is_said(local: LocalObjects) -> None:
    catalog = SnapshotCatalog(local)
    digest = take(catalog, [b"a"])
    place = Path(local.path, record_name(catalog.record(digest), digest))
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(IntegrityError, match="no file"):
        list(SnapshotCatalog(local).records())
    with pytest.raises(IntegrityError, match="no file"):
        SnapshotCatalog(local).resolve("latest")


CRAFTED = [
    b"",
    b"\n",
    b"latest\n",
    b"../../etc/passwd\n",
    b"sha256:" + b"0" * 64,
    b"20260102T030405678901Z-" + b"0" * 64,
    b"20260102T030405678901Z-" + b"0" * 64 + b"\n",
    b"\xff" * 88,
    b"20260102T030405678901Z-../" + b"0" * 61 + b"\n",
]


@pytest.mark.parametrize("text", CRAFTED)
def test_a_label_that_was_crafted(catalog: SnapshotCatalog, text: bytes) -> None:
    digest = take(catalog, [b"a"], "good")
    catalog.folder.create("labels/v1", text)
    with pytest.raises(IntegrityError, match='"v1" is damaged'):
        catalog.resolve("v1")
    with pytest.raises(IntegrityError, match='"v1" is damaged'):
        catalog.check_free("v1")
    assert catalog.labels() == {"good": digest}


@given(st.binary(max_size=120) | st.from_regex(rb"[0-9]{8}T[0-9]{12}Z-[0-9a-f]{64}\n", fullmatch=True))
def test_what_a_label_holds_is_a_name_or_nothing(data: bytes) -> None:
    found = record_of_label(data)
    assert found is None or is_name(found.name)


@given(micros=st.integers(0, 10**15), digest=st.binary(min_size=32, max_size=32))
def test_names_of_records_are_in_order_of_time(micros: int, digest: bytes) -> None:
    manifest = manifest_of([b"a"])
    one = record_of(manifest, b"", micros)
    other = replace(one, created=START + timedelta(microseconds=micros + 1))
    names = [record_name(one, digest), record_name(other, bytes(32))]
    assert all(map(is_name, names))
    assert names == sorted(names)
