"""What no snapshot needs goes, and nothing else; what is damaged or missing is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillfs.core.manifest import digest_text
from skillfs.errors import IntegrityError, StoreUnavailableError
from skillfs.objects.folder import BAD, BLOBS, MANIFESTS, ObjectFolder, bad_name, blob_name, manifest_name
from skillfs.objects.local import LocalObjects
from skillfs.objects.snapshots import SnapshotCatalog, record_name
from skillfs.objects.upkeep import Finding, Removed, fsck, gc
from tests.conftest import write
from tests.objects.harness import check_whole, digest_of, take

A, B, C = b"a", b"bb", b"ccc"


@pytest.fixture
def taken(folder: ObjectFolder) -> tuple[SnapshotCatalog, bytes, bytes]:
    """A folder with two snapshots that have one file in common."""
    catalog = SnapshotCatalog(folder)
    return catalog, take(catalog, [A, B], "one"), take(catalog, [B, C], "two", at=1)


def names(folder: ObjectFolder) -> set[str]:
    return {info.name for prefix in (BLOBS, MANIFESTS) for info in folder.listed(prefix)}


def test_gc_removes_what_nobody_needs(taken: tuple[SnapshotCatalog, bytes, bytes]) -> None:
    catalog, one, two = taken
    folder = catalog.folder
    before = names(folder)
    assert gc(folder) == Removed(0, 0)
    assert fsck(folder) == []
    catalog.remove(one)
    superfluous = {finding.name: finding.kind for finding in fsck(folder)}
    assert set(superfluous.values()) == {"unreferenced"}
    assert blob_name(digest_of(A)) in superfluous
    size = sum(info.size for p in (BLOBS, MANIFESTS) for info in folder.listed(p) if info.name in superfluous)
    assert gc(folder) == Removed(len(superfluous), size)
    assert names(folder) == before - superfluous.keys()
    assert check_whole(folder) == {"two": [B, C]}
    assert fsck(folder) == []
    catalog.remove(two)
    gc(folder)
    assert names(folder) == set()


def test_gc_of_a_folder_with_nothing_in_it(quick: ObjectFolder) -> None:
    assert gc(quick) == Removed(0, 0)
    assert fsck(quick) == []


def test_gc_takes_what_killed_writers_left(local: LocalObjects) -> None:
    write(Path(local.path), {"tmp/0123456789abcdef/1": "left", "tmp/0123456789abcdef/2": "over"})
    assert [finding.kind for finding in fsck(local)] == ["leftover", "leftover"]
    assert gc(local) == Removed(2, 8)
    assert fsck(local) == []


@pytest.mark.parametrize("what", ["record", "top", "part"])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_gc_removes_nothing_where_it_cannot_tell(local: LocalObjects, what: str, how: str) -> None:
    folder, catalog = local, SnapshotCatalog(local)
    one, two = take(catalog, [A, B], "one"), take(catalog, [B, C], "two", at=1)
    record = catalog.record(two)
    name = {
        "record": record_name(record, two),
        "top": manifest_name(record.manifest),
        "part": manifest_name(max(catalog.top(record).parts.values())),
    }[what]
    if (what, how) == ("record", "missing"):
        return  # then it is no snapshot any more
    if how == "damaged":
        folder.put_all([(name, [folder.get(name)[:-1]])])
    else:
        folder.remove(name)
    catalog.remove(one)
    before = names(folder)
    with pytest.raises(IntegrityError, match="nothing was removed"):
        gc(folder)
    if what == "record":
        assert names(folder) == before
    assert {blob_name(digest_of(text)) for text in (A, B, C)} <= names(folder)
    faults = [finding for finding in fsck(folder) if finding.is_fault]
    if what == "record":
        assert [finding.name for finding in faults if finding.kind == "damaged"] == ["labels/two", name]
        # It is set aside now, and what only it needed is there until it is given up.
        with pytest.raises(IntegrityError, match=f"skillfs snapshot remove {digest_text(two)}"):
            gc(folder)
        assert names(folder) == before
        assert SnapshotCatalog(folder).damaged(digest_text(two)[:15]) == two
        catalog.remove(two)
    else:
        assert [(f.name, f.snapshots) for f in faults] == [(name, (digest_text(two),))]
        catalog.remove(two)
    gc(folder)
    assert names(folder) == set()


def test_gc_and_fsck_are_alone(quick: ObjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.objects.locking.WAIT_SECONDS", 0)
    monkeypatch.setattr("skillfs.objects.holds.WAIT_SECONDS", 0)
    with quick.holding(alone=False):
        for work in (gc, fsck, lambda folder: SnapshotCatalog(folder).remove(bytes(32))):
            with pytest.raises(StoreUnavailableError, match="try again"):
                work(quick)


def test_fsck_finds_what_is_damaged_or_missing(taken: tuple[SnapshotCatalog, bytes, bytes]) -> None:
    catalog, one, two = taken
    folder = catalog.folder
    a, b, c = (blob_name(digest_of(text)) for text in (A, B, C))
    folder.put_all([(b, [b"bx"]), (blob_name(digest_of(b"stray")), [b"wrong"])])
    folder.remove(c)
    folder.create("labels/crafted", b"sha256:nothing\n")
    told: list[tuple[int, int]] = []
    found = fsck(folder, lambda done, total: told.append((done, total)))
    both = (digest_text(two), digest_text(one))
    assert found == [
        Finding("missing", c, (digest_text(two),)),
        *sorted(
            [
                Finding("damaged", b, both),
                Finding("damaged", blob_name(digest_of(b"stray"))),
                Finding("damaged", "labels/crafted"),
            ],
            key=lambda finding: finding.name,
        ),
    ]
    assert all(finding.is_fault for finding in found)
    assert told == [(n + 1, len(told)) for n in range(len(told))]
    assert not folder.has(b)
    assert folder.has(a)
    again = fsck(folder)
    assert [(f.kind, f.name) for f in again if f.is_fault] == [("missing", name) for name in sorted([b, c])]
    aside = {bad_name(name) for name in (b, blob_name(digest_of(b"stray")), "labels/crafted")}
    assert {finding.name for finding in again if finding.kind == "set-aside"} == aside
    take(catalog, [A, B, C], at=2)
    assert not [finding for finding in fsck(folder) if finding.is_fault]
    assert check_whole(folder) == {"one": [A, B], "two": [B, C]}
    assert {info.name for info in folder.listed(BAD)} == aside
    gc(folder)
    assert list(folder.listed(BAD)) == []


def test_gc_keeps_what_was_set_aside_and_is_missing(quick: ObjectFolder) -> None:
    catalog = SnapshotCatalog(quick)
    take(catalog, [A, B], "one")
    a, b, stray = (blob_name(digest_of(text)) for text in (A, B, C))
    quick.put_all([(a, [b"wrong"]), (b, [b"wrong"]), (stray, [b"wrong"])])
    fsck(quick)
    quick.put_all([(b, [B])])
    assert gc(quick) == Removed(2, 10)
    assert [info.name for info in quick.listed(BAD)] == [bad_name(a)]
    quick.put_all([(a, [A])])
    gc(quick)
    assert list(quick.listed(BAD)) == []


def test_a_record_that_is_there_again_is_no_reason_to_remove_nothing(local: LocalObjects) -> None:
    catalog = SnapshotCatalog(local)
    digest = take(catalog, [A], "one")
    name = record_name(catalog.record(digest), digest)
    text = local.get(name)
    local.put_all([(name, [b"{}"])])
    fsck(local)
    local.put_all([(name, [text])])
    gc(local)
    assert list(local.listed(BAD)) == []
    assert SnapshotCatalog(local).resolve("latest")[0] == digest
    assert SnapshotCatalog(local).damaged(digest_text(digest)) is None


@pytest.mark.parametrize("what", ["pipe", "link", "folder"])
def test_what_lies_in_place_of_a_record_makes_gc_refuse(local: LocalObjects, what: str) -> None:
    catalog = SnapshotCatalog(local)
    digest = take(catalog, [A], "one")
    name = record_name(catalog.record(digest), digest)
    place = Path(local.path, name)
    place.unlink()
    if what == "pipe":
        os.mkfifo(place)
    elif what == "link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    before = names(local)
    with pytest.raises(IntegrityError, match="nothing was removed"):
        gc(local)
    assert Finding("damaged", name) in fsck(local)
    with pytest.raises(IntegrityError, match="nothing was removed"):
        gc(local)
    assert names(local) == before
    if what == "folder":
        Path(local.path, bad_name(name)).rmdir()
    else:
        SnapshotCatalog(local).remove(digest)
    gc(local)
    assert names(local) == set()


def test_gc_leaves_what_was_never_set_aside(local: LocalObjects) -> None:
    write(Path(local.path), {"bad/notes.txt": "x", "bad/bad-x": "x", "bad/blobs-x": "x", ".git/hooks/x": "x"})
    gc(local)
    assert sorted(path.name for path in Path(local.path, "bad").iterdir()) == [
        "bad-x",
        "blobs-x",
        "notes.txt",
    ]


def test_fsck_sees_that_a_manifest_tells_another_size(
    local: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file has that SHA-256 and this size; the manifest was crafted."""
    from tests.objects import harness

    catalog = SnapshotCatalog(local)
    with monkeypatch.context() as patch:
        patch.setattr(harness, "len", lambda x: 7 if x == A else len(x), raising=False)
        digest = take(catalog, [A])
    assert [(f.kind, f.snapshots) for f in fsck(local)] == [("damaged", (digest_text(digest),))]
    with pytest.raises(IntegrityError):
        check_whole(local)


def test_fsck_reads_shared_parts_once(local: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = SnapshotCatalog(local)
    for number in range(3):
        take(catalog, [A, B], at=number)
    read: list[str] = []
    get_all = local.get_all
    monkeypatch.setattr(local, "get_all", lambda names: read.extend(names) or get_all(names))
    assert fsck(local) == []
    parts = {manifest_name(d) for _, r in catalog.records() for d in catalog.top(r).parts.values()}
    assert [read.count(part) for part in sorted(parts)] == [1] * len(parts)
